"""Comparison with Kafka: admin requests go to Apache Kafka 3.9.2 and to Odradek; the responses must agree.

The responses are compared field by field in every version that Kafka 3.9 supports. Where Kafka's order is that of a
hash table both are sorted; names and sizes that differ between brokers are replaced. Error messages are compared only
for presence.
"""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from odradek.protocol import messages as m
from tests.broker.admin_requests import (
    APPEND,
    BROKER,
    DELETE,
    LOGGER,
    PREFERRED,
    SET,
    SUBTRACT,
    TOPIC,
    UNCLEAN,
    alter,
    create_partitions,
    describe,
    elect,
    list_reassignments,
    reassign,
    replace_configs,
)
from tests.broker.cluster_admin_script import Script
from tests.broker.wire import Client, running_broker
from tests.jvm.kafka import Kafka

pytestmark = pytest.mark.jvm

NO_BROKER_EPOCH = -1
PAST_BROKER_EPOCH = 0
WITHOUT_ORDER = (
    "configs",
    "topics",
    "results",
    "responses",
    "partitions",
    "replica_election_results",
    "partition_result",
)


# ---- requests


# ---- scripts


async def partitions(script: Script) -> None:
    """Topics grow, or do not. (For a topic without a name Kafka returns UNKNOWN_SERVER_ERROR.)"""
    topic = script.topic
    for wanted in (
        (topic, 2, None),
        (topic, 1, None),
        (topic, 0, None),
        (topic, -1, None),
        (topic, 3, []),
        (topic, 3, [[0], [0]]),
        (topic, 3, [[7]]),
        (topic, 4, [[7], [8]]),
        (topic, 3, [[]]),
        (topic, 3, [[0, 0]]),
        (topic, 4, [[0], [0, 0]]),
        ("no-such-topic", 3, None),
        ("no such topic", 3, None),
    ):
        await script.ask(create_partitions(wanted))
        await script.ask(create_partitions(wanted, validate_only=True), 3)
    await script.ask(create_partitions((topic, 3, None), (topic, 4, None)))
    await script.ask(create_partitions((topic, 3, None), ("no-such-topic", 4, None), validate_only=True))
    await script.ask(create_partitions())
    await script.ask(create_partitions((topic, 3, None)), 3)
    await script.ask(create_partitions((topic, 5, [[0], [0]]), ("no-such-topic", 1, None)), 0)
    answer = await script.quietly(m.MetadataRequest(topics=[m.MetadataRequest.MetadataRequestTopic(name=topic)]), 7)
    script.note("Metadata", answer.topics[0])


async def elections(script: Script) -> None:
    """Every replica already leads where it can lead."""
    topic = script.topic
    for kind in (PREFERRED, UNCLEAN):
        await script.ask(elect(kind, [(topic, [0, 1])]), 1, 2)
        await script.ask(elect(kind, [(topic, [0, 5]), ("no-such-topic", [0])]), 1, 2)
        await script.ask(elect(kind, []), 1, 2)
        await script.ask(elect(kind, None), 1, 2)
    await script.ask(elect(PREFERRED, [(topic, [0, 9])]), 0)
    await script.ask(elect(PREFERRED, None), 0)


async def reassignments(script: Script) -> None:
    """Nothing can move in a cluster of one broker, but many requests can be refused."""
    topic = script.topic
    for wanted in (
        (topic, 0, None),
        (topic, 0, [0]),
        (topic, 0, []),
        (topic, 0, [0, 0]),
        (topic, 0, [1]),
        (topic, 0, [0, 1]),
        (topic, 0, [-1]),
        (topic, 0, [0, -1]),
        (topic, 7, [0]),
        (topic, 7, None),
        ("no-such-topic", 0, [0]),
        ("no-such-topic", 0, None),
        ("", 0, [0]),
    ):
        await script.ask(reassign(wanted))
        await script.ask(list_reassignments())
    await script.ask(reassign())
    await script.ask(reassign((topic, 0, [0]), (topic, 1, [3]), ("no-such-topic", 0, None)))
    await script.ask(list_reassignments((topic, [0, 1, 9]), ("no-such-topic", [0])))


async def topic_configs(script: Script) -> None:
    """A topic's properties: set, deleted, appended to, subtracted from; and refused changes.

    For operations that do not exist, and for list operations on properties that are no list, Kafka returns
    UNKNOWN_SERVER_ERROR.
    """
    topic = script.topic
    for changes in (
        [("retention.ms", SET, "1000")],
        [("retention.ms", SET, "soon")],
        [("retention.ms", SET, "-2")],
        [("retention.ms", APPEND, "1")],
        [("retention.ms", SUBTRACT, "1")],
        [("retention.ms", SET, None)],
        [("retention.ms", APPEND, None), ("segment.ms", SET, None)],
        [("retention.ms", SET, "1"), ("retention.ms", DELETE, None)],
        [("no.such.property", SET, "1")],
        [("no.such.property", DELETE, None)],
        [("cleanup.policy", APPEND, "compact")],
        [("cleanup.policy", APPEND, "compact")],
        [("cleanup.policy", APPEND, "nothing")],
        [("cleanup.policy", SUBTRACT, "delete")],
        [("cleanup.policy", SUBTRACT, "delete,compact")],
        [("cleanup.policy", SET, "")],
        [("min.compaction.lag.ms", SET, "10"), ("max.compaction.lag.ms", SET, "5")],
        [("retention.ms", DELETE, "whatever"), ("segment.bytes", SET, "1048576")],
        [("leader.replication.throttled.replicas", SET, "0:0,1:0")],
        [("leader.replication.throttled.replicas", APPEND, "2:0")],
        [("leader.replication.throttled.replicas", SET, "here")],
        [],
    ):
        await script.ask(alter((TOPIC, topic, changes), validate_only=True), 1)
        await script.ask(alter((TOPIC, topic, changes)))
        await script.ask(describe(TOPIC, topic, *{change[0] for change in changes}), 4)
    await script.ask(
        alter((TOPIC, "no-such-topic", []), (TOPIC, "no such topic", []), (TOPIC, "", [("retention.ms", SET, "1")]))
    )
    await script.ask(alter((TOPIC, topic, [("retention.ms", SET, "5")]), (TOPIC, topic, [])))
    await script.ask(alter((TOPIC, topic, [("retention.ms", SET, "5")]), (3, "x", []), (64, "x", []), (0, "", [])))
    await script.ask(alter((4, "x", []), (LOGGER, "x", []), (LOGGER, "", [])))


async def whole_configs(script: Script) -> None:
    """AlterConfigs: it removes the properties that are not named."""
    topic = script.topic
    for configs in (
        [("retention.ms", "1000"), ("segment.bytes", "1048576")],
        [("cleanup.policy", "compact")],
        [("cleanup.policy", "nothing")],
        [("cleanup.policy", None)],
        [("retention.ms", "1"), ("retention.ms", "2")],
        [("no.such.property", "1")],
        [],
    ):
        await script.ask(replace_configs((TOPIC, topic, configs), validate_only=True), 2)
        await script.ask(replace_configs((TOPIC, topic, configs)))
        await script.ask(describe(TOPIC, topic, "retention.ms", "segment.bytes", "cleanup.policy"), 4)
    await script.ask(replace_configs((TOPIC, "no-such-topic", []), (LOGGER, "0", []), (3, "x", []), (BROKER, "9", [])))


async def broker_configs(script: Script) -> None:
    """A broker's properties at run time, its own and those of all brokers."""
    for name in ("0", ""):
        for changes in (
            [("log.retention.ms", SET, "3600000")],
            [("log.retention.ms", SET, "soon")],
            [("log.retention.ms", SET, "0")],
            [("log.cleanup.policy", APPEND, "compact")],
            [("log.cleanup.policy", SUBTRACT, "compact")],
            [("log.cleanup.policy", DELETE, None)],
            [("log.retention.ms", APPEND, "1")],
            [("log.retention.ms", DELETE, None)],
            [("log.retention.hours", SET, "1")],
            [("broker.id", SET, "1")],
            [("zookeeper.connect", SET, "x")],
            [("no.such.property", SET, "1")],
            [("no.such.property", DELETE, None)],
            [("message.max.bytes", SET, None)],
            [("message.max.bytes", SET, "1"), ("message.max.bytes", SET, "2")],
            [("leader.replication.throttled.rate", SET, "1000")],
            [("leader.replication.throttled.rate", SET, "-1")],
            [("follower.replication.throttled.rate", SET, "many")],
            [("leader.replication.throttled.rate", DELETE, None)],
            [("min.insync.replicas", SET, "0")],
            [("unclean.leader.election.enable", SET, "true")],
            [("unclean.leader.election.enable", DELETE, None)],
            [],
        ):
            await script.ask(alter((BROKER, name, changes), validate_only=True), 1)
            await script.ask(alter((BROKER, name, changes)), 0, 1)
    for name in ("1", "zero", "-1"):
        await script.ask(alter((BROKER, name, [("log.retention.ms", SET, "1")])))
    await script.ask(replace_configs((BROKER, "0", [("log.retention.ms", "5")]), (BROKER, "", [])))
    await script.ask(replace_configs((BROKER, "0", [("broker.id", "5")]), (BROKER, "", [("log.retention.ms", "now")])))
    await script.ask(replace_configs((BROKER, "0", []), (BROKER, "", [])))


async def log_dirs(script: Script) -> None:
    """Sizes of replicas, and of their directories."""
    request = m.DescribeLogDirsRequest

    async def ask(topics: Any) -> None:
        for version in range(5):
            answer = await script.quietly(request(topics=topics), version)
            for result in answer.results:
                result.log_dir = "DIR"
                assert (result.total_bytes >= result.usable_bytes > 0) is (version == 4)
                result.total_bytes = result.usable_bytes = 0
                result.topics = [topic for topic in result.topics if not topic.name.startswith("__")]
                if topics is None:
                    result.topics = [topic for topic in result.topics if topic.name == script.topic]
            script.note(f"DescribeLogDirs v{version}", answer)

    wanted = request.DescribableLogDirTopic
    await ask(None)
    await ask([])
    await ask([wanted(topic=script.topic, partitions=[1, 0])])
    await ask([wanted(topic=script.topic, partitions=[1, 8]), wanted(topic="no-such-topic", partitions=[0])])
    await ask([wanted(topic=script.topic, partitions=[])])


async def between_brokers(script: Script) -> None:
    """Requests of brokers to the controller, from a broker that is not there or is another incarnation."""
    alter_partition = m.AlterPartitionRequest
    for broker_id, epoch in ((0, PAST_BROKER_EPOCH), (7, 5), (0, 1 << 60), (7, NO_BROKER_EPOCH)):
        await script.ask(m.AllocateProducerIdsRequest(broker_id=broker_id, broker_epoch=epoch))
        await script.ask(alter_partition(broker_id=broker_id, broker_epoch=epoch))
    # Not for a live broker, in its epoch or a later one: Kafka would begin to move all leaders away from it.
    await script.ask(m.ControlledShutdownRequest(broker_id=0, broker_epoch=PAST_BROKER_EPOCH), 2, 3)
    await script.ask(m.ControlledShutdownRequest(broker_id=7, broker_epoch=NO_BROKER_EPOCH))


PLAYS = (
    partitions,
    elections,
    reassignments,
    topic_configs,
    whole_configs,
    broker_configs,
    log_dirs,
    between_brokers,
)


async def transcript(play: Callable[[Script], Awaitable[None]], port: int, name: str) -> list[str]:
    """The responses of a broker to a script."""
    client = await Client.connect(port)
    script = Script(client, f"topic-{name}")
    try:
        await script.begin()
        await play(script)
    finally:
        client.close()
    return script.transcript


@pytest.mark.parametrize("play", PLAYS)
async def test_odradek_answers_as_kafka_does(
    play: Callable[[Script], Awaitable[None]], kafka: Kafka, tmp_path: Path
) -> None:
    name = uuid.uuid4().hex
    async with running_broker(tmp_path / "data") as broker:
        ours = await transcript(play, broker.port, name)
    theirs = await transcript(play, kafka.port, name)
    for our, their in zip(ours, theirs, strict=True):
        assert our == their
