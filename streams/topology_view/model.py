"""Model of a topology for drawing: sub-topologies, nodes, topics and stores as plain data (Kafka: TopologyDescription).

It contains no object of the application, so it can be sent as JSON to another process, such as a console.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any, Literal

from odradek.streams.metrics import scope
from odradek.streams.topology import SinkNode, SourceNode, Topology, topic_text
from odradek.streams.topology_description import NodeDescription, SourceDescription, SubtopologyDescription

Kind = Literal["source", "processor", "sink"]


@dataclass(frozen=True, slots=True)
class NodeView:
    """A node, the nodes after it, its stores, and the topics that it reads or writes."""

    name: str
    kind: Kind
    topics: tuple[str, ...]
    """Without the application id of internal topics; a pattern, or the function that chooses one, as text."""
    stores: tuple[str, ...]
    successors: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SubtopologyView:
    """A sub-topology. A global one makes no tasks."""

    id: int
    is_global: bool
    nodes: tuple[NodeView, ...]
    """In Kafka's order: a source is before the nodes after it."""


@dataclass(frozen=True, slots=True)
class StateStoreView:
    """A store, where it is kept, and whether it has a changelog topic of its own."""

    name: str
    place: str
    """The word of Kafka's metrics: rocksdb, rocksdb-window, in-memory, …"""
    logged: bool
    subtopology: int


@dataclass(frozen=True, slots=True)
class TopologyView:
    """A topology as data."""

    subtopologies: tuple[SubtopologyView, ...]
    stores: tuple[StateStoreView, ...]
    internal_topics: frozenset[str]
    """The repartition topics, whose names in the cluster begin with the application.id."""

    def nodes(self) -> Iterator[NodeView]:
        """The nodes of all sub-topologies."""
        for each in self.subtopologies:
            yield from each.nodes

    def as_json(self) -> dict[str, Any]:
        """Dictionaries and lists of it."""
        return {**asdict(self), "internal_topics": sorted(self.internal_topics)}


def view_of(topology: Topology) -> TopologyView:
    """The view of a topology."""
    described = topology.description()
    found = [_subtopology(topology, each) for each in described.subtopologies]
    found += [
        SubtopologyView(each.id, True, (_node(topology, each.source), _node(topology, each.processor)))
        for each in described.global_stores
    ]
    found.sort(key=lambda each: each.id)
    stores = {
        store: StateStoreView(store, *_place(topology, store), each.id)
        for each in found
        for node in each.nodes
        for store in node.stores
    }
    return TopologyView(tuple(found), tuple(stores.values()), frozenset(topology.internal_topics))


def _subtopology(topology: Topology, described: SubtopologyDescription) -> SubtopologyView:
    return SubtopologyView(described.id, False, tuple(_node(topology, each) for each in described.nodes))


def _node(topology: Topology, described: NodeDescription) -> NodeView:
    node = topology.nodes[described.name]
    kind: Kind = "processor"
    topics: tuple[str, ...] = ()
    if isinstance(node, SourceNode):
        kind, topics = "source", (node.pattern.pattern,) if node.pattern is not None else node.topics
    elif isinstance(node, SinkNode):
        kind, topics = "sink", (topic_text(node),)
    stores = () if isinstance(described, SourceDescription) else tuple(sorted(getattr(node, "stores", ())))
    return NodeView(described.name, kind, topics, stores, described.successors)


def _place(topology: Topology, store: str) -> tuple[str, bool]:
    builder = topology.stores.get(store) or topology.global_stores[store]
    return scope(builder), builder.logging and store not in topology.source_changelogs
