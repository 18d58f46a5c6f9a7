"""A PLAINTEXT cluster becomes a SASL_SSL cluster under load, by the steps of docs/security.md.

Producers with acks=all run through every rolling restart. No write fails, and afterwards each acknowledged record is
there once.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from odradek.broker.registry import znodes
from odradek.broker_process import BrokerProcess
from odradek.cluster_process import CLUSTER_OVERRIDES, RegistryProcess, RegistryWatcher
from odradek.cluster_security import ClusterSecurity
from odradek.ports import free_port
from odradek.ready_process import HOST
from odradek.security import Security, allow
from odradek.security_admin import SecurityAdmin

pytestmark = pytest.mark.slow

IDS = (1, 2, 3)
LISTENERS = ["PLAINTEXT", "CLIENTS", "PEERS"]
TOPIC = "orders"
PARTITIONS = 3
TIMEOUT_S = 30.0
AUTHORIZER = ("authorizer.class.name", "super.users")


class Load:
    """A producer that writes numbers until the block ends, which waits for all acknowledgements."""

    def __init__(self, config: Mapping[str, Any], numbers: Iterator[int]) -> None:
        self._producer = Producer({**config, "acks": "all", "enable.idempotence": True, "linger.ms": 5})
        self._numbers = numbers
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.acknowledged: list[int] = []
        self.errors: list[object] = []

    def __enter__(self) -> Load:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()
        assert self._producer.flush(TIMEOUT_S) == 0

    def _run(self) -> None:
        while not self._stop.is_set():
            self._producer.produce(TOPIC, str(next(self._numbers)).encode(), on_delivery=self._delivered)
            self._producer.poll(0.002)

    def _delivered(self, error: object, message: Message) -> None:
        if error is not None:
            self.errors.append(error)
        else:
            self.acknowledged.append(int(message.value() or b""))


class Cluster:
    """Three brokers whose properties change from one rolling restart to the next."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.security = ClusterSecurity(
            folder / "security", Security("tls+scram", users=["shop", "billing"]), TIMEOUT_S
        )
        self._registry = RegistryProcess(folder, tick_ms=300)
        self._watcher = RegistryWatcher(lambda: f"{HOST}:{self._registry.port}", TIMEOUT_S)
        self._ports = {
            (broker_id, name): free_port(HOST) for broker_id in IDS for name in ("PLAINTEXT", "CLIENTS", "PEERS")
        }
        self._brokers: dict[int, BrokerProcess] = {}

    def start(self) -> None:
        self._registry.start()
        for broker_id in IDS:
            self._brokers[broker_id] = self._broker(broker_id, {}, ["PLAINTEXT"], "PLAINTEXT")
            self._brokers[broker_id].start()

    def roll(self, properties: Mapping[str, str], listeners: list[str], between_brokers: str) -> None:
        """Restart one broker after the other; each is in sync again before the next."""
        for broker_id in IDS:
            self._brokers[broker_id].stop()
            own = {**self._security_properties(broker_id), **properties}
            self._brokers[broker_id] = self._broker(broker_id, own, listeners, between_brokers)
            self._brokers[broker_id].start()
            self.await_in_sync()

    def await_in_sync(self) -> None:
        for partition in range(PARTITIONS):
            path = znodes.partition_state_path(TOPIC, partition)
            self._watcher.until(
                path, znodes.PartitionState.decode, lambda state: set(state.isr) == set(IDS), "in sync", TIMEOUT_S
            )

    def bootstrap(self, listener: str) -> str:
        return ",".join(f"{HOST}:{self._ports[broker_id, listener]}" for broker_id in IDS)

    def admin(self) -> SecurityAdmin:
        return SecurityAdmin([partial(self.security.admin, self._ports[each, "PEERS"]) for each in IDS], TIMEOUT_S)

    def close(self) -> None:
        for broker in self._brokers.values():
            broker.discard()
        self._watcher.close()
        self._registry.discard()
        self.security.close()

    def _security_properties(self, broker_id: int) -> dict[str, str]:
        """Without the authorizer, which is a step of its own."""
        properties = self.security.broker_properties(broker_id)
        return {name: value for name, value in properties.items() if name not in AUTHORIZER}

    def _broker(
        self, broker_id: int, properties: Mapping[str, str], listeners: list[str], between_brokers: str
    ) -> BrokerProcess:
        addresses = ",".join(f"{name}://{HOST}:{self._ports[broker_id, name]}" for name in listeners)
        overrides = {
            **CLUSTER_OVERRIDES,
            "broker.id": str(broker_id),
            "zookeeper.connect": f"{HOST}:{self._registry.port}",
            "listeners": addresses,
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CLIENTS:SASL_SSL,PEERS:SSL",
            "inter.broker.listener.name": between_brokers,
            "offsets.topic.replication.factor": "3",
            "min.insync.replicas": "2",
            "auto.create.topics.enable": "false",
            **properties,
        }
        return BrokerProcess(self._folder / str(broker_id), overrides, timeout_s=TIMEOUT_S)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with contextlib.closing(Cluster(tmp_path)) as made:
        made.start()
        admin = AdminClient({"bootstrap.servers": made.bootstrap("PLAINTEXT")})
        admin.create_topics([NewTopic(TOPIC, PARTITIONS, len(IDS))])[TOPIC].result(TIMEOUT_S)
        made.await_in_sync()
        yield made


def test_a_running_cluster_is_secured_without_downtime(cluster: Cluster) -> None:
    security, numbers = cluster.security, itertools.count()
    shop = security.client_config(cluster.bootstrap("CLIENTS"), "shop", "confluent-kafka")
    billing = security.client_config(cluster.bootstrap("CLIENTS"), "billing", "confluent-kafka")
    authorizer = {name: security.broker_properties(1)[name] for name in AUTHORIZER}
    with Load({"bootstrap.servers": cluster.bootstrap("PLAINTEXT")}, numbers) as before:
        cluster.roll({}, LISTENERS, "PLAINTEXT")  # step 1
        with pytest.raises(KafkaException):  # the user does not exist yet
            AdminClient(security.client_config(cluster.bootstrap("CLIENTS"), "shop", "confluent-kafka")).list_topics(
                timeout=2
            )
        clients = [partial(security.client_wire, port) for port in _ports(cluster.bootstrap("CLIENTS"))]
        cluster.admin().create_scram_users(security.security.passwords, security.security.mechanisms, clients)
        cluster.roll({}, LISTENERS, "PEERS")  # step 2
    with Load(shop, numbers) as after:
        cluster.roll({**authorizer, "allow.everyone.if.no.acl.found": "true"}, LISTENERS, "PEERS")  # step 3
        rules = [*allow("shop", write=TOPIC, describe=TOPIC), *allow("billing", read=TOPIC, group="billing")]
        cluster.admin().add_acls(rules)
        cluster.roll(authorizer, ["CLIENTS", "PEERS"], "PEERS")  # step 4
    assert before.errors == after.errors == []
    assert min(len(before.acknowledged), len(after.acknowledged)) > 100
    assert _read(billing, next(numbers)) == sorted(before.acknowledged + after.acknowledged)
    with pytest.raises(KafkaException):
        AdminClient({"bootstrap.servers": cluster.bootstrap("PLAINTEXT")}).list_topics(timeout=2)


def _ports(bootstrap: str) -> list[int]:
    return [int(address.rpartition(":")[2]) for address in bootstrap.split(",")]


def _read(config: Mapping[str, Any], count: int) -> list[int]:
    """All records of the topic, which are `count`, and none more."""
    consumer = Consumer({**config, "group.id": "billing", "auto.offset.reset": "earliest"})
    with contextlib.closing(consumer):
        consumer.subscribe([TOPIC])
        found: list[int] = []
        while len(found) < count:
            messages = consumer.consume(1000, timeout=TIMEOUT_S if not found else 20)
            assert messages, f"{len(found)} of {count} records"
            assert [message.error() for message in messages] == [None] * len(messages)
            found += [int(message.value() or b"") for message in messages]
        found += [int(message.value() or b"") for message in consumer.consume(1, timeout=1)]
    return sorted(found)
