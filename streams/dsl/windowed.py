"""TimeWindowedKStream and SessionWindowedKStream: a grouped stream, aggregated for each window separately.

The resulting tables have windowed keys, and stores with a retention: by default a store keeps a window as long as it
can still change (TimeWindowedKStreamImpl, SlidingWindowedKStreamImpl, SessionWindowedKStreamImpl).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from odradek.streams.dsl.grouped import nothing
from odradek.streams.dsl.materialization import Materialization, materialization
from odradek.streams.dsl.named_aggregations import NamedAggregations
from odradek.streams.dsl.options import Materialized
from odradek.streams.errors import TopologyError
from odradek.streams.functions import AGGREGATOR, MERGER, OF_NOTHING, REDUCER
from odradek.streams.operators import aggregate as plain
from odradek.streams.operators.sessions import SessionAggregate
from odradek.streams.operators.sliding import SlidingAggregate
from odradek.streams.operators.stateless import PassThrough
from odradek.streams.operators.windowed import CustomWindowedAggregate, WindowedAggregate, WindowedTable
from odradek.streams.records import Windowed
from odradek.streams.serdes import LONG, Serde, session_windowed_serde, windowed_serde
from odradek.streams.stores.builders import StoreBuilder, session_store, timestamped_window_store
from odradek.streams.topology import Topology
from odradek.streams.windows import (
    END_OF_TIME,
    EmitStrategy,
    SessionWindows,
    SlidingWindows,
    TimeWindows,
    UnlimitedWindows,
    Windows,
)

if TYPE_CHECKING:
    from odradek.streams.aggregations import Aggregation
    from odradek.streams.dsl.grouped import KGroupedStream
    from odradek.streams.dsl.kstream import KStream
    from odradek.streams.dsl.ktable import KTable

K = TypeVar("K")
V = TypeVar("V")
A = TypeVar("A")

AGGREGATE = "KSTREAM-AGGREGATE-"
REDUCE = "KSTREAM-REDUCE-"
LATE = "KSTREAM-LATE-"
FixedWindows = TimeWindows | UnlimitedWindows | SlidingWindows | Windows


def windowed_stream(grouped: KGroupedStream[K, V], windows: Any) -> Any:
    """The result of windowed_by(). Raises TypeError for any other type."""
    if isinstance(windows, SessionWindows):
        return SessionWindowedKStream(grouped, windows)
    if isinstance(windows, TimeWindows | UnlimitedWindows | SlidingWindows | Windows):
        return TimeWindowedKStream(grouped, windows)
    raise TypeError(
        f"{windows!r} is no window: use TimeWindows, SlidingWindows, SessionWindows, UnlimitedWindows or a subclass of "
        "Windows (JoinWindows are for joins)"
    )


class WindowedKStream(NamedAggregations[K, Windowed[K], V], Generic[K, V]):
    """The common part of grouped streams in windows: their late records."""

    def __init__(self, grouped: KGroupedStream[K, V]) -> None:
        self._grouped = grouped
        self._first: tuple[WindowedTable, KTable[Windowed[K], Any]] | None = None
        """The first aggregation; the others drop the same records."""
        self._late: KStream[Windowed[K], V] | None = None

    def late(self, *, name: str | None = None) -> KStream[Windowed[K], V]:
        """The records that came too late, each once for every window that was closed and would have contained it.

        These are the records that `dropped-records-total` counts as late; keys are windowed, values, timestamps and
        headers are those of the record. Every aggregation of these windows drops the same records; those of the first
        one are in this stream. Raises TopologyError before there is one.
        """
        if self._first is None:
            raise TopologyError(
                "late() follows an aggregation: call count(), or another one, of the same windows before"
            )
        if self._late is None:
            self._late = late_stream(*self._first, self._grouped.value, name)
        return self._late

    def _store_settings(self, materialized: Materialized[Any, Any] | str | None, prefix: str) -> Materialization:
        return materialization(materialized, self._grouped.graph, prefix)

    def _serde_of_values(self) -> Serde[V] | None:
        return self._grouped.value

    def _add(
        self,
        node: str,
        supplier: WindowedTable,
        store_settings: Materialization,
        store: StoreBuilder,
        key: Serde[Any] | None,
    ) -> KTable[Windowed[K], Any]:
        """Add an aggregation; `key` is the serde of windowed keys."""
        table = self._grouped.aggregation(node, supplier, store_settings, store, key=key)
        self._first = self._first or (supplier, table)
        return table


class TimeWindowedKStream(WindowedKStream[K, V]):
    """A grouped stream in windows of a fixed length, aligned or sliding."""

    def __init__(
        self,
        grouped: KGroupedStream[K, V],
        windows: FixedWindows,
        emit: EmitStrategy = EmitStrategy.ON_WINDOW_UPDATE,
    ) -> None:
        super().__init__(grouped)
        self._windows = windows
        self._emit = emit

    def emit_strategy(self, emit: EmitStrategy) -> TimeWindowedKStream[K, V]:
        """Emit results at each update, or once when a window is closed. Raises TopologyError for windows that never
        close.
        """
        if isinstance(self._windows, UnlimitedWindows) and emit is EmitStrategy.ON_WINDOW_CLOSE:
            raise TopologyError("ON_WINDOW_CLOSE emit strategy cannot be used for unlimited windows: they never close")
        return TimeWindowedKStream(self._grouped, self._windows, emit)

    def count(
        self, materialized: Materialized[K, int] | str | None = None, *, name: str | None = None
    ) -> KTable[Windowed[K], int]:
        """How many records each key has in each window."""
        store_settings = self._store_settings(materialized, AGGREGATE).with_default_serdes(self._grouped.key, LONG)
        return self._table(store_settings, name, AGGREGATE, plain.zero, plain.count)

    def reduce(
        self,
        reducer: Callable[[V, V], V],
        materialized: Materialized[K, V] | str | None = None,
        *,
        name: str | None = None,
    ) -> KTable[Windowed[K], V]:
        """Combine the values of each key in each window by `reducer`, of (current value, new value)."""
        store_settings = self._store_settings(materialized, REDUCE).with_default_serdes(
            self._grouped.key, self._grouped.value
        )
        table = self._table(store_settings, name, REDUCE, nothing, reducing(reducer))
        self._grouped.graph.check(table.node, "reducer", reducer, REDUCER)
        return table

    def aggregate(
        self,
        initializer: Callable[[], A],
        aggregator: Callable[[K, V, A], A],
        materialized: Materialized[K, A] | str | None = None,
        *,
        name: str | None = None,
    ) -> KTable[Windowed[K], A]:
        """Add values to the result of `initializer` for each window, by `aggregator` of (key, value, aggregate)."""
        store_settings = self._store_settings(materialized, AGGREGATE).with_default_serdes(self._grouped.key, None)
        table = self._table(store_settings, name, AGGREGATE, initializer, aggregator)
        self._grouped.graph.check(table.node, "initializer", initializer, OF_NOTHING)
        self._grouped.graph.check(table.node, "aggregator", aggregator, AGGREGATOR)
        return table

    def _aggregated(
        self, aggregation: Aggregation[Any], materialized: Materialized[K, Any], name: str | None
    ) -> KTable[Windowed[K], Any]:
        return self.aggregate(nothing, aggregation.aggregator, materialized, name=name)

    def _table(
        self,
        store_settings: Materialization,
        name: str | None,
        prefix: str,
        initializer: Callable[[], Any],
        aggregator: Callable[[Any, Any, Any], Any],
    ) -> KTable[Windowed[K], Any]:
        graph = self._grouped.graph
        node = graph.name(name, prefix)
        store = window_store(store_settings, self._windows, self._emit)
        supplier = window_operator(store.name, self._windows, initializer, aggregator, self._emit)
        graph.graces[node] = self._windows.grace_ms
        key = windowed_serde(store_settings.key, size_of(self._windows)) if store_settings.key is not None else None
        return self._add(node, supplier, store_settings, store, key)


class SessionWindowedKStream(WindowedKStream[K, V]):
    """A grouped stream in sessions."""

    def __init__(
        self,
        grouped: KGroupedStream[K, V],
        windows: SessionWindows,
        emit: EmitStrategy = EmitStrategy.ON_WINDOW_UPDATE,
    ) -> None:
        super().__init__(grouped)
        self._windows = windows
        self._emit = emit

    def emit_strategy(self, emit: EmitStrategy) -> SessionWindowedKStream[K, V]:
        """Emit results at each update, or once when a session is closed."""
        return SessionWindowedKStream(self._grouped, self._windows, emit)

    def count(
        self, materialized: Materialized[K, int] | str | None = None, *, name: str | None = None
    ) -> KTable[Windowed[K], int]:
        """How many records each session has."""
        store_settings = self._store_settings(materialized, AGGREGATE).with_default_serdes(self._grouped.key, LONG)
        return self._table(
            store_settings, name, AGGREGATE, plain.zero, plain.count, lambda key, one, other: one + other
        )

    def reduce(
        self,
        reducer: Callable[[V, V], V],
        materialized: Materialized[K, V] | str | None = None,
        *,
        name: str | None = None,
    ) -> KTable[Windowed[K], V]:
        """Combine the values of each session by `reducer`, of (current value, new value)."""
        store_settings = self._store_settings(materialized, REDUCE).with_default_serdes(
            self._grouped.key, self._grouped.value
        )
        aggregator = reducing(reducer)
        table = self._table(store_settings, name, REDUCE, nothing, aggregator, merging(aggregator))
        self._grouped.graph.check(table.node, "reducer", reducer, REDUCER)
        return table

    def aggregate(
        self,
        initializer: Callable[[], A],
        aggregator: Callable[[K, V, A], A],
        merger: Callable[[K, A, A], A],
        materialized: Materialized[K, A] | str | None = None,
        *,
        name: str | None = None,
    ) -> KTable[Windowed[K], A]:
        """Add values to the result of `initializer` for each session.

        `merger`, of (key, aggregate, aggregate), merges two sessions that a record connects.
        """
        store_settings = self._store_settings(materialized, AGGREGATE).with_default_serdes(self._grouped.key, None)
        table = self._table(store_settings, name, AGGREGATE, initializer, aggregator, merger)
        self._grouped.graph.check(table.node, "initializer", initializer, OF_NOTHING)
        self._grouped.graph.check(table.node, "aggregator", aggregator, AGGREGATOR)
        self._grouped.graph.check(table.node, "merger", merger, MERGER)
        return table

    def _aggregated(
        self, aggregation: Aggregation[Any], materialized: Materialized[K, Any], name: str | None
    ) -> KTable[Windowed[K], Any]:
        return self.aggregate(nothing, aggregation.aggregator, aggregation.merger, materialized, name=name)

    def _table(
        self,
        store_settings: Materialization,
        name: str | None,
        prefix: str,
        initializer: Callable[[], Any],
        aggregator: Callable[[Any, Any, Any], Any],
        merger: Callable[[Any, Any, Any], Any],
    ) -> KTable[Windowed[K], Any]:
        graph, windows = self._grouped.graph, self._windows
        node = graph.name(name, prefix)
        store = session_window_store(store_settings, windows, self._emit)
        supplier = SessionAggregate(store.name, windows, initializer, aggregator, merger, self._emit)
        graph.graces[node] = windows.grace_ms + windows.inactivity_gap_ms
        key = session_windowed_serde(store_settings.key) if store_settings.key is not None else None
        return self._add(node, supplier, store_settings, store, key)


def late_stream(
    supplier: WindowedTable, table: KTable[Windowed[K], Any], value: Serde[V] | None, name: str | None
) -> KStream[Windowed[K], V]:
    """The stream of the records that an aggregation drops as late; `value` is their serde."""
    from odradek.streams.dsl.kstream import KStream

    graph, parent = table.graph, table.node
    node = supplier.late = graph.name(name, LATE)

    def write(topology: Topology) -> None:
        topology.add_processor(node, PassThrough(), parent)

    graph.add(write, parents=(parent,), provides=node)
    return KStream(graph, node, table.key, value, table.sources)


# ---- common to windowed aggregations, those of co-groups included


def window_operator(
    store: str,
    windows: FixedWindows,
    initializer: Callable[[], Any],
    aggregator: Callable[[Any, Any, Any], Any],
    emit: EmitStrategy,
) -> WindowedTable:
    """The operator for a kind of window."""
    if isinstance(windows, SlidingWindows):
        return SlidingAggregate(store, windows, initializer, aggregator, emit)
    if isinstance(windows, Windows):
        return CustomWindowedAggregate(store, windows, initializer, aggregator, emit)
    return WindowedAggregate(store, windows, initializer, aggregator, emit)


def size_of(windows: FixedWindows) -> int:
    """The length of a window, in ms."""
    return windows.time_difference_ms if isinstance(windows, SlidingWindows) else windows.size_ms


def window_store(store_settings: Materialization, windows: FixedWindows, emit: EmitStrategy) -> StoreBuilder:
    """The store of windows. Raises TopologyError for a retention that is shorter than size and grace."""
    size, grace = size_of(windows), windows.grace_ms
    needed = min((2 * size if isinstance(windows, SlidingWindows) else size) + grace, END_OF_TIME)
    if store_settings.store is not None:
        if store_settings.store.kind != "window":
            raise TopologyError(
                f"windows need a window store; {store_settings.store.name} is a {store_settings.store.kind} store"
            )
        changes: dict[str, Any] = {
            "stamped": True,
            "key_serde": store_settings.key,
            "value_serde": store_settings.value,
        }
        stepwise = isinstance(windows, TimeWindows | Windows)
        return _cached(replace(store_settings.store, **changes), store_settings, emit, stepwise)
    retention = needed if store_settings.retention_ms is None else store_settings.retention_ms
    if retention < needed:
        raise TopologyError(
            f"The retention period of the window store {store_settings.store_name} must be no smaller than its window "
            f"size plus the grace period. Got size=[{size}], grace=[{grace}], retention=[{retention}]"
        )
    assert store_settings.store_name is not None
    made = timestamped_window_store(
        store_settings.store_name,
        retention,
        size,
        store_settings.key,
        store_settings.value,
        persistent=store_settings.persistent,
    )
    return _cached(made, store_settings, emit, isinstance(windows, TimeWindows | Windows))


def session_window_store(store_settings: Materialization, windows: SessionWindows, emit: EmitStrategy) -> StoreBuilder:
    """The store of sessions. Raises TopologyError for a retention that is shorter than gap and grace."""
    needed = windows.inactivity_gap_ms + windows.grace_ms
    if store_settings.store is not None:
        if store_settings.store.kind != "session":
            raise TopologyError(
                f"sessions need a session store; {store_settings.store.name} is a {store_settings.store.kind} store"
            )
        return _cached(
            replace(store_settings.store, key_serde=store_settings.key, value_serde=store_settings.value),
            store_settings,
            emit,
        )
    retention = needed if store_settings.retention_ms is None else store_settings.retention_ms
    if retention < needed:
        raise TopologyError(
            f"The retention period of the session store {store_settings.store_name} must be no smaller than the "
            f"session inactivity gap plus the grace period. Got gap=[{windows.inactivity_gap_ms}], "
            f"grace=[{windows.grace_ms}], retention=[{retention}]"
        )
    assert store_settings.store_name is not None
    return _cached(
        session_store(
            store_settings.store_name,
            retention,
            store_settings.key,
            store_settings.value,
            persistent=store_settings.persistent,
        ),
        store_settings,
        emit,
    )


def _cached(
    builder: StoreBuilder, store_settings: Materialization, emit: EmitStrategy, cached: bool = False
) -> StoreBuilder:
    """A store whose windows are emitted when they are closed does not cache updates; `cached` is whether Kafka allows
    it a cache for reads all the same.
    """
    from_config = store_settings.store is None and store_settings.store_type is None
    finished = replace(store_settings.finished(builder), type_from_config=from_config)
    if emit is EmitStrategy.ON_WINDOW_CLOSE:
        return replace(finished.with_caching(cached and store_settings.caching), in_time_order=finished.persistent)
    return finished


def reducing(reducer: Callable[[Any, Any], Any]) -> Callable[[Any, Any, Any], Any]:
    """An aggregator from a reducer."""

    def aggregate(key: Any, value: Any, so_far: Any) -> Any:
        return value if so_far is None else reducer(so_far, value)

    return aggregate


def merging(aggregator: Callable[[Any, Any, Any], Any]) -> Callable[[Any, Any, Any], Any]:
    """A merger of sessions from an aggregator of values."""
    return lambda key, one, other: aggregator(key, other, one)
