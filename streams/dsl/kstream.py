"""KStream: a stream of independent records (Kafka: org.apache.kafka.streams.kstream.KStream).

Every operator takes its name when it is called, adds its node to the graph, and returns the resulting stream
(KStreamImpl). The record functions are in operators/.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar, overload

from odradek.streams.dsl.asynchronous import AsynchronousOperators
from odradek.streams.dsl.branched import BranchedKStream
from odradek.streams.dsl.materialization import materialization
from odradek.streams.dsl.options import Consumed, Grouped, Materialized, Produced, Repartitioned
from odradek.streams.dsl.stateless import StatelessOperators
from odradek.streams.dsl.stream_base import K, V
from odradek.streams.dsl.stream_joins import StreamJoins
from odradek.streams.operators import stateless
from odradek.streams.operators.repartition import WindowedKeyPartitioner, repartition_node
from odradek.streams.operators.table import TableSource
from odradek.streams.processor import Processor, ProcessorSupplier
from odradek.streams.records import RecordMetadata
from odradek.streams.serdes import WindowedSerde
from odradek.streams.timestamps import fail_on_invalid_timestamp
from odradek.streams.topology import Topology

if TYPE_CHECKING:
    from odradek.streams.dsl.grouped import KGroupedStream
    from odradek.streams.dsl.ktable import KTable

K2 = TypeVar("K2")
V2 = TypeVar("V2")

SINK = "KSTREAM-SINK-"
TO_TABLE = "KSTREAM-TOTABLE-"


class KStream(StatelessOperators[K, V], AsynchronousOperators[K, V], StreamJoins[K, V]):
    """A stream of records. StreamsBuilder.stream() and operators create it."""

    def split(self, *, name: str | None = None) -> BranchedKStream[K, V]:
        """Send each record to the first of several branches whose predicate holds."""
        return BranchedKStream(self, name)

    def merge(self, other: KStream[K, V], *, name: str | None = None) -> KStream[K, V]:
        """The records of both streams. The order between them is not defined."""
        self.graph.accept("merge", other, KStream)
        node = self.graph.name(name, "KSTREAM-MERGE-")
        self._write(node, stateless.PassThrough(), self.node, other.node)
        sources = self.sources | other.sources
        return KStream(self.graph, node, None, None, sources, self.repartition_required or other.repartition_required)

    # ---- topics

    def to(
        self, topic: str | Callable[[K, V, RecordMetadata | None], str], produced: Produced[K, V] | None = None
    ) -> None:
        """Write to a topic, or to the topic that `topic`, a function of (key, value, RecordMetadata), returns."""
        store_settings = produced or Produced()
        name = self.graph.name(store_settings.name, SINK)
        key, value, partitioner = (
            store_settings.key or self.key,
            store_settings.value or self.value,
            store_settings.partitioner,
        )
        if partitioner is None and isinstance(key, WindowedSerde):
            partitioner = WindowedKeyPartitioner(key)
        parent = self.node

        def write(topology: Topology) -> None:
            topology.add_sink(name, topic, parent, key=key, value=value, partitioner=partitioner)

        self.graph.add(write, parents=(parent,), provides=name)

    def through(self, topic: str, produced: Produced[K, V] | None = None) -> KStream[K, V]:
        """Write to a topic and read it again. Deprecated as in Kafka Streams: use `repartition`, or `to` and `stream`.

        The topic is the user's and has to exist; `repartition` manages its topic itself.
        """
        warnings.warn(
            "KStream.through is deprecated (KIP-221): use repartition(), or to() and StreamsBuilder.stream()",
            DeprecationWarning,
            stacklevel=2,
        )
        store_settings = produced or Produced()
        key, value = store_settings.key or self.key, store_settings.value or self.value
        self.to(topic, replace(store_settings, key=key, value=value))
        node = self.graph.source((topic,), Consumed(key, value, fail_on_invalid_timestamp))
        return KStream(self.graph, node, key, value, frozenset((node,)))

    def repartition(self, repartitioned: Repartitioned[K, V] | None = None) -> KStream[K, V]:
        """Write to an internal topic and read it: equal keys are in one partition again."""
        store_settings = repartitioned or Repartitioned()
        prefix = store_settings.name if store_settings.name is not None else self.graph.new_name("KSTREAM-REPARTITION-")
        key, value = store_settings.key or self.key, store_settings.value or self.value
        node = repartition_node(self.graph, prefix, key, value, partitioner=store_settings.partitioner)
        node.partitions = store_settings.partitions
        node.add(self.graph, self.node)
        return KStream(self.graph, node.source, key, value, frozenset((node.source,)))

    def to_table(
        self, materialized: Materialized[K, V] | str | None = None, *, name: str | None = None
    ) -> KTable[K, V]:
        """Convert each record into an update of a table; a null value deletes (KIP-523)."""
        from odradek.streams.dsl.ktable import KTable

        node = self.graph.name(name, TO_TABLE)
        store_settings = materialization(materialized, self.graph, TO_TABLE).with_default_serdes(self.key, self.value)
        parent, sources = self.node, self.sources
        if self.repartition_required:
            repartition = repartition_node(self.graph, node, store_settings.key, store_settings.value)
            repartition.add(self.graph, parent)
            parent, sources = repartition.source, frozenset((repartition.source,))
        source = TableSource(store_settings)

        def write(topology: Topology) -> None:
            topology.add_processor(node, source, parent)
            if source.materialized:
                topology.add_state_store(store_settings.key_value_store(), node)

        self.graph.add(write, parents=(parent,), provides=node)
        table: KTable[K, V] = KTable(
            self.graph, node, store_settings.key, store_settings.value, sources, source, store_settings.queryable_name
        )
        return table

    # ---- user-defined processors

    def process(
        self, supplier: Callable[[], Processor[K, V, K2, V2]], *stores: str, name: str | None = None
    ) -> KStream[K2, V2]:
        """Process the records with a user's processor, connected to these stores (Processor API, KIP-820)."""
        node = name if name is not None else self.graph.new_name("KSTREAM-PROCESSOR-")
        self._by_hand(node, supplier, stores)
        return self._stream(node, None, None, True)

    def process_values(
        self, supplier: Callable[[], Processor[K, V, K, V2]], *stores: str, name: str | None = None
    ) -> KStream[K, V2]:
        """The same with a FixedKeyProcessor, which does not change keys."""
        node = name if name is not None else self.graph.new_name("KSTREAM-PROCESSVALUES-")
        self._by_hand(node, supplier, stores)
        return self._stream(node, self.key, None)

    # ---- groups

    @overload
    def group_by(self, selector: Callable[[V], K2], grouped: Grouped[K2, V] | None = None) -> KGroupedStream[K2, V]: ...

    @overload
    def group_by(
        self, selector: Callable[[K, V], K2], grouped: Grouped[K2, V] | None = None
    ) -> KGroupedStream[K2, V]: ...

    def group_by(self, selector: Callable[..., K2], grouped: Grouped[K2, V] | None = None) -> KGroupedStream[K2, V]:
        """Group by the result of `selector`, of (value) or of (key, value).

        Serdes are those of `grouped`; without it the value's is this stream's.
        """
        from odradek.streams.dsl.grouped import KGroupedStream

        store_settings: Grouped[K2, V] = grouped or Grouped(value=self.value)
        node = self._of_function(store_settings.name, "KSTREAM-KEY-SELECT-", stateless.SelectKey(selector), "selector")
        return KGroupedStream(self.graph, node, store_settings, self.sources, True)

    def group_by_key(self, grouped: Grouped[K, V] | None = None) -> KGroupedStream[K, V]:
        """Group by the present key. Serdes are those of `grouped`; without it this stream's."""
        from odradek.streams.dsl.grouped import KGroupedStream

        store_settings = grouped or Grouped(self.key, self.value)
        return KGroupedStream(self.graph, self.node, store_settings, self.sources, self.repartition_required)

    # ---- internals

    def _by_hand(self, node: str, supplier: ProcessorSupplier, stores: Sequence[str]) -> None:
        parent = self.node

        def write(topology: Topology) -> None:
            topology.add_processor(node, supplier, parent)
            topology.connect_processor_and_state_stores(node, *stores)

        self.graph.add(write, parents=(parent,), provides=node)
