"""The stock tools that manage one broker, of three releases: they print the same as against Apache Kafka 3.9.2.

kafka-topics, kafka-consumer-groups and kafka-transactions have modules of their own.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from tests.compatibility.brokers import create_topic
from tests.compatibility.side_by_side import Side, Sides, Tools, assert_the_same, both
from tests.jvm.kafka import Kafka
from tests.jvm.tools import VERSIONS, run_tool

pytestmark = [pytest.mark.jvm, pytest.mark.slow]

HOUR_MS = 3_600_000


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory, kafka: Kafka) -> Iterator[Sides]:
    with both(tmp_path_factory.mktemp("admin-tools"), kafka) as running:
        yield running


def fill(side: Side, topic: str, partitions: int, latest_ms: int) -> None:
    """Ten records in each partition, an hour apart."""
    create_topic(side, topic, partitions)
    # One batch for each partition: the tools show sizes.
    producer = Producer({"bootstrap.servers": side.bootstrap, "linger.ms": 1000})
    for partition in range(partitions):
        for number in range(10):
            at_ms = latest_ms - (9 - number) * HOUR_MS
            producer.produce(topic, b"a line", partition=partition, timestamp=at_ms)
    assert producer.flush(30) == 0


@pytest.mark.parametrize("version", VERSIONS)
def test_api_versions_are_shown(sides: Sides, version: str) -> None:
    usable = []
    for side in sides:
        printed = run_tool(version, "kafka-broker-api-versions", ["--bootstrap-server", side.bootstrap]).stdout
        assert f"{side.bootstrap} (id: 0 rack: null" in printed
        usable.append(dict(re.findall(r"(\w+)\(\d+\): .*\[usable: (\d+)\]", printed)))
    ours, expected = usable
    # An API that both have is used in the same version, or in a newer one.
    assert sorted(name for name in expected if int(ours.get(name, -1)) < int(expected[name])) == []


@pytest.mark.parametrize("version", VERSIONS)
def test_offsets_are_listed_and_records_deleted(sides: Sides, topic: str, version: str, tmp_path: Path) -> None:
    latest_ms = int(time.time() * 1000) - HOUR_MS
    old = version == "2.8.2"

    def scenario(tools: Tools) -> None:
        def offsets(*arguments: str) -> list[str]:
            return tools("kafka-get-offsets", *arguments, bootstrap="--broker-list" if old else None)

        def delete(**offsets: int) -> None:
            plan = tmp_path / "offsets.json"
            partitions = [
                {"topic": topic, "partition": int(name.removeprefix("p")), "offset": offset}
                for name, offset in offsets.items()
            ]
            plan.write_text(json.dumps({"partitions": partitions, "version": 1}))
            tools("kafka-delete-records", "--offset-json-file", str(plan), unordered=True)

        fill(tools.broker, topic, 3, latest_ms)
        delete(p0=4, p1=-1)
        delete(p0=2)  # nothing is left of that
        delete(p2=11)
        offsets("--topic", topic)
        times = ["-1", "-2", str(latest_ms - 3 * HOUR_MS), str(latest_ms + HOUR_MS)]
        times += [] if old else ["-3", "-4", "-5", "earliest", "latest", "max-timestamp"]
        for at in times:
            offsets("--topic", topic, "--time", at)
        offsets("--topic", topic, "--partitions", "0,2,9")
        offsets("--topic", f"{topic}-none")
        if not old:
            offsets("--topic-partitions", f"{topic}:1-3,{topic}:0")
            offsets("--topic", f"{topic[:-3]}.*", "--exclude-internal-topics")
        tools("kafka-log-dirs", "--describe", "--topic-list", topic)
        tools("kafka-log-dirs", "--describe", "--topic-list", f"{topic}-none", "--broker-list", "0")

    transcript = "\n".join(assert_the_same(sides, version, scenario))
    assert f"{topic}:0:10\n    {topic}:1:10\n    {topic}:2:10" in transcript
    assert f"partition: {topic}-0\tlow_watermark: 4" in transcript
    assert '"offsetLag":0' in transcript


def cluster_id(side: Side) -> Mapping[str, str]:
    consumer = Consumer({"bootstrap.servers": side.bootstrap, "group.id": "nobody"})
    try:
        return {str(consumer.list_topics(timeout=30).cluster_id): "(cluster id)"}
    finally:
        consumer.close()


@pytest.mark.parametrize("version", VERSIONS)
def test_the_cluster_id_is_shown(sides: Sides, version: str) -> None:
    def scenario(tools: Tools) -> None:
        def cluster(action: str, *arguments: str) -> None:
            tools("kafka-cluster", action, "--bootstrap-server", tools.broker.bootstrap, *arguments, bootstrap="")

        cluster("cluster-id")
        if version != "2.8.2":
            cluster("unregister", "--id", "0")
        if version == "4.3.0":
            cluster("list-endpoints")

    assert "    Cluster ID: (cluster id)" in assert_the_same(sides, version, scenario, cluster_id)


@pytest.mark.parametrize("version", VERSIONS)
def test_features_are_described(sides: Sides, version: str) -> None:
    action = "--describe" if version == "2.8.2" else "describe"
    for side in sides:
        tools = Tools(side, version)
        lines = tools("kafka-features", action)
        assert tools.transcript[0] == f"kafka-features {action} -> 0"
        assert all(re.match(r"Feature: [\w.]+\s+SupportedMinVersion: \S+\s+Supported", line) for line in lines)
        if side is sides.ours:
            assert [line.split()[1] for line in lines] == ["group.version", "transaction.version"]


def test_groups_of_every_kind_are_listed(sides: Sides, topic: str, group: str) -> None:
    def scenario(tools: Tools) -> None:
        create_topic(tools.broker, topic)
        commit(tools.broker, group, topic, 0)
        tools("kafka-groups", "--list", about=group)
        for kind in ("--consumer", "--share", "--streams"):
            tools("kafka-groups", "--list", kind, about=group)
        for kind in ("classic", "consumer"):
            tools("kafka-groups", "--list", "--group-type", kind, about=group)
        tools("kafka-groups", "--list", "--protocol", "consumer", about=group)

    assert f"    {group} Classic" in assert_the_same(sides, "4.3.0", scenario)


def commit(side: Side, group: str, topic: str, offset: int) -> None:
    consumer = Consumer({"bootstrap.servers": side.bootstrap, "group.id": group})
    consumer.commit(offsets=[TopicPartition(topic, 0, offset)], asynchronous=False)
    consumer.close()


@pytest.mark.parametrize("version", VERSIONS)
def test_security_is_reported_as_disabled(sides: Sides, topic: str, version: str) -> None:
    def scenario(tools: Tools) -> None:
        who = ("--topic", topic, "--allow-principal", "User:odradek", "--operation", "Read")
        tools("kafka-acls", "--list")
        tools("kafka-acls", "--add", *who)
        tools("kafka-acls", "--remove", "--force", *who)
        command = str(empty_properties)
        for action in (
            ["--describe"],
            ["--create", "--max-life-time-period", "-1"],
            ["--renew", "--renew-time-period", "-1", "--hmac", "aGVsbG8="],
            ["--expire", "--expiry-time-period", "-1", "--hmac", "aGVsbG8="],
        ):
            tools("kafka-delegation-tokens", *action, "--command-config", command)

    empty_properties = sides.ours.data_dir.parent / "client.properties"
    empty_properties.write_text("")
    transcript = "\n".join(assert_the_same(sides, version, scenario))
    assert "SecurityDisabledException" in transcript
    assert "UnsupportedByAuthenticationException" in transcript


@pytest.mark.parametrize("version", VERSIONS)
def test_an_application_of_streams_is_reset(sides: Sides, topic: str, group: str, version: str) -> None:
    latest_ms = int(time.time() * 1000) - HOUR_MS // 2

    def scenario(tools: Tools) -> None:
        fill(tools.broker, topic, 1, latest_ms)
        commit(tools.broker, group, topic, 7)
        create_topic(tools.broker, f"{group}-counts-changelog")
        option = "--bootstrap-servers" if version == "2.8.2" else None

        def reset(*arguments: str) -> None:
            what = ("--application-id", group, "--input-topics", topic)
            tools("kafka-streams-application-reset", *what, *arguments, bootstrap=option, unordered=True)

        reset("--dry-run")
        for how in (["--shift-by", "-3"], ["--by-duration", "PT4H"], ["--to-offset", "3"], []):
            reset(*how)
            tools("kafka-consumer-groups", "--timeout", "60000", "--describe", "--group", group)
        tools("kafka-topics", "--list", "--topic", f"{group}.*")

    transcript = "\n".join(assert_the_same(sides, version, scenario))
    assert f"{group}-counts-changelog" in transcript
    assert f"{group} {topic} 0 3 10 7" in transcript
