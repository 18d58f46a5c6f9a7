"""KGroupedStream and KGroupedTable: the start of aggregations (Kafka: KGroupedStreamImpl, KGroupedTableImpl).

A group whose keys may have changed is repartitioned before its aggregation. The topic has the name of the group if that
has one, else of the store; aggregations of one named group share it (GroupedStreamAggregateBuilder).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from odradek.streams.dsl.graph import Graph
from odradek.streams.dsl.ktable import KTable
from odradek.streams.dsl.materialization import Materialization, materialization
from odradek.streams.dsl.named_aggregations import NamedAggregations
from odradek.streams.dsl.options import Grouped, Materialized
from odradek.streams.functions import AGGREGATOR, OF_NOTHING, REDUCER
from odradek.streams.operators import aggregate as operators
from odradek.streams.operators.repartition import ChangeSerde, RepartitionNode, repartition_node
from odradek.streams.operators.table import TableSupplier
from odradek.streams.serdes import LONG, Serde
from odradek.streams.stores.builders import StoreBuilder
from odradek.streams.topology import Topology

if TYPE_CHECKING:
    from odradek.streams.aggregations import Aggregation
    from odradek.streams.dsl.cogroup import CogroupedKStream
    from odradek.streams.dsl.windowed import SessionWindowedKStream, TimeWindowedKStream
    from odradek.streams.windows import SessionWindows, SlidingWindows, TimeWindows, Windows

K = TypeVar("K")
V = TypeVar("V")
A = TypeVar("A")

STREAM_AGGREGATE = "KSTREAM-AGGREGATE-"
STREAM_REDUCE = "KSTREAM-REDUCE-"
TABLE_AGGREGATE = "KTABLE-AGGREGATE-"
TABLE_REDUCE = "KTABLE-REDUCE-"


def nothing() -> Any:
    """The initial state of reduce() and of aggregations by name."""
    return None


class KGroupedStream(NamedAggregations[K, K, V], Generic[K, V]):
    """A stream whose records are grouped by their keys."""

    def __init__(
        self, graph: Graph, node: str, grouped: Grouped[K, V], sources: frozenset[str], repartition_required: bool
    ) -> None:
        """`node`, `sources` and `repartition_required` are those of the stream that was grouped."""
        self.graph = graph
        self.node = node
        self.key: Serde[K] | None = grouped.key
        self.value: Serde[V] | None = grouped.value
        self.sources = sources
        self.repartition_required = repartition_required
        self.repartition_name = grouped.name
        """The user's name of the group, and so of its repartition topic."""
        self._repartition: RepartitionNode | None = None

    def count(
        self, materialized: Materialized[K, int] | str | None = None, *, name: str | None = None
    ) -> KTable[K, int]:
        """How many records each key has. Records with a null key or value are dropped."""
        store_settings = materialization(materialized, self.graph, STREAM_AGGREGATE).with_default_serdes(self.key, LONG)
        node = self.graph.name(name, STREAM_AGGREGATE)
        supplier = operators.StreamAggregate(store_settings.store_name, operators.zero, operators.count)
        return self.aggregation(node, supplier, store_settings, store_settings.key_value_store())

    def reduce(
        self,
        reducer: Callable[[V, V], V],
        materialized: Materialized[K, V] | str | None = None,
        *,
        name: str | None = None,
    ) -> KTable[K, V]:
        """Combine the values of each key by `reducer`, of (current value, new value)."""
        store_settings = materialization(materialized, self.graph, STREAM_REDUCE).with_default_serdes(
            self.key, self.value
        )
        node = self.graph.name(name, STREAM_REDUCE)
        self.graph.check(node, "reducer", reducer, REDUCER)
        supplier = operators.StreamReduce(store_settings.store_name, reducer)
        return self.aggregation(node, supplier, store_settings, store_settings.key_value_store())

    def aggregate(
        self,
        initializer: Callable[[], A],
        aggregator: Callable[[K, V, A], A],
        materialized: Materialized[K, A] | str | None = None,
        *,
        name: str | None = None,
    ) -> KTable[K, A]:
        """Add the values of each key to the result of `initializer`, by `aggregator` of (key, value, aggregate)."""
        store_settings = materialization(materialized, self.graph, STREAM_AGGREGATE).with_default_serdes(self.key, None)
        node = self.graph.name(name, STREAM_AGGREGATE)
        self.graph.check(node, "initializer", initializer, OF_NOTHING)
        self.graph.check(node, "aggregator", aggregator, AGGREGATOR)
        supplier = operators.StreamAggregate(store_settings.store_name, initializer, aggregator)
        return self.aggregation(node, supplier, store_settings, store_settings.key_value_store())

    def _aggregated(
        self, aggregation: Aggregation[Any], materialized: Materialized[K, Any], name: str | None
    ) -> KTable[K, Any]:
        return self.aggregate(nothing, aggregation.aggregator, materialized, name=name)

    def _serde_of_values(self) -> Serde[V] | None:
        return self.value

    # ---- called by aggregations of every kind, also windowed ones

    def aggregation(
        self,
        node: str,
        supplier: TableSupplier,
        store_settings: Materialization,
        store: StoreBuilder,
        *,
        key: Serde[Any] | None = None,
    ) -> KTable[Any, Any]:
        """Add an aggregation, and the repartition before it where one is needed (GroupedStreamAggregateBuilder).

        `key` is the serde of the table's keys where that is not the store's (windowed keys).
        """
        parent, sources = self.node, self.sources
        if self.repartition_required:
            repartition = self.repartition(store.name)
            parent, sources = repartition.source, frozenset((repartition.source,))

        def write(topology: Topology) -> None:
            topology.add_processor(node, supplier, parent)
            topology.add_state_store(store, node)

        self.graph.add(write, parents=(parent,), provides=node)
        return KTable(
            self.graph,
            node,
            key or store_settings.key,
            store_settings.value,
            sources,
            supplier,
            store_settings.queryable_name,
            versioned=store_settings.versioned,
        )

    def repartition(self, store: str) -> RepartitionNode:
        """The repartition before an aggregation into `store`: a new one, or the group's if that has a name."""
        named = self.repartition_name
        made = repartition_node(self.graph, named if named is not None else store, self.key, self.value)
        if self._repartition is None or named is None:
            self._repartition = made
            made.add(self.graph, self.node)
        else:
            self.graph.again(made.source)
        return self._repartition

    # ---- windows: see windowed.py; cogroup: see cogroup.py

    @overload
    def windowed_by(self, windows: TimeWindows | SlidingWindows | Windows) -> TimeWindowedKStream[K, V]: ...

    @overload
    def windowed_by(self, windows: SessionWindows) -> SessionWindowedKStream[K, V]: ...

    def windowed_by(self, windows: Any) -> Any:
        """Aggregate each window separately."""
        from odradek.streams.dsl.windowed import windowed_stream

        return windowed_stream(self, windows)

    def cogroup(self, aggregator: Callable[[K, V, A], A]) -> CogroupedKStream[K, A]:
        """Aggregate several groups into one table: this one by `aggregator`, of (key, value, aggregate) (KIP-150)."""
        from odradek.streams.dsl.cogroup import CogroupedKStream

        return CogroupedKStream.of(self, aggregator)


class KGroupedTable(NamedAggregations[K, K, V], Generic[K, V]):
    """A table whose rows are grouped by another key."""

    def __init__(self, graph: Graph, node: str, grouped: Grouped[K, V], sources: frozenset[str]) -> None:
        """`node` is the node that selects the keys."""
        self.graph = graph
        self.node = node
        self.key: Serde[K] | None = grouped.key
        self.value: Serde[V] | None = grouped.value
        self.sources = sources
        self.repartition_name = grouped.name
        self._repartition: RepartitionNode | None = None

    def count(
        self, materialized: Materialized[K, int] | str | None = None, *, name: str | None = None
    ) -> KTable[K, int]:
        """How many rows each key has."""
        store_settings = materialization(materialized, self.graph, TABLE_AGGREGATE).with_default_serdes(self.key, LONG)
        supplier = operators.TableAggregate(
            store_settings.store_name, operators.zero, operators.count, operators.discount
        )
        return self._aggregation(supplier, name, TABLE_AGGREGATE, store_settings)

    def reduce(
        self,
        adder: Callable[[V, V], V],
        subtractor: Callable[[V, V], V],
        materialized: Materialized[K, V] | str | None = None,
        *,
        name: str | None = None,
    ) -> KTable[K, V]:
        """Combine the rows of each key: `adder` adds the new row, `subtractor` subtracts the old row."""
        store_settings = materialization(materialized, self.graph, TABLE_AGGREGATE).with_default_serdes(
            self.key, self.value
        )
        supplier = operators.TableReduce(store_settings.store_name, adder, subtractor)
        table = self._aggregation(supplier, name, TABLE_REDUCE, store_settings)
        self.graph.check(table.node, "adder", adder, REDUCER)
        self.graph.check(table.node, "subtractor", subtractor, REDUCER)
        return table

    def aggregate(
        self,
        initializer: Callable[[], A],
        adder: Callable[[K, V, A], A],
        subtractor: Callable[[K, V, A], A],
        materialized: Materialized[K, A] | str | None = None,
        *,
        name: str | None = None,
    ) -> KTable[K, A]:
        """The same with an aggregate of another type; both functions are of (key, value, aggregate)."""
        store_settings = materialization(materialized, self.graph, TABLE_AGGREGATE).with_default_serdes(self.key, None)
        supplier = operators.TableAggregate(store_settings.store_name, initializer, adder, subtractor)
        table = self._aggregation(supplier, name, TABLE_AGGREGATE, store_settings)
        self.graph.check(table.node, "initializer", initializer, OF_NOTHING)
        self.graph.check(table.node, "adder", adder, AGGREGATOR)
        self.graph.check(table.node, "subtractor", subtractor, AGGREGATOR)
        return table

    def _aggregated(
        self, aggregation: Aggregation[Any], materialized: Materialized[K, Any], name: str | None
    ) -> KTable[K, Any]:
        table = self.aggregate(nothing, aggregation.aggregator, aggregation.subtractor, materialized, name=name)
        if aggregation.cannot_subtract:
            self.graph.reject(table.node, f"{aggregation.name}() of a table: {aggregation.cannot_subtract}")
        return table

    def _serde_of_values(self) -> Serde[V] | None:
        return self.value

    def _aggregation(
        self, supplier: TableSupplier, name: str | None, prefix: str, store_settings: Materialization
    ) -> KTable[K, Any]:
        graph = self.graph
        sink = graph.name(name, "KSTREAM-SINK-", "-sink")
        source = graph.name(name, "KSTREAM-SOURCE-", "-source")
        node = graph.name(name, prefix)
        named = self.repartition_name
        if self._repartition is None or named is None:
            topic = f"{store_settings.store_name if named is None else named}-repartition"
            value = ChangeSerde(self.value)
            self._repartition = RepartitionNode(topic, sink, source, self.key, value)
            self._repartition.add(graph, self.node)
        else:
            graph.again(self._repartition.source)
        parent, store = self._repartition.source, store_settings.key_value_store()

        def write(topology: Topology) -> None:
            topology.add_processor(node, supplier, parent)
            topology.add_state_store(store, node)

        graph.add(write, parents=(parent,), provides=node)
        sources = frozenset((source,))  # as in Kafka, though a shared repartition has another source
        return KTable(
            graph,
            node,
            store_settings.key,
            store_settings.value,
            sources,
            supplier,
            store_settings.queryable_name,
            versioned=store_settings.versioned,
        )
