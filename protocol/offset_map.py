"""The offset map of compaction, and the rewriting of batches with it (Kafka: SkimpyOffsetMap).

The map stores the latest offset of each key. The cleaner adds the dirty part of a log with `note`, and then filters
every batch with `retain`. A record remains where its key has no later offset in the map, and so do all records behind
the part that the map covers. This text is the specification; `_offset_map.c` does the same at the speed of C, with 24
bytes for a key of any length, and a test compares both on every input. Both take the (decompressed) payload of one
batch.
"""

from __future__ import annotations

from typing import Final

from odradek.protocol.chain import Buffer, ChainError, Fault, read_varint, skip_headers, wrapped_int64
from odradek.protocol.records import put_varint

ENTRY_BYTES: Final = 24
"""The size of a key in the map."""

# `_offset_map.c` has the same numbers.
APPEND_TIME: Final = 1
HAS_HORIZON: Final = 2
SET_HORIZON: Final = 4
FORCE_HORIZON: Final = 8

# fault, index and position of the faulty record (or of the end).
Noted = tuple[int, int, int]
# As Noted, then: records that remain, their highest timestamp, its offset, the base timestamp of the batch then,
# whether that is a delete horizon, and the new payload, or None where the records are unchanged or none remains.
Retained = tuple[int, int, int, int, int, int, int, int, bytearray | None]


class OffsetMapInPython:
    """Latest offsets by key. `capacity` is the number of keys that the map is made for; callers must not exceed it."""

    def __init__(self, slots: int, capacity: int, hash_key: bytes, /) -> None:
        """`slots` are the places that the table in C may have, `ENTRY_BYTES` each; at most `capacity` of them are used.
        `hash_key` has 16 random bytes, which no writer of records may have.
        """
        if slots < 2 or not 1 <= capacity < slots or len(hash_key) != 16:
            raise ValueError("OffsetMap takes slots, fewer keys than slots, and a hash key of 16 bytes")
        self.capacity = capacity
        self._offsets: dict[bytes, int] = {}

    def __len__(self) -> int:
        return len(self._offsets)

    def note(self, buffer: Buffer, start: int, end: int, count: int, base_offset: int, from_offset: int, /) -> Noted:
        """Add the keys of `count` records, which must fill the bytes from `start` to `end`.

        Records below `from_offset` are skipped, and so are those without a key. The first fault ends the walk.
        """
        _check_bounds(buffer, start, end)
        position = start
        for index in range(count):
            try:
                record = _Record(buffer, position, end)
            except ChainError as found:
                return found.fault, index, position
            offset = base_offset + record.offset_delta
            if record.key is not None and offset >= from_offset:
                self._offsets[record.key] = offset
            position = record.end
        return Fault.SOUND if position == end else Fault.TRAILING, max(count, 0), position

    def retain(
        self,
        buffer: Buffer,
        start: int,
        end: int,
        count: int,
        base_offset: int,
        base_timestamp: int,
        append_time: int,
        flags: int,
        latest_offset: int,
        tombstones_below: int,
        horizon: int,
        /,
    ) -> Retained:
        """The remaining records of `count` records that fill the bytes from `start` to `end`.

        All records behind `latest_offset`, the last offset that the map covers, remain. Other records remain where they
        have a key and no later one in the map; a tombstone only where it is not below `tombstones_below`.

        `base_timestamp` (ms) is the batch's; with APPEND_TIME `append_time` is the timestamp of every record, with
        HAS_HORIZON the base timestamp is a delete horizon already (KIP-534). With SET_HORIZON a batch that keeps a
        tombstone gets `horizon` (ms) for one, with FORCE_HORIZON any batch does. Without a horizon the timestamps of a
        batch that loses records count from its first one, as in Kafka (MemoryRecords.filterTo).
        """
        _check_bounds(buffer, start, end)
        kept: list[tuple[_Record, int]] = []
        position, reached, fault = start, max(count, 0), Fault.SOUND
        max_timestamp, max_offset = -1, -1
        for index in range(count):
            try:
                record = _Record(buffer, position, end)
            except ChainError as found:
                reached, fault = index, found.fault
                break
            position = record.end
            offset = base_offset + record.offset_delta
            if not self._stays(record, offset, latest_offset, tombstones_below):
                continue
            timestamp = append_time
            if not flags & APPEND_TIME:
                timestamp = wrapped_int64(base_timestamp + record.timestamp_delta)
            if not kept or timestamp > max_timestamp:
                max_timestamp, max_offset = timestamp, offset
            kept.append((record, timestamp))
        else:
            fault = Fault.SOUND if position == end else Fault.TRAILING
        data = None
        has_horizon = flags & HAS_HORIZON != 0
        if fault == Fault.SOUND and kept:
            sets = not has_horizon and _sets_horizon(flags, kept)
            if sets or len(kept) < count:
                if not has_horizon:
                    base_timestamp = horizon if sets else kept[0][1]
                has_horizon |= sets
                data = _rewritten(buffer, kept, base_timestamp)
        return fault, reached, position, len(kept), max_timestamp, max_offset, base_timestamp, int(has_horizon), data

    def _stays(self, record: _Record, offset: int, latest_offset: int, tombstones_below: int) -> bool:
        if offset > latest_offset:
            return True
        if record.key is None or (not record.has_value and offset < tombstones_below):
            return False
        return offset >= self._offsets.get(record.key, -1)


class _Record:
    """The positions of the parts of one record. Raises ChainError."""

    __slots__ = ("behind_offset", "end", "has_value", "key", "offset_delta", "timestamp_delta")

    def __init__(self, buffer: Buffer, position: int, limit: int) -> None:
        size, position = read_varint(buffer, position, limit, 32, Fault.TRUNCATED)
        if size < 1:
            raise ChainError(Fault.RECORD_SIZE)
        if limit - position < size:
            raise ChainError(Fault.TRUNCATED)
        end = self.end = position + size
        self.timestamp_delta, position = read_varint(buffer, position + 1, end, 64, Fault.RECORD_SIZE)
        self.offset_delta, position = read_varint(buffer, position, end, 32, Fault.RECORD_SIZE)
        self.behind_offset = position
        self.key, position = _read_bytes(buffer, position, end)
        value, position = _read_bytes(buffer, position, end)
        self.has_value = value is not None
        if skip_headers(buffer, position, end) != end:
            raise ChainError(Fault.RECORD_SIZE)


def _read_bytes(buffer: Buffer, position: int, end: int) -> tuple[bytes | None, int]:
    length, position = read_varint(buffer, position, end, 32, Fault.RECORD_SIZE)
    if length < 0:
        return None, position
    after = position + length
    if after > end:
        raise ChainError(Fault.RECORD_SIZE)
    return bytes(buffer[position:after]), after


def _sets_horizon(flags: int, kept: list[tuple[_Record, int]]) -> bool:
    if flags & FORCE_HORIZON:
        return True
    return flags & SET_HORIZON != 0 and not all(record.has_value for record, _ in kept)


def _rewritten(buffer: Buffer, kept: list[tuple[_Record, int]], base_timestamp: int) -> bytearray:
    payload = bytearray()
    for record, timestamp in kept:
        head = bytearray(1)  # the attributes
        put_varint(head, wrapped_int64(timestamp - base_timestamp))
        put_varint(head, record.offset_delta)
        put_varint(payload, len(head) + record.end - record.behind_offset)
        payload += head
        payload += buffer[record.behind_offset : record.end]
    return payload


def _check_bounds(buffer: Buffer, start: int, end: int) -> None:
    if not 0 <= start <= end <= len(buffer):
        raise ValueError("start and end must lie within the buffer")


OffsetMap: type[OffsetMapInPython] | type[_offset_map.OffsetMap]
try:
    from odradek.protocol import _offset_map

    OffsetMap = _offset_map.OffsetMap
except (ImportError, AttributeError):  # installed without a compiler, or built from older sources
    OffsetMap = OffsetMapInPython
