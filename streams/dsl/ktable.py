"""KTable: the latest value of each key, and its changes (Kafka: org.apache.kafka.streams.kstream.KTable); GlobalKTable.

Between the nodes of tables a value is a `Change` of new and old. Old values are sent only where a node downstream
requires them. A table has a store only if the user named it, or if a node downstream looks up its rows; a `filter` or
`map_values` in between is then computed at the lookup (KTableImpl, KTableProcessorSupplier).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from odradek.streams.dsl.graph import Graph
from odradek.streams.dsl.kstream import KStream
from odradek.streams.dsl.materialization import Materialization, materialization
from odradek.streams.dsl.options import Grouped, Materialized, TableJoined
from odradek.streams.functions import OF_NOTHING, OF_RECORD
from odradek.streams.java_names import JavaNames
from odradek.streams.operators import table as operators
from odradek.streams.operators.stateless import ToStream
from odradek.streams.operators.table import TableSupplier, ValueTransformer, View
from odradek.streams.serdes import Serde
from odradek.streams.topology import Topology

if TYPE_CHECKING:
    from odradek.streams.dsl.grouped import KGroupedTable
    from odradek.streams.dsl.suppress import Suppressed

K = TypeVar("K")
V = TypeVar("V")
K2 = TypeVar("K2")
V2 = TypeVar("V2")
VO = TypeVar("VO")

TABLE_SOURCE = "KTABLE-SOURCE-"
FILTER = "KTABLE-FILTER-"
MAP_VALUES = "KTABLE-MAPVALUES-"
TRANSFORM_VALUES = "KTABLE-TRANSFORMVALUES-"


class KTable(JavaNames, Generic[K, V]):
    """A table that changes. StreamsBuilder.table(), aggregations and operators create it."""

    def __init__(
        self,
        graph: Graph,
        node: str,
        key: Serde[K] | None,
        value: Serde[V] | None,
        sources: frozenset[str],
        supplier: TableSupplier,
        store: str | None,
        *,
        versioned: bool = False,
    ) -> None:
        """`supplier` is the operator of `node`; `store` the name under which the table can be queried, if at all.

        `versioned` means that changes come from a versioned store (KIP-914).
        """
        self.graph = graph
        self.node = node
        self.key = key
        self.value = value
        self.sources = sources
        self.supplier = supplier
        self.versioned = versioned
        self._store = store
        self._sends_old_values = False

    @property
    def queryable_store_name(self) -> str | None:
        """The name of the table's store for interactive queries; None where it has no store of its own."""
        return self._store

    # ---- called by operators downstream

    def enable_sending_old_values(self, force: bool) -> bool:
        """Make changes carry the old value; with `force` by a new store where there is none. Returns whether they
        do.
        """
        if not self._sends_old_values:
            self._sends_old_values = self.supplier.enable_sending_old_values(force)
        return self._sends_old_values

    def view(self) -> View:
        """The lookup of keys for a node downstream; it gives a source table its store."""
        return self.supplier.view()

    # ---- operators

    @overload
    def filter(
        self,
        predicate: Callable[[V], bool],
        materialized: Materialized[K, V] | str | None = None,
        *,
        name: str | None = None,
    ) -> KTable[K, V]: ...

    @overload
    def filter(
        self,
        predicate: Callable[[K, V], bool],
        materialized: Materialized[K, V] | str | None = None,
        *,
        name: str | None = None,
    ) -> KTable[K, V]: ...

    def filter(
        self,
        predicate: Callable[..., bool],
        materialized: Materialized[K, V] | str | None = None,
        *,
        name: str | None = None,
    ) -> KTable[K, V]:
        """The rows for which `predicate`, of (value) or of (key, value), holds; a row is deleted when it no longer
        holds.
        """
        return self._filter(predicate, False, materialized, name)

    @overload
    def filter_not(
        self,
        predicate: Callable[[V], bool],
        materialized: Materialized[K, V] | str | None = None,
        *,
        name: str | None = None,
    ) -> KTable[K, V]: ...

    @overload
    def filter_not(
        self,
        predicate: Callable[[K, V], bool],
        materialized: Materialized[K, V] | str | None = None,
        *,
        name: str | None = None,
    ) -> KTable[K, V]: ...

    def filter_not(
        self,
        predicate: Callable[..., bool],
        materialized: Materialized[K, V] | str | None = None,
        *,
        name: str | None = None,
    ) -> KTable[K, V]:
        """The rows for which `predicate` does not hold."""
        return self._filter(predicate, True, materialized, name)

    @overload
    def map_values(
        self,
        mapper: Callable[[V], V2],
        materialized: Materialized[K, V2] | str | None = None,
        *,
        name: str | None = None,
    ) -> KTable[K, V2]: ...

    @overload
    def map_values(
        self,
        mapper: Callable[[K, V], V2],
        materialized: Materialized[K, V2] | str | None = None,
        *,
        name: str | None = None,
    ) -> KTable[K, V2]: ...

    def map_values(
        self,
        mapper: Callable[..., V2],
        materialized: Materialized[K, V2] | str | None = None,
        *,
        name: str | None = None,
    ) -> KTable[K, V2]:
        """Map the value of each row, by a function of (value) or of (key, value) that is not called for null."""
        store_settings = self._materialization(materialized, MAP_VALUES)
        node = self.graph.name(name, MAP_VALUES)
        self.graph.check(node, "mapper", mapper, OF_RECORD)
        supplier = operators.KTableMapValues(self, mapper, _queryable(store_settings))
        return self._derived(node, supplier, store_settings, _value(store_settings))

    def transform_values(
        self,
        transformer: Callable[[], ValueTransformer],
        *stores: str,
        materialized: Materialized[K, Any] | str | None = None,
        name: str | None = None,
    ) -> KTable[K, Any]:
        """Map the value of each row with a ValueTransformer, which may use these stores (KIP-292)."""
        store_settings = None if materialized is None else materialization(materialized, None, "")
        node = self.graph.name(name, TRANSFORM_VALUES)
        self.graph.check(node, "transformer", transformer, OF_NOTHING)
        supplier = operators.KTableTransformValues(self, transformer, _queryable(store_settings))
        return self._derived(node, supplier, store_settings, _value(store_settings), stores)

    @overload
    def to_stream(self, mapper: None = None, *, name: str | None = None) -> KStream[K, V]: ...

    @overload
    def to_stream(self, mapper: Callable[[V], K2], *, name: str | None = None) -> KStream[K2, V]: ...

    @overload
    def to_stream(self, mapper: Callable[[K, V], K2], *, name: str | None = None) -> KStream[K2, V]: ...

    def to_stream(self, mapper: Callable[..., Any] | None = None, *, name: str | None = None) -> KStream[Any, V]:
        """The changes of this table as records of a stream; deletions are null values.

        With a `mapper`, of (value) or of (key, value), records get the key that it returns.
        """
        node = self.graph.name(name, "KTABLE-TOSTREAM-")
        parent = self.node

        def write(topology: Topology) -> None:
            topology.add_processor(node, ToStream(), parent)

        self.graph.add(write, parents=(parent,), provides=node)
        stream: KStream[Any, V] = KStream(self.graph, node, self.key, self.value, self.sources)
        return stream if mapper is None else stream.select_key(mapper)

    @overload
    def group_by(
        self, selector: Callable[[V], tuple[K2, V2]], grouped: Grouped[K2, V2] | None = None
    ) -> KGroupedTable[K2, V2]: ...

    @overload
    def group_by(
        self, selector: Callable[[K, V], tuple[K2, V2]], grouped: Grouped[K2, V2] | None = None
    ) -> KGroupedTable[K2, V2]: ...

    def group_by(
        self, selector: Callable[..., tuple[K2, V2]], grouped: Grouped[K2, V2] | None = None
    ) -> KGroupedTable[K2, V2]:
        """Group rows by another key: `selector`, of (value) or of (key, value), returns that key and a value."""
        from odradek.streams.dsl.grouped import KGroupedTable

        store_settings: Grouped[K2, V2] = grouped or Grouped()
        node = self.graph.name(store_settings.name, "KTABLE-SELECT-")
        self.graph.check(node, "selector", selector, OF_RECORD)
        parent, supplier = self.node, operators.RepartitionMap(self, selector)

        def write(topology: Topology) -> None:
            topology.add_processor(node, supplier, parent)

        self.graph.add(write, parents=(parent,), provides=node)
        self.enable_sending_old_values(True)
        return KGroupedTable(self.graph, node, store_settings, self.sources)

    # ---- internals

    def _filter(
        self,
        predicate: Callable[..., bool],
        negate: bool,
        materialized: Materialized[K, V] | str | None,
        name: str | None,
    ) -> KTable[K, V]:
        store_settings = self._materialization(materialized, FILTER)
        node = self.graph.name(name, FILTER)
        self.graph.check(node, "predicate", predicate, OF_RECORD)
        supplier = operators.KTableFilter(self, predicate, negate, _queryable(store_settings))
        return self._derived(node, supplier, store_settings, _value(store_settings) or self.value)

    def _materialization(
        self, materialized: Materialized[Any, Any] | str | None, prefix: str
    ) -> Materialization | None:
        """The settings of a store. Kafka takes a number for a store without a name, though there will not be such a
        store.
        """
        if materialized is None:
            return None
        store_settings = materialization(materialized, None, prefix)
        if store_settings.store_name is None:
            self.graph.store_name(prefix)
        return store_settings

    def _derived(
        self,
        node: str,
        supplier: TableSupplier,
        store_settings: Materialization | None,
        value: Serde[Any] | None,
        stores: tuple[str, ...] = (),
    ) -> KTable[K, Any]:
        """The table of an operator on this one; it gets a store of its own where the user named one."""
        parent = self.node
        key = self.key if store_settings is None else store_settings.key or self.key
        queryable = _queryable(store_settings)

        def write(topology: Topology) -> None:
            topology.add_processor(node, supplier, parent)
            topology.connect_processor_and_state_stores(node, *stores)
            if store_settings is not None and queryable is not None:
                topology.add_state_store(store_settings.with_serdes(key, value).key_value_store(), node)

        self.graph.add(write, parents=(parent,), provides=node)
        versioned = self.versioned if store_settings is None else store_settings.versioned
        return KTable(self.graph, node, key, value, self.sources, supplier, queryable, versioned=versioned)

    # ---- joins: see joins.py; suppression: see suppress.py

    @overload
    def join(
        self,
        other: KTable[K, VO],
        joiner: Callable[[V, VO], V2],
        materialized: Materialized[K, V2] | str | None = None,
        *,
        name: str | None = None,
    ) -> KTable[K, V2]: ...

    @overload
    def join(
        self,
        other: KTable[K2, VO],
        joiner: Callable[[V, VO], V2],
        materialized: Materialized[K, V2] | str | None = None,
        *,
        foreign_key: Callable[[V], K2 | None],
        table_joined: TableJoined | None = None,
        name: str | None = None,
    ) -> KTable[K, V2]: ...

    @overload
    def join(
        self,
        other: KTable[K2, VO],
        joiner: Callable[[V, VO], V2],
        materialized: Materialized[K, V2] | str | None = None,
        *,
        foreign_key: Callable[[K, V], K2 | None],
        table_joined: TableJoined | None = None,
        name: str | None = None,
    ) -> KTable[K, V2]: ...

    @overload
    def join(
        self,
        other: KTable[K2, VO],
        joiner: Callable[[K, V, VO], V2],
        materialized: Materialized[K, V2] | str | None = None,
        *,
        foreign_key: Callable[[V], K2 | None],
        table_joined: TableJoined | None = None,
        name: str | None = None,
    ) -> KTable[K, V2]: ...

    @overload
    def join(
        self,
        other: KTable[K2, VO],
        joiner: Callable[[K, V, VO], V2],
        materialized: Materialized[K, V2] | str | None = None,
        *,
        foreign_key: Callable[[K, V], K2 | None],
        table_joined: TableJoined | None = None,
        name: str | None = None,
    ) -> KTable[K, V2]: ...

    def join(
        self,
        other: KTable[Any, VO],
        joiner: Callable[..., V2],
        materialized: Materialized[K, V2] | str | None = None,
        *,
        foreign_key: Callable[..., Any] | None = None,
        table_joined: TableJoined | None = None,
        name: str | None = None,
    ) -> KTable[K, V2]:
        """Rows of both tables with the same key. `joiner` is of (left, right) or, with a foreign key, also with a key.

        With `foreign_key`, of (value) or of (key, value), each row joins the row with that key (KIP-213).
        """
        from odradek.streams.dsl.joins import join_table

        return join_table(self, other, joiner, "inner", materialized, foreign_key, table_joined, name)

    @overload
    def left_join(
        self,
        other: KTable[K, VO],
        joiner: Callable[[V, VO | None], V2],
        materialized: Materialized[K, V2] | str | None = None,
        *,
        name: str | None = None,
    ) -> KTable[K, V2]: ...

    @overload
    def left_join(
        self,
        other: KTable[K2, VO],
        joiner: Callable[[V, VO | None], V2],
        materialized: Materialized[K, V2] | str | None = None,
        *,
        foreign_key: Callable[[V], K2 | None],
        table_joined: TableJoined | None = None,
        name: str | None = None,
    ) -> KTable[K, V2]: ...

    @overload
    def left_join(
        self,
        other: KTable[K2, VO],
        joiner: Callable[[V, VO | None], V2],
        materialized: Materialized[K, V2] | str | None = None,
        *,
        foreign_key: Callable[[K, V], K2 | None],
        table_joined: TableJoined | None = None,
        name: str | None = None,
    ) -> KTable[K, V2]: ...

    @overload
    def left_join(
        self,
        other: KTable[K2, VO],
        joiner: Callable[[K, V, VO | None], V2],
        materialized: Materialized[K, V2] | str | None = None,
        *,
        foreign_key: Callable[[V], K2 | None],
        table_joined: TableJoined | None = None,
        name: str | None = None,
    ) -> KTable[K, V2]: ...

    @overload
    def left_join(
        self,
        other: KTable[K2, VO],
        joiner: Callable[[K, V, VO | None], V2],
        materialized: Materialized[K, V2] | str | None = None,
        *,
        foreign_key: Callable[[K, V], K2 | None],
        table_joined: TableJoined | None = None,
        name: str | None = None,
    ) -> KTable[K, V2]: ...

    def left_join(
        self,
        other: KTable[Any, VO],
        joiner: Callable[..., V2],
        materialized: Materialized[K, V2] | str | None = None,
        *,
        foreign_key: Callable[..., Any] | None = None,
        table_joined: TableJoined | None = None,
        name: str | None = None,
    ) -> KTable[K, V2]:
        """The same, and this table's rows without a counterpart, with None in its place."""
        from odradek.streams.dsl.joins import join_table

        return join_table(self, other, joiner, "left", materialized, foreign_key, table_joined, name)

    def outer_join(
        self,
        other: KTable[K, VO],
        joiner: Callable[[V | None, VO | None], V2],
        materialized: Materialized[K, V2] | str | None = None,
        *,
        name: str | None = None,
    ) -> KTable[K, V2]:
        """The same, and the rows of either table without a counterpart."""
        from odradek.streams.dsl.joins import join_table

        return join_table(self, other, joiner, "outer", materialized, None, None, name)

    def suppress(self, suppressed: Suppressed) -> KTable[K, V]:
        """Hold changes back: until a window is closed, or for some time (KIP-328)."""
        from odradek.streams.dsl.suppress import suppress_table

        return suppress_table(self, suppressed)


def _queryable(store_settings: Materialization | None) -> str | None:
    return None if store_settings is None else store_settings.queryable_name


def _value(store_settings: Materialization | None) -> Serde[Any] | None:
    return None if store_settings is None else store_settings.value


class GlobalKTable(JavaNames, Generic[K, V]):
    """A table that every instance holds completely, for joins of streams by any key."""

    def __init__(self, graph: Graph, store: str, queryable: str | None) -> None:
        """`store` is the global store; `queryable` the name that the user gave it, if any."""
        self.graph = graph
        self.store = store
        self._queryable = queryable

    @property
    def queryable_store_name(self) -> str | None:
        """The name of the store for interactive queries; None where the user gave none."""
        return self._queryable

    def view(self) -> View:
        """How a node looks up a key."""
        return operators.StoreView(self.store)
