"""The clients through faults: a killed leader, sessions that end, and a login that the broker rejects."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, KafkaError
from confluent_kafka import TopicPartition as Position
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from odradek.broker_process import BrokerProcess
from odradek.pytest_plugin import ClusterFactory
from odradek.security import Security
from odradek.streams.clients.consumer import FetchConsumer
from odradek.streams.clients.producer import BatchProducer
from odradek.streams.clients.properties import consumer_settings, producer_settings
from tests.streams import counting
from tests.support.eventually import eventually

pytestmark = pytest.mark.slow
TIMEOUT_S = 60.0
TOPIC = "numbers"
SESSION_MS = 1_500
OVER_A_SESSION_S = 2.0
ALICE = Security("tls+scram+plain+oauth", users={"alice": "alice-secret"})


def clients(properties: dict[str, Any], failed: list[Any]) -> tuple[BatchProducer, FetchConsumer]:
    written = producer_settings({**properties, "linger.ms": 1})
    read = consumer_settings({**properties, "auto.offset.reset": "error", "fetch.wait.max.ms": 50})
    return BatchProducer(written, lambda *about: failed.append(about)), FetchConsumer(read)


def write(producer: BatchProducer, numbers: Iterator[int], partitions: int, most: int = 10) -> None:
    for number in (next(numbers) for _ in range(most)):
        producer.produce(TOPIC, b"%d" % number, None, number % partitions, None, None, 0, None)
    producer.poll(0)


def read_all(consumer: FetchConsumer, found: dict[int, list[int]]) -> int:
    for message in consumer.consume(1000, 0.01):
        assert message.error() is None, message.error()
        found[message.partition()].append(int(message.value()))
    return sum(map(len, found.values()))


def test_killed_leaders_cost_no_record_and_no_order(odradek_cluster: ClusterFactory) -> None:
    cluster = odradek_cluster(3, {"default.replication.factor": "3"}, min_insync_replicas=2)
    counting.make_topics(cluster.bootstrap_servers, {TOPIC: 2})
    cluster.await_topic(TOPIC)
    failed: list[Any] = []
    numbers = count()
    found: dict[int, list[int]] = {0: [], 1: []}
    producer, consumer = clients({"bootstrap.servers": cluster.bootstrap_servers}, failed)

    def step() -> int:
        write(producer, numbers, 2)
        return read_all(consumer, found)

    with closing(producer), closing(consumer):
        consumer.incremental_assign([Position(TOPIC, partition, OFFSET_BEGINNING) for partition in found])
        for _ in range(2):
            eventually(step, lambda read: read > 100)
            leader = cluster.leader_of(TOPIC, 0)
            write(producer, numbers, 2, 1000)
            cluster.kill(leader)
            enough = read_all(consumer, found) + 1000
            eventually(step, enough.__lt__)
            cluster.restart(leader)
        assert producer.flush(TIMEOUT_S) == 0
        last = next(numbers)
        eventually(lambda: read_all(consumer, found) == last)
    assert not failed
    assert found == {partition: list(range(partition, last, 2)) for partition in found}


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    properties = {**counting.BROKER, "connections.max.reauth.ms": str(SESSION_MS)}
    folder: Path = tmp_path_factory.mktemp("secured")
    with BrokerProcess(folder, properties, security=ALICE) as running:
        new = NewTopic(TOPIC, 1, 1)
        admin = AdminClient(running.client_config("alice"))
        admin.create_topics([new])[TOPIC].result(TIMEOUT_S)
        yield running


@pytest.mark.parametrize("mechanism", ALICE.mechanisms)
def test_records_go_over_tls_in_sessions_that_are_renewed(secured: BrokerProcess, mechanism: str) -> None:
    failed: list[Any] = []
    found: dict[int, list[int]] = {0: []}
    producer, consumer = clients(secured.client_config("alice", mechanism=mechanism), failed)
    with closing(producer), closing(consumer):
        numbers = count()
        (_, end) = consumer.get_watermark_offsets(Position(TOPIC, 0), TIMEOUT_S) or (0, 0)
        consumer.incremental_assign([Position(TOPIC, 0, end)])
        until_s = time.monotonic() + (OVER_A_SESSION_S if mechanism == ALICE.mechanisms[0] else 0.1)
        while time.monotonic() < until_s:
            write(producer, numbers, 1, 1)
            read_all(consumer, found)
        assert producer.flush(TIMEOUT_S) == 0
        last = next(numbers)
        eventually(lambda: read_all(consumer, found) == last)
        assert all(link.connection._renewal_s for link in producer._network._links.values())
    assert not failed
    assert found == {0: list(range(last))}


def test_a_rejected_login_is_an_error(secured: BrokerProcess) -> None:
    properties = {**secured.client_config("alice"), "sasl.password": "wrong"}
    _, consumer = clients(properties, [])
    with closing(consumer):
        consumer.incremental_assign([Position(TOPIC, 0, 0)])
        (notice,) = consumer.consume(1, TIMEOUT_S)
    assert notice.error().code() == KafkaError._AUTHENTICATION
