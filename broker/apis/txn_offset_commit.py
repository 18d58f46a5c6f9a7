"""TxnOffsetCommit (key 28), versions 0 to 5: store offsets that become valid when the producer's transaction commits.

Version 2 adds the leader epoch (KIP-320); 3 the generation and member id of the consumer, so that a consumer that was
replaced cannot commit any more (KIP-447); 4 TRANSACTION_ABORTABLE as an error. From version 5 on the group coordinator
adds its partition of `__consumer_offsets` to the transaction; before, the producer sent AddOffsetsToTxn for that
(KIP-890).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from odradek.broker.group.deferred_response import DeferredResponse
from odradek.broker.group.offset_metadata_manager import OffsetMetadataManager
from odradek.broker.group.state.offsets import CommitRequest, OffsetAndMetadata
from odradek.broker.metadata.cache import MetadataCache
from odradek.broker.replication.transaction_verification import ProducerTransaction, Support
from odradek.broker.runtime.timers import Clock
from odradek.broker.security.auth_helper import AuthHelper
from odradek.broker.security.state.acls import AclOperation, ResourceType
from odradek.protocol import messages as m
from odradek.protocol.errors import ErrorCode
from odradek.protocol.topic_partition import TopicPartition

if TYPE_CHECKING:
    from odradek.broker.network.dispatcher import Call

KNOWS_LOADING: Final = 2
KNOWS_ABORTABLE: Final = 4
ADDS_PARTITION: Final = 5
PartitionResponse = m.TxnOffsetCommitResponse.TxnOffsetCommitResponsePartition
TopicResponse = m.TxnOffsetCommitResponse.TxnOffsetCommitResponseTopic


class TxnOffsetCommit:
    """Handles TxnOffsetCommit."""

    KEY = 28
    VERSIONS = (0, 5)

    def __init__(
        self, offsets: OffsetMetadataManager, metadata_cache: MetadataCache, clock: Clock, auth: AuthHelper
    ) -> None:
        self._offsets = offsets
        self._metadata_cache = metadata_cache
        self._clock = clock
        self._auth = auth

    def handle(self, call: Call, request: m.TxnOffsetCommitRequest) -> m.TxnOffsetCommitResponse | None:
        refusal = self._refusal(call, request)
        if refusal:
            return _refused(request, refusal)
        commit = _Commit(self._clock.now_ms())
        for topic in request.topics:
            if self._auth.authorize(call, AclOperation.READ, ResourceType.TOPIC, topic.name):
                known = self._metadata_cache.topics.get(topic.name)
                partition_count = len(known.partitions) if known is not None else 0
                commit.add(topic, partition_count, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            else:
                commit.add(topic, 0, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        if not commit.entries:
            return commit.response(call, [])
        entries = list(commit.entries.items())
        sender = CommitRequest(request.member_id, request.group_instance_id, request.generation_id, entries)
        sender = self._offsets.prepared(request.group_id, sender)
        transaction = ProducerTransaction(request.transactional_id, request.producer_id, request.producer_epoch)
        answer = DeferredResponse(call, commit.response)
        self._offsets.commit_in_transaction(request.group_id, sender, transaction, _support(call.version), answer)
        response: m.TxnOffsetCommitResponse | None = answer.response()
        return response

    def _refusal(self, call: Call, request: m.TxnOffsetCommitRequest) -> ErrorCode:
        """The error of the whole request if the sender may not commit for this transactional id or group."""
        auth = self._auth
        if not auth.authorize(call, AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id):
            return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        if not auth.authorize(call, AclOperation.READ, ResourceType.GROUP, request.group_id):
            return ErrorCode.GROUP_AUTHORIZATION_FAILED
        return ErrorCode.NONE


def _refused(request: m.TxnOffsetCommitRequest, code: ErrorCode) -> m.TxnOffsetCommitResponse:
    """The response with one error for all partitions."""
    return m.TxnOffsetCommitResponse(
        topics=[
            TopicResponse(
                name=topic.name,
                partitions=[
                    PartitionResponse(partition_index=each.partition_index, error_code=code)
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


class _Commit:
    """One request: the entries for the group, and the response in the order of the request."""

    __slots__ = ("_answers", "_awaiting", "_now_ms", "_topics", "entries")

    def __init__(self, now_ms: int) -> None:
        self._now_ms = now_ms
        self._topics: dict[str, TopicResponse] = {}
        self._answers: dict[TopicPartition, PartitionResponse] = {}
        self._awaiting: dict[TopicPartition, PartitionResponse] = {}
        self.entries: dict[TopicPartition, OffsetAndMetadata] = {}

    def add(
        self, topic: m.TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic, partition_count: int, refusal: ErrorCode
    ) -> None:
        """Add one topic of the request. Of several entries for a partition, the last one is valid.

        `refusal` is the error of partitions that do not exist (all if `partition_count` is 0).
        """
        for partition in topic.partitions:
            key = topic.name, partition.partition_index
            answer = self._answers.get(key)
            if answer is None:
                answer = self._answers[key] = PartitionResponse(
                    partition_index=partition.partition_index, error_code=refusal
                )
                answered = self._topics.setdefault(topic.name, TopicResponse(name=topic.name))
                answered.partitions.append(answer)
            if 0 <= partition.partition_index < partition_count:
                self.entries[key] = OffsetAndMetadata(
                    partition.committed_offset,
                    partition.committed_leader_epoch,
                    partition.committed_metadata or "",
                    self._now_ms,
                )
                self._awaiting[key] = answer

    def response(self, call: Call, codes: list[ErrorCode]) -> m.TxnOffsetCommitResponse:
        """The response, given the codes of the entries."""
        for answer, code in zip(self._awaiting.values(), codes, strict=True):
            if code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and call.version < KNOWS_LOADING:
                code = ErrorCode.COORDINATOR_NOT_AVAILABLE
            answer.error_code = code
        return m.TxnOffsetCommitResponse(topics=list(self._topics.values()))


def _support(version: int) -> Support:
    if version >= ADDS_PARTITION:
        return Support.ADDS
    return Support.ALL_ERRORS if version >= KNOWS_ABORTABLE else Support.OLD_ERRORS
