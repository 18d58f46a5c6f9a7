"""An ordered map for the bytes of stores in memory (Kafka: InMemoryKeyValueStore); `rocks_map` has the one on disk.

A map takes bytes to cells. In RocksDB a cell is bytes; in memory it is any object of the store above. Both return their
rows in the order of the keys' bytes, and iterators that show the map as it was.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, Protocol

from sortedcontainers import SortedList

from odradek.streams.stores.sizes import StoreSize

Cells = Iterator[tuple[bytes, Any]]

_FEW: Final = 32  # so few keys are sorted for each read; more are kept in order


class BytesMap(Protocol):
    """An ordered map of bytes to cells, for the rows of one store. A map of a user's own keeps bytes."""

    def get(self, key: bytes, /) -> Any:
        """The cell, None where there is none."""

    def put(self, key: bytes, cell: Any) -> None:
        """Set a cell; None deletes."""

    def write(self, rows: Iterable[tuple[bytes, Any]]) -> None:
        """Set many cells."""

    def range(
        self, low: bytes | None = None, high: bytes | None = None, inclusive: bool = True, reverse: bool = False
    ) -> Cells:
        """The rows between, as they are at the call, in the order of the keys; None stands for an open end,
        `inclusive` is whether `high` itself is one of them.
        """

    def delete_range(self, low: bytes, high: bytes) -> None:
        """Remove the rows from `low` up to, not including `high`."""

    def __len__(self) -> int: ...

    def flush(self) -> None:
        """Make all writes durable, where the map is persistent: a checkpoint follows."""

    def close(self) -> None:
        """Release files and memory."""


class MemoryMap:
    """A dict; its keys are kept in order after the first range read."""

    __slots__ = ("_cells", "_order", "get")

    def __init__(self) -> None:
        self._cells: dict[bytes, Any] = {}
        self._order: Any = None
        self.get: Callable[[bytes], Any] = self._cells.get

    def put(self, key: bytes, cell: Any) -> None:
        """Set a cell; None deletes."""
        cells = self._cells
        if cell is None:
            if cells.pop(key, None) is not None and self._order is not None:
                self._order.remove(key)
            return
        if self._order is not None and key not in cells:
            self._order.add(key)
        cells[key] = cell

    def write(self, rows: Iterable[tuple[bytes, Any]]) -> None:
        """Set many cells."""
        for key, cell in rows:
            self.put(key, cell)

    def range(
        self, low: bytes | None = None, high: bytes | None = None, inclusive: bool = True, reverse: bool = False
    ) -> Cells:
        """The rows between; None stands for an open end, `inclusive` is whether `high` itself is one of them."""
        cells = self._cells
        if self._order is None:
            if len(cells) <= _FEW:
                keys = [key for key in cells if _between(key, low, high, inclusive)]
                keys.sort(reverse=reverse)
                return iter([(key, cells[key]) for key in keys])
            self._order = SortedList(cells)
        return iter([(key, cells[key]) for key in self._order.irange(low, high, (True, inclusive), reverse)])

    def delete_range(self, low: bytes, high: bytes) -> None:
        """Remove the rows from `low` up to, not including `high`."""
        for key, _ in self.range(low, high, inclusive=False):
            self.put(key, None)

    def __len__(self) -> int:
        return len(self._cells)

    def store_size(self) -> StoreSize:
        """The number of rows. For all threads."""
        return StoreSize(len(self))

    def flush(self) -> None:
        """No effect: nothing is on disk."""

    def close(self) -> None:
        """Remove all entries."""
        self._cells.clear()
        self._order = None


def _between(key: bytes, low: bytes | None, high: bytes | None, inclusive: bool) -> bool:
    if low is not None and key < low:
        return False
    return high is None or key < high or (inclusive and key == high)
