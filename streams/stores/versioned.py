"""Versioned key-value stores: the value of a key at any time within the history retention (KIP-889).

The latest version of each key has a row of its own; older ones are in segments, by the end of their validity, all
versions of a key in a segment in one row (RocksDBVersionedStore). A deletion is not a version of its own: it is the end
of the version before it, and is in a row only where another version follows, or where there was none before.

The history retention is also the grace of late puts. Segments that ended before it are dropped.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from odradek.streams.stores.interface import (
    PUT_NOT_DONE,
    VALID_TO_UNDEFINED,
    ChangelogRecord,
    StoreContext,
    VersionedKeyValueStore,
    VersionedRecord,
    not_open,
)
from odradek.streams.stores.keyvalue import open_map
from odradek.streams.stores.maps import BytesMap
from odradek.streams.stores.segments import LATEST_PREFIX, MapSegments
from odradek.streams.stores.sizes import StoreSize, size_of
from odradek.streams.stores.values import LONG, ValueCodec, key_bytes, serde_for

if TYPE_CHECKING:
    from odradek.streams.stores.builders import StoreBuilder

_VERSION: Final = struct.Struct(">qi")
_NOTHING_LATER: Final = None  # no version after the one that is put has been found


class History:
    """The versions of one key within a segment, the latest first, and the end of validity of the latest.

    A row is degenerate when it ends where it begins: its only content is that the key was deleted then.
    """

    __slots__ = ("ends", "versions")

    def __init__(self, versions: list[tuple[int, bytes | None]], ends: int) -> None:
        self.versions = versions
        self.ends = ends

    @classmethod
    def read(cls, data: bytes) -> History:
        """Reads the result of write()."""
        ends = LONG.unpack_from(data)[0]
        versions: list[tuple[int, bytes | None]] = []
        at = 8
        while at < len(data):
            timestamp, size = _VERSION.unpack_from(data, at)
            at += _VERSION.size
            versions.append((timestamp, None if size < 0 else data[at : at + size]))
            at += max(size, 0)
        return cls(versions, ends)

    def write(self) -> bytes:
        """End (8 bytes), then for each version its beginning (8), the value's length (4, -1 for none), the value."""
        parts = [LONG.pack(self.ends)]
        for timestamp, value in self.versions:
            parts += (_VERSION.pack(timestamp, -1 if value is None else len(value)), value or b"")
        return b"".join(parts)

    @property
    def begins(self) -> int:
        """The start of validity of the earliest version."""
        return self.versions[-1][0]

    @property
    def degenerate(self) -> bool:
        """Whether the row contains a deletion only."""
        return self.begins == self.ends

    def find(self, timestamp: int) -> int:
        """The version that was valid at `timestamp`, which has to be within the row."""
        return next(at for at, version in enumerate(self.versions) if version[0] <= timestamp)

    def until(self, index: int) -> int:
        """The end of validity of a version."""
        return self.ends if index == 0 else self.versions[index - 1][0]

    def add_latest(self, frm: int, to: int, value: bytes | None) -> None:
        """Add a version at the top; a gap below it is a deletion."""
        while self.ends > frm and self.versions:  # a crash interrupted a write to two segments: undo its first half
            self.ends = self.versions.pop(0)[0]
        if self.versions and self.degenerate:
            self.versions = []
        if self.ends < frm:
            self.versions.insert(0, (self.ends, None))
        self.versions.insert(0, (frm, value))
        self.ends = to

    def add_earliest(self, timestamp: int, value: bytes | None) -> None:
        """Add a version at the bottom; it is valid until the next begins."""
        if self.degenerate:
            self.versions = []
        self.versions.append((timestamp, value))


class SegmentedVersionedStore(VersionedKeyValueStore):
    """The versioned store. Late puts are dropped, counted and, as in Java, logged all the same."""

    def __init__(self, spec: StoreBuilder) -> None:
        self.name = spec.name
        self.persistent = spec.persistent
        self._spec = spec
        self._retention = spec.history_retention_ms
        self._map: BytesMap | None = None
        self._observed = -1

    @property
    def is_open(self) -> bool:
        return self._map is not None

    def init(self, context: StoreContext) -> None:
        """Open the store: RocksDB under the task's directory where there is one, else memory."""
        spec = self._spec
        self._context = context
        self._key_serde = serde_for(spec, context, is_key=True)
        self._codec = ValueCodec(spec.name, serde_for(spec, context, is_key=False), stamped=False)
        self._map = open_map(spec, context)
        self._segments = MapSegments(self._map, spec.segment_interval_ms)

    def store_size(self) -> StoreSize | None:
        return size_of(self._map)

    def _bytes(self, key: Any) -> bytes:
        if self._map is None:
            raise not_open(self.name)
        return key_bytes(self.name, self._key_serde.serialize, key)

    # ---- reading

    def get(self, key: Any, as_of: int | None = None) -> VersionedRecord | None:
        raw_key = self._bytes(key)
        latest = self._latest(raw_key)
        if latest is not None and (as_of is None or latest[0] <= as_of):
            return VersionedRecord(self._codec.deserialize(latest[1]), latest[0])
        if as_of is None or as_of < self._observed - self._retention:
            return None
        for _, history in self._histories(raw_key, as_of):
            if history.ends <= as_of:
                return None
            if history.begins <= as_of:
                timestamp, value = history.versions[history.find(as_of)]
                return None if value is None else VersionedRecord(self._codec.deserialize(value), timestamp)
        return None

    def versions(self, key: Any, frm: int | None, to: int | None) -> list[VersionedRecord]:
        raw_key, start = self._bytes(key), max(0, frm or 0)
        latest, found = self._latest(raw_key), []
        if latest is not None and (to is None or latest[0] <= to):
            found.append(VersionedRecord(self._codec.deserialize(latest[1]), latest[0]))
            if latest[0] <= start:
                return found
        if to is not None and to < self._observed - self._retention:
            return found
        for _, history in self._histories(raw_key, start):
            for index, (timestamp, value) in enumerate(history.versions):
                ends = history.until(index)
                if value is not None and ends > start and (to is None or timestamp <= to):
                    found.append(VersionedRecord(self._codec.deserialize(value), timestamp, ends))
        return found

    def _latest(self, key: bytes) -> tuple[int, bytes] | None:
        assert self._map is not None
        data = self._map.get(LATEST_PREFIX + key)
        return None if data is None else (LONG.unpack_from(data)[0], data[8:])

    def _histories(self, key: bytes, frm: int) -> list[tuple[int, History]]:
        """The key's rows, those of later segments first, down to the segment of `frm`."""
        found = []
        for segment in self._segments.numbers_from(frm):
            data = self._segments.get_in(segment, key)
            if data is not None:
                found.append((segment, History.read(data)))
        return found

    # ---- writing

    def put(self, key: Any, value: Any, timestamp: int) -> int:
        raw_key = self._bytes(key)
        raw = None if value is None else self._codec.bytes_of(value)
        if self._is_late(timestamp):
            self._context.dropped += 1
            valid_to = PUT_NOT_DONE
        else:
            valid_to = self._put(raw_key, raw, timestamp)
        self._context.log(self.name, raw_key, raw, timestamp)
        return valid_to

    def delete(self, key: Any, timestamp: int) -> VersionedRecord | None:
        raw_key = self._bytes(key)
        found = None
        if self._is_late(timestamp):
            self._context.dropped += 1
        else:
            found = self.get(key, timestamp)
            self._put(raw_key, None, timestamp)
        self._context.log(self.name, raw_key, None, timestamp)
        return found

    def _is_late(self, timestamp: int) -> bool:
        return timestamp < self._observed - self._retention

    def _put(self, key: bytes, value: bytes | None, timestamp: int) -> int:
        """Find the row of a version; returns the end of its validity."""
        self._observed = max(self._observed, timestamp)
        if self._observed > self._retention:
            self._segments.drop_before(self._observed - self._retention)
        latest = self._latest(key)
        later = _NOTHING_LATER if latest is None else latest[0]
        if latest is not None and timestamp >= latest[0]:
            if timestamp > latest[0]:
                self._move_to(timestamp, key, latest[0], latest[1])
            self._set_latest(key, value, timestamp)
            return VALID_TO_UNDEFINED
        for segment, history in self._histories(key, timestamp):
            if history.ends <= timestamp:
                break
            if history.begins <= timestamp:
                return self._put_within(segment, history, key, value, timestamp)
            later = history.begins
        if later is not None:
            return self._put_before(later, key, value, timestamp)
        if value is not None:
            self._set_latest(key, value, timestamp)
        else:
            self._remember_deletion(key, timestamp)
        return VALID_TO_UNDEFINED

    def _set_latest(self, key: bytes, value: bytes | None, timestamp: int) -> None:
        assert self._map is not None
        self._map.put(LATEST_PREFIX + key, None if value is None else LONG.pack(timestamp) + value)

    def _is_live(self, at: int) -> bool:
        """Whether the segment of a timestamp still exists."""
        interval = self._spec.segment_interval_ms
        return at // interval >= max(self._observed - self._retention, 0) // interval

    def _move_to(self, until: int, key: bytes, frm: int, value: bytes | None) -> None:
        """End a version: it moves to the segment of its end."""
        if not self._is_live(until):
            return
        data = self._segments.get(until, key)
        history = History([], frm) if data is None else History.read(data)
        history.add_latest(frm, until, value)
        self._segments.put(until, key, history.write())

    def _put_within(self, segment: int, history: History, key: bytes, value: bytes | None, timestamp: int) -> int:
        """Insert a version between those of a row."""
        index = history.find(timestamp)
        valid_to = history.until(index)
        before = history.versions[index]
        if before[0] == timestamp:
            history.versions[index] = (timestamp, value)
        elif timestamp // self._spec.segment_interval_ms != segment:
            self._move_to(timestamp, key, *before)  # it ends in an earlier segment now
            history.versions[index] = (timestamp, value)
        else:
            history.versions.insert(index, (timestamp, value))
        self._segments.put_in(segment, key, history.write())
        return valid_to

    def _put_before(self, later: int, key: bytes, value: bytes | None, timestamp: int) -> int:
        """Add a version that is valid until `later` and adjoins no earlier one in that segment."""
        if not self._is_live(later):
            return PUT_NOT_DONE
        data = self._segments.get(later, key)
        if data is None:
            history = History([(timestamp, value)], later)
        else:
            history = History.read(data)
            if history.ends <= timestamp:
                history.add_latest(timestamp, later, value)
            else:
                history.add_earliest(timestamp, value)
        self._segments.put(later, key, history.write())
        return later

    def _remember_deletion(self, key: bytes, timestamp: int) -> None:
        """Add a deletion without a later version."""
        if not self._is_live(timestamp):
            return
        data = self._segments.get(timestamp, key)
        if data is None:
            history = History([(timestamp, None)], timestamp)
        else:
            history = History.read(data)
            if history.ends == timestamp:
                return  # the end of the version before marks it already
            history.add_latest(history.ends, timestamp, None)
        self._segments.put(timestamp, key, history.write())

    # ---- called by the task

    def restore(self, records: Sequence[ChangelogRecord]) -> None:
        for key, value, timestamp, _ in records:
            if not self._is_late(timestamp):
                self._put(key, value, timestamp)

    def flush(self) -> None:
        if self._map is None:
            raise not_open(self.name)
        self._map.flush()

    def close(self) -> None:
        if self._map is not None:
            self._map.close()
            self._map = None
