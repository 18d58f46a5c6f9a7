"""Supervision of several processes, without any: restarts, rolling restarts, shutdown, messages, tables."""

from __future__ import annotations

import fcntl
import http.server
import io
import json
import os
import signal
import struct
import subprocess
import sys
import termios
import textwrap
import threading
from pathlib import Path
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from odradek.streams import StreamsBuilder, Topology
from odradek.streams.errors import TopologyError
from odradek.streams.supervisor.loading import ApplicationError, load_topology, properties_of_process
from odradek.streams.supervisor.output import LONGEST_LINE, copy_lines, mark_json, mark_text
from odradek.streams.supervisor.restarts import RestartBackoff
from odradek.streams.supervisor.status import (
    CollectRequest,
    CollectResponse,
    Message,
    Sample,
    StateChanged,
    StatusError,
    decode,
    encode,
)
from odradek.streams.supervisor.status_table import duration, measure_rates, render, rows_of
from odradek.streams.supervisor.supervision import (
    CLOSED,
    FAILED,
    KILL_AFTER_S,
    SHUTDOWN_REQUESTED,
    UNUSABLE,
    UP,
    Action,
    Effect,
    ProcessPhase,
    Supervision,
)

CLOSE_S: Final = 30.0
KILLED: Final = -9


def supervision(processes: int, first_s: float = 1.0, longest_s: float = 60.0) -> Supervision:
    return Supervision([RestartBackoff(first_s, longest_s) for _ in range(processes)], CLOSE_S)


def all_running(processes: int) -> Supervision:
    machine = supervision(processes)
    machine.start()
    for number in range(processes):
        assert machine.client_state(number, True, 0.0) == []
    return machine


def start(number: int) -> list[Effect]:
    return [Effect(Action.START, number)]


def close(*numbers: int) -> list[Effect]:
    return [Effect(Action.CLOSE, number) for number in numbers]


# ---- backoff


def test_the_delay_doubles_up_to_the_longest_one() -> None:
    backoff = RestartBackoff(1.0, 10.0)
    assert [backoff.failed(0.0) for _ in range(6)] == [1, 2, 4, 8, 10, 10]


def test_the_delay_stays_the_longest_one_after_any_number_of_failures() -> None:
    backoff = RestartBackoff(0.001, 60.0)
    assert [backoff.failed(0.0) for _ in range(5_000)][-1] == 60


def test_a_process_that_was_healthy_begins_with_the_first_delay_again() -> None:
    backoff = RestartBackoff(1.0, 10.0)
    backoff.failed(0.0)
    backoff.running(100.0)
    backoff.running(105.0)  # after a rebalance; it has been running since 100
    assert backoff.failed(109.9) == 2, "it was not running for long enough"
    backoff.running(200.0)
    assert backoff.failed(210.0) == 1
    assert backoff.failed(10_000.0) == 2, "time without RUNNING is not healthy"


@pytest.mark.parametrize(("first", "longest"), [(-1.0, 1.0), (2.0, 1.0)])
def test_delays_have_an_order(first: float, longest: float) -> None:
    with pytest.raises(ValueError, match="first delay"):
        RestartBackoff(first, longest)


# ---- restarts


def test_a_process_that_fails_is_started_again_after_its_delay() -> None:
    machine = all_running(2)
    assert machine.exited(1, KILLED, 10.0) == []
    assert machine.next_due == 11.0
    assert machine.tick(10.9) == []
    assert machine.tick(11.0) == start(1)
    assert [each.restarts for each in machine.processes] == [0, 1]
    assert machine.exited(1, FAILED, 12.0) == []
    assert machine.next_due == 14.0, "it has not been running in between"


def test_a_process_that_ends_without_a_request_is_started_again_though_its_status_is_0() -> None:
    machine = all_running(1)
    machine.exited(0, CLOSED, 1.0)
    assert machine.tick(2.0) == start(0)


def test_an_unusable_application_ends_all_processes() -> None:
    machine = supervision(3)
    machine.start()
    assert machine.exited(1, UNUSABLE, 0.0) == close(0, 2)
    machine.exited(0, UNUSABLE, 0.1)
    machine.exited(2, -15, 0.1)
    assert machine.ended
    assert machine.exit_status == UNUSABLE


def test_an_application_that_has_run_may_become_usable_again() -> None:
    machine = all_running(2)
    machine.exited(0, FAILED, 0.0)
    machine.tick(1.0)
    assert machine.exited(0, UNUSABLE, 1.5) == []
    assert machine.processes[0].phase is ProcessPhase.BACKOFF


def test_a_requested_shutdown_of_the_application_ends_all_processes() -> None:
    machine = all_running(2)
    assert machine.exited(0, SHUTDOWN_REQUESTED, 0.0) == close(1)
    machine.exited(1, SHUTDOWN_REQUESTED, 0.1)
    assert machine.ended
    assert machine.exit_status == FAILED


# ---- shutdown


def test_a_stop_closes_all_and_waits_for_them() -> None:
    machine = all_running(3)
    machine.exited(1, KILLED, 0.0)  # in its backoff: there is nothing to close
    assert machine.stop(0.5) == close(0, 2)
    machine.exited(0, CLOSED, 0.6)
    assert not machine.ended
    machine.exited(2, CLOSED, 0.7)
    assert machine.ended
    assert machine.exit_status == CLOSED


def test_a_second_stop_kills_those_that_are_left() -> None:
    machine = all_running(2)
    machine.stop(0.0)
    machine.exited(0, CLOSED, 0.1)
    assert machine.stop(0.2) == [Effect(Action.KILL, 1)]
    assert machine.next_due is None
    machine.exited(1, KILLED, 0.3)
    assert machine.ended
    assert machine.exit_status == FAILED


def test_a_process_that_does_not_close_in_time_is_killed() -> None:
    machine = all_running(1)
    machine.stop(0.0)
    assert machine.next_due == CLOSE_S + KILL_AFTER_S
    assert machine.tick(CLOSE_S + KILL_AFTER_S) == [Effect(Action.KILL, 0)]
    machine.exited(0, KILLED, 40.0)
    assert machine.exit_status == FAILED


def test_a_signal_before_the_client_exists_is_a_graceful_end() -> None:
    machine = supervision(1)
    machine.start()
    machine.stop(0.0)
    machine.exited(0, -15, 0.1)
    assert machine.exit_status == CLOSED


# ---- rolling restart


def test_a_rolling_restart_waits_for_each_process_to_run() -> None:
    machine = all_running(2)
    assert machine.roll(0.0) == close(0)
    assert machine.exited(0, CLOSED, 1.0) == start(0)
    assert machine.client_state(1, False, 1.1) == []  # a rebalance: tasks of process 0 move
    assert machine.client_state(0, True, 2.0) == [], "process 1 still rebalances"
    assert machine.client_state(1, True, 3.0) == close(1)
    assert machine.exited(1, FAILED, 4.0) == start(1), "an error while it closes does not end it"
    assert machine.client_state(1, True, 5.0) == []
    assert machine.rolling is None
    assert [each.restarts for each in machine.processes] == [0, 0], "they were restarted on request"


def test_a_rolling_restart_ends_when_the_new_process_fails() -> None:
    machine = all_running(3)
    machine.roll(0.0)
    machine.exited(0, CLOSED, 1.0)
    assert machine.exited(0, UNUSABLE, 2.0) == []
    assert (machine.rolling, machine.to_roll) == (None, [])
    assert machine.tick(3.0) == start(0)
    assert machine.client_state(0, True, 4.0) == [], "processes 1 and 2 continue as they are"


def test_a_rolling_restart_begins_with_processes_that_are_down() -> None:
    machine = all_running(2)
    machine.exited(1, FAILED, 0.0)
    assert machine.roll(0.1) == start(1), "its backoff ends: it may have been repaired"
    assert machine.client_state(1, True, 1.0) == close(0)


def test_a_second_request_restarts_the_restarted_processes_again() -> None:
    machine = all_running(2)
    machine.roll(0.0)
    machine.exited(0, CLOSED, 1.0)
    assert machine.roll(1.5) == []
    assert machine.to_roll == [1, 0]


def test_a_stop_ends_a_rolling_restart() -> None:
    machine = all_running(2)
    machine.roll(0.0)
    assert machine.stop(0.5) == close(1)
    assert machine.exited(0, CLOSED, 1.0) == []
    assert machine.roll(1.5) == []
    machine.exited(1, CLOSED, 2.0)
    assert machine.ended


class SupervisionMachine(RuleBasedStateMachine):
    """Any order of events. The model has the processes that are alive, and those that have been sent a signal."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.machine = supervision(3)
        self.alive: set[int] = set()
        self.signaled: set[int] = set()
        self.running: set[int] = set()
        self.carry_out(self.machine.start())

    def carry_out(self, effects: list[Effect]) -> None:
        rolling = self.machine.rolling
        for action, number in effects:
            if action is Action.START:
                assert number not in self.alive
                assert not self.machine.stopping
                self.alive.add(number)
                continue
            assert number in self.alive
            if action is Action.CLOSE:
                assert number not in self.signaled, "a second SIGTERM would end it at once"
                if not self.machine.stopping and number in self.running:
                    assert number == rolling
                    assert self.running == {0, 1, 2}, "one process at a time is down for a rolling restart"
            self.signaled.add(number)

    @rule(number=st.integers(0, 2), running=st.booleans())
    def client_state(self, number: int, running: bool) -> None:
        if number in self.alive - self.signaled:
            self.running = self.running | {number} if running else self.running - {number}
            self.carry_out(self.machine.client_state(number, running, self.now))

    @rule(number=st.integers(0, 2), status=st.sampled_from([CLOSED, FAILED, UNUSABLE, SHUTDOWN_REQUESTED, KILLED]))
    def exit(self, number: int, status: int) -> None:
        if number in self.alive:
            self.alive.discard(number)
            self.signaled.discard(number)
            self.running.discard(number)
            self.carry_out(self.machine.exited(number, status, self.now))

    @rule(seconds=st.floats(0, 100))
    def time(self, seconds: float) -> None:
        self.now += seconds
        self.carry_out(self.machine.tick(self.now))

    @rule()
    def roll(self) -> None:
        self.carry_out(self.machine.roll(self.now))

    @precondition(lambda self: self.now > 200)
    @rule()
    def stop(self) -> None:
        self.carry_out(self.machine.stop(self.now))

    @invariant()
    def phases_agree_with_processes(self) -> None:
        machine = self.machine
        for each in machine.processes:
            assert (each.phase in UP or each.phase is ProcessPhase.CLOSING) == (each.number in self.alive)
            assert each.phase is not ProcessPhase.BACKOFF or each.due is not None, "it would stay down for ever"
            assert (each.phase is ProcessPhase.RUNNING) == (each.number in self.running - self.signaled)
        assert machine.ended == (machine.stopping and not self.alive)
        assert machine.stopping or machine.to_roll == [] or machine.rolling is not None or not machine.all_running


TestSupervisionMachine = SupervisionMachine.TestCase


# ---- status protocol


@given(
    st.one_of(
        st.builds(StateChanged, st.text()),
        st.builds(CollectRequest, st.integers()),
        st.builds(
            CollectResponse,
            st.integers(),
            st.lists(st.builds(Sample, st.text(), st.dictionaries(st.text(), st.text()), st.floats(allow_nan=False))),
        ),
    )
)
def test_a_message_is_one_line(message: Message) -> None:
    line = encode(message)
    assert line.count(b"\n") == 1
    assert decode(line) == message


@pytest.mark.parametrize("line", [b"", b"1\n", b"{}\n", b'{"collect": "x"}\n', b'{"samples": [1], "collect": 1}\n'])
def test_other_lines_are_rejected(line: bytes) -> None:
    with pytest.raises(StatusError, match="status protocol"):
        decode(line)


# ---- output


def copied(data: bytes, tmp_path: Path) -> bytes:
    path = tmp_path / "log"
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT)
    copy_lines(io.BytesIO(data), descriptor, lambda line: mark_text(3, line))
    os.close(descriptor)
    return path.read_bytes()


def test_each_line_has_the_number_of_its_process(tmp_path: Path) -> None:
    assert copied(b"one\r\ntwo\n\nend", tmp_path) == b"process=3 one\nprocess=3 two\nprocess=3 \nprocess=3 end\n"


def test_a_long_line_is_divided(tmp_path: Path) -> None:
    found = copied(b"x" * (LONGEST_LINE + 1) + b"\n", tmp_path)
    assert [len(line) for line in found.splitlines()] == [LONGEST_LINE + len(b"process=3 "), 1 + len(b"process=3 ")]


def test_output_without_a_reader_is_discarded() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    source = io.BytesIO(b"one\ntwo\n")
    copy_lines(source, writer, lambda line: mark_text(0, line))
    os.close(writer)
    assert source.closed, "it was read to its end"


def test_lines_in_a_log_of_json_are_json() -> None:
    entry = b'{"level": "INFO"}'
    assert mark_json(1, entry) == entry + b"\n"
    assert json.loads(mark_json(1, b"from print \xff")) == {"process": 1, "message": "from print \ufffd"}


# ---- loading

MODULE: Final = """
    from odradek.streams import StreamsBuilder

    builder = StreamsBuilder()
    builder.stream("in").to("out")
    built = builder.build()

    def function():
        return builder

    def function_of_topology():
        return built

    class Holder:
        topology = built

    def wrong():
        return 1

    def invalid():
        return built.add_sink("sink", "out", "absent")
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a module in `tmp_path`, which no other test has imported."""
    name = f"app_{tmp_path.name}"
    (tmp_path / f"{name}.py").write_text(textwrap.dedent(MODULE))
    monkeypatch.setattr(sys, "path", list(sys.path))
    return name


@pytest.mark.parametrize("attribute", ["builder", "built", "function", "function_of_topology", "Holder.topology"])
def test_a_topology_has_several_forms(module: str, attribute: str, tmp_path: Path) -> None:
    expected = StreamsBuilder()
    expected.stream("in").to("out")
    found = load_topology(f"{module}:{attribute}", tmp_path)
    assert isinstance(found, Topology)
    assert found.describe() == expected.build().describe()


@pytest.mark.parametrize(
    ("attribute", "message"),
    [(":absent", "no attribute 'absent'"), (":wrong", "gives 1"), ("", "MODULE:TOPOLOGY"), (":", "MODULE:TOPOLOGY")],
)
def test_a_wrong_name_is_explained(module: str, attribute: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(ApplicationError, match=message):
        load_topology(f"{module}{attribute}", tmp_path)


def test_a_missing_module_is_explained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    with pytest.raises(ApplicationError, match="no module 'odradek_absent'"):
        load_topology("odradek_absent.inner:topology", tmp_path)
    (tmp_path / "importing_absent.py").write_text("import odradek_absent")
    with pytest.raises(ModuleNotFoundError, match="odradek_absent"):
        load_topology("importing_absent:topology", tmp_path)


def test_an_invalid_topology_is_an_error(module: str, tmp_path: Path) -> None:
    with pytest.raises(TopologyError):
        load_topology(f"{module}:invalid", tmp_path)


def test_each_process_has_its_own_names() -> None:
    given = {"application.id": "counts", "state.dir": "/data", "group.instance.id": "host1", "poll.ms": "5"}
    assert properties_of_process(given, 2, 4) == {
        "application.id": "counts",
        "client.id": "counts-2",
        "group.instance.id": "host1-2",
        "num.stream.threads": 4,
        "poll.ms": "5",
        "state.dir": "/data/process-2",
    }
    named = {"client.id": "mine", "num.stream.threads": "3", "consumer.group.instance.id": "x"}
    found = properties_of_process(named, 0, None)
    assert found["client.id"] == "mine-0"
    assert found["num.stream.threads"] == "3"
    assert found["consumer.group.instance.id"] == "x-0"
    assert found["state.dir"].endswith("/kafka-streams/process-0")


@pytest.mark.slow
def test_the_supervisor_imports_no_client_and_no_rocksdb() -> None:
    program = (
        "import sys, odradek.streams_run_cli\n"
        "import odradek.streams_run, odradek.streams_top\n"
        "print(sorted({'confluent_kafka', 'rocksdict', 'odradek.streams.runtime'} & sys.modules.keys()))"
    )
    found = subprocess.run([sys.executable, "-P", "-c", program], capture_output=True, text=True, check=True)
    assert found.stdout == "[]\n"


# ---- table

PAGE: Final = """\
# TYPE odradek_streams_process_up gauge
odradek_streams_process_up{process="0",pid="71"} 1.0
odradek_streams_process_up{process="10",pid=""} 0.0
odradek_streams_process_state{process="0",state="RUNNING"} 1.0
odradek_streams_process_state{process="10",state="BACKOFF"} 1.0
odradek_streams_process_uptime_seconds{process="0"} 3905.5
odradek_streams_process_uptime_seconds{process="10"} 0.0
odradek_streams_process_restarts_total{process="0"} 0.0
odradek_streams_process_restarts_total{process="10"} 3.0
kafka_streams_stream_metrics_alive_stream_threads{process="0",client_id="c-0"} 2.0
kafka_streams_stream_thread_metrics_process_total{process="0",thread_id="t1"} 100.0
kafka_streams_stream_thread_metrics_process_total{process="0",thread_id="t2"} 50.0
kafka_streams_stream_thread_metrics_process_rate{process="0",thread_id="t1"} 1.5
kafka_streams_stream_thread_metrics_process_rate{process="0",thread_id="t2"} 2.5
kafka_streams_stream_task_metrics_dropped_records_total{process="0",thread_id="t1",task_id="0_0"} 0.0
kafka_streams_stream_task_metrics_dropped_records_rate{process="0",thread_id="t1",task_id="0_0"} 0.0
kafka_streams_stream_task_metrics_dropped_records_total{process="0",thread_id="t2",task_id="0_1"} 0.0
kafka_consumer_consumer_fetch_manager_metrics_records_lag{process="0",client_id="x",topic="in",partition="0"} 7.0
kafka_consumer_consumer_fetch_manager_metrics_records_lag{process="0",client_id="x",topic="in",partition="1"} 5.0
"""


def test_the_table_has_a_row_for_each_process() -> None:
    assert render(rows_of(PAGE)).splitlines() == [
        "PROCESS  PID  STATE           THREADS  TASKS  RECORDS/S  LAG  RESTARTS  UPTIME",
        "      0   71  RUNNING               2      2          4   12         0   1h05m",
        "     10    -  BACKOFF               0      0          0    -         3      0s",
        "  total    -  1 of 2 RUNNING        2      2          4   12         3",
    ]


def test_rates_are_those_since_the_page_before() -> None:
    before, after, restarted = rows_of(PAGE), rows_of(PAGE.replace("100.0", "400.0")), rows_of(PAGE)
    measure_rates(after, before, 2.0)
    assert [row.rate for row in after] == [150.0, 0.0]
    restarted[0].pid = "72"
    measure_rates(restarted, before, 2.0)
    assert restarted[0].rate == 4.0, "another process, which counts from 0"


def test_another_page_is_rejected() -> None:
    with pytest.raises(ValueError, match="odradek streams run"):
        rows_of('kafka_streams_stream_metrics_alive_stream_threads{client_id="c"} 2.0\n')


class MetricsHandler(http.server.BaseHTTPRequestHandler):
    """Serves PAGE."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(PAGE.encode())

    def log_message(self, *_: object) -> None:
        """Print nothing."""


@pytest.mark.slow
def test_the_table_on_a_terminal_is_refreshed_until_ctrl_c() -> None:
    terminal, other = os.openpty()
    fcntl.ioctl(other, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 120, 0, 0))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), MetricsHandler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        command = [sys.executable, "-P", "-m", "odradek", "streams", "top", "--port", str(server.server_port)]
        with subprocess.Popen(command, stdout=other, stderr=subprocess.PIPE) as process:
            os.close(other)
            shown = b""
            try:
                while shown.count(b"UPTIME") < 3:
                    shown += os.read(terminal, 65_536)
                process.send_signal(signal.SIGINT)
                assert process.wait(60) == 0, process.stderr and process.stderr.read()
            finally:
                process.kill()
        server.shutdown()
    os.close(terminal)
    assert shown.count(b"\x1b[H\x1b[J") == 3
    assert b"1 of 2 RUNNING" in shown


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"),
        (59.9, "59s"),
        (60, "1m00s"),
        (3599, "59m59s"),
        (7_800, "2h10m"),
        (86_399, "23h59m"),
        (370_800, "4d07h"),
    ],
)
def test_durations_have_two_units(seconds: float, text: str) -> None:
    assert duration(seconds) == text
