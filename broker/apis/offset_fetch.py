"""OffsetFetch (key 9), versions 0 to 10: the committed offsets of a group's consumers.

Version 2 adds a top-level error code and, with null topics, all offsets of the group; 5 the leader epoch (KIP-320), 7
the option to wait for pending commits (KIP-447), 8 several groups (KIP-709), 9 member id and epoch for groups of
KIP-848, which the classic protocol ignores, 10 topic ids in place of names (KIP-516). A partition without an offset has
-1 and no error; in version 0, which was for offsets in ZooKeeper, UNKNOWN_TOPIC_OR_PARTITION.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from odradek.broker.group.offset_metadata_manager import OffsetMetadataManager
from odradek.broker.group.state.offsets import NO_EPOCH, NO_OFFSET, FetchedOffset
from odradek.broker.metadata.cache import MetadataCache
from odradek.protocol import messages as m
from odradek.protocol.errors import ErrorCode
from odradek.protocol.topic_partition import TopicPartition

if TYPE_CHECKING:
    from odradek.broker.network.dispatcher import Call

FIRST_VERSION_WITH_GROUP_ERROR: Final = 2
FIRST_VERSION_WITH_GROUPS: Final = 8
FIRST_VERSION_WITH_TOPIC_IDS: Final = 10
Response = m.OffsetFetchResponse


class OffsetFetch:
    """Handles OffsetFetch."""

    KEY = 9
    VERSIONS = (0, 10)

    def __init__(self, offsets: OffsetMetadataManager, metadata_cache: MetadataCache) -> None:
        self._offsets = offsets
        self._metadata_cache = metadata_cache

    def handle(self, call: Call, request: m.OffsetFetchRequest) -> m.OffsetFetchResponse:
        if call.version < FIRST_VERSION_WITH_GROUPS:
            return self._one_group(call.version, request)
        by_id = call.version >= FIRST_VERSION_WITH_TOPIC_IDS
        return Response(groups=[self._group(group, request.require_stable, by_id) for group in request.groups])

    def _one_group(self, version: int, request: m.OffsetFetchRequest) -> m.OffsetFetchResponse:
        wanted: list[TopicPartition] | None = None
        if request.topics is not None:
            wanted = _once((topic.name, index) for topic in request.topics for index in topic.partition_indexes)
        error, found = self._offsets.fetch(request.group_id, wanted, require_stable=request.require_stable)
        if error:
            if version >= FIRST_VERSION_WITH_GROUP_ERROR:
                return Response(error_code=error)
            found = [FetchedOffset(partition, None, error) for partition in wanted or ()]
        elif version == 0:
            found = [
                each if each.committed else each._replace(error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION) for each in found
            ]
        topics = []
        for name, offsets in _by_topic(found).items():
            answers = []
            for each in offsets:
                offset, leader_epoch, metadata = _fields(each)
                answers.append(
                    Response.OffsetFetchResponsePartition(
                        partition_index=each.partition[1],
                        committed_offset=offset,
                        committed_leader_epoch=leader_epoch,
                        metadata=metadata,
                        error_code=each.error,
                    )
                )
            topics.append(Response.OffsetFetchResponseTopic(name=name, partitions=answers))
        return Response(topics=topics)

    def _group(
        self, group: m.OffsetFetchRequest.OffsetFetchRequestGroup, require_stable: bool, by_id: bool
    ) -> Response.OffsetFetchResponseGroup:
        wanted: list[TopicPartition] | None = None
        unknown = []
        if group.topics is not None:
            wanted = []
            for topic in group.topics:
                name = self._metadata_cache.name_of(topic.topic_id) if by_id else topic.name
                if name is None:
                    unknown.append(_unknown_topic(topic))
                else:
                    wanted += [(name, index) for index in topic.partition_indexes]
        error, found = self._offsets.fetch(
            group.group_id,
            wanted and _once(wanted),
            require_stable=require_stable,
            member_id=group.member_id,
            epoch=group.member_epoch,
        )
        if error:
            return Response.OffsetFetchResponseGroup(group_id=group.group_id, error_code=error)
        topics = []
        for name, offsets in _by_topic(found).items():
            if by_id and name not in self._metadata_cache.topics:
                continue  # the response cannot contain an offset of a deleted topic, which has no id
            topics.append(
                Response.OffsetFetchResponseTopics(
                    name=name,
                    topic_id=self._metadata_cache.id_of(name),
                    partitions=[_partition(each) for each in offsets],
                )
            )
        return Response.OffsetFetchResponseGroup(group_id=group.group_id, topics=topics + unknown)


def _once(partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
    """The partitions without duplicates."""
    return list(dict.fromkeys(partitions))


def _partition(found: FetchedOffset) -> Response.OffsetFetchResponsePartitions:
    offset, leader_epoch, metadata = _fields(found)
    return Response.OffsetFetchResponsePartitions(
        partition_index=found.partition[1],
        committed_offset=offset,
        committed_leader_epoch=leader_epoch,
        metadata=metadata,
        error_code=found.error,
    )


def _fields(found: FetchedOffset) -> tuple[int, int, str]:
    committed = found.committed
    return (NO_OFFSET, NO_EPOCH, "") if committed is None else committed[:3]


def _unknown_topic(topic: m.OffsetFetchRequest.OffsetFetchRequestTopics) -> Response.OffsetFetchResponseTopics:
    partitions = [_partition(FetchedOffset(("", i), None, ErrorCode.UNKNOWN_TOPIC_ID)) for i in topic.partition_indexes]
    return Response.OffsetFetchResponseTopics(topic_id=topic.topic_id, partitions=partitions)


def _by_topic(found: list[FetchedOffset]) -> dict[str, list[FetchedOffset]]:
    topics: dict[str, list[FetchedOffset]] = {}
    for each in found:
        topics.setdefault(each.partition[0], []).append(each)
    return topics
