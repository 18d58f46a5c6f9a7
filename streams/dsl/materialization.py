"""Materialization: the store of a table, from the user's settings and defaults (Kafka: MaterializedInternal).

A store always has a name, since an operator downstream may require the store of a table without a given name. Only a
store that the user named, or described, can be queried; any other store exists only if an operator requires it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from datetime import timedelta
from typing import Any

from odradek.streams.dsl.graph import Graph, validated
from odradek.streams.dsl.options import Materialized
from odradek.streams.errors import TopologyError
from odradek.streams.serdes import Serde
from odradek.streams.stores.builders import StoreBuilder, timestamped_key_value_store
from odradek.streams.stores.suppliers import DslStoreSuppliers

IN_MEMORY = "in_memory"


@dataclass(frozen=True)
class StateMaterialized(Materialized[Any, Any]):
    """The store of an aggregation by name: the user's settings, and how queries show a state."""

    result: Callable[[Any], Any] | None = None

    @classmethod
    def of(
        cls, given: Materialized[Any, Any], serde: Serde[Any], result: Callable[[Any], Any] | None
    ) -> StateMaterialized:
        """The same settings, with this serde of values where the user gave none."""
        settings = {each.name: getattr(given, each.name) for each in fields(Materialized)}
        return cls(**{**settings, "value": given.value or serde, "result": result})


@dataclass(frozen=True, slots=True)
class Materialization:
    """The store of one operator's table."""

    store_name: str | None
    """None where the operator has taken no name, so that the table has a store only if it is queryable."""
    queryable_name: str | None
    key: Serde[Any] | None
    value: Serde[Any] | None
    caching: bool
    logging: bool
    log_config: Mapping[str, str]
    retention_ms: int | None
    store_type: str | DslStoreSuppliers | None
    store: StoreBuilder | None
    ttl: int | timedelta | None = None
    result: Callable[[Any], Any] | None = None
    """See StoreBuilder.result."""

    def with_default_serdes(self, key: Serde[Any] | None, value: Serde[Any] | None) -> Materialization:
        """The same, with these serdes where the user gave none."""
        return replace(self, key=self.key or key, value=self.value or value)

    def with_serdes(self, key: Serde[Any] | None, value: Serde[Any] | None) -> Materialization:
        """The same, with these serdes in place of the present ones."""
        return replace(self, key=key, value=value)

    @property
    def versioned(self) -> bool:
        """Whether the store keeps versions (KIP-889)."""
        return self.store is not None and self.store.kind == "versioned"

    @property
    def persistent(self) -> bool:
        """Whether the default store is on disk."""
        return self.store_type != IN_MEMORY

    def finished(self, builder: StoreBuilder) -> StoreBuilder:
        """A store's builder with the user's settings of caching, logging and TTL. Raises TopologyError."""
        if isinstance(self.store_type, DslStoreSuppliers):
            builder = self.store_type.supplied(builder)
        builder = replace(builder, result=self.result).with_caching(self.caching)
        if self.ttl is not None:
            builder = builder.with_ttl(self.ttl)
        return builder.with_logging(self.log_config) if self.logging else builder.without_logging()

    def key_value_store(self) -> StoreBuilder:
        """The builder of the store of a table without windows (KeyValueStoreMaterializer). Raises TopologyError."""
        assert self.store_name is not None
        if self.store is None:
            made = timestamped_key_value_store(self.store_name, self.key, self.value, self.persistent)
            return self.finished(replace(made, type_from_config=self.store_type is None))
        kind = self.store.kind
        if kind not in ("key-value", "versioned"):
            raise TopologyError(f"A table's store is a key-value store; {self.store.name} is a {kind} store")
        given: dict[str, Any] = {"stamped": kind == "key-value", "key_serde": self.key, "value_serde": self.value}
        return self.finished(replace(self.store, **given))


def materialization(
    materialized: Materialized[Any, Any] | str | None, graph: Graph | None, prefix: str
) -> Materialization:
    """The settings of a store, with a generated name where it has none; without a graph none is generated.

    A text is the store's name. Raises TopologyError for an invalid name.
    """
    store_settings = Materialized(materialized) if isinstance(materialized, str) else materialized or Materialized()
    store: StoreBuilder | None = store_settings.store
    given = store.name if store is not None else store_settings.name
    if given is not None:
        validated(given)
    retention = store_settings.retention
    return Materialization(
        store_name=given if given is not None or graph is None else graph.store_name(prefix),
        queryable_name=given,
        key=store_settings.key,
        value=store_settings.value,
        caching=store_settings.caching,
        logging=store_settings.logging,
        log_config=store_settings.log_config,
        retention_ms=round(retention / timedelta(milliseconds=1)) if isinstance(retention, timedelta) else retention,
        store_type=store_settings.store_type,
        store=store,
        ttl=store_settings.ttl,
        result=store_settings.result if isinstance(store_settings, StateMaterialized) else None,
    )
