"""A broker of Odradek and one of Apache Kafka 3.9.2 in one cluster: mutual TLS is their only way to each other."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from odradek.broker_process import BrokerProcess
from odradek.ports import free_port
from tests.jvm.kafka import Kafka
from tests.jvm.tools import run_tool
from tests.registry.zookeeper_server import ZooKeeperServer
from tests.security.tls_broker import HOST, Files
from tests.support.eventually import eventually

pytestmark = [pytest.mark.jvm, pytest.mark.slow]
OURS, KAFKA = 1, 2


class Mixed(NamedTuple):
    """The ports of both brokers for clients."""

    ports: dict[int, int]

    @property
    def config(self) -> dict[str, Any]:
        return {"bootstrap.servers": ",".join(f"{HOST}:{port}" for port in self.ports.values())}


def _properties(files: Files, broker_id: int, port: int) -> dict[str, str]:
    files.issue(f"broker-{broker_id}", HOST)
    address = f"CLIENTS://{HOST}:{port},PEERS://{HOST}:{free_port()}"
    return {
        "broker.id": str(broker_id),
        "listeners": address,
        "advertised.listeners": address,
        "listener.security.protocol.map": "CLIENTS:PLAINTEXT,PEERS:SSL",
        "inter.broker.listener.name": "PEERS",
        "listener.name.peers.ssl.client.auth": "required",
        "zookeeper.session.timeout.ms": "6000",
        **files.stores(f"broker-{broker_id}"),
    }


@pytest.fixture(scope="module", params=["odradek", "kafka"])
def mixed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mixed]:
    """The broker that is named starts first, and is the controller."""
    folder = tmp_path_factory.mktemp("mixed")
    files, ports = Files(folder), {OURS: free_port(), KAFKA: free_port()}
    zookeeper = ZooKeeperServer(folder, folder / "zookeeper")
    zookeeper.start()
    connect = zookeeper.connect
    kafka = Kafka(folder / "kafka", _properties(files, KAFKA, ports[KAFKA]), zookeeper=connect)
    kafka.port = ports[KAFKA]
    ours = BrokerProcess(folder / "ours", {**_properties(files, OURS, ports[OURS]), "zookeeper.connect": connect})
    try:
        for broker in (ours, kafka) if request.param == "odradek" else (kafka, ours):
            broker.start()
        yield Mixed(ports)
    finally:
        ours.kill()
        ours.close()
        kafka.close()
        zookeeper.stop()


@pytest.mark.parametrize("leader", [OURS, KAFKA])
def test_each_replicates_what_the_other_leads(mixed: Mixed, leader: int) -> None:
    topic = f"led-by-{leader}"
    create = ["--create", "--topic", topic, "--replica-assignment", f"{leader}:{OURS + KAFKA - leader}"]
    run_tool("3.9.2", "kafka-topics", ["--bootstrap-server", mixed.config["bootstrap.servers"], *create])
    admin = AdminClient(mixed.config)
    eventually(lambda: _in_sync(admin, topic), lambda count: count == 2)
    producer = Producer({**mixed.config, "acks": "all"})
    failed: list[Any] = []
    values = [b"value %d" % number for number in range(200)]
    for value in values:
        producer.produce(topic, value, on_delivery=lambda error, _: failed.append(error) if error else None)
    assert producer.flush(60) == 0
    assert not failed
    assert _in_sync(admin, topic) == 2
    consumer = Consumer({**mixed.config, "group.id": topic})
    consumer.assign([TopicPartition(topic, 0, 0)])
    received: list[bytes] = []
    eventually(
        lambda: received.extend(message.value() for message in consumer.consume(200, 0.2)),
        lambda _: len(received) >= len(values),
    )
    consumer.close()
    assert received == values


def _in_sync(admin: AdminClient, topic: str) -> int:
    found = admin.list_topics(topic, timeout=20).topics[topic].partitions
    return len(found[0].isrs) if found else 0
