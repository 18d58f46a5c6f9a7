"""Views of timestamped stores without their timestamps, for tests (the facades of Java's TopologyTestDriver)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from odradek.streams.records import NO_TIMESTAMP, Stamped, Windowed
from odradek.streams.stores.interface import TimestampedKeyValueStore, TimestampedWindowStore


class KeyValueStoreFacade:
    """A timestamped key-value store of values alone. Values put here have no timestamp."""

    def __init__(self, store: TimestampedKeyValueStore) -> None:
        self._store = store
        self.name = store.name

    def get(self, key: Any) -> Any:
        """The value, None where there is none."""
        return _bare(self._store.get(key))

    def put(self, key: Any, value: Any) -> None:
        """Set a value; None deletes."""
        self._store.put(key, _stamped(value))

    def put_if_absent(self, key: Any, value: Any) -> Any:
        """Set a value where there is none. Returns the previous value."""
        return _bare(self._store.put_if_absent(key, _stamped(value)))

    def delete(self, key: Any) -> Any:
        """Remove a key. Returns the previous value."""
        return _bare(self._store.delete(key))

    def range(self, frm: Any, to: Any) -> Iterator[tuple[Any, Any]]:
        """`(key, value)` for the keys between both, these included; None stands for an open end."""
        return _rows(self._store.range(frm, to))

    def reverse_range(self, frm: Any, to: Any) -> Iterator[tuple[Any, Any]]:
        """The same, the last key first."""
        return _rows(self._store.reverse_range(frm, to))

    def all(self) -> Iterator[tuple[Any, Any]]:
        """Everything, in the order of the keys."""
        return _rows(self._store.all())

    def reverse_all(self) -> Iterator[tuple[Any, Any]]:
        """Everything, the last key first."""
        return _rows(self._store.reverse_all())

    def prefix_scan(self, prefix: Any, serializer: Callable[[Any], bytes]) -> Iterator[tuple[Any, Any]]:
        """`(key, value)` for the keys whose bytes begin with those of `prefix`."""
        return _rows(self._store.prefix_scan(prefix, serializer))

    def approximate_num_entries(self) -> int:
        """How many keys there are, roughly."""
        return self._store.approximate_num_entries()


class WindowStoreFacade:
    """A timestamped window store of values alone. Values put here have no timestamp. Times are in ms."""

    def __init__(self, store: TimestampedWindowStore) -> None:
        self._store = store
        self.name = store.name

    def put(self, key: Any, value: Any, window_start: int) -> None:
        """Set a value; None deletes."""
        self._store.put(key, _stamped(value), window_start)

    def fetch(self, key: Any, frm: int, to: int | None = None) -> Any:
        """The value of the window that starts at `frm`; with `to`, `(start, value)` for the starts between."""
        if to is None:
            return _bare(self._store.fetch(key, frm))
        return _rows(self._store.fetch(key, frm, to))

    def backward_fetch(self, key: Any, frm: int, to: int) -> Iterator[tuple[int, Any]]:
        """`(start, value)` for the starts between, the last first."""
        return _rows(self._store.backward_fetch(key, frm, to))

    def fetch_range(self, key_from: Any, key_to: Any, frm: int, to: int) -> Iterator[tuple[Windowed, Any]]:
        """`(Windowed, value)` for the keys and the starts between; None stands for an open end of the keys."""
        return _rows(self._store.fetch_range(key_from, key_to, frm, to))

    def fetch_all(self, frm: int, to: int) -> Iterator[tuple[Windowed, Any]]:
        """`(Windowed, value)` for the starts between."""
        return _rows(self._store.fetch_all(frm, to))

    def all(self) -> Iterator[tuple[Windowed, Any]]:
        """`(Windowed, value)` for all that has not expired."""
        return _rows(self._store.all())


def _bare(found: Stamped | None) -> Any:
    return None if found is None else found[0]


def _stamped(value: Any) -> Stamped | None:
    return None if value is None else (value, NO_TIMESTAMP)


def _rows(rows: Iterator[tuple[Any, Stamped]]) -> Iterator[tuple[Any, Any]]:
    return ((key, stamped[0]) for key, stamped in rows)
