"""Every znode that Apache Kafka 3.9.2 writes is decoded and encoded again, and must be the same bytes."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)
from kazoo.client import KazooClient

from odradek.broker.registry import znodes
from tests.jvm.kafka import running_kafka
from tests.jvm.tools import run_tool

pytestmark = [pytest.mark.jvm, pytest.mark.slow]

Again = Callable[[bytes], bytes]

# How each node with data is read and written again. A node with data that matches none of these fails the test.
CODECS: list[tuple[str, Again]] = [
    (r"/brokers/ids/0", lambda data: znodes.BrokerRegistration.decode(data).encode()),
    (r"/brokers/topics/[^/]+", lambda data: znodes.TopicAssignment.decode(data).encode()),
    (r"/brokers/topics/[^/]+/partitions/\d+/state", lambda data: znodes.PartitionState.decode(data).encode()),
    (r"/controller", lambda data: znodes.ControllerZNode.decode(data).encode()),
    (r"/controller_epoch", lambda data: znodes.encode_controller_epoch(znodes.decode_controller_epoch(data))),
    (r"/cluster/id", lambda data: znodes.encode_cluster_id(znodes.decode_cluster_id(data))),
    (r"/feature", lambda data: znodes.FinalizedFeatures.decode(data).encode()),
    (r"/latest_producer_id_block", lambda data: znodes.ProducerIdBlock.decode(data).encode()),
    (
        r"/config/changes/config_change_\d{10}",
        lambda data: znodes.encode_config_change(znodes.decode_config_change(data)),
    ),
    (r"/config/(?!changes/).+", lambda data: znodes.encode_config(znodes.decode_config(data))),
    (r"/kafka-acl/\w+/.+", lambda data: znodes.encode_acls(znodes.decode_acls(data))),
    (r"/kafka-acl-extended/prefixed/\w+/.+", lambda data: znodes.encode_acls(znodes.decode_acls(data))),
    (r"/kafka-acl-changes/acl_changes_\d{10}", lambda data: znodes.AclChange.decode_literal(data).encode()),
    (r"/kafka-acl-extended-changes/acl_changes_\d{10}", lambda data: znodes.AclChange.decode_extended(data).encode()),
]


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, bytes | None]]:
    """Paths and data in the ZooKeeper of a Kafka after many kinds of requests."""
    folder: Path = tmp_path_factory.mktemp("kafka")
    properties = {
        "broker.rack": "r1",
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        "super.users": "User:ANONYMOUS",
    }
    with running_kafka(folder, properties) as kafka:
        _use(kafka.bootstrap)
        client = KazooClient(kafka.zookeeper_connect)
        client.start()
        try:
            yield dict(_walk(client, ""))
        finally:
            client.stop()
            client.close()


def _use(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    many = {"retention.ms": "1000", "cleanup.policy": "compact,delete", "max.message.bytes": "5000"}
    many |= {f"segment.{name}": "1048576" for name in ("bytes", "ms", "jitter.ms", "index.bytes")}
    many |= {"flush.ms": "5", "flush.messages": "7", "index.interval.bytes": "99", "compression.type": "lz4"}
    many |= {"delete.retention.ms": "8", "min.insync.replicas": "1", "file.delete.delay.ms": "3"}
    _done(
        admin.create_topics(
            [
                NewTopic("few", 2),
                NewTopic("twelve", 12, config=many),
                NewTopic("many", 60),
            ]
        )
    )
    _done(admin.create_acls([_acl("few", "LITERAL"), _acl("pre", "PREFIXED")]))
    broker = ConfigResource(
        ConfigResource.Type.BROKER,
        "0",
        incremental_configs=[ConfigEntry("log.cleaner.threads", "2", incremental_operation=AlterConfigOpType.SET)],
    )
    _done(admin.incremental_alter_configs([broker]))
    for entity in (
        ["--entity-type", "users", "--entity-name", "al ice*~/ü", "--entity-type", "clients", "--entity-name", "c1"],
        ["--entity-type", "clients", "--entity-default"],
    ):
        change = ["--bootstrap-server", bootstrap, "--alter", *entity, "--add-config", "consumer_byte_rate=10"]
        run_tool("3.9.2", "kafka-configs", change)
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    producer.produce("few", b"value")
    assert producer.flush(30) == 0


def _acl(name: str, pattern: str) -> AclBinding:
    kind = ResourcePatternType[pattern]
    return AclBinding(
        ResourceType.TOPIC,
        name,
        kind,
        "User:a",
        "*",
        AclOperation.READ,
        AclPermissionType.ALLOW,
    )


def _done(futures: dict[Any, Future[Any]]) -> None:
    for future in futures.values():
        future.result(30)


def _walk(client: KazooClient, path: str) -> Iterator[tuple[str, bytes | None]]:
    for name in client.get_children(path or "/"):
        below = f"{path}/{name}"
        if below != "/zookeeper":
            yield below, client.get(below)[0]
            yield from _walk(client, below)


def test_every_node_with_data_round_trips(nodes: dict[str, bytes | None]) -> None:
    used = set()
    for path, data in nodes.items():
        if data is not None:
            pattern, again = next((pair for pair in CODECS if re.fullmatch(pair[0], path)), (None, None))
            assert again is not None, f"nothing reads {path}: {data!r}"
            assert again(data) == data, path
            used.add(pattern)
    assert used == {pattern for pattern, _ in CODECS}


def test_paths_and_contents_are_the_expected_ones(nodes: dict[str, bytes | None]) -> None:
    assert set(znodes.PERSISTENT_PATHS) <= set(nodes)
    broker = znodes.BrokerRegistration.decode(nodes[znodes.broker_path(0)])
    assert (broker.rack, broker.endpoints[0].listener) == ("r1", "PLAINTEXT")
    assert znodes.ControllerZNode.decode(nodes[znodes.CONTROLLER]).broker_id == 0
    topic = znodes.TopicAssignment.decode(nodes[znodes.topic_path("many")])
    assert list(topic.partitions) == list(range(60))
    assert topic.topic_id is not None
    state = znodes.PartitionState.decode(nodes[znodes.partition_state_path("many", 59)])
    assert (state.leader, state.isr, state.is_recovering) == (0, (0,), False)
    user = f"users/{znodes.sanitize('al ice*~/ü')}/clients/c1"
    assert znodes.decode_config(nodes[znodes.config_path(user)]) == {"consumer_byte_rate": "10"}
    assert znodes.config_path(f"clients/{znodes.DEFAULT_ENTITY}") in nodes
    changes = [data for path, data in nodes.items() if path.startswith(znodes.CONFIG_CHANGE_PREFIX)]
    assert user in [znodes.decode_config_change(data) for data in changes]
    for name, pattern in (("few", "LITERAL"), ("pre", "PREFIXED")):
        rules = znodes.decode_acls(nodes[znodes.acl_path("Topic", name, pattern)])
        assert rules == [znodes.AclEntry("User:a", "Allow", "*", "Read")]
    for path in (znodes.partition_path("few", 1), znodes.partitions_path("few"), znodes.TOPICS):
        assert nodes[path] is None
