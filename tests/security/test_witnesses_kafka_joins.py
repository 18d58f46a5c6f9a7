"""Apache Kafka 3.9.2 joins a broker of Odradek: SCRAM over TLS between both, and one list of ACLs for both."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka import KafkaError, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from odradek.broker.security.state.acls import AclOperation, AclPermissionType, PatternType, ResourceType
from odradek.broker_process import BrokerProcess
from odradek.ports import free_port
from odradek.protocol import messages as m
from odradek.wire import Wire
from tests.jvm.kafka import Kafka
from tests.jvm.tools import run_tool
from tests.registry.zookeeper_server import ZooKeeperServer
from tests.security.tls_broker import HOST, Files
from tests.support.eventually import eventually

pytestmark = [pytest.mark.jvm, pytest.mark.slow]

OURS, KAFKA = 1, 2
MECHANISM = "SCRAM-SHA-512"
PASSWORDS = {"broker": "broker-secret", "alice": "alice-secret"}
TIMEOUT_S = 60.0
DENIED = KafkaError.TOPIC_AUTHORIZATION_FAILED


class Ports(NamedTuple):
    """The ports of one broker: for clients and the other broker, and for administration by this test."""

    secured: int
    plaintext: int


class Cluster(NamedTuple):
    """Both brokers run."""

    files: Files
    ports: dict[int, Ports]
    folders: dict[int, Path]

    def client(self, user: str) -> dict[str, Any]:
        """The configuration of a client of librdkafka."""
        return {
            **self.files.librdkafka(),
            "bootstrap.servers": ",".join(f"{HOST}:{port.secured}" for port in self.ports.values()),
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": MECHANISM,
            "sasl.username": user,
            "sasl.password": PASSWORDS[user],
        }

    def add_acl(self, broker_id: int, topic: str, permission: AclPermissionType) -> None:
        """Add an ACL at one broker, for writes of alice."""
        request = m.CreateAclsRequest
        acl = request.AclCreation(
            resource_type=ResourceType.TOPIC,
            resource_name=topic,
            resource_pattern_type=PatternType.LITERAL,
            principal="User:alice",
            host="*",
            operation=AclOperation.WRITE,
            permission_type=permission,
        )
        with Wire(HOST, self.ports[broker_id].plaintext, TIMEOUT_S) as wire:
            answer = wire.ask(request(creations=[acl]), 3)
        assert [each.error_code for each in answer.results] == [0]

    def log(self, broker_id: int, topic: str) -> bytes:
        """The segments of a replica."""
        return b"".join(path.read_bytes() for path in sorted((self.folders[broker_id] / f"{topic}-0").glob("*.log")))


def properties(files: Files, broker_id: int, ports: Ports) -> dict[str, str]:
    files.issue(f"broker-{broker_id}", HOST)
    address = f"PLAINTEXT://{HOST}:{ports.plaintext},SASL_SSL://{HOST}:{ports.secured}"
    module = "org.apache.kafka.common.security.scram.ScramLoginModule"
    return {
        "broker.id": str(broker_id),
        "listeners": address,
        "advertised.listeners": address,
        "inter.broker.listener.name": "SASL_SSL",
        "sasl.enabled.mechanisms": MECHANISM,
        "sasl.mechanism.inter.broker.protocol": MECHANISM,
        f"listener.name.sasl_ssl.{MECHANISM.lower()}.sasl.jaas.config": (
            f'{module} required username="broker" password="{PASSWORDS["broker"]}";'
        ),
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        "super.users": "User:broker;User:ANONYMOUS",
        "zookeeper.session.timeout.ms": "6000",
        **files.stores(f"broker-{broker_id}"),
    }


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("joined")
    files = Files(folder / "tls")
    ports = {each: Ports(free_port(), free_port()) for each in (OURS, KAFKA)}
    with ExitStack() as stack:
        zookeeper = ZooKeeperServer(folder, folder / "zookeeper")
        zookeeper.start()
        stack.callback(zookeeper.stop)
        for user, password in PASSWORDS.items():  # before the first start, as brokers need them to connect
            entity = ["--entity-type", "users", "--entity-name", user]
            change = ["--alter", "--add-config", f"{MECHANISM}=[iterations=4096,password={password}]"]
            run_tool("2.8.2", "kafka-configs", ["--zookeeper", zookeeper.connect, *change, *entity])
        own = {**properties(files, OURS, ports[OURS]), "zookeeper.connect": zookeeper.connect}
        ours = stack.enter_context(BrokerProcess(folder / "ours", own))
        kafka = Kafka(folder / "kafka", properties(files, KAFKA, ports[KAFKA]), zookeeper=zookeeper.connect)
        kafka.port = ports[KAFKA].plaintext
        stack.callback(kafka.close)
        kafka.start()
        yield Cluster(files, ports, {OURS: ours.data_dir, KAFKA: kafka.data_dir})


def write(cluster: Cluster, topic: str, count: int = 100) -> set[int | None]:
    """Write as alice, acknowledged by both replicas; the error codes."""
    outcomes: list[KafkaError | None] = []
    producer = Producer({**cluster.client("alice"), "acks": "all", "topic.metadata.propagation.max.ms": 60_000})
    for number in range(count):
        producer.produce(topic, b"value %d" % number, on_delivery=lambda error, _: outcomes.append(error))
    assert producer.flush(TIMEOUT_S) == 0
    return {None if error is None else error.code() for error in outcomes}


@pytest.mark.parametrize("leader", [OURS, KAFKA])
def test_each_enforces_the_acls_of_the_other_and_replicates_its_records(cluster: Cluster, leader: int) -> None:
    follower, topic = OURS + KAFKA - leader, f"led-by-{leader}"
    admin = AdminClient(cluster.client("broker"))
    eventually(lambda: admin.list_topics(timeout=TIMEOUT_S).brokers.keys(), lambda ids: ids == {OURS, KAFKA})
    created = NewTopic(topic, 1, replica_assignment=[[leader, follower]], config={"min.insync.replicas": "2"})
    admin.create_topics([created])[topic].result(TIMEOUT_S)
    eventually(
        lambda: admin.list_topics(topic, timeout=TIMEOUT_S).topics[topic].partitions,
        lambda found: bool(found) and found[0].leader == leader and len(found[0].isrs) == 2,
    )
    assert write(cluster, topic, 1) == {DENIED}
    cluster.add_acl(follower, topic, AclPermissionType.ALLOW)
    eventually(lambda: write(cluster, topic, 1), lambda codes: codes == {None})
    assert write(cluster, topic) == {None}
    logs = eventually(
        lambda: [cluster.log(each, topic) for each in (leader, follower)], lambda logs: logs[0] == logs[1]
    )
    assert logs[0].count(b"value ") >= 101
    cluster.add_acl(follower, topic, AclPermissionType.DENY)
    eventually(lambda: write(cluster, topic, 1), lambda codes: codes == {DENIED})
