"""Server-side assignors of the consumer protocol (KIP-848; Kafka: UniformAssignor, RangeAssignor).

Kafka 4.x has two, which a member selects by name. `uniform` gives all members equally many partitions, to within one,
and moves as few as that requires (Kafka's UniformAssignor); it ignores racks, as in Kafka 4.x. `range` gives every
member a range of adjacent partitions of each of its topics, the same range of topics with equally many partitions, so
that they can be joined; it moves as many as that requires (Kafka's RangeAssignor since 4.0).

Both are functions of the members, in their order, of their previous assignments, and of the existing topics. Where
Kafka iterates over topics in the order of a hash table, these functions iterate in the order of topic ids. Their loops
over members and topics are loops over `each(items)`, which may be interrupted; nothing outside changes their input.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple, Protocol

from odradek.broker.group.state.interruptible import at_once, in_order
from odradek.broker.runtime.state.effects import Each

Assignment = Mapping[bytes, frozenset[int]]
"""Topic id (16 bytes) -> partitions; a topic without partitions is not in it."""

NO_MEMBER: Final = -1
MOST_ROUNDS: Final = 16
"""The limit of passes over the topics when subscriptions differ: each pass about halves the imbalance."""


class MemberSpec(NamedTuple):
    """The input for one member: the ids of its existing topics, ascending, and its previous target assignment."""

    instance_id: str | None
    topics: tuple[bytes, ...]
    owned: Assignment


class Assignor(Protocol):
    """Assigns the partitions of topics to members."""

    def __call__(
        self, members: Mapping[str, MemberSpec], counts: Mapping[bytes, int], each: Each = ..., /
    ) -> dict[str, Assignment]:
        """The assignment of each member; `counts` has the number of partitions of each existing topic."""
        ...


def assign_range(
    members: Mapping[str, MemberSpec], counts: Mapping[bytes, int], each: Each = at_once
) -> dict[str, Assignment]:
    """Ranges of adjacent partitions. Static members come first, by instance id, so that their ranges stay the same."""
    subscribers: dict[bytes, int] = {}
    for member in each(members.values()):
        for topic in each(member.topics):
            subscribers[topic] = subscribers.get(topic, 0) + 1
    reached = dict.fromkeys(subscribers, 0)
    extra = {topic: counts[topic] % count for topic, count in each(subscribers.items())}
    assigned: dict[str, Assignment] = {}
    for member_id in in_order(members, lambda member_id: _range_order(member_id, members[member_id]), each):
        given = {}
        for topic in each(members[member_id].topics):
            start = reached[topic]
            end = start + counts[topic] // subscribers[topic]
            if extra[topic]:
                extra[topic] -= 1
                end += 1
            reached[topic] = end
            if start < end:
                given[topic] = frozenset(range(start, end))
        assigned[member_id] = given
    return assigned


def _range_order(member_id: str, member: MemberSpec) -> tuple[bool, str]:
    static = member.instance_id is not None
    return not static, member.instance_id if member.instance_id is not None else member_id


def assign_uniform(
    members: Mapping[str, MemberSpec], counts: Mapping[bytes, int], each: Each = at_once
) -> dict[str, Assignment]:
    """Equally many partitions for each member, with as few moves as that requires."""
    subscriptions = [member.topics for member in members.values()]
    if not any(subscriptions):
        return {member_id: {} for member_id in members}
    if all(topics == subscriptions[0] for topics in each(subscriptions)):
        return _assign_alike(members, subscriptions[0], counts, each)
    return _Uneven(members, counts, each).assign()


def _assign_alike(
    members: Mapping[str, MemberSpec], topics: tuple[bytes, ...], counts: Mapping[bytes, int], each: Each
) -> dict[str, Assignment]:
    """All members subscribe to the same topics: take partitions above the quota away, then fill up to the quota."""
    wanted = frozenset(topics)
    taken: dict[bytes, set[int]] = {}
    for member in each(members.values()):
        for topic, owned in each(member.owned.items()):
            taken.setdefault(topic, set()).update(owned)
    free: list[tuple[bytes, int]] = []
    for topic in each(topics):
        has_owner = taken.get(topic, set())
        free += [(topic, index) for index in range(counts[topic]) if index not in has_owner]
    least, extra = divmod(sum(counts[topic] for topic in topics), len(members))
    kept: dict[str, dict[bytes, list[int]]] = {}
    room: dict[str, int] = {}
    for place, (member_id, member) in enumerate(each(members.items())):
        may_have_one_more = extra > 0
        quota = least + may_have_one_more
        keep: dict[bytes, list[int]] = {}
        for topic, owned in each(member.owned.items()):
            if topic not in wanted:
                continue
            indexes = sorted(owned)
            free += [(topic, index) for index in indexes[quota:]]
            if quota:
                keep[topic] = indexes[:quota]
                quota -= len(keep[topic])
        if may_have_one_more:
            # A member that already owns as many gets one more; the others leave it while enough members follow.
            if quota and len(members) - place > extra:
                quota -= 1
            else:
                extra -= 1
        kept[member_id] = keep
        room[member_id] = quota
    left = iter(free)
    for member_id, quota in each(room.items()):
        for _, (topic, index) in each(zip(range(quota), left, strict=False)):
            kept[member_id].setdefault(topic, []).append(index)
    return _frozen(kept, each)


def _frozen(given: Mapping[str, Mapping[bytes, list[int]]], each: Each) -> dict[str, Assignment]:
    return {
        member_id: {topic: frozenset(indexes) for topic, indexes in each(topics.items())}
        for member_id, topics in each(given.items())
    }


class _Uneven:
    """Members with different topics: assign free partitions to the least loaded member, then balance the load."""

    def __init__(self, members: Mapping[str, MemberSpec], counts: Mapping[bytes, int], each: Each) -> None:
        self._members = list(members)
        self._counts = counts
        self._each = each
        self._subscribers: dict[bytes, list[int]] = {}
        for place, member in enumerate(each(members.values())):
            for topic in each(member.topics):
                self._subscribers.setdefault(topic, []).append(place)
        self._owners = {topic: [NO_MEMBER] * counts[topic] for topic in each(self._subscribers)}
        self._sizes = [0] * len(members)
        for place, member in enumerate(each(members.values())):
            for topic in each(member.topics):
                for index in sorted(member.owned.get(topic, ())):
                    self._owners[topic][index] = place
                    self._sizes[place] += 1

    def assign(self) -> dict[str, Assignment]:
        each = self._each
        for topic in each(self._by_burden(self._subscribers)):
            free = [index for index, owner in enumerate(self._owners[topic]) if owner == NO_MEMBER]
            balancer = _Balancer(self._subscribers[topic], self._sizes)
            for index in free:
                self._give(topic, index, balancer.least_loaded())
        shared = self._by_burden([topic for topic, who in each(self._subscribers.items()) if len(who) > 1])
        if shared:
            self._even_out(shared)
        assigned: list[dict[bytes, list[int]]] = [{} for _ in self._members]
        for topic, owners in each(self._owners.items()):
            for index, owner in enumerate(owners):
                assigned[owner].setdefault(topic, []).append(index)
        return _frozen(dict(zip(self._members, assigned, strict=True)), each)

    def _by_burden(self, topics: list[bytes] | dict[bytes, list[int]]) -> list[bytes]:
        """Topics with the most partitions for each subscriber first, then those with the fewest subscribers."""

        def burden(topic: bytes) -> tuple[float, int, bytes]:
            subscribers = len(self._subscribers[topic])
            return -self._counts[topic] / subscribers, subscribers, topic

        return in_order(topics, burden, self._each)

    def _even_out(self, topics: list[bytes]) -> None:
        """Repeat passes over the topics until one pass has moved nothing."""
        last_moved = NO_MEMBER
        for _ in range(MOST_ROUNDS):
            for place, topic in enumerate(self._each(topics)):
                if place == last_moved:
                    return
                if self._even_out_topic(topic) or last_moved == NO_MEMBER:
                    last_moved = place

    def _even_out_topic(self, topic: bytes) -> int:
        """Move partitions of one topic from the most to the least loaded member; returns how many moved."""
        balancer = _Balancer(self._subscribers[topic], self._sizes)
        if balancer.imbalance <= 1:
            return 0
        owned: dict[int, list[int]] = {}
        for index, owner in enumerate(self._owners[topic]):
            owned.setdefault(owner, []).append(index)
        moved = 0
        while not balancer.is_balanced():
            giver = balancer.most_loaded()
            while giver != NO_MEMBER and not owned.get(giver):
                balancer.exclude_most_loaded()
                giver = balancer.most_loaded()
            if giver == NO_MEMBER:
                break
            index = owned[giver].pop()
            taker = balancer.least_loaded()
            if balancer.is_balanced():
                break
            self._give(topic, index, taker)
            moved += 1
        return moved

    def _give(self, topic: bytes, index: int, place: int) -> None:
        owner = self._owners[topic][index]
        if owner != NO_MEMBER:
            self._sizes[owner] -= 1
        self._owners[topic][index] = place
        self._sizes[place] += 1


class _Balancer:
    """Subscribers sorted by load, with a range at either end whose members have equal load.

    The lower range fills up one level at a time and extends to the members at the level that it reaches; the upper
    range empties likewise. The members are balanced once the two levels differ by at most one. `sizes` belongs to the
    caller, which changes it as it moves partitions; a range does not read the sizes of its own members again.
    """

    def __init__(self, members: list[int], sizes: list[int]) -> None:
        self._sizes = sizes
        self._sorted = sorted(members, key=lambda member: (sizes[member], member))
        self._low_end = 0
        self._low_level = sizes[self._sorted[0]] - 1
        self._low_next = 0
        self._high_start = self._high_end = len(self._sorted)
        self._high_level = sizes[self._sorted[-1]] + 1
        self._high_next = len(self._sorted) - 1

    @property
    def imbalance(self) -> int:
        """The difference between the highest and the lowest load."""
        return self._sizes[self._sorted[-1]] - self._sizes[self._sorted[0]]

    def is_balanced(self) -> bool:
        """Whether the levels of the two ranges differ by at most one."""
        return self._high_level - self._low_level <= 1

    def least_loaded(self) -> int:
        """The member that gets the next partition."""
        if self._low_next >= self._low_end:
            self._low_level += 1
            while self._low_end < len(self._sorted) and self._sizes[self._sorted[self._low_end]] == self._low_level:
                self._low_end += 1
            self._low_next = 0
        self._low_next += 1
        return self._sorted[self._low_next - 1]

    def most_loaded(self) -> int:
        """The member that loses the next partition; NO_MEMBER when none is left that could."""
        if self._high_next < self._high_start:
            if self._high_end <= self._high_start and self._high_start > 0:
                # All members of the range are excluded: continue with the next existing level.
                self._high_level = self._sizes[self._sorted[self._high_start - 1]]
            else:
                self._high_level -= 1
            while self._high_start > 0 and self._sizes[self._sorted[self._high_start - 1]] == self._high_level:
                self._high_start -= 1
            self._high_next = self._high_end - 1
        if self._high_next < 0:
            return NO_MEMBER
        self._high_next -= 1
        return self._sorted[self._high_next + 1]

    def exclude_most_loaded(self) -> None:
        """Exclude the member that `most_loaded` returned last, because it has no partition of the topic."""
        place, last = self._high_next + 1, self._high_end - 1
        self._sorted[place], self._sorted[last] = self._sorted[last], self._sorted[place]
        self._high_end = last


ASSIGNORS: Final[dict[str, Assignor]] = {"uniform": assign_uniform, "range": assign_range}
"""The assignors by the names that members request, Kafka's default first."""

CLASSES: Final = {
    "org.apache.kafka.coordinator.group.assignor.UniformAssignor": "uniform",
    "org.apache.kafka.coordinator.group.assignor.RangeAssignor": "range",
}
"""Kafka's class names, which `group.consumer.assignors` may contain as well."""
