"""Connectors in a program and by the command, with a real broker: lifecycle, sharing, restarts, failures."""

from __future__ import annotations

import itertools
import json
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest

from odradek.broker_process import BrokerProcess
from odradek.ready_process import OWN_COMMAND
from odradek.streams.client_state import State
from odradek.streams.config import StreamsConfigError
from odradek.streams.connectors import (
    ConnectError,
    FileSink,
    FileSource,
    HttpSink,
    RetriableError,
    SinkRecord,
    Source,
    SourceOffset,
    SourcePartition,
    SourceRecord,
    run_sink,
    run_source,
    sink_runner,
    source_runner,
)
from odradek.streams.errors import StreamsError
from odradek.streams.serdes import JSON
from tests.streams import counting
from tests.streams.connectors.http_server import serving
from tests.streams.connectors.processes import ROOT
from tests.streams.connectors.stored import offsets_in_folder
from tests.support.eventually import eventually

pytestmark = pytest.mark.slow

_numbers = itertools.count()


class Place:
    """Topics, folders and properties of one test."""

    def __init__(self, broker: BrokerProcess, folder: Path) -> None:
        self.bootstrap = broker.bootstrap
        self.topic = f"running{next(_numbers)}"
        self.input, self.output = folder / "input", folder / "output"
        for each in (self.input, self.output):
            each.mkdir()
        counting.make_topics(self.bootstrap, {self.topic: 2, f"{self.topic}-dead": 1})

    def properties(self, **more: Any) -> dict[str, Any]:
        return {
            "application.id": self.topic,
            "bootstrap.servers": self.bootstrap,
            "session.timeout.ms": 30_000,
            "heartbeat.interval.ms": 100,
            "poll.ms": 10,
            "producer.linger.ms": 0,
            "consumer.fetch.wait.max.ms": 20,
            "source.partitions.refresh.interval.ms": 50,
            **{name.replace("_", "."): value for name, value in more.items()},
        }

    def values(self) -> list[str]:
        """The committed values of the topic, sorted."""
        return sorted(value.decode() for _, value in counting.read_all(self.bootstrap, self.topic) if value)

    def stored(self) -> int:
        return sum(map(len, offsets_in_folder(self.output).values()))


@pytest.fixture
def place(streams_broker: BrokerProcess, tmp_path: Path) -> Place:
    return Place(streams_broker, tmp_path)


def test_processes_share_the_partitions_and_the_remaining_one_takes_over(place: Place) -> None:
    files = [place.input / f"{number}.log" for number in range(8)]
    for file in files:
        file.write_text(f"{file.stem} first\n")
    runners = [source_runner(FileSource(place.input, place.topic), place.properties(tasks_max=8)) for _ in range(2)]
    with runners[0]:
        eventually(place.values, lambda found: len(found) == 8)
        with runners[1]:
            eventually(lambda: [each.state for each in runners], lambda found: found == [State.RUNNING] * 2)
            for file in files:
                with file.open("a") as appended:
                    appended.write(f"{file.stem} second\n")
            eventually(place.values, lambda found: len(found) == 16)
        for file in files:
            with file.open("a") as appended:
                appended.write(f"{file.stem} third\n")
        eventually(place.values, lambda found: len(found) == 24)
    assert [each.state for each in runners] == [State.NOT_RUNNING] * 2
    assert place.values() == sorted(f"{file.stem} {word}" for file in files for word in ("first", "second", "third"))


def test_a_close_flushes_and_commits_and_the_next_start_continues(place: Place) -> None:
    properties = place.properties(topics=place.topic, commit_interval_ms=3_600_000)
    for round_number in (1, 2):
        counting.write_words(place.bootstrap, [f"word {number}" for number in range(100)], place.topic)
        sink = CountingSink(place.output)
        with sink_runner(sink, properties):
            eventually(lambda each=sink: each.count, lambda count: count == 100)
            assert place.stored() == 100 * (round_number - 1)
        assert place.stored() == 100 * round_number


def test_sinks_share_partitions_and_a_rebalance_neither_loses_nor_doubles_a_record(place: Place) -> None:
    properties = place.properties(topics=place.topic, commit_interval_ms=20, max_poll_records=7)
    first, second = (sink_runner(FileSink(place.output), properties) for _ in range(2))
    rounds = 0

    def write() -> None:
        nonlocal rounds
        rounds += 1
        counting.write_words(place.bootstrap, [f"word {number}" for number in range(200)], place.topic)

    with second:
        write()
        eventually(place.stored)
        with first:
            write()
            eventually(lambda: [each.state for each in (first, second)], lambda found: found == [State.RUNNING] * 2)
            write()
            eventually(place.stored, lambda count: count > 500)
        write()
        eventually(place.stored, lambda count: count >= 200 * rounds)
    assert [each.failure for each in (first, second)] == [None, None]
    found = offsets_in_folder(place.output)
    assert sum(map(len, found.values())) == 200 * rounds
    assert all(offsets == list(range(len(offsets))) for offsets in found.values())


class CountingSink(FileSink):
    """Counts the records that were put."""

    count = 0

    def put(self, records: Sequence[SinkRecord]) -> None:
        super().put(records)
        self.count += len(records)


def test_records_that_a_server_rejects_go_to_the_dead_letter_topic(place: Place) -> None:
    counting.write_words(place.bootstrap, [json.dumps({"n": n}) for n in range(20)], place.topic)
    with serving() as server:
        server.rejects = lambda element: element["value"]["n"] in (3, 11)
        server.statuses = [503, 429]
        properties = place.properties(
            topics=place.topic,
            default_value_serde=JSON,
            errors_tolerance="all",
            errors_deadletterqueue_topic_name=f"{place.topic}-dead",
        )
        with sink_runner(HttpSink(f"{server.url}/in", batch_records=5), properties):
            dead = eventually(
                lambda: counting.read_all(place.bootstrap, f"{place.topic}-dead"), lambda found: len(found) == 2
            )
            eventually(
                lambda: {each["value"]["n"] for _, batch in server.posts for each in batch},
                lambda found: len(found) == 18,
            )
    assert sorted(json.loads(value or b"")["n"] for _, value in dead) == [3, 11]


class BrokenSource(Source):
    """Fails after its first record."""

    def __init__(self, topic: str, error: Exception) -> None:
        self.topic, self.error = topic, error
        self.polls = 0

    def partitions(self) -> Iterable[SourcePartition]:
        return [{"a": 1}]

    def open(self, partition: SourcePartition, offset: SourceOffset | None) -> None:
        """Nothing."""

    def poll(self, max_records: int, timeout_s: float) -> Sequence[SourceRecord]:
        self.polls += 1
        if self.polls > 1:
            raise self.error
        return [SourceRecord(self.topic, None, "a", {"a": 1}, {"n": 1})]

    def close(self) -> None:
        """Nothing."""


def test_an_error_ends_a_runner_and_is_raised(place: Place) -> None:
    source = BrokenSource(place.topic, ValueError("broken"))
    runner = source_runner(source, place.properties(commit_interval_ms=5_000))
    with pytest.raises(ValueError, match="broken"):
        runner.run(60)
    assert runner.state is State.ERROR
    assert place.values() == []  # the transaction was aborted
    with pytest.raises(StreamsError, match="already started"):
        runner.start()
    with pytest.raises(ConnectError, match=r"poll failed for 0.2 s .*: away"):
        run_source(
            BrokenSource(place.topic, RetriableError("away")), place.properties(errors_retry_timeout=200), timeout_s=60
        )


def test_a_runner_that_was_never_started_can_be_closed(place: Place) -> None:
    runner = source_runner(FileSource(place.input, place.topic), place.properties())
    assert runner.close()
    assert runner.state is State.NOT_RUNNING


def test_a_sink_that_stores_no_offsets_is_not_exactly_once(place: Place) -> None:
    with pytest.raises(StreamsConfigError, match="HttpSink is at least once"):
        run_sink(HttpSink("http://127.0.0.1:1"), place.properties(topics="t", processing_guarantee="exactly_once_v2"))


def test_the_command_reports_what_it_cannot_run(place: Place) -> None:
    def connect(connector: str, *options: str) -> tuple[int, str]:
        done = subprocess.run(
            [*OWN_COMMAND, "streams", "connect", connector, f"--app-dir={ROOT}", *options],
            capture_output=True,
            text=True,
            check=False,
        )
        return done.returncode, done.stderr

    apps = "tests.streams.connectors.apps"
    assert connect("apps") == (2, "odradek: 'apps' is not MODULE:CONNECTOR, as archive:sink is\n")
    status, text = connect(f"{apps}:not_a_connector")
    assert (status, "gives 1; expected a Source or a Sink" in text) == (2, True)


def test_a_process_with_the_static_id_of_another_replaces_it(place: Place) -> None:
    """As where a process is started twice by mistake: its tasks are the second one's, and the first one ends."""
    file = place.input / "a.log"
    file.write_text("1\n")
    properties = place.properties(group_instance_id="only")
    one, two = (source_runner(FileSource(place.input, place.topic), properties) for _ in range(2))
    one.start()
    eventually(place.values, lambda found: found == ["1"])
    with two:
        eventually(lambda: one.state, lambda state: state is State.ERROR)
        with file.open("a") as appended:
            appended.write("2\n")
        eventually(place.values, lambda found: found == ["1", "2"])
    assert "fenced" in str(one.failure).lower()
