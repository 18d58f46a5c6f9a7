"""Co-groups: several grouped streams, aggregated into one table, windowed or not (Kafka: CogroupedKStreamImpl,
KIP-150).

Each stream has its own aggregator for the common aggregate, and all write one store. Their topics need the same number
of partitions.

    orders.group_by_key().cogroup(add_order).cogroup(payments.group_by_key(), add_payment).aggregate(dict)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

from odradek.streams.dsl.grouped import KGroupedStream
from odradek.streams.dsl.ktable import KTable
from odradek.streams.dsl.materialization import Materialization, materialization
from odradek.streams.dsl.options import Materialized
from odradek.streams.dsl.windowed import (
    FixedWindows,
    session_window_store,
    size_of,
    window_operator,
    window_store,
    windowed_stream,
)
from odradek.streams.functions import AGGREGATOR, MERGER, OF_NOTHING
from odradek.streams.operators.aggregate import StreamAggregate
from odradek.streams.operators.cogroup import CogroupMerge
from odradek.streams.operators.sessions import SessionAggregate
from odradek.streams.records import Windowed
from odradek.streams.serdes import Serde, session_windowed_serde, windowed_serde
from odradek.streams.stores.builders import StoreBuilder
from odradek.streams.topology import Topology
from odradek.streams.windows import EmitStrategy, SessionWindows

K = TypeVar("K")
A = TypeVar("A")

AGGREGATE = "COGROUPKSTREAM-AGGREGATE-"
MERGE = "COGROUPKSTREAM-MERGE-"
Aggregator = Callable[[Any, Any, Any], Any]
Groups = dict[KGroupedStream[Any, Any], Aggregator]
_ON_UPDATE = EmitStrategy.ON_WINDOW_UPDATE


class CogroupedKStream(Generic[K, A]):
    """Grouped streams with their aggregators."""

    def __init__(self, groups: Groups) -> None:
        self._groups = groups

    @classmethod
    def of(cls, grouped: KGroupedStream[K, Any], aggregator: Callable[[K, Any, A], A]) -> CogroupedKStream[K, A]:
        """The first of the streams."""
        return cls({grouped: aggregator})

    def cogroup(self, grouped: KGroupedStream[K, Any], aggregator: Callable[[K, Any, A], A]) -> CogroupedKStream[K, A]:
        """Add a stream; `aggregator` is of (key, value, aggregate). Raises ArgumentError."""
        next(iter(self._groups)).graph.accept("cogroup", grouped, KGroupedStream)
        self._groups[grouped] = aggregator
        return self

    def aggregate(
        self,
        initializer: Callable[[], A],
        materialized: Materialized[K, A] | str | None = None,
        *,
        name: str | None = None,
    ) -> KTable[K, A]:
        """One aggregate for each key, that all streams add to."""
        store_settings = _store_settings(self._groups, materialized)
        store = store_settings.key_value_store()

        def supplier(aggregator: Aggregator) -> StreamAggregate:
            return StreamAggregate(store.name, initializer, aggregator)

        table = _table(self._groups, store_settings, store, supplier, name, store_settings.key, None)
        table.graph.check(table.node, "initializer", initializer, OF_NOTHING)
        return table

    def windowed_by(self, windows: Any) -> Any:
        """Aggregate for each window on its own: a TimeWindowedCogroupedKStream, or one by sessions."""
        windowed_stream(next(iter(self._groups)), windows)  # rejects any other type
        if isinstance(windows, SessionWindows):
            return SessionWindowedCogroupedKStream(self._groups, windows)
        return TimeWindowedCogroupedKStream(self._groups, windows)


class TimeWindowedCogroupedKStream(Generic[K, A]):
    """A co-group in windows of a fixed length."""

    def __init__(self, groups: Groups, windows: FixedWindows) -> None:
        self._groups = groups
        self._windows = windows

    def aggregate(
        self,
        initializer: Callable[[], A],
        materialized: Materialized[K, A] | str | None = None,
        *,
        name: str | None = None,
    ) -> KTable[Windowed[K], A]:
        """One aggregate for each key and window, that all streams add to."""
        windows, store_settings = self._windows, _store_settings(self._groups, materialized)
        store = window_store(store_settings, windows, _ON_UPDATE)
        key = windowed_serde(store_settings.key, size_of(windows)) if store_settings.key is not None else None

        def supplier(aggregator: Aggregator) -> Any:
            return window_operator(store.name, windows, initializer, aggregator, _ON_UPDATE)

        table = _table(self._groups, store_settings, store, supplier, name, key, windows.grace_ms)
        table.graph.check(table.node, "initializer", initializer, OF_NOTHING)
        return table


class SessionWindowedCogroupedKStream(Generic[K, A]):
    """A co-group in sessions."""

    def __init__(self, groups: Groups, windows: SessionWindows) -> None:
        self._groups = groups
        self._windows = windows

    def aggregate(
        self,
        initializer: Callable[[], A],
        merger: Callable[[K, A, A], A],
        materialized: Materialized[K, A] | str | None = None,
        *,
        name: str | None = None,
    ) -> KTable[Windowed[K], A]:
        """One aggregate for each key and session; `merger` makes one of two sessions that a record joins."""
        windows, store_settings = self._windows, _store_settings(self._groups, materialized)
        store = session_window_store(store_settings, windows, _ON_UPDATE)
        key = session_windowed_serde(store_settings.key) if store_settings.key is not None else None

        def supplier(aggregator: Aggregator) -> SessionAggregate:
            return SessionAggregate(store.name, windows, initializer, aggregator, merger)

        grace_ms = windows.grace_ms + windows.inactivity_gap_ms
        table = _table(self._groups, store_settings, store, supplier, name, key, grace_ms)
        table.graph.check(table.node, "initializer", initializer, OF_NOTHING)
        table.graph.check(table.node, "merger", merger, MERGER)
        return table


def _store_settings(groups: Groups, materialized: Materialized[Any, Any] | str | None) -> Materialization:
    first = next(iter(groups))
    return materialization(materialized, first.graph, AGGREGATE).with_default_serdes(first.key, None)


def _table(
    groups: Groups,
    store_settings: Materialization,
    store: StoreBuilder,
    supplier: Callable[[Aggregator], Any],
    name: str | None,
    key: Serde[Any] | None,
    grace_ms: int | None,
) -> KTable[Any, Any]:
    """An aggregation for each stream, and the node that merges them (CogroupedStreamAggregateBuilder)."""
    graph = next(iter(groups)).graph
    parents, sources = _repartitioned(groups, store.name)
    suppliers, nodes = [], []
    for index, (grouped, aggregator) in enumerate(groups.items()):
        node = graph.name(name, AGGREGATE, f"-cogroup-agg-{index}")
        operator = supplier(aggregator)
        suppliers.append(operator)
        nodes.append(node)
        graph.check(node, "aggregator", aggregator, AGGREGATOR)
        _add_aggregation(grouped, node, operator, parents[grouped], store)
        if grace_ms is not None:
            graph.graces[node] = grace_ms
    merge = graph.name(name, MERGE, "-cogroup-merge")
    merger = CogroupMerge(suppliers)

    def write(topology: Topology) -> None:
        topology.add_processor(merge, merger, *nodes)
        if len(sources) > 1:
            topology.copartition(sorted(sources))

    graph.add(write, parents=tuple(nodes), provides=merge)
    return KTable(
        graph,
        merge,
        key,
        store_settings.value,
        sources,
        merger,
        store_settings.queryable_name,
        versioned=store_settings.versioned,
    )


def _repartitioned(groups: Groups, store: str) -> tuple[dict[KGroupedStream[Any, Any], str], frozenset[str]]:
    """The parent node of each stream's aggregation, and the sources of all."""
    parents: dict[KGroupedStream[Any, Any], str] = {}
    sources: set[str] = set()
    for grouped in groups:
        if grouped.repartition_required:
            source = grouped.repartition(store).source
            parents[grouped] = source
            sources.add(source)
        else:
            parents[grouped] = grouped.node
            sources |= grouped.sources
    return parents, frozenset(sources)


def _add_aggregation(
    grouped: KGroupedStream[Any, Any], node: str, operator: Any, parent: str, store: StoreBuilder
) -> None:
    def write(topology: Topology) -> None:
        topology.add_processor(node, operator, parent)
        topology.add_state_store(store, node)

    grouped.graph.add(write, parents=(parent,), provides=node)
