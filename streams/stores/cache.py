"""Record cache of a stream thread: keeps the latest writes and forwards them later (KIP-63; Kafka: ThreadCache,
NamedCache).

All cached stores of a thread share `statestore.cache.max.bytes` (ThreadCache); each has its own entries in two orders
(NamedCache): of their last use, in which they are evicted, and of their last write, in which dirty ones are flushed.
The eviction of a dirty entry flushes all dirty ones of its store, itself first.

Sizes are computed as in Java, so that evictions happen at the same moments.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any, Final

from sortedcontainers import SortedList

from odradek.streams.records import Headers
from odradek.streams.stores.lru_entries import SIZE, Entry, LruEntries

__all__ = ["ENTRY_BYTES", "Entry", "NamedCache", "ThreadCache", "headers_bytes"]

ENTRY_BYTES: Final = 45
"""The size of an entry beyond key, value, topic and headers: three references, a flag, timestamp, offset, partition."""


def headers_bytes(headers: Headers) -> int:
    """The size of headers."""
    return sum(len(name) + len(value or b"") for name, value in headers or ())


class ThreadCache:
    """The cache size that the stores of one thread share. `limit` is in bytes; with 0 every write is forwarded at
    once.
    """

    __slots__ = ("caches", "limit", "size")

    def __init__(self, limit: int) -> None:
        self.limit = max(0, limit)
        self.size = 0
        self.caches: dict[str, NamedCache] = {}

    def named(self, namespace: str, write: Callable[[Iterator[tuple[bytes, Entry]]], None]) -> NamedCache:
        """The cache of one store (the namespace is task and name). `write` gets flushed dirty entries."""
        cache = self.caches[namespace] = NamedCache(self, write)
        return cache

    def close(self, namespace: str) -> None:
        """Remove the entries of a store, dirty ones included."""
        cache = self.caches.pop(namespace, None)
        if cache is not None:
            cache.clear()

    def resize(self, limit: int) -> None:
        """Change the limit when threads start or end. Evicts one entry of each store in turn until the rest fits."""
        self.limit = max(0, limit)
        while self.size > self.limit and any(cache.entries for cache in self.caches.values()):
            for cache in list(self.caches.values()):
                if self.size > self.limit:
                    cache.evict()


class NamedCache:
    """The cached entries of one store."""

    __slots__ = ("_order", "_write", "entries", "misses", "thread")

    def __init__(self, thread: ThreadCache, write: Callable[[Iterator[tuple[bytes, Entry]]], None]) -> None:
        self.thread = thread
        self.entries = LruEntries()
        self.misses = 0
        """Reads by key that missed the cache."""
        self._write = write
        self._order: Any = None  # the sorted keys; only after the first range read

    def get(self, key: bytes) -> Entry | None:
        """An entry, which counts as a use."""
        return self.entries.get(key)

    def put(self, key: bytes, entry: Entry) -> None:
        """Add a dirty entry. It may flush this store, and so write and forward."""
        thread = self.thread
        if self._order is not None and key not in self.entries:
            self._order.add(key)
        thread.size += self.entries.put(key, entry)
        if thread.size > thread.limit:
            self.make_room()

    def keep(self, key: bytes, entry: Entry) -> None:
        """Add an entry that was read from the store below. The key must not be cached yet."""
        if self._order is not None:
            self._order.add(key)
        self.thread.size += self.entries.keep(key, entry)
        if self.thread.size > self.thread.limit:
            self.make_room()

    def make_room(self) -> None:
        """Evict entries until all caches of the thread fit, or this one has none."""
        thread = self.thread
        while (
            thread.size > thread.limit and self.entries
        ):  # a flush may have put into other stores, which evict for themselves
            self.evict()

    def evict(self) -> None:
        """Evict the least recently used entry."""
        oldest = self.entries.pop_oldest()
        if oldest is None:
            return
        key, entry, dirty = oldest
        if self._order is not None:
            self._order.remove(key)
        self.thread.size -= entry[SIZE]
        if dirty:
            self._flush([(key, entry)])

    def flush(self) -> None:
        """Write all dirty entries; they stay as clean ones."""
        self._flush([])

    def _flush(self, evicted: list[tuple[bytes, Entry]]) -> None:
        # Taken before anything is forwarded, since that may write to this cache; the evicted entry goes first.
        rows, deleted = self.entries.take_dirty()
        self._write(itertools.chain(evicted, rows))
        for key in deleted:
            self._delete(key)

    def _delete(self, key: bytes) -> None:
        entry = self.entries.pop(key)
        if entry is not None:
            self.thread.size -= entry[SIZE]
            if self._order is not None:
                self._order.remove(key)

    def range(
        self, low: bytes | None, high: bytes | None, inclusive: bool = True, reverse: bool = False
    ) -> Iterator[tuple[bytes, Entry]]:
        """The entries of the keys between, which counts as a use."""
        if self._order is None:
            self._order = SortedList(self.entries.keys())
        entry_of: Any = self.entries.get
        return iter([(key, entry_of(key)) for key in self._order.irange(low, high, (True, inclusive), reverse)])

    def clear(self) -> None:
        """Remove all entries."""
        self.thread.size -= self.entries.clear()
        self._order = None
