"""Key-value stores: in memory, in RocksDB, as an LRU map; with and without timestamps; with and without a cache.

Kafka builds such a store of four layers (metered, caching, change-logging, bytes). Here `PlainKeyValueStore` is the
first, the third and the fourth, and `CachedKeyValueStore` adds the second: its reads check the cache first and its
writes go to the cache alone, until a flush writes them to the store (CachingKeyValueStore.putAndMaybeForward).
"""

from __future__ import annotations

import shutil
import struct
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from odradek.streams.errors import StreamsError
from odradek.streams.stores.cache import ENTRY_BYTES, Entry, NamedCache, headers_bytes
from odradek.streams.stores.interface import (
    ChangelogRecord,
    FlushListener,
    Rows,
    StoreContext,
    TimestampedKeyValueStore,
    not_open,
    unreadable,
)
from odradek.streams.stores.maps import BytesMap, MemoryMap
from odradek.streams.stores.rocksdb_config import setter_of
from odradek.streams.stores.sizes import StoreSize, size_of
from odradek.streams.stores.values import ValueCodec, key_bytes, serde_for

if TYPE_CHECKING:
    from odradek.streams.stores.builders import StoreBuilder


_COUNT: Final = struct.Struct(">qq")
"""A count in RocksDB: its timestamp, and the number."""


class LruMap(MemoryMap):
    """At most so many keys; the least recently used one is evicted (MemoryLRUCache)."""

    __slots__ = ("_entries", "_evicted", "_most")

    def __init__(self, most: int, evicted: Callable[[bytes], None]) -> None:
        super().__init__()
        self._most = most
        self._evicted = evicted
        self._entries: OrderedDict[bytes, Any] = OrderedDict()
        self.get = self._use

    def _use(self, key: bytes) -> Any:
        cell = self._entries.get(key)
        if cell is not None:
            self._entries.move_to_end(key)
        return cell

    def put(self, key: bytes, cell: Any) -> None:
        """Set a cell; None deletes."""
        if cell is None:
            self._entries.pop(key, None)
            return
        self._entries[key] = cell
        self._entries.move_to_end(key)
        if len(self._entries) > self._most:
            self._evicted(self._entries.popitem(last=False)[0])

    def range(
        self, low: bytes | None = None, high: bytes | None = None, inclusive: bool = True, reverse: bool = False
    ) -> Iterator[tuple[bytes, Any]]:
        """Raises StreamsError: there is no order of keys, as in Java."""
        raise StreamsError("MemoryLRUCache does not support range() and all() functions.")

    def __len__(self) -> int:
        return len(self._entries)

    def close(self) -> None:
        """Remove all entries."""
        self._entries.clear()


class PlainKeyValueStore(TimestampedKeyValueStore):
    """A key-value store without a cache: every write is logged at once."""

    def __init__(self, spec: StoreBuilder) -> None:
        self.name = spec.name
        self.persistent = spec.persistent
        self._spec = spec
        self._map: BytesMap | None = None

    @property
    def is_open(self) -> bool:
        return self._map is not None

    def init(self, context: StoreContext) -> None:
        """Open the store: RocksDB under the task's directory where there is one, else memory."""
        spec = self._spec
        self._context = context
        self._key_serde = serde_for(spec, context, is_key=True)
        self._codec = ValueCodec(spec.name, serde_for(spec, context, is_key=False), spec.stamped)
        self._in_rocks = holds_bytes(spec, context)
        if not spec.ttl_ms and context.store_dir is not None:  # after a time without TTL an index would lack rows
            _remove_directory(context.store_dir, expiry_name(spec.name))
        if spec.max_entries:
            self._map = LruMap(spec.max_entries, self._log_removal)
        else:
            self._map = open_map(spec, context)
        self._get_cell = self._map.get
        self._decode = self._codec.decode_stored if self._in_rocks else self._codec.decode
        self._bind_access()

    def _bind_access(self) -> None:
        """Replace get() and put() by functions that have all their references: operators call them for each record."""
        self.get, self.put = self._make_access()  # type: ignore[method-assign, assignment]

    def _make_access(self) -> tuple[Callable[[Any], Any], Callable[[Any, Any], None]]:
        """These two functions."""
        name, to_bytes, codec, context = self.name, self._key_serde.serialize, self._codec, self._context
        get_cell, put_cell, log = self._get_cell, self._live().put, context.log
        decode, encode, stamped = self._decode, codec.encode, codec.stamped
        stored = codec.stored if self._in_rocks else _first

        def get(key: Any) -> Any:
            try:
                raw_key = to_bytes(key) if key is not None else key_bytes(name, to_bytes, key)
            except Exception as error:
                raise unreadable(name, "key", key, error) from error
            cell = get_cell(raw_key)
            return None if cell is None else decode(cell)

        def put(key: Any, value: Any) -> None:
            try:
                raw_key = to_bytes(key) if key is not None else key_bytes(name, to_bytes, key)
            except Exception as error:
                raise unreadable(name, "key", key, error) from error
            cell, raw = encode(value)
            put_cell(raw_key, stored(cell, raw))
            log(name, raw_key, raw, cell[1] if stamped and cell is not None else context.timestamp)

        return get, put

    def logged_counter(self) -> Callable[[Any, int], tuple[int, int]] | None:
        """A function that counts one record: its key and its timestamp. It returns the count and the latest timestamp
        of the key. None where the form on disk is not that of counts.
        """
        if not (self._codec.holds_counts and self._in_rocks):
            return None
        name, to_bytes, get, put = self.name, self._key_serde.serialize, self.get, self.put
        get_cell, put_cell, log = self._get_cell, self._live().put, self._context.log
        pack, unpack = _COUNT.pack, _COUNT.unpack

        def count(key: Any, timestamp: int) -> tuple[int, int]:
            try:
                raw_key = to_bytes(key)
            except Exception as error:
                raise unreadable(name, "key", key, error) from error
            cell, number = get_cell(raw_key), 1
            try:
                if cell is not None:
                    before, number = unpack(cell)
                    number += 1
                    if before > timestamp:
                        timestamp = before
                cell = pack(timestamp, number)
            except struct.error:  # `get` or `put` raises what is wrong, with the name of the store
                put(key, (get(key)[0] + 1, timestamp))
                raise
            put_cell(raw_key, cell)
            log(name, raw_key, cell[8:], timestamp)
            return number, timestamp

        return count

    def _log_removal(self, key: bytes) -> None:
        if self._spec.stamped:  # Kafka's change-logging layer does not unwrap the marker of timestamped stores
            return
        self._context.log(self.name, key, None, self._context.timestamp)

    def _live(self) -> BytesMap:
        if self._map is None:
            raise not_open(self.name)
        return self._map

    def _bytes(self, key: Any) -> bytes:
        if self._map is None:
            raise not_open(self.name)
        return key_bytes(self.name, self._key_serde.serialize, key)

    def _put_bytes(self, key: bytes, cell: Any, raw: bytes | None) -> None:
        """Write and log: the final step of both kinds of stores."""
        self._live().put(key, self._codec.stored(cell, raw) if self._in_rocks else cell)
        self._log(key, cell, raw)

    def _log(self, key: bytes, cell: Any, raw: bytes | None) -> None:
        context = self._context
        timestamp = cell[1] if self._codec.stamped and cell is not None else context.timestamp
        context.log(self.name, key, raw, timestamp)

    def get(self, key: Any) -> Any:
        raise not_open(self.name)  # an open store has another one, see `_bind_access`

    def put(self, key: Any, value: Any) -> None:
        raise not_open(self.name)

    def put_if_absent(self, key: Any, value: Any) -> Any:
        before = self.get(key)
        if before is None:
            self.put(key, value)
        return before

    def put_all(self, entries: Iterable[tuple[Any, Any]]) -> None:
        encoded = [(self._bytes(key), *self._codec.encode(value)) for key, value in entries]
        stored = self._codec.stored if self._in_rocks else _first
        self._live().write((key, stored(cell, raw)) for key, cell, raw in encoded)
        for key, cell, raw in encoded:
            self._log(key, cell, raw)

    def delete(self, key: Any) -> Any:
        before = self.get(key)
        self.put(key, None)
        return before

    def range(self, frm: Any, to: Any) -> Rows:
        return self._rows(*self._bounds(frm, to))

    def reverse_range(self, frm: Any, to: Any) -> Rows:
        return self._rows(*self._bounds(frm, to), reverse=True)

    def _bounds(self, frm: Any, to: Any) -> tuple[bytes | None, bytes | None]:
        self._live()
        return None if frm is None else self._bytes(frm), None if to is None else self._bytes(to)

    def prefix_scan(self, prefix: Any, serializer: Callable[[Any], bytes]) -> Rows:
        self._live()
        low = serializer(prefix)
        return self._rows(low, next_prefix(low), inclusive=False)

    def _rows(self, low: bytes | None, high: bytes | None, inclusive: bool = True, reverse: bool = False) -> Rows:
        if low is not None and high is not None and low > high:
            return Rows(iter(()))  # Java warns, and returns nothing
        return Rows(self._typed(self._live().range(low, high, inclusive, reverse)))

    def _typed(self, cells: Iterable[tuple[bytes, Any]]) -> Iterator[tuple[Any, Any]]:
        read_key, decode = self._key_serde.deserialize, self._decode
        return ((read_key(key), decode(cell)) for key, cell in cells)

    def approximate_num_entries(self) -> int:
        return len(self._live())

    def store_size(self) -> StoreSize | None:
        return size_of(self._map)

    def restore(self, records: Sequence[ChangelogRecord]) -> None:
        self._live().write(self._codec.restored_rows(records, self._in_rocks))

    def flush(self) -> None:
        self._live().flush()

    def close(self) -> None:
        if self._map is not None:
            self._map.close()
            self._map = None
            for name in ("get", "put"):  # the class's own methods raise that the store is closed
                self.__dict__.pop(name, None)


class CachedKeyValueStore(PlainKeyValueStore):
    """A key-value store whose writes stay in the thread's cache until a flush."""

    _listener: FlushListener | None = None
    _send_old = False

    def _bind_access(self) -> None:
        context = self._context
        self._namespace = f"{context.task_id}-{self.name}"
        self._cache: NamedCache = context.cache.named(self._namespace, self._write_down)
        self._cell_bytes = 8 if self._codec.stamped else 0
        self._known_key = self._key_serde.immutable
        super()._bind_access()

    def set_flush_listener(self, listener: FlushListener, send_old_values: bool) -> bool:
        self._listener = listener
        self._send_old = send_old_values
        return True

    def _make_access(self) -> tuple[Callable[[Any], Any], Callable[[Any, Any], None]]:
        """get() and put() with all their references bound: operators call them for each record.

        An aggregation puts the key that it has just read, so both keep the last key and its bytes.
        """
        name, to_bytes, entry_of, put_entry = (
            self.name,
            self._key_serde.serialize,
            self._cache.entries.get,
            self._cache.put,
        )
        context, codec, read_through = self._context, self._codec, self._read_through
        encode, serialize, quick = codec.encode, codec.serialize, codec.stamped and codec.immutable
        decode = None if codec.immutable else codec.decode
        known_key, fixed_size = self._known_key, ENTRY_BYTES + self._cell_bytes
        last_key: Any = object()
        last_bytes = b""

        def get(key: Any) -> Any:
            nonlocal last_key, last_bytes
            try:
                raw_key = to_bytes(key) if key is not None else key_bytes(name, to_bytes, key)
            except Exception as error:
                raise unreadable(name, "key", key, error) from error
            if known_key:
                last_key, last_bytes = key, raw_key
            entry = entry_of(raw_key)
            if entry is None:
                entry = read_through(raw_key, key)
                if entry is None:
                    return None
            return entry[0] if decode is None else decode(entry[0])

        def put(key: Any, value: Any) -> None:
            if key is last_key:
                raw_key = last_bytes
            else:
                try:
                    raw_key = to_bytes(key) if key is not None else key_bytes(name, to_bytes, key)
                except Exception as error:
                    raise unreadable(name, "key", key, error) from error
            cell, raw = value, None
            if quick and value is not None and (bare := value[0]) is not None:
                try:
                    raw = serialize(bare)
                except Exception as error:
                    raise unreadable(name, "value", bare, error) from error
            else:
                cell, raw = encode(value)
            size = len(raw_key) + (ENTRY_BYTES if raw is None else len(raw) + fixed_size)
            topic, headers = context.topic, context.headers
            if topic is not None:
                size += len(topic)
            if headers:
                size += headers_bytes(headers)
            known = key if known_key else None
            record = (cell, raw, known, size, context.timestamp, headers, topic, context.partition, context.offset)
            put_entry(raw_key, record)

        return get, put

    def counter(self) -> Callable[[Any, int], None] | None:
        """A function that counts one record: its key and its timestamp. None where entries are not counts."""
        if not self._codec.holds_counts:
            return None
        name, to_bytes, known_key = self.name, self._key_serde.serialize, self._known_key
        context, cache, add = self._context, self._cache, self._cache.entries.count
        thread, make_room = cache.thread, cache.make_room
        get, put, fixed_size = self.get, self.put, ENTRY_BYTES + self._cell_bytes

        def count(key: Any, timestamp: int) -> None:
            try:
                raw_key = to_bytes(key)
            except Exception as error:
                raise unreadable(name, "key", key, error) from error
            topic, headers = context.topic, context.headers
            size = len(raw_key) + fixed_size
            if topic is not None:
                size += len(topic)
            if headers:
                size += headers_bytes(headers)
            known = key if known_key else None
            try:
                grown = add(raw_key, known, size, timestamp, headers, topic, context.partition, context.offset)
            except Exception:
                grown = None  # `put` raises what is wrong, with the name of the store
            if grown is None:
                found = get(key)
                put(key, (1, timestamp) if found is None else (found[0] + 1, max(found[1], timestamp)))
                return
            thread.size += grown
            if thread.size > thread.limit:
                make_room()

        return count

    def peek(self, key: Any) -> Any:
        """The result of `get`; a miss does not enter the cache, so that no query flushes other entries."""
        raw_key = self._bytes(key)
        entry = self._cache.get(raw_key)
        return self._decode(self._get_cell(raw_key)) if entry is None else self._codec.decode(entry[0])

    def read_stored(self, key: Any) -> Any:
        """The value below the cache, as of the last flush."""
        return self._decode(self._get_cell(self._bytes(key)))

    def _read_through(self, key: bytes, given: Any) -> Entry | None:
        self._cache.misses += 1
        found = self._get_cell(key)
        if found is None:
            return None
        cell, raw = self._codec.cell_of_stored(found) if self._in_rocks else (found, self._raw(found))
        size = len(key) + len(raw) + self._cell_bytes + ENTRY_BYTES
        entry = (cell, raw, given if self._known_key else None, size, -1, None, "", -1, -1)
        self._cache.keep(key, entry)
        return entry

    def _raw(self, cell: Any) -> bytes:
        codec = self._codec
        kept: Any = cell[0] if codec.stamped else cell
        return codec.bytes_of(kept) if codec.immutable else kept

    def put_all(self, entries: Iterable[tuple[Any, Any]]) -> None:
        for key, value in entries:
            self.put(key, value)

    def _write_down(self, batch: Iterator[tuple[bytes, Entry]]) -> None:
        """Write, log and forward flushed entries, each with the context of the record that wrote it."""
        context, codec, listener = self._context, self._codec, self._listener
        current = (context.timestamp, context.headers, context.topic, context.partition, context.offset)
        read_key, get_cell, decode, bare = self._key_serde.deserialize, self._get_cell, self._decode, codec.bare
        send_old, stamped, immutable, name = self._send_old, codec.stamped, codec.immutable, self.name
        put, log, stored = self._live().put, context.log, codec.stored if self._in_rocks else _first
        try:
            for raw_key, entry in batch:
                cell, raw, key, _, timestamp, headers, context.topic, context.partition, context.offset = entry
                old = None
                if listener is not None and (raw is None or send_old):
                    old = decode(get_cell(raw_key))
                    if raw is None and old is None:
                        continue  # created and deleted within the cache: no change to forward
                context.timestamp, context.headers = timestamp, headers
                put(raw_key, stored(cell, raw))
                dated = stamped and cell is not None
                log(name, raw_key, raw, cell[1] if dated else timestamp)
                if listener is not None:
                    new = cell if immutable else codec.decode(cell)
                    if dated:
                        new, timestamp = new
                    if key is None:
                        key = read_key(raw_key)
                    listener(key, new, bare(old) if send_old else None, timestamp, headers)
        finally:
            context.timestamp, context.headers, context.topic, context.partition, context.offset = current

    def _rows(self, low: bytes | None, high: bytes | None, inclusive: bool = True, reverse: bool = False) -> Rows:
        if low is not None and high is not None and low > high:
            return Rows(iter(()))
        below = self._live().range(low, high, inclusive, reverse)
        return Rows(self._merged(self._cache.range(low, high, inclusive, reverse), below, reverse))

    def _merged(
        self, cached: Iterator[tuple[bytes, Entry]], below: Iterator[tuple[bytes, Any]], reverse: bool
    ) -> Iterator[tuple[Any, Any]]:
        read_key, decode, of_cell = self._key_serde.deserialize, self._decode, self._codec.decode
        for key, entry, cell in merged(cached, below, reverse):
            yield read_key(key), decode(cell) if entry is None else of_cell(entry[0])

    def flush_cache(self) -> None:
        self._cache.flush()

    def flush(self) -> None:
        self.flush_cache()
        super().flush()

    def close(self) -> None:
        if self._map is not None:
            self._context.cache.close(self._namespace)
        super().close()


def _first(cell: Any, raw: bytes | None) -> Any:
    return cell


def merged(
    cached: Iterator[tuple[bytes, Entry]], below: Iterator[tuple[bytes, Any]], reverse: bool
) -> Iterator[tuple[bytes, Entry | None, Any]]:
    """The merged rows of cache and store: (key, entry, None) or (key, None, cell), without deletions in the cache.

    Both are in the order of their keys, backwards with `reverse`.
    """
    mine, theirs = next(cached, None), next(below, None)
    while mine is not None or theirs is not None:
        if mine is None or (theirs is not None and theirs[0] != mine[0] and (theirs[0] < mine[0]) is not reverse):
            assert theirs is not None
            yield theirs[0], None, theirs[1]
            theirs = next(below, None)
            continue
        if theirs is not None and theirs[0] == mine[0]:
            theirs = next(below, None)
        if mine[1][1] is not None:
            yield mine[0], mine[1], None
        mine = next(cached, None)


def next_prefix(prefix: bytes) -> bytes | None:
    """The first bytes after all that begin with `prefix`; None where there are none."""
    kept = prefix.rstrip(b"\xff")
    return kept[:-1] + bytes([kept[-1] + 1]) if kept else None


def holds_bytes(spec: StoreBuilder, context: StoreContext) -> bool:
    """Whether the cells of a store's map are bytes, rather than objects in memory."""
    return spec.bytes_map is not None or (spec.persistent and context.store_dir is not None)


def open_map(spec: StoreBuilder, context: StoreContext) -> BytesMap:
    """The map for a store's bytes: RocksDB where it is persistent and there is a disk. Raises StreamsError."""
    if spec.bytes_map is not None:
        place = None if context.store_dir is None else directory_of(context.store_dir, spec.name)
        return spec.bytes_map(spec.name, place)
    if not spec.persistent or context.store_dir is None:
        return MemoryMap()
    from odradek.streams.stores.rocks_map import RocksMap
    from odradek.streams.stores.rocksdb_memory import shared_memory

    path = directory_of(context.store_dir, spec.name)
    config = context.config
    memory = shared_memory(config.get("rocksdb.memory.max.bytes", 0))
    return RocksMap(path, spec.name, setter_of(config.get("rocksdb.config.setter")), memory, config)


def directory_of(store_dir: Path, name: str) -> Path:
    """The directory of a store's RocksDB within its task's directory."""
    return store_dir / "rocksdb" / name


def wipe(store_dir: Path, name: str) -> None:
    """Remove a closed store's files; a task does so without a checkpoint for them."""
    for each in (name, expiry_name(name)):
        _remove_directory(store_dir, each)


def expiry_name(store: str) -> str:
    """The name of the index of a store with a TTL; no store can have it, since "~" is not allowed in names."""
    return f"{store}~expiry"


def _remove_directory(store_dir: Path, name: str) -> None:
    shutil.rmtree(directory_of(store_dir, name), ignore_errors=True)
