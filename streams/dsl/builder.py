"""StreamsBuilder: builds a topology with the DSL (Kafka: org.apache.kafka.streams.StreamsBuilder).

builder = StreamsBuilder()
words = builder.stream("text", Consumed(STRING, STRING)).flat_map_values(str.split)
counts = words.group_by(lambda word: word, Grouped(STRING, STRING)).count("counts")
counts.to_stream().to("counts-by-word", Produced(STRING, LONG))
topology = builder.build()
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, TypeVar, overload

from odradek.streams.declared_topics import DeclaredTopic
from odradek.streams.dsl.graph import SOURCE, Graph
from odradek.streams.dsl.kstream import KStream
from odradek.streams.dsl.ktable import TABLE_SOURCE, GlobalKTable, KTable
from odradek.streams.dsl.materialization import materialization
from odradek.streams.dsl.options import Consumed, Materialized
from odradek.streams.dsl.ticks import TickSources
from odradek.streams.errors import TopologyError
from odradek.streams.java_names import JavaNames
from odradek.streams.operators.table import TableSource
from odradek.streams.processor import ProcessorSupplier
from odradek.streams.stores.builders import StoreBuilder
from odradek.streams.topology import Topology

K = TypeVar("K")
V = TypeVar("V")

SOURCE_SUFFIX = "-source"


class StreamsBuilder(TickSources, JavaNames):
    """Describes a topology; build() creates it."""

    def __init__(self) -> None:
        self.graph = Graph()

    @overload
    def stream(self, topics: str | Sequence[str] | re.Pattern[str], consumed: None = None) -> KStream[Any, Any]: ...

    @overload
    def stream(
        self, topics: str | Sequence[str] | re.Pattern[str], consumed: Consumed[K, V] | None
    ) -> KStream[K, V]: ...

    def stream(
        self, topics: str | Sequence[str] | re.Pattern[str], consumed: Consumed[Any, Any] | None = None
    ) -> KStream[Any, Any]:
        """The records of one topic, of several, or of all topics whose name matches a pattern.

        The same topics may be read again with the same reset policy. Raises TopologyError otherwise.
        """
        store_settings = consumed or Consumed()
        if not isinstance(topics, re.Pattern):
            topics = (topics,) if isinstance(topics, str) else tuple(topics)
            if not topics:
                raise TopologyError("Invalid topology: You must provide at least one topic")
        name = self.graph.source(topics, store_settings)
        return KStream(self.graph, name, store_settings.key, store_settings.value, frozenset((name,)))

    def table(
        self,
        topic: str,
        consumed: Consumed[K, V] | None = None,
        materialized: Materialized[K, V] | str | None = None,
    ) -> KTable[K, V]:
        """The records of a topic as rows of a table: the latest of each key, null deletes."""
        store_settings: Consumed[K, V] = consumed or Consumed()
        store = materialization(materialized, self.graph, f"{topic}-")
        if consumed is None:
            store_settings = Consumed(store.key, store.value)
        store = store.with_serdes(store_settings.key, store_settings.value)
        source = self.graph.name(store_settings.name, SOURCE, SOURCE_SUFFIX)
        node = self.graph.name(store_settings.name, TABLE_SOURCE)
        supplier = TableSource(store)

        def write(topology: Topology) -> None:
            topology.add_source(
                source,
                topic,
                key=store_settings.key,
                value=store_settings.value,
                timestamp_extractor=store_settings.timestamp_extractor,
                offset_reset=store_settings.offset_reset,
            )
            topology.add_processor(node, supplier, source)
            if supplier.materialized:
                topology.add_state_store(store.key_value_store(), node)

        self.graph.add(write, provides=node)
        return KTable(
            self.graph,
            node,
            store_settings.key,
            store_settings.value,
            frozenset((source,)),
            supplier,
            store.queryable_name,
            versioned=store.versioned,
        )

    def global_table(
        self,
        topic: str,
        consumed: Consumed[K, V] | None = None,
        materialized: Materialized[K, V] | str | None = None,
    ) -> GlobalKTable[K, V]:
        """A topic as a table that every instance holds completely. Raises TopologyError for a versioned store."""
        store_settings: Consumed[K, V] = consumed or Consumed()
        store = materialization(materialized, self.graph, f"{topic}-")
        if consumed is None:
            store_settings = Consumed(store.key, store.value)
        store = store.with_serdes(store_settings.key, store_settings.value)
        if store.versioned:
            raise TopologyError("Invalid topology: GlobalTables cannot be versioned.")
        source = self.graph.name(store_settings.name, SOURCE, SOURCE_SUFFIX)
        node = self.graph.name(store_settings.name, TABLE_SOURCE)
        supplier = TableSource(store)
        supplier.materialize()
        builder = store.key_value_store().without_logging()

        def write(topology: Topology) -> None:
            topology.add_global_store(
                builder,
                source,
                topic,
                node,
                supplier,
                key=store_settings.key,
                value=store_settings.value,
                timestamp_extractor=store_settings.timestamp_extractor,
                reprocess=False,
            )

        self.graph.add(write, provides=node)
        return GlobalKTable(self.graph, builder.name, store.queryable_name)

    def add_state_store(self, builder: StoreBuilder) -> StreamsBuilder:
        """A store for processors, which are connected to it by name."""

        def write(topology: Topology) -> None:
            topology.add_state_store(builder)

        self.graph.add(write)
        return self

    def add_global_store(
        self, builder: StoreBuilder, topic: str, consumed: Consumed[Any, Any], supplier: ProcessorSupplier
    ) -> StreamsBuilder:
        """A store that every instance holds completely, filled from a topic by a user's processor."""
        source = self.graph.name(consumed.name, SOURCE, SOURCE_SUFFIX)
        node = self.graph.name(consumed.name, TABLE_SOURCE)
        plain = builder.without_logging()

        def write(topology: Topology) -> None:
            topology.add_global_store(
                plain,
                source,
                topic,
                node,
                supplier,
                key=consumed.key,
                value=consumed.value,
                timestamp_extractor=consumed.timestamp_extractor,
            )

        self.graph.add(write, provides=node)
        return self

    def declare_topics(self, *topics: DeclaredTopic) -> StreamsBuilder:
        """Declare topics that no operator names, such as those of a function that chooses one for each record."""
        self.graph.topics += topics
        return self

    def build(self) -> Topology:
        """The topology. Raises TopologyError for an invalid description."""
        topology = Topology()
        self.graph.build(topology)
        return topology
