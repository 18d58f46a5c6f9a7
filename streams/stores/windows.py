"""Window stores: a value for each key and window, or several of them (Kafka:
org.apache.kafka.streams.state.WindowStore).

A row's key is key, start of the window (8 bytes), sequence number (4 bytes), big-endian (WindowKeySchema). The number
is incremented where duplicates are retained, as in the stores of stream-stream joins, and is 0 otherwise. Store and
changelog have separate counters: a put of None, which changes nothing among duplicates, counts in the changelog only.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from odradek.streams.records import Window, Windowed, make_tuple
from odradek.streams.stores.cache import ENTRY_BYTES, NamedCache, headers_bytes
from odradek.streams.stores.interface import Rows, StoreContext, TimestampedWindowStore, unreadable
from odradek.streams.stores.segments import FOREVER, Span, upper_bound
from odradek.streams.stores.timed import TimedStore
from odradek.streams.stores.values import key_bytes

if TYPE_CHECKING:
    from odradek.streams.stores.builders import StoreBuilder

_START_SEQUENCE: Final = struct.Struct(">qi")
_START: Final = struct.Struct(">q")
_pack: Final = _START_SEQUENCE.pack
_start: Final = _START.unpack_from
_LAST_SEQUENCE: Final = 0x7FFFFFFF
_CACHED_BYTES: Final = 12 + 8 + ENTRY_BYTES
"""The size of a cached row beyond bare key and value: start and sequence number; Java's has the segment, too."""


CountInWindows = Callable[[Any, int, "Sequence[tuple[int, bytes]]"], None]


def suffix_of(start: int) -> bytes:
    """What follows the key in the row of a window."""
    return _pack(start, 0)


def window_start(row: bytes) -> int:
    """The start of a row's window, in ms."""
    start: int = _start(row, len(row) - 12)[0]
    return start


class SegmentedWindowStore(TimedStore, TimestampedWindowStore):
    """A window store of any kind."""

    def __init__(self, spec: StoreBuilder) -> None:
        super().__init__(spec)
        self.window_size_ms = spec.window_size_ms
        self._duplicates = spec.retain_duplicates
        self._sequence = 0
        self._logged_sequence = 0
        self.at = window_start
        self.order = self._place

    def _place(self, row: bytes) -> tuple[int, bytes]:
        """In memory: by start, then by key, duplicates in order of arrival."""
        return window_start(row), row[:-12] + row[-4:] if self._duplicates else row[:-12]

    def windowed(self, row: bytes, key: Any = None) -> Windowed:
        start: int = _start(row, len(row) - 12)[0]
        end = start + self.window_size_ms
        window = make_tuple(Window, (start, end if end < FOREVER else FOREVER))
        return make_tuple(Windowed, (self._key_serde.deserialize(row[:-12]) if key is None else key, window))

    def init(self, context: StoreContext) -> None:
        super().init(context)
        cache, codec = self._cache, self._codec
        if cache is not None and not self._duplicates and codec.stamped and codec.immutable:
            self.fetch = self._make_fetch(cache)  # type: ignore[method-assign, assignment]
            self.put = self._make_put(cache)  # type: ignore[method-assign, assignment]

    def close(self) -> None:
        vars(self).pop("fetch", None)  # the class's own methods raise that the store is closed
        vars(self).pop("put", None)
        super().close()

    def _make_fetch(self, cache: NamedCache) -> Callable[[Any, int, int | None], Any]:
        """fetch() of one window with all its references bound: operators call it for each record."""
        name, to_bytes, entry_of = self.name, self._key_serde.serialize, cache.entries.get
        decode, get_below, starts = self._decode, self._live().get, self._starts

        def fetch(key: Any, frm: int, to: int | None = None) -> Any:
            try:
                raw_key = to_bytes(key) if key is not None else key_bytes(name, to_bytes, key)
            except Exception as error:
                raise unreadable(name, "key", key, error) from error
            if to is not None:
                return starts(raw_key, frm, to, False)
            if frm < 0:
                return None
            row = raw_key + _pack(frm, 0)
            entry = entry_of(row)
            if entry is not None:
                return entry[0]
            cache.misses += 1
            return decode(get_below(frm, row))

        return fetch

    def _make_put(self, cache: NamedCache) -> Callable[[Any, Any, int], None]:
        """put() with all its references bound."""
        name, to_bytes, serialize = self.name, self._key_serde.serialize, self._codec.serialize
        context, put_entry, known_key = self._context, cache.put, self._key_serde.immutable

        def put(key: Any, value: Any, window_start: int) -> None:
            try:
                raw_key = to_bytes(key) if key is not None else key_bytes(name, to_bytes, key)
            except Exception as error:
                raise unreadable(name, "key", key, error) from error
            cell, raw, size = None, None, len(raw_key) + _CACHED_BYTES
            if value is not None and (bare := value[0]) is not None:
                try:
                    cell, raw = value, serialize(bare)
                except Exception as error:
                    raise unreadable(name, "value", bare, error) from error
                size += len(raw) + 8
            topic, headers = context.topic, context.headers
            if topic is not None:
                size += len(topic)
            if headers:
                size += headers_bytes(headers)
            known = key if known_key else None
            record = (cell, raw, known, size, context.timestamp, headers, topic, context.partition, context.offset)
            put_entry(raw_key + _pack(window_start, 0), record)

        return put

    def counter(self) -> CountInWindows | None:
        """A function that counts one record: its key, its timestamp, and (start, `suffix_of` it) of each window that
        contains it. None for a store whose entries are not counts in a cache.
        """
        cache, codec = self._cache, self._codec
        if cache is None or self._duplicates or not codec.holds_counts:
            return None
        name, to_bytes, known_key = self.name, self._key_serde.serialize, self._key_serde.immutable
        context, add, thread, make_room = self._context, cache.entries.count, cache.thread, cache.make_room
        fetch_row, bytes_of, put_entry = self._get, codec.bytes_of, cache.put

        def count(key: Any, timestamp: int, windows: Sequence[tuple[int, bytes]]) -> None:
            try:
                raw_key = to_bytes(key)
            except Exception as error:
                raise unreadable(name, "key", key, error) from error
            topic, headers, partition, offset = context.topic, context.headers, context.partition, context.offset
            size = len(raw_key) + _CACHED_BYTES + 8  # of the timestamp
            if topic is not None:
                size += len(topic)
            if headers:
                size += headers_bytes(headers)
            known = key if known_key else None
            for start, suffix in windows:
                row = raw_key + suffix
                try:
                    grown = add(row, known, size, timestamp, headers, topic, partition, offset)
                except Exception:
                    grown = None  # `bytes_of` raises what is wrong, with the name of the store
                if grown is None:
                    found = fetch_row(start, row)
                    cell = (1, timestamp) if found is None else (found[0] + 1, max(found[1], timestamp))
                    raw = bytes_of(cell[0])
                    entry = (cell, raw, known, size + len(raw), timestamp, headers, topic, partition, offset)
                    put_entry(row, entry)
                    continue
                thread.size += grown
                if thread.size > thread.limit:
                    make_room()

        return count

    def put(self, key: Any, value: Any, window_start: int) -> None:
        raw_key = self._bytes(key)
        if self._duplicates:
            self._put_duplicate(raw_key, value, window_start)
        else:
            self._put(raw_key + _pack(window_start, 0), value)

    def _put_duplicate(self, key: bytes, value: Any, start: int) -> None:
        cell, raw = self._codec.encode(value)
        if raw is not None:
            if self.persistent or not self._live().is_late(start):
                self._sequence = (self._sequence + 1) & _LAST_SEQUENCE
            self._put_row(key + _pack(start, self._sequence), cell, raw)
        elif not self.persistent:  # Java's store in memory checks the timestamp first
            self._live().observe(start)
            if self._live().is_late(start):
                self._context.dropped += 1
        self._logged_sequence = (self._logged_sequence + 1) & _LAST_SEQUENCE
        self._log(key + _pack(start, self._logged_sequence), cell, raw)

    def fetch(self, key: Any, frm: int, to: int | None = None) -> Any:
        raw_key = self._bytes(key)
        if to is not None:
            return self._starts(raw_key, frm, to, reverse=False)
        if frm < 0 or (self._duplicates and not self.persistent):
            return None
        return self._get(frm, raw_key + _pack(frm, self._sequence if self._duplicates else 0))

    def backward_fetch(self, key: Any, frm: int, to: int) -> Rows:
        return self._starts(self._bytes(key), frm, to, reverse=True)

    def _starts(self, key: bytes, frm: int, to: int, reverse: bool) -> Rows:
        frm = max(frm, 0)
        if to < frm:
            return Rows(iter(()))
        size = len(key) + 12  # rows of longer keys may lie between
        low, high = key + _pack(frm, 0), key + _pack(to, _LAST_SEQUENCE)
        span = Span(low, high, frm, to, lambda row: len(row) == size and row.startswith(key))
        return Rows((window_start(row), value) for row, value in self._one_key(span, reverse))

    def fetch_range(self, key_from: Any, key_to: Any, frm: int, to: int) -> Rows:
        return self._windowed_rows(self._range(key_from, key_to, frm, to, reverse=False))

    def backward_fetch_range(self, key_from: Any, key_to: Any, frm: int, to: int) -> Rows:
        return self._windowed_rows(self._range(key_from, key_to, frm, to, reverse=True))

    def _range(self, key_from: Any, key_to: Any, frm: int, to: int, reverse: bool) -> Iterator[tuple[bytes, Any]]:
        self._live()
        low, last = self._bound(key_from), self._bound(key_to)
        frm = max(frm, 0)
        if to < frm or (low is not None and last is not None and low > last):
            return iter(())

        def wanted(row: bytes) -> bool:
            key = row[:-12]
            return (low is None or key >= low) and (last is None or key <= last) and frm <= window_start(row) <= to

        high = None if last is None else upper_bound(last, 12)
        return self._many_keys(Span(low, high, frm, to, wanted), reverse)

    def all(self) -> Rows:
        return self.fetch_range(None, None, 0, FOREVER)

    def backward_all(self) -> Rows:
        return self.backward_fetch_range(None, None, 0, FOREVER)
