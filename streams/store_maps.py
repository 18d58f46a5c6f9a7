"""Stores as mappings: what `dict` code expects of a key-value store, with the types of its keys and values.

    counts = StoreMap[str, int](context.state_store("counts"))
    counts[word] = counts.get(word, 0) + 1

    totals = ReadOnlyStoreMap[str, int](streams.store("totals"))
    print(totals["anna"], dict(totals))

A store returns None for a key that it does not have, and so has no None as a value; `del` and `pop` delete. Iteration
is in the order of the serialized keys. `len` reads every key, since stores count theirs only roughly.
"""

from __future__ import annotations

from collections.abc import ItemsView, Iterator, Mapping, MutableMapping, ValuesView
from typing import Any, Protocol, TypeVar

from odradek.streams.stores.interface import Rows

K = TypeVar("K")
V = TypeVar("V")


class ReadableStore(Protocol):
    """The reads of key-value stores, of the views of `KafkaStreams.store`, and of the stores of the test driver."""

    def get(self, key: Any) -> Any: ...

    def all(self) -> Any: ...

    def range(self, frm: Any, to: Any) -> Any: ...


class WritableStore(ReadableStore, Protocol):
    """The writes of key-value stores."""

    def put(self, key: Any, value: Any) -> None: ...

    def delete(self, key: Any) -> Any: ...


class ReadOnlyStoreMap(Mapping[K, V]):
    """A store for reading. Of an interactive query, it shows what the store has at each call."""

    def __init__(self, store: ReadableStore) -> None:
        self._store = store

    def __getitem__(self, key: K) -> V:
        value: V | None = self._store.get(key)
        if value is None:
            raise KeyError(key)
        return value

    def __contains__(self, key: object) -> bool:
        return self._store.get(key) is not None

    def __iter__(self) -> Iterator[K]:
        for key, _ in self._rows():
            yield key

    def __len__(self) -> int:
        return sum(1 for _ in self._rows())

    def items(self) -> ItemsView[K, V]:
        """Keys and values, read together."""
        return _StoreItems(self)

    def values(self) -> ValuesView[V]:
        """Values, read with their keys."""
        return _StoreValues(self)

    def between(self, first: K | None, last: K | None) -> Iterator[tuple[K, V]]:
        """Keys and values from `first` to `last`, these included, by serialized keys; None is an open end."""
        yield from self._closing(self._store.range(first, last))

    def _rows(self) -> Iterator[tuple[K, V]]:
        yield from self._closing(self._store.all())

    def _closing(self, rows: Any) -> Iterator[tuple[K, V]]:
        """Rows that are closed where a loop over them ends early."""
        try:
            yield from rows
        finally:
            if isinstance(rows, Rows):
                rows.close()


class _StoreItems(ItemsView[K, V]):
    _mapping: ReadOnlyStoreMap[K, V]

    def __iter__(self) -> Iterator[tuple[K, V]]:
        return self._mapping._rows()


class _StoreValues(ValuesView[V]):
    _mapping: ReadOnlyStoreMap[Any, V]

    def __iter__(self) -> Iterator[V]:
        for _, value in self._mapping._rows():
            yield value


class StoreMap(ReadOnlyStoreMap[K, V], MutableMapping[K, V]):
    """A store for reading and writing, within a processor."""

    _store: WritableStore

    def __init__(self, store: WritableStore) -> None:
        super().__init__(store)

    def __setitem__(self, key: K, value: V) -> None:
        if value is None:
            raise ValueError(f"a store has no null values: delete the key {key!r}")
        self._store.put(key, value)

    def __delitem__(self, key: K) -> None:
        if self._store.delete(key) is None:
            raise KeyError(key)

    def clear(self) -> None:
        """Delete every key."""
        for key in list(self):
            self._store.delete(key)
