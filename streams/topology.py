"""Topology: sources, processors and sinks by name, the stores between them, and their sub-topologies (Kafka: Topology).

Nodes that are connected by a forward or by a common store are one sub-topology; each of its tasks processes one
partition. This module processes no record: `nodes.py` makes functions of a topology for a task. The DSL writes into a
topology as a user of the Processor API does (org.apache.kafka.streams.Topology, InternalTopologyBuilder).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol

from odradek.streams.declared_topics import DeclaredTopic
from odradek.streams.errors import ArgumentError, TopologyError
from odradek.streams.functions import EXTRACTOR, OF_NOTHING, PARTITIONER, TOPIC_CHOOSER, Forms, name_of, problem_of
from odradek.streams.java_names import JavaNames
from odradek.streams.java_order import hash_set_order
from odradek.streams.processor import ProcessorSupplier
from odradek.streams.records import Process, RecordMetadata
from odradek.streams.serdes import Serde

if TYPE_CHECKING:
    from odradek.streams.topology_description import TopologyDescription

LONGEST_TOPIC: Final = 249
_LEGAL: Final = re.compile(r"[a-zA-Z0-9._-]+")
OffsetReset = Literal["earliest", "latest", "none"]
TimestampExtractor = Callable[[Any, Any, int, int, RecordMetadata], int]
"""A function of key, value, the record's own timestamp, the latest of its partition before it, and the record's
origin.
"""
Partitioner = Callable[[str, Any, Any, int], "int | Iterable[int] | None"]
"""A function of topic, key, value and the number of partitions; None leaves the choice to the key, several partitions
write the record to each, and an empty collection drops it (KIP-837).
"""
TopicChooser = Callable[[Any, Any, RecordMetadata | None], str]
"""A function of key, value and the record's origin (TopicNameExtractor)."""


class Operator(Protocol):
    """The operation of a processor node; one object for all tasks."""

    def bind(self, node: Any) -> Process:
        """The function of one task, given its NodeContext."""


class StoreFactory(Protocol):
    """Builds a store (Kafka: StoreFactory); a user may write one."""

    @property
    def name(self) -> str: ...

    @property
    def logging(self) -> bool: ...

    def build(self) -> Any:
        """A store that is not open yet."""


def make_store(builder: StoreFactory, config: Mapping[str, Any]) -> Any:
    """A store for an application of this configuration, not open yet."""
    configured = getattr(builder, "configured", None)
    return (builder if configured is None else configured(config)).build()


@dataclass(slots=True)
class SourceNode:
    """Reads topics, or all topics whose name matches a pattern."""

    name: str
    topics: tuple[str, ...]
    pattern: re.Pattern[str] | None = None
    key: Serde[Any] | None = None
    value: Serde[Any] | None = None
    extractor: TimestampExtractor | None = None
    offset_reset: OffsetReset | None = None
    children: list[str] = field(default_factory=list)


@dataclass(slots=True)
class ProcessorNode:
    """Processes each record."""

    name: str
    supplier: Operator | ProcessorSupplier
    parents: tuple[str, ...]
    stores: list[str] = field(default_factory=list)
    children: list[str] = field(default_factory=list)


@dataclass(slots=True)
class SinkNode:
    """Writes to a topic, or to a topic that it chooses for each record."""

    name: str
    topic: str | TopicChooser
    parents: tuple[str, ...]
    key: Serde[Any] | None = None
    value: Serde[Any] | None = None
    partitioner: Partitioner | None = None

    @property
    def children(self) -> list[str]:
        """A sink has no children."""
        return []


Node = SourceNode | ProcessorNode | SinkNode


def topic_text(sink: SinkNode) -> str:
    """The topic of a sink, or the name of the function that chooses it, for people."""
    return sink.topic if isinstance(sink.topic, str) else f"{getattr(sink.topic, '__name__', 'chosen')}(…)"


@dataclass(slots=True)
class InternalTopic:
    """A topic that the application creates; its name here has no application prefix.

    `partitions` is None where it is derived from the topics upstream. `config` are the configs beyond the defaults of
    its kind.
    """

    name: str
    partitions: int | None = None
    config: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Subtopology:
    """Connected nodes. Topics have their names in the cluster."""

    index: int
    nodes: tuple[str, ...]
    source_topics: tuple[str, ...]
    sink_topics: tuple[str, ...]
    repartition_topics: Mapping[str, InternalTopic]
    """The repartition topics among its sources, by their name in the cluster."""
    stores: tuple[str, ...]
    changelogs: Mapping[str, str]
    """The topic of each logged store."""


def check_topic_name(topic: str, where: str) -> None:
    """Raises TopologyError for a name that no topic can have (org.apache.kafka.common.internals.Topic.validate)."""
    if not (isinstance(topic, str) and _LEGAL.fullmatch(topic)) or topic in (".", "..") or len(topic) > LONGEST_TOPIC:
        raise TopologyError(
            f"Invalid topology: {where}: {topic!r} is no name of a topic; expected 1 to {LONGEST_TOPIC} ASCII letters, "
            "digits, '.', '_' and '-', and neither '.' nor '..'"
        )


def _check_serdes(where: str, **serdes: Any) -> None:
    """Raises ArgumentError for what is no serde; None is the application's default."""
    for role, serde in serdes.items():
        if serde is not None and not isinstance(serde, Serde):
            raise ArgumentError(
                f"Invalid topology: {where}: {role} is {serde!r}; expected a serde such as odradek.streams.STRING"
            )


def _check_function(where: str, role: str, function: Any, forms: Forms) -> None:
    problem = problem_of(function, forms)
    if problem is not None:
        raise ArgumentError(f"Invalid topology: {where}: {role} {problem}")


def _check_supplier(name: str, supplier: Any) -> None:
    _check_function(f"processor {name}", "supplier", supplier, OF_NOTHING)
    if isinstance(supplier, type) and not callable(getattr(supplier, "process", None)):
        raise ArgumentError(
            f"Invalid topology: processor {name}: supplier is {name_of(supplier)}, a class without a method process; "
            "expected a Processor, or a function that returns one"
        )


class Topology(JavaNames):
    """The operations of an application, as a graph."""

    def __init__(self) -> None:
        self.nodes: dict[str, Node] = {}
        self.stores: dict[str, StoreFactory] = {}
        self.global_stores: dict[str, StoreFactory] = {}
        self.store_users: dict[str, list[str]] = {}
        self.internal_topics: dict[str, InternalTopic] = {}
        self.source_changelogs: dict[str, str] = {}
        """Stores whose source topic is their changelog."""
        self.copartitioned: list[tuple[str, ...]] = []
        """Groups of source nodes whose topics need the same number of partitions."""
        self.global_nodes: set[str] = set()
        self.reprocess_global: set[str] = set()
        """Global stores that are restored through their processor (KIP-813)."""
        self.declared_topics: dict[str, DeclaredTopic] = {}
        """Topics of the user whose partitions and configs are declared, for `odradek streams init`."""
        self._leader: dict[str, str] = {}

    # ---- building

    def add_source(
        self,
        name: str,
        topics: str | Sequence[str] | re.Pattern[str],
        *,
        key: Serde[Any] | None = None,
        value: Serde[Any] | None = None,
        timestamp_extractor: TimestampExtractor | None = None,
        offset_reset: OffsetReset | None = None,
    ) -> Topology:
        """Read topics. Omitted serdes are the application's default. Raises TopologyError."""
        self._new(name)
        pattern = topics if isinstance(topics, re.Pattern) else None
        given: tuple[str, ...] = ()
        if not isinstance(topics, re.Pattern):
            given = (topics,) if isinstance(topics, str) else tuple(topics)
            if not given:
                raise TopologyError("You must provide at least one topic")
        for topic in given:
            for other in self._sources():
                if topic in other.topics:
                    raise TopologyError(f"Topic {topic} has already been registered by another source ({other.name})")
                if other.pattern is not None and other.pattern.fullmatch(topic):
                    raise TopologyError(f"Topic {topic} matches a Pattern already registered by {other.name}")
            check_topic_name(topic, f"source {name}")
        _check_serdes(f"source {name}", key=key, value=value)
        if timestamp_extractor is not None:
            _check_function(f"source {name}", "timestamp_extractor", timestamp_extractor, EXTRACTOR)
        self.declare_topics(*given)
        found = tuple(map(str, given))
        self.nodes[name] = SourceNode(name, found, pattern, key, value, timestamp_extractor, offset_reset)
        self._leader[name] = name
        return self

    def add_processor(self, name: str, supplier: Operator | ProcessorSupplier, *parents: str) -> Topology:
        """Process the records that the parents forward. The supplier's stores are added and connected (KIP-401).

        Raises TopologyError.
        """
        self._new(name)
        if getattr(supplier, "bind", None) is None:
            _check_supplier(name, supplier)
        self._add_child(name, parents)
        self.nodes[name] = ProcessorNode(name, supplier, parents)
        self._leader[name] = name
        for parent in parents:
            self._unite(parent, name)
        for builder in getattr(supplier, "stores", None) or ():
            self.add_state_store(builder, name)
        return self

    def add_sink(
        self,
        name: str,
        topic: str | TopicChooser,
        *parents: str,
        key: Serde[Any] | None = None,
        value: Serde[Any] | None = None,
        partitioner: Partitioner | None = None,
    ) -> Topology:
        """Write the records that the parents forward. Raises TopologyError."""
        self._new(name)
        if isinstance(topic, str):
            check_topic_name(topic, f"sink {name}")
            self.declare_topics(topic)
            topic = str(topic)
        else:
            _check_function(f"sink {name}", "topic", topic, TOPIC_CHOOSER)
        _check_serdes(f"sink {name}", key=key, value=value)
        if partitioner is not None:
            _check_function(f"sink {name}", "partitioner", partitioner, PARTITIONER)
        self._add_child(name, parents)
        self.nodes[name] = SinkNode(name, topic, parents, key, value, partitioner)
        self._leader[name] = name
        for parent in parents:
            self._unite(parent, name)
        return self

    def add_state_store(self, builder: StoreFactory, *processors: str) -> Topology:
        """Add a store, and connect it to processors. Raises TopologyError for another store of the same name."""
        known = self.stores.get(builder.name) or self.global_stores.get(builder.name)
        if known is not None and known is not builder:
            raise TopologyError(f"A different StateStore has already been added with the name {builder.name}")
        check_topic_name(builder.name, f"store {builder.name}")
        _check_serdes(
            f"store {builder.name}",
            key=getattr(builder, "key_serde", None),
            value=getattr(builder, "value_serde", None),
        )
        self.stores[builder.name] = builder
        self.store_users.setdefault(builder.name, [])
        for processor in processors:
            self.connect_processor_and_state_stores(processor, builder.name)
        return self

    def connect_processor_and_state_stores(self, processor: str, *stores: str) -> Topology:
        """Let a processor use stores that were added. Raises TopologyError."""
        node = self.nodes.get(processor)
        if not isinstance(node, ProcessorNode):
            raise TopologyError(f"Processor {processor} is not added yet, or cannot use a store")
        for store in stores:
            if store in self.global_stores:
                raise TopologyError(f"Global StateStore {store} can be used by a Processor without being connected")
            if store not in self.stores:
                raise TopologyError(f"StateStore {store} is not added yet")
            users = self.store_users[store]
            if processor not in users:
                users.append(processor)
                node.stores.append(store)
                self._unite(users[0], processor)
        return self

    def add_global_store(
        self,
        builder: StoreFactory,
        source: str,
        topic: str,
        processor: str,
        supplier: Operator | ProcessorSupplier,
        *,
        key: Serde[Any] | None = None,
        value: Serde[Any] | None = None,
        timestamp_extractor: TimestampExtractor | None = None,
        reprocess: bool = True,
    ) -> Topology:
        """A store that every instance holds completely, from all partitions of a topic. Raises TopologyError.

        With `reprocess` it is restored through the processor, else it stores the topic's records unchanged.
        """
        if builder.name in self.stores or builder.name in self.global_stores:
            raise TopologyError(f"A different StateStore has already been added with the name {builder.name}")
        if builder.logging:
            raise TopologyError(f"StateStore {builder.name} for global table must not have logging enabled.")
        if getattr(builder, "ttl_ms", 0):
            raise TopologyError(f"StateStore {builder.name} for global table has the rows of its topic, and no TTL")
        self.add_source(source, topic, key=key, value=value, timestamp_extractor=timestamp_extractor)
        self.add_processor(processor, supplier, source)
        node = self.nodes[processor]
        assert isinstance(node, ProcessorNode)
        node.stores.append(builder.name)
        self.global_stores[builder.name] = builder
        self.global_nodes |= {source, processor}
        self.source_changelogs[builder.name] = str(topic)
        if reprocess:
            self.reprocess_global.add(builder.name)
        return self

    def declare_topics(self, *topics: str) -> Topology:
        """Declare topics that no node names, such as those of a function that chooses them. Topics that nodes name are
        declared where they are named; a text without a declaration has no effect.

        Raises TopologyError for an invalid name, and where two declarations of one topic differ.
        """
        for each in topics:
            if isinstance(each, DeclaredTopic):
                check_topic_name(each, "topic()")
                known = self.declared_topics.setdefault(str(each), each)
                if known.declaration != each.declaration:
                    raise TopologyError(f"Invalid topology: topic {each} has been declared with other settings")
        return self

    def add_internal_topic(self, topic: InternalTopic) -> None:
        """A repartition topic; nodes use the name that it has here."""
        self.internal_topics[topic.name] = topic

    def add_read_only_state_store(
        self,
        builder: StoreFactory,
        source: str,
        topic: str,
        processor: str,
        supplier: Operator | ProcessorSupplier,
        *,
        key: Serde[Any] | None = None,
        value: Serde[Any] | None = None,
        timestamp_extractor: TimestampExtractor | None = None,
    ) -> Topology:
        """A store whose changelog is its source topic: `supplier`'s processor writes the topic's records into it, and a
        restoration reads them unchanged (KIP-813). Raises TopologyError, also for a builder with logging.
        """
        if builder.logging:
            raise TopologyError(f"StateStore {builder.name} is read-only; use without_logging(): its topic is its log")
        self.add_source(source, topic, key=key, value=value, timestamp_extractor=timestamp_extractor)
        self.add_processor(processor, supplier, source)
        self.add_state_store(builder, processor)
        self.connect_source_store_and_topic(builder.name, topic)
        return self

    def connect_source_store_and_topic(self, store: str, topic: str) -> None:
        """The source topic of a table is the changelog of its store."""
        self.source_changelogs[store] = str(topic)

    def copartition(self, sources: Iterable[str]) -> None:
        """The topics of these source nodes need the same number of partitions."""
        self.copartitioned.append(tuple(sources))

    # ---- queries

    def cluster_name(self, topic: str, application_id: str) -> str:
        """The name of a topic in the cluster: internal topics have the application id as a prefix."""
        return f"{application_id}-{topic}" if topic in self.internal_topics else topic

    def node_groups(self) -> list[tuple[str, ...]]:
        """The names of the nodes of each sub-topology, in the order of their numbers, global ones included.

        Sub-topologies are numbered in the order in which their first nodes were added
        (InternalTopologyBuilder.makeNodeGroups).
        """
        groups: dict[str, list[str]] = {}
        for name in self.nodes:
            groups.setdefault(self._root(name), []).append(name)
        return [tuple(names) for names in groups.values()]

    def subtopologies(self, application_id: str, existing_topics: Iterable[str] = ()) -> dict[int, Subtopology]:
        """The sub-topologies that have tasks, by number. Patterns match topics of `existing_topics`."""
        existing = tuple(existing_topics)
        return {
            index: self._subtopology(index, names, application_id, existing)
            for index, names in enumerate(self.node_groups())
            if not self.global_nodes.intersection(names)
        }

    def source_of(self, source: SourceNode, application_id: str, existing: Sequence[str]) -> tuple[str, ...]:
        """The topics that a source node reads, with their names in the cluster."""
        if source.pattern is None:
            return tuple(self.cluster_name(topic, application_id) for topic in source.topics)
        fixed = {topic for each in self._sources() for topic in each.topics}
        pattern = source.pattern
        return tuple(topic for topic in sorted(existing) if pattern.fullmatch(topic) and topic not in fixed)

    def describe(self) -> str:
        """The topology as text, in Kafka's format (TopologyDescription)."""
        from odradek.streams.description import describe

        return describe(self)

    def description(self) -> TopologyDescription:
        """The topology as objects."""
        from odradek.streams.topology_description import description_of

        return description_of(self)

    def picture(self) -> str:
        """The topology as an SVG."""
        from odradek.streams.picture import picture
        from odradek.streams.topology_view.model import view_of

        return picture(view_of(self))

    def store_order(self, names: Sequence[str]) -> list[str]:
        """The stores of these nodes, in the order in which a task opens and flushes them."""
        found: dict[str, None] = {}
        for name in names:
            node = self.nodes[name]
            if isinstance(node, ProcessorNode):
                found.update(dict.fromkeys(hash_set_order(node.stores)))
        return list(found)

    # ---- internals

    def _subtopology(
        self, index: int, names: tuple[str, ...], application_id: str, existing: Sequence[str]
    ) -> Subtopology:
        sources: dict[str, None] = {}
        sinks: dict[str, None] = {}
        for name in names:
            node = self.nodes[name]
            if isinstance(node, SourceNode):
                sources.update(dict.fromkeys(self.source_of(node, application_id, existing)))
            elif isinstance(node, SinkNode) and isinstance(node.topic, str):
                sinks[self.cluster_name(node.topic, application_id)] = None
        internal = {self.cluster_name(each.name, application_id): each for each in self.internal_topics.values()}
        stores = [each for each in self.store_order(names) if each not in self.global_stores]
        changelogs = {
            store: self.source_changelogs.get(store) or f"{application_id}-{store}-changelog"
            for store in stores
            if self.stores[store].logging or store in self.source_changelogs
        }
        repartition = {topic: internal[topic] for topic in sources if topic in internal}
        return Subtopology(index, names, tuple(sources), tuple(sinks), repartition, tuple(stores), changelogs)

    def _sources(self) -> list[SourceNode]:
        return [node for node in self.nodes.values() if isinstance(node, SourceNode)]

    def _new(self, name: str) -> None:
        if name in self.nodes:
            raise TopologyError(f"Processor {name} is already added.")

    def _add_child(self, name: str, parents: tuple[str, ...]) -> None:
        if not parents:
            raise TopologyError(f"Processor {name} must have at least one parent")
        for parent in parents:
            node = self.nodes.get(parent)
            if node is None:
                raise TopologyError(f"Predecessor processor {parent} is not added yet for {name}")
            if isinstance(node, SinkNode):
                raise TopologyError(f"Sink {parent} cannot be the predecessor of {name}")
        for parent in parents:
            self.nodes[parent].children.append(name)

    def _root(self, name: str) -> str:
        while self._leader[name] != name:
            self._leader[name] = self._leader[self._leader[name]]
            name = self._leader[name]
        return name

    def _unite(self, one: str, other: str) -> None:
        self._leader[self._root(other)] = self._root(one)
