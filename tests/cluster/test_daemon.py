"""A broker in the background: `--daemon`, its pid file, `odradek stop`, Kafka's scripts, SIGHUP, and closed streams."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from odradek.pid_file import running_process
from odradek.wire import Wire
from tests.jvm.process import BackgroundProcess
from tests.support.eventually import eventually

pytestmark = pytest.mark.slow
SCRIPTS = Path(__file__).resolve().parents[2] / "bin"
ODRADEK = [sys.executable, "-m", "odradek"]
DEADLINE_S = 60


class Daemons:
    """Commands about brokers with one server.properties; processes that still run at the end are killed."""

    def __init__(self, folder: Path) -> None:
        self.data = folder / "data"
        self.pid_file = self.data / "odradek.pid"
        self.file = folder / "server.properties"
        self.file.write_text(f"broker.id=3\nlog.dirs={self.data}\nlisteners=PLAINTEXT://127.0.0.1:0\n")

    def run(self, *command: str | Path) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(part) for part in command],
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
            check=False,
            stdin=subprocess.DEVNULL,
        )

    def start(self, *options: str | Path) -> tuple[int, int]:
        """Port and process id of a new daemon."""
        return self.started(self.run(*ODRADEK, "broker", "--daemon", self.file, *options))

    def started(self, ended: subprocess.CompletedProcess[str]) -> tuple[int, int]:
        assert (ended.returncode, ended.stderr) == (0, "")
        ready, process = ended.stdout.splitlines()
        port = re.search(r"^odradek \S+ ready: broker 3 at 127\.0\.0\.1:(\d+), data in ", ready)
        pid = re.search(r"^process (\d+), pid file ", process)
        assert port is not None
        assert pid is not None
        return int(port[1]), int(pid[1])

    def stop(self, *options: str | Path) -> subprocess.CompletedProcess[str]:
        return self.run(*ODRADEK, "stop", self.file, *options)

    def end(self) -> None:
        for path in self.data.parent.rglob("*.pid"):
            pid = running_process(path)
            if pid is not None:
                os.kill(pid, signal.SIGKILL)


@pytest.fixture
def daemons(tmp_path: Path) -> Iterator[Daemons]:
    made = Daemons(tmp_path)
    yield made
    made.end()


def serves(port: int) -> bool:
    with Wire("127.0.0.1", port) as wire:
        return wire.metadata([]).controller_id == 3


def is_gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    # In a container without an init the parent may not have waited for it yet.
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"


# --daemon and stop


def test_a_daemon_outlives_its_command_and_is_stopped(daemons: Daemons) -> None:
    port, pid = daemons.start()
    assert serves(port)
    assert int(daemons.pid_file.read_text()) == pid
    assert os.getsid(pid) == pid  # no terminal can hang it up
    ended = daemons.stop()
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, f"odradek stopped: process {pid}\n", "")
    assert is_gone(pid)
    assert not daemons.pid_file.exists()
    assert (daemons.data / ".kafka_cleanshutdown").exists()
    assert "stopped" in (daemons.data / "odradek.out").read_text()


def test_options_are_passed_to_the_daemon(daemons: Daemons, tmp_path: Path) -> None:
    pid_file, log_file = tmp_path / "run/broker.pid", tmp_path / "log/broker.log"
    _, pid = daemons.start(
        "--override=num.partition=2", f"--pid-file={pid_file}", f"--log-file={log_file}", "--log-format=json"
    )
    assert int(pid_file.read_text()) == pid
    assert '"message": "unknown property name=num.partition closest=num.partitions"' in log_file.read_text()
    assert not daemons.pid_file.exists()
    assert daemons.stop().returncode == 1  # the stop command does not use that file
    assert daemons.stop(f"--pid-file={pid_file}").returncode == 0
    assert is_gone(pid)


def test_a_daemon_that_does_not_start_reports_why(daemons: Daemons) -> None:
    port, pid = daemons.start()
    again = daemons.run(*ODRADEK, "broker", "--daemon", daemons.file)
    assert (again.returncode, again.stdout) == (1, "")
    assert again.stderr.startswith(f"odradek: process {pid} runs already, with the pid file {daemons.pid_file}")
    taken = daemons.run(
        *ODRADEK,
        "broker",
        "--daemon",
        daemons.file,
        f"--override=log.dirs={daemons.data.parent}/other",
        f"--override=listeners=PLAINTEXT://127.0.0.1:{port}",
    )
    assert (taken.returncode, taken.stdout) == (1, "")
    assert taken.stderr.startswith(f"odradek: the address of PLAINTEXT://127.0.0.1:{port} is in use")
    wrong = daemons.run(*ODRADEK, "broker", "--daemon", "--override=log.segment.bytes=x")
    assert (wrong.returncode, wrong.stderr.count("\n")) == (1, 1)
    assert serves(port)


def test_a_pid_file_of_a_crash_names_no_process(daemons: Daemons) -> None:
    _, pid = daemons.start()
    with daemons.pid_file.open() as held:
        os.kill(pid, signal.SIGKILL)
        fcntl.flock(held, fcntl.LOCK_SH)  # until it has ended
    daemons.pid_file.write_text(f"{os.getpid()}\n")  # its number is another process's now
    ended = daemons.stop()
    assert ended.returncode == 1
    assert f"no broker runs with the pid file {daemons.pid_file}" in ended.stderr
    port, _ = daemons.start()
    assert serves(port)


def test_a_daemon_that_does_not_end_in_time_is_reported(daemons: Daemons) -> None:
    _, pid = daemons.start()
    os.kill(pid, signal.SIGSTOP)
    ended = daemons.stop("--timeout=0.2")
    assert ended.returncode == 1
    assert ended.stderr == f"odradek: process {pid} has not ended within 0.2 s after SIGTERM\n"
    os.kill(pid, signal.SIGCONT)


# Kafka's scripts


def test_the_scripts_accept_the_arguments_of_kafkas(daemons: Daemons, tmp_path: Path) -> None:
    start, stop = SCRIPTS / "kafka-server-start.sh", SCRIPTS / "kafka-server-stop.sh"
    port, pid = daemons.started(daemons.run(start, "-daemon", daemons.file, "--override", "num.partitions=7"))
    assert serves(port)
    link = tmp_path / "kafka-server-stop"
    link.symlink_to(stop)
    ended = daemons.run(link, daemons.file)
    assert (ended.returncode, ended.stdout) == (0, f"odradek stopped: process {pid}\n")
    usage = daemons.run(start)
    assert (usage.returncode, usage.stdout) == (1, "")
    assert usage.stderr.startswith("USAGE: ")
    assert "[-daemon] server.properties [--override property=value]*" in usage.stderr


def test_no_installed_script_has_the_name_of_one_of_kafkas() -> None:
    folder = Path(sys.executable).parent
    assert shutil.which("odradek", path=str(folder)) is not None
    assert [path.name for path in folder.glob("kafka-server-*")] == []


# Signals


@contextlib.contextmanager
def running(command: list[str], **options: object) -> Iterator[BackgroundProcess]:
    process = BackgroundProcess(command)
    try:
        yield process
    finally:
        process.kill()


SERVERS = {
    "broker": ["broker", "--override=broker.id=3", "--override=listeners=PLAINTEXT://127.0.0.1:0"],
    "registry": ["registry", "--port=0"],
    "cluster": ["cluster", "up", "--brokers=1", "--port=0"],
}


def server(kind: str, folder: Path) -> list[str]:
    data = f"--override=log.dirs={folder / 'data'}" if kind == "broker" else f"--data={folder / 'data'}"
    return [*ODRADEK, *SERVERS[kind], data]


@pytest.mark.parametrize("kind", SERVERS)
def test_sighup_stops_as_sigterm_does(kind: str, tmp_path: Path) -> None:
    # The tests themselves may run under nohup.
    with running(["env", "--default-signal=HUP", *server(kind, tmp_path)]) as process:
        process.stdout.wait_for(" ready: ", DEADLINE_S)
        os.kill(process.pid, signal.SIGHUP)
        process.stdout.wait_for_end(DEADLINE_S)
        assert process.stop() == 0
    clean = {"broker": "data/.kafka_cleanshutdown", "cluster": "data/1/.kafka_cleanshutdown"}
    assert kind not in clean or (tmp_path / clean[kind]).exists()


def test_under_nohup_a_hangup_is_ignored(tmp_path: Path) -> None:
    with running(["nohup", *server("broker", tmp_path)]) as process:
        port = int(re.search(r":(\d+),", process.stdout.wait_for(" ready: ", DEADLINE_S))[1])  # type: ignore[index]
        os.kill(process.pid, signal.SIGHUP)
        assert serves(port)
        assert process.stop() == 0


# Standard streams


@pytest.mark.parametrize("kind", SERVERS)
def test_closed_streams_do_no_harm(kind: str, tmp_path: Path) -> None:
    files = server(kind, tmp_path)
    watch = tmp_path / "ready"
    watch.touch()
    with subprocess.Popen(["sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh", *files]) as process:
        try:
            address = await_address(tmp_path / "data", kind, process)
            for number in (0, 1, 2):
                assert os.readlink(f"/proc/{process.pid}/fd/{number}") == "/dev/null"
            assert address
            process.terminate()
            assert process.wait(DEADLINE_S) == 0
        finally:
            process.kill()


def await_address(data: Path, kind: str, process: subprocess.Popen[bytes]) -> int:
    """The port on which a server without output listens, once it does."""

    def listening() -> list[int]:
        assert process.poll() is None, f"the {kind} with its data in {data} has ended with status {process.returncode}"
        rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
        return [
            int(fields[1].rpartition(":")[2], 16)
            for fields in rows
            if fields[3] == "0A" and fields[9] in sockets_of(process.pid)
        ]

    return eventually(listening)[0]


def sockets_of(pid: int) -> set[str]:
    """The inodes of a process's sockets."""
    found = set()
    for link in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            found.add(os.readlink(link).removeprefix("socket:[").rstrip("]"))
    return found


def closed_pipe() -> int:
    """The write end of a pipe without a reader."""
    reader, writer = os.pipe()
    os.close(reader)
    return writer


def full_device() -> int:
    return os.open("/dev/full", os.O_WRONLY)


@pytest.mark.parametrize("make", [closed_pipe, full_device])
@pytest.mark.parametrize("kind", SERVERS)
def test_output_that_cannot_be_written_does_no_harm(kind: str, make: Callable[[], int], tmp_path: Path) -> None:
    descriptor = make()
    with subprocess.Popen(server(kind, tmp_path), stdout=descriptor, stderr=descriptor) as process:
        os.close(descriptor)
        try:
            await_address(tmp_path / "data", kind, process)
            process.terminate()
            assert process.wait(DEADLINE_S) == 0
        finally:
            process.kill()
