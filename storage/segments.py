"""The segments of a log: finding, reading and searching across them (Kafka: LogSegments, LocalLog.read).

The last segment is the active one, which takes the writes; there always is one. Offsets may have gaps, since compaction
removes records, so a read that finds nothing in one segment continues in the next.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from odradek.protocol.batch import records
from odradek.storage.file_records import read_batch
from odradek.storage.segment import EMPTY, FileRange, Segment


class LogSlice(NamedTuple):
    """The result of a read: whole batches from the one that holds `offset` on; the last may be partial (as in Kafka).

    `records` is empty (`b""`) or a FileRange. `incomplete` is True where not even the first batch fits the limit.
    """

    offset: int
    segment_base: int
    position: int
    records: FileRange | bytes
    incomplete: bool = False


class TimestampedOffset(NamedTuple):
    """A record found by its time; `leader_epoch` is -1 where the batch has none."""

    offset: int
    timestamp_ms: int
    leader_epoch: int


class Segments:
    """Segments in the order of their base offsets; `active` is the last one. Methods raise OSError and CorruptFile."""

    __slots__ = ("_bases", "_row", "active")

    def __init__(self, row: list[Segment]) -> None:
        """`row` has at least one segment, the oldest first."""
        self.reset(row)

    def reset(self, row: list[Segment]) -> None:
        """Replace all segments."""
        self._row = row
        self._bases = [segment.base_offset for segment in row]
        self.active = row[-1]

    def __len__(self) -> int:
        return len(self._row)

    def __iter__(self) -> Iterator[Segment]:
        return iter(self._row)

    @property
    def first_offset(self) -> int:
        """The base offset of the oldest segment."""
        return self._bases[0]

    @property
    def size(self) -> int:
        """Bytes of all segments, without their indexes."""
        return sum(segment.size for segment in self._row)

    def add(self, segment: Segment) -> None:
        """Put a new active segment behind the others."""
        self._row.append(segment)
        self._bases.append(segment.base_offset)
        self.active = segment

    def oldest(self, count: int) -> list[Segment]:
        """The first segments, as a copy."""
        return self._row[:count]

    def drop_oldest(self, count: int) -> int:
        """Remove the first segments; returns the new base offset of the log."""
        self.reset(self._row[count:])
        return self.first_offset

    def replace(self, bases: Sequence[int], segment: Segment) -> list[Segment]:
        """Replace the adjacent segments with these base offsets by one; returns the replaced ones."""
        first = self._index_of(bases[0])
        gone = self._row[first : first + len(bases)]
        self.reset([*self._row[:first], segment, *self._row[first + len(bases) :]])
        return gone

    def drop_above(self, offset: int) -> list[Segment]:
        """Remove and return the segments that begin above `offset`; the first one stays in any case."""
        kept = max(bisect_right(self._bases, offset), 1)
        gone = self._row[kept:]
        if gone:
            self.reset(self._row[:kept])
        return gone

    def reaching_to(self, offset: int) -> list[Segment]:
        """The segments that `drop_above` leaves."""
        return self._row[: max(bisect_right(self._bases, offset), 1)]

    def holding(self, offset: int) -> list[Segment]:
        """The segment that holds `offset`, and all behind it."""
        return self._row[self._index_of(offset) :]

    def _index_of(self, offset: int) -> int:
        if offset >= self.active.base_offset:
            return len(self._row) - 1
        return max(bisect_right(self._bases, offset) - 1, 0)

    # -- reading -------------------------------------------------------------------------------------------------------

    def read(self, offset: int, limit: int, log_end: int, max_bytes: int, *, at_least_one: bool) -> LogSlice:
        """Batches from the one that holds `offset`, below `limit`; both offsets are within the log."""
        row = self._row
        for number in range(self._index_of(offset), len(row)):
            segment = row[number]
            found = segment.locate(offset)
            if found is None:
                continue
            position, first_size = found
            end = segment.size
            if limit < (self._bases[number + 1] if number + 1 < len(row) else log_end):
                bound = segment.locate(limit)
                end = end if bound is None else bound[0]
            incomplete = max_bytes < first_size and not at_least_one
            length = min(end - position, max(max_bytes, first_size) if at_least_one else max_bytes)
            part = EMPTY if length <= 0 else FileRange(segment.file, position, length)
            return LogSlice(offset, segment.base_offset, position, part, incomplete)
        return self.nothing_at(offset)

    def nothing_at(self, offset: int) -> LogSlice:
        """An empty slice at the end of the log."""
        return LogSlice(offset, self.active.base_offset, self.active.size, EMPTY)

    def upper_bound(self, part: LogSlice, log_end: int) -> int:
        """An offset behind everything that a slice can contain; uses the index only."""
        number = self._index_of(part.segment_base)
        bound = self._row[number].offset_index.first_from_position(part.position + len(part.records))
        if bound is not None:
            return bound
        return self._bases[number + 1] if number + 1 < len(self._row) else log_end

    def aborted_transactions(self, offset: int, end_offset: int) -> list[tuple[int, int]]:
        """(producer id, first offset) of the aborted transactions that reach into [offset, end_offset)."""
        found: list[tuple[int, int]] = []
        for segment in self.holding(offset):
            for entry in segment.aborted.entries():
                if entry.last_offset >= offset and entry.first_offset < end_offset:
                    found.append((entry.producer_id, entry.first_offset))
                if entry.last_stable_offset >= end_offset:
                    return found
        return found

    # -- searching -----------------------------------------------------------------------------------------------------

    def offset_for_timestamp(self, timestamp_ms: int, start_offset: int) -> TimestampedOffset | None:
        """The first record from `start_offset` on that is not older than `timestamp_ms`."""
        for segment in self._row:
            if segment.largest_timestamp() >= timestamp_ms:
                found = _search(segment, timestamp_ms, start_offset)
                if found is not None:  # else all records that are late enough are below the start
                    return found
        return None

    def max_timestamp(self) -> TimestampedOffset | None:
        """The first record that has the highest timestamp; None where no record has one."""
        segment = max(self._row, key=lambda segment: segment.max_timestamp)
        timestamp_ms = segment.max_timestamp
        if timestamp_ms < 0:
            return None
        start = segment.offset_index.lookup(segment.max_timestamp_offset)[1]
        for position, header in segment.headers(start):
            if header.max_timestamp == timestamp_ms:
                for record in records(read_batch(segment, position, header)):
                    if record.timestamp_ms == timestamp_ms:
                        return TimestampedOffset(record.offset, timestamp_ms, header.leader_epoch)
        return None


def _search(segment: Segment, timestamp_ms: int, start_offset: int) -> TimestampedOffset | None:
    floor = max(segment.time_index.lookup(timestamp_ms)[1], start_offset)
    for position, header in segment.headers(segment.offset_index.lookup(floor)[1]):
        if header.max_timestamp >= timestamp_ms and header.last_offset >= start_offset:
            for record in records(read_batch(segment, position, header)):
                if record.timestamp_ms >= timestamp_ms and record.offset >= start_offset:
                    return TimestampedOffset(record.offset, record.timestamp_ms, header.leader_epoch)
    return None
