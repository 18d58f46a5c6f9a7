"""Steps of a member's request in a consumer group, in either protocol (Kafka: GroupMetadataManager).

1. Add or update the member and resolve its regular expression. When that changes the subscriptions, or when the
   subscribed topics have changed, the group gets a new epoch.
2. When the group epoch is ahead of the target's, compute a new target for all members, with the assignor that most
   members request.
3. Move the member one step towards its target.

Each step writes records of its changes. The rules are those of Kafka's GroupMetadataManager and
TargetAssignmentBuilder. Kafka resolves expressions in a separate thread, and the member waits one heartbeat for the
result; here this is part of step 1.
"""

from __future__ import annotations

import hashlib
from itertools import chain

from odradek.broker.group.state import consumer_group_records as records
from odradek.broker.group.state.consumer_assignors import ASSIGNORS, Assignment, MemberSpec
from odradek.broker.group.state.consumer_group_members import ConsumerGroupMembers, ConsumerMember, Resolved
from odradek.broker.group.state.consumer_group_pending_writes import ConsumerGroupWrites, fits
from odradek.broker.group.state.consumer_group_reconciliation import Target, reconcile
from odradek.broker.group.state.consumer_group_requests import Describable, Topics
from odradek.broker.group.state.topic_patterns import matching
from odradek.broker.runtime.state.effects import Now
from odradek.protocol.errors import ErrorCode, KafkaError

NO_TOPICS_SEEN = -1


class Steps:
    """The steps of one group."""

    __slots__ = ("_group_members", "_group_writes", "_ids", "_looked_up", "_seen", "_topics", "default_assignor")

    def __init__(self, group_writes: ConsumerGroupWrites, topics: Topics, default_assignor: str) -> None:
        self._group_writes = group_writes
        self._group_members: ConsumerGroupMembers = group_writes.group_members
        self._topics = topics
        self.default_assignor = default_assignor
        # The ids of the topics of each member, and what they depend on.
        self._ids: dict[str, tuple[tuple[str, ...], Resolved | None, int, tuple[bytes, ...]]] = {}
        self._seen = NO_TOPICS_SEEN
        """The version of the topics for which the group's epoch was computed."""
        self._looked_up = NO_TOPICS_SEEN
        """The version of the topics in which the expressions were looked up."""

    def forget_topics(self) -> None:
        """Compare the topics again with the next request: the group's epoch may be from an older version of them."""
        self._seen = self._looked_up = NO_TOPICS_SEEN

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
            self.forget_expression(former)
        if describable is not None:
            changed = self._look_up_expressions(now, describable) or changed
        self.refresh(now, changed=changed)

    def refresh(self, now: Now, *, changed: bool) -> None:
        """Increase the group epoch when subscriptions or the subscribed topics have changed."""
        group_members, version = self._group_members, self._topics.version
        if not changed and version == self._seen:
            return
        self._seen = version
        topics_hash = self._hash()
        if changed or topics_hash != group_members.hash:
            self._group_writes.write(
                records.group_epoch(self._group_writes.group_id, group_members.epoch + 1, topics_hash)
            )

    def _look_up_expressions(self, now: Now, describable: Describable) -> bool:
        """Find the topics that match the group's expressions, of those that the sender of a request may describe."""
        group_members, version, changed = self._group_members, self._topics.version, False
        for pattern in sorted({member.expression for member in group_members.members.values() if member.expression}):
            known = group_members.resolved.get(pattern)
            if known is not None and version == self._looked_up:
                continue
            found = describable(matching(pattern, self._topics.names()))
            if known is None or known.topics != found:
                changed = True
                self._group_writes.write(
                    records.expression(self._group_writes.group_id, pattern, Resolved(found, version, now.wall_ms))
                )
        self._looked_up = version
        return changed

    def forget_expression(self, pattern: str) -> None:
        """Write a tombstone of an expression to which no member subscribes any more."""
        if pattern in self._group_members.resolved and not self._group_members.subscribers(pattern):
            self._group_writes.write(records.no_expression(self._group_writes.group_id, pattern))

    def remove(self, member: ConsumerMember) -> None:
        """Remove a member for good."""
        self._group_writes.write(*records.no_member(self._group_writes.group_id, member.member_id))
        self.forget_expression(member.expression)

    def bump(self) -> None:
        """Increase the group epoch unconditionally."""
        epoch = self._group_members.epoch + 1
        self._group_writes.write(records.group_epoch(self._group_writes.group_id, epoch, self._hash()))

    def _hash(self) -> int:
        """A 64-bit hash of the metadata of the subscribed topics; 0 when none of them exists.

        Kafka has another hash here, which includes the racks of the replicas. Each broker compares only hashes that it
        has computed itself; the hash of another broker leads to one additional epoch.
        """
        digest, empty = hashlib.blake2b(digest_size=8), True
        for name in self._group_members.subscribed():
            topic_id = self._topics.id_of(name)
            if topic_id is not None:
                empty = False
                digest.update(f"{name}:{topic_id.hex()}:{self._topics.partition_count(name)};".encode())
        return 0 if empty else int.from_bytes(digest.digest(), "big", signed=True)

    # --- step 2 ---

    def retarget(self) -> None:
        """Step 2: compute the target for the group's epoch."""
        group_members, group_id = self._group_members, self._group_writes.group_id
        if group_members.epoch <= group_members.target_epoch:
            return
        members = {member_id: self._spec(member) for member_id, member in group_members.members.items()}
        topic_ids = set(chain.from_iterable(member.topics for member in members.values()))
        counts = {
            topic_id: self._topics.partition_count(self._topics.name_of(topic_id) or "")
            for topic_id in sorted(topic_ids)
        }
        targets = ASSIGNORS[self.assignor](members, counts)
        for member_id, assignment in targets.items():
            if group_members.targets.get(member_id) != assignment:
                self._group_writes.write(records.target(group_id, member_id, assignment))
        self._group_writes.write(records.target_epoch(group_id, group_members.epoch))

    def _spec(self, member: ConsumerMember) -> MemberSpec:
        return MemberSpec(
            member.instance_id,
            self._topic_ids(member),
            self._group_members.targets.get(member.member_id, {}),
        )

    def _topic_ids(self, member: ConsumerMember) -> tuple[bytes, ...]:
        """The ids of the existing topics of a member, ascending; found once for each version of the topics."""
        resolved = self._group_members.resolved.get(member.expression) if member.expression else None
        names, version = member.names, self._topics.version
        known = self._ids.get(member.member_id)
        if known is not None and known[0] is names and known[1] is resolved and known[2] == version:
            return known[3]
        found = [self._topics.id_of(name) for name in self._group_members.topics_of(member)]
        topic_ids = tuple(sorted(topic_id for topic_id in found if topic_id is not None))
        if len(self._ids) > 2 * len(self._group_members.members):
            self._ids.clear()  # most of these members have left
        self._ids[member.member_id] = names, resolved, version, topic_ids
        return topic_ids

    @property
    def assignor(self) -> str:
        """The assignor that most members request; the default when none is requested."""
        votes: dict[str, int] = {}
        for member in self._group_members.members.values():
            if member.assignor in ASSIGNORS:
                votes[member.assignor] = votes.get(member.assignor, 0) + 1
        return max(votes, key=votes.__getitem__, default=self.default_assignor)

    # --- step 3 ---

    def advance(self, member_id: str, reported: Assignment | None) -> ConsumerMember:
        """Step 3: move the member one step towards its target. Raises KafkaError(FENCED_MEMBER_EPOCH)."""
        group_members = self._group_members
        member = group_members.members[member_id]
        topics = frozenset(self._topic_ids(member))
        if member.is_reconciled_to(group_members.target_epoch) and topics.issuperset(member.assigned):
            return member
        target = Target(group_members.target_epoch, group_members.targets.get(member_id, {}), topics)
        moved = reconcile(member, target, reported, group_members.owner)
        if moved != member:
            self._group_writes.write(records.current(self._group_writes.group_id, moved))
        return moved
