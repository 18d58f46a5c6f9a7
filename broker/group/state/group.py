"""Group: the membership and the offsets of one group, and the rules that need both (Kafka: GroupMetadata, Group).

The membership decides which senders may commit; the offsets decide whether a group without members is kept. Both
change only by records of `__consumer_offsets`: a request returns the records to append, and when they are durable, the
code that also replays them after a failover applies them. The head of `classic_membership` lists the states of a group
and their transitions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any, Final

from odradek.broker.coordinator.state.pending_writes import COMMITTED
from odradek.broker.group.state.classic_group import CONSUMER
from odradek.broker.group.state.classic_membership import Membership
from odradek.broker.group.state.classic_requests import (
    STORE_ERRORS,
    ClassicGroupState,
    GenerationStored,
    JoinRequest,
    ReturnStored,
    SyncRequest,
)
from odradek.broker.group.state.consumer_group import ConsumerMembership
from odradek.broker.group.state.consumer_group_classic_members import ClassicMembers
from odradek.broker.group.state.consumer_group_pending_writes import AppendToken, settle
from odradek.broker.group.state.consumer_group_requests import JOINING, HeartbeatRequest, HeartbeatResult, Topics
from odradek.broker.group.state.migration import downgraded, may_downgrade, upgraded
from odradek.broker.group.state.offsets import CommitRequest, Offsets, Removed, Stage
from odradek.broker.group.state.records import group_key, offset_key, offset_record
from odradek.broker.group.state.settings import GroupSettings
from odradek.broker.runtime.state.effects import Append, Each, Effect, KeyValue, Now, Reply, TimerName
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.topic_partition import TopicPartition

# The error of a commit that the log refuses (Kafka's GroupMetadataManager.maybeConvertOffsetCommitError).
COMMIT_ERRORS: Final = {
    ErrorCode.NETWORK_EXCEPTION: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
    ErrorCode.INVALID_FETCH_SIZE: ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
}

NO_ERROR: Final = ErrorCode.NONE

Undo = Callable[[], None]


class OffsetsStored:
    """Token of the append of a commit, with the codes of entries that were refused before the append."""

    __slots__ = ("reply_to", "stage", "verdicts")

    def __init__(self, stage: Stage, reply_to: Any, verdicts: list[ErrorCode]) -> None:
        self.stage = stage
        self.reply_to = reply_to
        self.verdicts = verdicts


class Group:
    """The state machine. Methods that take `now` are events; the caller performs the returned effects in order."""

    __slots__ = ("_replaced", "_settings", "_topics", "group_id", "membership", "offsets", "refusal")

    def __init__(self, group_id: str, settings: GroupSettings, now: Now, topics: Topics) -> None:
        self.group_id = group_id
        self.membership: Membership | ConsumerMembership = Membership(group_id, settings, now)
        """The members: the state machine of the classic protocol or of the consumer protocol."""
        self.offsets = Offsets()
        self._settings = settings
        self._topics = topics
        self.refusal = ErrorCode.NONE
        """Why the log refused the last departure or deletion; NONE if it did not, or the outcome is open."""
        self._replaced: Membership | ConsumerMembership | None = None
        """During a revert that restores a membership which had ended: the membership that came after it."""

    @property
    def is_dead(self) -> bool:
        """Whether the group has ended, so that its id can be used again."""
        return self.membership.is_dead

    @property
    def is_empty(self) -> bool:
        """Whether the group exists and has no members."""
        return self.membership.is_empty

    # --- membership, in either protocol ---

    def consumer_heartbeat(self, token: Any, request: HeartbeatRequest, unique: str, now: Now) -> list[Effect]:
        """ConsumerGroupHeartbeat; it converts a classic group to the consumer protocol where the settings allow it.

        Answered with a HeartbeatResult; `unique` becomes the id of a member that has none.
        """
        former = self.membership
        if isinstance(former, Membership):
            try:
                effects = self._upgrade(former, token, request, unique, now)
            except KafkaError as refused:
                effects = [Reply(token, HeartbeatResult(refused.code, refused.message))]
        else:
            effects = former.heartbeat(token, request, unique, now)
        return effects + self._downgrade_if_due(now)

    def join(self, token: Any, request: JoinRequest, unique: str, now: Now) -> list[Effect]:
        """JoinGroup. Answered with a JoinResult; a new member id ends in `unique`."""
        effects: list[Effect] = []
        former = self.membership
        if isinstance(former, ConsumerMembership) and self.is_empty:
            effects = _undone_last(former.erase(), self._way_back())
            self.membership = Membership(self.group_id, self._settings, now)
        effects += self._classic.join(token, request, unique, now)
        return effects + self._downgrade_if_due(now)

    def sync(self, token: Any, request: SyncRequest, now: Now) -> list[Effect]:
        """SyncGroup. Answered with a SyncResult."""
        return self._classic.sync(token, request, now)

    def heartbeat(
        self, member_id: str, instance_id: str | None, generation: int, now: Now
    ) -> tuple[ErrorCode, list[Effect]]:
        """Heartbeat."""
        error, effects = self._classic.heartbeat(member_id, instance_id, generation, now)
        return error, effects

    def leave(self, member_id: str, instance_id: str | None, now: Now) -> tuple[ErrorCode, list[Effect]]:
        """One member of a LeaveGroup."""
        self.refusal = ErrorCode.NONE
        error, effects = self._classic.leave(member_id, instance_id, now)
        return error, effects + self._downgrade_if_due(now)

    def begin_anew(self, now: Now) -> None:
        """Reuse the id of a dead group before its tombstone is durable."""
        self.membership = Membership(self.group_id, self._settings, now)

    def timer(self, name: TimerName, now: Now) -> list[Effect]:
        """Handle a timer of the membership that has fired."""
        return self.membership.timer(name, now) + self._downgrade_if_due(now)

    def loaded(self, now: Now) -> list[Effect]:
        """Start new sessions after a load of the group."""
        return self.membership.loaded(now)

    def unload(self, now: Now, each: Each = iter) -> list[Effect]:
        """End the group because this broker no longer coordinates it: answer every waiting request, and leave the
        timers to the shell. The loop over `each` may be interrupted.
        """
        membership = self.membership
        return membership.resign(now, each) if isinstance(membership, Membership) else membership.unload(now)

    @property
    def _classic(self) -> Membership | ClassicMembers:
        """The membership that serves the classic protocol."""
        if isinstance(self.membership, ConsumerMembership):
            return ClassicMembers(self.membership, self._settings, self._topics)
        return self.membership

    def _upgrade(
        self, classic: Membership, token: Any, request: HeartbeatRequest, unique: str, now: Now
    ) -> list[Effect]:
        """Append the group and its new member as a group of the consumer protocol, in one batch.

        Raises KafkaError(GROUP_ID_NOT_FOUND) where the group must stay classic.
        """
        if request.epoch != JOINING:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {self.group_id} is not a consumer group.")
        group = upgraded(classic.group, self._settings, self._topics)
        effects = group.heartbeat(token, request, unique, now)
        if not any(isinstance(effect, Append) for effect in effects):
            return effects  # the member was refused
        effects = _undone_first(effects, self._way_back())
        self.membership = group
        return [*classic.unload(now, ErrorCode.REBALANCE_IN_PROGRESS), *effects, *group.loaded(now)]

    def _downgrade_if_due(self, now: Now) -> list[Effect]:
        group = self.membership
        if not isinstance(group, ConsumerMembership) or not may_downgrade(group, self._settings):
            return []
        way_back = self._way_back()
        self.membership, state = downgraded(group, self._settings, self._topics, now)
        return [*_undone_last(group.erase(state), way_back), *self.membership.loaded(now, changed=True)]

    def _way_back(self) -> Undo:
        """A function that restores the present membership."""
        membership = self.membership
        if isinstance(membership, Membership):
            classic = membership.group
            was = (classic.state, classic.state_since_ms, classic.in_log)
            return partial(self._go_back, membership, was)
        return partial(self._go_back, membership, None)

    def _go_back(
        self,
        membership: Membership | ConsumerMembership,
        was: tuple[ClassicGroupState, int | None, bytes | None] | None,
    ) -> None:
        if isinstance(membership, Membership) and was is not None:
            classic = membership.group
            classic.state, classic.state_since_ms, classic.in_log = was
        self._replaced = self._replaced or self.membership
        self.membership = membership

    # --- offsets ---

    def commit(self, token: Any, request: CommitRequest, now: Now) -> list[Effect]:
        """Store offsets. Answered, once they are durable, with one error code for each entry, in order."""
        error = _check_commit(self.membership, request)
        if error:
            return [Reply(token, [error] * len(request.entries))]
        effects = self.membership.seen(request.member_id, now)
        return effects + self._store(token, request)

    def commit_in_transaction(self, token: Any, request: CommitRequest, producer_id: int, permit: Any) -> list[Effect]:
        """Store offsets that become valid once the producer's transaction has committed. Answered as `commit` is.

        Producers from before KIP-447 send no member id, and their commits are accepted unchecked. A rebalance in
        progress does not prevent the commit: members of the new generation that request stable offsets cannot read
        these before the transaction has ended.
        """
        error = ErrorCode.NONE
        if self.is_dead:
            error = ErrorCode.COORDINATOR_NOT_AVAILABLE
        elif request.generation >= 0 or request.member_id or request.instance_id is not None:
            error = _check_commit(self.membership, request)
        if error is ErrorCode.STALE_MEMBER_EPOCH:
            error = ErrorCode.ILLEGAL_GENERATION  # STALE_MEMBER_EPOCH is unexpected here, so fatal to a producer
        if error and error is not ErrorCode.REBALANCE_IN_PROGRESS:
            return [Reply(token, [error] * len(request.entries))]
        return self._store(token, request, producer_id, permit)

    def records_of_commit(self, request: CommitRequest) -> list[KeyValue] | None:
        """The records of a commit, if all of its offsets may be stored; otherwise None, and `commit` has the errors."""
        if _check_commit(self.membership, request):
            return None
        limit, records = self._settings.offset_metadata_max_bytes, []
        for partition, committed in request.entries:
            if committed.metadata and _java_length(committed.metadata) > limit:
                return None
            if request.records is None:
                records.append(offset_record(self.group_id, partition, committed))
        return request.records or records

    def check_fetch(self, member_id: str | None, epoch: int) -> ErrorCode:
        """Whether the sender of an OffsetFetch may read offsets; the classic protocol accepts every sender."""
        membership = self.membership
        return (
            membership.check_fetch(member_id, epoch) if isinstance(membership, ConsumerMembership) else ErrorCode.NONE
        )

    def _store(
        self, token: Any, request: CommitRequest, producer_id: int | None = None, permit: Any = None
    ) -> list[Effect]:
        """Append the entries that may be stored."""
        limit = self._settings.offset_metadata_max_bytes
        verdicts = [
            ErrorCode.OFFSET_METADATA_TOO_LARGE if _java_length(committed.metadata) > limit else NO_ERROR
            for _, committed in request.entries
        ]
        accepted, records = request.entries, request.records
        if any(verdicts):
            accepted = [entry for entry, verdict in zip(accepted, verdicts, strict=True) if not verdict]
            records = None
        if not accepted:
            return [Reply(token, verdicts)]
        stage = self.offsets.stage(accepted, producer_id)
        records = records or [offset_record(self.group_id, *entry) for entry in accepted]
        undo = partial(self.offsets.finish, stage, durable=False)
        return [Append(records, OffsetsStored(stage, token, verdicts), permit, (undo,))]

    # --- the log ---

    @property
    def is_removable(self) -> bool:
        """Whether the group has ended, or has no member, no offset and no record in the log."""
        if self.offsets.in_use or self.is_dead:
            return self.is_dead
        membership = self.membership
        known = (
            membership.group_members.epoch
            if isinstance(membership, ConsumerMembership)
            else membership.group.generation
        )
        return self.is_empty and not (known or membership.armed)

    def appended(self, token: Any, error: ErrorCode, now: Now) -> list[Effect]:
        """Handle an outcome of an append, as the table at the head of `pending_writes` defines."""
        if (
            error not in COMMITTED
            and error is not ErrorCode.REQUEST_TIMED_OUT
            and isinstance(token, AppendToken | None)
        ):
            self.refusal = error
        match token:
            case OffsetsStored():
                if error in COMMITTED:
                    self.offsets.finish(token.stage, durable=True)
                reply_to, token.reply_to = token.reply_to, None
                outcome = COMMIT_ERRORS.get(error, error)
                answer = [verdict or outcome for verdict in token.verdicts]
                return [Reply(reply_to, answer)] if reply_to is not None else []
            case AppendToken():
                return list(settle(token, error))
            case GenerationStored() | ReturnStored() if isinstance(self.membership, Membership):
                return self.membership.stored(token, error, now)
        return []  # the token of a classic membership that has ended and answered every request, or of tombstones

    def reverted(self, error: ErrorCode, now: Now) -> list[Effect]:
        """Return the effects after the log has refused changes, perhaps of a membership that they had begun."""
        ended, self._replaced = self._replaced, None
        effects: list[Effect] = []
        if ended is not None and ended is not self.membership:
            if isinstance(ended, Membership):
                effects += ended.unload(now, STORE_ERRORS.get(error, error))
            else:
                effects += ended.die(now)
        return effects + (self.membership.revive(now) if ended is not None else self.membership.reverted(now))

    # --- deletion and expiration ---

    def delete(
        self, now: Now, keys: Mapping[TopicPartition, bytes] = MappingProxyType({})
    ) -> tuple[ErrorCode, list[Effect]]:
        """Delete the group with its offsets; a group with members is refused. `keys` are those of records that the
        caller has encoded: of some partitions with an offset.

        While a transaction has pending offsets for it, the group itself stays until the transaction ends (KAFKA-19163).
        """
        self.refusal = ErrorCode.NONE
        if not self.is_empty:
            return ErrorCode.NON_EMPTY_GROUP, []
        return ErrorCode.NONE, self._write_tombstones(self.offsets.remove(), now, keys)

    def delete_offsets(self, partitions: list[TopicPartition], now: Now) -> tuple[list[ErrorCode], list[Effect]]:
        """Remove offsets that no member consumes (KIP-496): one error code for each partition.

        Raises KafkaError(NON_EMPTY_GROUP) when the group has members of another protocol type than consumer.
        """
        self.refusal = ErrorCode.NONE
        membership, is_empty = self.membership, self.is_empty
        if not is_empty and membership.protocol_type != CONSUMER:
            raise KafkaError(
                ErrorCode.NON_EMPTY_GROUP, f"group {self.group_id} is in use by {membership.protocol_type}"
            )
        in_use = set() if is_empty else membership.subscribed({topic for topic, _ in partitions})
        free = [partition for partition in partitions if partition[0] not in in_use]
        codes = [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if topic in in_use else NO_ERROR for topic, _ in partitions]
        return codes, self._write_tombstones(self.offsets.remove(free), now) if free else []

    def forget(self, partitions: list[TopicPartition], position: int, now: Now) -> list[Effect]:
        """Remove the offsets that these deleted topic partitions had at a position in the order of commits: a topic
        that has the name of a deleted one may have offsets since.
        """
        self.refusal = ErrorCode.NONE
        gone = self.offsets.unchanged_since(position, partitions)
        return self._write_tombstones(self.offsets.remove(gone, pending=True), now)

    def expire(self, now: Now, among: list[TopicPartition] | None = None) -> list[Effect]:
        """Remove offsets unused for the retention time (KIP-211), of all partitions or those `among`, and the group
        without members or offsets.
        """
        self.refusal = ErrorCode.NONE
        membership, retention_ms = self.membership, self._settings.offsets_retention_ms
        expired = Removed()
        if isinstance(membership, ConsumerMembership):
            expired = self.offsets.expire(now.wall_ms, retention_ms, None, membership.subscribed, among)
        elif membership.protocol_type is None:
            expired = self.offsets.expire(now.wall_ms, retention_ms, None, among=among)
        elif membership.state is ClassicGroupState.EMPTY:
            expired = self.offsets.expire(now.wall_ms, retention_ms, membership.group.state_since_ms, among=among)
        elif (
            membership.state is ClassicGroupState.STABLE
            and membership.protocol_type == CONSUMER
            and membership.knows_subscriptions
        ):
            expired = self.offsets.expire(now.wall_ms, retention_ms, None, membership.subscribed, among)
        return self._write_tombstones(expired, now)

    def _write_tombstones(
        self, removed: Removed, now: Now, keys: Mapping[TopicPartition, bytes] = MappingProxyType({})
    ) -> list[Effect]:
        """Write the tombstones of the removed offsets, and of the group when it has no member and no offset left."""
        records: list[KeyValue] = [
            (keys.get(partition) or offset_key(self.group_id, partition), None) for partition in removed.partitions
        ]
        membership, undo = self.membership, partial(self.offsets.restore, removed)
        if not self.is_empty or self.offsets.in_use:
            return [Append(records, None, undo=(undo,))] if records else []
        way_back = self._way_back()
        if isinstance(membership, ConsumerMembership):
            membership.group_writes.changes(undo)
            return _undone_last(membership.erase(*records), way_back)
        if membership.group.generation > 0:  # generation 0 was never written
            records.append((group_key(self.group_id), None))
        membership.group.in_log = None
        effects = membership.die(now)
        return effects + ([Append(records, None, undo=(undo, way_back))] if records else [])


def _undone_first(effects: list[Effect], undo: Undo) -> list[Effect]:
    """The same effects, with `undo` to run last when the log refuses the first append of them."""
    at = next(index for index, effect in enumerate(effects) if isinstance(effect, Append))
    return _undone(effects, at, undo)


def _undone_last(effects: list[Effect], undo: Undo) -> list[Effect]:
    """The same effects, with `undo` to run first when the log refuses the last append of them."""
    at = max(index for index, effect in enumerate(effects) if isinstance(effect, Append))
    return _undone(effects, at, undo)


def _undone(effects: list[Effect], at: int, undo: Undo) -> list[Effect]:
    append = effects[at]
    assert isinstance(append, Append)
    return [*effects[:at], append._replace(undo=(*append.undo, undo)), *effects[at + 1 :]]


def _check_commit(membership: Membership | ConsumerMembership, request: CommitRequest) -> ErrorCode:
    if isinstance(membership, Membership):
        return membership.group.check_commit(request.member_id, request.instance_id, request.generation)
    partitions = [partition for partition, _ in request.entries]
    error = membership.check_commit(request.member_id, request.generation, partitions)
    if not error and not request.knows_member_epochs and membership.speaks_consumer(request.member_id):
        return ErrorCode.UNSUPPORTED_VERSION
    return error


def _java_length(text: str) -> int:
    """The length as Kafka counts it against `offset.metadata.max.bytes`: UTF-16 code units, not bytes."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le")) // 2
