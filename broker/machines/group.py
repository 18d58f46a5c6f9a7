"""One group: its membership and its offsets, and the rules that need both.

Membership decides who may commit; the offsets decide whether a group without members is still worth keeping. Both
change only by what is in the log of `__consumer_offsets`: a request returns the records to append, and when those are
durable they are applied by the same code that reads them back after a failover. The states of a group and what leads
from one to the next stand at the head of `group_membership`.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from odradek.broker.machines.consumer_group import ConsumerMembership
from odradek.broker.machines.consumer_group_classic import ClassicMembers
from odradek.broker.machines.consumer_group_ledger import Written, settle
from odradek.broker.machines.consumer_group_requests import JOINING, HeartbeatRequest, HeartbeatResult, Topics
from odradek.broker.machines.consumer_group_roster import GroupState
from odradek.broker.machines.effects import Append, Effect, KeyValue, Now, Reply, TimerName
from odradek.broker.machines.group_membership import CONSUMER, Membership
from odradek.broker.machines.group_migration import downgraded, may_downgrade, upgraded
from odradek.broker.machines.group_records import group_key, offset_key, offset_record
from odradek.broker.machines.group_requests import JoinRequest, State, SyncRequest
from odradek.broker.machines.group_settings import GroupSettings
from odradek.broker.machines.offsets import CommitRequest, Offsets, Partition, Stage
from odradek.protocol.errors import ErrorCode, KafkaError

# What a client hears when the log refuses a commit (Kafka's GroupMetadataManager.maybeConvertOffsetCommitError).
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


class OffsetsStored(NamedTuple):
    """Token of an append: a commit, and what is already known of each of its entries."""

    stage: Stage
    reply_to: Any
    verdicts: list[ErrorCode]


class Buried(NamedTuple):
    """Token of an append: tombstones of what the group was in the other protocol."""

    tombstones: list[KeyValue]


class Group:
    """The machine. Methods that take `now` are events; what they return is to be carried out in order."""

    __slots__ = ("_settings", "_topics", "_unburied", "group_id", "membership", "offsets")

    def __init__(self, group_id: str, settings: GroupSettings, now: Now, topics: Topics) -> None:
        self.group_id = group_id
        self.membership: Membership | ConsumerMembership = Membership(group_id, settings, now)
        """Who is in: the machine of the classic protocol or that of the consumer protocol."""
        self.offsets = Offsets()
        self._settings = settings
        self._topics = topics
        self._unburied: list[KeyValue] = []
        """Tombstones that are still to be written, or a reload would find a group of the consumer protocol."""

    @property
    def is_dead(self) -> bool:
        """Whether the group is gone, so that its id is free again."""
        return self.membership.state in (State.DEAD, GroupState.DEAD)

    @property
    def is_empty(self) -> bool:
        """Whether the group is there and has no members."""
        return self.membership.state in (State.EMPTY, GroupState.EMPTY)

    # --- membership, in either protocol ---

    def consumer_heartbeat(self, token: Any, request: HeartbeatRequest, unique: str, now: Now) -> list[Effect]:
        """ConsumerGroupHeartbeat, which turns a classic group into one of the consumer protocol where that may be.

        Answered with a HeartbeatResult; `unique` names a member that has no id.
        """
        effects: list[Effect] = []
        if isinstance(self.membership, Membership):
            try:
                effects = self._upgrade(request, now)
            except KafkaError as refused:
                return [Reply(token, HeartbeatResult(refused.code, refused.message))]
        if isinstance(self.membership, ConsumerMembership):
            effects += self.membership.heartbeat(token, request, unique, now)
        return effects + self._downgrade_if_due(now)

    def join(self, token: Any, request: JoinRequest, unique: str, now: Now) -> list[Effect]:
        """JoinGroup. Answered with a JoinResult; `unique` ends a new member id."""
        effects: list[Effect] = []
        if isinstance(self.membership, ConsumerMembership) and self.is_empty:
            effects = [*self._bury_kind(self.membership.tombstones()), *self.membership.die(now)]
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
        return self._classic.heartbeat(member_id, instance_id, generation, now)

    def leave(self, member_id: str, instance_id: str | None, now: Now) -> tuple[ErrorCode, list[Effect]]:
        """One member of a LeaveGroup."""
        error, effects = self._classic.leave(member_id, instance_id, now)
        return error, effects + self._downgrade_if_due(now)

    def timer(self, name: TimerName, now: Now) -> list[Effect]:
        """A timer of the membership has fired."""
        return self.membership.timer(name, now) + self._downgrade_if_due(now)

    @property
    def _classic(self) -> Membership | ClassicMembers:
        """Who serves the classic protocol."""
        if isinstance(self.membership, ConsumerMembership):
            return ClassicMembers(self.membership, self._settings, self._topics)
        return self.membership

    def _upgrade(self, request: HeartbeatRequest, now: Now) -> list[Effect]:
        classic = self.membership
        if not isinstance(classic, Membership) or request.epoch != JOINING:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {self.group_id} is not a consumer group.")
        group = upgraded(classic, self._settings, self._topics)
        self.membership = group
        return classic.unload(now, ErrorCode.REBALANCE_IN_PROGRESS) + group.loaded(now)

    def _downgrade_if_due(self, now: Now) -> list[Effect]:
        group = self.membership
        if not isinstance(group, ConsumerMembership):
            unburied, self._unburied = self._unburied, []
            return self._bury_kind(unburied) if unburied else []
        if not may_downgrade(group, self._settings):
            return []
        self.membership, state = downgraded(group, self._settings, self._topics, now)
        buried = self._bury_kind(group.tombstones(), state)
        return [*group.die(now), *buried, *self.membership.loaded(now, changed=True)]

    @staticmethod
    def _bury_kind(tombstones: list[KeyValue], *state: KeyValue) -> list[Effect]:
        """Write what the group was no more, with its `state` in the other protocol if it has one already."""
        return [Append([*tombstones, *state], Buried(tombstones))]

    # --- offsets ---

    def commit(self, token: Any, request: CommitRequest, now: Now) -> list[Effect]:
        """Store offsets. Answered, once they are durable, with one error code for each entry, in their order."""
        error = self._check_commit(request)
        if error:
            return [Reply(token, [error] * len(request.entries))]
        effects = self.membership.seen(request.member_id, now)
        return effects + self._store(token, request)

    def commit_in_transaction(self, token: Any, request: CommitRequest, producer_id: int, permit: Any) -> list[Effect]:
        """Store offsets that count once the producer's transaction has committed. Answered as `commit` is.

        Producers from before KIP-447 name no member and are believed. A rebalance under way is no hindrance: members
        of the new generation cannot read these offsets before the transaction has ended, if they ask for stable ones.
        """
        error = ErrorCode.NONE
        if self.is_dead:
            error = ErrorCode.COORDINATOR_NOT_AVAILABLE
        elif request.generation >= 0 or request.member_id or request.instance_id is not None:
            error = self._check_commit(request)
        if error is ErrorCode.STALE_MEMBER_EPOCH:
            error = ErrorCode.ILLEGAL_GENERATION  # the other is fatal to a producer, which does not know it here
        if error and error is not ErrorCode.REBALANCE_IN_PROGRESS:
            return [Reply(token, [error] * len(request.entries))]
        return self._store(token, request, producer_id, permit)

    def _check_commit(self, request: CommitRequest) -> ErrorCode:
        membership = self.membership
        if isinstance(membership, Membership):
            return membership.check_commit(request.member_id, request.instance_id, request.generation)
        partitions = [partition for partition, _ in request.entries]
        error = membership.check_commit(request.member_id, request.generation, partitions)
        if not error and not request.knows_member_epochs and membership.speaks_consumer(request.member_id):
            return ErrorCode.UNSUPPORTED_VERSION
        return error

    def check_fetch(self, member_id: str | None, epoch: int) -> ErrorCode:
        """Whether the sender of an OffsetFetch may ask; in the classic protocol everyone may."""
        membership = self.membership
        return (
            membership.check_fetch(member_id, epoch) if isinstance(membership, ConsumerMembership) else ErrorCode.NONE
        )

    def _store(
        self, token: Any, request: CommitRequest, producer_id: int | None = None, permit: Any = None
    ) -> list[Effect]:
        """Append what may be stored."""
        limit = self._settings.offset_metadata_max_bytes
        verdicts = [
            ErrorCode.OFFSET_METADATA_TOO_LARGE if _java_length(committed.metadata) > limit else ErrorCode.NONE
            for _, committed in request.entries
        ]
        accepted = [entry for entry, verdict in zip(request.entries, verdicts, strict=True) if not verdict]
        if not accepted:
            return [Reply(token, verdicts)]
        stage = self.offsets.stage(accepted, producer_id)
        records = [offset_record(self.group_id, partition, committed) for partition, committed in accepted]
        return [Append(records, OffsetsStored(stage, token, verdicts), permit)]

    def appended(self, token: Any, error: ErrorCode, now: Now) -> list[Effect]:
        """The outcome of an Append that carried a token."""
        if isinstance(token, Written):
            if isinstance(self.membership, ConsumerMembership):
                return self.membership.stored(token, error)
            return list(settle(token, error))  # the group has become a classic one meanwhile
        if isinstance(token, Buried):
            if error and isinstance(self.membership, Membership):
                self._unburied = token.tombstones  # with the next event; the state comes with the next generation
            return []
        if not isinstance(token, OffsetsStored):
            # What a classic membership appended; it answered everyone when the group became one of the other kind.
            return self.membership.stored(token, error, now) if isinstance(self.membership, Membership) else []
        self.offsets.finish(token.stage, durable=not error)
        outcome = COMMIT_ERRORS.get(error, error)
        return [Reply(token.reply_to, [verdict or outcome for verdict in token.verdicts])]

    def delete(self, now: Now) -> tuple[ErrorCode, list[Effect]]:
        """Delete the group with its offsets; only one without members may go.

        Where a transaction still holds offsets for it, the group itself stays until that has ended (KAFKA-19163).
        """
        if not self.is_empty:
            return ErrorCode.NON_EMPTY_GROUP, []
        return ErrorCode.NONE, self._bury(self.offsets.remove(), now)

    def delete_offsets(self, partitions: list[Partition], now: Now) -> tuple[list[ErrorCode], list[Effect]]:
        """Forget offsets that no member consumes (KIP-496): one error code for each partition.

        Raises KafkaError(NON_EMPTY_GROUP) when the group has members that are no consumers.
        """
        membership, is_empty = self.membership, self.is_empty
        if not is_empty and membership.protocol_type != CONSUMER:
            raise KafkaError(
                ErrorCode.NON_EMPTY_GROUP, f"group {self.group_id} is in use by {membership.protocol_type}"
            )
        in_use = [not is_empty and membership.subscribes_to(topic) for topic, _ in partitions]
        free = [partition for partition, used in zip(partitions, in_use, strict=True) if not used]
        codes = [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if used else ErrorCode.NONE for used in in_use]
        return codes, self._bury(self.offsets.remove(free), now) if free else []

    def forget(self, partitions: list[Partition], now: Now) -> list[Effect]:
        """These topic partitions have been deleted, and their offsets with them."""
        return self._bury(self.offsets.remove(partitions, pending=True), now)

    def expire(self, now: Now) -> list[Effect]:
        """Forget the offsets that nobody used for too long (KIP-211), and the group once it has nothing left."""
        membership, retention_ms = self.membership, self._settings.offsets_retention_ms
        expired: list[Partition] = []
        if isinstance(membership, ConsumerMembership):
            expired = self.offsets.expire(now.wall_ms, retention_ms, None, membership.subscribes_to)
        elif membership.protocol_type is None:
            expired = self.offsets.expire(now.wall_ms, retention_ms, None)
        elif membership.state is State.EMPTY:
            expired = self.offsets.expire(now.wall_ms, retention_ms, membership.state_since_ms)
        elif (
            membership.state is State.STABLE and membership.protocol_type == CONSUMER and membership.knows_subscriptions
        ):
            expired = self.offsets.expire(now.wall_ms, retention_ms, None, membership.subscribes_to)
        return self._bury(expired, now)

    def _bury(self, removed: list[Partition], now: Now) -> list[Effect]:
        """Write the tombstones of what was removed, and of the group when nothing is left of it."""
        records: list[KeyValue] = [(offset_key(self.group_id, partition), None) for partition in removed]
        effects: list[Effect] = []
        if self.is_empty and not self.offsets.in_use:
            if isinstance(self.membership, ConsumerMembership):
                records += self.membership.tombstones()
            elif self.membership.generation > 0:  # generation 0 was never written
                records.append((group_key(self.group_id), None))
            effects += self.membership.die(now)
        if records:
            # Nobody waits: a tombstone that gets lost is written again by the next round.
            effects.append(Append(records, None))
        return effects


def _java_length(text: str) -> int:
    """The length as Kafka counts it against `offset.metadata.max.bytes`: UTF-16 units, whatever the name says."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le")) // 2
