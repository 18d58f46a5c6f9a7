"""Three brokers whose only connections to each other are mutual TLS."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from kazoo.client import KazooClient

from odradek.broker.registry import znodes
from odradek.broker_process import BrokerProcess
from odradek.cluster_process import RegistryProcess
from odradek.ports import free_port
from odradek.ready_process import OWN_COMMAND
from tests.security.tls_broker import HOST, Files
from tests.support.eventually import eventually

BROKERS = (1, 2, 3)
pytestmark = pytest.mark.slow


class TlsCluster:
    """Brokers with one listener each, for clients and brokers alike."""

    def __init__(self, folder: Path, protocol: dict[str, str]) -> None:
        self.files = Files(folder)
        self.files.issue("client")
        self.registry = RegistryProcess(folder, tick_ms=1000)
        self.registry.start()
        self.ports = {broker_id: free_port() for broker_id in BROKERS}
        self.brokers = {broker_id: self._broker(folder, broker_id, protocol) for broker_id in BROKERS}

    def _broker(self, folder: Path, broker_id: int, protocol: dict[str, str]) -> BrokerProcess:
        self.files.issue(f"broker-{broker_id}", HOST)
        return BrokerProcess(
            folder / str(broker_id),
            {
                "broker.id": str(broker_id),
                "zookeeper.connect": f"{HOST}:{self.registry.port}",
                "listeners": f"CLUSTER://{HOST}:{self.ports[broker_id]}",
                "listener.security.protocol.map": "CLUSTER:SSL",
                "inter.broker.listener.name": "CLUSTER",
                "ssl.client.auth": "required",
                "offsets.topic.replication.factor": "3",
                "min.insync.replicas": "2",
                "replica.lag.time.max.ms": "2000",
                "zookeeper.session.timeout.ms": "3000",
                **self.files.stores(f"broker-{broker_id}"),
                **protocol,
            },
        )

    @property
    def config(self) -> dict[str, Any]:
        bootstrap = ",".join(f"{HOST}:{port}" for port in self.ports.values())
        return {"bootstrap.servers": bootstrap, **self.files.librdkafka("client")}

    def close(self) -> None:
        for broker in self.brokers.values():
            if broker.running:
                broker.kill()
            broker.close()
        self.registry.close()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TlsCluster]:
    made = TlsCluster(tmp_path_factory.mktemp("tls-cluster"), {})
    try:
        for broker in made.brokers.values():
            broker.start()
        yield made
    finally:
        made.close()


def _leader(admin: AdminClient, topic: str) -> int:
    return int(admin.list_topics(topic, timeout=20).topics[topic].partitions[0].leader)


def _in_sync(admin: AdminClient, topic: str) -> int:
    partitions = admin.list_topics(topic, timeout=20).topics[topic].partitions
    return len(partitions[0].isrs) if partitions else 0


def _produce(cluster: TlsCluster, topic: str, values: list[bytes]) -> None:
    failed: list[Any] = []
    producer = Producer({**cluster.config, "acks": "all", "enable.idempotence": True})
    for value in values:
        producer.produce(topic, value, on_delivery=lambda error, _: failed.append(error) if error else None)
    assert producer.flush(60) == 0
    assert not failed


def test_records_are_replicated_and_survive_their_leader(cluster: TlsCluster) -> None:
    admin = AdminClient(cluster.config)
    eventually(lambda: len(admin.list_topics(timeout=20).brokers), lambda count: count == len(BROKERS))
    admin.create_topics([NewTopic("orders", 1, 3)])["orders"].result(30)
    eventually(lambda: _in_sync(admin, "orders"), lambda count: count == 3)
    first, second = [b"first %d" % n for n in range(100)], [b"second %d" % n for n in range(100)]
    _produce(cluster, "orders", first)
    leader = _leader(admin, "orders")
    cluster.brokers[leader].kill()
    eventually(lambda: _leader(admin, "orders"), lambda found: found not in (leader, -1))
    _produce(cluster, "orders", second)
    cluster.brokers[leader].start()
    eventually(lambda: _in_sync(admin, "orders"), lambda count: count == 3)
    consumer = Consumer({**cluster.config, "group.id": "readers", "auto.offset.reset": "earliest"})
    consumer.subscribe(["orders"])
    received: list[bytes] = []
    eventually(
        lambda: received.extend(message.value() for message in consumer.consume(100, 0.2) if not message.error()),
        lambda _: len(received) >= 200,
    )
    consumer.close()
    assert received == first + second


def test_the_registration_has_the_protocol(cluster: TlsCluster) -> None:
    client = KazooClient(f"{HOST}:{cluster.registry.port}")
    client.start(timeout=20)
    try:
        node = json.loads(client.get(znodes.broker_path(2))[0])
    finally:
        client.stop()
        client.close()
    assert node["listener_security_protocol_map"] == {"CLUSTER": "SSL"}
    assert node["endpoints"] == [f"CLUSTER://{HOST}:{cluster.ports[2]}"]
    assert (node["host"], node["port"]) == (None, -1)


def test_a_broker_without_a_trusted_certificate_takes_no_part(cluster: TlsCluster, tmp_path: Path) -> None:
    strangers = Files(tmp_path)
    strangers.issue("broker-4", HOST)
    properties = {
        "broker.id": "4",
        "log.dirs": str(tmp_path / "4"),
        "zookeeper.connect": f"{HOST}:{cluster.registry.port}",
        "listeners": f"CLUSTER://{HOST}:{free_port()}",
        "listener.security.protocol.map": "CLUSTER:SSL",
        "inter.broker.listener.name": "CLUSTER",
        "ssl.client.auth": "required",
        **strangers.stores("broker-4"),
    }
    overrides = [f"--override={name}={value}" for name, value in properties.items()]
    with subprocess.Popen([*OWN_COMMAND, "broker", *overrides], stdout=subprocess.DEVNULL) as stranger:
        try:
            admin = AdminClient(cluster.config)
            controller = int(admin.describe_cluster().result(20).controller.id)
            eventually(lambda: "CERTIFICATE_VERIFY_FAILED" in cluster.brokers[controller].output)
        finally:
            stranger.kill()
