"""Topics of a test's own on any broker: created, written and read by librdkafka, not by Spark's client."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.spark_jobs.copies import Record

TIMEOUT_S: Final = 60.0
_numbers = itertools.count(1)


class Seen(NamedTuple):
    """A record as librdkafka reads it."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    timestamp_ms: int


def _seen(message: Any) -> Seen:
    """A record; the client's types allow fields to be absent, as in the message of an error."""
    place = (message.topic(), message.partition(), message.offset())
    headers = tuple(message.headers() or [])
    return Seen(*place, message.key(), message.value(), headers, message.timestamp()[1])


def unique(name: str) -> str:
    """A name that no other test of this run has."""
    return f"{name}-{next(_numbers)}-{time.time_ns()}"


def make_topics(bootstrap: str, partitions: Mapping[str, int], replicas: int = 1, **config: str) -> None:
    """Create topics whose records stay, at any age; `config` has underscores for dots."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    settings = {"retention.ms": "-1"} | {name.replace("_", "."): value for name, value in config.items()}
    wanted = [NewTopic(name, count, replicas, config=settings) for name, count in partitions.items()]
    for done in admin.create_topics(wanted).values():
        done.result(TIMEOUT_S)


def producer(bootstrap: str, **config: Any) -> Producer:
    """A producer that waits for all replicas; `config` has underscores for dots."""
    own = {name.replace("_", "."): value for name, value in config.items()}
    settings = {"acks": "all", "linger.ms": 5, "queue.buffering.max.messages": 1_000_000, "log_level": 2}
    return Producer({"bootstrap.servers": bootstrap, **settings, **own})


def send(to: Producer, record: Record) -> None:
    """Produce a record; waits where the queue is full."""
    time_ms = round(record.timestamp.timestamp() * 1000)
    while True:
        try:
            to.produce(
                record.topic,
                record.value,
                record.key,
                record.partition,
                timestamp=time_ms,
                headers=list(record.headers),
            )
            return
        except BufferError:
            to.poll(0.1)


def write(bootstrap: str, records: Iterable[Record], **config: Any) -> None:
    """Write records, all acknowledged, each to its partition."""
    to = producer(bootstrap, **config)
    for record in records:
        send(to, record)
    assert to.flush(TIMEOUT_S) == 0


def read(bootstrap: str, partitions: Mapping[str, int], isolation: str = "read_committed") -> list[Seen]:
    """All records of topics (name -> number of partitions), sorted by partition and offset."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": unique("reader"),
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 10,  # librdkafka signals the end with a fetch that has found nothing
            "auto.offset.reset": "earliest",  # requested at once, the first offset arrives after half a second
            "enable.auto.commit": False,
            "isolation.level": isolation,
            "log_level": 2,
        }
    )
    open_ends = {(name, number) for name, count in partitions.items() for number in range(count)}
    seen: list[Seen] = []
    try:
        consumer.assign([TopicPartition(name, number, 0) for name, number in open_ends])
        deadline = time.monotonic() + TIMEOUT_S
        while open_ends:
            assert time.monotonic() < deadline, f"no end of {open_ends} within {TIMEOUT_S:g} s"
            for message in consumer.consume(10_000, 0.03):
                error = message.error()
                if error is None:
                    seen.append(_seen(message))
                elif error.code() == KafkaError._PARTITION_EOF:
                    open_ends.discard((message.topic(), message.partition()))
    finally:
        consumer.close()
    return sorted(seen, key=lambda each: each[:3])
