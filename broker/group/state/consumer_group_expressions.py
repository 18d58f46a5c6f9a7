"""Regular expressions to which the members of a consumer group subscribe, and the topics that match them (Kafka:
GroupMetadataManager, `maybeUpdateRegularExpressions`).

Every expression is looked up when it is new in the group, and all of them when the topics of the cluster have changed.
A few names are matched with the request that needs them. Many are matched apart from requests, as Kafka does always:
the request is answered with the topics that matched before, and the group's epoch rises where the result differs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Final, NamedTuple

from odradek.broker.group.state import consumer_group_records as records
from odradek.broker.group.state.consumer_group_members import ConsumerGroupMembers, Resolved
from odradek.broker.group.state.consumer_group_pending_writes import ConsumerGroupWrites
from odradek.broker.group.state.consumer_group_requests import Describable, Topics
from odradek.broker.group.state.interruptible import at_once
from odradek.broker.group.state.topic_patterns import matching
from odradek.broker.runtime.state.effects import Each, Effect, Now

NO_TOPICS_SEEN: Final = -1
AT_ONCE: Final = 500
"""Names that are matched with a request, for all expressions in all: two to three milliseconds."""
NAMES_AT_ONCE: Final = 100
"""Topics whose description the authorizer allows or denies without an interruption."""


class Found(NamedTuple):
    """The topics that match one expression of a lookup."""

    expression: str
    topics: tuple[str, ...]
    is_last: bool


class _Lookup(NamedTuple):
    """A lookup apart from requests."""

    expressions: list[str]
    names: tuple[str, ...]
    version: int
    describable: Describable


class Expressions:
    """The expressions of one group."""

    __slots__ = ("_changed", "_group_members", "_group_writes", "_is_changed", "_looked_up", "_lookup", "_topics")

    def __init__(self, group_writes: ConsumerGroupWrites, topics: Topics, changed: Callable[[], None]) -> None:
        """`changed` is called when the result of a lookup apart from requests differs."""
        self._group_writes = group_writes
        self._group_members: ConsumerGroupMembers = group_writes.group_members
        self._topics = topics
        self._changed = changed
        self._looked_up = NO_TOPICS_SEEN
        """The version of the topics in which the expressions were looked up."""
        self._lookup: _Lookup | None = None
        self._is_changed = False
        """Whether an expression has other topics than before, for which the group's epoch has not risen yet."""

    def forget_topics(self) -> None:
        """Look all expressions up again with the next request."""
        self._looked_up = NO_TOPICS_SEEN
        self.stop()

    def stop(self) -> None:
        """Drop the lookup, if there is one."""
        self._lookup = None

    def forget(self, expression: str) -> None:
        """Write a tombstone of an expression to which no member subscribes any more."""
        if expression in self._group_members.resolved and not self._group_members.subscribers(expression):
            self._group_writes.write(records.no_expression(self._group_writes.group_id, expression))

    def look_up(self, expression: str, now: Now, describable: Describable) -> bool:
        """Find the topics of the expressions that have to be looked up, of those that the sender of a request, who
        subscribes by `expression`, may describe. Returns whether a result differs; later results call `changed`.
        """
        group_members, version = self._group_members, self._topics.version
        is_new = bool(expression) and expression not in group_members.resolved
        if self._lookup is not None or (version == self._looked_up and not is_new):
            return False  # what the lookup does not find belongs to that of a later heartbeat
        wanted = sorted({each.expression for each in group_members.members.values() if each.expression})
        if version == self._looked_up:
            wanted = [each for each in wanted if each not in group_members.resolved]
        names = tuple(self._topics.names()) if wanted else ()
        if len(wanted) * len(names) > AT_ONCE:
            lookup = self._lookup = _Lookup(wanted, names, version, describable)
            self._group_writes.effects.offload(partial(self._parts, lookup), partial(self._found, lookup))
            return False
        self._looked_up = version
        changed, self._is_changed = self._is_changed, False
        for each in wanted:
            changed |= self._resolve(each, describable(matching(each, names, at_once)), version, now)
        return changed

    def _resolve(self, expression: str, topics: tuple[str, ...], version: int, now: Now) -> bool:
        """Write the topics of an expression where they differ; returns whether they do."""
        known = self._group_members.resolved.get(expression)
        if known is not None and known.topics == topics:
            return False
        resolved = Resolved(topics, version, now.wall_ms)
        self._group_writes.write(records.expression(self._group_writes.group_id, expression, resolved))
        return True

    # --- apart from requests ---

    def _parts(self, lookup: _Lookup, each: Each) -> Iterator[Found]:
        """Look up; each part is the result for one expression."""
        try:
            for number, expression in enumerate(lookup.expressions, 1):
                names = matching(expression, lookup.names, each)
                described: list[str] = []
                for start in each(range(0, len(names), NAMES_AT_ONCE)):
                    described += lookup.describable(names[start : start + NAMES_AT_ONCE])
                if lookup is not self._lookup:
                    return
                yield Found(expression, tuple(described), number == len(lookup.expressions))
        finally:
            if lookup is self._lookup:
                self._lookup = None

    def _found(self, lookup: _Lookup, found: Found, now: Now) -> list[Effect]:
        """The topics of one expression are found."""
        if lookup is self._lookup:
            if self._group_members.subscribers(found.expression):
                self._is_changed |= self._resolve(found.expression, found.topics, lookup.version, now)
            if found.is_last:
                self._lookup = None
                self._looked_up = lookup.version
                changed, self._is_changed = self._is_changed, False
                if changed:
                    self._changed()
        return self._group_writes.drain()
