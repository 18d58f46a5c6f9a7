"""Python's clients write to three brokers while the leader is killed: every acknowledged record is there, in order."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import pytest
from aiokafka import AIOKafkaProducer
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from kafka import KafkaProducer

from odradek.cluster_process import ClusterProcess

pytestmark = pytest.mark.slow

BEFORE: Final = 300
AFTER: Final = 300
TIMEOUT_S: Final = 60.0


@pytest.fixture(scope="module")
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterProcess]:
    if request.config.getoption("--broker") == "kafka":
        pytest.skip("there is a cluster of Odradek only")
    with ClusterProcess(tmp_path_factory.mktemp("failover"), 3, {"min.insync.replicas": "2"}) as running:
        yield running


class Writing:
    """Counts the acknowledged records, and notifies when a leader's death comes in the middle."""

    def __init__(self) -> None:
        self.acknowledged: list[tuple[int, int]] = []  # offset, number
        self.under_way = threading.Event()
        self.one_is_dead = threading.Event()

    def done(self, number: int, offset: int) -> None:
        self.acknowledged.append((offset, number))
        if len(self.acknowledged) >= BEFORE:
            self.under_way.set()

    def goes_on(self, number: int) -> bool:
        """Until a broker is dead, and some records more."""
        if not self.one_is_dead.is_set():
            self._last = number + AFTER
        return number < self._last


def with_confluent(bootstrap: str, topic: str, writing: Writing) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "reconnect.backoff.max.ms": 200})

    def remember(number: int) -> Callable[[KafkaError | None, Message], None]:
        def delivered(error: KafkaError | None, message: Message) -> None:
            offset = message.offset()
            assert error is None, error
            assert offset is not None
            writing.done(number, offset)

        return delivered

    number = 0
    while writing.goes_on(number):
        producer.produce(topic, str(number).encode(), partition=0, on_delivery=remember(number))
        producer.poll(0.001)
        number += 1
    assert producer.flush(TIMEOUT_S) == 0


def with_kafka_python(bootstrap: str, topic: str, writing: Writing) -> None:
    producer = KafkaProducer(bootstrap_servers=bootstrap, enable_idempotence=True, reconnect_backoff_max_ms=200)
    number = 0
    while writing.goes_on(number):
        sent = [producer.send(topic, str(each).encode(), partition=0) for each in range(number, number + 20)]
        for delivery in sent:
            writing.done(number, delivery.get(TIMEOUT_S).offset)
            number += 1
    producer.close()


def with_aiokafka(bootstrap: str, topic: str, writing: Writing) -> None:
    async def write() -> None:
        async with AIOKafkaProducer(bootstrap_servers=bootstrap, enable_idempotence=True) as producer:
            number = 0
            while writing.goes_on(number):
                sent = [
                    await producer.send(topic, str(each).encode(), partition=0) for each in range(number, number + 20)
                ]
                for delivery in sent:
                    writing.done(number, (await delivery).offset)
                    number += 1

    asyncio.run(write())


@pytest.mark.parametrize("write", [with_confluent, with_kafka_python, with_aiokafka])
def test_acknowledged_records_outlive_the_leader(
    cluster: ClusterProcess, topic: str, write: Callable[[str, str, Writing], None]
) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    admin.create_topics([NewTopic(topic, num_partitions=1, replication_factor=3)])[topic].result(TIMEOUT_S)
    cluster.await_topic(topic)
    writing = Writing()
    with ThreadPoolExecutor(1) as pool:
        written = pool.submit(write, cluster.bootstrap_servers, topic, writing)
        try:
            assert writing.under_way.wait(TIMEOUT_S)
            leader = cluster.await_leader(topic, 0)
            cluster.kill(leader)
            cluster.await_leader(topic, 0, other_than=leader)
        finally:
            writing.one_is_dead.set()
        written.result(TIMEOUT_S)
    cluster.restart(leader)
    cluster.await_isr(topic, 0, {1, 2, 3})

    total = len(writing.acknowledged)
    assert total >= BEFORE + AFTER
    lines = read(cluster, topic, total)
    assert lines == list(range(total))
    assert all(lines[offset] == number for offset, number in writing.acknowledged if offset >= 0)


def read(cluster: ClusterProcess, topic: str, count: int) -> list[int]:
    """All records of the topic, of which `count` have to be there."""
    settings = {"group.id": "reader", "enable.auto.commit": False, "enable.partition.eof": True}
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap_servers, **settings})
    lines: list[int] = []
    at_end = False
    deadline = time.monotonic() + TIMEOUT_S
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        while len(lines) < count or not at_end:
            assert time.monotonic() < deadline, f"{len(lines)} of {count} records arrived"
            for message in consumer.consume(1000, timeout=0.2):
                error, value = message.error(), message.value()
                at_end = error is not None and error.code() == KafkaError._PARTITION_EOF
                if error is None:
                    assert isinstance(value, bytes)
                    lines.append(int(value))
    finally:
        consumer.close()
    return lines
