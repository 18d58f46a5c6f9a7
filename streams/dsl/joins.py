"""Joins of the DSL: names, stores and nodes of each kind (Kafka: KStreamImpl, KStreamImplJoin, KTableImpl).

    stream and stream         within a window, both sides stored for as long         inner, left, outer
    stream and table          each record with the current or an earlier row         inner, left
    stream and global table   the same, by any key                                   inner, left
    table and table           rows of the same key                                   inner, left, outer
    table and table           a row and the one of its foreign key: see foreign_key_join.py

Both sides of a join need the same partitions, except with global tables: a stream whose keys have changed is
repartitioned first, and the start of the application checks that the topics have the same number of partitions.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar

from odradek.streams.dsl.graph import Graph
from odradek.streams.dsl.ktable import GlobalKTable, KTable
from odradek.streams.dsl.materialization import Materialization, materialization
from odradek.streams.dsl.options import Joined, Materialized, StreamJoined, TableJoined
from odradek.streams.dsl.stream_base import StreamBase
from odradek.streams.dsl.table_base import TableBase
from odradek.streams.errors import TopologyError
from odradek.streams.functions import JOINER, OF_RECORD, OF_TWO, with_key
from odradek.streams.operators.join_buffer import JoinBufferBuilder
from odradek.streams.operators.repartition import repartition_node
from odradek.streams.operators.stateless import PassThrough
from odradek.streams.operators.stream_join import JoinWindow, StreamJoin, TimeTrackers
from odradek.streams.operators.table_join import StreamTableJoin
from odradek.streams.operators.table_table_join import JoinMerger, Kind, TableJoin
from odradek.streams.operators.waiting import WaitingStoreBuilder
from odradek.streams.serdes import Serde
from odradek.streams.stores.builders import StoreBuilder, window_store
from odradek.streams.stores.suppliers import DslStoreSuppliers
from odradek.streams.topology import Topology
from odradek.streams.windows import JoinWindows, to_ms

if TYPE_CHECKING:
    from odradek.streams.dsl.kstream import KStream

Builder = TypeVar("Builder", bound=StoreBuilder)
JoinKind = Literal["inner", "left", "outer"]

WINDOWED: Final = "KSTREAM-WINDOWED-"
JOIN_THIS: Final = "KSTREAM-JOINTHIS-"
JOIN_OTHER: Final = "KSTREAM-JOINOTHER-"
OUTER_THIS: Final = "KSTREAM-OUTERTHIS-"
OUTER_OTHER: Final = "KSTREAM-OUTEROTHER-"
OUTER_SHARED: Final = "KSTREAM-OUTERSHARED-"
MERGE: Final = "KSTREAM-MERGE-"
JOIN: Final = "KSTREAM-JOIN-"
LEFT_JOIN: Final = "KSTREAM-LEFTJOIN-"
TABLE_MERGE: Final = "KTABLE-MERGE-"
TABLE_JOIN_THIS: Final = "KTABLE-JOINTHIS-"
TABLE_JOIN_OTHER: Final = "KTABLE-JOINOTHER-"
IN_MEMORY: Final = "in_memory"


def join_stream(
    this: StreamBase[Any, Any],
    other: KStream[Any, Any] | KTable[Any, Any] | GlobalKTable[Any, Any],
    joiner: Callable[..., Any],
    kind: JoinKind,
    windows: JoinWindows | None = None,
    joined: StreamJoined[Any, Any, Any] | Joined[Any, Any, Any] | None = None,
    key_selector: Callable[..., Any] | None = None,
    name: str | None = None,
) -> KStream[Any, Any]:
    """Join a stream with a stream, a table or a global table. Raises TypeError for options of another kind of join."""
    from odradek.streams.dsl.kstream import KStream

    this.graph.accept("join" if kind == "inner" else f"{kind}_join", other, KStream, KTable, GlobalKTable)
    joined_stream = _joined_stream(this, other, joiner, kind, windows, joined, key_selector, name)
    this.graph.check(joined_stream.node, "joiner", joiner, JOINER)
    if key_selector is not None:
        this.graph.check(joined_stream.node, "key_selector", key_selector, OF_RECORD)
    return joined_stream


def _joined_stream(
    this: StreamBase[Any, Any],
    other: KStream[Any, Any] | KTable[Any, Any] | GlobalKTable[Any, Any],
    joiner: Callable[..., Any],
    kind: JoinKind,
    windows: JoinWindows | None,
    joined: StreamJoined[Any, Any, Any] | Joined[Any, Any, Any] | None,
    key_selector: Callable[..., Any] | None,
    name: str | None,
) -> KStream[Any, Any]:
    if isinstance(other, GlobalKTable):
        if key_selector is None or windows is not None or joined is not None:
            raise TypeError("a join with a GlobalKTable takes a key_selector and a name, neither windows nor options")
        return _with_global_table(this, other, joiner, kind, key_selector, name)
    if key_selector is not None:
        raise TypeError("a key_selector is for joins with a GlobalKTable")
    if isinstance(other, KTable):
        if windows is not None or isinstance(joined, StreamJoined):
            raise TypeError("a join with a KTable takes Joined, neither windows nor StreamJoined")
        store_settings = joined or Joined()
        return _with_table(
            this, other, joiner, kind, store_settings if name is None else replace(store_settings, name=name)
        )
    if windows is None or isinstance(joined, Joined):
        raise TypeError("a join with a KStream takes JoinWindows, and StreamJoined in place of Joined")
    options = joined or StreamJoined()
    return _StreamStreamJoin(joiner, kind, windows, options if name is None else replace(options, name=name)).of(
        this, other
    )


def copartition(graph: Graph, sources: frozenset[str]) -> None:
    """The topics of these source nodes need the same number of partitions."""
    graph.add(lambda topology: topology.copartition(sorted(sources)))


def _repartitioned(
    stream: StreamBase[Any, Any], name: str | None, key: Serde[Any] | None, value: Serde[Any] | None
) -> KStream[Any, Any]:
    """The stream, repartitioned so that equal keys are in one partition (KStreamImpl.repartitionForJoin).

    The name of the topic is `name`-repartition, or derives from the stream's node; several joins of a stream share the
    latter.
    """
    from odradek.streams.dsl.kstream import KStream

    graph, key, value = stream.graph, key or stream.key, value or stream.value
    node = repartition_node(graph, stream.node if name is None else name, key, value)  # takes its names in any case
    known = stream.join_repartition
    if known is None or (name is not None and name != stream.node):
        node.add(graph, stream.node)
        stream.join_repartition = known = node
    return KStream(graph, known.source, key, value, frozenset((known.source,)))


# ---- stream and stream


class _StreamStreamJoin:
    """One join of two streams (KStreamImplJoin)."""

    def __init__(
        self,
        joiner: Callable[..., Any],
        kind: JoinKind,
        windows: JoinWindows,
        store_settings: StreamJoined[Any, Any, Any],
    ) -> None:
        self._joiner = joiner
        self._left = kind != "inner"
        self._right = kind == "outer"
        self._windows = windows
        self._store_settings = store_settings
        self._this_suffix = "-outer-this-join" if self._right else "-this-join"
        self._other_suffix = "-outer-other-join" if self._left else "-other-join"
        self._retention_ms = windows.size_ms + windows.grace_ms
        ours, theirs = store_settings.this_store, store_settings.other_store
        if ours is not None and theirs is not None and ours.name == theirs.name:
            raise TopologyError("Both StoreSuppliers have the same name.  StoreSuppliers must provide unique names")

    def of(self, this: StreamBase[Any, Any], other: KStream[Any, Any]) -> KStream[Any, Any]:
        """Write the nodes of the join."""
        from odradek.streams.dsl.kstream import KStream

        graph, store_settings = this.graph, self._store_settings
        prefix = store_settings.name
        if this.repartition_required:
            this = _repartitioned(
                this, None if prefix is None else f"{prefix}-left", store_settings.key, store_settings.value
            )
        if other.repartition_required:
            other = _repartitioned(
                other, None if prefix is None else f"{prefix}-right", store_settings.key, store_settings.other_value
            )
        sources = this.sources | other.sources
        copartition(graph, sources)
        names = [graph.name(prefix, WINDOWED, "-this-windowed"), graph.name(prefix, WINDOWED, "-other-windowed")]
        drawn = graph.new_name(OUTER_THIS if self._right else JOIN_THIS)
        other_drawn = graph.new_name(OUTER_OTHER if self._left else JOIN_OTHER)
        names += [
            drawn if prefix is None else prefix + self._this_suffix,
            other_drawn if prefix is None else prefix + self._other_suffix,
        ]
        merge = graph.name(prefix, MERGE, "-merge")
        stores = (
            self._window_store(store_settings.this_store, drawn, self._this_suffix, store_settings.value),
            self._window_store(store_settings.other_store, other_drawn, self._other_suffix, store_settings.other_value),
        )
        for node, store, stream in zip(names, stores, (this, other), strict=False):
            _add_window(graph, node, store.name, stream.node)
        write = self._write(names, merge, stores, self._waiting_store(drawn))
        graph.add(write, parents=(this.node, other.node), provides=merge)
        if self._left:
            graph.keep_null_keys(this.node, other.node)
        return KStream(graph, merge, store_settings.key, None, sources)

    def _window_store(self, given: StoreBuilder | None, drawn: str, suffix: str, value: Any) -> StoreBuilder:
        store_settings, windows = self._store_settings, self._windows
        if given is not None:
            if not given.retain_duplicates:
                raise TopologyError("The StoreSupplier must set retainDuplicates=true, found retainDuplicates=false")
            if given.retention_ms != self._retention_ms or given.window_size_ms != windows.size_ms:
                raise TopologyError(
                    f"Window settings mismatch. WindowBytesStoreSupplier settings {given} must match JoinWindows "
                    f"settings {windows} for the window size and retention period"
                )
            return replace(given, key_serde=store_settings.key, value_serde=value)
        name = (drawn if store_settings.store_name is None else store_settings.store_name + suffix) + "-store"
        store = window_store(
            name,
            self._retention_ms,
            windows.size_ms,
            store_settings.key,
            value,
            persistent=store_settings.store_type != IN_MEMORY,
            retain_duplicates=True,
        )
        store = _supplied(replace(store, type_from_config=store_settings.store_type is None), store_settings)
        if not store_settings.logging:
            return store.without_logging()
        return store.with_logging({**store_settings.log_config, "cleanup.policy": "delete"})

    def _waiting_store(self, drawn: str) -> WaitingStoreBuilder | None:
        """The store of records without partners (OuterStreamJoinStoreFactory)."""
        if not self._left:
            return None
        store_settings = self._store_settings
        base = store_settings.store_name if store_settings.this_store is None else store_settings.this_store.name
        if base is None:
            name = OUTER_SHARED + drawn[len(OUTER_THIS if self._right else JOIN_THIS) :]
        else:
            name = base + ("-outer-shared-join" if self._right else "-left-shared-join")
        on_disk = store_settings.store_type != IN_MEMORY
        if store_settings.store_type is None and store_settings.this_store is not None:
            on_disk = store_settings.this_store.persistent
        waiting = WaitingStoreBuilder(
            f"{name}-store",
            "key-value",
            store_settings.key,
            store_settings.value,
            on_disk,
            logging=store_settings.logging,
            log_config=dict(store_settings.log_config) if store_settings.logging else {},
            type_from_config=store_settings.store_type is None and store_settings.this_store is None,
            right_serde=store_settings.other_value,
        )
        return _supplied(waiting, store_settings)

    def _write(
        self, names: list[str], merge: str, stores: tuple[StoreBuilder, StoreBuilder], waiting: StoreBuilder | None
    ) -> Callable[[Topology], None]:
        """Write the nodes of both sides and their merge; `names` are those of the windowed streams, and of the two
        sides.
        """
        joiner, trackers, windows = self._joiner, TimeTrackers(), self._windows
        shared = None if waiting is None else waiting.name

        sides = (
            StreamJoin(stores[1].name, windows, joiner, trackers, left_side=True, outer=self._left, waiting=shared),
            StreamJoin(stores[0].name, windows, joiner, trackers, left_side=False, outer=self._right, waiting=shared),
        )
        this_window, other_window, this_join, other_join = names

        def write(topology: Topology) -> None:
            topology.add_processor(this_join, sides[0], this_window)
            topology.add_processor(other_join, sides[1], other_window)
            topology.add_processor(merge, PassThrough(), this_join, other_join)
            topology.add_state_store(stores[0], this_window, other_join)
            topology.add_state_store(stores[1], other_window, this_join)
            if waiting is not None:
                topology.add_state_store(waiting, this_join, other_join)

        return write


def _supplied(builder: Builder, store_settings: StreamJoined[Any, Any, Any]) -> Builder:
    """The store, in the place that the suppliers of a join choose."""
    suppliers = store_settings.store_type
    return suppliers.supplied(builder) if isinstance(suppliers, DslStoreSuppliers) else builder


def _add_window(graph: Graph, node: str, store: str, parent: str) -> None:
    def write(topology: Topology) -> None:
        topology.add_processor(node, JoinWindow(store), parent)

    graph.add(write, parents=(parent,), provides=node)


# ---- stream and table


def _with_table(
    this: StreamBase[Any, Any],
    table: KTable[Any, Any],
    joiner: Callable[..., Any],
    kind: JoinKind,
    store_settings: Joined[Any, Any, Any],
) -> KStream[Any, Any]:
    from odradek.streams.dsl.kstream import KStream

    graph, left = this.graph, kind != "inner"
    if this.repartition_required:
        this = _repartitioned(this, store_settings.name, store_settings.key, store_settings.value)
    sources = this.sources | table.sources
    copartition(graph, sources)
    name = graph.name(store_settings.name, LEFT_JOIN if left else JOIN)
    key = store_settings.key or this.key
    grace_ms = None if store_settings.grace is None else to_ms(store_settings.grace, "grace")
    buffer: JoinBufferBuilder | None = None
    if grace_ms is not None:
        if not table.versioned:
            raise TopologyError("KTable must be versioned to use a grace period in a stream table join.")
        buffer = _add_buffer(graph, f"{name}-Buffer", key, store_settings.value or this.value, grace_ms)
    view = table.view()
    operator = StreamTableJoin(view, joiner, left=left, buffer=None if buffer is None else buffer.name)
    parent = this.node

    def write(topology: Topology) -> None:
        topology.add_processor(name, operator, parent)
        topology.connect_processor_and_state_stores(name, *view.stores)
        if buffer is not None:
            topology.connect_processor_and_state_stores(name, buffer.name)
            _check_grace(topology, view.stores, buffer.retention_ms)

    graph.add(write, parents=(parent,), provides=name)
    if left:
        graph.keep_null_keys(this.node)
    return KStream(graph, name, key, None, sources)


def _add_buffer(graph: Graph, name: str, key: Any, value: Any, grace_ms: int) -> JoinBufferBuilder:
    buffer = JoinBufferBuilder(name, "key-value", key, value, retention_ms=grace_ms)

    def write(topology: Topology) -> None:
        topology.add_state_store(buffer)

    graph.add(write)
    return buffer


def _check_grace(topology: Topology, stores: tuple[str, ...], grace_ms: int) -> None:
    """Check that the table's history retention covers the grace period. Raises TopologyError."""
    for name in stores:
        store: Any = topology.stores[name]
        if store.kind != "versioned":
            raise TopologyError("KTable must be versioned to use a grace period in a stream table join.")
        if grace_ms > store.history_retention_ms:
            raise TopologyError("History retention must be at least grace period.")


def _with_global_table(
    this: StreamBase[Any, Any],
    table: GlobalKTable[Any, Any],
    joiner: Callable[..., Any],
    kind: JoinKind,
    key_selector: Callable[..., Any],
    given: str | None,
) -> KStream[Any, Any]:
    from odradek.streams.dsl.kstream import KStream

    graph, parent = this.graph, this.node
    name = graph.name(given, LEFT_JOIN)
    operator = StreamTableJoin(table.view(), joiner, left=kind != "inner", key_mapper=with_key(key_selector))

    def write(topology: Topology) -> None:
        topology.add_processor(name, operator, parent)

    graph.add(write, parents=(parent,), provides=name)
    if kind != "inner":
        graph.keep_null_keys(this.node)
    return KStream(graph, name, this.key, None, this.sources, this.repartition_required)


# ---- table and table


def join_table(
    this: TableBase[Any, Any],
    other: KTable[Any, Any],
    joiner: Callable[..., Any],
    kind: JoinKind,
    materialized: Materialized[Any, Any] | str | None = None,
    foreign_key: Callable[..., Any] | None = None,
    joined: TableJoined | None = None,
    name: str | None = None,
) -> KTable[Any, Any]:
    """Join rows of the same key, or by `foreign_key`. Raises ArgumentError, TypeError."""
    this.graph.accept("join" if kind == "inner" else f"{kind}_join", other, KTable)
    if foreign_key is None:
        if joined is not None:
            raise TypeError("TableJoined is for joins by a foreign key")
        return _with_same_key(this, other, joiner, kind, materialized, name)
    store_settings = joined or TableJoined()
    if name is not None:
        store_settings = replace(store_settings, name=name)
    from odradek.streams.dsl.foreign_key_join import join_by_foreign_key

    return join_by_foreign_key(this, other, joiner, foreign_key, materialized, store_settings, left=kind != "inner")


def _with_same_key(
    this: TableBase[Any, Any],
    other: KTable[Any, Any],
    joiner: Callable[[Any, Any], Any],
    kind: JoinKind,
    materialized: Materialized[Any, Any] | str | None,
    name: str | None,
) -> KTable[Any, Any]:
    """KTableImpl.doJoin; `joiner` is of (left, right)."""
    graph = this.graph
    store: Materialization | None = None
    if materialized is not None:
        store = materialization(materialized, graph, TABLE_MERGE).with_default_serdes(this.key, None)
    merge = graph.name(name, TABLE_MERGE)
    graph.check(merge, "joiner", joiner, OF_TWO)
    sources = this.sources | other.sources
    copartition(graph, sources)
    if kind != "inner":
        this.enable_sending_old_values(True)
    if kind == "outer":
        other.enable_sending_old_values(True)
    kinds = {"inner": (Kind.INNER, Kind.INNER), "left": (Kind.LEFT, Kind.RIGHT), "outer": (Kind.OUTER, Kind.OUTER)}
    this_kind, other_kind = kinds[kind]
    this_side = TableJoin(this_kind, this, other, joiner, versioned=this.versioned)
    other_side = TableJoin(
        other_kind, other, this, lambda theirs, ours: joiner(ours, theirs), versioned=other.versioned
    )
    this_name = graph.name(name, TABLE_JOIN_THIS, "-join-this")
    other_name = graph.name(name, TABLE_JOIN_OTHER, "-join-other")
    kept = None if store is None else store.store_name
    versioned = store is not None and store.versioned
    merger = JoinMerger(this_side, other_side, kept, versioned=versioned)
    this_stores, other_stores = this.view().stores, other.view().stores

    def write(topology: Topology) -> None:
        topology.add_processor(this_name, this_side, this.node)
        topology.add_processor(other_name, other_side, other.node)
        topology.add_processor(merge, merger, this_name, other_name)
        topology.connect_processor_and_state_stores(this_name, *other_stores)
        topology.connect_processor_and_state_stores(other_name, *this_stores)
        if store is not None:
            topology.add_state_store(store.key_value_store(), merge)

    graph.add(write, parents=(this.node, other.node), provides=merge)
    key, value = (this.key, None) if store is None else (store.key, store.value)
    return KTable(graph, merge, key, value, sources, merger, kept, versioned=versioned)
