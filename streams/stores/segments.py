"""Segments: rows with a timestamp, which expire (Kafka: AbstractRocksDBSegmentedBytesStore, InMemoryWindowStore,
InMemorySessionStore).

A row's key begins with its bare key and ends with timestamps; the store above determines which of them decides the
expiry (`Schema.at`). A store shows no row older than its retention, by the latest timestamp of its rows so far; rows
are removed a segment at a time. A late put is dropped and counted: in memory as soon as its row would not be shown, in
persistent stores when its segment is gone.

Reads of several keys return the rows by segments, and by their keys within each. Segments in memory last one ms, so
there the order is that of time; those of persistent stores are long.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from odradek.streams.stores.maps import BytesMap, MemoryMap
from odradek.streams.stores.sizes import StoreSize, size_of
from odradek.streams.stores.values import LONG

if TYPE_CHECKING:
    from odradek.streams.stores.builders import StoreBuilder

FOREVER: Final = 2**63 - 1
LATEST_PREFIX: Final = b"\x80"
"""The prefix of rows that belong to no segment; the numbers of segments are not negative, so their prefixes differ."""
_pack: Final = LONG.pack
_unpack: Final = LONG.unpack_from
Row = tuple[bytes, Any]
At = Callable[[bytes], int]


class Span(NamedTuple):
    """The span of a read: bounds of the rows' keys, timestamps, and a filter for the rows between."""

    low: bytes | None
    high: bytes | None
    frm: int
    to: int
    wanted: Callable[[bytes], bool]


class Segments(Protocol):
    """Rows by time, in memory or in RocksDB."""

    def get(self, at: int, key: bytes) -> Any: ...

    def put(self, at: int, key: bytes, cell: Any) -> None: ...

    def one_key(self, span: Span, reverse: bool) -> Iterator[Row]:
        """The rows of a span that is about one key, in their order."""

    def many_keys(self, span: Span, reverse: bool) -> Iterator[Row]:
        """The rows of a span, by segments."""

    def drop_before(self, at: int) -> None:
        """Remove segments that are older."""

    def store_size(self) -> StoreSize | None:
        """The rows that have not been removed yet."""

    def flush(self) -> None: ...

    def close(self) -> None: ...


class MemorySegments:
    """All rows in one map, and the rows of each segment."""

    def __init__(self, at: At, order: Callable[[bytes], Any], retention_ms: int) -> None:
        self._rows = MemoryMap()
        self._at = at
        self._order = order
        self._width = retention_ms // 4 + 1  # expired rows are not shown, so they can be removed from time to time
        self._buckets: dict[int, set[bytes]] = {}
        """The keys of the present rows; no others, or a session would leave one behind with each record."""
        self._oldest = 0

    def get(self, at: int, key: bytes) -> Any:
        return self._rows.get(key)

    def put(self, at: int, key: bytes, cell: Any) -> None:
        bucket = at // self._width
        if cell is not None:
            self._buckets.setdefault(bucket, set()).add(key)
        elif (keys := self._buckets.get(bucket)) is not None:
            keys.discard(key)
            if not keys:
                del self._buckets[bucket]
        self._rows.put(key, cell)

    def one_key(self, span: Span, reverse: bool) -> Iterator[Row]:
        return (row for row in self._rows.range(span.low, span.high, reverse=reverse) if span.wanted(row[0]))

    def many_keys(self, span: Span, reverse: bool) -> Iterator[Row]:
        rows = list(self.one_key(span, False))
        rows.sort(key=lambda row: self._order(row[0]), reverse=reverse)
        return iter(rows)

    def drop_before(self, at: int) -> None:
        oldest = at // self._width
        if oldest <= self._oldest:
            return
        self._oldest = oldest
        for bucket in [each for each in self._buckets if each < oldest]:
            for key in self._buckets.pop(bucket):
                self._rows.put(key, None)

    def store_size(self) -> StoreSize | None:
        return self._rows.store_size()

    def flush(self) -> None:
        return

    def close(self) -> None:
        self._rows.close()
        self._buckets.clear()


class MapSegments:
    """One ordered map, whose keys begin with the number of the segment (8 bytes)."""

    def __init__(self, rows: BytesMap, interval_ms: int) -> None:
        self._rows = rows
        self._interval = interval_ms
        self._oldest = 0
        self._known = self._find()
        self._latest, self._prefix = -1, b""
        """The segment of the latest write, and the first bytes of its rows."""

    def _find(self) -> set[int]:
        """The segments that existed at the opening."""
        found = set()
        number = 0
        while (row := next(self._rows.range(_pack(number), LATEST_PREFIX, inclusive=False), None)) is not None:
            number = _unpack(row[0])[0]
            found.add(number)
            number += 1
        return found

    def get(self, at: int, key: bytes) -> Any:
        segment = at // self._interval
        return self._rows.get(_pack(segment) + key) if segment in self._known else None

    def put(self, at: int, key: bytes, cell: Any) -> None:
        segment = at // self._interval
        if segment != self._latest:
            self._known.add(segment)
            self._latest, self._prefix = segment, _pack(segment)
        self._rows.put(self._prefix + key, cell)

    def numbers_from(self, at: int) -> list[int]:
        """The numbers of the segments from that of a time on, the last first."""
        first = at // self._interval
        return sorted((each for each in self._known if each >= first), reverse=True)

    def get_in(self, segment: int, key: bytes) -> Any:
        """A row's cell in the segment of this number."""
        return self._rows.get(_pack(segment) + key)

    def put_in(self, segment: int, key: bytes, cell: Any) -> None:
        """Set a row in the segment of this number."""
        self._rows.put(_pack(segment) + key, cell)

    def one_key(self, span: Span, reverse: bool) -> Iterator[Row]:
        return self.many_keys(span, reverse)

    def many_keys(self, span: Span, reverse: bool) -> Iterator[Row]:
        first, last = max(span.frm, 0) // self._interval, span.to // self._interval
        found = sorted((each for each in self._known if first <= each <= last), reverse=reverse)
        return _in_turn([self._segment(each, span, reverse) for each in found], span.wanted)

    def _segment(self, segment: int, span: Span, reverse: bool) -> Iterator[Row]:
        prefix = _pack(segment)
        if span.high is None:
            return self._rows.range(prefix + (span.low or b""), _pack(segment + 1), inclusive=False, reverse=reverse)
        return self._rows.range(prefix + (span.low or b""), prefix + span.high, reverse=reverse)

    def drop_before(self, at: int) -> None:
        oldest = at // self._interval
        if oldest <= self._oldest:
            return
        self._oldest = oldest
        expired = {each for each in self._known if each < oldest}
        if expired:
            self._known -= expired
            self._latest = -1
            self._rows.delete_range(_pack(0), _pack(oldest))

    def store_size(self) -> StoreSize | None:
        return size_of(self._rows)

    def flush(self) -> None:
        self._rows.flush()

    def close(self) -> None:
        self._rows.close()


def _in_turn(segments: Iterable[Iterator[Row]], wanted: Callable[[bytes], bool]) -> Iterator[Row]:
    for rows in segments:
        for prefixed, cell in rows:
            key = prefixed[8:]
            if wanted(key):
                yield key, cell


class Expiring:
    """The rows of one store within their retention."""

    def __init__(self, spec: StoreBuilder, segments: Segments, at: At) -> None:
        self._segments = segments
        self._at = at
        self._persistent = spec.in_map
        self._retention = spec.retention_ms
        self._shown = spec.retention_ms + spec.in_time_order
        self._interval = spec.segment_interval_ms
        self.observed = -1
        """The latest time of a row so far, in ms."""
        self._first_kept = -spec.retention_ms
        """Rows before this time are late."""
        self.get_unchecked = segments.get
        self.flush = segments.flush
        self.store_size = segments.store_size
        self.close = segments.close

    def observe(self, at: int) -> None:
        """Advance the stream time to that of a new row."""
        if at > self.observed:
            self.observed = at
            oldest = at - self._retention
            # In memory a row is late as soon as it would not be shown, on disk when its segment is gone.
            self._first_kept = max(oldest, 0) // self._interval * self._interval if self._persistent else oldest + 1
            if oldest > 0:
                self._segments.drop_before(oldest)

    def is_late(self, at: int) -> bool:
        """Whether a row of this time would be dropped."""
        return at < self._first_kept

    def put(self, at: int, key: bytes, cell: Any) -> bool:
        """Set a row; None deletes. False for a late row."""
        if at > self.observed:
            self.observe(at)
        elif at < self._first_kept:
            return False
        self._segments.put(at, key, cell)
        return True

    def remove(self, at: int, key: bytes) -> None:
        """Remove a row."""
        self._segments.put(at, key, None)

    def get(self, at: int, key: bytes) -> Any:
        """A row's cell; None where there is none, or it has expired."""
        return None if at <= self.observed - self._shown else self._segments.get(at, key)

    def one_key(self, span: Span, reverse: bool) -> Iterator[Row]:
        """The rows of a span that is about one key."""
        return self._segments.one_key(span, reverse)

    def many_keys(self, span: Span, reverse: bool) -> Iterator[Row]:
        """The rows of a span, by segments."""
        return self._segments.many_keys(span, reverse)

    def oldest_shown(self, frm: int) -> int:
        """The earliest time, from `frm` on, that a read may show."""
        return max(frm, self.observed - self._shown + 1)

    def restore(self, rows: Iterable[Row]) -> None:
        """Restore rows of the changelog; late rows are not written."""
        batch = [(self._at(key), key, cell) for key, cell in rows]
        self.observe(max((at for at, _, _ in batch), default=-1))
        for at, key, cell in batch:
            if not self.is_late(at):
                self._segments.put(at, key, cell)


def upper_bound(key: bytes, suffix: int) -> bytes:
    """An upper bound of all rows whose key is at most `key`, with `suffix` bytes of timestamps each.

    A key that is a prefix of `key` comes before it, but the timestamps of its rows may not.
    """
    latest = b"\x7f" + b"\xff" * (suffix - 1)
    return max(key[:length] + latest for length in range(len(key) + 1))
