"""Record cache of a stream thread: keeps the latest writes and forwards them later (KIP-63; Kafka: ThreadCache,
NamedCache).

All cached stores of a thread share `statestore.cache.max.bytes` (ThreadCache); each has its own entries in two orders
(NamedCache): of their last use, in which they are evicted, and of their last write, in which dirty ones are flushed.
The eviction of a dirty entry flushes all dirty ones of its store, itself first.

Sizes are computed as in Java, so that evictions happen at the same moments.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Any, Final

from sortedcontainers import SortedList

from odradek.streams.records import Headers

Entry = tuple[Any, bytes | None, Any, int, int, Headers, str | None, int, int]
"""A cached entry: (cell, raw, key, size, timestamp, headers, topic, partition, offset).

`cell` is the value as a store in memory keeps it, `raw` its bytes for the changelog, both None for a deletion; `key` is
the key as an object, None where keys may change. The rest is the size in bytes and the record that wrote the entry. A
plain tuple, since each put creates one.
"""
CELL: Final = 0
SIZE: Final = 3
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

    def named(self, namespace: str, write: Callable[[list[tuple[bytes, Entry]]], None]) -> NamedCache:
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

    __slots__ = ("_order", "_write", "dirty", "entries", "misses", "thread", "touch")

    def __init__(self, thread: ThreadCache, write: Callable[[list[tuple[bytes, Entry]]], None]) -> None:
        self.thread = thread
        self.entries: OrderedDict[bytes, Entry] = OrderedDict()
        self.touch = self.entries.move_to_end
        """Mark an entry as used."""
        self.dirty: dict[bytes, None] = {}
        self.misses = 0
        """Reads by key that missed the cache."""
        self._write = write
        self._order: Any = None  # the sorted keys; only after the first range read

    def get(self, key: bytes) -> Entry | None:
        """An entry, which counts as a use."""
        entry = self.entries.get(key)
        if entry is not None:
            self.entries.move_to_end(key)
        return entry

    def put(self, key: bytes, entry: Entry) -> None:
        """Add a dirty entry. It may flush this store, and so write and forward."""
        entries, dirty, thread = self.entries, self.dirty, self.thread
        grown = entry[3]
        if key in entries:
            grown -= entries[key][3]
            self.touch(key)
            if key in dirty:
                del dirty[key]  # its position in flush order is that of its last write
        elif self._order is not None:
            self._order.add(key)
        entries[key] = entry
        dirty[key] = None
        thread.size += grown
        if thread.size > thread.limit:
            self._make_room()

    def keep(self, key: bytes, entry: Entry) -> None:
        """Add an entry that was read from the store below. The key must not be cached yet."""
        self.entries[key] = entry
        if self._order is not None:
            self._order.add(key)
        self.thread.size += entry[SIZE]
        if self.thread.size > self.thread.limit:
            self._make_room()

    def _make_room(self) -> None:
        thread = self.thread
        while (
            thread.size > thread.limit and self.entries
        ):  # a flush may have put into other stores, which evict for themselves
            self.evict()

    def evict(self) -> None:
        """Evict the least recently used entry."""
        if not self.entries:
            return
        key, entry = self.entries.popitem(last=False)
        if self._order is not None:
            self._order.remove(key)
        self.thread.size -= entry[SIZE]
        if key in self.dirty:
            self._flush([(key, entry)])

    def flush(self) -> None:
        """Write all dirty entries; they stay as clean ones."""
        if self.dirty:
            self._flush([])

    def _flush(self, batch: list[tuple[bytes, Entry]]) -> None:
        for key, _ in batch:  # the evicted entry goes first
            del self.dirty[key]
        batch.extend(zip(self.dirty, map(self.entries.__getitem__, self.dirty), strict=True))
        deleted = [key for key, entry in batch if entry[CELL] is None and key in self.dirty]
        self.dirty.clear()  # before anything is forwarded, since that may write to this cache
        self._write(batch)
        for key in deleted:
            self._delete(key)

    def _delete(self, key: bytes) -> None:
        entry = self.entries.pop(key, None)
        if entry is not None:
            self.dirty.pop(key, None)
            self.thread.size -= entry[SIZE]
            if self._order is not None:
                self._order.remove(key)

    def range(
        self, low: bytes | None, high: bytes | None, inclusive: bool = True, reverse: bool = False
    ) -> Iterator[tuple[bytes, Entry]]:
        """The entries of the keys between, which counts as a use."""
        if self._order is None:
            self._order = SortedList(self.entries)
        entries = self.entries
        rows = [(key, entries[key]) for key in self._order.irange(low, high, (True, inclusive), reverse)]
        for key, _ in rows:
            entries.move_to_end(key)
        return iter(rows)

    def clear(self) -> None:
        """Remove all entries."""
        self.thread.size -= sum(entry[SIZE] for entry in self.entries.values())
        self.entries.clear()
        self.dirty.clear()
        self._order = None
