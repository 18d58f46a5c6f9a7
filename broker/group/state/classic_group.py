"""Classic group: members, generation, protocol and state, and what they allow (Kafka: ClassicGroup, GroupMetadata).

`classic_rebalance` has the transitions from one generation to the next, and `classic_membership` the requests.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from odradek.broker.group.state.classic_generation import NextGeneration, Subscriptions
from odradek.broker.group.state.classic_members import ClassicGroupMembers, JoinedMembers, Member
from odradek.broker.group.state.classic_requests import (
    UNKNOWN_MEMBER_ID,
    ClassicGroupState,
    JoinRequest,
    JoinResult,
    SyncRequest,
    SyncResult,
)
from odradek.broker.group.state.records import (
    encoded_member,
    encoded_members,
    group_record,
    member_value,
    restore_members,
)
from odradek.broker.runtime.state.effects import Each, Now
from odradek.protocol import messages as m
from odradek.protocol.encoded import EncodedArray, EncodedElement
from odradek.protocol.errors import ErrorCode

CONSUMER: Final = "consumer"
DEAD: Final = ClassicGroupState.DEAD
EMPTY: Final = ClassicGroupState.EMPTY
COMPLETING: Final = ClassicGroupState.COMPLETING
NO_ERROR: Final = ErrorCode.NONE
"""Python 3.11 calls a function to find a member of an enumeration, and each commit passes several checks."""
_new: Final = tuple.__new__
"""Makes a named tuple without a call of Python's `__new__`."""


class ClassicGroup:
    """The state of a group of the classic protocol, without the requests that wait in a rebalance."""

    def __init__(self, group_id: str, now: Now) -> None:
        self.group_id = group_id
        self.state = ClassicGroupState.EMPTY
        self.state_since_ms: int | None = now.wall_ms
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        self.group_members = ClassicGroupMembers()
        self.in_log: bytes | None = None
        """The value of the generation's record in the log, or in an append that the log has not refused."""
        self._subscribed: frozenset[str] | None = None

    def subscribes_to(self, topic: str) -> bool:
        """Whether a member consumes this topic; True also where the subscriptions are unknown."""
        return self._subscribed is None or topic in self._subscribed

    @property
    def knows_subscriptions(self) -> bool:
        """Whether the members are consumers with readable subscriptions."""
        return self._subscribed is not None

    def generation_value(self, assignments: Mapping[str, bytes]) -> m.GroupMetadataValue:
        """The record value of the current generation."""
        return self._generation_value(
            [member_value(each, self.protocol_name, assignments[each.member_id]) for each in self.group_members]
        )

    def generation_record(self, assignments: Mapping[str, bytes] | None) -> tuple[bytes, bytes]:
        """The record of the current generation, with the members that `encode` has encoded since they changed.

        Without `assignments` the members keep theirs.
        """
        elements = [each.encoded or self.encode(each, assignments) for each in self.group_members]
        return self.record_with(encoded_members(elements))

    def record_with(self, members: EncodedArray) -> tuple[bytes, bytes]:
        """The record of the current generation with these members, which are all of the group."""
        return group_record(self.group_id, self._generation_value(members))

    def encode(self, member: Member, assignments: Mapping[str, bytes] | None) -> EncodedElement:
        """Encode a member with its assignment for the record of the current generation."""
        assignment = member.assignment if assignments is None else assignments.get(member.member_id, b"")
        member.encoded = encoded = encoded_member(member, self.protocol_name, assignment)
        return encoded

    def _generation_value(self, members: list[Any]) -> m.GroupMetadataValue:
        return m.GroupMetadataValue(
            protocol_type=self.protocol_type or "",
            generation=self.generation,
            protocol=self.protocol_name,
            leader=self.group_members.leader,
            current_state_timestamp=-1 if self.state_since_ms is None else self.state_since_ms,
            members=members,
        )

    def join_result(self, member: Member) -> JoinResult:
        """The answer of a join: the current generation, for the leader with all members."""
        leads = self.group_members.leader == member.member_id
        members = JoinedMembers(self.group_members, self.protocol_name) if leads else ()
        of_all = self.generation, self.protocol_type, self.protocol_name, self.group_members.leader or ""
        return _new(JoinResult, (NO_ERROR, member.member_id, *of_all, members, False))

    def sync_result(self, member: Member) -> SyncResult:
        """The answer of a sync: the member's assignment."""
        return _new(SyncResult, (NO_ERROR, self.protocol_type, self.protocol_name, member.assignment))

    def check_member(self, member_id: str, instance_id: str | None) -> ErrorCode:
        """Whether these ids are those of one member."""
        if instance_id is not None:
            static = self.group_members.of_instance(instance_id)
            if static is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if static.member_id != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        return ErrorCode.NONE if member_id in self.group_members else ErrorCode.UNKNOWN_MEMBER_ID

    def check_sync(self, request: SyncRequest) -> ErrorCode:
        """Whether the sender of a SyncGroup is a member of the current generation."""
        if self.state is ClassicGroupState.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        error = self.check_member(request.member_id, request.instance_id)
        if error:
            return error
        if request.generation != self.generation:
            return ErrorCode.ILLEGAL_GENERATION
        if request.protocol_type is not None and request.protocol_type != self.protocol_type:
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if request.protocol_name is not None and request.protocol_name != self.protocol_name:
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if self.state is ClassicGroupState.EMPTY:
            return ErrorCode.UNKNOWN_MEMBER_ID
        return ErrorCode.REBALANCE_IN_PROGRESS if self.state is ClassicGroupState.PREPARING else ErrorCode.NONE

    def check_commit(self, member_id: str, instance_id: str | None, generation: int) -> ErrorCode:
        """Whether this sender may commit; generation -1 without ids is a consumer that assigns partitions itself."""
        state = self.state
        if state is DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if generation < 0 and state is EMPTY:
            return NO_ERROR
        if generation < 0 and member_id == UNKNOWN_MEMBER_ID and instance_id is None:
            return ErrorCode.UNKNOWN_MEMBER_ID  # a group with members accepts commits of its members only
        error = self.check_member(member_id, instance_id)
        if error:
            return error
        if generation != self.generation:
            return ErrorCode.ILLEGAL_GENERATION
        # The member has received the new generation, so it must not commit what it read in the old one.
        return ErrorCode.REBALANCE_IN_PROGRESS if state is COMPLETING else NO_ERROR

    def speaks(self, request: JoinRequest) -> bool:
        """Whether a joining member has the group's protocol type, and a protocol that every member supports."""
        if self.state is ClassicGroupState.EMPTY:
            return bool(request.protocol_type and request.terms.protocols)
        return self.protocol_type == request.protocol_type and self.group_members.supports(request.terms.protocols)

    def become(self, state: ClassicGroupState, now: Now) -> None:
        """Change the state."""
        self.state = state
        self.state_since_ms = now.wall_ms

    def replay(self, value: m.GroupMetadataValue, data: bytes, each: Each = iter) -> None:
        """Apply a generation that is in the log during a load; `data` is the value of its record."""
        self.generation = value.generation
        self.protocol_type = value.protocol_type or None
        self.protocol_name = value.protocol
        restore_members(self.group_members, value, each)
        self.state = ClassicGroupState.STABLE if value.members else ClassicGroupState.EMPTY
        self.state_since_ms = value.current_state_timestamp if value.current_state_timestamp >= 0 else None
        self.in_log = data
        subscriptions = Subscriptions()
        for member in each(self.group_members) if self._consumes else ():
            subscriptions.add(member.metadata(self.protocol_name))
        self._subscribed = subscriptions.topics if self._consumes else None

    def next_generation(self) -> NextGeneration:
        """Begin to examine the members for the next generation."""
        return NextGeneration(self.group_members, consumes=self._consumes)

    def advance(self, decided: NextGeneration) -> None:
        """Begin the next generation, which has the protocol and the topics that its members have decided."""
        self.generation += 1
        self.protocol_name = decided.protocol_name
        self._subscribed = decided.topics

    @property
    def _consumes(self) -> bool:
        return self.protocol_type == CONSUMER
