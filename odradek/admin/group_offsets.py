"""Committed offsets of groups: read, change, delete (Kafka: Admin.listConsumerGroupOffsets and others)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from odradek.admin.client import AdminClient, check, outcome
from odradek.admin.groups import coordinator_of
from odradek.admin.offsets import by_topic
from odradek.protocol import messages as m
from odradek.protocol.errors import KafkaError
from odradek.protocol.topic_partition import TopicPartition

ONE_GROUP: Final = 7
"""The highest version of OffsetFetch with one group; every broker supports it."""
BY_NAME: Final = 9
"""The highest version of OffsetCommit with names of topics."""
NOT_COMMITTED: Final = -1


class CommittedOffset(NamedTuple):
    """The offset of the next record that a group reads; -1 in `leader_epoch` is unknown."""

    offset: int
    leader_epoch: int
    metadata: str


def committed_offsets(client: AdminClient, group_id: str) -> dict[TopicPartition, CommittedOffset]:
    """Every committed offset of a group. Raises KafkaError."""

    def attempt() -> dict[TopicPartition, CommittedOffset]:
        coordinator = coordinator_of(client, group_id)
        answer: m.OffsetFetchResponse = client.broker(
            coordinator, m.OffsetFetchRequest(group_id=group_id, topics=None), ONE_GROUP
        )
        check(answer.error_code)
        found: dict[TopicPartition, CommittedOffset] = {}
        for topic in answer.topics:
            for each in topic.partitions:
                check(each.error_code)
                if each.committed_offset != NOT_COMMITTED:
                    committed = CommittedOffset(each.committed_offset, each.committed_leader_epoch, each.metadata or "")
                    found[topic.name, each.partition_index] = committed
        return found

    return client.call(attempt)


def alter_offsets(
    client: AdminClient, group_id: str, offsets: Mapping[TopicPartition, int]
) -> dict[TopicPartition, KafkaError | None]:
    """Commit offsets for a group that has no members."""
    requested = m.OffsetCommitRequest

    def attempt(pending: list[TopicPartition]) -> dict[TopicPartition, KafkaError | None]:
        topics = [
            requested.OffsetCommitRequestTopic(
                name=topic,
                partitions=[
                    requested.OffsetCommitRequestPartition(
                        partition_index=number, committed_offset=offsets[topic, number], committed_metadata=""
                    )
                    for number in numbers
                ],
            )
            for topic, numbers in by_topic(pending).items()
        ]
        request = requested(group_id=group_id, topics=topics)
        answer = client.broker(coordinator_of(client, group_id), request, BY_NAME)
        return {
            (topic.name, each.partition_index): outcome(None, each.error_code)
            for topic in answer.topics
            for each in topic.partitions
        }

    return client.each(offsets, attempt)


def delete_offsets(
    client: AdminClient, group_id: str, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, KafkaError | None]:
    """Delete committed offsets of topics to which no member of the group is subscribed."""
    requested = m.OffsetDeleteRequest

    def attempt(pending: list[TopicPartition]) -> dict[TopicPartition, KafkaError | None]:
        topics = [
            requested.OffsetDeleteRequestTopic(
                name=topic,
                partitions=[requested.OffsetDeleteRequestPartition(partition_index=number) for number in numbers],
            )
            for topic, numbers in by_topic(pending).items()
        ]
        answer = client.broker(coordinator_of(client, group_id), requested(group_id=group_id, topics=topics))
        check(answer.error_code)
        return {
            (topic.name, each.partition_index): outcome(None, each.error_code)
            for topic in answer.topics
            for each in topic.partitions
        }

    return client.each(partitions, attempt)
