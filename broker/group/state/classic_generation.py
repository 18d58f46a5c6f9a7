"""Generation of a classic group: members, protocol and number, and their record and responses (Kafka: ClassicGroup).

`classic_membership` has the transitions from one generation to the next.
"""

from __future__ import annotations

from typing import Final

from odradek.broker.group.state.classic_members import ClassicGroupMembers, Member
from odradek.broker.group.state.classic_requests import JoinResult, State, SyncResult
from odradek.broker.group.state.records import member_value, subscribed_topics
from odradek.broker.runtime.state.effects import Now
from odradek.protocol import messages as m
from odradek.protocol.errors import ErrorCode

CONSUMER: Final = "consumer"


class Generation:
    """The state of a classic group, without the state of a rebalance."""

    def __init__(self, group_id: str, now: Now) -> None:
        self.group_id = group_id
        self.state = State.EMPTY
        self.state_since_ms: int | None = now.wall_ms
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        self.group_members = ClassicGroupMembers()
        self.in_log: m.GroupMetadataValue | None = None
        """The generation in the log, or in an append that the log has not refused."""
        self._subscribed: frozenset[str] | None = None

    def subscribes_to(self, topic: str) -> bool:
        """Whether a member consumes this topic; True also where the subscriptions are unknown."""
        return self._subscribed is None or topic in self._subscribed

    @property
    def knows_subscriptions(self) -> bool:
        """Whether the members are consumers with readable subscriptions."""
        return self._subscribed is not None

    def generation_value(self, assignments: dict[str, bytes]) -> m.GroupMetadataValue:
        """The record value of the current generation."""
        return m.GroupMetadataValue(
            protocol_type=self.protocol_type or "",
            generation=self.generation,
            protocol=self.protocol_name,
            leader=self.group_members.leader,
            current_state_timestamp=-1 if self.state_since_ms is None else self.state_since_ms,
            members=[
                member_value(each, self.protocol_name, assignments[each.member_id]) for each in self.group_members
            ],
        )

    def _generation_for(self, member: Member) -> JoinResult:
        leads = self.group_members.leader == member.member_id
        return JoinResult(
            ErrorCode.NONE,
            member.member_id,
            self.generation,
            self.protocol_type,
            self.protocol_name,
            self.group_members.leader or "",
            tuple(
                (each.member_id, each.terms.instance_id, each.metadata(self.protocol_name))
                for each in self.group_members
            )
            if leads
            else (),
        )

    def _assignment_of(self, member: Member) -> SyncResult:
        return SyncResult(ErrorCode.NONE, self.protocol_type, self.protocol_name, member.assignment)

    def _check_member(self, member_id: str, instance_id: str | None) -> ErrorCode:
        if instance_id is not None:
            static = self.group_members.of_instance(instance_id)
            if static is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if static.member_id != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        return ErrorCode.NONE if member_id in self.group_members else ErrorCode.UNKNOWN_MEMBER_ID

    def _consumed_topics(self) -> frozenset[str] | None:
        return subscribed_topics(self.group_members, self.protocol_name) if self.protocol_type == CONSUMER else None
