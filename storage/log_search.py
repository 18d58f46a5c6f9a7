"""Searches a log: offsets by time, and aborted transactions (Kafka: UnifiedLog.fetchOffsetByTimestamp).

Offsets by time are those of ListOffsets; the aborted transactions are those that a fetch with read_committed returns.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Final, NamedTuple

from odradek.protocol.batch import records
from odradek.storage.file_records import read_batch
from odradek.storage.segment import Segment
from odradek.storage.segments import LogSegments, LogSlice

NO_LIMIT: Final = 2**63 - 1


class TimestampedOffset(NamedTuple):
    """A record found by its time; `leader_epoch` is -1 where the batch has none."""

    offset: int
    timestamp_ms: int
    leader_epoch: int


class LogSearch:
    """Searches across the segments of one log. Methods raise KafkaError."""

    __slots__ = ("_guard", "_segments")

    def __init__(self, segments: LogSegments, guard: Callable[[str], AbstractContextManager[None]]) -> None:
        """`guard` handles the errors of the disk within a search."""
        self._segments = segments
        self._guard = guard

    def upper_bound(self, part: LogSlice, log_end: int) -> int:
        """An offset behind everything that a slice can contain, for `aborted_transactions`; uses the index only."""
        with self._guard("reading an index"):
            segment = self._segments.holding(part.segment_base)[0]
            bound = segment.offset_index.first_from_position(part.position + len(part.records))
        return self._segments.end_of(part.segment_base, log_end) if bound is None else bound

    def aborted_transactions(self, offset: int, end_offset: int) -> list[tuple[int, int]]:
        """(producer id, first offset) of the aborted transactions that reach into [offset, end_offset)."""
        found: list[tuple[int, int]] = []
        with self._guard("reading the transaction index"):
            for segment in self._segments.holding(offset):
                for entry in segment.aborted.entries():
                    if entry.last_offset >= offset and entry.first_offset < end_offset:
                        found.append((entry.producer_id, entry.first_offset))
                    if entry.last_stable_offset >= end_offset:
                        return found
        return found

    def offset_for_timestamp(
        self, timestamp_ms: int, start_offset: int, end_offset: int = NO_LIMIT
    ) -> TimestampedOffset | None:
        """The first record from `start_offset` on that is not older than a time; None unless it is below `end_offset`.

        `start_offset` is that of the log: records below it may still be on disk.
        """
        with self._guard("searching for a timestamp"):
            for segment in self._segments:
                if segment.largest_timestamp() >= timestamp_ms:
                    found = _search(segment, timestamp_ms, start_offset)
                    if found is not None:  # else all records that are late enough are below the start
                        return found if found.offset < end_offset else None
        return None

    def max_timestamp(self) -> TimestampedOffset | None:
        """The first record that has the highest timestamp of the log (KIP-734); None where no record has one."""
        with self._guard("searching for the highest timestamp"):
            segment = max(self._segments, key=lambda segment: segment.max_timestamp)
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
