"""Target assignment of a consumer group: of all members, for one epoch of the group (Kafka: TargetAssignmentBuilder).

The target of a small group is computed with the request that needs it. That of a large group is computed apart from
requests, as Kafka 4.3 does for every group (KIP-1263): the group's new epoch begins at once, members move towards the
former target meanwhile, and every change until the computation has ended belongs to the next one. So the members of a
group that joins as a whole need a few computations, and not one each.

| part of a computation            | event                                                                     |
|----------------------------------|---------------------------------------------------------------------------|
| the hash of the topics           | the group's epoch gets the hash, or rises where topics have changed       |
| the targets that differ, encoded | they are appended, PART_RECORDS at a time; the group has its former target |
| the end                          | the epoch of the target is appended, and the group has the new target     |

A computation that a failover or a rejected append ends is started again by the next heartbeat. Records of its targets
may be in the log then, so two members may own one partition: `_without_overlaps` gives it to the first.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import Final

from odradek.broker.group.state import consumer_group_records as records
from odradek.broker.group.state.consumer_assignors import ASSIGNORS, Assignment, MemberSpec
from odradek.broker.group.state.consumer_group_members import ConsumerGroupMembers, ConsumerMember, Resolved
from odradek.broker.group.state.consumer_group_pending_writes import ConsumerGroupWrites
from odradek.broker.group.state.consumer_group_requests import Topics
from odradek.broker.group.state.interruptible import at_once, in_order
from odradek.broker.runtime.state.effects import Each, Effect, KeyValue, Now

NO_TOPICS_SEEN: Final = -1
AT_ONCE: Final = 1000
"""Members and topics of their subscriptions, in all, of a group whose target is computed with a request: three
milliseconds."""
PARTITIONS_AT_ONCE: Final = 5000
"""The same for the partitions of these topics."""
PART_RECORDS: Final = 250
PART_BYTES: Final = 100_000
"""Records of targets, and their bytes, that are appended in one event."""
FIRST_EPOCH: Final = 1
"""The epoch of the empty target of a new group, until the first one is computed: a member is never in epoch 0."""

Written = list[tuple[str, KeyValue]]
"""Member ids and records of their targets."""


class Computation:
    """One computation apart from requests: what it began with, and its progress."""

    __slots__ = ("changed", "epoch", "left", "members", "renamed", "targets", "topics_hash", "version")

    def __init__(self, group_members: ConsumerGroupMembers, version: int) -> None:
        """`version` is that of the topics."""
        self.epoch = group_members.epoch
        self.members = dict(group_members.members)
        self.targets = group_members.targets
        self.version = version
        self.topics_hash: int | None = None
        self.changed: dict[str, Assignment] = {}
        """The targets that differ from the former ones."""
        self.renamed: dict[str, str] = {}
        """Static members that have returned under another id since, by the id in `members`."""
        self.left: set[str] = set()
        """Members that are removed since; others may have joined under these ids."""

    def rename(self, old: str, new: str) -> None:
        """A static member has another id."""
        self.left.add(old)
        self.renamed[next((first for first, last in self.renamed.items() if last == old), old)] = new


class SubscribedIds:
    """The ids of the topics to which some members subscribe."""

    __slots__ = ("_set", "in_order")

    def __init__(self, in_order: tuple[bytes, ...]) -> None:
        self.in_order = in_order
        """The ids, ascending."""
        self._set: frozenset[bytes] | None = None

    @property
    def as_set(self) -> frozenset[bytes]:
        """The ids as a set, which is made once: every heartbeat of a member with partitions needs it."""
        if self._set is None:
            self._set = frozenset(self.in_order)
        return self._set


class TargetAssignment:
    """The target of one group, and what it depends on."""

    __slots__ = (
        "_computation",
        "_group_members",
        "_group_writes",
        "_ids",
        "_may_overlap",
        "_partitions",
        "_seen",
        "_shared_ids",
        "_shared_version",
        "_topics",
        "_uncertain",
        "default_assignor",
    )

    def __init__(self, group_writes: ConsumerGroupWrites, topics: Topics, default_assignor: str) -> None:
        self._group_writes = group_writes
        self._group_members: ConsumerGroupMembers = group_writes.group_members
        self._topics = topics
        self.default_assignor = default_assignor
        # The ids of the topics of each member, and what they depend on.
        self._ids: dict[str, tuple[tuple[str, ...], Resolved | None, int, SubscribedIds]] = {}
        # Most members subscribe to the same: the ids by names and matches, in this version of the topics.
        self._shared_ids: dict[tuple[tuple[str, ...], Resolved | None], SubscribedIds] = {}
        self._shared_version = NO_TOPICS_SEEN
        self._seen = NO_TOPICS_SEEN
        """The version of the topics for which the group's epoch was computed."""
        self._partitions = 0
        """How many partitions the subscribed topics had then."""
        self._computation: Computation | None = None
        self._uncertain: set[str] = set()
        """Members whose target in the log may be that of a computation that did not end."""
        self._may_overlap = True
        """Whether the former targets may be those of two computations, and give one partition to two members."""

    @property
    def is_computing(self) -> bool:
        """Whether a computation apart from requests has begun."""
        return self._computation is not None

    @property
    def is_in_log(self) -> bool:
        """Whether the log has the members' targets: a computation that ends has other ones there, until it is done."""
        return not self._uncertain

    @property
    def _is_large(self) -> bool:
        group_members = self._group_members
        return (
            len(group_members.members) + group_members.subscriptions > AT_ONCE or self._partitions > PARTITIONS_AT_ONCE
        )

    @property
    def assignor(self) -> str:
        """The assignor that most members request; the default when none is requested."""
        return self._assignor(self._group_members.members.values(), at_once)

    def _assignor(self, members: Iterable[ConsumerMember], each: Each) -> str:
        votes: dict[str, int] = {}
        for member in each(members):
            if member.assignor in ASSIGNORS:
                votes[member.assignor] = votes.get(member.assignor, 0) + 1
        return max(votes, key=votes.__getitem__, default=self.default_assignor)

    # --- the group's epoch ---

    def forget_topics(self) -> None:
        """Compare the topics again with the next request, because changes were undone: the group's epoch may be from an
        older version of them.
        """
        self._seen = NO_TOPICS_SEEN
        self._may_overlap = True
        self.stop()

    def refresh(self, *, changed: bool) -> None:
        """Increase the group's epoch when subscriptions or the subscribed topics have changed."""
        group_members, version = self._group_members, self._topics.version
        if not changed and version == self._seen:
            return
        if self._is_large:
            if changed:
                self._set_epoch(group_members.epoch + 1, group_members.hash)
            self._compute_apart()
            return
        self._seen = version
        topics_hash = self._hash(self._subscribed(group_members.members.values(), at_once), at_once)
        if changed or topics_hash != group_members.hash:
            self._set_epoch(group_members.epoch + 1, topics_hash)

    def subscriptions_changed(self) -> None:
        """Increase the group's epoch because an expression has other topics than before, and compute its target."""
        self.refresh(changed=True)
        self.update()

    def bump(self) -> None:
        """Increase the group's epoch unconditionally."""
        group_members = self._group_members
        topics_hash = group_members.hash
        if not self._is_large:
            topics_hash = self._hash(self._subscribed(group_members.members.values(), at_once), at_once)
        self._set_epoch(group_members.epoch + 1, topics_hash)

    def _set_epoch(self, epoch: int, topics_hash: int) -> None:
        self._group_writes.write(records.group_epoch(self._group_writes.group_id, epoch, topics_hash))

    def _subscribed(self, members: Iterable[ConsumerMember], each: Each) -> list[str]:
        """Every topic to which any of these members subscribes, ascending."""
        found: set[str] = set()
        expressions: set[str] = set()
        for member in each(members):
            found.update(member.names)
            expressions.add(member.expression)
        for expression in each(expressions):
            resolved = self._group_members.resolved.get(expression)
            if resolved is not None:
                found.update(resolved.topics)
        return in_order(found, str, each)

    def _hash(self, names: list[str], each: Each) -> int:
        """A 64-bit hash of the metadata of topics; 0 when none of them exists. Counts their partitions, too.

        Kafka has another hash here, which includes the racks of the replicas. Each broker compares only hashes that it
        has computed itself; the hash of another broker leads to one additional epoch.
        """
        digest, empty, partitions = hashlib.blake2b(digest_size=8), True, 0
        for name in each(names):
            topic_id = self._topics.id_of(name)
            if topic_id is not None:
                empty = False
                count = self._topics.partition_count(name)
                partitions += count
                digest.update(f"{name}:{topic_id.hex()}:{count};".encode())
        self._partitions = partitions
        return 0 if empty else int.from_bytes(digest.digest(), "big", signed=True)

    # --- with a request ---

    def update(self) -> None:
        """Compute the target for the group's epoch, or begin to."""
        group_members, group_id = self._group_members, self._group_writes.group_id
        if group_members.epoch <= group_members.target_epoch:
            return
        if self._is_large:
            self._compute_apart()
            return
        self.stop()
        targets = self._assign(group_members.members, group_members.targets, at_once)
        for member_id, assignment in targets.items():
            if group_members.targets.get(member_id) != assignment or member_id in self._uncertain:
                self._group_writes.write(records.target(group_id, member_id, assignment))
        self._end(group_members.epoch)

    def _assign(
        self, members: Mapping[str, ConsumerMember], targets: Mapping[str, Assignment], each: Each
    ) -> Mapping[str, Assignment]:
        """The assignment of each member; `targets` are the former ones."""
        specs, counts = {}, {}
        for member_id, member in each(members.items()):
            topic_ids = self.subscribed(member).in_order
            specs[member_id] = MemberSpec(member.instance_id, topic_ids, targets.get(member_id, {}))
            for topic_id in each(topic_ids):
                if topic_id not in counts:
                    counts[topic_id] = self._topics.partition_count(self._topics.name_of(topic_id) or "")
        if self._may_overlap:
            specs = _without_overlaps(specs, each)
        assign = ASSIGNORS[self._assignor(members.values(), each)]
        return assign(specs, counts, each)

    def _end(self, epoch: int) -> None:
        """Write the epoch of the target, whose other records are written."""
        uncertain, self._uncertain = self._uncertain, set()
        self._group_writes.changes(partial(self._uncertain.update, uncertain))
        self._may_overlap = False
        self._group_writes.write(records.target_epoch(self._group_writes.group_id, epoch))

    def subscribed(self, member: ConsumerMember) -> SubscribedIds:
        """The ids of the existing topics of a member; found once for each version of the topics."""
        resolved = self._group_members.resolved.get(member.expression) if member.expression else None
        names, version = member.names, self._topics.version
        known = self._ids.get(member.member_id)
        if known is not None and known[0] is names and known[1] is resolved and known[2] == version:
            return known[3]
        most = 2 * len(self._group_members.members)  # beyond it, most of these members have left
        if len(self._ids) > most:
            self._ids.clear()
        if self._shared_version != version or len(self._shared_ids) > most:
            self._shared_ids.clear()
            self._shared_version = version
        shared = self._shared_ids.get((names, resolved))
        if shared is None:
            ids = filter(None, map(self._topics.id_of, self._group_members.topics_of(member)))
            shared = SubscribedIds(tuple(sorted(ids)))
            self._shared_ids[names, resolved] = shared
        self._ids[member.member_id] = names, resolved, version, shared
        return shared

    # --- apart from requests ---

    def renamed(self, old: str, new: str) -> None:
        """A static member has returned under another id, with its target."""
        if self._computation is not None:
            self._computation.rename(old, new)

    def removed(self, member_id: str) -> None:
        """A member is removed."""
        if self._computation is not None:
            self._computation.left.add(member_id)

    def stop(self) -> None:
        """Drop the computation, if there is one."""
        self._computation = None

    def _compute_apart(self) -> None:
        if self._computation is not None:
            return
        group_members, group_id = self._group_members, self._group_writes.group_id
        if group_members.target_epoch < FIRST_EPOCH:
            if group_members.epoch <= FIRST_EPOCH:
                self._set_epoch(FIRST_EPOCH + 1, group_members.hash)
            self._group_writes.write(records.target_epoch(group_id, FIRST_EPOCH))
        computation = self._computation = Computation(group_members, self._topics.version)
        self._group_writes.effects.offload(partial(self._parts, computation), partial(self._computed, computation))

    def _parts(self, computation: Computation, each: Each) -> Iterator[Written]:
        """Compute; each part has records to append, and the first and the last part have none."""
        try:
            members = computation.members
            names = self._subscribed(members.values(), each)
            computation.topics_hash = self._hash(names, each)
            yield []
            if computation.epoch <= self._group_members.target_epoch or computation is not self._computation:
                return
            targets = self._assign(members, computation.targets, each)
            for member_id, assignment in each(targets.items()):
                if computation.targets.get(member_id) != assignment or member_id in self._uncertain:
                    computation.changed[member_id] = assignment
            yield from _in_parts(self._group_writes.group_id, computation.changed, each)
            yield []
        finally:
            if computation is self._computation:
                self._computation = None

    def _computed(self, computation: Computation, part: Written, now: Now) -> list[Effect]:
        """A part is computed."""
        if computation is self._computation:
            if part:
                self._append(computation, part)
            elif computation.topics_hash is not None:
                self._set_hash(computation, computation.topics_hash)
            else:
                self._install(computation)
        return self._group_writes.drain()

    def _set_hash(self, computation: Computation, topics_hash: int) -> None:
        """Give the group's epoch the hash of its topics, or increase it. What has changed since is left to the next
        computation.
        """
        group_members, computation.topics_hash = self._group_members, None
        if group_members.epoch != computation.epoch:
            return
        self._seen = computation.version
        if topics_hash != group_members.hash:
            is_behind = group_members.epoch > group_members.target_epoch
            self._set_epoch(group_members.epoch + (not is_behind), topics_hash)
            computation.epoch = group_members.epoch

    def _append(self, computation: Computation, part: Written) -> None:
        for member_id, record in part:
            if member_id not in computation.left:
                self._uncertain.add(member_id)
                self._group_writes.write_beside(record)

    def _install(self, computation: Computation) -> None:
        """The group has the new target."""
        group_members, left = self._group_members, computation.left
        before, changed = group_members.targets, computation.changed
        after = dict(before)
        after.update((member_id, target) for member_id, target in changed.items() if member_id not in left)
        self._group_writes.changes(partial(setattr, group_members, "targets", before))
        group_members.targets = after
        for old, new in computation.renamed.items():
            if old in changed and new not in left:
                self._group_writes.write(records.target(self._group_writes.group_id, new, changed[old]))
        self._end(computation.epoch)
        self.stop()


def _without_overlaps(specs: Mapping[str, MemberSpec], each: Each) -> dict[str, MemberSpec]:
    """The same members; a partition that several own remains with the first of them."""
    taken: dict[bytes, set[int]] = {}
    found = {}
    for member_id, spec in specs.items():
        owned = {}
        for topic_id, partitions in each(spec.owned.items()):
            free = partitions - taken.setdefault(topic_id, set())
            taken[topic_id] |= partitions
            if free:
                owned[topic_id] = free
        found[member_id] = spec._replace(owned=owned)
    return found


def _in_parts(group_id: str, targets: Mapping[str, Assignment], each: Each) -> Iterator[Written]:
    """The records of these targets, in parts that are not empty."""
    part: Written = []
    size = 0
    for member_id, assignment in each(targets.items()):
        key, value = records.target(group_id, member_id, assignment, each).encode(each)
        part.append((member_id, (key, value)))
        size += len(key) + len(value or b"")
        if len(part) == PART_RECORDS or size > PART_BYTES:
            yield part
            part, size = [], 0
    if part:
        yield part
