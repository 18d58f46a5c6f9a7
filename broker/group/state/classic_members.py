"""Members of a classic group, their leader, and the protocol that they agree on (Kafka: GroupMetadata, MemberMetadata).

A dynamic member is identified by the id that the coordinator gave it. A static member (KIP-345) has an instance id as
well, and stays the same member when it returns under a new member id. The protocol of a generation is the one that
every member supports and most members prefer.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Any, Final

from odradek.broker.group.state.classic_requests import Terms
from odradek.protocol.encoded import EncodedElement

MEMBER_BYTES: Final = 512
"""What a member takes beside its strings and metadata."""
PROTOCOL_BYTES: Final = 64
"""What a protocol of a member takes beside its name and metadata."""


def size_of(terms: Terms) -> int:
    """The memory of a member with these terms, in bytes, about."""
    size = MEMBER_BYTES + len(terms.client_id) + len(terms.client_host) + len(terms.instance_id or "")
    for name, metadata in terms.protocols:
        size += PROTOCOL_BYTES + len(name) + len(metadata)
    return size


class JoinedMembers(Collection[tuple[str, str | None, bytes]]):
    """The members of a generation as its leader receives them: (member id, instance id, metadata).

    They are read when the response is made, which takes longer than all else that ends the join phase. A change until
    then makes the generation obsolete, or is the new id of a static member. Equal to a tuple of the same members.
    """

    __slots__ = ("_members", "_protocol")

    def __init__(self, members: Iterable[Member], protocol: str | None) -> None:
        self._members = tuple(members)
        self._protocol = protocol

    def __len__(self) -> int:
        return len(self._members)

    def __iter__(self) -> Iterator[tuple[str, str | None, bytes]]:
        for each in self._members:
            yield each.member_id, each.terms.instance_id, each.metadata(self._protocol)

    def __contains__(self, item: object) -> bool:
        return any(item == each for each in self)

    def __eq__(self, other: object) -> bool:
        return tuple(self) == (tuple(other) if isinstance(other, JoinedMembers) else other)

    __hash__ = None  # type: ignore[assignment]


class Joining:
    """How many members of a group wait in a join."""

    __slots__ = ("count",)

    def __init__(self) -> None:
        self.count = 0


class Member:
    """One member; `join_token` and `sync_token` are its requests that wait for an answer."""

    __slots__ = (
        "_join_token",
        "_joining",
        "assignment",
        "deadline_ms",
        "encoded",
        "is_new",
        "member_id",
        "memory_bytes",
        "sync_token",
        "terms",
    )

    def __init__(self, member_id: str, terms: Terms) -> None:
        self.member_id = member_id
        self.terms = terms
        self.memory_bytes = size_of(terms)
        """About how much memory it takes."""
        self.assignment = b""
        self.encoded: EncodedElement | None = None
        """The member in the record of the present generation, once that was stored."""
        self._join_token: Any = None
        self._joining: Joining | None = None
        self.sync_token: Any = None
        self.is_new = False
        self.deadline_ms = 0

    @property
    def join_token(self) -> Any:
        """The join of the member that waits, or None."""
        return self._join_token

    @join_token.setter
    def join_token(self, token: Any) -> None:
        if self._joining is not None:
            self._joining.count += (token is not None) - (self._join_token is not None)
        self._join_token = token

    def count_in(self, joining: Joining | None) -> None:
        """Count the waiting join of this member in a group, or in none."""
        waits = self._join_token is not None
        if self._joining is not None:
            self._joining.count -= waits
        self._joining = joining
        if joining is not None:
            joining.count += waits

    @property
    def is_static(self) -> bool:
        """Whether the member has an instance id, so that it stays a member while it is disconnected."""
        return self.terms.instance_id is not None

    @property
    def counts_as_alive(self) -> bool:
        """Whether its session cannot expire because a request of it waits.

        The first join of a member is still bounded.
        """
        return not self.is_new and (self.join_token is not None or self.sync_token is not None)

    def metadata(self, protocol: str | None) -> bytes:
        """The member's metadata for this protocol, empty when it does not support the protocol."""
        for name, metadata in self.terms.protocols:
            if name == protocol:
                return metadata
        return b""


class ClassicGroupMembers:
    """The members in the order of their joins, their instance ids, and their leader."""

    __slots__ = ("_by_instance", "_joining", "_members", "_support", "leader", "memory_bytes", "revision")

    def __init__(self) -> None:
        self._members: dict[str, Member] = {}
        self._by_instance: dict[str, str] = {}
        self._joining = Joining()
        self._support: dict[str, int] = {}
        self.leader: str | None = None
        self.memory_bytes = 0
        """The sum of those of the members."""
        self.revision = 0
        """Grows when a member joins, leaves or changes its protocols."""

    def __len__(self) -> int:
        return len(self._members)

    def __iter__(self) -> Iterator[Member]:
        return iter(self._members.values())

    def __contains__(self, member_id: str) -> bool:
        return member_id in self._members

    def ids(self) -> Collection[str]:
        """The ids of the members."""
        return self._members.keys()

    def get(self, member_id: str) -> Member | None:
        """The member with this id."""
        return self._members.get(member_id)

    def of_instance(self, instance_id: str | None) -> Member | None:
        """The static member with this instance id."""
        member_id = self._by_instance.get(instance_id) if instance_id is not None else None
        return self._members[member_id] if member_id is not None else None

    def add(self, member: Member) -> None:
        """Add a member; the first one becomes the leader."""
        self._members[member.member_id] = member
        member.count_in(self._joining)
        if member.terms.instance_id is not None:
            self._by_instance[member.terms.instance_id] = member.member_id
        if self.leader is None:
            self.leader = member.member_id
        self.revision += 1
        self._count(member, 1)

    def remove(self, member_id: str) -> Member | None:
        """Remove a member; when it was the leader, the oldest remaining member becomes the leader."""
        member = self._members.pop(member_id, None)
        if member is None:
            return None
        member.count_in(None)
        self.revision += 1
        self._count(member, -1)
        if member.terms.instance_id is not None:
            del self._by_instance[member.terms.instance_id]
        if self.leader == member_id:
            self.leader = next(iter(self._members), None)
        return member

    def update(self, member: Member, terms: Terms) -> None:
        """Replace the protocols and timeouts of a member that has rejoined; its ids stay."""
        self._count(member, -1)
        self.revision += member.terms.protocols != terms.protocols
        member.encoded = None
        before, timeouts = member.terms, (terms.session_timeout_ms, terms.rebalance_timeout_ms)
        member.terms = Terms(before.instance_id, before.client_id, before.client_host, *timeouts, terms.protocols)
        member.memory_bytes = size_of(member.terms)
        self._count(member, 1)

    def rename(self, member: Member, member_id: str) -> None:
        """Give a static member that has returned its new id; it keeps its position, and the leadership if it had it."""
        old_id, member.member_id = member.member_id, member_id
        member.encoded = None
        self._members = {each.member_id: each for each in self._members.values()}
        if member.terms.instance_id is not None:
            self._by_instance[member.terms.instance_id] = member_id
        if self.leader == old_id:
            self.leader = member_id

    @property
    def rebalance_timeout_ms(self) -> int:
        """The longest rebalance timeout of all members."""
        return max((member.terms.rebalance_timeout_ms for member in self), default=0)

    @property
    def joining(self) -> int:
        """How many members wait in a join."""
        return self._joining.count

    @property
    def all_joined(self) -> bool:
        """Whether every member waits in a join."""
        return self._joining.count == len(self._members)

    def elect(self) -> bool:
        """Make a member that has joined the leader. False when no member has joined."""
        leader = self._members.get(self.leader) if self.leader is not None else None
        if leader is None:
            return False
        if leader.join_token is None:
            leader = next((member for member in self if member.join_token is not None), None)
            if leader is None:
                return False
            self.leader = leader.member_id
        return True

    def supports(self, protocols: tuple[tuple[str, bytes], ...]) -> bool:
        """Whether every member supports at least one of these protocols."""
        return any(self._support.get(name, 0) == len(self._members) for name, _ in protocols)

    def all_support(self, name: str) -> bool:
        """Whether every member supports this protocol."""
        return self._support.get(name) == len(self._members)

    def select_protocol(self) -> str | None:
        """The protocol that all support and most prefer; among equals the one with the earliest vote."""
        votes: dict[str, int] = {}
        for member in self:
            for name, _ in member.terms.protocols:
                if self.all_support(name):
                    votes[name] = votes.get(name, 0) + 1
                    break
        return preferred_of(votes)

    def _count(self, member: Member, step: int) -> None:
        self.memory_bytes += step * member.memory_bytes
        for name in dict(member.terms.protocols):
            count = self._support.get(name, 0) + step
            if count:
                self._support[name] = count
            else:
                del self._support[name]


def preferred_of(votes: dict[str, int]) -> str | None:
    """The protocol with the most votes; among equals the one with the earliest vote."""
    return max(votes, key=votes.__getitem__, default=None)
