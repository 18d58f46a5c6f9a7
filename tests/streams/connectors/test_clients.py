"""The clients of the workers with a real broker, and the doubles in memory: both pass one suite of tests."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, NamedTuple

import pytest

from odradek.broker_process import BrokerProcess
from odradek.protocol.topic_partition import TopicPartition
from odradek.streams.connectors.config import ConnectorConfig
from odradek.streams.connectors.errors import ConnectError, FencedError
from odradek.streams.connectors.interface import SinkRecord
from odradek.streams.connectors.sink_clients import KafkaSinkInput
from odradek.streams.connectors.sink_worker import PartitionListener, SinkInput
from odradek.streams.connectors.source_clients import KafkaTaskGroup
from odradek.streams.connectors.source_worker import OutputRecord, TaskGroup, TaskListener
from odradek.streams.errors import DeadLetter, StreamsError
from odradek.streams.running.client import Clients
from tests.streams import counting
from tests.streams.connectors.memory import Countdown, MemoryBroker, MemorySinkInput, MemoryTaskGroup
from tests.support.eventually import eventually

pytestmark = pytest.mark.slow

_numbers = itertools.count()
KEY = b'["files",{"file":"a"}]'


def config_of(broker: BrokerProcess, *, is_source: bool, **more: Any) -> ConnectorConfig:
    given: dict[str, Any] = {
        "application.id": f"connector{next(_numbers)}",
        "bootstrap.servers": broker.bootstrap,
        "tasks.max": 2,
        "session.timeout.ms": 30_000,
        "producer.linger.ms": 0,
    }
    return ConnectorConfig(
        {**given, **{name.replace("_", "."): value for name, value in more.items()}}, is_source=is_source
    )


class Assigned:
    """A listener that keeps what it was called with."""

    def __init__(self, starts: Mapping[TopicPartition, int] | None = None) -> None:
        self.tasks: set[int] = set()
        self.partitions: set[TopicPartition] = set()
        self.revoked: list[bool] = []
        self.starts = dict(starts or {})

    def tasks_assigned(self, tasks: Collection[int]) -> None:
        self.tasks = set(tasks)

    def tasks_revoked(self, lost: bool) -> None:
        self.revoked.append(lost)
        self.tasks = set()

    def partitions_assigned(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        self.partitions = set(partitions)
        return self.starts

    def partitions_revoked(self, lost: bool) -> None:
        self.revoked.append(lost)
        self.partitions = set()


class SourceSide(NamedTuple):
    """One implementation: groups of one connector, and the committed values that they have written."""

    topic: str
    group: Callable[[TaskListener], TaskGroup]
    values: Callable[[], list[bytes | None]]


@pytest.fixture(params=["memory", "kafka"])
def source_side(request: pytest.FixtureRequest) -> SourceSide:
    if request.param == "memory":
        memory = MemoryBroker(tasks=2)
        return SourceSide(
            "out",
            lambda listener: MemoryTaskGroup(memory, listener, Countdown()),
            lambda: [each.value for each in memory.written],
        )
    broker: BrokerProcess = request.getfixturevalue("streams_broker")
    config = config_of(broker, is_source=True)
    topic = f"{config['application.id']}-out"
    counting.make_topics(broker.bootstrap, {topic: 1})
    clients = Clients(config.streams, config["application.id"])

    return SourceSide(
        topic,
        lambda listener: KafkaTaskGroup(config, clients, listener),
        lambda: [value for _, value in counting.read_all(broker.bootstrap, topic)],
    )


def records(side: SourceSide, *values: bytes) -> list[OutputRecord]:
    return [OutputRecord(side.topic, None, value, 1_000, [("h", b"1")], None) for value in values]


def assigned(group: TaskGroup, listener: Assigned) -> None:
    def poll() -> int:
        group.poll(0.05)
        return len(listener.tasks)

    eventually(poll, lambda count: count == 2)


def test_records_and_offsets_become_visible_together(source_side: SourceSide) -> None:
    listener = Assigned()
    group = source_side.group(listener)
    assert group.tasks == 2
    assigned(group, listener)
    first = group.open_tasks([1])[1]
    assert first.offsets == {}
    first.write(records(source_side, b"a", b"b"))
    first.commit({KEY: b'{"position": 2}'})
    first.write(records(source_side, b"lost"))
    first.close()
    second = group.open_tasks([1])[1]
    assert second.offsets == {KEY: {"position": 2}}
    second.write(records(source_side, b"c"))
    second.commit({KEY: b'{"position": 3}'})
    second.commit({KEY: b"null"})
    second.close()
    last = group.open_tasks([1])[1]
    assert last.offsets == {}
    assert group.open_tasks([0])[0].offsets == {}
    last.close()
    group.close()
    assert source_side.values() == [b"a", b"b", b"c"]
    assert listener.revoked == []


def test_a_task_that_is_opened_again_fences_its_previous_producer(source_side: SourceSide) -> None:
    listener = Assigned()
    group = source_side.group(listener)
    late = group.open_tasks([0])[0]
    late.write(records(source_side, b"late"))
    owner = group.open_tasks([0])[0]
    owner.write(records(source_side, b"owner"))
    with pytest.raises(FencedError):
        late.commit({KEY: b'{"position": 1}'})
    owner.commit({KEY: b'{"position": 2}'})
    late.close()
    owner.close()
    assert source_side.values() == [b"owner"]
    again = group.open_tasks([0])[0]
    assert again.offsets == {KEY: {"position": 2}}
    again.close()
    group.close()


class SinkSide(NamedTuple):
    """One implementation: inputs of one connector over partition 0 of a topic with records at offsets 0, 1, 2."""

    topic: str
    make: Callable[[PartitionListener], SinkInput]
    dead: Callable[[], list[bytes | None]]


@pytest.fixture(params=["memory", "kafka"])
def sink_side(request: pytest.FixtureRequest) -> Iterator[SinkSide]:
    if request.param == "memory":
        memory = MemoryBroker()
        memory.logs = {("in", 0): [SinkRecord("in", 0, n, None, str(n).encode(), 1_000) for n in range(3)]}
        yield SinkSide(
            "in",
            lambda listener: MemorySinkInput(memory, listener),
            lambda: [each.value for each in memory.dead_letters],
        )
        return
    broker: BrokerProcess = request.getfixturevalue("streams_broker")
    topic = f"in{next(_numbers)}"
    counting.make_topics(broker.bootstrap, {topic: 1, f"{topic}-dead": 1})
    counting.write_words(broker.bootstrap, ["0", "1", "2"], topic)
    config = config_of(broker, is_source=False, topics=topic)
    clients = Clients(config.streams, config["application.id"])
    yield SinkSide(
        topic,
        lambda listener: KafkaSinkInput(config, clients, listener),
        lambda: [value for _, value in counting.read_all(broker.bootstrap, f"{topic}-dead")],
    )


def read(source: SinkInput, count: int) -> list[int]:
    found: list[int] = []

    def poll() -> int:
        found.extend(each.offset for each in source.poll(2, 0.05))
        return len(found)

    eventually(poll, lambda number: number >= count)
    return found


def test_an_input_begins_at_the_committed_offset_or_at_that_of_the_sink(sink_side: SinkSide) -> None:
    place = sink_side.topic, 0
    first = sink_side.make(listener := Assigned())
    assert read(first, 3) == [0, 1, 2]
    assert listener.partitions == {place}
    first.commit({place: 2})
    first.close()
    assert listener.revoked == []
    second = sink_side.make(Assigned())
    assert read(second, 1) == [2]
    second.close()
    third = sink_side.make(Assigned({place: 1}))
    assert read(third, 2) == [1, 2]
    third.close()


def test_dead_letters_are_written_when_the_call_returns(sink_side: SinkSide) -> None:
    made = sink_side.make(Assigned())
    made.send_dead_letters([DeadLetter(f"{sink_side.topic}-dead", b"k", b"v", 1_000, [("h", b"1")])])
    assert sink_side.dead() == [b"v"]
    made.close()


def test_a_sink_of_a_topic_that_does_not_exist_fails_at_once(streams_broker: BrokerProcess) -> None:
    config = config_of(streams_broker, is_source=False, topics="no-such-topic")
    with pytest.raises(StreamsError, match="cannot find the topic no-such-topic"):
        KafkaSinkInput(config, Clients(config.streams, "missing"), Assigned())


def test_a_record_that_the_broker_rejects_ends_the_task(streams_broker: BrokerProcess) -> None:
    config = config_of(streams_broker, is_source=True, producer_message_max_bytes=2_000_000)
    clients = Clients(config.streams, config["application.id"])
    group = KafkaTaskGroup(config, clients, Assigned())
    output = group.open_tasks([0])[0]
    output.write([OutputRecord(config.offsets_topic, b"k", bytes(1_500_000), None, None, 0)])
    with pytest.raises(ConnectError, match="MSG_SIZE_TOO_LARGE"):
        output.commit({KEY: b"{}"})
    output.close()
    group.close()


def test_at_least_once_writes_offsets_after_the_records(streams_broker: BrokerProcess) -> None:
    config = config_of(streams_broker, is_source=True, processing_guarantee="at_least_once")
    topic = f"{config['application.id']}-out"
    counting.make_topics(streams_broker.bootstrap, {topic: 1})
    group = KafkaTaskGroup(config, Clients(config.streams, topic), Assigned())
    output = group.open_tasks([0])[0]
    output.write([OutputRecord(topic, None, b"a", None, None, None)])
    output.commit({KEY: b'{"position": 1}'})
    assert counting.read_all(streams_broker.bootstrap, topic, committed=False) == [(None, b"a")]
    output.close()
    again = group.open_tasks([0])[0]
    assert again.offsets == {KEY: {"position": 1}}
    again.close()
    group.close()


def test_an_offset_of_an_aborted_transaction_does_not_count(streams_broker: BrokerProcess) -> None:
    config = config_of(streams_broker, is_source=True)
    group = KafkaTaskGroup(config, Clients(config.streams, config["application.id"]), Assigned())
    output = group.open_tasks([0])[0]
    output.commit({KEY: b'{"position": 1}'})
    output.write([OutputRecord(config.offsets_topic, KEY, b'{"position": 2}', None, None, 0)])

    def written() -> int:
        output.write([])  # Odradek's own producer sends within its calls only
        return len(counting.read_all(streams_broker.bootstrap, config.offsets_topic, False))

    eventually(written, lambda count: count == 2)
    output.close()
    again = group.open_tasks([0])[0]
    assert again.offsets == {KEY: {"position": 1}}
    again.close()
    group.close()
