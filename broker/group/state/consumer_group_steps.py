"""Steps of a member's request in a consumer group, in either protocol (Kafka: GroupMetadataManager).

1. Add or update the member and resolve its regular expression. When that changes the subscriptions, or when the
   subscribed topics have changed, the group gets a new epoch.
2. When the group epoch is ahead of the target's, compute a new target for all members, with the assignor that most
   members request (`consumer_group_target`).
3. Move the member one step towards its target.

Each step writes records of its changes. The rules are those of Kafka's GroupMetadataManager. The module
`consumer_group_expressions` resolves expressions.
"""

from __future__ import annotations

from odradek.broker.group.state import consumer_group_records as records
from odradek.broker.group.state.consumer_assignors import Assignment
from odradek.broker.group.state.consumer_group_expressions import Expressions
from odradek.broker.group.state.consumer_group_members import ConsumerGroupMembers, ConsumerMember
from odradek.broker.group.state.consumer_group_pending_writes import ConsumerGroupWrites, fits
from odradek.broker.group.state.consumer_group_reconciliation import Target, reconcile
from odradek.broker.group.state.consumer_group_requests import Describable, Topics
from odradek.broker.group.state.consumer_group_target import TargetAssignment
from odradek.broker.runtime.state.effects import Now
from odradek.protocol.errors import ErrorCode, KafkaError


class Steps:
    """The steps of one group."""

    __slots__ = ("_expressions", "_group_members", "_group_writes", "target")

    def __init__(self, group_writes: ConsumerGroupWrites, topics: Topics, default_assignor: str) -> None:
        self._group_writes = group_writes
        self._group_members: ConsumerGroupMembers = group_writes.group_members
        self.target = TargetAssignment(group_writes, topics, default_assignor)
        self._expressions = Expressions(group_writes, topics, self.target.subscriptions_changed)

    def stop(self) -> None:
        """Drop what is computed apart from requests."""
        self._expressions.stop()
        self.target.stop()

    def forget_topics(self) -> None:
        """Compare the topics again with the next request: the group's epoch may be from an older version of them."""
        self._expressions.forget_topics()
        self.target.forget_topics()

    def replace(self, old: ConsumerMember, member_id: str) -> ConsumerMember:
        """Replace the former member by the static member that has returned under another id."""
        group_id = self._group_writes.group_id
        target = self._group_members.targets.get(old.member_id, {})
        member = old._replace(member_id=member_id, epoch=0, previous_epoch=0)
        self._group_writes.write(
            *records.no_member(group_id, old.member_id),
            records.member_metadata(group_id, member),
            records.target(group_id, member_id, target),
            records.current(group_id, member),
        )
        self.target.renamed(old.member_id, member_id)
        return member

    def enter(self, member: ConsumerMember, now: Now, describable: Describable | None = None) -> None:
        """Step 1: add or update the member; look up expressions if it sent a filter for topics (`describable`).

        Raises KafkaError(UNKNOWN_SERVER_ERROR), as Kafka does, when its record is too large for the log.
        """
        group_members, group_id = self._group_members, self._group_writes.group_id
        old = group_members.members.get(member.member_id)
        changed = group_members.epoch == 0
        if old != member:
            record = records.member_metadata(group_id, member)
            if not fits(record.encode()):
                raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "The subscription is too large for the group's log.")
            self._group_writes.write(record)
            changed = changed or member.names != (old.names if old is not None else ())
        former = old.expression if old is not None else ""
        if member.expression != former:
            changed = True
            self._expressions.forget(former)
        if describable is not None:
            changed = self._expressions.look_up(member.expression, now, describable) or changed
        self.target.refresh(changed=changed)

    def remove(self, member: ConsumerMember) -> None:
        """Remove a member for good."""
        self._group_writes.write(*records.no_member(self._group_writes.group_id, member.member_id))
        self.target.removed(member.member_id)
        self._expressions.forget(member.expression)

    # --- step 3 ---

    def advance(self, member_id: str, reported: Assignment | None) -> ConsumerMember:
        """Step 3: move the member one step towards its target. Raises KafkaError(FENCED_MEMBER_EPOCH)."""
        group_members = self._group_members
        member = group_members.members[member_id]
        assignment = group_members.targets.get(member_id, {})
        # Only partitions are compared with the topics: a member that joins has none, and may subscribe to very many.
        concerned = bool(member.assigned or assignment)
        topics = self.target.subscribed(member).as_set if concerned else frozenset()
        if member.is_reconciled_to(group_members.target_epoch) and topics.issuperset(member.assigned):
            return member
        target = Target(group_members.target_epoch, assignment, topics)
        moved = reconcile(member, target, reported, group_members.owner)
        if moved != member:
            self._group_writes.write(records.current(self._group_writes.group_id, moved))
        return moved
