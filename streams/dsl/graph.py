"""Graph of the DSL: the counter of names, and the nodes to write at build() (Kafka: InternalStreamsBuilder).

Every operator takes its names from one counter when it is called, and the order of the numbers is Kafka's exactly:
names are in topics of the cluster, so another number would be another topic. An operator with a given name takes its
number all the same (NamedInternal), so that naming one does not rename the others.

build() writes the nodes into the topology in the order in which they were added
(InternalStreamsBuilder.buildAndOptimizeTopology). Kafka's optimizations of the graph (`topology.optimization`) are not
implemented: its default has none.
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from odradek.streams.dsl.options import Consumed
from odradek.streams.errors import ArgumentError, TopologyError
from odradek.streams.functions import Forms, place_of_call, problem_of
from odradek.streams.topology import Topology

if TYPE_CHECKING:
    from odradek.streams.operators.repartition import RepartitionNode

Write = Callable[[Topology], None]
Topics = tuple[str, ...] | re.Pattern[str]

SOURCE: Final = "KSTREAM-SOURCE-"
LONGEST_NAME: Final = 249
_LEGAL: Final = re.compile(r"[a-zA-Z0-9._-]+")


@dataclass(slots=True)
class _Entry:
    """A node of the graph: its position, the function that writes it, and its parents."""

    order: int
    write: Write
    parents: tuple[str, ...]


class Graph:
    """The description of one topology before build()."""

    def __init__(self) -> None:
        self._names = 0
        self._order = 0
        self._entries: list[_Entry] = []
        self._providers: dict[str, _Entry] = {}
        self._sources: list[tuple[Topics, str, Consumed[Any, Any]]] = []
        self.topics: list[str] = []
        """Topics to declare: those of sources, which may be merged, and those that no node names."""
        self.graces: dict[str, int] = {}
        """The grace of windowed aggregations, in ms, by node."""
        self.repartitions: dict[str, RepartitionNode] = {}
        """By the names of their source nodes."""
        self._problems: dict[str, None] = {}
        """Wrong functions of operators, and operators that cannot be, for build()."""

    # ---- names

    def new_name(self, prefix: str) -> str:
        """The prefix and the next number: "KSTREAM-MAP-0000000007"."""
        number = self._names
        self._names += 1
        return f"{prefix}{number:010d}"

    def name(self, given: str | None, prefix: str, suffix: str = "") -> str:
        """The given name and the suffix, or a new name without it; a number is taken either way.

        Raises TopologyError for a name that is invalid in a topic.
        """
        drawn = self.new_name(prefix)
        return drawn if given is None else validated(given + suffix)

    def store_name(self, prefix: str) -> str:
        """A new name for a store: "KSTREAM-AGGREGATE-STATE-STORE-0000000003"."""
        return self.new_name(f"{prefix}STATE-STORE-")

    # ---- nodes

    def check(self, node: str, role: str, function: Any, forms: Forms, *, awaited: bool = False) -> None:
        """Make build() fail where an operator's function cannot be called with any of these parameters.

        `role` is the name of the operator's parameter; `awaited` allows coroutine functions.
        """
        problem = problem_of(function, forms, awaited)
        if problem is not None:
            self.reject(node, f"{role} {problem}")

    def accept(self, operator: str, other: Any, *kinds: type[Any]) -> None:
        """Raises ArgumentError where the other side of an operator is of none of these kinds, or of another builder."""
        if not isinstance(other, kinds):
            expected = " or a ".join(kind.__name__ for kind in kinds)
            raise ArgumentError(f"{operator}() at {place_of_call()} with {other!r}; expected a {expected}")
        if other.graph is not self:
            raise ArgumentError(
                f"{operator}() at {place_of_call()} with a {type(other).__name__} of another StreamsBuilder"
            )

    def reject(self, node: str, reason: str) -> None:
        """Make build() fail, with the name of this operator and the reason."""
        self._problems[f"Invalid topology: {node}: {reason}"] = None

    def add(self, write: Write, *, parents: tuple[str, ...] = (), provides: str | None = None) -> None:
        """Call `write` at build(), after the nodes added before.

        `provides` is the name under which other nodes have this one among their `parents`. That matters only where a
        node may be added again.
        """
        entry = _Entry(self._order, write, parents)
        self._order += 1
        self._entries.append(entry)
        if provides is not None:
            self._providers[provides] = entry

    def source(self, topics: Topics, consumed: Consumed[Any, Any]) -> str:
        """Add a source node for a stream of these topics. Returns its name.

        Where an earlier source node reads the same topics, that node gets the children of the new one
        (InternalStreamsBuilder.mergeDuplicateSourceNodes). Raises TopologyError where the two cannot be one node.
        """
        name = self.name(consumed.name, SOURCE)
        if not isinstance(topics, re.Pattern):
            self.topics += topics
        for known_topics, known, before in self._sources:
            if isinstance(topics, re.Pattern) or isinstance(known_topics, re.Pattern):
                if topics != known_topics:
                    continue
            elif not set(topics) & set(known_topics):
                continue
            elif set(topics) != set(known_topics):
                raise TopologyError(
                    "Invalid topology: Two source nodes are subscribed to overlapping but not equal input topics"
                )
            if consumed.offset_reset != before.offset_reset:
                raise TopologyError(
                    "Invalid topology: Two source nodes of the same topics have different offset reset policies"
                )
            return known
        self._sources.append((topics, name, consumed))

        def write(topology: Topology) -> None:
            topology.add_source(
                name,
                topics,
                key=consumed.key,
                value=consumed.value,
                timestamp_extractor=consumed.timestamp_extractor,
                offset_reset=consumed.offset_reset,
            )

        self.add(write, provides=name)
        return name

    def grace_of(self, name: str) -> int | None:
        """The grace of the nearest windows upstream of a node, the longest of several; None without any."""
        if name in self.graces:
            return self.graces[name]
        entry = self._providers.get(name)
        found = [self.grace_of(parent) for parent in entry.parents] if entry is not None else []
        return max((each for each in found if each is not None), default=None)

    def again(self, name: str) -> None:
        """Add another child to a node, which moves the node and its descendants to the end of the order.

        Kafka does so with a repartition that two aggregations share.
        """
        self._providers[name].order = self._order
        self._order += 1

    def keep_null_keys(self, *names: str) -> None:
        """Make repartitions upstream of these nodes forward null keys: an outer join requires them (KIP-962)."""
        seen: set[str] = set()
        waiting = list(names)
        while waiting:
            name = waiting.pop()
            if name in seen:
                continue
            seen.add(name)
            if name in self.repartitions:
                self.repartitions[name].filters_null_keys = False
            if name in self._providers:
                waiting.extend(self._providers[name].parents)

    def build(self, topology: Topology) -> None:
        """Write every node: among nodes whose parents are written, always the one that was added first.

        Raises ArgumentError with all wrong functions and rejected operators, and TopologyError.
        """
        if self._problems:
            raise ArgumentError("\n".join(self._problems))
        waiting: dict[int, list[_Entry]] = {}
        ready: list[tuple[int, int]] = []
        missing = [0] * len(self._entries)
        for index, entry in enumerate(self._entries):
            parents = {id(found) for each in entry.parents if (found := self._providers.get(each)) is not None}
            missing[index] = len(parents)
            for parent in parents:
                waiting.setdefault(parent, []).append(entry)
            if not parents:
                heapq.heappush(ready, (entry.order, index))
        topology.declare_topics(*self.topics)
        places = {id(entry): index for index, entry in enumerate(self._entries)}
        while ready:
            _, index = heapq.heappop(ready)
            entry = self._entries[index]
            entry.write(topology)
            for child in waiting.get(id(entry), ()):
                place = places[id(child)]
                missing[place] -= 1
                if not missing[place]:
                    heapq.heappush(ready, (child.order, place))


def validated(name: str) -> str:
    """A name that is valid in a topic's name. Raises TopologyError (Named.validate)."""
    if not name:
        raise TopologyError("Name is illegal, it can't be empty")
    if name in (".", ".."):
        raise TopologyError('Name cannot be "." or ".."')
    if len(name) > LONGEST_NAME:
        raise TopologyError(f"Name is illegal, it can't be longer than {LONGEST_NAME} characters, name: {name}")
    if _LEGAL.fullmatch(name) is None:
        raise TopologyError(
            f"Name {name} is illegal, it contains a character other than ASCII alphanumerics, '.', '_' and '-'"
        )
    return name
