"""confluent-kafka (librdkafka) and aiokafka: every codec, headers, timestamps, idempotence, restarts and kills."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import NamedTuple, cast

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka import TopicPartition as AioPartition
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

from tests.compatibility.brokers import Broker, create_topic, log_end_offsets

pytestmark = pytest.mark.slow

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
READ_TIMEOUT_S = 30.0
DAY_MS = 24 * 60 * 60 * 1000
NOON_MS = 1_700_000_000_000


class Record(NamedTuple):
    """A record as both libraries return it."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    timestamp_ms: int


RECORDS = [
    Record(
        key=f"key-{number % 10}".encode() if number % 7 else None,
        value=f"line {number} of the spool ".encode() * 10 if number % 11 or not number % 7 else None,
        headers=(("line", str(number).encode()), ("empty", b"")) if number % 3 else (),
        timestamp_ms=NOON_MS + number,
    )
    for number in range(1000)
]


def send_with_confluent(broker: Broker, topic: str, codec: str) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "compression.type": codec, "enable.idempotence": True})
    failures: list[KafkaError] = []

    def delivered(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            failures.append(error)

    for record in RECORDS:
        producer.produce(
            topic,
            key=record.key,
            value=record.value,
            headers=list(record.headers),
            timestamp=record.timestamp_ms,
            on_delivery=delivered,
        )
    assert producer.flush(READ_TIMEOUT_S) == 0
    assert failures == []


def read_with_confluent(broker: Broker, topic: str, count: int, start: int = 0) -> list[Message]:
    """Reads partition 0 from an offset."""
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "reader", "enable.auto.commit": False})
    messages: list[Message] = []
    try:
        consumer.assign([TopicPartition(topic, 0, start)])
        while len(messages) < count:
            batch = consumer.consume(count - len(messages), timeout=READ_TIMEOUT_S)
            assert batch, f"{len(messages)} of {count} records arrived"
            for message in batch:
                assert message.error() is None, message.error()
            messages += batch
    finally:
        consumer.close()
    return messages


def as_record(message: Message) -> Record:
    headers = cast("list[tuple[str, bytes | None]]", message.headers() or [])
    return Record(message.key(), message.value(), tuple(headers), message.timestamp()[1])


async def send_with_aiokafka(broker: Broker, topic: str, codec: str) -> None:
    producer = AIOKafkaProducer(
        bootstrap_servers=broker.bootstrap,
        compression_type=None if codec == "none" else codec,
        enable_idempotence=True,
    )
    async with producer:
        deliveries = [
            await producer.send(
                topic,
                key=record.key,
                value=record.value,
                headers=list(record.headers),
                timestamp_ms=record.timestamp_ms,
                partition=0,
            )
            for record in RECORDS
        ]
        for delivery in deliveries:
            await delivery


async def read_with_aiokafka(broker: Broker, topic: str, count: int) -> list[Record]:
    records: list[Record] = []
    async with AIOKafkaConsumer(bootstrap_servers=broker.bootstrap, auto_offset_reset="earliest") as consumer:
        partition = AioPartition(topic, 0)
        consumer.assign([partition])
        await consumer.seek_to_beginning(partition)
        while len(records) < count:
            batch = await consumer.getmany(partition, timeout_ms=int(READ_TIMEOUT_S * 1000))
            assert batch, f"{len(records)} of {count} records arrived"
            records += [Record(read.key, read.value, tuple(read.headers), read.timestamp) for read in batch[partition]]
    return records


@pytest.mark.parametrize("codec", CODECS)
async def test_each_client_reads_the_records_of_each_with_every_codec(broker: Broker, topic: str, codec: str) -> None:
    by_confluent, by_aiokafka = f"{topic}-confluent", f"{topic}-aiokafka"
    create_topic(broker, by_confluent)
    create_topic(broker, by_aiokafka)
    send_with_confluent(broker, by_confluent, codec)
    await send_with_aiokafka(broker, by_aiokafka, codec)
    for name in (by_confluent, by_aiokafka):
        assert [as_record(message) for message in read_with_confluent(broker, name, len(RECORDS))] == RECORDS
        assert await read_with_aiokafka(broker, name, len(RECORDS)) == RECORDS


@pytest.mark.parametrize("how", ["restart", "kill"])
async def test_records_outlive_the_process(broker: Broker, topic: str, how: str) -> None:
    create_topic(broker, topic)
    send_with_confluent(broker, topic, "zstd")
    if how == "restart":
        broker.restart()
    else:
        broker.kill()
        broker.start()
    assert [as_record(message) for message in read_with_confluent(broker, topic, len(RECORDS))] == RECORDS
    assert await read_with_aiokafka(broker, topic, len(RECORDS)) == RECORDS
    assert log_end_offsets(broker, topic, 1) == [len(RECORDS)]


@pytest.mark.parametrize("acks", ["1", "all"])
def test_records_acknowledged_before_a_kill_are_there_in_order(broker: Broker, topic: str, acks: str) -> None:
    create_topic(broker, topic)
    producer = Producer(
        {
            "bootstrap.servers": broker.bootstrap,
            "acks": acks,
            "enable.idempotence": acks == "all",
            "linger.ms": 1,
            "max.in.flight": 1 if acks == "1" else 5,
            "reconnect.backoff.max.ms": 200,
        }
    )
    acknowledged: dict[int, int] = {}  # line number -> offset
    under_way = threading.Event()

    def remember(number: int) -> Callable[[KafkaError | None, Message], None]:
        def delivered(error: KafkaError | None, message: Message) -> None:
            assert error is None, error
            offset = message.offset()
            assert offset is not None
            acknowledged[number] = offset
            if len(acknowledged) >= 2000:
                under_way.set()

        return delivered

    number = 0
    while not under_way.is_set():
        producer.produce(topic, str(number).encode(), on_delivery=remember(number))
        producer.poll(0 if len(producer) < 1000 else 1)  # the test waits for a broker that is slower than this loop
        number += 1
    broker.kill()
    for more in range(number, number + 1000):
        producer.produce(topic, str(more).encode(), on_delivery=remember(more))
    broker.start()
    assert producer.flush(60) == 0
    total = number + 1000
    assert sorted(acknowledged) == list(range(total))

    (end,) = log_end_offsets(broker, topic, 1)
    lines = [int(message.value() or b"") for message in read_with_confluent(broker, topic, end)]
    # Where an acknowledgement was lost, a producer that is not idempotent sends its lines again.
    assert list(dict.fromkeys(lines)) == list(range(total))
    assert all(lines[offset] == number for number, offset in acknowledged.items() if offset >= 0)
    if acks == "all":
        assert end == total, "an idempotent producer's line is there twice"


def test_a_timestamp_finds_its_offset(broker: Broker, topic: str) -> None:
    create_topic(broker, topic)
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for day in range(10):
        producer.produce(topic, f"day {day}".encode(), timestamp=NOON_MS + day * DAY_MS)
        assert producer.flush(READ_TIMEOUT_S) == 0

    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "by-time"})
    try:

        def offset_at(timestamp_ms: int) -> int:
            (found,) = consumer.offsets_for_times([TopicPartition(topic, 0, timestamp_ms)], timeout=READ_TIMEOUT_S)
            assert found.error is None, found.error
            return int(found.offset)

        assert offset_at(NOON_MS) == 0
        assert offset_at(NOON_MS + 4 * DAY_MS) == 4
        assert offset_at(NOON_MS + 4 * DAY_MS + 1) == 5
        assert offset_at(0) == 0
        assert offset_at(NOON_MS + 10 * DAY_MS) == -1  # librdkafka's constant for the end of the log
    finally:
        consumer.close()
    (message,) = read_with_confluent(broker, topic, 1, start=5)
    assert message.value() == b"day 5"


@pytest.mark.parametrize("how", ["restart", "kill"])
def test_committed_offsets_outlive_the_process(broker: Broker, topic: str, group: str, how: str) -> None:
    create_topic(broker, topic, 2)
    partitions = [TopicPartition(topic, 0, 17), TopicPartition(topic, 1, 4)]
    settings = {"bootstrap.servers": broker.bootstrap, "group.id": group, "enable.auto.commit": False}
    consumer = Consumer(settings)
    consumer.commit(offsets=partitions, asynchronous=False)
    consumer.close()
    if how == "restart":
        broker.restart()
    else:
        broker.kill()
        broker.start()
    consumer = Consumer(settings)
    try:
        found = consumer.committed([TopicPartition(topic, 0), TopicPartition(topic, 1)], timeout=READ_TIMEOUT_S)
        assert [partition.offset for partition in found] == [17, 4]
    finally:
        consumer.close()


async def test_records_of_acks_0_arrive(broker: Broker, topic: str) -> None:
    create_topic(broker, topic)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "acks": "0"})
    for number in range(100):
        producer.produce(topic, str(number).encode())
    assert producer.flush(READ_TIMEOUT_S) == 0
    messages = read_with_confluent(broker, topic, 100)
    assert [message.value() for message in messages] == [str(number).encode() for number in range(100)]
