"""Timed stores: the common part of window and session stores, with expiring rows, a changelog and an optional cache
(ChangeLoggingWindowBytesStore, CachingWindowStore and their session counterparts).

The keys of their rows are the same in the store, in the changelog and in the cache: the bare key, then timestamps. A
cached read merges the store's rows with the cache's, and cache entries do not expire. A late row that the cache flushes
is dropped by the store, but logged and forwarded all the same, as in Java.
"""

from __future__ import annotations

import itertools
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from odradek.streams.records import Windowed
from odradek.streams.stores.cache import ENTRY_BYTES, Entry, NamedCache, headers_bytes
from odradek.streams.stores.interface import ChangelogRecord, FlushListener, Rows, StateStore, StoreContext, not_open
from odradek.streams.stores.keyvalue import holds_bytes, merged, open_map
from odradek.streams.stores.segments import FOREVER, At, Expiring, MapSegments, MemorySegments, Segments, Span
from odradek.streams.stores.sizes import StoreSize
from odradek.streams.stores.values import LONG, ValueCodec, key_bytes, serde_for

if TYPE_CHECKING:
    from odradek.streams.stores.builders import StoreBuilder

_pack = LONG.pack


class TimedStore(StateStore):
    """A store of rows that expire. `at` returns the timestamp of a row's key, `order` is the sort key of rows in
    memory.
    """

    at: At
    order: Callable[[bytes], Any]
    order_is_own = False
    """Whether the rows of one timestamp are not in the order of their bytes."""
    _listener: FlushListener | None = None
    _send_old = False

    def __init__(self, spec: StoreBuilder) -> None:
        self.name = spec.name
        self.persistent = spec.persistent
        self._spec = spec
        self._rows: Expiring | None = None
        self._cache: NamedCache | None = None

    @property
    def is_open(self) -> bool:
        return self._rows is not None

    def init(self, context: StoreContext) -> None:
        """Open the store: RocksDB under the task's directory where there is one, else memory."""
        spec = self._spec
        self._context = context
        self._key_serde = serde_for(spec, context, is_key=True)
        self._codec = ValueCodec(spec.name, serde_for(spec, context, is_key=False), spec.stamped)
        self._in_rocks = holds_bytes(spec, context)
        if spec.in_map:
            segments: Segments = MapSegments(open_map(spec, context), spec.segment_interval_ms)
        else:
            segments = MemorySegments(self.at, self.order, spec.retention_ms)
        self._rows = Expiring(spec, segments, self.at)
        self._decode = self._codec.decode_stored if self._in_rocks else self._codec.decode
        if spec.caching:
            self._cache = context.cache.named(self._namespace, self._write_down)

    def store_size(self) -> StoreSize | None:
        rows = self._rows
        return None if rows is None else rows.store_size()

    @property
    def shows_all(self) -> bool:
        """Whether reads of several keys also show expired rows while their segment exists: Java's sessions in time
        order do.
        """
        return self._spec.in_time_order and self._spec.kind == "session"

    @property
    def _namespace(self) -> str:
        return f"{self._context.task_id}-{self.name}"

    def _live(self) -> Expiring:
        if self._rows is None:
            raise not_open(self.name)
        return self._rows

    def _bytes(self, key: Any) -> bytes:
        if self._rows is None:
            raise not_open(self.name)
        return key_bytes(self.name, self._key_serde.serialize, key)

    def _bound(self, key: Any) -> bytes | None:
        return None if key is None else self._bytes(key)

    @abstractmethod
    def windowed(self, row: bytes, key: Any = None) -> Windowed:
        """The key and window of a row; `key` is the bare key if the caller has it."""

    # ---- writing

    def _put(self, row: bytes, value: Any) -> None:
        """Set a row: in the cache where there is one, else in the store."""
        cell, raw = self._codec.encode(value)
        cache = self._cache
        if cache is None:
            self._put_row(row, cell, raw)
            self._log(row, cell, raw)
            return
        context = self._context
        topic, headers = context.topic, context.headers
        size = len(row) + ENTRY_BYTES + 8  # Java's cache has the segment before the key
        if raw is not None:
            size += len(raw) + (8 if self._codec.stamped else 0)
        if topic is not None:
            size += len(topic)
        if headers:
            size += headers_bytes(headers)
        cache.put(row, (cell, raw, None, size, context.timestamp, headers, topic, context.partition, context.offset))

    def _put_row(self, row: bytes, cell: Any, raw: bytes | None) -> None:
        stored = self._codec.stored(cell, raw) if self._in_rocks else cell
        if not self._live().put(self.at(row), row, stored):
            self._context.dropped += 1

    def _log(self, row: bytes, cell: Any, raw: bytes | None) -> None:
        context = self._context
        timestamp = cell[1] if self._codec.stamped and cell is not None else context.timestamp
        context.log(self.name, row, raw, timestamp)

    def set_flush_listener(self, listener: FlushListener, send_old_values: bool) -> bool:
        self._listener = listener
        self._send_old = send_old_values
        return self._spec.caching

    def _write_down(self, batch: Iterator[tuple[bytes, Entry]]) -> None:
        """Write, log and forward flushed entries, each with the context of the record that wrote it."""
        context, codec, listener = self._context, self._codec, self._listener
        current = (context.timestamp, context.headers, context.topic, context.partition, context.offset)
        rows, at, decode, bare, send_old = self._live(), self.at, self._decode, codec.bare, self._send_old
        name, put, log, windowed = self.name, rows.put, context.log, self.windowed
        store, immutable, may_be_stamped = codec.stored if self._in_rocks else _cell, codec.immutable, codec.stamped
        try:
            for row, entry in batch:
                cell, raw, key, _, timestamp, headers, context.topic, context.partition, context.offset = entry
                old = None
                if listener is not None and (raw is None or send_old):
                    old = decode(rows.get(at(row), row))
                    if raw is None and old is None:
                        continue  # created and deleted within the cache: no change to forward
                context.timestamp, context.headers = timestamp, headers
                if not put(at(row), row, store(cell, raw)):
                    context.dropped += 1
                stamped = may_be_stamped and cell is not None
                log(name, row, raw, cell[1] if stamped else timestamp)
                if listener is not None:
                    new = cell if immutable else codec.decode(cell)
                    if stamped:
                        new, timestamp = new
                    listener(windowed(row, key), new, bare(old) if send_old else None, timestamp, headers)
        finally:
            context.timestamp, context.headers, context.topic, context.partition, context.offset = current

    # ---- reading: every read returns (row's key, value)

    def _get(self, at: int, row: bytes) -> Any:
        if self._cache is not None:
            entry = self._cache.get(row)
            if entry is not None:
                return self._codec.decode(entry[0])
            self._cache.misses += 1
        return self._decode(self._live().get(at, row))

    def _one_key(self, span: Span, reverse: bool) -> Iterator[tuple[bytes, Any]]:
        """The rows of one key; in the cache and in the store they have the same order."""
        rows, decode = self._live(), self._decode
        frm = rows.oldest_shown(span.frm)
        shown = self._clipped(span, frm)
        below = rows.one_key(shown, reverse) if frm <= span.to else iter(())
        if self._cache is None:
            return ((row, decode(cell)) for row, cell in below)
        found = self._cache.range(span.low, span.high, reverse=reverse)
        wanted = span.wanted
        if self.order_is_own:
            below = iter(sorted(below, reverse=reverse))
        return self._ordered(self._both(merged((each for each in found if wanted(each[0])), below, reverse)), reverse)

    def _many_keys(self, span: Span, reverse: bool) -> Iterator[tuple[bytes, Any]]:
        """The rows of several keys, by segments."""
        rows, decode = self._live(), self._decode
        if span.low is not None and span.high is not None and span.low > span.high:
            return iter(())
        frm = span.frm if self.shows_all else rows.oldest_shown(span.frm)
        below = rows.many_keys(self._clipped(span, frm), reverse) if frm <= span.to else iter(())
        if self._spec.in_time_order:
            below = self._in_time_order(below, reverse)
        if self._cache is None:
            return ((row, decode(cell)) for row, cell in below)
        at, wanted = self.at, span.wanted
        interval = 1 if self._spec.in_time_order else self._spec.segment_interval_ms
        placed: Iterator[tuple[bytes, Any]] = ((_pack(at(row) // interval) + row, cell) for row, cell in below)
        cached = [
            (_pack(at(row) // interval) + row, entry)
            for row, entry in self._cache.range(span.low, span.high)
            if wanted(row)
        ]
        cached.sort(key=_first, reverse=reverse)
        if not self._in_rocks:
            placed = iter(sorted(placed, key=_first, reverse=reverse))
        both = self._both(merged(iter(cached), placed, reverse))
        return self._ordered(((row[8:], value) for row, value in both), reverse)

    def _in_time_order(self, rows: Iterator[tuple[bytes, Any]], reverse: bool) -> Iterator[tuple[bytes, Any]]:
        """Sort rows that come by segments by their timestamps; one segment at a time is in memory."""
        at, interval = self.at, self._spec.segment_interval_ms
        for _, segment in itertools.groupby(rows, lambda row: at(row[0]) // interval):
            yield from sorted(segment, key=lambda row: at(row[0]), reverse=reverse)

    def _ordered(self, rows: Iterator[tuple[bytes, Any]], reverse: bool) -> Iterator[tuple[bytes, Any]]:
        """The merged rows of cache and store, in the order of a store without a cache."""
        if not self.order_is_own:
            return rows
        return iter(sorted(rows, key=lambda row: self.order(row[0]), reverse=reverse))

    def _clipped(self, span: Span, frm: int) -> Span:
        """The same without expired rows."""
        if frm == span.frm:
            return span
        at, wanted = self.at, span.wanted
        return span._replace(frm=frm, wanted=lambda row: at(row) >= frm and wanted(row))

    def _both(self, rows: Iterator[tuple[bytes, Entry | None, Any]]) -> Iterator[tuple[bytes, Any]]:
        decode, of_cell = self._decode, self._codec.decode
        return ((row, decode(cell) if entry is None else of_cell(entry[0])) for row, entry, cell in rows)

    def _windowed_rows(self, rows: Iterator[tuple[bytes, Any]]) -> Rows:
        windowed = self.windowed
        return Rows((windowed(row), value) for row, value in rows)

    # ---- called by the task

    def restore(self, records: Sequence[ChangelogRecord]) -> None:
        self._live().restore(self._codec.restored_rows(records, self._in_rocks))

    def flush_cache(self) -> None:
        if self._cache is not None:
            self._cache.flush()

    def flush(self) -> None:
        self.flush_cache()
        self._live().flush()

    def close(self) -> None:
        if self._rows is not None:
            if self._cache is not None:
                self._context.cache.close(self._namespace)
                self._cache = None
            self._rows.close()
            self._rows = None


def _cell(cell: Any, raw: bytes | None) -> Any:
    return cell


def _first(row: tuple[bytes, Any]) -> bytes:
    return row[0]


def everything(_: bytes) -> bool:
    """A filter that accepts any row."""
    return True


ALL = Span(None, None, 0, FOREVER, everything)
