"""OffsetCommit (key 8), versions 0 to 10: store the offsets of a group's consumers.

Version 1 adds generation and member id, and in this version only a timestamp for each commit; 2 to 4 a retention time
instead; 6 the leader epoch (KIP-320), 7 the group instance id (KIP-345), 9 member epochs (KIP-848), 10 topic ids in
place of names (KIP-516). Version 0 was for offsets in ZooKeeper; here its commits are stored like all others, as those
of a consumer that assigns partitions itself.

If a request contains a partition twice, the coordinator commits and answers the last entry only; a topic without
partitions is omitted from the response. Metadata of null is stored as an empty string.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from odradek.broker.group.deferred_response import DeferredResponse
from odradek.broker.group.offset_metadata_manager import OffsetMetadataManager
from odradek.broker.group.state.offsets import NO_EXPIRY, CommitRequest, OffsetAndMetadata
from odradek.broker.metadata.cache import MetadataCache
from odradek.broker.runtime.timers import Clock
from odradek.broker.security.auth_helper import AuthHelper
from odradek.broker.security.state.acls import AclOperation, ResourceType
from odradek.protocol import messages as m
from odradek.protocol.errors import ErrorCode
from odradek.protocol.topic_partition import TopicPartition

if TYPE_CHECKING:
    from odradek.broker.network.dispatcher import Call

FIRST_VERSION_WITH_MEMBER_EPOCHS: Final = 9
FIRST_VERSION_WITH_TOPIC_IDS: Final = 10
ENCODED_AT_ONCE: Final = 250
"""Offsets that the group encodes itself, when it stores them."""
NO_TIME: Final = -1
READ: Final = AclOperation.READ
GROUP: Final = ResourceType.GROUP
TOPIC: Final = ResourceType.TOPIC
NO_ERROR: Final = ErrorCode.NONE
UNKNOWN_PARTITION: Final = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
TopicResponse = m.OffsetCommitResponse.OffsetCommitResponseTopic
PartitionResponse = m.OffsetCommitResponse.OffsetCommitResponsePartition
_new: Final = tuple.__new__
"""Makes a named tuple without a call of Python's `__new__`."""


class OffsetCommit:
    """Handles OffsetCommit."""

    KEY = 8
    VERSIONS = (0, 10)

    def __init__(
        self, offsets: OffsetMetadataManager, metadata_cache: MetadataCache, clock: Clock, auth: AuthHelper
    ) -> None:
        self._offsets = offsets
        self._metadata_cache = metadata_cache
        self._clock = clock
        self._auth = auth

    def handle(self, call: Call, request: m.OffsetCommitRequest) -> m.OffsetCommitResponse | None:
        if not self._auth.authorize(call, READ, GROUP, request.group_id):
            return _refusal(request, ErrorCode.GROUP_AUTHORIZATION_FAILED)
        commit: _PlainCommit | _Commit | None = self._plain_commit(call, request)
        if commit is None:
            commit = self._any_commit(call, request)
        if not commit.entries:
            return commit.response(call, [])
        member = request.member_id, request.group_instance_id, request.generation_id_or_member_epoch
        knows_member_epochs = call.version >= FIRST_VERSION_WITH_MEMBER_EPOCHS
        sender: CommitRequest = _new(CommitRequest, (*member, commit.entries, knows_member_epochs, None))
        if len(sender.entries) > ENCODED_AT_ONCE:
            sender = self._offsets.prepared(request.group_id, sender)
        if self._offsets.commit_at_once(request.group_id, sender):
            return commit.stored()
        answer = DeferredResponse(call, commit.response)
        self._offsets.commit(request.group_id, sender, answer)
        response: m.OffsetCommitResponse | None = answer.response()
        return response

    def _plain_commit(self, call: Call, request: m.OffsetCommitRequest) -> _PlainCommit | None:
        """The commit of a request that has one topic, each partition of it once, all of which exist, at the broker's
        time; None for any other, and where an authorizer decides.
        """
        topics = request.topics
        if (
            len(topics) != 1
            or call.version >= FIRST_VERSION_WITH_TOPIC_IDS
            or request.retention_time_ms != NO_TIME
            or self._auth.is_enabled
        ):
            return None
        topic, now_ms = topics[0], self._clock.now_ms()
        name, known = topic.name, self._metadata_cache.topics.get(topic.name)
        count = 0 if known is None else len(known.partitions)
        entries: list[tuple[TopicPartition, OffsetAndMetadata]] = []
        answers: list[PartitionResponse] = []
        for each in topic.partitions:
            index = each.partition_index
            if not 0 <= index < count or each.commit_timestamp != NO_TIME:
                return None
            values = (each.committed_offset, each.committed_leader_epoch, each.committed_metadata or "", now_ms)
            entries.append(((name, index), _new(OffsetAndMetadata, (*values, NO_EXPIRY))))
            answers.append(PartitionResponse(partition_index=index))
        if not entries or (len(entries) > 1 and len(dict(entries)) < len(entries)):
            return None
        return _PlainCommit(
            entries,
            m.OffsetCommitResponse(topics=[TopicResponse(name=name, topic_id=topic.topic_id, partitions=answers)]),
        )

    def _any_commit(self, call: Call, request: m.OffsetCommitRequest) -> _Commit:
        commit = _Commit(self._clock.now_ms(), request.retention_time_ms)
        for topic in request.topics:
            name: str | None = topic.name
            if call.version >= FIRST_VERSION_WITH_TOPIC_IDS:
                name = self._metadata_cache.name_of(topic.topic_id)
            if name is None:
                commit.add(topic, None, 0, ErrorCode.UNKNOWN_TOPIC_ID)
            elif self._auth.authorize(call, READ, TOPIC, name):
                commit.add(topic, name, self._partition_count(name), UNKNOWN_PARTITION)
            else:
                commit.add(topic, None, 0, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        return commit

    def _partition_count(self, name: str) -> int:
        topic = self._metadata_cache.topics.get(name)
        return len(topic.partitions) if topic is not None else 0


def _refusal(request: m.OffsetCommitRequest, code: ErrorCode) -> m.OffsetCommitResponse:
    """The response with one error for all partitions."""
    return m.OffsetCommitResponse(
        topics=[
            TopicResponse(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    PartitionResponse(partition_index=each.partition_index, error_code=code)
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


class _PlainCommit:
    """One request whose entries are all for the group; the response has the same order, and no errors yet."""

    __slots__ = ("_response", "entries")

    def __init__(
        self, entries: list[tuple[TopicPartition, OffsetAndMetadata]], response: m.OffsetCommitResponse
    ) -> None:
        self.entries = entries
        self._response = response

    def stored(self) -> m.OffsetCommitResponse:
        """The response where all entries are stored."""
        return self._response

    def response(self, _: Call, codes: list[ErrorCode]) -> m.OffsetCommitResponse:
        """The response, given the codes of the entries."""
        for answer, code in zip(self._response.topics[0].partitions, codes, strict=True):
            answer.error_code = code
        return self._response


class _Answered:
    """The answer for a topic of the request, and its partitions by index."""

    __slots__ = ("by_index", "topic")

    def __init__(self, topic: TopicResponse) -> None:
        self.topic = topic
        self.by_index: dict[int, PartitionResponse] = {}


class _Commit:
    """Any request: the entries for the group, and the response in the order of the request."""

    __slots__ = ("_awaiting", "_entries", "_now_ms", "_retention_ms", "_topics")

    def __init__(self, now_ms: int, retention_ms: int) -> None:
        self._now_ms = now_ms
        self._retention_ms = retention_ms
        self._topics: dict[tuple[str, bytes], _Answered] = {}
        self._awaiting: dict[TopicPartition, PartitionResponse] = {}
        self._entries: dict[TopicPartition, OffsetAndMetadata] = {}

    @property
    def entries(self) -> list[tuple[TopicPartition, OffsetAndMetadata]]:
        """What the group gets, the last one of each partition."""
        return list(self._entries.items())

    def add(
        self,
        topic: m.OffsetCommitRequest.OffsetCommitRequestTopic,
        name: str | None,
        partition_count: int,
        refusal: ErrorCode,
    ) -> None:
        """Add one topic of the request.

        `refusal` is the error of partitions that the group does not get: all of them if `name` is None. It is the
        answer for the others, too, until the group returns a code.
        """
        if not topic.partitions:
            return
        expire_ms = NO_EXPIRY if self._retention_ms == NO_TIME else self._now_ms + self._retention_ms
        key = topic.name, topic.topic_id
        answered = self._topics.get(key)
        if answered is None:
            answered = self._topics[key] = _Answered(TopicResponse(name=topic.name, topic_id=topic.topic_id))
        for partition in topic.partitions:
            index = partition.partition_index
            answer = answered.by_index.get(index)
            if answer is None:
                answer = answered.by_index[index] = PartitionResponse(partition_index=index, error_code=refusal)
                answered.topic.partitions.append(answer)
            if name is None or not 0 <= index < partition_count:
                continue
            at = name, index
            self._entries[at] = OffsetAndMetadata(
                partition.committed_offset,
                partition.committed_leader_epoch,
                partition.committed_metadata or "",
                self._now_ms if partition.commit_timestamp == NO_TIME else partition.commit_timestamp,
                expire_ms,
            )
            self._awaiting[at] = answer

    def stored(self) -> m.OffsetCommitResponse:
        """The response where all entries are stored."""
        for answer in self._awaiting.values():
            answer.error_code = NO_ERROR
        return m.OffsetCommitResponse(topics=[answered.topic for answered in self._topics.values()])

    def response(self, _: Call, codes: list[ErrorCode]) -> m.OffsetCommitResponse:
        """The response, given the codes of the entries."""
        for answer, code in zip(self._awaiting.values(), codes, strict=True):
            answer.error_code = code
        return m.OffsetCommitResponse(topics=[answered.topic for answered in self._topics.values()])
