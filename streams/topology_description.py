"""A topology as objects: sub-topologies, their nodes and the neighbors of these (Kafka: TopologyDescription)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from odradek.streams.description import Described, described_nodes
from odradek.streams.topology import ProcessorNode, SourceNode, TopicChooser

if TYPE_CHECKING:
    from odradek.streams.topology import Topology


@dataclass(frozen=True, slots=True)
class NodeDescription:
    """A node: its name and those of the nodes before and after it, in Kafka's order."""

    name: str
    predecessors: tuple[str, ...]
    successors: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SourceDescription(NodeDescription):
    """A source: its topics, or the pattern that matches them (TopologyDescription.Source)."""

    topic_set: frozenset[str]
    topic_pattern: re.Pattern[str] | None


@dataclass(frozen=True, slots=True)
class ProcessorDescription(NodeDescription):
    """A processor and its stores (TopologyDescription.Processor)."""

    stores: frozenset[str]


@dataclass(frozen=True, slots=True)
class SinkDescription(NodeDescription):
    """A sink: its topic, or the function that chooses one (TopologyDescription.Sink)."""

    topic: str | None
    topic_name_extractor: TopicChooser | None


@dataclass(frozen=True, slots=True)
class SubtopologyDescription:
    """A sub-topology (TopologyDescription.Subtopology)."""

    id: int
    nodes: tuple[NodeDescription, ...]


@dataclass(frozen=True, slots=True)
class GlobalStoreDescription:
    """A global store, its source and its processor (TopologyDescription.GlobalStore)."""

    id: int
    source: SourceDescription
    processor: ProcessorDescription


@dataclass(frozen=True, slots=True)
class TopologyDescription:
    """The sub-topologies that have tasks, and the global stores, each in the order of their numbers."""

    subtopologies: tuple[SubtopologyDescription, ...]
    global_stores: tuple[GlobalStoreDescription, ...]
    text: str
    """The same as Kafka's text."""

    def __str__(self) -> str:
        return self.text


def description_of(topology: Topology) -> TopologyDescription:
    """The description of a topology."""
    subtopologies, global_stores = [], []
    for index, names in enumerate(topology.node_groups()):
        nodes = tuple(_node(each) for each in described_nodes(topology, names))
        if not topology.global_nodes.intersection(names):
            subtopologies.append(SubtopologyDescription(index, nodes))
            continue
        source = next(each for each in nodes if isinstance(each, SourceDescription))
        processor = next(each for each in nodes if isinstance(each, ProcessorDescription))
        global_stores.append(GlobalStoreDescription(index, source, processor))
    return TopologyDescription(tuple(subtopologies), tuple(global_stores), topology.describe())


def _node(described: Described) -> NodeDescription:
    node = described.node
    before = tuple(each.name for each in described.predecessors)
    after = tuple(each.name for each in described.successors)
    if isinstance(node, SourceNode):
        return SourceDescription(node.name, before, after, frozenset(node.topics), node.pattern)
    if isinstance(node, ProcessorNode):
        return ProcessorDescription(node.name, before, after, frozenset(node.stores))
    if isinstance(node.topic, str):
        return SinkDescription(node.name, before, after, node.topic, None)
    return SinkDescription(node.name, before, after, None, node.topic)
