"""Members of the classic protocol in a group of the consumer protocol, during a migration (Kafka: ConsumerGroup).

This module translates their JoinGroup, SyncGroup, Heartbeat and LeaveGroup: a join is a full heartbeat with the owned
partitions of its subscription, a sync returns the assignment that follows from the join, and the generation is the
member's epoch. There is no leader, and no member waits for others.

| request         | the member                                                     | answer                           |
|-----------------|----------------------------------------------------------------|----------------------------------|
| JoinGroup       | shares no assignor with the other classic members              | INCONSISTENT_GROUP_PROTOCOL      |
| JoinGroup       | otherwise                                                      | at once: its epoch as generation |
| SyncGroup       | is behind the group's epoch, and has no partitions to revoke   | REBALANCE_IN_PROGRESS            |
| SyncGroup       | otherwise                                                      | its present assignment           |
| Heartbeat       | is behind the group's epoch, has to revoke, or may have more   | REBALANCE_IN_PROGRESS            |
| Heartbeat       | otherwise                                                      | NONE                             |
| Sync, Heartbeat | has another generation                                         | ILLEGAL_GENERATION               |
| Sync, Heartbeat | uses the consumer protocol                                     | UNKNOWN_MEMBER_ID                |
| LeaveGroup      | uses either protocol                                           | removed; new group epoch         |

The coordinator removes a member that does not rejoin within its rebalance timeout after REBALANCE_IN_PROGRESS, and one
that joins and does not sync. The rules are those of Kafka 4.x's GroupMetadataManager.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from odradek.broker.group.state.classic_requests import (
    UNKNOWN_MEMBER_ID,
    JoinRequest,
    JoinResult,
    SyncRequest,
    SyncResult,
)
from odradek.broker.group.state.consumer_assignors import Assignment
from odradek.broker.group.state.consumer_group import CONSUMER, ConsumerMembership
from odradek.broker.group.state.consumer_group_members import (
    ClassicTerms,
    ConsumerMember,
    MemberState,
    Owned,
    check_memory,
    check_room,
)
from odradek.broker.group.state.consumer_group_requests import Topics
from odradek.broker.group.state.settings import GroupSettings
from odradek.broker.runtime.state.effects import Effect, Now
from odradek.protocol import messages as m
from odradek.protocol.errors import ErrorCode, KafkaError, ProtocolError

VERSION_SIZE = 2


class ClassicMembers:
    """The translation for one group; it has the methods of the classic state machine."""

    __slots__ = ("_group", "_settings", "_topics")

    def __init__(self, group: ConsumerMembership, settings: GroupSettings, topics: Topics) -> None:
        self._group = group
        self._settings = settings
        self._topics = topics

    def join(self, token: Any, request: JoinRequest, unique: str, now: Now) -> list[Effect]:
        """Handle a member that joins or rejoins. Answered with a JoinResult."""
        try:
            result = self._join(request, unique, now)
        except KafkaError as refused:
            self._group.discard(now)
            result = JoinResult(refused.code, request.member_id)
        group_writes = self._group.group_writes
        group_writes.answer(token, result, lambda error: JoinResult(error, request.member_id))
        return group_writes.drain()

    def _join(self, request: JoinRequest, unique: str, now: Now) -> JoinResult:
        group, terms, is_new = self._group, request.terms, request.member_id == UNKNOWN_MEMBER_ID
        member_id = f"{terms.instance_id or terms.client_id}-{unique}" if is_new else request.member_id
        check_room(group.group_members, member_id, self._settings.group_consumer_max_size)
        if not self._supports(request):
            raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"{member_id} shares no protocol with the others")
        if is_new and request.id_required:
            return JoinResult(ErrorCode.MEMBER_ID_REQUIRED, member_id)
        try:
            subscription = read_subscription(terms.protocols[0][1])
        except ProtocolError as error:
            raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"the subscription is malformed: {error}") from None
        known = self._find(member_id, terms.instance_id, is_new=is_new)
        if known.member_id != member_id:
            group.forget_timers(known.member_id)
            known = group.steps.replace(known, member_id)
        entering = known._replace(
            instance_id=terms.instance_id,
            rack_id=subscription.rack_id if subscription.rack_id is not None else known.rack_id,
            rebalance_timeout_ms=terms.rebalance_timeout_ms,
            names=tuple(sorted(set(subscription.topics))),
            expression="",
            client_id=terms.client_id,
            client_host=terms.client_host,
            classic=ClassicTerms(terms.session_timeout_ms, terms.protocols),
        )
        check_memory(group.group_members, entering, self._settings.odradek_group_max_metadata_bytes)
        group.steps.enter(entering, now)
        group.steps.target.update()
        member = group.steps.advance(member_id, self._owned(subscription))
        effects = group.group_writes.effects
        effects.disarm(("join", member_id))
        effects.disarm(("rebalance", member_id))
        effects.arm(("sync", member_id), now.monotonic_ms + terms.rebalance_timeout_ms)
        group.touch(member, now)
        return JoinResult(ErrorCode.NONE, member_id, member.epoch, CONSUMER, terms.protocols[0][0])

    def _supports(self, request: JoinRequest) -> bool:
        """Whether every classic member supports at least one of the protocols of this one."""
        if request.protocol_type != CONSUMER or not request.terms.protocols:
            return False
        others = [
            {name for name, _ in member.classic.protocols}
            for member in self._group.group_members.members.values()
            if member.classic is not None
        ]
        return any(all(name in other for other in others) for name, _ in request.terms.protocols)

    def _find(self, member_id: str, instance_id: str | None, *, is_new: bool) -> ConsumerMember:
        group = self._group
        if instance_id is None:
            return group.group_members.members.get(member_id) or ConsumerMember(member_id)
        if is_new:
            return group.group_members.of_instance(instance_id) or ConsumerMember(member_id)
        return group.static_member(member_id, instance_id)

    def _owned(self, subscription: m.ConsumerProtocolSubscription) -> Assignment:
        found = {self._topics.id_of(each.topic): frozenset(each.partitions) for each in subscription.owned_partitions}
        return {topic_id: partitions for topic_id, partitions in found.items() if topic_id is not None and partitions}

    # --- sync ---

    def sync(self, token: Any, request: SyncRequest, now: Now) -> list[Effect]:
        """Return the partitions that a member may use. Answered with a SyncResult."""
        try:
            result = self._sync(request, now)
        except KafkaError as refused:
            result = SyncResult(refused.code)
        self._group.group_writes.answer(token, result, SyncResult)
        return self._group.group_writes.drain()

    def _sync(self, request: SyncRequest, now: Now) -> SyncResult:
        group = self._group
        member, terms = self._classic_member(request.member_id, request.instance_id, request.generation)
        name, metadata = terms.protocols[0]
        if request.protocol_type not in (None, CONSUMER) or request.protocol_name not in (None, name):
            raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"member {member.member_id} joined with {name}")
        if group.group_members.epoch > member.epoch and member.state is not MemberState.UNREVOKED_PARTITIONS:
            self._expect_join(member, now)
            raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS, f"member {member.member_id} should join again")
        group.group_writes.effects.disarm(("sync", member.member_id))
        group.touch(member, now)
        assignment = write_assignment(self._named(member.assigned), metadata)
        return SyncResult(ErrorCode.NONE, request.protocol_type, request.protocol_name, assignment)

    def _named(self, owned: Owned) -> dict[str, list[int]]:
        return named(owned, self._topics)

    # --- staying and leaving ---

    def heartbeat(
        self, member_id: str, instance_id: str | None, generation: int, now: Now
    ) -> tuple[ErrorCode, list[Effect]]:
        """Renew the session of a member; REBALANCE_IN_PROGRESS if it should rejoin."""
        group = self._group
        try:
            member, _ = self._classic_member(member_id, instance_id, generation)
        except KafkaError as refused:
            return refused.code, []
        group.touch(member, now)
        group.steps.target.refresh(changed=False)
        behind = member.epoch < group.group_members.epoch or member.state is MemberState.UNREVOKED_PARTITIONS
        if behind or (member.state is MemberState.UNRELEASED_PARTITIONS and not self._waits_for_others(member)):
            self._expect_join(member, now)
            return ErrorCode.REBALANCE_IN_PROGRESS, group.group_writes.drain()
        return ErrorCode.NONE, group.group_writes.drain()

    def _waits_for_others(self, member: ConsumerMember) -> bool:
        """Whether another member still owns a partition of its target."""
        group_members = self._group.group_members
        return any(
            group_members.owner(topic_id, partition) not in (None, member.member_id)
            for topic_id, partitions in group_members.targets.get(member.member_id, {}).items()
            for partition in sorted(partitions)
        )

    def leave(self, member_id: str, instance_id: str | None, now: Now) -> tuple[ErrorCode, list[Effect]]:
        """Remove a member of either protocol that leaves or is removed; a static one by its instance id alone."""
        group = self._group
        if member_id == UNKNOWN_MEMBER_ID:
            member = group.group_members.of_instance(instance_id)
        else:
            member = group.group_members.members.get(member_id)
            if instance_id is not None:
                try:
                    member = group.static_member(member_id, instance_id)
                except KafkaError as refused:
                    return refused.code, []
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID, []
        group.put_out([member])
        return ErrorCode.NONE, group.group_writes.drain()

    def _classic_member(
        self, member_id: str, instance_id: str | None, generation: int
    ) -> tuple[ConsumerMember, ClassicTerms]:
        group = self._group
        if instance_id is not None:
            member: ConsumerMember | None = group.static_member(member_id, instance_id)
        else:
            member = group.group_members.members.get(member_id)
        if member is None or member.classic is None:
            raise group.unknown(member_id)
        if member.epoch != generation:
            raise KafkaError(ErrorCode.ILLEGAL_GENERATION, f"member {member_id} is in generation {member.epoch}")
        return member, member.classic

    def _expect_join(self, member: ConsumerMember, now: Now) -> None:
        name = ("join", member.member_id)
        if name not in self._group.group_writes.effects.armed:
            self._group.group_writes.effects.arm(name, now.monotonic_ms + member.rebalance_timeout_ms)


def read_subscription(metadata: bytes) -> m.ConsumerProtocolSubscription:
    """The subscription of a classic consumer, of any version. Raises ProtocolError."""
    version = _version(metadata)
    return m.ConsumerProtocolSubscription.decode(metadata, min(version, m.ConsumerProtocolSubscription.MAX_VERSION), 2)


def read_assignment(assignment: bytes) -> m.ConsumerProtocolAssignment:
    """The assignment of a classic consumer, of any version; empty for empty bytes. Raises ProtocolError."""
    if not assignment:
        return m.ConsumerProtocolAssignment()
    version = _version(assignment)
    return m.ConsumerProtocolAssignment.decode(assignment, min(version, m.ConsumerProtocolAssignment.MAX_VERSION), 2)


def write_assignment(partitions: Mapping[str, list[int]], metadata: bytes) -> bytes:
    """An assignment in the version of the subscription that it answers."""
    version = min(_version(metadata), m.ConsumerProtocolAssignment.MAX_VERSION)
    assignment = m.ConsumerProtocolAssignment(
        assigned_partitions=[
            m.ConsumerProtocolAssignment.TopicPartition(topic=topic, partitions=indexes)
            for topic, indexes in partitions.items()
        ]
    )
    return version.to_bytes(VERSION_SIZE, "big") + assignment.encode(version)


def named(owned: Owned, topics: Topics) -> dict[str, list[int]]:
    """Partitions by the names of their topics, both ascending; deleted topics are omitted."""
    by_name = sorted((topics.name_of(topic_id) or "", sorted(partitions)) for topic_id, partitions in owned.items())
    return {name: partitions for name, partitions in by_name if name}


def _version(data: bytes) -> int:
    version = int.from_bytes(data[:VERSION_SIZE], "big", signed=True)
    if len(data) < VERSION_SIZE or version < 0:
        raise ProtocolError("ConsumerProtocol.version", 0, f"{data[:VERSION_SIZE].hex()} is no version")
    return version
