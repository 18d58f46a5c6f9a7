"""Base of the classes of a table: its fields, its lookup, and how an operator adds its node (Kafka: KTableImpl)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar

from odradek.streams.dsl.graph import Graph
from odradek.streams.dsl.materialization import Materialization, materialization
from odradek.streams.dsl.options import Materialized
from odradek.streams.errors import TopologyError
from odradek.streams.java_names import JavaNames
from odradek.streams.operators.table import TableSupplier, View
from odradek.streams.serdes import Serde
from odradek.streams.topology import Topology

if TYPE_CHECKING:
    from odradek.streams.dsl.ktable import KTable

K = TypeVar("K")
V = TypeVar("V")

Stored: TypeAlias = Materialized[K, V] | str | None
"""The store of a table: its settings, its name alone, or none of the user's."""


class TableBase(JavaNames, Generic[K, V]):
    """A node of the graph whose records are the changes of a table."""

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

    # ---- internals

    def _materialization(self, materialized: Stored[Any, Any], prefix: str) -> Materialization | None:
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
        from odradek.streams.dsl.ktable import KTable

        parent = self.node
        key = self.key if store_settings is None else store_settings.key or self.key
        queryable = queryable_name(store_settings)
        if store_settings is not None and store_settings.ttl is not None and queryable is None:
            raise TopologyError(f"{node} has a TTL and no store: give its store a name, Materialized(name=…, ttl=…)")

        def write(topology: Topology) -> None:
            topology.add_processor(node, supplier, parent)
            topology.connect_processor_and_state_stores(node, *stores)
            if store_settings is not None and queryable is not None:
                topology.add_state_store(store_settings.with_serdes(key, value).key_value_store(), node)

        self.graph.add(write, parents=(parent,), provides=node)
        versioned = self.versioned if store_settings is None else store_settings.versioned
        return KTable(self.graph, node, key, value, self.sources, supplier, queryable, versioned=versioned)


def queryable_name(store_settings: Materialization | None) -> str | None:
    return None if store_settings is None else store_settings.queryable_name


def value_serde(store_settings: Materialization | None) -> Serde[Any] | None:
    return None if store_settings is None else store_settings.value
