"""Scripts for APIs that Apache Kafka 4.3 has and 3.9 with ZooKeeper has not: see `admin_scripts`."""

from __future__ import annotations

from typing import Any

from odradek.protocol import messages as m
from odradek.protocol.errors import ErrorCode
from tests.broker.admin_scripts import Play, Script, create, new, transcript, update_features
from tests.broker.wire import batch

__all__ = ["SCRIPTS", "transcript"]


async def pages(script: Script) -> None:
    """DescribeTopicPartitions."""
    request = m.DescribeTopicPartitionsRequest
    names = [f"{script.name}-{letter}" for letter in "abc"]
    made = await script.quietly(create(*(new(name, 3, 1) for name in names)), 7)
    assert [topic.error_code for topic in made.topics] == [0, 0, 0]

    def requested(*topics: str, limit: int = 2000, cursor: tuple[str, int] | None = None) -> Any:
        at = None if cursor is None else request.Cursor(topic_name=cursor[0], partition_index=cursor[1])
        return request(
            topics=[request.TopicRequest(name=topic) for topic in topics], response_partition_limit=limit, cursor=at
        )

    a, b, c = names
    for each in (
        requested(a),
        requested(c, a),
        requested(a, a),
        requested(b, f"{b}-absent", "a b"),
        requested("a b"),
        requested(".."),
        requested(f"{b}-absent"),
        requested("__consumer_offsets"),
        *(requested(a, b, c, limit=limit) for limit in (1, 2, 3, 4, 6, 9, 10, 0, -1)),
        requested(a, b, c, cursor=(b, 0)),
        requested(a, b, c, cursor=(b, 2), limit=2),
        requested(a, b, c, cursor=(b, 3), limit=2),
        requested(a, b, c, cursor=(b, 9), limit=1),
        requested(a, b, c, cursor=(c, 3)),
        requested(a, b, c, cursor=(c, 1), limit=1),
        requested(a, c, cursor=(b, 1), limit=2),
        requested(a, b, c, cursor=(f"{c}-absent", 0)),
        requested(a, b, c, cursor=("", 1)),
        requested(a, cursor=(a, -1)),
        requested(cursor=(a, -1)),
        requested(a, f"{a}-absent", b, limit=3),
        requested(a, f"{a}-absent", limit=3),
        requested(a, f"{a}-absent", b, limit=4),
        requested(f"{a}-absent", cursor=(f"{a}-absent", 5)),
    ):
        answer = await script.quietly(each, 0)
        _without_eligible(answer)
        script.note(repr(each), answer)
    # All topics: those of this script come last except for the tail of the alphabet.
    for cursor in (None, (a, 0), (b, 2)):
        answer = await script.quietly(requested(cursor=cursor), 0)
        answer.topics = [topic for topic in answer.topics if topic.name.startswith(script.name)]
        _without_eligible(answer)
        script.note(f"all from {cursor}", answer)


def _without_eligible(answer: m.DescribeTopicPartitionsResponse) -> None:
    """KRaft has this list, empty here, and ZooKeeper has not: an empty list there is null here."""
    for topic in answer.topics:
        for partition in topic.partitions:
            assert not partition.eligible_leader_replicas
            assert not partition.last_known_elr
            partition.eligible_leader_replicas = partition.last_known_elr = None


async def newest_times(script: Script) -> None:
    """ListOffsets in its newest versions."""
    request, name = m.ListOffsetsRequest, script.name
    await script.quietly(create(new(name, 2, 1)), 7)
    client = await script.client()
    # Kafka's broker becomes leader a moment after the controller has created the topic.
    early = {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NOT_LEADER_OR_FOLLOWER}
    code = ErrorCode.NOT_LEADER_OR_FOLLOWER
    while code in early:
        code = ErrorCode((await client.produce(name, batch(b"a", b"b", b"c"), version=9)).error_code)
    assert code is ErrorCode.NONE
    for time in (-1, -2, -3, -4, -5, -6, -7, 0, 1_700_000_000_001, 1_800_000_000_000):
        for topic, partition in ((name, 0), (name, 1), (name, 7), (f"{name}-absent", 0)):
            for replica in (-1, -2):
                wanted = request.ListOffsetsPartition(partition_index=partition, timestamp=time)
                topics = [request.ListOffsetsTopic(name=topic, partitions=[wanted])]
                each = request(replica_id=replica, timeout_ms=5_000, topics=topics)
                if partition or topic != name:  # brokers may return any leader epoch with an error
                    await script.ask(each, 10, 11)
                else:
                    for version in (10, 11):
                        answer = await script.quietly(each, version)
                        script.note(f"ListOffsets v{version} {each!r}", answer)


async def newest_features(script: Script) -> None:
    """UpdateFeatures in its newest version: one error for all."""
    for updates in (
        [],
        [("no.such.feature", 1)],
        [("no.such.feature", 0, 2)],
        [("no.such.feature", 1, 0)],
        [("", 1)],
        [("no.such.feature", 1), ("no.such.other", 1)],
        [("group.version", 7)],
        [("group.version", -1, 2)],
        [("transaction.version", 9)],
        [("group.version", 1)],
        [("group.version", 1, 2)],
    ):
        await script.ask(update_features(*updates, validate_only=True), 2)


async def newest_cluster(script: Script) -> None:
    """DescribeCluster and Metadata in their newest versions."""
    describe = m.DescribeClusterRequest
    for what in (
        describe(),
        describe(include_fenced_brokers=True),
        describe(include_cluster_authorized_operations=True),
        describe(endpoint_type=0),
    ):
        answer = await script.quietly(what, 2)
        answer.brokers = [(each.host, each.rack, each.is_fenced) for each in answer.brokers]
        answer.cluster_id, answer.controller_id = bool(answer.cluster_id), answer.controller_id >= 0
        script.note(f"DescribeCluster {what!r}", answer)


SCRIPTS: tuple[Play, ...] = (pages, newest_times, newest_features, newest_cluster)
