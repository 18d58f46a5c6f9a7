"""MirrorMaker, the old one and MirrorMaker 2, between Odradek and Apache Kafka 3.9.2, both ways.

The copies are the same records: keys, values, headers, timestamps, in their partitions and order.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, TopicMetadata

from odradek.ports import free_port
from tests.compatibility.brokers import Broker, create_topic
from tests.compatibility.connect import JVM, RELEASE, write_properties
from tests.compatibility.side_by_side import Sides, both
from tests.jvm.kafka import Kafka
from tests.jvm.process import QUIET, BackgroundProcess, java_command
from tests.jvm.tools import start_tool
from tests.support.eventually import eventually

pytestmark = [pytest.mark.jvm, pytest.mark.slow]

PARTITIONS: Final = 2
RECORDS: Final = 200
DEADLINE_S: Final = 120.0
NOTHING: Final = TopicMetadata()


class Sent(NamedTuple):
    """One record, apart from its offset."""

    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, str | bytes | None]]
    timestamp_ms: int


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory, kafka: Kafka) -> Iterator[Sides]:
    with both(tmp_path_factory.mktemp("mirror"), kafka) as running:
        yield running


def fill(broker: Broker, topic: str) -> list[list[Sent]]:
    """Records by their keys' partitions, as a Java producer would choose them; the list of each partition."""
    create_topic(broker, topic, PARTITIONS)
    sent: list[list[Sent]] = [[] for _ in range(PARTITIONS)]
    began_ms = int(time.time() * 1000) - RECORDS  # records of a week ago would be deleted
    producer = Producer({"bootstrap.servers": broker.bootstrap, "partitioner": "murmur2_random"})
    for number in range(RECORDS):
        key, value = b"key-%d" % (number % 17), b"record %d" % number
        record = Sent(key, value, [("number", b"%d" % number)], began_ms + number)
        producer.produce(
            topic,
            value,
            key,
            headers=record.headers,
            timestamp=record.timestamp_ms,
            on_delivery=lambda error, message, record=record: sent[message.partition()].append(record),
        )
    assert producer.flush(60) == 0
    assert all(sent)
    return sent


def arrived(broker: Broker, topic: str) -> list[list[Sent]]:
    """The records of a topic by partition, as many as were sent, with offsets from 0."""
    found: list[list[Sent]] = [[] for _ in range(PARTITIONS)]
    settings = {"bootstrap.servers": broker.bootstrap, "group.id": "mirrored", "enable.partition.eof": False}
    consumer = Consumer(settings)
    try:
        consumer.assign([TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
        messages = consumer.consume(RECORDS, timeout=DEADLINE_S)
        assert [message.error() for message in messages] == [None] * RECORDS
        for message in messages:
            headers = message.headers()
            assert isinstance(headers, list)
            of_partition = found[message.partition() or 0]
            assert message.offset() == len(of_partition)
            of_partition.append(Sent(message.key(), message.value(), headers, message.timestamp()[1]))
        assert consumer.poll(0.2) is None  # no record came twice
        return found
    finally:
        consumer.close()


def commit(broker: Broker, group: str, topic: str, offsets: list[int]) -> None:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": group})
    committed = [TopicPartition(topic, partition, offset) for partition, offset in enumerate(offsets)]
    consumer.commit(offsets=committed, asynchronous=False)
    consumer.close()


# ---- the old one


@pytest.mark.parametrize("direction", ["from Kafka", "to Kafka"])
def test_the_old_mirror_maker_copies_a_topic(
    sides: Sides, topic: str, group: str, direction: str, tmp_path: Path
) -> None:
    source, target = (sides.kafka, sides.ours) if direction == "from Kafka" else (sides.ours, sides.kafka)
    sent = fill(source, topic)
    create_topic(target, topic, PARTITIONS)
    reading = write_properties(
        tmp_path / "consumer.properties",
        bootstrap_servers=source.bootstrap,
        group_id=group,
        auto_offset_reset="earliest",
    )
    writing = write_properties(tmp_path / "producer.properties", bootstrap_servers=target.bootstrap)
    arguments = ["--consumer.config", reading, "--producer.config", writing, "--include", topic]
    with start_tool("3.9.2", "kafka-mirror-maker", arguments) as mirror:
        assert arrived(target, topic) == sent
        mirror.stop()
    consumer = Consumer({"bootstrap.servers": source.bootstrap, "group.id": group})
    positions = consumer.committed([TopicPartition(topic, partition) for partition in range(PARTITIONS)], timeout=30)
    assert [each.offset for each in positions] == [len(records) for records in sent]
    consumer.close()


# ---- MirrorMaker 2


def mirror_maker_2(sides: Sides, topic: str, group: str, folder: Path) -> BackgroundProcess:
    """One process, dedicated, that mirrors both ways."""
    internal = {f"{name}.storage.replication.factor": "1" for name in ("config", "offset", "status")} | {
        f"{name}.topic.replication.factor": "1" for name in ("checkpoints", "heartbeats", "offset-syncs")
    }
    properties = {
        "clusters": "ours, kafka",
        "ours.bootstrap.servers": sides.ours.bootstrap,
        "kafka.bootstrap.servers": sides.kafka.bootstrap,
        "ours->kafka.enabled": "true",
        "kafka->ours.enabled": "true",
        "topics": f"{topic}-.*",
        "groups": group,
        "replication.factor": "1",
        "refresh.topics.interval.seconds": "1",
        "refresh.groups.interval.seconds": "1",
        "sync.group.offsets.enabled": "true",
        "sync.group.offsets.interval.seconds": "1",
        "emit.checkpoints.interval.seconds": "1",
        "offset.lag.max": "0",
        "dedicated.mode.enable.internal.rest": "false",
        "listeners": f"http://127.0.0.1:{free_port()}",
        "ours.plugin.discovery": "service_load",
        "kafka.plugin.discovery": "service_load",
        **internal,
    }
    config = folder / "mm2.properties"
    config.write_text("".join(f"{name} = {value}\n" for name, value in properties.items()))
    main = "org.apache.kafka.connect.mirror.MirrorMaker"
    return BackgroundProcess(java_command(RELEASE, main, [str(config)], (*JVM, *QUIET)))


def await_topic(broker: Broker, topic: str, process: BackgroundProcess) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    eventually(
        lambda: len(admin.list_topics(timeout=30).topics.get(topic, NOTHING).partitions),
        lambda count: count == PARTITIONS,
        lambda: f"{topic} exists; MirrorMaker printed {process.stderr.lines()[-5:]}",
    )


def await_committed(broker: Broker, group: str, topic: str, expected: list[int], process: BackgroundProcess) -> None:
    """Until the copy has the group at this offset, without ever having had a member."""
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": group})
    partitions = [TopicPartition(topic, partition) for partition in range(PARTITIONS)]
    try:
        eventually(
            lambda: [each.offset for each in consumer.committed(partitions, timeout=30)],
            lambda found: found == expected,
            lambda: f"{group} is at {expected}; MirrorMaker printed {process.stderr.lines()[-5:]}",
        )
    finally:
        consumer.close()


def test_mirror_maker_2_copies_topics_and_offsets_both_ways(
    sides: Sides, topic: str, group: str, tmp_path: Path
) -> None:
    here, there = f"{topic}-here", f"{topic}-there"
    from_here, from_there = fill(sides.ours, here), fill(sides.kafka, there)
    # At the end: an offset before it is translated to one before it, which depends on how records were batched.
    ends_here, ends_there = ([len(records) for records in each] for each in (from_here, from_there))
    commit(sides.ours, group, here, ends_here)
    commit(sides.kafka, group, there, ends_there)
    with mirror_maker_2(sides, topic, group, tmp_path) as process:
        await_topic(sides.kafka, f"ours.{here}", process)
        await_topic(sides.ours, f"kafka.{there}", process)
        assert arrived(sides.kafka, f"ours.{here}") == from_here
        assert arrived(sides.ours, f"kafka.{there}") == from_there
        await_committed(sides.kafka, group, f"ours.{here}", ends_here, process)
        await_committed(sides.ours, group, f"kafka.{there}", ends_there, process)
