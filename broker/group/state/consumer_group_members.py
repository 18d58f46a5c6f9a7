"""Members, epochs, targets and resolved expressions of a consumer group (Kafka: ConsumerGroup, ConsumerGroupMember).

Only `ConsumerGroupMembers` is mutable, and only records change it, both when they are written and when they are
replayed, so that a reload ends in the same state. The rules are those of Kafka's ModernGroup, ConsumerGroup and
ConsumerGroupMember.

A member has a subscription and partitions. Its partitions are in two parts, those that it may use (`assigned`) and
those that it has to revoke and has not revoked yet (`revoking`); each partition with the epoch in which the member got
it (KIP-1251). A partition in either part belongs to that member and cannot be assigned to another one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum, IntEnum
from typing import Final, NamedTuple

from odradek.broker.group.state.consumer_assignors import Assignment
from odradek.broker.group.state.settings import MEMBERS_SHARE
from odradek.protocol.errors import ErrorCode, KafkaError

LEFT: Final = -1
"""The epoch of a member that leaves."""
LEFT_FOR_A_WHILE: Final = -2
"""The epoch of a static member that leaves temporarily."""

Owned = Mapping[bytes, Mapping[int, int]]
"""Topic id -> partition -> the epoch in which the member got it; a topic without partitions is not in it."""

NOTHING: Final[Owned] = {}
MEMBER_BYTES: Final = 1024
"""What a member takes beside its strings and metadata."""
STRING_BYTES: Final = 64
"""What a string takes beside its characters."""


class GroupState(Enum):
    """Kafka's names, as ConsumerGroupDescribe and ListGroups print them."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"
    DEAD = "Dead"


class MemberState(IntEnum):
    """The progress of a member towards its target, with Kafka's numbers."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    UNRELEASED_PARTITIONS = 2
    UNKNOWN = 127


class ClassicTerms(NamedTuple):
    """The join parameters of a member that uses the classic protocol."""

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]


class ConsumerMember(NamedTuple):
    """One member. `names` are ascending and without duplicates; no expression is "", as Kafka writes it."""

    member_id: str
    epoch: int = 0
    previous_epoch: int = LEFT
    state: MemberState = MemberState.STABLE
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    client_id: str = ""
    client_host: str = ""
    names: tuple[str, ...] = ()
    expression: str = ""
    assignor: str | None = None
    classic: ClassicTerms | None = None
    assigned: Owned = NOTHING
    revoking: Owned = NOTHING

    def moved_to(self, epoch: int, state: MemberState, assigned: Owned, revoking: Owned) -> ConsumerMember:
        """The member after one step, with its former epoch as the previous one."""
        return self._replace(epoch=epoch, previous_epoch=self.epoch, state=state, assigned=assigned, revoking=revoking)

    def is_reconciled_to(self, epoch: int) -> bool:
        """Whether the member has the assignment of the target of this epoch."""
        return self.state is MemberState.STABLE and self.epoch == epoch


def size_of(member: ConsumerMember) -> int:
    """The memory of a member without its partitions, in bytes, about."""
    protocols = member.classic.protocols if member.classic is not None else ()
    return (
        MEMBER_BYTES
        + STRING_BYTES * len(member.names)
        + sum(map(len, member.names))
        + sum(STRING_BYTES + len(name) + len(metadata) for name, metadata in protocols)
        + len(member.expression)
        + len(member.client_id)
    )


class Resolved(NamedTuple):
    """The topics that match a regular expression, and when and at which version of the topics it was resolved."""

    topics: tuple[str, ...]
    version: int
    timestamp_ms: int


class ConsumerGroupMembers:
    """The state that results from the records of one group."""

    __slots__ = (
        "_owners",
        "_sizes",
        "_static",
        "_subscribers",
        "epoch",
        "hash",
        "members",
        "memory_bytes",
        "names",
        "resolved",
        "target_epoch",
        "targets",
    )

    def __init__(self) -> None:
        self.epoch = 0
        self.hash = 0
        self.target_epoch = 0
        self.members: dict[str, ConsumerMember] = {}
        self.targets: dict[str, Assignment] = {}
        self.resolved: dict[str, Resolved] = {}
        self.memory_bytes = 0
        """The sum of `size_of` of the members."""
        self.names = 0
        """How many topics the members subscribe to by name, in all."""
        self._subscribers: dict[str, int] = {}
        self._sizes: dict[str, int] = {}
        self._static: dict[str, str] = {}
        self._owners: dict[tuple[bytes, int], str] = {}

    @property
    def state(self) -> GroupState:
        """The state of the group, which follows from its epochs and members."""
        if not self.members:
            return GroupState.EMPTY
        if self.epoch > self.target_epoch:
            return GroupState.ASSIGNING
        if all(member.is_reconciled_to(self.target_epoch) for member in self.members.values()):
            return GroupState.STABLE
        return GroupState.RECONCILING

    def of_instance(self, instance_id: str | None) -> ConsumerMember | None:
        """The static member with this instance id."""
        member_id = self._static.get(instance_id) if instance_id is not None else None
        return self.members.get(member_id) if member_id is not None else None

    def owner(self, topic_id: bytes, partition: int) -> str | None:
        """The member that owns a partition now."""
        return self._owners.get((topic_id, partition))

    def set_epoch(self, epoch: int, topics_hash: int) -> None:
        """Set the group's epoch, and the hash of the topics for which it was computed."""
        self.epoch, self.hash = epoch, topics_hash

    def put(self, member: ConsumerMember) -> None:
        """Add or replace a member."""
        self._disown(member.member_id)
        former = self.members.get(member.member_id)
        self._count(former, member)
        if former is None or former.names is not member.names or former.classic is not member.classic:
            self._measure(member.member_id, size_of(member))
        self.members[member.member_id] = member
        if member.instance_id is not None:
            self._static[member.instance_id] = member.member_id
        for owned in (member.assigned, member.revoking):
            for topic_id, partitions in owned.items():
                for partition in partitions:
                    self._owners[topic_id, partition] = member.member_id

    def remove(self, member_id: str) -> None:
        """Remove a member and its partitions."""
        self._disown(member_id)
        self._measure(member_id, 0)
        member = self.members.pop(member_id, None)
        self._count(member, None)
        if member is not None and member.instance_id is not None and self._static.get(member.instance_id) == member_id:
            del self._static[member.instance_id]

    def memory_with(self, member: ConsumerMember) -> int:
        """The memory of the members once this one has joined or changed, in bytes, about."""
        return self.memory_bytes + size_of(member) - self._sizes.get(member.member_id, 0)

    def _measure(self, member_id: str, size: int) -> None:
        self.memory_bytes += size - self._sizes.pop(member_id, 0)
        if size:
            self._sizes[member_id] = size

    def _count(self, former: ConsumerMember | None, member: ConsumerMember | None) -> None:
        """Count the subscriptions of a member that is replaced, added or removed."""
        for each, by in ((former, -1), (member, 1)):
            if each is not None:
                self.names += by * len(each.names)
                if each.expression:
                    self._subscribers[each.expression] = self._subscribers.get(each.expression, 0) + by
        if former is not None and self._subscribers.get(former.expression) == 0:
            del self._subscribers[former.expression]

    def subscribers(self, expression: str) -> int:
        """How many members subscribe by this regular expression."""
        return self._subscribers.get(expression, 0)

    @property
    def subscriptions(self) -> int:
        """How many topics the members subscribe to, by name or by expression, in all."""
        resolved = self.resolved
        return self.names + sum(
            count * len(resolved[pattern].topics) for pattern, count in self._subscribers.items() if pattern in resolved
        )

    def topics_of(self, member: ConsumerMember) -> tuple[str, ...]:
        """The names of the topics to which a member subscribes, by name or by expression, ascending."""
        found = self.resolved.get(member.expression) if member.expression else None
        if found is None:
            return member.names
        return tuple(sorted({*member.names, *found.topics}))

    def subscribed(self, topics: Iterable[str]) -> set[str]:
        """Which of these topics a member subscribes to, by name or by expression."""
        asked = set(topics)
        found: set[str] = set()
        for member in self.members.values():
            found.update(asked.intersection(member.names))
        for expression in self._subscribers:
            resolved = self.resolved.get(expression)
            if resolved is not None:
                found.update(asked.intersection(resolved.topics))
        return found

    def _disown(self, member_id: str) -> None:
        member = self.members.get(member_id)
        if member is None:
            return
        for owned in (member.assigned, member.revoking):
            for topic_id, partitions in owned.items():
                for partition in partitions:
                    # In a compacted log, a record of the partition's next owner may precede this record.
                    if self._owners.get((topic_id, partition)) == member_id:
                        del self._owners[topic_id, partition]


def check_room(group_members: ConsumerGroupMembers, member_id: str, limit: int) -> None:
    """Raises KafkaError(GROUP_MAX_SIZE_REACHED) for a new member of a full group."""
    if len(group_members.members) >= limit and member_id not in group_members.members:
        raise KafkaError(
            ErrorCode.GROUP_MAX_SIZE_REACHED,
            f"The consumer group has reached its maximum capacity of {limit} members.",
        )


def check_memory(group_members: ConsumerGroupMembers, member: ConsumerMember, limit: int) -> None:
    """Raises KafkaError(GROUP_MAX_SIZE_REACHED) for a member that takes over an eighth of the memory of the group, or
    more than is left. Kafka has no such limits.
    """
    if size_of(member) > limit // MEMBERS_SHARE or group_members.memory_with(member) > limit:
        raise KafkaError(
            ErrorCode.GROUP_MAX_SIZE_REACHED,
            f"The members of the consumer group may take {limit} bytes, and one of them an eighth of that.",
        )
