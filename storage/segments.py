"""The segments of a log: finding and reading across them (Kafka: LogSegments, LocalLog.read).

The last segment is the active one, which takes the writes; there always is one. Offsets may have gaps, since compaction
removes records, so a read that finds nothing in one segment continues in the next.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import NamedTuple

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


class LogSegments:
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
        assert segment.base_offset > self._bases[-1], (segment.base_offset, self._bases[-1])
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

    def end_of(self, base_offset: int, log_end: int) -> int:
        """The base offset of the segment behind that of `base_offset`, `log_end` behind the active one."""
        number = self._index_of(base_offset) + 1
        return self._bases[number] if number < len(self._row) else log_end

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
