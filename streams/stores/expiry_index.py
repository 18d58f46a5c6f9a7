"""The keys of a store in the order of their timestamps, so that the oldest rows are found without a scan.

For rows in memory the index is a sorted list; for rows in RocksDB, or in a store of a user's own, it is a second map of
that kind, whose keys are timestamp (8 bytes, big-endian) ‖ key. That map is written and flushed with the store. After a
crash it may have an entry whose row has another timestamp, or is gone: the entry is removed when it is due. An entry
that is missing belongs to a row that has changed since the last checkpoint, and restoration writes both again.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Final, Protocol

from sortedcontainers import SortedList

from odradek.streams.stores.maps import BytesMap
from odradek.streams.stores.values import LONG

Entry = tuple[int, bytes]
"""The timestamp of a row in ms, not below 0, and its key."""
_MARK: Final = b"\0"


class ExpiryIndex(Protocol):
    """The entries of one store."""

    def change(self, removed: Iterable[Entry], added: Iterable[Entry]) -> None:
        """Remove and add entries; it is no error if one is not there, or already is."""

    def oldest(self, most: int) -> list[Entry]:
        """At most so many entries, the oldest first."""

    def flush(self) -> None:
        """Make all changes durable, where the index is."""

    def close(self) -> None:
        """Release files and memory."""


class MemoryExpiryIndex:
    """The index of rows in memory."""

    def __init__(self) -> None:
        self._entries: SortedList = SortedList()

    def change(self, removed: Iterable[Entry], added: Iterable[Entry]) -> None:
        """See ExpiryIndex."""
        for entry in removed:
            self._entries.discard(entry)
        for entry in added:
            if entry not in self._entries:
                self._entries.add(entry)

    def oldest(self, most: int) -> list[Entry]:
        """See ExpiryIndex."""
        return list(self._entries.islice(0, most))

    def flush(self) -> None:
        """No effect: nothing is on disk."""

    def close(self) -> None:
        """Remove all entries."""
        self._entries.clear()


class MapExpiryIndex:
    """The index of rows on disk."""

    def __init__(self, rows: BytesMap) -> None:
        self._rows = rows
        self._low: bytes | None = None
        """No entry is before this key. Reads that begin here skip what RocksDB has deleted."""

    def change(self, removed: Iterable[Entry], added: Iterable[Entry]) -> None:
        """See ExpiryIndex."""
        put, pack = self._rows.put, LONG.pack
        for timestamp, key in removed:
            put(pack(timestamp) + key, None)
        for timestamp, key in added:
            row = pack(timestamp) + key
            if self._low is not None and row < self._low:
                self._low = row
            put(row, _MARK)

    def oldest(self, most: int) -> list[Entry]:
        """See ExpiryIndex."""
        found = [key for key, _ in itertools.islice(self._rows.range(self._low), most)]
        if found:
            self._low = found[0]
        return [(LONG.unpack_from(key)[0], key[8:]) for key in found]

    def flush(self) -> None:
        """Flush the map."""
        self._rows.flush()

    def close(self) -> None:
        """Close the map."""
        self._rows.close()
