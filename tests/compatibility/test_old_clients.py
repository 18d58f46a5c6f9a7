"""Clients from before record batches: kafka-python as of 0.8 and 0.10, and the Java client 0.10.2.

They write and read message sets; a client of today (confluent-kafka) reads what they wrote and writes what they read.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from kafka import KafkaConsumer, KafkaProducer
from kafka import TopicPartition as PythonPartition

from odradek.broker_process import BrokerProcess
from tests.compatibility.brokers import Broker, create_topic
from tests.jvm.process import QUICK_START, QUIET, java_command, run_java

pytestmark = pytest.mark.slow

JAVA = "0.10.2.2"
CODECS = ("none", "gzip", "snappy", "lz4")
COUNT = 300
NOON_MS = 1_700_000_000_000
DEADLINE_S = 30
Seen = tuple[int, int, bytes | None, bytes | None]
"""Offset, time, key, value."""


@pytest.fixture(scope="module")
def broker(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """One broker for all tests here."""
    if request.config.getoption("--broker") == "kafka":
        yield request.getfixturevalue("kafka")
        return
    running = BrokerProcess(tmp_path_factory.mktemp("old-clients"))
    running.start()
    yield running
    running.stop()


def content(number: int) -> tuple[bytes | None, bytes | None]:
    """Key and value of a record; some have none, but not both."""
    key = f"key-{number}".encode() if number % 7 else None
    return key, None if key and number % 11 == 0 else f"value {number} of an old client".encode()


EXPECTED: list[Seen] = [(number, NOON_MS + number, *content(number)) for number in range(COUNT)]


def write_new(broker: Broker, topic: str, codec: str) -> None:
    """A present client writes batches, with headers, which old clients do not see."""
    producer = Producer({"bootstrap.servers": broker.bootstrap, "compression.type": codec, "linger.ms": 20})
    for number in range(COUNT):
        key, value = content(number)
        producer.produce(topic, key=key, value=value, headers={"h": b"x"}, timestamp=NOON_MS + number, partition=0)
    assert producer.flush(DEADLINE_S) == 0


def read_new(broker: Broker, topic: str) -> list[Seen]:
    """The records that a present client reads."""
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "none", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, 0)])
    seen: list[Seen] = []
    while len(seen) < COUNT:
        messages = consumer.consume(COUNT - len(seen), timeout=DEADLINE_S)
        assert messages
        assert not [each.error() for each in messages if each.error()]
        seen.extend((each.offset() or 0, each.timestamp()[1], each.key(), each.value()) for each in messages)
    consumer.close()
    return seen


def python_options(broker: Broker, api_version: tuple[int, ...]) -> dict[str, Any]:
    return {"bootstrap_servers": broker.bootstrap, "api_version": api_version}


def python_reads(broker: Broker, topic: str, api_version: tuple[int, ...]) -> list[Seen]:
    """The records that kafka-python reads, as a member of a group where groups are of brokers (0.9)."""
    groups = api_version >= (0, 9)
    consumer = KafkaConsumer(
        **python_options(broker, api_version),
        auto_offset_reset="earliest",
        group_id=uuid.uuid4().hex if groups else None,
        fetch_max_wait_ms=100,
    )
    if groups:
        consumer.subscribe([topic])
    else:
        consumer.assign([PythonPartition(topic, 0)])
        consumer.seek(PythonPartition(topic, 0), 0)
    seen: list[Seen] = []
    while len(seen) < COUNT:
        polled = consumer.poll(timeout_ms=DEADLINE_S * 1000)
        assert polled
        for records in polled.values():
            seen.extend((each.offset, each.timestamp, each.key, each.value) for each in records)
    consumer.close()
    return seen


@pytest.mark.parametrize("codec", CODECS)
def test_kafka_python_of_0_10(broker: Broker, topic: str, codec: str) -> None:
    """KafkaProducer(api_version=(0, 10)) writes; it, and a client of today, read; and the other way round."""
    create_topic(broker, topic)
    options = python_options(broker, (0, 10))
    producer = KafkaProducer(**options, compression_type=None if codec == "none" else codec, linger_ms=20)
    sent = [
        producer.send(topic, key=key, value=value, timestamp_ms=time_ms, partition=0)
        for _, time_ms, key, value in EXPECTED
    ]
    assert [each.get(DEADLINE_S).offset for each in sent] == list(range(COUNT))
    producer.close()
    assert read_new(broker, topic) == EXPECTED
    assert python_reads(broker, topic, (0, 10)) == EXPECTED
    other = f"{topic}-new"
    create_topic(broker, other)
    write_new(broker, other, codec)
    assert python_reads(broker, other, (0, 10)) == EXPECTED


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy"])  # its lz4 of that age needs one more library
def test_kafka_python_of_0_8(broker: Broker, topic: str, codec: str) -> None:
    """Messages without time: magic 0."""
    create_topic(broker, topic)
    options = python_options(broker, (0, 8, 2))
    producer = KafkaProducer(**options, compression_type=None if codec == "none" else codec, linger_ms=20)
    sent = [producer.send(topic, key=key, value=value, partition=0) for _, _, key, value in EXPECTED]
    assert [each.get(DEADLINE_S).offset for each in sent] == list(range(COUNT))
    producer.close()
    without_time = [(offset, -1, key, value) for offset, _, key, value in EXPECTED]
    assert [(offset, -1, key, value) for offset, _, key, value in read_new(broker, topic)] == without_time
    seen = python_reads(broker, topic, (0, 8, 2))
    assert [(offset, -1, key, value) for offset, _, key, value in seen] == without_time


@pytest.mark.jvm
def test_the_java_client_of_0_10(broker: Broker, topic: str) -> None:
    """Everything in one JVM: each codec written and read in a group, and batches of today read."""
    words: list[str] = []
    for codec in CODECS:
        create_topic(broker, f"{topic}-new-{codec}")
        write_new(broker, f"{topic}-new-{codec}", codec)
        create_topic(broker, f"{topic}-{codec}")
        words += ["write", broker.bootstrap, f"{topic}-{codec}", codec, str(COUNT), str(NOON_MS)]
        for name in (f"{topic}-{codec}", f"{topic}-new-{codec}"):
            words += ["read", broker.bootstrap, name, uuid.uuid4().hex, str(COUNT)]
    source = str(Path(__file__).with_name("OldClient.java"))
    printed = run_java(java_command(JAVA, source, words, [*QUICK_START, *QUIET]), timeout_s=90)
    lines = printed.stdout.splitlines()
    assert lines[-1] == "done"
    for codec in CODECS:
        assert read_new(broker, f"{topic}-{codec}") == EXPECTED
        for name in (f"{topic}-{codec}", f"{topic}-new-{codec}"):
            assert [line.removeprefix(f"{name} ") for line in lines if line.startswith(f"{name} ")] == [
                f"{offset} {time_ms} CreateTime {shown(key)} {shown(value)}" for offset, time_ms, key, value in EXPECTED
            ]


def shown(content: bytes | None) -> str:
    """As Java prints it."""
    return "null" if content is None else content.decode()
