"""The clients on real brokers: Odradek, Apache Kafka 3.9.2 and 4.3, beside librdkafka on the same topics."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, Producer
from confluent_kafka import TopicPartition as Position
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from odradek.broker_process import BrokerProcess
from odradek.streams.clients.consumer import FetchConsumer
from odradek.streams.clients.producer import BatchProducer
from odradek.streams.clients.properties import consumer_settings, producer_settings
from odradek.streams.group.group_protocol import librdkafka_group_metadata
from tests.jvm.kafka import running_kafka
from tests.jvm.kraft import KRaft
from tests.streams import counting

pytestmark = pytest.mark.slow
PARTITIONS = 3
TIMEOUT_S = 60.0
CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
SINGLE = {"transaction.state.log.replication.factor": "1", "transaction.state.log.min.isr": "1"}
Row = tuple[int, int, bytes | None, bytes | None, Any]

_names = (f"topic{number}" for number in itertools.count())


@pytest.fixture(
    scope="module",
    params=["odradek", *(pytest.param(name, marks=pytest.mark.jvm) for name in ("kafka-3.9", "kafka-4.3"))],
)
def bootstrap(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    if request.param == "odradek":
        broker: BrokerProcess = request.getfixturevalue("streams_broker")
        yield broker.bootstrap
    elif request.param == "kafka-3.9":
        with running_kafka(tmp_path_factory.mktemp("kafka"), dict(counting.BROKER)) as kafka:
            yield kafka.bootstrap
    else:
        kraft = KRaft(tmp_path_factory.mktemp("kraft"), {**counting.BROKER, **SINGLE})
        try:
            kraft.start()
            yield kraft.bootstrap
        finally:
            kraft.close()


@pytest.fixture
def topic(bootstrap: str) -> str:
    name = next(_names)
    counting.make_topics(bootstrap, {name: PARTITIONS})
    return name


def producer(
    bootstrap: str, on_delivery: Callable[..., None] = lambda *about: None, **properties: Any
) -> BatchProducer:
    given = {name.replace("_", "."): value for name, value in properties.items()}
    return BatchProducer(producer_settings({"bootstrap.servers": bootstrap, "linger.ms": 5, **given}), on_delivery)


def consumer(bootstrap: str, **properties: Any) -> FetchConsumer:
    given = {name.replace("_", "."): value for name, value in properties.items()}
    fixed = {"bootstrap.servers": bootstrap, "auto.offset.reset": "error", "enable.partition.eof": True}
    return FetchConsumer(consumer_settings({**fixed, **given}))


def rows_of(messages: list[Any]) -> list[Row]:
    return [(each.partition(), each.offset(), each.key(), each.value(), each.headers()) for each in messages]


def read(bootstrap: str, topic: str, **properties: Any) -> list[Row]:
    """All records of a topic with the client under test."""
    with closing(consumer(bootstrap, **properties)) as reader:
        reader.incremental_assign([Position(topic, number, OFFSET_BEGINNING) for number in range(PARTITIONS)])
        messages: list[Any] = []
        ended: set[int] = set()
        while len(ended) < PARTITIONS:
            for each in reader.consume(500, TIMEOUT_S):
                error = each.error()
                if error is None:
                    messages.append(each)
                else:
                    assert error.code() == KafkaError._PARTITION_EOF, error
                    ended.add(each.partition())
    return sorted(rows_of(messages))


def read_with_librdkafka(bootstrap: str, topic: str) -> list[Row]:
    given = {"bootstrap.servers": bootstrap, "group.id": "look", "enable.partition.eof": True, "fetch.wait.max.ms": 50}
    reader = Consumer(given)
    reader.assign([Position(topic, number, OFFSET_BEGINNING) for number in range(PARTITIONS)])
    messages: list[Message] = []
    left = PARTITIONS
    while left:
        each = reader.poll(TIMEOUT_S)
        assert each is not None
        if each.error() is None:
            messages.append(each)
        else:
            left -= 1
    reader.close()
    return sorted(rows_of(messages))


def some_records(count: int) -> list[tuple[bytes | None, bytes | None, Any]]:
    drawn = random.Random(count)
    headers = [None, [("h", b"1"), ("h", None)], [("ü", b"")]]
    return [
        (
            drawn.choice([None, b"k%d" % drawn.randrange(50)]),
            drawn.choice([None, b"", b"v" * drawn.randrange(300)]),
            drawn.choice(headers),
        )
        for _ in range(count)
    ]


@pytest.mark.parametrize("codec", CODECS)
def test_records_are_those_that_librdkafka_reads_and_writes(bootstrap: str, topic: str, codec: str) -> None:
    theirs = Producer({"bootstrap.servers": bootstrap, "compression.type": codec, "partitioner": "murmur2_random"})
    keyed: dict[bytes, set[int]] = {}
    with closing(producer(bootstrap, compression_type=codec)) as ours:
        for key, value, headers in some_records(400):
            ours.produce(topic, value, key, -1, None, None, 1_700_000_000_000, headers)
            theirs.produce(topic, value, key, headers=headers or [])
        assert ours.flush(TIMEOUT_S) == 0
    theirs.flush()
    found = read(bootstrap, topic)
    assert found == read_with_librdkafka(bootstrap, topic)
    assert len(found) == 800
    for partition, _, key, _, _ in found:
        if key is not None:
            keyed.setdefault(key, set()).add(partition)
    assert all(len(partitions) == 1 for partitions in keyed.values())


def test_records_of_aborted_transactions_are_not_read(bootstrap: str, topic: str) -> None:
    with closing(producer(bootstrap, transactional_id=f"id-{topic}")) as ours:
        ours.init_transactions(TIMEOUT_S)
        for number in range(6):
            ours.begin_transaction()
            for each in range(20):
                ours.produce(topic, b"%d" % number, b"%d" % each, -1, None, None, 0, None)
            if number % 2:
                while ours._sender.unacknowledged or ours._accumulator.records:
                    ours.poll(0.01)
                ours.abort_transaction(TIMEOUT_S)
            else:
                positions = [Position(topic, 0, number, "metadata")]
                ours.send_offsets_to_transaction(positions, librdkafka_group_metadata("g", -1, ""), TIMEOUT_S)
                ours.commit_transaction(TIMEOUT_S)
    committed, all_ = (
        read(bootstrap, topic, isolation_level=level) for level in ("read_committed", "read_uncommitted")
    )
    assert {row[3] for row in committed} == {b"0", b"2", b"4"}
    assert (len(committed), len(all_)) == (60, 120)


def test_a_fenced_producer_is_unusable(bootstrap: str, topic: str) -> None:
    with (
        closing(producer(bootstrap, transactional_id=topic)) as old,
        closing(producer(bootstrap, transactional_id=topic)) as new,
    ):
        old.init_transactions(TIMEOUT_S)
        old.begin_transaction()
        old.produce(topic, b"old", b"k", 0, None, None, 0, None)
        old.poll(0)
        new.init_transactions(TIMEOUT_S)
        with pytest.raises(KafkaException) as raised:
            old.commit_transaction(TIMEOUT_S)
        assert raised.value.args[0].fatal()
        new.begin_transaction()
        new.produce(topic, b"new", b"k", 0, None, None, 0, None)
        new.commit_transaction(TIMEOUT_S)
    assert [row[3] for row in read(bootstrap, topic, isolation_level="read_committed")] == [b"new"]


def test_a_batch_that_is_too_large_for_the_topic_is_sent_in_parts(bootstrap: str) -> None:
    topic = next(_names)
    new = NewTopic(topic, PARTITIONS, 1, config={"max.message.bytes": "3000"})
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([new])[topic].result(TIMEOUT_S)
    failed: list[tuple[Any, ...]] = []
    with closing(producer(bootstrap)) as ours:
        for number in range(60):
            size = 5_000 if number == 30 else 500
            ours.produce(topic, b"v" * size, b"%d" % number, 0, lambda *about: failed.append(about), None, 0, None)
        assert ours.flush(TIMEOUT_S) == 0
    assert [(error.code(), record.key()) for error, record in failed] == [(KafkaError.MSG_SIZE_TOO_LARGE, b"30")]
    assert [row[2] for row in read(bootstrap, topic)] == [b"%d" % number for number in range(60) if number != 30]


def test_an_offset_out_of_range_is_an_error_or_a_reset(bootstrap: str, topic: str) -> None:
    with closing(producer(bootstrap)) as ours:
        ours.produce(topic, b"v", b"k", 0, None, None, 0, None)
        assert ours.flush(TIMEOUT_S) == 0
    with closing(consumer(bootstrap)) as reader:
        reader.incremental_assign([Position(topic, 0, 77)])
        (notice,) = reader.consume(10, TIMEOUT_S)
        assert notice.error().code() == KafkaError._AUTO_OFFSET_RESET
        reader.incremental_unassign([Position(topic, 0)])
        reader.incremental_assign([Position(topic, 0, OFFSET_BEGINNING)])
        assert [each.value() for each in reader.consume(10, TIMEOUT_S)] == [b"v"]
        assert reader.get_watermark_offsets(Position(topic, 0), TIMEOUT_S) == (0, 1)
        assert [each.offset for each in reader.position([Position(topic, 0)])] == [1]
    with closing(consumer(bootstrap, auto_offset_reset="earliest")) as reader:
        reader.incremental_assign([Position(topic, 0, 77)])
        assert [each.value() for each in reader.consume(10, TIMEOUT_S)] == [b"v"]


def test_a_paused_partition_returns_nothing_until_it_is_resumed(bootstrap: str, topic: str) -> None:
    with closing(producer(bootstrap)) as ours:
        for partition in (0, 1):
            ours.produce(topic, b"%d" % partition, b"k", partition, None, None, 0, None)
        assert ours.flush(TIMEOUT_S) == 0
    with closing(consumer(bootstrap, enable_partition_eof=False)) as reader:
        reader.incremental_assign([Position(topic, partition, OFFSET_BEGINNING) for partition in (0, 1)])
        reader.pause([Position(topic, 0)])
        assert [each.value() for each in reader.consume(10, TIMEOUT_S)] == [b"1"]
        assert reader.consume(10, 0.3) == []
        reader.resume([Position(topic, 0)])
        assert [each.value() for each in reader.consume(10, TIMEOUT_S)] == [b"0"]
