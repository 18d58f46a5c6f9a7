"""Stock tools set quotas, and stock clients measure them, on Odradek and on Apache Kafka 3.9.2 at the same time."""

from __future__ import annotations

import socket
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
from odradek.protocol import messages as m
from odradek.protocol.errors import ErrorCode
from odradek.wire import Wire, parse_address
from tests.broker.wire import fetch_request
from tests.jvm.kafka import Kafka
from tests.jvm.tools import run_tool
from tests.quota.shares import check

pytestmark = [pytest.mark.jvm, pytest.mark.slow]

BYTE_RATE = 200_000
CONNECTION_RATE = 20
MUTATION_RATE = 5
ADDRESS = "127.0.0.3"
"""Of the client whose address has a quota."""
DEMAND = 1.2
"""Clients demand so many times their quota. One that takes all it can gets what ten windows allow at once, again and
again, and each time later on a busy machine: a measured time has one burst more or less than the quota."""
BEFORE_S = 11.0
MEASURED_S = 22.0
"""Eleven windows of a second count, so what the quota allows repeats after so many seconds; twice that."""
VALUE = bytes(4000)
LARGEST_BATCH = 16_384
FETCH_VERSION = 11
CREATE_VERSION = 7
DELETE_VERSION = 5
MUTATED_PARTITIONS = 2
TIMEOUT_S = 30.0
API_VERSIONS = bytes.fromhex("0000000a00120000000000010000")
"""An ApiVersions request in version 0 with an empty client id."""


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

    def __init__(self, per_second: float) -> None:
        """`per_second` is the quota of the client, which demands DEMAND times as much."""
        self.started_s = time.monotonic()
        self._per_second = per_second * DEMAND
        self._due_s = self.started_s
        self._before: int | None = None
        self.size = 0

    def wait(self, size: int) -> None:
        """Wait until the client demands so many bytes more. Up to five seconds that it was late are made up for."""
        now_s = time.monotonic()
        self._due_s = max(self._due_s, now_s - 5) + size / self._per_second
        if self._due_s > now_s:
            threading.Event().wait(self._due_s - now_s)  # the demand is one for each time, so no event ends it

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
    """The bytes a second of values that a producer gets acknowledged while it has more of them."""
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

    measure = Measure(BYTE_RATE)
    while measure.goes_on(acknowledged):
        try:
            producer.produce("written", VALUE, on_delivery=delivered)
            measure.wait(len(VALUE))
        except BufferError:
            producer.poll(0.01)
        producer.poll(0)
    producer.purge()
    producer.flush(TIMEOUT_S)
    return measure.size / MEASURED_S


def consumed_per_second(bootstrap: str) -> float:
    """The bytes a second of batches that a consumer gets; the broker makes it wait."""
    host, port = parse_address(bootstrap)
    measure, size = Measure(BYTE_RATE), 0
    request = fetch_request("read", 0, max_wait_ms=500, partition_max_bytes=LARGEST_BATCH)
    with Wire(host, port, timeout_s=TIMEOUT_S, client_id="reader") as wire:
        while measure.goes_on(size):
            for topic in wire.ask(request, FETCH_VERSION).responses:
                read = sum(len(each.records or b"") for each in topic.partitions)
                measure.wait(read)
                size += read
    return measure.size / MEASURED_S


def accepted(address: tuple[str, int], source: str) -> bool:
    """Whether a connection from an address is served; a broker closes one over the quota without an answer."""
    try:
        with socket.create_connection(address, TIMEOUT_S, (source, 0)) as opened:
            opened.sendall(API_VERSIONS)
            return bool(opened.recv(4))
    except ConnectionError:
        return False


def connected_per_second(bootstrap: str, source: str) -> float:
    """The connections a second that an address has while it opens more of them."""
    address = parse_address(bootstrap)
    measure, count = Measure(CONNECTION_RATE), 0
    while measure.goes_on(count):
        measure.wait(1)
        count += accepted(address, source)
    return measure.size / MEASURED_S


def mutated_per_second(bootstrap: str) -> float:
    """The partitions a second that a client creates and deletes. It has no own limit: what the quota allows at once, it
    allows one time only.
    """
    host, port = parse_address(bootstrap)
    create, delete = m.CreateTopicsRequest, m.DeleteTopicsRequest
    measure, count, number = Measure(MUTATION_RATE), 0, 0
    with Wire(host, port, timeout_s=TIMEOUT_S, client_id="mutator") as wire:
        while measure.goes_on(count):
            name = f"mutated-{number // 2}"
            if number % 2:
                answer = wire.ask(delete(topic_names=[name], timeout_ms=20_000), DELETE_VERSION)
                error = answer.responses[0].error_code
            else:
                topic = create.CreatableTopic(name=name, num_partitions=MUTATED_PARTITIONS, replication_factor=1)
                answer = wire.ask(create(topics=[topic], timeout_ms=20_000), CREATE_VERSION)
                error = answer.topics[0].error_code
            if error == ErrorCode.THROTTLING_QUOTA_EXCEEDED:
                threading.Event().wait(answer.throttle_time_ms / 1000)  # as Kafka's clients do
                continue
            assert error == ErrorCode.NONE, answer
            count += MUTATED_PARTITIONS
            number += 1
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


def measured(measures: dict[str, Callable[[str], float]], both: dict[str, str]) -> dict[tuple[str, str], float]:
    """The results of all measures on both brokers, at the same time."""
    cases = [(name, side) for name in measures for side in both]
    begin = threading.Barrier(len(cases))

    def measure(name: str, side: str) -> float:
        begin.wait(TIMEOUT_S)
        return measures[name](both[side])

    with ThreadPoolExecutor(len(cases)) as threads:
        running = {case: threads.submit(measure, *case) for case in cases}
        return {case: each.result(120) for case, each in running.items()}


QUOTAS: dict[str, tuple[tuple[str, ...], str, float]] = {
    "produce": (("--entity-type", "clients", "--entity-name", "writer"), "producer_byte_rate", BYTE_RATE),
    "fetch": (("--entity-type", "clients", "--entity-name", "reader"), "consumer_byte_rate", BYTE_RATE),
    "mutate": (("--entity-type", "clients", "--entity-name", "mutator"), "controller_mutation_rate", MUTATION_RATE),
    "connect": (("--entity-type", "ips", "--entity-name", ADDRESS), "connection_creation_rate", CONNECTION_RATE),
}
"""The entity of each quota, its name and its value."""


def test_measured_rates_are_within_five_percent_of_the_quota(tmp_path: Path, kafka: Kafka) -> None:
    measures: dict[str, Callable[[str], float]] = {
        "produce": produced_per_second,
        "fetch": consumed_per_second,
        "mutate": mutated_per_second,
        "connect": lambda bootstrap: connected_per_second(bootstrap, ADDRESS),
    }
    with brokers(tmp_path, kafka) as both:
        for bootstrap in both.values():
            fill(bootstrap)
            for entity, quota, value in QUOTAS.values():
                configure(bootstrap, *entity, "--add-config", f"{quota}={value}")
        rates = measured(measures, both)
        for entity, quota, _ in QUOTAS.values():
            configure(both["kafka"], *entity, "--delete-config", quota)
    check(rates, {name: value for name, (_, _, value) in QUOTAS.items()})


LIMITS = {
    "broker": (("--entity-type", "brokers", "--entity-default"), "max.connection.creation.rate"),
    "listener": (
        ("--entity-type", "brokers", "--entity-name", "0"),
        "listener.name.plaintext.max.connection.creation.rate",
    ),
}
"""Whose limit it is: the entity, and the property."""


@pytest.mark.parametrize("of", LIMITS)
def test_the_measured_rate_of_connections_is_within_five_percent_of_the_limit(
    tmp_path: Path, kafka: Kafka, of: str
) -> None:
    entity, limit = LIMITS[of]
    measures = {"connect": lambda bootstrap: connected_per_second(bootstrap, "127.0.0.1")}
    with brokers(tmp_path, kafka) as both:
        for bootstrap in both.values():
            configure(bootstrap, *entity, "--add-config", f"{limit}={CONNECTION_RATE}")
        rates = measured(measures, both)
        configure(both["kafka"], *entity, "--delete-config", limit)
    # Beside four workers Kafka has accepted 0.72 of the connections that its limit allows.
    check(rates, {"connect": CONNECTION_RATE}, kafkas_least=0.5)
