"""Next generation of a classic group: what all members decide together (Kafka: ClassicGroup.selectProtocol,
computeSubscribedTopics).

The members of a large group are examined in parts. A member that joins, leaves or changes its protocols between two
parts makes the result obsolete.
"""

from __future__ import annotations

import struct
from collections import deque
from typing import Final

from odradek.broker.group.state.classic_members import ClassicGroupMembers, Member, preferred_of
from odradek.protocol import messages as m
from odradek.protocol.errors import ProtocolError

VERSION: Final = struct.Struct(">h")
COUNT: Final = struct.Struct(">i")
MOST_SUBSCRIBED: Final = 50_000
"""Topics that are read at the end of a rebalance, about ten milliseconds."""
EXAMINED_AT_ONCE: Final = 500
"""Members that are examined in one event; each is examined twice."""
NAMES_AT_ONCE: Final = 5000
"""Names of protocols and topics that are read in one event, beside those of one member."""


class NextGeneration:
    """The protocol and the subscriptions of a generation, for the members that a group has now."""

    def __init__(self, members: ClassicGroupMembers, *, consumes: bool) -> None:
        """`consumes`: the metadata of the members are subscriptions of consumers."""
        self._members = members
        self._revision = members.revision
        self._unread = deque(members)
        self._votes: dict[str, int] = {}
        self._consumes = consumes
        self._reads_topics = False
        self._subscriptions = Subscriptions()
        self.protocol_name: str | None = None
        """The selected protocol, once every member is examined."""
        self.rebalance_timeout_ms = 0
        """The longest rebalance timeout of a member."""

    @property
    def is_current(self) -> bool:
        """Whether the group still has these members with these protocols."""
        return self._revision == self._members.revision

    @property
    def topics(self) -> frozenset[str] | None:
        """The topics that the members subscribe to; None where they are unknown."""
        return self._subscriptions.topics if self._consumes else None

    def examine(self) -> bool:
        """Examine a part of the members; returns whether that was the last one."""
        names = 0
        for _ in range(EXAMINED_AT_ONCE):
            if not self._unread and not self._begin_topics():
                return True
            if names > NAMES_AT_ONCE:
                return False
            member = self._unread.popleft()
            names += self._read_topics(member) if self._reads_topics else self._vote(member)
        return not self._unread and not self._begin_topics()

    def _begin_topics(self) -> bool:
        """Examine the members for the second time; returns whether any are left."""
        if self._reads_topics:
            return False
        self.protocol_name = preferred_of(self._votes)
        self._reads_topics = True
        if self._consumes:
            self._unread.extend(self._members)
        return bool(self._unread)

    def _vote(self, member: Member) -> int:
        self.rebalance_timeout_ms = max(self.rebalance_timeout_ms, member.terms.rebalance_timeout_ms)
        names = [name for name, _ in member.terms.protocols]
        for examined, name in enumerate(names, 1):
            if self._members.all_support(name):
                self._votes[name] = self._votes.get(name, 0) + 1
                return examined
        return len(names)

    def _read_topics(self, member: Member) -> int:
        read = self._subscriptions.add(member.metadata(self.protocol_name))
        if not self._subscriptions.are_known:
            self._unread.clear()
        return read


class Subscriptions:
    """The topics of the subscriptions of consumers."""

    def __init__(self) -> None:
        self._topics: list[str] | None = []
        self._last = b""

    @property
    def are_known(self) -> bool:
        """Whether every subscription so far is readable, and they have few topics enough."""
        return self._topics is not None

    @property
    def topics(self) -> frozenset[str] | None:
        """The topics; None when a subscription is unreadable, or where subscriptions that differ have more than
        MOST_SUBSCRIBED topics.
        """
        return None if self._topics is None else frozenset(self._topics)

    def add(self, metadata: bytes) -> int:
        """Read the subscription of a member; returns how many topics were read."""
        if self._topics is None or (self._last and metadata.startswith(self._last, VERSION.size)):
            return 0  # most members of a group subscribe to the same topics
        try:
            (count,) = COUNT.unpack_from(metadata, VERSION.size)
            if len(self._topics) + count > MOST_SUBSCRIBED:
                self._topics = None
                return 0
            # Every version of a subscription begins as version 0, so the version does not matter here.
            subscription = m.ConsumerProtocolSubscription.decode(metadata, 0, VERSION.size)
        except (ProtocolError, struct.error):
            self._topics = None
            return 0
        self._topics += subscription.topics
        self._last = m.ConsumerProtocolSubscription(topics=subscription.topics).encode(0)[: -COUNT.size]
        return len(subscription.topics)
