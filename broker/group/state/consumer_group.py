"""Membership of one group in the consumer protocol (KIP-848; Kafka: ConsumerGroup).

The classic protocol stops all members for a rebalance. Here each member moves on its own to its part of a common
target. The group has an epoch, which grows with every change that affects the assignment; a target assignment, computed
for one such epoch; and members, each with the epoch that it has reached. The coordinator returns to a member in
heartbeat responses which partitions it may use, and the member reports in heartbeats which partitions it has revoked.

| group state | when                                                                        |
|-------------|-----------------------------------------------------------------------------|
| Empty       | it has no members                                                           |
| Assigning   | its epoch is ahead of the target's                                          |
| Reconciling | a member is not STABLE in the target's epoch                                |
| Stable      | every member is STABLE in the target's epoch                                |
| Dead        | deleted, converted to a classic group, or not coordinated by this broker    |

| heartbeat contains               | and                                           | result                       |
|----------------------------------|-----------------------------------------------|------------------------------|
| epoch 0                          | a new id, or the member's own id              | joins; full assignment       |
| epoch 0 and an instance id       | the former member left temporarily            | replaces the former member   |
| epoch 0 and an instance id       | the former member is active                   | UNRELEASED_INSTANCE_ID       |
| the member's epoch               |                                               | one reconciliation step      |
| the previous epoch               | a response was lost; owns only its partitions | one reconciliation step      |
| any other epoch                  |                                               | FENCED_MEMBER_EPOCH          |
| -1                               |                                               | removed; new group epoch     |
| -2 and an instance id            |                                               | temporarily gone; same epoch |
| an unknown member id             |                                               | UNKNOWN_MEMBER_ID            |
| an instance id of another member |                                               | FENCED_INSTANCE_ID           |

The coordinator removes a member that sends no heartbeat within its session timeout, or that does not revoke within its
rebalance timeout. `consumer_group_reconciliation` has the steps of a member, `consumer_group_steps` those of a request;
`consumer_group_classic_members` serves members that still use the classic protocol. The rules are those of Kafka 4.x's
GroupMetadataManager and ConsumerGroup.

Timers, by name: ("session", id), ("rebalance", id), and for classic members ("join", id) and ("sync", id).
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any, Final

from odradek.broker.coordinator.state.pending_writes import RETRY_MS
from odradek.broker.group.state import consumer_group_records as records
from odradek.broker.group.state.consumer_assignors import Assignment
from odradek.broker.group.state.consumer_group_members import (
    LEFT_FOR_A_WHILE,
    ConsumerGroupMembers,
    ConsumerMember,
    GroupState,
    MemberState,
    check_memory,
    check_room,
)
from odradek.broker.group.state.consumer_group_pending_writes import ConsumerGroupWrites
from odradek.broker.group.state.consumer_group_requests import (
    JOINING,
    NO_TIMEOUT,
    HeartbeatRequest,
    HeartbeatResult,
    Topics,
    leaves,
)
from odradek.broker.group.state.consumer_group_steps import Steps
from odradek.broker.group.state.settings import GroupSettings
from odradek.broker.group.state.topic_patterns import check_pattern
from odradek.broker.runtime.state.effects import Effect, KeyValue, Now, TimerName
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.topic_partition import TopicPartition

CONSUMER: Final = "consumer"


class ConsumerMembership:
    """The state machine. Methods that take `now` are events; the caller performs the returned effects in order."""

    protocol_type = CONSUMER
    knows_subscriptions = True

    def __init__(
        self, group_id: str, settings: GroupSettings, topics: Topics, group_members: ConsumerGroupMembers | None = None
    ) -> None:
        self.group_id = group_id
        self._settings = settings
        self._topics = topics
        self.group_writes = ConsumerGroupWrites(group_id, group_members)
        self.steps = Steps(self.group_writes, topics, settings.default_assignor)
        self._deadlines: dict[str, int] = {}
        self._again: list[TimerName] = []
        """Timers that have fired and whose records the log has refused; they are set again."""
        self._is_dead = False

    @property
    def group_members(self) -> ConsumerGroupMembers:
        """The members and epochs."""
        return self.group_writes.group_members

    @property
    def state(self) -> GroupState:
        """The state of the group."""
        return GroupState.DEAD if self._is_dead else self.group_members.state

    @property
    def is_dead(self) -> bool:
        """Whether the group has ended."""
        return self._is_dead

    @property
    def is_empty(self) -> bool:
        """Whether the group exists and has no members: found without the members, which `state` has to look at."""
        return not (self._is_dead or self.group_members.members)

    @property
    def armed(self) -> dict[TimerName, int]:
        """The timers that are set, with their deadlines (monotonic ms)."""
        return dict(self.group_writes.effects.armed)

    # --- heartbeats ---

    def heartbeat(self, token: Any, request: HeartbeatRequest, unique: str, now: Now) -> list[Effect]:
        """Handle a member that joins, stays or leaves. Answered with a HeartbeatResult; `unique` names a new member."""
        try:
            result = self._leave(request, now) if leaves(request) else self._beat(request, unique, now)
        except KafkaError as refused:
            self.discard(now)
            result = HeartbeatResult(refused.code, refused.message)
        self.group_writes.answer(
            token, result, lambda error: HeartbeatResult(error, "The group's log refused the change.")
        )
        return self.group_writes.drain()

    def _beat(self, request: HeartbeatRequest, unique: str, now: Now) -> HeartbeatResult:
        member_id = request.member_id or unique
        check_room(self.group_members, member_id, self._settings.group_consumer_max_size)
        former = self._find(member_id, request)
        known = former or ConsumerMember(member_id)
        if request.expression and request.expression != known.expression:
            check_pattern(request.expression)
        if known.member_id != member_id:
            self.forget_timers(known.member_id)
            known = self.steps.replace(known, member_id)
        entering = _updated(known, request)
        if former is None or entering.names is not former.names:
            check_memory(self.group_members, entering, self._settings.odradek_group_max_metadata_bytes)
        self.steps.enter(entering, now, request.describable)
        self.steps.target.update()
        member = self.steps.advance(member_id, request.owned)
        self.watch_revocation(member, now)
        self.touch(member, now)
        assigned_before = former.assigned if former is not None else {}
        tell = request.epoch == JOINING or request.is_full or member.assigned != assigned_before
        return HeartbeatResult(
            member_id=member_id,
            epoch=member.epoch,
            interval_ms=self._settings.group_consumer_heartbeat_interval_ms,
            assignment=member.assigned if tell else None,
        )

    def _find(self, member_id: str, request: HeartbeatRequest) -> ConsumerMember | None:
        """The member that sent the request, or the static member that it replaces; None for a new member."""
        if request.instance_id is not None:
            static = self.group_members.of_instance(request.instance_id)
            if request.epoch == JOINING:
                if static is not None and static.classic is None and static.epoch != LEFT_FOR_A_WHILE:
                    raise KafkaError(
                        ErrorCode.UNRELEASED_INSTANCE_ID,
                        f"Static member {member_id} with instance id {request.instance_id} cannot join the group"
                        f" because the instance id is owned by {static.member_id} member.",
                    )
                return static or self.group_members.members.get(member_id)
            member = self.static_member(member_id, request.instance_id)
        else:
            found = self.group_members.members.get(member_id)
            if found is None:
                if request.epoch == JOINING:
                    return None
                raise self.unknown(member_id)
            member = found
        _check_epoch(member, request)
        return member

    def static_member(self, member_id: str, instance_id: str) -> ConsumerMember:
        """The member of an instance id, which must have this member id. Raises KafkaError."""
        member = self.group_members.of_instance(instance_id)
        if member is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
        if member.member_id != member_id:
            raise KafkaError(
                ErrorCode.FENCED_INSTANCE_ID,
                f"Static member {member_id} with instance id {instance_id} was fenced by member {member.member_id}.",
            )
        return member

    def unknown(self, member_id: str) -> KafkaError:
        """The error for an unknown member id."""
        return KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of group {self.group_id}.")

    # --- leaving ---

    def _leave(self, request: HeartbeatRequest, now: Now) -> HeartbeatResult:
        if request.instance_id is None:
            found = self.group_members.members.get(request.member_id)
            if found is None:
                raise self.unknown(request.member_id)
            member = found
        else:
            member = self.static_member(request.member_id, request.instance_id)
        if request.epoch == LEFT_FOR_A_WHILE:
            away = member._replace(epoch=LEFT_FOR_A_WHILE, revoking={})
            self.group_writes.effects.disarm(("rebalance", member.member_id))
            self.group_writes.write(records.current(self.group_id, away))
        else:
            self.put_out([member])
        return HeartbeatResult(member_id=request.member_id, epoch=request.epoch)

    def put_out(self, members: list[ConsumerMember]) -> None:
        """Remove these members for good; their partitions become free."""
        if not members:
            return
        for member in members:
            self.forget_timers(member.member_id)
            self.steps.remove(member)
        self.steps.target.bump()

    # --- timers ---

    def touch(self, member: ConsumerMember, now: Now) -> None:
        """Renew the session of a member."""
        timeout_ms = self._settings.group_consumer_session_timeout_ms
        if member.classic is not None:
            timeout_ms = member.classic.session_timeout_ms
        deadline_ms = now.monotonic_ms + timeout_ms
        self._deadlines[member.member_id] = deadline_ms
        name = ("session", member.member_id)
        armed = self.group_writes.effects.armed.get(name)
        if armed is None or armed > deadline_ms:
            self.group_writes.effects.arm(name, deadline_ms)

    def watch_revocation(self, member: ConsumerMember, now: Now) -> None:
        """Set the rebalance timer of a member that has partitions to revoke."""
        name = ("rebalance", member.member_id)
        if member.state is not MemberState.UNREVOKED_PARTITIONS or member.classic is not None:
            self.group_writes.effects.disarm(name)
        elif name not in self.group_writes.effects.armed:
            self.group_writes.effects.arm(name, now.monotonic_ms + member.rebalance_timeout_ms)

    def forget_timers(self, member_id: str) -> None:
        """Cancel the timers of a member that is removed or has a new id."""
        deadline_ms = self._deadlines.pop(member_id, None)
        if deadline_ms is not None:
            self.group_writes.changes(partial(self._deadlines.__setitem__, member_id, deadline_ms))
        for kind in ("session", "rebalance", "join", "sync"):
            self.group_writes.effects.disarm((kind, member_id))

    def timer(self, name: TimerName, now: Now) -> list[Effect]:
        """Handle a timer that has fired."""
        self.group_writes.effects.fired(name)
        kind, member_id = name
        member = self.group_members.members.get(member_id)
        if member is not None:
            deadline_ms = self._deadlines.get(member_id, 0) if kind == "session" else 0
            if deadline_ms > now.monotonic_ms:
                self.group_writes.effects.arm(name, deadline_ms)
            else:
                self.group_writes.changes(partial(self._again.append, name))
                self.put_out([member])
        return self.group_writes.drain()

    # --- the log ---

    def discard(self, now: Now) -> None:
        """Undo the changes of the present request, which is refused."""
        if self.group_writes.discard():
            self._restore_timers(now)

    def reverted(self, now: Now) -> list[Effect]:
        """Restore the timers after the log has refused records; the members are already restored."""
        self._restore_timers(now)
        return self.group_writes.effects.drain()

    def revive(self, now: Now) -> list[Effect]:
        """Continue the group, because the log has refused the records that ended it."""
        self._is_dead = False
        return self.reverted(now)

    def _restore_timers(self, now: Now) -> None:
        """Give each member a session, cancel all other timers, and set timers again whose effect was refused."""
        self.steps.forget_topics()
        effects, members, soon_ms = self.group_writes.effects, self.group_members.members, now.monotonic_ms + RETRY_MS
        for name in [each for each in effects.armed if each[1] not in members]:
            effects.disarm(name)
        for member_id in [each for each in self._deadlines if each not in members]:
            del self._deadlines[member_id]
        again, self._again = self._again, []
        for name in again:
            if name[1] in members and name not in effects.armed:
                effects.arm(name, soon_ms)
        for member in members.values():
            deadline_ms = self._deadlines.get(member.member_id)
            if deadline_ms is None:
                self.touch(member, now)
            elif ("session", member.member_id) not in effects.armed:
                effects.arm(("session", member.member_id), max(deadline_ms, soon_ms))
            self.watch_revocation(member, now)

    def loaded(self, now: Now) -> list[Effect]:
        """Start new sessions after a load of the group."""
        for member in self.group_members.members.values():
            self.touch(member, now)
            self.watch_revocation(member, now)
        return self.group_writes.drain()

    def unload(self, now: Now) -> list[Effect]:
        """End the group because this broker no longer coordinates it: answer every waiting request."""
        self._is_dead = True
        self.steps.stop()
        self.group_writes.close(ErrorCode.NOT_COORDINATOR)
        return self.group_writes.effects.drain()

    def die(self, now: Now) -> list[Effect]:
        """End the group, which is deleted or converted to the classic protocol: cancel all timers."""
        self._is_dead = True
        self.steps.stop()
        for name in list(self.group_writes.effects.armed):
            self.group_writes.effects.disarm(name)
        return self.group_writes.effects.drain()

    def erase(self, *others: KeyValue) -> list[Effect]:
        """Write the tombstones of the group, and `others` behind them; cancel all timers."""
        for member_id in list(self.group_members.members):
            self.forget_timers(member_id)
        self.group_writes.write(*records.no_group(self.group_id, self.group_members))
        for record in others:
            self.group_writes.write_beside(record)
        self._is_dead = True
        self.steps.stop()
        return self.group_writes.drain()

    # --- offsets: which commits and fetches the membership allows ---

    def check_commit(self, member_id: str, epoch: int, partitions: list[TopicPartition]) -> ErrorCode:
        """Whether this sender may commit offsets of these partitions.

        A member may commit in its epoch, and in an older one if it has owned the partitions since then (KIP-1251): it
        may not have received the response with the new epoch yet.
        """
        if epoch < 0 and not self.group_members.members:
            return ErrorCode.NONE
        member = self.group_members.members.get(member_id)
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        stale = ErrorCode.STALE_MEMBER_EPOCH if member.classic is None else ErrorCode.ILLEGAL_GENERATION
        if epoch == member.epoch:
            return ErrorCode.NONE
        if epoch > member.epoch:
            return stale
        own = all(_had(member, epoch, self._topics.id_of(topic), index) for topic, index in partitions)
        return ErrorCode.NONE if own else stale

    def speaks_consumer(self, member_id: str) -> bool:
        """Whether this member uses the consumer protocol, so that its requests must support member epochs."""
        member = self.group_members.members.get(member_id)
        return member is not None and member.classic is None

    def check_fetch(self, member_id: str | None, epoch: int) -> ErrorCode:
        """Whether this sender may fetch offsets; a request without a member id may."""
        if member_id is None and epoch < 0:
            return ErrorCode.NONE
        member = self.group_members.members.get(member_id or "")
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if epoch == member.epoch:
            return ErrorCode.NONE
        return ErrorCode.STALE_MEMBER_EPOCH if member.classic is None else ErrorCode.ILLEGAL_GENERATION

    def seen(self, member_id: str, now: Now) -> list[Effect]:
        """Do nothing: a commit does not renew the session in this protocol."""
        return []

    def subscribed(self, topics: Iterable[str]) -> set[str]:
        """Which of these topics a member consumes: each subscription is read once, however many topics there are."""
        return self.group_members.subscribed(topics)


def _updated(known: ConsumerMember, request: HeartbeatRequest) -> ConsumerMember:
    """A member with the fields of its heartbeat; fields that the heartbeat omits stay."""
    timeout_ms = request.rebalance_timeout_ms
    if (
        request.names is None
        and request.expression is request.assignor is request.rack_id is None
        and timeout_ms == NO_TIMEOUT
        and request.instance_id in (None, known.instance_id)
        and (known.client_id, known.client_host) == (request.client_id, request.client_host)
        and known.classic is None
    ):
        return known
    return known._replace(
        instance_id=request.instance_id if request.instance_id is not None else known.instance_id,
        rack_id=request.rack_id if request.rack_id is not None else known.rack_id,
        rebalance_timeout_ms=timeout_ms if timeout_ms != NO_TIMEOUT else known.rebalance_timeout_ms,
        names=tuple(sorted(set(request.names))) if request.names is not None else known.names,
        expression=request.expression if request.expression is not None else known.expression,
        assignor=request.assignor if request.assignor is not None else known.assignor,
        client_id=request.client_id,
        client_host=request.client_host,
        classic=None,
    )


def _check_epoch(member: ConsumerMember, request: HeartbeatRequest) -> None:
    """Raises KafkaError(FENCED_MEMBER_EPOCH)."""
    epoch = request.epoch
    if epoch in (JOINING, member.epoch):
        return
    if epoch < member.epoch and epoch == member.previous_epoch and _owns_no_more(request.owned, member):
        return  # the response with the new epoch may have been lost
    relation = "greater" if epoch > member.epoch else "smaller"
    raise KafkaError(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The consumer group member has a {relation} member epoch ({epoch}) than the one known by the group coordinator"
        f" ({member.epoch}). The member must abandon all its partitions and rejoin.",
    )


def _owns_no_more(owned: Assignment | None, member: ConsumerMember) -> bool:
    if owned is None:
        return False
    return all(
        partition in member.assigned.get(topic_id, {})
        for topic_id, partitions in owned.items()
        for partition in partitions
    )


def _had(member: ConsumerMember, epoch: int, topic_id: bytes | None, partition: int) -> bool:
    """Whether the member has owned the partition since this epoch or longer."""
    for owned in (member.assigned, member.revoking):
        since = owned.get(topic_id or b"", {}).get(partition)
        if since is not None:
            return since <= epoch
    return False
