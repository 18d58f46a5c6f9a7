"""kafka-consumer-groups of three releases: every action, every kind of reset, printed as against Apache Kafka 3.9.2."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from tests.compatibility.brokers import create_topic
from tests.compatibility.side_by_side import Side, Sides, Tools, assert_the_same, both
from tests.jvm.kafka import Kafka
from tests.jvm.tools import VERSIONS
from tests.support.eventually import eventually

pytestmark = [pytest.mark.jvm, pytest.mark.slow]

RECORDS: Final = 10
HOUR_MS: Final = 3_600_000
PARTITIONS: Final = 2


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory, kafka: Kafka) -> Iterator[Sides]:
    with both(tmp_path_factory.mktemp("groups-tool"), kafka) as running:
        yield running


def fill(side: Side, topic: str, latest_ms: int) -> None:
    """A record for every hour in each of the partitions, the last of them at `latest_ms`."""
    create_topic(side, topic, PARTITIONS)
    producer = Producer({"bootstrap.servers": side.bootstrap})
    for number in range(RECORDS):
        for partition in range(PARTITIONS):
            at_ms = latest_ms - (RECORDS - 1 - number) * HOUR_MS
            producer.produce(topic, b"a line", partition=partition, timestamp=at_ms)
    assert producer.flush(30) == 0


@contextmanager
def member(side: Side, group: str, topic: str) -> Iterator[None]:
    """A group of one member, which owns all of the topic and has committed offset 5 everywhere."""
    consumer = Consumer({"bootstrap.servers": side.bootstrap, "group.id": group, "client.id": "reader"})
    try:
        consumer.subscribe([topic])

        def assigned() -> int:
            consumer.poll(0.1)
            return len(consumer.assignment())

        eventually(assigned, lambda count: count >= PARTITIONS, "the member has all partitions")
        committed = [TopicPartition(topic, partition, 5) for partition in range(PARTITIONS)]
        consumer.commit(offsets=committed, asynchronous=False)
        yield
    finally:
        consumer.close()


@pytest.mark.parametrize("version", VERSIONS)
def test_groups_are_listed_described_reset_and_deleted(
    sides: Sides, topic: str, group: str, version: str, tmp_path: Path
) -> None:
    latest_ms = int(time.time() * 1000) - HOUR_MS // 2

    def scenario(tools: Tools) -> None:
        fill(tools.broker, topic, latest_ms)
        with member(tools.broker, group, topic):
            look(tools, group)
            list_by(tools, group, "Stable")
            refuse_while_it_lives(tools, group, topic)
        look(tools, group)
        list_by(tools, group, "Empty")
        reset(tools, group, topic, latest_ms)
        reset_from_file(tools, group, topic, tmp_path)
        groups(tools, "--delete-offsets", "--group", group, "--topic", f"{topic}:0", "--topic", f"{topic}-none")
        groups(tools, "--describe", "--group", group, unordered=True)
        groups(tools, "--delete", "--group", group)
        groups(tools, "--delete", "--group", group)
        if version != "4.3.0":
            # The tool uses a version of DescribeGroups that 3.9 does not have, in which no group is an error
            # (KIP-1043).
            look(tools, group)

    transcript = "\n".join(assert_the_same(sides, version, scenario))
    assert f"Deletion of requested consumer groups ('{group}') was successful." in transcript
    assert f"{group} {topic} 1 5 10 5 reader-(uuid) /127.0.0.1 reader" in transcript


def groups(tools: Tools, *arguments: str, unordered: bool = False, about: str = "") -> list[str]:
    # The tool's own timeout is 5 s.
    return tools("kafka-consumer-groups", "--timeout", "60000", *arguments, unordered=unordered, about=about)


def look(tools: Tools, group: str) -> None:
    for what in (["--offsets"], ["--members"], ["--members", "--verbose"], ["--state"]):
        groups(tools, "--describe", "--group", group, *what, unordered=True)


def list_by(tools: Tools, group: str, state: str) -> None:
    groups(tools, "--list", about=group)
    groups(tools, "--list", "--state", about=group)
    groups(tools, "--list", "--state", state, about=group)
    groups(tools, "--list", "--state", "Dead,PreparingRebalance", about=group)
    groups(tools, "--list", "--state", "Sleeping")
    if tools.version != "2.8.2":
        for kinds in ([], ["classic"], ["consumer"]):
            groups(tools, "--list", "--type", *kinds, about=group)
    groups(tools, "--describe", "--all-groups", "--state", about=group)
    groups(tools, "--describe", "--all-groups", "--offsets", about=group, unordered=True)


def refuse_while_it_lives(tools: Tools, group: str, topic: str) -> None:
    groups(tools, "--reset-offsets", "--group", group, "--topic", topic, "--to-earliest", "--execute")
    groups(tools, "--delete-offsets", "--group", group, "--topic", topic)
    groups(tools, "--delete", "--group", group)


def reset(tools: Tools, group: str, topic: str, latest_ms: int) -> None:
    """Each kind, from the state that the one before it left."""
    at = time.strftime("%Y-%m-%dT%H:%M:%S.000", time.gmtime((latest_ms - 2 * HOUR_MS) // 1000))

    def resets(*how: str) -> None:
        groups(tools, "--reset-offsets", "--group", group, *how, unordered=True)

    resets("--topic", topic, "--to-earliest", "--execute")
    resets("--topic", topic, "--by-duration", "PT4H", "--execute")
    resets("--topic", f"{topic}:0,1", "--to-offset", "4", "--execute")
    if tools.version != "3.9.2":
        return  # the rest sends the same requests to a broker: offsets of a group, of a time, of the ends
    resets("--topic", topic, "--to-earliest")
    resets("--topic", topic, "--to-earliest", "--dry-run")
    resets("--topic", f"{topic}:1", "--to-latest", "--execute")
    resets("--all-topics", "--to-current", "--execute")
    resets("--topic", f"{topic}:0", "--to-offset", "400", "--dry-run")
    resets("--topic", topic, "--shift-by", "3", "--execute")
    resets("--topic", topic, "--shift-by", "-2", "--execute")
    resets("--topic", f"{topic}:1", "--shift-by", "-200", "--dry-run")
    resets("--topic", topic, "--to-datetime", at, "--execute")
    resets("--topic", topic, "--to-datetime", "2099-01-01T00:00:00.000", "--dry-run")
    groups(tools, "--describe", "--group", group, unordered=True)
    new = ("--reset-offsets", "--group", f"{group}-new", "--topic", topic, "--to-latest", "--execute")
    groups(tools, *new, unordered=True)
    groups(tools, "--describe", "--group", f"{group}-new", unordered=True)


def reset_from_file(tools: Tools, group: str, topic: str, folder: Path) -> None:
    where = ("--reset-offsets", "--group", group)
    exported = groups(tools, *where, "--topic", topic, "--to-offset", "2", "--export", "--dry-run", unordered=True)
    plan = folder / "plan.csv"
    plan.write_text("\n".join(line for line in exported if line.count(",") == 2) + "\n")
    groups(tools, *where, "--from-file", str(plan), "--dry-run", unordered=True)
    groups(tools, *where, "--from-file", str(plan), "--execute", unordered=True)
    groups(tools, "--describe", "--group", group, unordered=True)
    two = ("--reset-offsets", "--group", group, "--group", f"{group}-new", "--topic", topic)
    groups(tools, *two, "--to-earliest", "--export", "--dry-run", unordered=True)
