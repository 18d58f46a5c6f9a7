"""Stock tools set quotas, and stock clients measure them, on Odradek and on Apache Kafka 3.9.2 at the same time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from odradek.broker_process import BrokerProcess
from odradek.wire import Wire, parse_address
from tests.broker.wire import fetch_request
from tests.jvm.kafka import Kafka
from tests.jvm.tools import run_tool

pytestmark = [pytest.mark.jvm, pytest.mark.slow]

BYTE_RATE = 200_000
BEFORE_S = 5.0
"""The bytes of ten windows are allowed at once; the client is throttled at this time after them."""
MEASURED_S = 22.5
"""Twice the time after which those ten windows do not count any more, and as many bytes are allowed again: the eleven
windows that count, and a part of the next one."""
TOLERANCE = 0.05
VALUE = bytes(4000)
LARGEST_BATCH = 16_384
FETCH_VERSION = 11
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


class Measure:
    """The bytes of a client within MEASURED_S, which begin BEFORE_S after its first ones."""

    def __init__(self, started_s: float) -> None:
        self.started_s = started_s
        self._before: int | None = None
        self.size = 0

    def goes_on(self, size: int) -> bool:
        """Whether the client has to go on; it has `size` bytes now."""
        passed_s = time.monotonic() - self.started_s - BEFORE_S
        if passed_s < 0:
            return True
        if self._before is None:
            self._before = size
        self.size = size - self._before
        return passed_s < MEASURED_S


def produced_per_second(bootstrap: str) -> float:
    """The bytes a second of values that a producer gets acknowledged while it always has more."""
    acknowledged = 0
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "client.id": "writer",
            "linger.ms": 5,
            "batch.size": LARGEST_BATCH,
            "queue.buffering.max.messages": 200,
            "socket.timeout.ms": 60_000,
        }
    )

    def delivered(error: object, message: object) -> None:
        nonlocal acknowledged
        acknowledged += len(VALUE) if error is None else 0

    measure = Measure(time.monotonic())
    while measure.goes_on(acknowledged):
        try:
            producer.produce("written", VALUE, on_delivery=delivered)
        except BufferError:
            producer.poll(0.01)
        producer.poll(0)
    producer.purge()
    producer.flush(TIMEOUT_S)
    return measure.size / MEASURED_S


def consumed_per_second(bootstrap: str) -> float:
    """The bytes a second of batches that a consumer gets that fetches again at once; the broker makes it wait."""
    host, port = parse_address(bootstrap)
    measure, size = Measure(time.monotonic()), 0
    request = fetch_request("read", 0, max_wait_ms=500, partition_max_bytes=LARGEST_BATCH)
    with Wire(host, port, timeout_s=TIMEOUT_S, client_id="reader") as wire:
        while measure.goes_on(size):
            for topic in wire.ask(request, FETCH_VERSION).responses:
                size += sum(len(each.records or b"") for each in topic.partitions)
    return measure.size / MEASURED_S


def fill(bootstrap: str) -> None:
    """Create the topics, one of them with a batch to fetch."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for created in admin.create_topics([NewTopic("read", 1), NewTopic("written", 1)]).values():
        created.result(TIMEOUT_S)
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 50, "batch.size": LARGEST_BATCH})
    for _ in range(3):
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
        # Kafka, which is not under test here, shows that the time is measured at the right moments.
        assert rate == pytest.approx(1, abs=TOLERANCE if side == "odradek" else 2 * TOLERANCE), (name, side, rates)
