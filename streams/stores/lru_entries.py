"""The entries of one cache in two orders: of their last use, and where dirty of their last write (Kafka: the maps and
lists within NamedCache).

A count reads and writes an entry for each record, and every operation on an OrderedDict looks its key up several times.
So there is a second implementation in C (`_lru_entries.c`), a hash table with two linked lists. This text is the
specification; a test compares both.
"""

from __future__ import annotations

import struct
from collections import OrderedDict
from collections.abc import Iterator
from typing import Any, Final

from odradek.streams.records import Headers

Entry = tuple[Any, bytes | None, Any, int, int, Headers, str | None, int, int]
"""A cached entry: (cell, raw, key, size, timestamp, headers, topic, partition, offset).

`cell` is the value as a store in memory keeps it, `raw` its bytes for the changelog, both None for a deletion; `key` is
the key as an object, None where keys may change. The rest is the size in bytes and the record that wrote the entry. A
plain tuple, since each put creates one.
"""
CELL: Final = 0
SIZE: Final = 3  # `_lru_entries.c` has the same number


_pack_count: Final = struct.Struct(">q").pack


class LruEntriesInPython:
    """Entries by key. Keys are bytes; a TypeError is raised for others in C."""

    __slots__ = ("_dirty", "_entries")

    def __init__(self) -> None:
        self._entries: OrderedDict[bytes, Entry] = OrderedDict()
        self._dirty: dict[bytes, None] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: bytes) -> bool:
        """Whether there is an entry; it does not count as a use."""
        return key in self._entries

    def get(self, key: bytes, /) -> Entry | None:
        """An entry, which counts as a use; None where there is none."""
        entry = self._entries.get(key)
        if entry is not None:
            self._entries.move_to_end(key)
        return entry

    def put(self, key: bytes, entry: Entry, /) -> int:
        """Set an entry, which is dirty from now on. Returns by how many bytes all entries have grown."""
        self._dirty.pop(key, None)  # its place is that of its last write
        self._dirty[key] = None
        return self.keep(key, entry)

    def keep(self, key: bytes, entry: Entry, /) -> int:
        """The same for an entry that was read from the store below: it is not made dirty."""
        before = self._entries.get(key)
        self._entries[key] = entry
        self._entries.move_to_end(key)
        return entry[SIZE] - (0 if before is None else before[SIZE])

    def count(
        self,
        key: bytes,
        known: Any,
        size: int,
        timestamp: int,
        headers: Headers,
        topic: str | None,
        partition: int,
        offset: int,
        /,
    ) -> int | None:
        """Add one to the count of a key, whose cell is (count, latest timestamp), as `get` and then `put` would. The
        bytes of a count are those of a big-endian integer of 8 bytes.

        `size` is that of the entry without these bytes, `known` the key as an object; the rest is the record that is
        counted. Returns by how many bytes all entries have grown; None where there is no count, which then stays so.
        Raises OverflowError for a count of more than 8 bytes, and TypeError or SystemError for another cell.
        """
        entry = self.get(key)
        if entry is None or entry[CELL] is None:
            return None
        before, latest = entry[CELL]
        try:
            raw = _pack_count(before + 1)
        except struct.error as error:
            raise OverflowError("the count is too large") from error
        cell = (before + 1, max(latest, timestamp))
        size += len(raw)
        return self.put(key, (cell, raw, known, size, timestamp, headers, topic, partition, offset))

    def pop(self, key: bytes, /) -> Entry | None:
        """Remove an entry, dirty or not, and return it; None where there is none."""
        self._dirty.pop(key, None)
        return self._entries.pop(key, None)

    def pop_oldest(self) -> tuple[bytes, Entry, bool] | None:
        """Remove the least recently used entry: key, entry, and whether it was dirty. None where there is none."""
        if not self._entries:
            return None
        key, entry = self._entries.popitem(last=False)
        dirty = key in self._dirty
        self._dirty.pop(key, None)
        return key, entry, dirty

    def take_dirty(self) -> tuple[Iterator[tuple[bytes, Entry]], list[bytes]]:
        """The dirty entries in the order of their last writes, which stay as clean ones, and the keys of those that
        are deletions. Later changes do not change what the iterator returns.
        """
        rows = [(key, self._entries[key]) for key in self._dirty]
        self._dirty.clear()
        return iter(rows), [key for key, entry in rows if entry[CELL] is None]

    def keys(self) -> list[bytes]:
        """All keys, the least recently used one first."""
        return list(self._entries)

    def clear(self) -> int:
        """Remove all entries, and return the sum of their sizes in bytes."""
        size = sum(entry[SIZE] for entry in self._entries.values())
        self._entries.clear()
        self._dirty.clear()
        return size


LruEntries: type[LruEntriesInPython] | type[_lru_entries.LruEntries]
try:
    from odradek.streams.stores import _lru_entries

    LruEntries = _lru_entries.LruEntries
    LruEntries.count  # noqa: B018 - an extension that was built from older sources does not have it
except (ImportError, AttributeError):  # installed without a compiler, or built from older sources
    LruEntries = LruEntriesInPython
