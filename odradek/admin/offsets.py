"""Offsets of partitions, and the records before them (Kafka: Admin.listOffsets, deleteRecords).

A request goes to the leader of each partition; the leaders of all partitions are asked at the same time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple, TypeVar

from odradek.admin.client import AdminClient, error_of, outcome
from odradek.admin.topics import NO_LEADER
from odradek.protocol import messages as m
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.topic_partition import TopicPartition

T = TypeVar("T")

LATEST: Final = -1
EARLIEST: Final = -2
MAX_TIMESTAMP: Final = -3
EARLIEST_LOCAL: Final = -4
LATEST_TIERED: Final = -5
"""Timestamps with a meaning of their own in ListOffsets."""
NO_OFFSET: Final = -1
"""The offset where no record has the timestamp or a later one."""
CONSUMER: Final = -1
"""The replica id of a client."""
HIGH_WATERMARK: Final = -1
"""The offset that deletes all records of a partition."""


class ListedOffset(NamedTuple):
    """The offset of a timestamp; -1 where no record is as late."""

    offset: int
    timestamp: int
    leader_epoch: int


def list_offsets(
    client: AdminClient,
    timestamps: Mapping[TopicPartition, int],
    *,
    read_committed: bool = False,
    leaders: Mapping[TopicPartition, int] | None = None,
) -> dict[TopicPartition, ListedOffset | KafkaError]:
    """The first offset at or after a timestamp in milliseconds, or at LATEST, EARLIEST and so on, of each partition.

    With `read_committed` the end is the last stable offset, the first one of an open transaction. `leaders` are those
    of metadata that the caller has just received; after an error they are found again.
    """
    requested = m.ListOffsetsRequest

    def request(partitions: list[TopicPartition]) -> m.ListOffsetsRequest:
        topics = [
            requested.ListOffsetsTopic(
                name=topic,
                partitions=[
                    requested.ListOffsetsPartition(partition_index=number, timestamp=timestamps[topic, number])
                    for number in numbers
                ],
            )
            for topic, numbers in by_topic(partitions).items()
        ]
        return requested(replica_id=CONSUMER, isolation_level=int(read_committed), topics=topics)

    def results(answer: m.ListOffsetsResponse) -> dict[TopicPartition, ListedOffset | KafkaError]:
        return {
            (topic.name, each.partition_index): outcome(
                ListedOffset(each.offset, each.timestamp, each.leader_epoch), each.error_code
            )
            for topic in answer.topics
            for each in topic.partitions
        }

    return ask_leaders(client, timestamps, request, results, leaders)


def delete_records(
    client: AdminClient, offsets: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int | KafkaError]:
    """Delete the records before an offset, of each partition; the new start of each log."""
    requested = m.DeleteRecordsRequest

    def request(partitions: list[TopicPartition]) -> m.DeleteRecordsRequest:
        topics = [
            requested.DeleteRecordsTopic(
                name=topic,
                partitions=[
                    requested.DeleteRecordsPartition(partition_index=number, offset=offsets[topic, number])
                    for number in numbers
                ],
            )
            for topic, numbers in by_topic(partitions).items()
        ]
        return requested(topics=topics, timeout_ms=int(client.timeout_s * 1000))

    def results(answer: m.DeleteRecordsResponse) -> dict[TopicPartition, int | KafkaError]:
        return {
            (topic.name, each.partition_index): outcome(each.low_watermark, each.error_code)
            for topic in answer.topics
            for each in topic.partitions
        }

    return ask_leaders(client, offsets, request, results)


def ask_leaders(
    client: AdminClient,
    partitions: Iterable[TopicPartition],
    request: Callable[[list[TopicPartition]], Any],
    results: Callable[[Any], Mapping[TopicPartition, T | KafkaError]],
    leaders: Mapping[TopicPartition, int] | None = None,
) -> dict[TopicPartition, T | KafkaError]:
    """The result of each partition from its leader; the first attempt takes those of `leaders`, if given.

    A partition without a leader is LEADER_NOT_AVAILABLE at once: an election may never come.
    """
    given = [leaders] if leaders is not None else []

    def attempt(pending: list[TopicPartition]) -> dict[TopicPartition, T | KafkaError]:
        found: dict[TopicPartition, T | KafkaError]
        found, by_leader = _grouped(pending, given.pop()) if given else _by_leader(client, pending)
        requests = {leader: request(group) for leader, group in by_leader.items()}
        for leader, answer in client.brokers(requests).items():
            if isinstance(answer, OSError):
                error = KafkaError(ErrorCode.NETWORK_EXCEPTION, str(answer))
                found |= dict.fromkeys(by_leader[leader], error)
            elif isinstance(answer, Exception):
                raise answer
            else:
                found |= results(answer)
        return found

    return client.each(partitions, attempt)


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """The partitions of each topic."""
    grouped: dict[str, list[int]] = {}
    for topic, partition in partitions:
        grouped.setdefault(topic, []).append(partition)
    return grouped


def _grouped(
    partitions: Iterable[TopicPartition], leaders: Mapping[TopicPartition, int]
) -> tuple[dict[TopicPartition, Any], dict[int, list[TopicPartition]]]:
    """As `_by_leader`, from known leaders."""
    errors: dict[TopicPartition, Any] = {}
    groups: dict[int, list[TopicPartition]] = {}
    for place in partitions:
        if leaders[place] == NO_LEADER:
            errors[place] = KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, "the partition has no leader")
        else:
            groups.setdefault(leaders[place], []).append(place)
    return errors, groups


def _by_leader(
    client: AdminClient, partitions: Iterable[TopicPartition]
) -> tuple[dict[TopicPartition, Any], dict[int, list[TopicPartition]]]:
    """Errors of partitions that no broker leads, and the other partitions by their leader."""
    wanted = by_topic(partitions)
    errors: dict[TopicPartition, Any] = {}
    groups: dict[int, list[TopicPartition]] = {}
    for topic in client.metadata(list(wanted)).topics:
        name = topic.name or ""
        leaders = {each.partition_index: each.leader_id for each in topic.partitions}
        for number in wanted[name]:
            if topic.error_code and not leaders:
                errors[name, number] = error_of(topic.error_code)
            elif number not in leaders:
                detail = f"topic {name} has {len(leaders)} partitions, and no partition {number}"
                errors[name, number] = KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, detail)
            elif leaders[number] == NO_LEADER:
                errors[name, number] = KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, "the partition has no leader")
            else:
                groups.setdefault(leaders[number], []).append((name, number))
    return errors, groups
