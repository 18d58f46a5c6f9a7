"""Offset metadata manager: commits, fetches and deletion of offsets (Kafka: OffsetMetadataManager).

Offsets of a transaction are appended when the transaction coordinator has confirmed the transaction, and become valid
with its commit marker. The rules are those of Kafka's OffsetMetadataManager.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from odradek.broker.group.groups import GroupRuntime, Groups
from odradek.broker.group.log import TransactionalLog
from odradek.broker.group.state.group import COMMIT_ERRORS
from odradek.broker.group.state.offsets import CommitRequest, FetchedOffset, next_position
from odradek.broker.group.state.records import offset_record
from odradek.broker.runtime.turns import each as items_of
from odradek.broker.runtime.turns import in_turn, keep
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.topic_partition import TopicPartition

if TYPE_CHECKING:
    from odradek.broker.replication.transaction_verification import ProducerTransaction, Support


FETCHED_AT_ONCE: Final = 1000
"""Offsets that are read before the loop serves others, in the turn of a large request."""
DELETED_AT_ONCE: Final = 1000
"""Offsets whose tombstones are one append: three milliseconds."""


class OffsetMetadataManager:
    """The requests for committed offsets, and the markers of the transactions that have offsets."""

    def __init__(self, groups: Groups, runtime: GroupRuntime, transactional_log: TransactionalLog) -> None:
        self._groups = groups
        self._runtime = runtime
        self._transactional_log = transactional_log

    def prepared(self, group_id: str, request: CommitRequest) -> CommitRequest:
        """The request; in a turn, with its records, which take most of the time of a large one."""
        if not in_turn():
            return request
        records = [offset_record(group_id, *entry) for entry in items_of(request.entries)]
        return request._replace(records=keep(records))

    def commit_at_once(self, group_id: str, request: CommitRequest) -> bool:
        """OffsetCommit of offsets that the group stores, all of them, and that are durable when this returns: the
        common case without replicas. Returns False where nothing is done, and `commit` has to answer.
        """
        group = self._runtime.find_active(self._groups.partition_of(group_id), group_id)
        records = None if group is None else group.records_of_commit(request)
        if group is None or records is None or not self._runtime.append_at_once(group, records):
            return False
        group.offsets.put(request.entries)
        if request.member_id:
            self._groups.perform(group, group.membership.seen(request.member_id, self._groups.now()))
        return True

    def commit(self, group_id: str, request: CommitRequest, answer: Callable[[list[ErrorCode]], None]) -> None:
        """OffsetCommit: answered with one code for each entry."""
        error, group = self._groups.look_up(group_id, may_be_empty=True)
        if group is None and not error:
            if request.generation < 0:
                group = self._groups.create(
                    group_id
                )  # a consumer that assigns partitions itself and only stores offsets
            else:
                error = ErrorCode.ILLEGAL_GENERATION
        if group is None:
            answer([error] * len(request.entries))
            return
        self._groups.perform(group, group.commit(answer, request, self._groups.now()))

    def commit_in_transaction(
        self,
        group_id: str,
        request: CommitRequest,
        transaction: ProducerTransaction,
        support: Support,
        answer: Callable[[list[ErrorCode]], None],
    ) -> None:
        """TxnOffsetCommit: answered, once durable, with a code for each entry.

        The commit marker makes the offsets valid.
        """
        error = self._groups.check(group_id)
        if error:
            answer([error] * len(request.entries))
            return
        permitted = partial(self._commit_permitted, group_id, request, transaction.producer_id, answer)
        self._transactional_log.request_permit(self._groups.partition_of(group_id), transaction, support, permitted)

    def _commit_permitted(
        self,
        group_id: str,
        request: CommitRequest,
        producer_id: int,
        answer: Callable[[list[ErrorCode]], None],
        error: ErrorCode,
        permit: Any,
    ) -> None:
        error = COMMIT_ERRORS.get(error, error) or self._groups.check(group_id)
        group = self._groups.find(group_id) if not error else None
        if group is None and not error:
            if request.generation < 0:
                group = self._groups.create(group_id)
            else:
                error = ErrorCode.UNKNOWN_MEMBER_ID
        if group is None:
            answer([error] * len(request.entries))
            return
        shard = self._runtime.shard(self._groups.partition_of(group_id))
        assert shard is not None, "the partition of a group is active"
        shard.begin_transaction(producer_id, group_id)
        self._groups.perform(group, group.commit_in_transaction(answer, request, producer_id, permit))

    def before_commit(self, partition: int, producer_id: int) -> None:
        """Append offsets again that precede a tombstone, before the commit marker of their transaction is written.

        The offsets are valid from the marker on. Without the second append, compaction would remove them because of the
        tombstone, and a load would miss them. Raises KafkaError where the marker must not be written yet; the
        transaction coordinator retries it.
        """
        error, shard = self._runtime.check(partition), self._runtime.shard(partition)
        if error is ErrorCode.COORDINATOR_NOT_AVAILABLE:
            return  # the partition cannot be read
        if error or shard is None:
            # Kafka 4.x gives this error while its coordinator loads: only a loaded coordinator has the pending offsets.
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"__consumer_offsets-{partition} is not loaded")
        for group in shard.groups_in_transaction(producer_id):
            for at, committed in group.offsets.overtaken(producer_id):
                record = offset_record(group.group_id, at, committed)
                self._transactional_log.append_again(partition, producer_id, [record])
                group.offsets.replay(at, committed, producer_id)

    def end_transaction(self, partition: int, producer_id: int, commit: bool) -> None:
        """Apply a marker of `__consumer_offsets`: the producer's pending offsets become valid, or are discarded."""
        shard = self._runtime.shard(partition)
        if shard is not None:
            shard.end_transaction(producer_id, commit)

    def fetch(
        self,
        group_id: str,
        partitions: list[TopicPartition] | None,
        *,
        require_stable: bool,
        member_id: str | None = None,
        epoch: int = -1,
    ) -> tuple[ErrorCode, list[FetchedOffset]]:
        """OffsetFetch of these partitions, or of all that have an offset; the consumer protocol checks the member."""
        error = self._groups.check(group_id, may_be_empty=True)
        if error:
            return error, []
        group = self._groups.find(group_id)
        if group is None:
            return ErrorCode.NONE, [FetchedOffset(partition, None) for partition in partitions or ()]
        error = group.check_fetch(member_id, epoch)
        if error:
            return error, []
        offsets = group.offsets
        wanted = keep(offsets.partitions()) if partitions is None else partitions
        found: list[FetchedOffset] = []
        for first in items_of(range(0, len(wanted), FETCHED_AT_ONCE)):
            found += offsets.fetch(wanted[first : first + FETCHED_AT_ONCE], require_stable)
        return ErrorCode.NONE, found

    def size_of(self, group_id: str) -> int:
        """The number of partitions with an offset in a group."""
        _, group = self._groups.look_up(group_id, may_be_empty=True)
        return 0 if group is None else group.offsets.count

    def delete_offsets(self, group_id: str, partitions: list[TopicPartition]) -> tuple[ErrorCode, list[ErrorCode]]:
        """OffsetDelete: one code for all, and when that is NONE one for each partition.

        The offsets of many partitions are deleted in parts; a part that the log rejects ends the request.
        """
        codes: list[ErrorCode] = []
        for first in items_of(range(0, max(1, len(partitions)), DELETED_AT_ONCE)):
            error, group = self._groups.look_up(group_id)
            if group is None and first and not error:  # nothing was left of it after the part before
                codes += [ErrorCode.NONE] * (len(partitions) - first)
                break
            if group is None:
                return error or ErrorCode.GROUP_ID_NOT_FOUND, []
            part = partitions[first : first + DELETED_AT_ONCE]
            try:
                of_part, effects = group.delete_offsets(part, self._groups.now())
            except KafkaError as refused:
                return refused.code, []
            self._groups.perform_last(group, effects)
            if group.refusal:
                return COMMIT_ERRORS.get(group.refusal, group.refusal), codes
            codes += of_part
        return ErrorCode.NONE, codes

    def forget_partitions(self, partitions: list[TopicPartition]) -> None:
        """Remove the offsets that any group here has of these deleted topic partitions."""
        gone, position = dict.fromkeys(partitions), next_position()
        self._groups.change_offsets(
            lambda group: group.offsets.among(gone),
            lambda group, part, now: group.forget(part, position, now),
        )
