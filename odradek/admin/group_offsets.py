"""Committed offsets of groups: read, change, delete (Kafka: Admin.listConsumerGroupOffsets and others)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from odradek.admin.client import GROUP, AdminClient, check, error_of, outcome
from odradek.admin.groups import coordinator_of
from odradek.admin.offsets import by_topic
from odradek.protocol import messages as m
from odradek.protocol.errors import KafkaError
from odradek.protocol.topic_partition import TopicPartition

ONE_GROUP: Final = 7
"""The highest version of OffsetFetch with one group; every broker supports it."""
SEVERAL_GROUPS: Final = 8
"""The first version of OffsetFetch with several groups (KIP-709)."""
BY_NAME: Final = 9
"""The highest version of OffsetFetch and of OffsetCommit with names of topics."""
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
        return _committed(answer.topics)

    return client.call(attempt)


def committed_offsets_of_groups(
    client: AdminClient, group_ids: Sequence[str]
) -> dict[str, dict[TopicPartition, CommittedOffset] | KafkaError]:
    """Every committed offset of many groups: one request to each coordinator, where the brokers have KIP-709."""
    requested = m.OffsetFetchRequest

    def attempt(pending: list[str]) -> dict[str, dict[TopicPartition, CommittedOffset] | KafkaError]:
        results: dict[str, dict[TopicPartition, CommittedOffset] | KafkaError] = {}
        by_coordinator: dict[int, list[str]] = {}
        for group_id, found in client.coordinators(GROUP, pending).items():
            if isinstance(found, KafkaError):
                results[group_id] = found
            else:
                by_coordinator.setdefault(found, []).append(group_id)
        for broker_id, names in by_coordinator.items():
            if client.version_at(broker_id, requested) < SEVERAL_GROUPS:
                results |= {name: _of_one(client, name) for name in names}
                continue
            groups = [requested.OffsetFetchRequestGroup(group_id=name, topics=None) for name in names]
            answer: m.OffsetFetchResponse = client.broker(broker_id, requested(groups=groups), BY_NAME)
            for each in answer.groups:
                try:
                    results[each.group_id] = error_of(each.error_code) if each.error_code else _committed(each.topics)
                except KafkaError as error:
                    results[each.group_id] = error
        return results

    return client.each(group_ids, attempt)


def _of_one(client: AdminClient, group_id: str) -> dict[TopicPartition, CommittedOffset] | KafkaError:
    try:
        return committed_offsets(client, group_id)
    except KafkaError as error:
        return error


def _committed(topics: Iterable[Any]) -> dict[TopicPartition, CommittedOffset]:
    """The committed offsets in a response. Raises KafkaError of the first partition with an error."""
    found: dict[TopicPartition, CommittedOffset] = {}
    for topic in topics:
        for each in topic.partitions:
            check(each.error_code)
            if each.committed_offset != NOT_COMMITTED:
                committed = CommittedOffset(each.committed_offset, each.committed_leader_epoch, each.metadata or "")
                found[topic.name, each.partition_index] = committed
    return found


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
