"""Suppliers of the stores of the DSL (KIP-591, KIP-954; Kafka: DslStoreSuppliers, BuiltInDslStoreSuppliers).

    class InSqlite(BuiltInDslStoreSuppliers):
        def key_value_store(self, params):
            return replace(super().key_value_store(params), bytes_map=SqliteMap)

    KafkaStreams(topology, {"dsl.store.suppliers.class": InSqlite, ...})

A supplier decides where the rows of a store are, not what they mean: name, serdes, cache and changelog remain those of
the operator. `StoreBuilder.bytes_map` is a store of bytes of the user's own.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple, TypeVar

from odradek.streams.errors import TopologyError
from odradek.streams.stores.builders import (
    StoreBuilder,
    key_value_store,
    segment_interval,
    session_store,
    window_store,
)

Builder = TypeVar("Builder", bound=StoreBuilder)


class DslKeyValueParams(NamedTuple):
    """A key-value store of an operator."""

    name: str
    is_timestamped: bool


class DslWindowParams(NamedTuple):
    """A window store of an operator. Times are in ms."""

    name: str
    retention_ms: int
    window_size_ms: int
    retain_duplicates: bool
    is_timestamped: bool
    emits_final: bool
    """Whether windows are emitted when they are closed (EmitStrategy)."""


class DslSessionParams(NamedTuple):
    """A session store of an operator."""

    name: str
    retention_ms: int
    emits_final: bool


class DslStoreSuppliers(ABC):
    """Chooses the stores of operators that name no store of their own."""

    def configure(self, config: Mapping[str, Any]) -> None:
        """Called with the application's properties before the first store."""
        return

    @abstractmethod
    def key_value_store(self, params: DslKeyValueParams) -> StoreBuilder:
        """The kind of a key-value store."""

    @abstractmethod
    def window_store(self, params: DslWindowParams) -> StoreBuilder:
        """The kind of a window store."""

    @abstractmethod
    def session_store(self, params: DslSessionParams) -> StoreBuilder:
        """The kind of a session store."""

    def supplied(self, builder: Builder) -> Builder:
        """The store of an operator, in the place that these suppliers choose. Raises TopologyError for a supplier that
        returns another kind of store.
        """
        found = self._chosen(builder)
        if found.kind != builder.kind:
            raise TopologyError(
                f"{type(self).__name__} returned a {found.kind} store for {builder.name}, a {builder.kind} store"
            )
        made = replace(builder, persistent=found.persistent, bytes_map=found.bytes_map, max_entries=found.max_entries)
        if builder.kind == "key-value":
            return made
        interval = segment_interval(builder.retention_ms, found.in_map)
        return replace(made, segment_interval_ms=interval, in_time_order=builder.in_time_order and found.in_map)

    def _chosen(self, builder: StoreBuilder) -> StoreBuilder:
        name, retention_ms, final = builder.name, builder.retention_ms, builder.in_time_order
        if builder.kind == "window":
            windows = builder.window_size_ms, builder.retain_duplicates
            return self.window_store(DslWindowParams(name, retention_ms, *windows, builder.stamped, final))
        if builder.kind == "session":
            return self.session_store(DslSessionParams(name, retention_ms, final))
        return self.key_value_store(DslKeyValueParams(name, builder.stamped))


class BuiltInDslStoreSuppliers(DslStoreSuppliers):
    """The stores of the runtime: on disk, or in memory."""

    persistent = True

    def key_value_store(self, params: DslKeyValueParams) -> StoreBuilder:
        """On disk where `persistent`, else in memory."""
        return key_value_store(params.name, None, None, self.persistent)

    def window_store(self, params: DslWindowParams) -> StoreBuilder:
        """On disk where `persistent`, else in memory."""
        sizes = params.retention_ms, params.window_size_ms
        duplicates = params.retain_duplicates
        return window_store(params.name, *sizes, None, None, persistent=self.persistent, retain_duplicates=duplicates)

    def session_store(self, params: DslSessionParams) -> StoreBuilder:
        """On disk where `persistent`, else in memory."""
        return session_store(params.name, params.retention_ms, None, None, persistent=self.persistent)


class RocksDBDslStoreSuppliers(BuiltInDslStoreSuppliers):
    """Stores in RocksDB."""


class InMemoryDslStoreSuppliers(BuiltInDslStoreSuppliers):
    """Stores in memory."""

    persistent = False
