"""Store builders and the configs of changelog topics (Kafka: org.apache.kafka.streams.state.Stores, StoreBuilder)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Any, Final, Literal

from odradek.streams.errors import TopologyError
from odradek.streams.serdes import Serde
from odradek.streams.stores.interface import StateStore
from odradek.streams.stores.keyvalue import CachedKeyValueStore, PlainKeyValueStore
from odradek.streams.stores.maps import BytesMap
from odradek.streams.stores.sessions import SegmentedSessionStore
from odradek.streams.stores.ttl import TtlKeyValueStore
from odradek.streams.stores.versioned import SegmentedVersionedStore
from odradek.streams.stores.windows import SegmentedWindowStore

Kind = Literal["key-value", "window", "session", "versioned"]

LEAST_SEGMENT_MS: Final = 60_000
DAY_MS: Final = 24 * 60 * 60 * 1000


@dataclass(frozen=True)
class StoreBuilder:
    """The description of a store; each task builds its own store from it. Times are in ms."""

    name: str
    kind: Kind
    key_serde: Serde[Any] | None = None
    """None: the application's default."""
    value_serde: Serde[Any] | None = None
    persistent: bool = True
    stamped: bool = False
    """Whether values are `(value, timestamp)`."""
    caching: bool = False
    logging: bool = True
    log_config: Mapping[str, str] = field(default_factory=dict)
    """Configs of the changelog topic beside those that the kind of store requires."""
    retention_ms: int = 0
    window_size_ms: int = 0
    retain_duplicates: bool = False
    segment_interval_ms: int = 0
    history_retention_ms: int = 0
    max_entries: int = 0
    """An LRU map of at most so many keys; 0: without a limit."""
    type_from_config: bool = False
    """Whether the application's default decides if it is on disk (`default.dsl.store`)."""
    in_time_order: bool = False
    """A store from which windows are emitted when they are closed: reads of several rows return them in time order, and
    it shows a ms more than its retention (RocksDBTimeOrderedWindowStore).
    """

    bytes_map: Callable[[str, Path | None], BytesMap] | None = None
    """Opens a store of bytes of the user's own, given the name of the store and its directory; None: RocksDB where
    `persistent`, else memory.
    """
    ttl_ms: int = 0
    """How long a row of a key-value store stays, by stream time; 0: until it is deleted."""
    result: Callable[[Any], Any] | None = None
    """How queries show a value, where the store holds the state of an aggregation; None: as it is."""

    @property
    def in_map(self) -> bool:
        """Whether the rows are bytes in a map that is opened: RocksDB's, or one of the user's own."""
        return self.persistent or self.bytes_map is not None

    def with_caching(self, enabled: bool = True) -> StoreBuilder:
        """The same with a cache (or without). Versioned stores, and those with duplicates or a TTL, never have one."""
        never = self.retain_duplicates or self.kind == "versioned" or self.ttl_ms > 0
        return replace(self, caching=enabled and not never)

    def with_ttl(self, ttl: int | timedelta) -> StoreBuilder:
        """The same with rows that expire when stream time has passed their timestamps by more than `ttl`, in ms or a
        timedelta (stores/ttl.py). Raises ValueError below 1 ms, and TopologyError for a store that cannot have one.
        """
        ttl_ms = round(ttl / timedelta(milliseconds=1)) if isinstance(ttl, timedelta) else ttl
        if ttl_ms < 1:
            raise ValueError(f"the TTL of the store {self.name} is {ttl!r}; expected at least 1 ms")
        if self.kind != "key-value" or self.max_entries:
            kind = "an LRU map" if self.max_entries else f"a {self.kind} store"
            raise TopologyError(
                f"only key-value stores have a TTL; {self.name} is {kind}, which has a limit of its own"
            )
        return replace(self, ttl_ms=ttl_ms, caching=False)

    def with_logging(self, config: Mapping[str, str] | None = None) -> StoreBuilder:
        """The same with a changelog, whose topic gets these configs."""
        return replace(self, logging=True, log_config=dict(config or {}))

    def without_logging(self) -> StoreBuilder:
        """The same without a changelog: its content is lost with the task."""
        return replace(self, logging=False, log_config={})

    def configured(self, config: Mapping[str, Any]) -> StoreBuilder:
        """The same for one application: without a cache if it has none, in memory if that is its default."""
        made = self.with_caching(self.caching and config.get("statestore.cache.max.bytes", 1) > 0)
        suppliers = config.get("dsl.store.suppliers.class")
        if self.type_from_config and suppliers is not None:
            supplied: StoreBuilder = suppliers.supplied(made)
            return supplied
        if self.type_from_config and config.get("default.dsl.store") == "in_memory":
            made = replace(made, persistent=False, in_time_order=False)
            if self.kind in ("window", "session"):
                made = replace(made, segment_interval_ms=segment_interval(self.retention_ms, False))
        return made

    def build(self) -> StateStore:
        """A store of this description, not open yet."""
        if self.ttl_ms:
            return TtlKeyValueStore(self)
        plain, cached = _STORES[self.kind]
        return (cached if self.caching else plain)(self)


_STORES: Final[dict[str, tuple[Callable[[StoreBuilder], StateStore], Callable[[StoreBuilder], StateStore]]]] = {
    "key-value": (PlainKeyValueStore, CachedKeyValueStore),
    "window": (SegmentedWindowStore, SegmentedWindowStore),
    "session": (SegmentedSessionStore, SegmentedSessionStore),
    "versioned": (SegmentedVersionedStore, SegmentedVersionedStore),
}


def key_value_store(
    name: str, key: Serde[Any] | None, value: Serde[Any] | None, persistent: bool = True
) -> StoreBuilder:
    """A key-value store of plain values."""
    return StoreBuilder(name, "key-value", key, value, persistent)


def timestamped_key_value_store(
    name: str, key: Serde[Any] | None, value: Serde[Any] | None, persistent: bool = True
) -> StoreBuilder:
    """A key-value store of `(value, timestamp)`."""
    return StoreBuilder(name, "key-value", key, value, persistent, stamped=True)


def lru_map(name: str, max_entries: int, key: Serde[Any] | None, value: Serde[Any] | None) -> StoreBuilder:
    """A key-value store in memory of the most recently used keys. Raises ValueError."""
    if max_entries < 1:
        raise ValueError("max_entries has to be at least 1")
    return StoreBuilder(name, "key-value", key, value, persistent=False, max_entries=max_entries)


def window_store(
    name: str,
    retention_ms: int,
    window_size_ms: int,
    key: Serde[Any] | None,
    value: Serde[Any] | None,
    *,
    persistent: bool = True,
    retain_duplicates: bool = False,
) -> StoreBuilder:
    """A window store of plain values. Raises ValueError for a retention below the size of the window."""
    return _windowed(False, name, retention_ms, window_size_ms, key, value, persistent, retain_duplicates)


def timestamped_window_store(
    name: str,
    retention_ms: int,
    window_size_ms: int,
    key: Serde[Any] | None,
    value: Serde[Any] | None,
    *,
    persistent: bool = True,
    retain_duplicates: bool = False,
) -> StoreBuilder:
    """A window store of `(value, timestamp)`. Raises ValueError for a retention below the size of the window."""
    return _windowed(True, name, retention_ms, window_size_ms, key, value, persistent, retain_duplicates)


def _windowed(
    stamped: bool,
    name: str,
    retention_ms: int,
    window_size_ms: int,
    key: Serde[Any] | None,
    value: Serde[Any] | None,
    persistent: bool,
    retain_duplicates: bool,
) -> StoreBuilder:
    if retention_ms < 0 or window_size_ms < 0:
        raise ValueError("retention_ms and window_size_ms cannot be negative")
    if window_size_ms > retention_ms:
        raise ValueError(
            f"The retention period of the window store {name} must be no smaller than its window size."
            f" Got size=[{window_size_ms}], retention=[{retention_ms}]"
        )
    return StoreBuilder(
        name,
        "window",
        key,
        value,
        persistent,
        stamped,
        retention_ms=retention_ms,
        window_size_ms=window_size_ms,
        retain_duplicates=retain_duplicates,
        segment_interval_ms=segment_interval(retention_ms, persistent),
    )


def session_store(
    name: str, retention_ms: int, key: Serde[Any] | None, value: Serde[Any] | None, *, persistent: bool = True
) -> StoreBuilder:
    """A session store. Raises ValueError for a negative retention."""
    if retention_ms < 0:
        raise ValueError("retention_ms cannot be negative")
    interval = segment_interval(retention_ms, persistent)
    return StoreBuilder(
        name, "session", key, value, persistent, retention_ms=retention_ms, segment_interval_ms=interval
    )


def segment_interval(retention_ms: int, persistent: bool) -> int:
    """The segment length: a ms for stores in memory, at least two segments within the retention for persistent ones."""
    return max(retention_ms // 2, LEAST_SEGMENT_MS) if persistent else 1


def versioned_key_value_store(
    name: str,
    history_retention_ms: int,
    key: Serde[Any] | None,
    value: Serde[Any] | None,
    *,
    segment_interval_ms: int | None = None,
) -> StoreBuilder:
    """A persistent store of versions, for the history retention, which is the grace of late puts, too.

    Without an interval the segments have Java's length (RocksDbVersionedKeyValueBytesStoreSupplier): few segments for
    short histories, up to 24 for long ones. Raises ValueError.
    """
    if history_retention_ms < 0:
        raise ValueError("history_retention_ms cannot be negative")
    if segment_interval_ms is None:
        parts, least = next((each[1:] for each in _VERSION_SEGMENTS if history_retention_ms <= each[0]), (24, 300_000))
        segment_interval_ms = max(history_retention_ms // parts, least)
    if segment_interval_ms < 1:
        raise ValueError("segment_interval_ms has to be positive")
    return StoreBuilder(
        name,
        "versioned",
        key,
        value,
        history_retention_ms=history_retention_ms,
        segment_interval_ms=segment_interval_ms,
    )


_VERSION_SEGMENTS: Final = (
    (60_000, 3, 2_000),
    (300_000, 5, 20_000),
    (3_600_000, 12, 60_000),
)
"""(history retention up to, in so many segments, none shorter than)."""


def changelog_config(builder: StoreBuilder, config: Mapping[str, Any] | None = None) -> dict[str, str]:
    """The configs of a store's changelog topic (WindowedChangelogTopicConfig and its siblings).

    `config` is the application's: `windowstore.changelog.additional.retention.ms` keeps windows longer than the store
    does, since the broker deletes by its own clock. The store's own settings override the others.
    """
    additional = int((config or {}).get("windowstore.changelog.additional.retention.ms", DAY_MS))
    found = {"cleanup.policy": "compact", "message.timestamp.type": "CreateTime"}
    if builder.kind in ("window", "session"):
        retention = min(builder.retention_ms + additional, 2**63 - 1)
        found |= {"cleanup.policy": "compact,delete", "retention.ms": str(retention)}
    elif builder.kind == "versioned":
        found["min.compaction.lag.ms"] = str(min(builder.history_retention_ms + DAY_MS, 2**63 - 1))
    return found | dict(builder.log_config)
