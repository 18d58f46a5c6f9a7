"""Brokers forked from a process that has imported Odradek: each is a process like one of a new interpreter."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from odradek import forked_process
from odradek.broker_process import BrokerProcess
from odradek.fork_server import MOST_BYTES
from odradek.forked_process import UNKNOWN_STATUS, ForkedProcess
from odradek.ready_process import OWN_COMMAND
from tests.support.eventually import eventually

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="this system has no pidfd: nothing is forked"),
]

Fork = Callable[..., ForkedProcess]


@pytest.fixture
def fork(tmp_path: Path) -> Iterator[Fork]:
    """Starts processes of `odradek` whose log is in `tmp_path`; remaining ones are killed."""
    made: list[ForkedProcess] = []

    def start(*arguments: str, environment: dict[str, str] | None = None) -> ForkedProcess:
        with (tmp_path / "log").open("ab") as log:
            process = forked_process.start(arguments, environment or {**os.environ}, log.fileno())
        assert process is not None
        made.append(process)
        return process

    yield start
    for process in made:
        process.kill()
        process.wait()
        process.stdin.close()
        process.stdout.close()


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    """A broker that is a fork."""
    with BrokerProcess(tmp_path / "broker") as running:
        yield running


def own_server(process: ForkedProcess) -> int:
    """The process id of the fork server: the parent."""
    status = Path(f"/proc/{process.pid}/status").read_text()
    return int(status.partition("PPid:\t")[2].partition("\n")[0])


def test_output_and_status_are_those_of_a_new_interpreter(fork: Fork, tmp_path: Path) -> None:
    for arguments in (["--version"], ["broker", "--no-such-option"], ["broker", "nowhere.properties"]):
        expected = subprocess.run([*OWN_COMMAND, *arguments], capture_output=True, check=False)
        (tmp_path / "log").write_bytes(b"")
        process = fork(*arguments)
        assert process.wait(60) == expected.returncode
        assert process.stdout.read() == expected.stdout
        assert (tmp_path / "log").read_bytes() == expected.stderr


def test_a_signal_is_the_status(fork: Fork) -> None:
    process = fork("registry", "--port=0")
    assert process.poll() is None
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.01)
    process.kill()
    assert process.wait() == process.poll() == process.returncode == -signal.SIGKILL
    process.terminate()  # without an effect, and without an error


def test_ctrl_c_ends_it_as_it_ends_a_new_interpreter(fork: Fork, tmp_path: Path) -> None:
    process = fork("registry", "--port=0", f"--data={tmp_path / 'registry'}")
    assert b" ready: " in process.stdout.readline()
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 0


def test_folder_and_variables_are_those_of_the_caller(
    fork: Fork, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fork("--version").wait(60)  # the server runs before both change
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KAFKA_CFG_LOG_DIRS", "here")
    process = fork("broker", "--from-environment", "--override=listeners=PLAINTEXT://127.0.0.1:0")
    assert f"data in {tmp_path / 'here'}\n".encode() in process.stdout.readline()
    assert (tmp_path / "here" / "meta.properties").is_file()
    process.terminate()
    assert process.wait(60) == 0


@contextmanager
def without_server() -> Iterator[None]:
    """The next process starts a server of its own, and this is left alone."""
    present, forked_process._Server._present = forked_process._Server._present, None
    try:
        yield
    finally:
        if forked_process._Server._present is not None:
            forked_process._Server._present.close()
        forked_process._Server._present = present


def test_the_server_has_no_threads_and_keeps_no_descriptor_of_a_child(fork: Fork) -> None:
    with without_server():
        process = fork("registry", "--port=0")
        server = own_server(process)
        assert os.listdir(f"/proc/{server}/task") == [str(server)]
        fork("--version").wait(60)  # the server has answered, and closed what came with the request before
        before = os.listdir(f"/proc/{server}/fd")
        fork("--version").wait(60)
        assert os.listdir(f"/proc/{server}/fd") == before
        process.kill()


def test_interpreter_variables_need_a_new_interpreter(tmp_path: Path) -> None:
    with (tmp_path / "log").open("wb") as log:
        changed = {**os.environ, "PYTHONMALLOC": "malloc"}
        assert forked_process.start(["--version"], changed, log.fileno()) is None
    with BrokerProcess(tmp_path / "broker", environment={"PYTHONMALLOC": "malloc"}) as broker:
        assert b"PYTHONMALLOC=malloc" in Path(f"/proc/{broker.pid}/environ").read_bytes()


def test_a_path_of_modules_needs_a_new_interpreter_even_where_no_server_runs_yet(tmp_path: Path) -> None:
    """The server would import its `sitecustomize`, and without the arguments of the broker."""
    (tmp_path / "sitecustomize.py").write_text(
        "import sys; open(__file__ + '.out', 'w').write(' '.join(sys.orig_argv))"
    )
    environment = {"PYTHONPATH": str(tmp_path), "PYTHONSAFEPATH": "1"}
    with without_server(), BrokerProcess(tmp_path / "broker", environment=environment) as broker:
        seen = (tmp_path / "sitecustomize.py.out").read_text()
        assert f"--override=log.dirs={broker.data_dir}" in seen


def test_a_request_that_is_too_long_needs_a_new_interpreter(tmp_path: Path) -> None:
    with (tmp_path / "log").open("wb") as log:
        long = {**os.environ, "LONG": "x" * MOST_BYTES}
        assert forked_process.start(["--version"], long, log.fileno()) is None


def test_a_server_that_was_killed_is_replaced(fork: Fork) -> None:
    with without_server():
        orphan = fork("registry", "--port=0")
        server = own_server(orphan)
        os.kill(server, signal.SIGKILL)
        present = forked_process._Server._present
        assert present is not None
        eventually(lambda: not present.running)
        orphan.kill()
        assert orphan.wait(60) == UNKNOWN_STATUS
        later = fork("--version")
        assert later.wait(60) == 0


def test_a_broker_that_is_paused_has_stopped(broker: BrokerProcess) -> None:
    broker.pause()
    assert "State:\tT" in Path(f"/proc/{broker.pid}/status").read_text()
    broker.stop()


def test_brokers_and_server_end_with_a_test_process_that_was_killed(tmp_path: Path) -> None:
    program = (
        "import os, sys, signal\n"
        "from pathlib import Path\n"
        "from odradek.broker_process import BrokerProcess\n"
        "broker = BrokerProcess(Path(sys.argv[1]))\n"
        "broker.start()\n"
        "status = Path(f'/proc/{broker.pid}/status').read_text()\n"
        "print(broker.pid, status.partition('PPid:\\t')[2].split()[0], flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    ended = subprocess.run([sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True, check=False)
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    pids = ended.stdout.split()
    assert len(pids) == 2
    eventually(lambda: [pid for pid in pids if Path(f"/proc/{pid}").exists()], lambda left: not left)


def test_children_of_one_server_draw_different_numbers() -> None:
    """Python seeds `random` after a fork; a server that bypassed that would give all brokers one sequence."""
    program = (
        "import os, random, socket\n"
        "from odradek import fork_server\n"
        "ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)\n"
        "if os.fork() == 0:\n"
        "    ours.close()\n"
        "    if fork_server.serve(its) is not None: os.write(1, b'%.17f\\n' % random.random())\n"
        "    os._exit(0)\n"
        "its.close()\n"
        "for _ in range(2):\n"
        '    request = b\'{"arguments": [], "environment": {}, "folder": "/"}\'\n'
        "    socket.send_fds(ours, [request], [0, 1, 2])\n"
        "    socket.recv_fds(ours, 1000, 1)\n"
        "ours.close()\n"
        "os.wait()\n"
    )
    shown = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
    assert len(shown) == len(set(shown)) == 2
