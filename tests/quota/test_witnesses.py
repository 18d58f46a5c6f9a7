"""Stock tools set quotas, and stock clients measure them, on Odradek and on Apache Kafka 3.9.2 at the same time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from odradek.broker_process import BrokerProcess
from tests.jvm.kafka import Kafka
from tests.jvm.tools import run_tool

pytestmark = [pytest.mark.jvm, pytest.mark.slow]

BYTE_RATE = 200_000
MEASURED_S = 14.0
TOLERANCE = 0.05
VALUE = bytes(4000)
TIMEOUT_S = 30.0


@contextmanager
def brokers(folder: Path, kafka: Kafka) -> Iterator[dict[str, str]]:
    """The bootstrap addresses of both brokers."""
    odradek = BrokerProcess(folder / "odradek", {"offsets.topic.num.partitions": "4"})
    odradek.start()
    try:
        yield {"odradek": odradek.bootstrap, "kafka": kafka.bootstrap}
    finally:
        odradek.stop()


def configure(bootstrap: str, *arguments: str) -> None:
    """Run kafka-configs."""
    run_tool("3.9.2", "kafka-configs", ["--bootstrap-server", bootstrap, "--alter", *arguments])


def produced_per_second(bootstrap: str) -> float:
    """The bytes a second of values that a producer gets acknowledged while it always has more."""
    acknowledged = 0
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "client.id": "writer",
            "linger.ms": 5,
            "batch.size": 16_384,
            "queue.buffering.max.messages": 200,
            "socket.timeout.ms": 60_000,
        }
    )

    def delivered(error: object, message: object) -> None:
        nonlocal acknowledged
        acknowledged += len(VALUE) if error is None else 0

    started = time.monotonic()
    while time.monotonic() - started < MEASURED_S:
        try:
            producer.produce("written", VALUE, on_delivery=delivered)
        except BufferError:
            producer.poll(0.01)
        producer.poll(0)
    rate = acknowledged / (time.monotonic() - started)
    producer.purge()
    producer.flush(TIMEOUT_S)
    return rate


def consumed_per_second(bootstrap: str) -> float:
    """The bytes a second of values that a consumer gets."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "client.id": "reader",
            "group.id": "g",
            "auto.offset.reset": "earliest",
            "fetch.message.max.bytes": 50_000,
            "queued.min.messages": 100_000,
        }
    )
    consumer.subscribe(["read"])
    started, size = 0.0, 0
    while not started or time.monotonic() - started < MEASURED_S:
        message = consumer.poll(0.5)
        if message is not None:
            assert message.error() is None
            started = started or time.monotonic()
            size += len(message.value())
    rate = size / (time.monotonic() - started)
    consumer.close()
    return rate


def fill(bootstrap: str) -> None:
    """A topic with more than the consumer can read in its time."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for created in admin.create_topics([NewTopic("read", 1), NewTopic("written", 1)]).values():
        created.result(TIMEOUT_S)
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 20})
    for _ in range(int(2 * BYTE_RATE * MEASURED_S / len(VALUE))):
        producer.produce("read", VALUE)
    assert producer.flush(TIMEOUT_S) == 0


def test_measured_rates_are_within_five_percent_of_the_quota(tmp_path: Path, kafka: Kafka) -> None:
    measures: dict[str, Callable[[str], float]] = {"produce": produced_per_second, "fetch": consumed_per_second}
    with brokers(tmp_path, kafka) as both, ThreadPoolExecutor(4) as threads:
        for bootstrap in both.values():
            fill(bootstrap)
            for client_id, quota in (("writer", "producer_byte_rate"), ("reader", "consumer_byte_rate")):
                entity = ("--entity-type", "clients", "--entity-name", client_id)
                configure(bootstrap, *entity, "--add-config", f"{quota}={BYTE_RATE}")
        begin = threading.Barrier(4)

        def measure(name: str, side: str) -> float:
            begin.wait(TIMEOUT_S)
            return measures[name](both[side])

        running = {(name, side): threads.submit(measure, name, side) for name in measures for side in both}
        rates = {case: each.result(120) / BYTE_RATE for case, each in running.items()}
        for client_id, quota in (("writer", "producer_byte_rate"), ("reader", "consumer_byte_rate")):
            entity = ("--entity-type", "clients", "--entity-name", client_id)
            configure(both["kafka"], *entity, "--delete-config", quota)
    print("\n".join(f"{name} {side} {rate:.3f} of the quota" for (name, side), rate in sorted(rates.items())))
    for (name, side), rate in rates.items():
        assert rate == pytest.approx(1, abs=TOLERANCE), (name, side, rates)
