"""`odradek streams run` and `top`: applications in several real processes, with a real broker."""

from __future__ import annotations

import fcntl
import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import termios
import textwrap
import urllib.request
from pathlib import Path
from typing import Any, Final

import pytest

from odradek.broker_process import BrokerProcess
from odradek.ports import free_port
from odradek.ready_process import OWN_COMMAND
from odradek.streams.supervisor.status_table import Row, rows_of
from odradek.streams.topology_view.document import read_document
from tests.jvm.process import BackgroundProcess
from tests.streams import counting, guide
from tests.streams.counting import counted
from tests.streams.stage import Stage
from tests.support.eventually import eventually

ROOT: Final = Path(__file__).parents[2]
TIMEOUT_S: Final = 150.0
_READY: Final = re.compile(r"odradek \S+ ready: tests\S+, \d+ process(?:es)?, metrics at (http://\S+)")
_STATE: Final = re.compile(r"process=(\d+) .* client state changed .* new=(\w+)")
_ENDED: Final = re.compile(r"process ended process=(\d+)")

pytestmark = pytest.mark.slow


class Supervised(BackgroundProcess):
    """An application that `odradek streams run` runs."""

    def __init__(self, stage: Stage, topology: str, processes: int, *options: str, **config: Any) -> None:
        """`config` are properties with underscores in the place of dots."""
        properties = {"processing.guarantee": "exactly_once_v2", **stage.config(**config)}
        stage.folder.mkdir(parents=True, exist_ok=True)
        file = stage.folder / "application.properties"
        file.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
        super().__init__(
            [
                *(*OWN_COMMAND, "streams", "run", f"tests.streams.apps.supervised:{topology}", f"--app-dir={ROOT}"),
                *(f"--processes={processes}", f"--properties={file}", "--metrics=127.0.0.1:0"),
                *("--restart-backoff-ms=100", *options),
            ]
        )

    def __enter__(self) -> Supervised:
        return self

    def await_ready(self) -> str:
        """Wait until all processes are running. Returns the address of the metrics page."""
        self.stdout.wait_until(lambda lines: any(map(_READY.match, lines)), TIMEOUT_S)
        return next(found[1] for line in self.stdout.lines() if (found := _READY.match(line)))

    def send(self, number: signal.Signals) -> None:
        """Send a signal to the supervisor."""
        os.kill(self.pid, number)

    def end(self) -> int:
        """Wait for the end. Returns the exit status."""
        self.stderr.wait_for_end(TIMEOUT_S)
        return self._process.wait(TIMEOUT_S)


@pytest.fixture
def stage(streams_broker: BrokerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stage:
    """Topics of four partitions, whose names the processes read from their environment."""
    made = Stage(streams_broker, tmp_path)
    made.make_topics(4)
    monkeypatch.setenv("WORDS", made.words)
    monkeypatch.setenv("COUNTS", made.counts)
    monkeypatch.setenv("FAIL_WHILE", str(tmp_path / "fail"))
    return made


def page(url: str) -> str:
    with urllib.request.urlopen(url, timeout=TIMEOUT_S) as response:
        return str(response.read().decode())


def rows(url: str) -> list[Row]:
    return rows_of(page(url))


def pids(url: str) -> list[int]:
    """The process ids of an application whose processes are all running."""
    found = eventually(lambda: rows(url), lambda table: all(row.state == "RUNNING" for row in table))
    return [int(row.pid) for row in found]


def states(lines: list[str]) -> list[tuple[int, str]]:
    """The states of the clients, and ENDED, in the order of the log."""
    found = []
    for line in lines:
        if match := _STATE.match(line):
            found.append((int(match[1]), match[2]))
        elif match := _ENDED.search(line):
            found.append((int(match[1]), "ENDED"))
    return found


def top(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*OWN_COMMAND, "streams", "top", *arguments], capture_output=True, text=True, check=False)


def assert_counted(stage: Stage, expected: dict[str, int]) -> None:
    """Each word has each of its counts once."""
    stage.await_counts(expected)
    assert counted(stage.bootstrap, stage.counts) == {
        word: list(range(1, count + 1)) for word, count in expected.items()
    }


def test_two_processes_share_the_tasks_with_one_log_one_page_and_one_table(stage: Stage) -> None:
    with Supervised(stage, "counts", 2, "--threads=2") as application:
        url = application.await_ready()
        stage.write(["a", "b", "a"] * 50)
        assert_counted(stage, {"a": 100, "b": 50})
        table = eventually(
            lambda: rows(url), lambda found: [len(row.tasks) for row in found] == [4, 4] and found[0].lag is not None
        )
        assert [(row.process, row.state, row.threads, row.restarts) for row in table] == [
            ("0", "RUNNING", 2, 0),
            ("1", "RUNNING", 2, 0),
        ]
        assert sum(row.processed for row in table) == 300, "each word, and once more by its key"
        shown = top(url, "--once").stdout.splitlines()
        assert [line.split()[:2] for line in shown[1:3]] == [["0", table[0].pid], ["1", table[1].pid]]
        assert shown[3].split()[:5] == ["total", "-", "2", "of", "2"]
        assert top("--port", url.split(":")[2].split("/")[0]).stdout.splitlines()[0] == shown[0]
        assert application.stop(TIMEOUT_S) == 0
    log = application.stderr.lines()
    assert {line.split()[0] for line in log if "client state changed" in line} == {"process=0", "process=1"}
    assert states(log)[-1][1] == "ENDED"
    assert [state for _, state in states(log)].count("NOT_RUNNING") == 2, "both were closed"
    for process in (0, 1):
        assert (stage.folder / "a" / f"process-{process}" / stage.application_id / ".lock").exists()


def test_a_killed_process_starts_again_and_nothing_is_lost(stage: Stage) -> None:
    with Supervised(stage, "counts", 2, session_timeout_ms=2_000) as application:
        url = application.await_ready()
        before = pids(url)
        stage.write(["a"] * 100)
        os.kill(before[1], signal.SIGKILL)
        application.stderr.wait_for("restarting process after backoff process=1 failures=1 backoff_ms=100", TIMEOUT_S)
        stage.write(["a"] * 100)
        assert_counted(stage, {"a": 200})
        table = eventually(lambda: rows(url), lambda found: [row.state for row in found] == ["RUNNING"] * 2)
        assert [row.restarts for row in table] == [0, 1]
        assert int(table[0].pid) == before[0]
        assert int(table[1].pid) != before[1]
        assert application.stop(TIMEOUT_S) == 0
    assert any("process ended process=1" in line and "SIGKILL" in line for line in application.stderr.lines())


def test_a_client_that_fails_again_and_again_waits_longer_each_time(stage: Stage) -> None:
    cause = stage.folder / "fail"
    cause.touch()
    with Supervised(stage, "failing", 1) as application:
        stage.write(["a"])
        application.stderr.wait_for("failures=3 backoff_ms=400", TIMEOUT_S)
        cause.unlink()
        url = application.await_ready()
        eventually(lambda: rows(url)[0], lambda row: row.state == "RUNNING" and row.processed == 1)
        assert rows(url)[0].restarts >= 3
        assert application.stop(TIMEOUT_S) == 0
    log = application.stderr.lines()
    assert next(line for line in log if "failures=" in line).endswith("failures=1 backoff_ms=100")
    assert any("fail exists" in line for line in log)


def test_a_rolling_restart_of_static_members_moves_no_task(stage: Stage) -> None:
    with Supervised(stage, "counts", 3, group_instance_id="machine") as application:
        url = application.await_ready()
        before = pids(url)
        stage.write(["a"] * 50)
        application.send(signal.SIGHUP)
        begin = len(application.stderr.lines())
        stage.write(["b"] * 50)
        after = eventually(
            lambda: rows(url),
            lambda found: all(row.state == "RUNNING" and int(row.pid) not in before for row in found),
        )
        assert_counted(stage, {"a": 50, "b": 50})
        assert [row.restarts for row in after] == [0, 0, 0]
        assert application.stop(TIMEOUT_S) == 0
    order = [each for each in states(application.stderr.lines()[begin:]) if each[1] in ("ENDED", "RUNNING")]
    assert order[:6] == [(number, state) for number in range(3) for state in ("ENDED", "RUNNING")]


def test_a_rolling_restart_of_dynamic_members_loses_nothing(stage: Stage) -> None:
    with Supervised(stage, "counts", 2) as application:
        url = application.await_ready()
        before = pids(url)
        stage.write(["a"] * 50)
        application.send(signal.SIGHUP)
        stage.write(["b"] * 50)
        eventually(
            lambda: rows(url), lambda found: all(row.state == "RUNNING" and int(row.pid) not in before for row in found)
        )
        assert_counted(stage, {"a": 50, "b": 50})
        assert application.stop(TIMEOUT_S) == 0


def test_a_rolling_restart_with_a_broken_application_leaves_the_other_process_alone(stage: Stage) -> None:
    with Supervised(stage, "counts", 2) as application:
        url = application.await_ready()
        before = pids(url)
        file = stage.folder / "application.properties"
        good = file.read_text()
        file.write_text(good + "num.stream.threads=none\n")
        application.send(signal.SIGHUP)
        application.stderr.wait_for("rolling restart abandoned process=0", TIMEOUT_S)
        file.write_text(good)
        assert pids(url)[1] == before[1]
        assert application.stop(TIMEOUT_S) == 0


def test_a_second_signal_ends_processes_that_do_not_close(stage: Stage) -> None:
    with Supervised(stage, "hanging", 1) as application:  # a second one would close tasks of the first when it joins
        application.await_ready()
        application.send(signal.SIGINT)
        application.stdout.wait_for("closing", TIMEOUT_S)
        application.send(signal.SIGINT)
        assert application.end() == 1
    assert any("SIGKILL" in line for line in application.stderr.lines())


def test_processes_close_when_the_supervisor_is_killed(stage: Stage) -> None:
    with Supervised(stage, "counts", 2) as application:
        running = pids(application.await_ready())
        stage.write(["a"] * 50)
        stage.await_counts({"a": 50})
        application.kill()
        for each in running:
            eventually(Path(f"/proc/{each}").exists, lambda exists: not exists)
    with Supervised(stage, "counts", 2) as application:
        application.await_ready()  # the group and the state directories are free
        stage.write(["a"])
        assert_counted(stage, {"a": 51})
        assert application.stop(TIMEOUT_S) == 0


def test_processes_close_when_the_terminal_is_closed(stage: Stage) -> None:
    terminal, other = os.openpty()
    command = [*OWN_COMMAND, "streams", "run", "tests.streams.apps.supervised:counts", f"--app-dir={ROOT}"]

    def take_terminal() -> None:
        os.setsid()
        fcntl.ioctl(other, termios.TIOCSCTTY, 0)

    process = subprocess.Popen(
        [*command, *(f"--set={name}={value}" for name, value in stage.config().items())],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        preexec_fn=take_terminal,
    )
    with process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith(b"odradek ")
        os.close(other)
        os.close(terminal)
        log = process.communicate(timeout=TIMEOUT_S)[1].decode()
        assert process.returncode == 0
    assert "signal=SIGHUP" in log
    assert states(log.splitlines())[-2:] == [(0, "NOT_RUNNING"), (0, "ENDED")], "closed, not restarted"


def test_a_log_of_json_is_json(stage: Stage) -> None:
    with Supervised(stage, "counts", 1, "--log-format=json") as application:
        application.await_ready()
        assert application.stop(TIMEOUT_S) == 0
    entries = [json.loads(line) for line in application.stderr.lines()]
    assert {entry.get("process") for entry in entries} == {None, 0}
    assert all("process" in entry for entry in entries if entry["logger"].startswith("odradek.streams.running"))


@pytest.mark.parametrize(
    ("topology", "message"),
    [
        ("tests.streams.apps.supervised:not_a_topology", "expected a Topology or a StreamsBuilder"),
        ("tests.streams.apps.absent:counts", "there is no module 'tests.streams.apps.absent'"),
        ("tests.streams.apps.supervised:counts", "application.id is missing"),
    ],
)
def test_an_application_that_cannot_be_used_ends_with_its_reason(
    topology: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORDS", "words")
    monkeypatch.setenv("COUNTS", "counts")
    command = [*OWN_COMMAND, "streams", "run", topology, f"--app-dir={ROOT}", "--processes=2"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 2, ended.stderr
    assert message in ended.stderr


def guide_blocks() -> list[str]:
    """The indented blocks of the guide's section: the module, its properties, a session."""
    section = (
        guide.PAGE.read_text().partition("\n## Run an application in several processes\n")[2].partition("\n## ")[0]
    )
    blocks = re.findall(r"(?:^    .*\n|^\n(?=    ))+", section, re.MULTILINE)
    return [textwrap.dedent(block).strip("\n") + "\n" for block in blocks]


def test_the_commands_of_the_guide_work(streams_broker: BrokerProcess, tmp_path: Path) -> None:
    module, properties, session = guide_blocks()
    run, table = (shlex.split(line[2:]) for line in session.splitlines() if line.startswith("$ "))
    assert (run[:3], table[:3]) == (["odradek", "streams", "run"], ["odradek", "streams", "top"])
    counting.make_topics(streams_broker.bootstrap, {"lines": 8, "loud-lines": 1})
    (tmp_path / "shout.py").write_text(module)
    properties = properties.replace("127.0.0.1:9092", streams_broker.bootstrap).replace("/var/lib", str(tmp_path))
    (tmp_path / "shout.properties").write_text(properties)
    port = str(free_port("127.0.0.1"))
    with subprocess.Popen(
        [*OWN_COMMAND, *(each.replace("9404", port) for each in run[1:])],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline().endswith(f"metrics at http://127.0.0.1:{port}/metrics\n")
        eventually(lambda: rows(f"http://127.0.0.1:{port}"), lambda found: [len(row.tasks) for row in found] == [2] * 4)
        counting.write_words(streams_broker.bootstrap, ["quiet"], "lines")
        written = eventually(lambda: counting.read_all(streams_broker.bootstrap, "loud-lines"))
        shown = top(*table[3:-1], port).stdout.splitlines()
        document = read_document(page(f"http://127.0.0.1:{port}/topology"))
        process.terminate()
        assert process.wait(TIMEOUT_S) == 0
    assert [value for _, value in written] == [b"QUIET"]
    assert [node.topics for node in document.view.nodes() if node.topics] == [("lines",), ("loud-lines",)]
    assert shown[0].split() == session.splitlines()[4].split(), "the headings"
    assert shown[-1].split()[:7] == ["total", "-", "4", "of", "4", "RUNNING", "4"]


def test_wrong_options_are_explained() -> None:
    def fails(*arguments: str) -> str:
        command = [sys.executable, "-P", "-m", "odradek", "streams", *arguments]
        ended = subprocess.run(command, capture_output=True, text=True, check=False)
        assert ended.returncode != 0
        return ended.stderr

    assert "must be NAME=VALUE" in fails("run", "m:t", "--set", "x")
    assert "not HOST:PORT" in fails("run", "m:t", "--metrics", "x")
    assert "must not be above" in fails("run", "m:t", "--restart-backoff-ms=2", "--restart-backoff-max-ms=1")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        assert f"cannot serve metrics at {address}" in fails("run", "m:t", "--metrics", address)
    assert "either URL or --port" in fails("top")
    assert "cannot read http://127.0.0.1:1/metrics" in fails("top", "127.0.0.1:1", "--once")
