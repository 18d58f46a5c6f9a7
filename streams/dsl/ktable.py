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
from odradek.streams.dsl.materialization import materialization
from odradek.streams.dsl.options import Grouped
from odradek.streams.dsl.table_base import K, Stored, V, queryable_name, value_serde
from odradek.streams.dsl.table_joins import TableJoins
from odradek.streams.functions import OF_NOTHING, OF_RECORD
from odradek.streams.java_names import JavaNames
from odradek.streams.operators import table as operators
from odradek.streams.operators.stateless import ToStream
from odradek.streams.operators.table import ValueTransformer, View
from odradek.streams.topology import Topology

if TYPE_CHECKING:
    from odradek.streams.dsl.grouped import KGroupedTable
    from odradek.streams.dsl.suppress import Suppressed

K2 = TypeVar("K2")
V2 = TypeVar("V2")

TABLE_SOURCE = "KTABLE-SOURCE-"
FILTER = "KTABLE-FILTER-"
MAP_VALUES = "KTABLE-MAPVALUES-"
TRANSFORM_VALUES = "KTABLE-TRANSFORMVALUES-"


class KTable(TableJoins[K, V]):
    """A table that changes. StreamsBuilder.table(), aggregations and operators create it."""

    @overload
    def filter(
        self, predicate: Callable[[V], bool], materialized: Stored[K, V] = None, *, name: str | None = None
    ) -> KTable[K, V]: ...

    @overload
    def filter(
        self, predicate: Callable[[K, V], bool], materialized: Stored[K, V] = None, *, name: str | None = None
    ) -> KTable[K, V]: ...

    def filter(
        self, predicate: Callable[..., bool], materialized: Stored[K, V] = None, *, name: str | None = None
    ) -> KTable[K, V]:
        """The rows for which `predicate`, of (value) or of (key, value), holds; a row is deleted when it no longer
        holds.
        """
        return self._filter(predicate, False, materialized, name)

    @overload
    def filter_not(
        self, predicate: Callable[[V], bool], materialized: Stored[K, V] = None, *, name: str | None = None
    ) -> KTable[K, V]: ...

    @overload
    def filter_not(
        self, predicate: Callable[[K, V], bool], materialized: Stored[K, V] = None, *, name: str | None = None
    ) -> KTable[K, V]: ...

    def filter_not(
        self, predicate: Callable[..., bool], materialized: Stored[K, V] = None, *, name: str | None = None
    ) -> KTable[K, V]:
        """The rows for which `predicate` does not hold."""
        return self._filter(predicate, True, materialized, name)

    @overload
    def map_values(
        self, mapper: Callable[[V], V2], materialized: Stored[K, V2] = None, *, name: str | None = None
    ) -> KTable[K, V2]: ...

    @overload
    def map_values(
        self, mapper: Callable[[K, V], V2], materialized: Stored[K, V2] = None, *, name: str | None = None
    ) -> KTable[K, V2]: ...

    def map_values(
        self, mapper: Callable[..., V2], materialized: Stored[K, V2] = None, *, name: str | None = None
    ) -> KTable[K, V2]:
        """Map the value of each row, by a function of (value) or of (key, value) that is not called for null."""
        store_settings = self._materialization(materialized, MAP_VALUES)
        node = self.graph.name(name, MAP_VALUES)
        self.graph.check(node, "mapper", mapper, OF_RECORD)
        supplier = operators.KTableMapValues(self, mapper, queryable_name(store_settings))
        return self._derived(node, supplier, store_settings, value_serde(store_settings))

    def transform_values(
        self,
        transformer: Callable[[], ValueTransformer],
        *stores: str,
        materialized: Stored[K, Any] = None,
        name: str | None = None,
    ) -> KTable[K, Any]:
        """Map the value of each row with a ValueTransformer, which may use these stores (KIP-292)."""
        store_settings = None if materialized is None else materialization(materialized, None, "")
        node = self.graph.name(name, TRANSFORM_VALUES)
        self.graph.check(node, "transformer", transformer, OF_NOTHING)
        supplier = operators.KTableTransformValues(self, transformer, queryable_name(store_settings))
        return self._derived(node, supplier, store_settings, value_serde(store_settings), stores)

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

    def suppress(self, suppressed: Suppressed) -> KTable[K, V]:
        """Hold changes back: until a window is closed, or for some time (KIP-328)."""
        from odradek.streams.dsl.suppress import suppress_table

        return suppress_table(self, suppressed)

    # ---- internals

    def _filter(
        self, predicate: Callable[..., bool], negate: bool, materialized: Stored[K, V], name: str | None
    ) -> KTable[K, V]:
        store_settings = self._materialization(materialized, FILTER)
        node = self.graph.name(name, FILTER)
        self.graph.check(node, "predicate", predicate, OF_RECORD)
        supplier = operators.KTableFilter(self, predicate, negate, queryable_name(store_settings))
        return self._derived(node, supplier, store_settings, value_serde(store_settings) or self.value)


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
