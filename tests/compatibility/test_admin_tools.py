"""kafka-topics, kafka-broker-api-versions and kafka-consumer-groups of three releases."""

from __future__ import annotations

import re

import pytest

from tests.compatibility.brokers import Broker, create_topic
from tests.jvm.tools import VERSIONS, run_tool

pytestmark = [pytest.mark.jvm, pytest.mark.slow]


@pytest.mark.parametrize("version", VERSIONS)
def test_topics_are_created_listed_described_and_deleted(broker: Broker, topic: str, version: str) -> None:
    def topics(*arguments: str, check: bool = True) -> str:
        command = ["--bootstrap-server", broker.bootstrap, *arguments]
        result = run_tool(version, "kafka-topics", command, check=check)
        return result.stdout + result.stderr

    sizes = ["--partitions", "3", "--replication-factor", "1", "--config", "retention.ms=3600000"]
    created = topics("--create", "--topic", topic, *sizes)
    assert f"Created topic {topic}." in created
    assert topic in topics("--list").splitlines()

    described = [re.sub(r"\s+", " ", line).strip() for line in topics("--describe", "--topic", topic).splitlines()]
    (summary,) = [line for line in described if "PartitionCount" in line]
    assert "PartitionCount: 3 ReplicationFactor: 1 " in summary
    assert "retention.ms=3600000" in summary
    for partition in range(3):
        (line,) = [line for line in described if f"Partition: {partition} " in line]
        assert "Leader: 0 Replicas: 0 Isr: 0" in line

    again = topics("--create", "--topic", topic, *sizes, check=False)
    assert "already exists" in again
    wrong = topics("--create", "--topic", f"{topic}-wrong", "--config", "retention.ms=soon", check=False)
    assert "Invalid value soon for configuration retention.ms" in wrong

    topics("--delete", "--topic", topic)
    assert topic not in topics("--list").splitlines()
    gone = topics("--describe", "--topic", topic, check=False)
    assert "does not exist as expected" in gone


@pytest.mark.parametrize("version", VERSIONS)
def test_api_versions_are_shown(broker: Broker, version: str) -> None:
    printed = run_tool(version, "kafka-broker-api-versions", ["--bootstrap-server", broker.bootstrap]).stdout
    host, port = broker.bootstrap.split(":")
    assert f"{host}:{port} (id: 0 rack: null" in printed
    usable = dict(re.findall(r"(\w+)\(\d+\): .*\[usable: (\d+)\]", printed))
    for needed in ("Produce", "Fetch", "ListOffsets", "Metadata", "OffsetCommit", "JoinGroup", "CreateTopics"):
        assert needed in usable, f"{needed} cannot be used by {version}:\n{printed}"


@pytest.mark.parametrize("version", VERSIONS)
def test_log_end_offsets_are_listed(broker: Broker, topic: str, version: str) -> None:
    create_topic(broker, topic)
    run_tool(
        version,
        "kafka-console-producer",
        ["--bootstrap-server", broker.bootstrap, "--topic", topic],
        stdin="a\nb\nc\n",
    )
    option = "--broker-list" if version == "2.8.2" else "--bootstrap-server"
    printed = run_tool(version, "kafka-get-offsets", [option, broker.bootstrap, "--topic", topic]).stdout
    assert printed.splitlines() == [f"{topic}:0:3"]
