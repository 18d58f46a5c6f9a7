"""OffsetFetch (key 9), versions 0 to 10: the committed offsets of a group's consumers.

Version 2 adds a top-level error code and, with null topics, all offsets of the group; 5 the leader epoch (KIP-320), 7
the option to wait for pending commits (KIP-447), 8 several groups (KIP-709), 9 member id and epoch for groups of
KIP-848, which the classic protocol ignores, 10 topic ids in place of names (KIP-516). A partition without an offset has
-1 and no error; in version 0, which was for offsets in ZooKeeper, UNKNOWN_TOPIC_OR_PARTITION. All offsets of the group
are those of topics that the client may describe.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final

from odradek.broker.group.offset_metadata_manager import OffsetMetadataManager
from odradek.broker.group.state.offsets import NO_EPOCH, NO_OFFSET, FetchedOffset
from odradek.broker.metadata.cache import MetadataCache
from odradek.broker.runtime.turns import SlicedList, in_turn, keep, list_of
from odradek.broker.runtime.turns import each as items_of
from odradek.broker.security.auth_helper import AuthHelper
from odradek.broker.security.state.acls import AclOperation, ResourceType
from odradek.protocol import messages as m
from odradek.protocol.errors import ErrorCode
from odradek.protocol.topic_partition import TopicPartition

if TYPE_CHECKING:
    from odradek.broker.network.dispatcher import Call

FIRST_VERSION_WITH_GROUP_ERROR: Final = 2
FIRST_VERSION_WITH_GROUPS: Final = 8
FIRST_VERSION_WITH_TOPIC_IDS: Final = 10
OFFSETS_AT_ONCE: Final = 400
"""Requests for all offsets of groups with more of them are handled in turns with the loop."""
Response = m.OffsetFetchResponse


class OffsetFetch:
    """Handles OffsetFetch."""

    KEY = 9
    VERSIONS = (0, 10)

    def __init__(
        self,
        offsets: OffsetMetadataManager,
        metadata_cache: MetadataCache,
        auth: AuthHelper,
        handle_in_turns: Callable[[Call, Any], None],
    ) -> None:
        """`handle_in_turns` calls `handle` in turns with the loop."""
        self._offsets = offsets
        self._metadata_cache = metadata_cache
        self._auth = auth
        self._handle_in_turns = handle_in_turns

    def handle(self, call: Call, request: m.OffsetFetchRequest) -> m.OffsetFetchResponse | None:
        if not in_turn() and self._implied(call, request) > OFFSETS_AT_ONCE:
            self._handle_in_turns(call, request)
            return None
        if call.version < FIRST_VERSION_WITH_GROUPS:
            return self._one_group(call, request)
        return Response(groups=[self._group(call, group, request.require_stable) for group in request.groups])

    def _implied(self, call: Call, request: m.OffsetFetchRequest) -> int:
        """How many offsets the response has without naming their partitions in the request."""
        if call.version < FIRST_VERSION_WITH_GROUPS:
            return self._offsets.size_of(request.group_id) if request.topics is None else 0
        return sum(self._offsets.size_of(group.group_id) for group in request.groups if group.topics is None)

    def _one_group(self, call: Call, request: m.OffsetFetchRequest) -> m.OffsetFetchResponse:
        version = call.version
        wanted: list[TopicPartition] | None = None
        refused: list[FetchedOffset] = []
        found: list[FetchedOffset] = []
        if request.topics is not None:
            wanted = without_duplicates(
                (topic.name, index) for topic in request.topics for index in topic.partition_indexes
            )
        if not self._may_describe(call, request.group_id):
            error = ErrorCode.GROUP_AUTHORIZATION_FAILED
        else:
            if wanted is not None:
                wanted, refused = self._authorized(call, wanted)
            error, found = self._offsets.fetch(request.group_id, wanted, require_stable=request.require_stable)
        if error:
            if version >= FIRST_VERSION_WITH_GROUP_ERROR:
                return Response(error_code=error)
            found = [FetchedOffset(partition, None, error) for partition in items_of(wanted or ())]
        elif version == 0:
            found = [
                each if each.committed else each._replace(error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
                for each in items_of(found)
            ]
        if wanted is None:
            found = self._described(call, found)
        topics: list[Any] = list_of(())
        for name, offsets in items_of(keep(_by_topic(found + refused if refused else found)).items()):
            answers: list[Any] = list_of(())
            for each in items_of(offsets):
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
        self, call: Call, group: m.OffsetFetchRequest.OffsetFetchRequestGroup, require_stable: bool
    ) -> Response.OffsetFetchResponseGroup:
        if not self._may_describe(call, group.group_id):
            code = ErrorCode.GROUP_AUTHORIZATION_FAILED
            return Response.OffsetFetchResponseGroup(group_id=group.group_id, error_code=code)
        by_id = call.version >= FIRST_VERSION_WITH_TOPIC_IDS
        wanted: list[TopicPartition] | None = None
        refused: list[FetchedOffset] = []
        found: list[FetchedOffset] = []
        unknown = []
        if group.topics is not None:
            wanted = SlicedList()
            for topic in group.topics:
                name = self._metadata_cache.name_of(topic.topic_id) if by_id else topic.name
                if name is None:
                    unknown.append(_unknown_topic(topic))
                else:
                    wanted += [(name, index) for index in topic.partition_indexes]
            wanted, refused = self._authorized(call, without_duplicates(wanted))
        error, found = self._offsets.fetch(
            group.group_id,
            wanted,
            require_stable=require_stable,
            member_id=group.member_id,
            epoch=group.member_epoch,
        )
        if error:
            return Response.OffsetFetchResponseGroup(group_id=group.group_id, error_code=error)
        if wanted is None:
            found = self._described(call, found)
        topics: list[Any] = list_of(())
        for name, offsets in items_of(keep(_by_topic(found + refused if refused else found)).items()):
            if by_id and name not in self._metadata_cache.topics:
                continue  # the response cannot contain an offset of a deleted topic, which has no id
            topics.append(
                Response.OffsetFetchResponseTopics(
                    name=name,
                    topic_id=self._metadata_cache.id_of(name),
                    partitions=list_of(_partition(each) for each in items_of(offsets)),
                )
            )
        return Response.OffsetFetchResponseGroup(group_id=group.group_id, topics=topics + unknown)

    def _may_describe(self, call: Call, group_id: str) -> bool:
        return self._auth.authorize(call, AclOperation.DESCRIBE, ResourceType.GROUP, group_id)

    def _authorized(self, call: Call, wanted: list[TopicPartition]) -> tuple[list[TopicPartition], list[FetchedOffset]]:
        """The partitions of topics that the client may describe, and the answers for the others."""
        if not self._auth.is_enabled:
            return wanted, []
        topics = {topic for topic, _ in items_of(wanted)}
        described = self._auth.filter_by_authorized(call, AclOperation.DESCRIBE, ResourceType.TOPIC, topics)
        refused = [
            FetchedOffset(partition, None, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            for partition in items_of(wanted)
            if partition[0] not in described
        ]
        return [partition for partition in items_of(wanted) if partition[0] in described], refused

    def _described(self, call: Call, found: list[FetchedOffset]) -> list[FetchedOffset]:
        """The offsets of topics that the client may describe."""
        if not self._auth.is_enabled:
            return found
        topics = {each.partition[0] for each in items_of(found)}
        described = self._auth.filter_by_authorized(call, AclOperation.DESCRIBE, ResourceType.TOPIC, topics)
        return [each for each in items_of(found) if each.partition[0] in described]


def without_duplicates(partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
    """The partitions without duplicates."""
    return list(keep(dict.fromkeys(items_of(partitions))))


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
    for each in items_of(found):
        topics.setdefault(each.partition[0], []).append(each)
    return topics
