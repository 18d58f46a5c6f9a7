"""The workers of sources and sinks with a broker in memory: retries, rejected records, fencing, rebalances."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import pytest

from odradek.protocol.topic_partition import TopicPartition
from odradek.streams.config import StreamsConfigError
from odradek.streams.connectors.config import ConnectorConfig
from odradek.streams.connectors.conversions import deserializer, serializer
from odradek.streams.connectors.errors import ConnectError, FencedError, RetriableError, StoppedError
from odradek.streams.connectors.interface import Sink, SinkRecord, Source, SourceOffset, SourcePartition, SourceRecord
from odradek.streams.connectors.retries import Retries
from odradek.streams.connectors.source_offsets import offset_key, read_offset, task_of
from odradek.streams.serdes import JSON, LONG
from tests.streams.connectors.memory import MemoryBroker, log_of, sink_settings, sink_worker, source_worker

PLACE = ("orders", 0)


class ListSource(Source):
    """Numbers of each letter; the offset is the next number."""

    def __init__(self, letters: str, count: int) -> None:
        self.letters, self.count = letters, count
        self.failures: list[Exception] = []
        self.positions: dict[str, int] = {}
        self.opened: list[tuple[str, SourceOffset | None]] = []

    def partitions(self) -> Iterable[SourcePartition]:
        return [{"letter": letter} for letter in self.letters]

    def open(self, partition: SourcePartition, offset: SourceOffset | None) -> None:
        self.opened.append((partition["letter"], offset))
        self.positions[partition["letter"]] = offset["next"] if offset else 0

    def poll(self, max_records: int, timeout_s: float) -> Sequence[SourceRecord]:
        if self.failures:
            raise self.failures.pop(0)
        found = []
        for letter, position in self.positions.items():
            if position < self.count:
                value = f"{letter}{position}"
                found.append(SourceRecord("out", None, value, {"letter": letter}, {"next": position + 1}))
                self.positions[letter] = position + 1
        return found

    def close(self) -> None:
        self.positions.clear()


class ListSink(Sink):
    """Keeps offsets; rejects the records in `wrong`."""

    def __init__(self, wrong: Collection[int] = ()) -> None:
        self.wrong = wrong
        self.failures: list[Exception] = []
        self.puts: list[list[int]] = []
        self.flushes = 0

    def open(self, group: str, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        return {}

    def put(self, records: Sequence[SinkRecord]) -> None:
        if self.failures:
            raise self.failures.pop(0)
        if any(each.offset in self.wrong for each in records):
            raise ValueError("a wrong record")
        self.puts.append([each.offset for each in records])

    def flush(self) -> None:
        self.flushes += 1

    def close(self) -> None:
        """Nothing."""


def values_of(broker: MemoryBroker) -> list[bytes | None]:
    return [each.value for each in broker.written]


# ---- sources


def test_a_retriable_error_is_retried_and_another_ends_the_session() -> None:
    broker, source = MemoryBroker(), ListSource("a", 2)
    source.failures = [RetriableError("away"), RetriableError("still away")]
    worker = source_worker(broker, source, commit_s=0)
    worker.step()
    assert values_of(broker) == [b"a0"]
    source.failures = [ValueError("broken")]
    with pytest.raises(ValueError, match="broken"):
        worker.step()
    worker.close()


def test_a_process_that_was_replaced_writes_nothing_more() -> None:
    broker = MemoryBroker()
    late = source_worker(broker, ListSource("abc", 4), commit_s=0)
    late.step()
    late_source_is_ahead = source_worker(broker, ListSource("abc", 4), commit_s=0)
    late_source_is_ahead.step()
    with pytest.raises(FencedError):
        late.step()
    late.close()
    for _ in range(3):
        late_source_is_ahead.step()
    assert sorted(map(str, values_of(broker))) == [f"b'{letter}{number}'" for letter in "abc" for number in range(4)]


def test_partitions_that_appear_later_are_opened() -> None:
    broker, source = MemoryBroker(), ListSource("a", 1)
    worker = source_worker(broker, source, commit_s=0)
    worker.step()
    source.letters = "ab"
    for _ in range(8):
        worker.step()
    assert source.opened == [("a", None), ("b", None)]
    assert values_of(broker) == [b"a0", b"b0"]


def test_a_record_of_a_partition_that_is_not_open_is_an_error() -> None:
    source = ListSource("a", 1)
    worker = source_worker(MemoryBroker(), source)
    worker.step()
    source.positions["z"] = 0
    with pytest.raises(ConnectError, match=r"partition \{'letter': 'z'\}, which is not open"):
        worker.step()


def test_each_source_partition_has_one_task_and_its_key_is_that_of_kafka_connect() -> None:
    key = offset_key("files", {"file": "a", "folder": "b"})
    assert key == b'["files",{"file":"a","folder":"b"}]'
    assert key == offset_key("files", {"folder": "b", "file": "a"})
    assert 0 <= task_of(key, 3) < 3
    assert read_offset(b'{"position": 3}') == {"position": 3}
    assert read_offset(None) is read_offset(b"null") is None
    with pytest.raises(ConnectError, match="no JSON object"):
        read_offset(b"[1]")
    with pytest.raises(ConnectError, match="cannot be written as JSON"):
        offset_key("files", {"file": b"a"})


@pytest.mark.parametrize(("lost", "expected"), [(False, [b"a0"]), (True, [])])
def test_a_source_commits_before_a_rebalance_unless_its_tasks_are_lost(lost: bool, expected: list[bytes]) -> None:
    broker, source = MemoryBroker(), ListSource("a", 3)
    worker = source_worker(broker, source, commit_s=1_000)
    worker.step()
    worker.tasks_revoked(lost)
    assert values_of(broker) == expected
    assert source.positions == {}
    worker.tasks_assigned([0, 1])
    worker.step()
    worker.commit()
    assert values_of(broker) == [b"a0", b"a1"][: 1 + len(expected)]


# ---- sinks


def test_wrong_records_end_a_sink_that_tolerates_none() -> None:
    broker = MemoryBroker()
    broker.logs = {PLACE: log_of(PLACE, range(3), lambda offset: b"x")}
    worker = sink_worker(broker, ListSink(wrong={1}))
    with pytest.raises(ConnectError, match="TASK_PUT failed for one of 3 records from topic=orders, partition=0, "):
        worker.step()
    assert broker.committed == {}


def test_a_tolerant_sink_finds_the_wrong_records_of_a_batch() -> None:
    broker = MemoryBroker()
    broker.logs = {PLACE: log_of(PLACE, range(8), lambda offset: b"x")}
    sink = ListSink(wrong={2, 7})
    worker = sink_worker(broker, sink, sink_settings(8, tolerant=True, dead_letter_topic="dead"))
    worker.step()
    worker.commit()
    assert sorted(itertools.chain(*sink.puts)) == [0, 1, 3, 4, 5, 6]
    assert [letter.key for letter in broker.dead_letters] == [b"2", b"7"]
    assert worker.rejected == 2
    assert broker.committed == {PLACE: 8}
    headers = dict(broker.dead_letters[0].headers or [])
    assert headers["__connect.errors.stage"] == b"TASK_PUT"
    assert headers["__connect.errors.offset"] == b"2"
    assert headers["__connect.errors.exception.class.name"] == b"ValueError"


def test_bytes_that_cannot_be_converted_are_rejected_as_they_were_read() -> None:
    broker = MemoryBroker()
    broker.logs = {PLACE: log_of(PLACE, range(3), lambda offset: b"{" if offset == 1 else b"{}")}
    sink = ListSink()
    settings = sink_settings(
        8, tolerant=True, dead_letter_topic="dead", value=deserializer(JSON, False), dead_letter_headers=False
    )
    worker = sink_worker(broker, sink, settings)
    worker.step()
    assert sink.puts == [[0, 2]]
    (letter,) = broker.dead_letters
    assert (letter.topic, letter.key, letter.value, letter.headers) == ("dead", b"1", b"{", [])


def test_a_sink_is_flushed_before_offsets_are_committed_and_before_a_rebalance() -> None:
    broker = MemoryBroker()
    broker.logs = {PLACE: log_of(PLACE, range(9), lambda offset: b"x")}
    sink = ListSink()
    worker = sink_worker(broker, sink, sink_settings(3, commit_s=1_000), rebalance_every=3)
    worker.step()
    worker.step()
    assert (sink.flushes, broker.committed) == (0, {})
    worker.step()
    assert sink.puts == [[0, 1, 2], [3, 4, 5], [6, 7, 8]]
    assert (sink.flushes, broker.committed) == (1, {PLACE: 6})


# ---- retries, conversions, configuration


def test_retries_double_their_pauses_and_end_after_the_timeout() -> None:
    now, pauses = [0.0], []

    def wait(seconds: float) -> bool:
        pauses.append(seconds)
        now[0] += seconds
        return False

    def fail() -> None:
        raise RetriableError("away")

    with pytest.raises(ConnectError, match=r"put failed for 10 s \(errors.retry.timeout\): away"):
        Retries(10_000, 1_000, 4_000, lambda: now[0], wait).call("put", fail)
    assert pauses == [1, 2, 4, 3]
    with pytest.raises(StoppedError):
        Retries(10_000, 1_000, 4_000, lambda: now[0], lambda seconds: True).call("put", fail)


def test_conversions() -> None:
    convert = serializer(None, False)
    assert [convert(each, "t") for each in (None, b"\xff", "ä", {"a": 1}, 3)] == [
        None,
        b"\xff",
        "ä".encode(),
        b'{"a":1}',
        b"3",
    ]
    assert serializer(LONG, True)(1, "t") == bytes(7) + b"\1"
    assert deserializer(LONG, True)(bytes(7) + b"\1", "t") == 1
    assert deserializer(None, True)(b"\xff", "t") == b"\xff"


@pytest.mark.parametrize(
    ("properties", "message"),
    [
        ({"topics": ""}, "topics is missing"),
        ({"tasks.max": "0"}, "tasks.max is 0; expected a number at least 1"),
        ({"tasks.max": "many"}, "tasks.max is 'many'; expected a whole number"),
        ({"errors.tolerance": "some"}, "errors.tolerance is 'some'; expected none or all"),
        ({"errors.deadletterqueue.topic.name": "a b"}, "errors.deadletterqueue.topic.name"),
        ({"errors.deadletterqueue.topic.name": "orders"}, "must not be"),
        ({"errors.deadletterqueue.context.headers.enable": "x"}, "expected true or false"),
        ({"errors.retry.timeout": 300_000}, "has to be below max.poll.interval.ms"),
        ({"application.id": None}, "application.id is missing"),
    ],
)
def test_wrong_properties(properties: dict[str, Any], message: str) -> None:
    given = {"application.id": "app", "bootstrap.servers": "b", "topics": "orders", **properties}
    with pytest.raises(StreamsConfigError, match=message):
        ConnectorConfig(given, is_source=False)


def test_names_of_kafka() -> None:
    given = {"application.id": "app", "bootstrap.servers": "b", "name": "files"}
    config = ConnectorConfig(given, is_source=True)
    assert config.group == "connect-files"
    assert config.offsets_topic == "app-connector-offsets"
    assert config.transactional_id(3) == "app-files-3"
    assert config["commit.interval.ms"] == 100
    given["processing.guarantee"] = "at_least_once"
    assert ConnectorConfig(given, is_source=True)["commit.interval.ms"] == 30_000
