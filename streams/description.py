"""Text of a topology, identical to Kafka's (Kafka: TopologyDescription, InternalTopologyBuilder.describe).

Nodes of a sub-topology are sorted by the number of nodes after them, then by name. The neighbors of a node have the
same order, but with the sizes at the time when a neighbor was added to a sorted tree: sizes grow while the nodes are
connected, and Kafka does not sort again. So this module builds the tree as Java does.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from odradek.streams.java_order import hash_set_order
from odradek.streams.topology import Node, ProcessorNode, SinkNode, SourceNode, Topology


class Described:
    """A node with its neighbors in order."""

    __slots__ = ("name", "node", "predecessors", "size", "successors")

    def __init__(self, name: str, node: Node) -> None:
        self.name = name
        self.node = node
        self.size = 1
        """The number of nodes after it on any path, itself included."""
        self.predecessors = _Tree()
        self.successors = _Tree()

    def comes_before(self, other: Described) -> bool:
        """The order of nodes (NODE_COMPARATOR), by their present sizes."""
        return (-self.size, self.name) < (-other.size, other.name)

    def grow(self, by: int) -> None:
        """Add `by` nodes after this node, and after all nodes before it."""
        self.size += by
        for predecessor in self.predecessors:
            predecessor.grow(by)


def describe(topology: Topology) -> str:
    """The text of a topology."""
    parts = ["Topologies:\n "]
    for index, names in enumerate(topology.node_groups()):
        if topology.global_nodes.intersection(names):
            head = f"Sub-topology: {index} for global store (will not generate tasks)\n"
            # Kafka puts no empty line after a global store
            parts.append(f"  {head}" + _lines(described_nodes(topology, names)))
        else:
            parts.append(f"  Sub-topology: {index}\n" + _lines(described_nodes(topology, names)) + "\n")
    return "".join(parts)


def described_nodes(topology: Topology, names: Sequence[str]) -> list[Described]:
    """The nodes of one sub-topology in order."""
    found = {name: Described(name, topology.nodes[name]) for name in hash_set_order(names)}
    for described in found.values():
        node = described.node
        for parent in () if isinstance(node, SourceNode) else node.parents:
            predecessor = found[parent]
            described.predecessors.add(predecessor)
            predecessor.successors.add(described)
            predecessor.grow(described.size)
    return sorted(found.values(), key=lambda each: (-each.size, each.name))


def _lines(nodes: list[Described]) -> str:
    return "".join(f"    {_text(node)}\n" for node in nodes)


def _text(described: Described) -> str:
    node = described.node
    after = f"\n      --> {_names(described.successors)}"
    before = f"\n      <-- {_names(described.predecessors)}"
    if isinstance(node, SourceNode):
        topics = node.pattern.pattern if node.pattern is not None else _set(node.topics)
        return f"Source: {node.name} (topics: {topics}){after}"
    if isinstance(node, ProcessorNode):
        return f"Processor: {node.name} (stores: {_set(node.stores)}){after}{before}"
    assert isinstance(node, SinkNode)
    if isinstance(node.topic, str):
        return f"Sink: {node.name} (topic: {node.topic}){before}"
    return f"Sink: {node.name} (extractor class: {_function_name(node.topic)}){before}"


def _set(names: Sequence[str]) -> str:
    """The text of a HashSet that was made of a collection."""
    return f"[{', '.join(hash_set_order(names, room=int(len(set(names)) / 0.75) + 1))}]"


def _names(nodes: _Tree) -> str:
    return ", ".join(node.name for node in nodes) or "none"


def _function_name(function: Any) -> str:
    return str(getattr(function, "__qualname__", function))


class _Place:
    """One place in the tree."""

    __slots__ = ("left", "node", "parent", "red", "right")

    def __init__(self, node: Described, parent: _Place | None) -> None:
        self.node = node
        self.parent = parent
        self.left: _Place | None = None
        self.right: _Place | None = None
        self.red = True


class _Tree:
    """A red-black tree of nodes like java.util.TreeMap: the comparisons decide the position of a node."""

    __slots__ = ("_root",)

    def __init__(self) -> None:
        self._root: _Place | None = None

    def __iter__(self) -> Iterator[Described]:
        waiting: list[_Place] = []
        place = self._root
        while waiting or place is not None:
            while place is not None:
                waiting.append(place)
                place = place.left
            place = waiting.pop()
            yield place.node
            place = place.right

    def add(self, node: Described) -> None:
        """Insert a node by comparisons at this moment; a node that compares equal is not added."""
        place, parent = self._root, None
        left = False
        while place is not None:
            if place.node is node:
                return
            parent, left = place, node.comes_before(place.node)
            place = place.left if left else place.right
        added = _Place(node, parent)
        if parent is None:
            self._root = added
        elif left:
            parent.left = added
        else:
            parent.right = added
        self._balance(added)

    def _balance(self, place: _Place) -> None:
        """No red below red (fixAfterInsertion)."""
        while (parent := place.parent) is not None and parent.red:
            above = parent.parent
            assert above is not None  # a root is black
            on_left = parent is above.left
            uncle = above.right if on_left else above.left
            if uncle is not None and uncle.red:
                parent.red = uncle.red = False
                above.red = True
                place = above
                continue
            if place is (parent.right if on_left else parent.left):
                self._rotate(parent, to_left=on_left)
                place, parent = parent, place
            parent.red, above.red = False, True
            self._rotate(above, to_left=not on_left)
        assert self._root is not None
        self._root.red = False

    def _rotate(self, place: _Place, *, to_left: bool) -> None:
        """Rotate a child of `place` into its position."""
        up = place.right if to_left else place.left
        assert up is not None
        inner = up.left if to_left else up.right
        if to_left:
            place.right, up.left = inner, place
        else:
            place.left, up.right = inner, place
        if inner is not None:
            inner.parent = place
        up.parent = place.parent
        if place.parent is None:
            self._root = up
        elif place is place.parent.left:
            place.parent.left = up
        else:
            place.parent.right = up
        place.parent = up
