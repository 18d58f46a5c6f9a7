"""ACLs that Odradek, Apache Kafka and Kafka's tools share: one metadata store, two brokers, and the audit logs."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from kazoo.client import KazooClient

from odradek.broker.security.state.acls import AclOperation
from odradek.broker_process import BrokerProcess
from tests.jvm.tools import run_tool
from tests.security.authorization_oracle import AUTHORIZED, RunningPair, User, cluster, topic
from tests.support.eventually import eventually

pytestmark = [pytest.mark.jvm, pytest.mark.slow]

ALICE = ["--allow-principal", "User:alice", "--operation", "Read"]


@pytest.fixture(scope="module")
def joined(authorized: RunningPair, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """An Odradek broker in the cluster of the Apache Kafka broker: both read and write the same ACLs."""
    properties = {**AUTHORIZED, "broker.id": "1", "zookeeper.connect": authorized.kafka.zookeeper_connect}
    with BrokerProcess(tmp_path_factory.mktemp("joined"), properties) as broker:
        yield broker


def listed(release: str, where: list[str]) -> set[str]:
    """The patterns of all ACLs with their entries for alice, as kafka-acls prints them."""
    lines = run_tool(release, "kafka-acls", [*where, "--list", "--principal", "User:alice"]).stdout
    found, resource = set(), ""
    for line in lines.splitlines():
        if "for resource" in line:
            named = re.search(r"resourceType=(\w+), name=(\S+), patternType=(\w+)", line)
            assert named is not None, line
            resource = "/".join(named.groups())
        elif entry := re.search(r"principal=(\S+), host=(\S+), operation=(\w+), permissionType=(\w+)", line):
            found.add(f"{resource} {' '.join(entry.groups())}")
    return found


def test_kafka_and_odradek_share_acls(authorized: RunningPair, joined: BrokerProcess) -> None:
    """What one broker or a tool of either release changes, both brokers and the tools return."""
    kafka, odradek = (["--bootstrap-server", each.bootstrap] for each in (authorized.kafka, joined))
    zookeeper = ["--authorizer-properties", f"zookeeper.connect={authorized.kafka.zookeeper_connect}"]
    read = "User:alice * READ ALLOW"
    run_tool("3.9.2", "kafka-acls", [*odradek, "--add", *ALICE, "--topic", "of-odradek"])
    run_tool("3.9.2", "kafka-acls", [*kafka, "--add", *ALICE, "--topic", "of-kafka"])
    prefixed = ["--resource-pattern-type", "prefixed"]
    run_tool("2.8.2", "kafka-acls", [*zookeeper, "--add", *ALICE, "--topic", "of-zookeeper", *prefixed])
    wanted = {
        f"TOPIC/of-odradek/LITERAL {read}",
        f"TOPIC/of-kafka/LITERAL {read}",
        f"TOPIC/of-zookeeper/PREFIXED {read}",
    }
    for release, where in (("3.9.2", kafka), ("3.9.2", odradek), ("2.8.2", zookeeper)):
        eventually(
            lambda release=release, where=where: listed(release, where),
            lambda found: found == wanted,
            f"kafka-acls {release} {where[0]} lists all ACLs",
        )
    client = KazooClient(authorized.kafka.zookeeper_connect)
    client.start()
    try:
        nodes = {client.get(f"/kafka-acl/Topic/{name}")[0] for name in ("of-odradek", "of-kafka")}
    finally:
        client.stop()
        client.close()
    assert len(nodes) == 1  # byte for byte
    run_tool("3.9.2", "kafka-acls", [*odradek, "--remove", "--force", *ALICE, "--topic", "of-kafka"])
    run_tool("3.9.2", "kafka-acls", [*kafka, "--remove", "--force", *ALICE, "--topic", "of-odradek"])
    run_tool("2.8.2", "kafka-acls", [*zookeeper, "--remove", "--force", *ALICE, "--topic", "of-zookeeper", *prefixed])
    for where in (kafka, odradek):
        eventually(lambda where=where: listed("3.9.2", where), lambda found: not found, "no ACL of alice is left")


async def audited(s: User) -> None:
    """Requests with denials, with grants, and with checks that only filter."""
    await s.ask("DescribeCluster", 0, include_cluster_authorized_operations=True)
    await s.ask("DescribeAcls", 1, resource_type_filter=1, pattern_type_filter=1, operation=1, permission_type=1)
    await s.ask("DeleteRecords", 2, topics=[{"name": "a", "partitions": []}, {"name": "b", "partitions": []}])
    names = [{"name": name, "num_partitions": 1, "replication_factor": 1} for name in ("denied-a", "denied-b")]
    await s.ask("CreateTopics", 5, topics=names, timeout_ms=1000, validate_only=True)
    partitions = [{"name": name, "count": 2, "assignments": None} for name in ("a", "b", "b")]
    await s.ask("CreatePartitions", 3, topics=partitions, timeout_ms=1000, validate_only=True)
    await s.ask("DeleteTopics", 5, topic_names=["a", "b", "b"], timeout_ms=1000)
    await s.ask("AlterConfigs", 1, resources=[{"resource_type": 2, "resource_name": "a", "configs": []}])
    await s.ask("DescribeProducers", 0, topics=[{"name": "a", "partition_indexes": [0, 1]}])
    await s.ask("DescribeTransactions", 0, transactional_ids=["t"])
    await s.ask("OffsetForLeaderEpoch", 3, topics=[{"topic": "a", "partitions": []}])
    await s.ask("WriteTxnMarkers", 0, markers=[])
    await s.ask("ElectLeaders", 1, topic_partitions=[], timeout_ms=1000)
    resources = [{"resource_type": 4, "resource_name": "0", "configuration_keys": ["x"]}]
    resources.append({"resource_type": 2, "resource_name": "a", "configuration_keys": ["x"]})
    await s.ask("DescribeConfigs", 4, resources=resources)


def audit_lines(log: str, source: str) -> list[str]:
    """The lines of the audit log about a client, each with its level, sorted."""
    found = re.findall(rf"\b(INFO|DEBUG)\b.*?(Principal = .* from host = {re.escape(source)} .*)", log)
    return sorted(f"{level} {text.rstrip()}" for level, text in found)


def test_the_audit_log_has_the_lines_of_kafkas(authorized: RunningPair) -> None:
    async def log_everything(s: User) -> None:
        loggers = {
            "resource_type": 8,
            "resource_name": "0",
            "configs": [{"name": "kafka.authorizer.logger", "config_operation": 0, "value": "DEBUG"}],
        }
        await s.admin.quietly("IncrementalAlterConfigs", 1, resources=[loggers])  # Kafka has it from the command line

    authorized.run(log_everything, ())
    rights = (cluster(AclOperation.DESCRIBE), topic(AclOperation.DESCRIBE, "a"), topic(AclOperation.CREATE, "denied-a"))
    for subset in ((), rights):
        run = authorized.run(audited, subset)
        theirs = eventually(
            lambda run=run: audit_lines(authorized.kafka.output, run.source),
            lambda lines: any("DescribeConfigs" in each for each in lines),
            "Kafka has logged the last request",
        )
        ours = audit_lines(authorized.odradek.output, run.source)
        assert ours == theirs
        assert any(each.startswith("INFO") for each in ours)
    assert any(each.startswith("DEBUG") for each in ours)
