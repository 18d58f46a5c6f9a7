"""The plugin and its broker process: first against stand-ins that misbehave, then with the real broker."""

from __future__ import annotations

import importlib.util
import os
import re
import select
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from odradek.broker_process import BrokerError, BrokerProcess
from odradek.pytest_plugin import BrokerFactory

pytest_plugins = ["pytester"]

# Takes the command line of a broker and binds its port, no more. BODY is the code of a case.
STAND_IN = """
import re, signal, socket, sys, threading, time
port = int(re.search("listeners=PLAINTEXT://127.0.0.1:([0-9]+)", " ".join(sys.argv))[1])
listener = socket.create_server(("127.0.0.1", port))
port = listener.getsockname()[1]
print("arguments", *sys.argv[1:], file=sys.stderr, flush=True)
def ready():
    print(f"odradek 0 ready: broker 0 at 127.0.0.1:{port}, data in x at y", flush=True)
def answer():
    while True:
        listener.accept()[0].sendall(b"served")
def serve(status=0):
    # Blocked and waited for: a handler would miss a signal that comes just before a blocking call.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    threading.Thread(target=answer, daemon=True).start()
    ready()
    signal.sigwait({signal.SIGTERM})
    sys.exit(status)
BODY
"""

MakeBroker = Callable[..., BrokerProcess]


@pytest.fixture
def stand_in(tmp_path: Path) -> Iterator[MakeBroker]:
    """Makes brokers whose process runs STAND_IN with a body; remaining ones are killed."""
    made: list[BrokerProcess] = []

    def make(body: str = "serve()", timeout_s: float = 15.0, **overrides: str) -> BrokerProcess:
        script = tmp_path / "stand_in.py"
        script.write_text(STAND_IN.replace("BODY", body))
        named = {name.replace("_", "."): value for name, value in overrides.items()}
        made.append(
            BrokerProcess(tmp_path / "broker", named, command=(sys.executable, str(script)), timeout_s=timeout_s)
        )
        return made[-1]

    yield make
    for broker in made:
        if broker.running:
            broker.kill()


def is_served(broker: BrokerProcess) -> bool:
    with socket.create_connection((broker.host, broker.port), timeout=10) as client:
        return client.recv(6) == b"served"


def is_there(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


# The life of a process


def test_a_broker_serves_between_start_and_stop(stand_in: MakeBroker) -> None:
    broker = stand_in(num_partitions="3")
    assert not broker.running
    broker.start()
    assert broker.running
    assert broker.bootstrap == f"127.0.0.1:{broker.port}"
    assert is_served(broker)
    pid = broker.pid
    broker.stop()
    assert not broker.running
    assert not is_there(pid)


def test_overrides_are_passed_on_the_command_line(stand_in: MakeBroker) -> None:
    with stand_in(num_partitions="3", broker_id="5") as broker:
        printed = broker.output
    assert "arguments broker --override=" in printed
    assert "--override=num.partitions=3" in printed
    assert "--override=broker.id=5" in printed
    assert f"--override=log.dirs={broker.data_dir}" in printed


def test_the_port_outlives_the_process(stand_in: MakeBroker) -> None:
    broker = stand_in()
    broker.start()
    port, first = broker.port, broker.pid
    broker.restart()
    second = broker.pid
    broker.kill()
    broker.start()
    assert broker.port == port
    assert len({first, second, broker.pid}) == 3
    assert broker.output.count("arguments ") == 3
    broker.stop()


def test_a_paused_broker_does_not_answer_until_it_is_resumed(stand_in: MakeBroker) -> None:
    with stand_in() as broker:
        broker.pause()
        assert broker.running
        with socket.create_connection((broker.host, broker.port), timeout=10) as client:
            assert select.select([client], [], [], 0.2)[0] == []
            broker.resume()
            assert client.recv(6) == b"served"
        broker.pause()
        broker.resume()
        assert is_served(broker)


def test_a_paused_broker_can_be_stopped(stand_in: MakeBroker) -> None:
    broker = stand_in()
    broker.start()
    broker.pause()
    broker.stop()
    assert not broker.running


@pytest.mark.parametrize("act", ["stop", "kill", "restart", "pause", "resume"])
def test_a_broker_that_does_not_run_rejects_operations(stand_in: MakeBroker, act: str) -> None:
    with pytest.raises(BrokerError, match="not running"):
        getattr(stand_in(), act)()


def test_a_running_broker_cannot_be_started_again(stand_in: MakeBroker) -> None:
    with stand_in() as broker, pytest.raises(BrokerError, match="running already"):
        broker.start()


# Failures are reported with the log


@pytest.mark.slow
@pytest.mark.parametrize(
    ("body", "printed"),
    [
        ("print('no room', file=sys.stderr); sys.exit(3)", ["exit status 3 before it was ready", "no room"]),
        ("print('hello', flush=True); time.sleep(600)", ["no ready line but 'hello'"]),
        ("print('slow', file=sys.stderr, flush=True); time.sleep(600)", ["not ready within 2 s", "slow"]),
        ("print('half a', end='', flush=True); sys.exit(0)", ["exit status 0 before it was ready"]),
    ],
)
def test_a_start_that_fails_leaves_no_process(stand_in: MakeBroker, body: str, printed: list[str]) -> None:
    broker = stand_in(body, timeout_s=2)
    with pytest.raises(BrokerError) as failed:
        broker.start()
    assert [words for words in printed if words not in str(failed.value)] == []
    assert not broker.running


def test_a_stop_that_ends_badly_is_reported(stand_in: MakeBroker) -> None:
    broker = stand_in("serve(status=4)")
    broker.start()
    with pytest.raises(BrokerError, match="exit status 4 after SIGTERM"):
        broker.stop()
    assert not broker.running


@pytest.mark.slow
def test_a_broker_that_does_not_stop_is_killed_and_reported(stand_in: MakeBroker) -> None:
    broker = stand_in("signal.signal(signal.SIGTERM, signal.SIG_IGN); ready(); time.sleep(600)", timeout_s=2)
    broker.start()
    pid = broker.pid
    with pytest.raises(BrokerError, match="no end within 2 s after SIGTERM"):
        broker.stop()
    assert not is_there(pid)


def test_a_broker_that_ended_by_itself_is_reported(stand_in: MakeBroker) -> None:
    broker = stand_in("ready(); listener.accept(); sys.exit(9)")
    broker.start()
    process = broker.pid
    with socket.create_connection((broker.host, broker.port), timeout=10):
        os.waitid(os.P_PID, process, os.WEXITED | os.WNOWAIT)
    with pytest.raises(BrokerError, match="ended by itself with exit status 9"):
        broker.close()


# The plugin


def test_importing_the_plugin_loads_nothing_of_the_broker() -> None:
    script = (
        "import sys, pytest; before = set(sys.modules)\n"
        "import odradek.pytest_plugin\n"
        "print(sorted(set(sys.modules) - before - {'__editable___odradek_0_1_0_finder'}))"
    )
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert ended.stdout.strip() == "['odradek', 'odradek.pytest_plugin']"


FAKED = """
import sys
import pytest
from odradek import broker_process

@pytest.fixture(autouse=True)
def faked(monkeypatch):
    defaults = dict(broker_process.BrokerProcess.__init__.__kwdefaults__)
    defaults["command"] = (sys.executable, {script!r})
    monkeypatch.setattr(broker_process.BrokerProcess.__init__, "__kwdefaults__", defaults)
"""


@pytest.fixture
def suite(pytester: pytest.Pytester, tmp_path: Path) -> Callable[[str, str], pytest.RunResult]:
    """Runs a user's tests in a pytest of their own, with a stand-in for the broker."""

    def run(body: str, tests: str) -> pytest.RunResult:
        script = tmp_path / "stand_in.py"
        script.write_text(STAND_IN.replace("BODY", body))
        pytester.makeconftest(FAKED.format(script=str(script)))
        pytester.makepyfile(tests)
        return pytester.runpytest_subprocess("-p", "no:cacheprovider")

    return run


def pids_in(result: pytest.RunResult) -> list[int]:
    return [int(pid) for pid in re.findall(r"pid=(\d+)", result.stdout.str())]


@pytest.mark.slow
def test_each_test_has_a_broker_that_ends_with_it(suite: Callable[[str, str], pytest.RunResult]) -> None:
    result = suite(
        "serve()",
        """
        import os

        seen = []

        def test_one(odradek_broker):
            seen.append(odradek_broker.pid)
            assert odradek_broker.running

        def test_two(odradek_broker, odradek_broker_factory):
            other = odradek_broker_factory({"num.partitions": "7"})
            late = odradek_broker_factory(start=False)
            assert not late.running
            assert "num.partitions=7" in other.output
            assert len({odradek_broker.port, other.port}) == 2
            assert len({odradek_broker.data_dir, other.data_dir, late.data_dir}) == 3
            assert not os.path.exists(f"/proc/{seen[0]}")
        """,
    )
    result.assert_outcomes(passed=2)


@pytest.mark.slow
def test_a_failing_test_shows_the_log_and_leaves_nothing_running(suite: Callable[[str, str], pytest.RunResult]) -> None:
    result = suite(
        "print('said by the broker', file=sys.stderr, flush=True); serve()",
        """
        def test_it(odradek_broker, odradek_broker_factory):
            other = odradek_broker_factory()
            other.pause()
            raise ValueError(f"pid={odradek_broker.pid} pid={other.pid}")
        """,
    )
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*Captured broker log teardown*", "*said by the broker*"])
    pids = pids_in(result)
    assert len(set(pids)) == 2
    assert [pid for pid in pids if is_there(pid)] == []


@pytest.mark.slow
def test_a_broker_that_ends_badly_fails_its_test_and_the_others_still_end(
    suite: Callable[[str, str], pytest.RunResult],
) -> None:
    result = suite(
        "serve(status=6)",
        """
        def test_it(odradek_broker, odradek_broker_factory):
            print(f"pid={odradek_broker.pid} pid={odradek_broker_factory().pid}")
        """,
    )
    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines(["*exit status 6 after SIGTERM, expected 0*"])
    pids = pids_in(result)
    assert len(set(pids)) == 2
    assert [pid for pid in pids if is_there(pid)] == []


@pytest.mark.slow
def test_a_test_may_stop_or_kill_its_broker_itself(suite: Callable[[str, str], pytest.RunResult]) -> None:
    result = suite(
        "serve()",
        """
        def test_stop(odradek_broker):
            odradek_broker.stop()

        def test_kill(odradek_broker):
            odradek_broker.kill()
        """,
    )
    result.assert_outcomes(passed=2)


# The real broker


@pytest.mark.skipif(
    importlib.util.find_spec("odradek.broker.server") is None, reason="odradek.broker.server is not in this build"
)
@pytest.mark.slow
def test_the_real_broker_starts_restarts_and_survives_a_kill(odradek_broker_factory: BrokerFactory) -> None:
    broker = odradek_broker_factory({"broker.id": "3"})
    assert (broker.data_dir / "meta.properties").read_text().count("broker.id=3") == 1
    socket.create_connection((broker.host, broker.port), timeout=10).close()
    port = broker.port
    broker.restart()
    broker.kill()
    broker.start()
    assert broker.port == port
    broker.stop()
    assert "Traceback" not in broker.output
