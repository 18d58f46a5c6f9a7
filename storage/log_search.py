"""Searches a log: offsets by time, and aborted transactions (Kafka: UnifiedLog.fetchOffsetByTimestamp).

Offsets by time are those of ListOffsets; the aborted transactions are those that a fetch with read_committed returns.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Final, NamedTuple

from odradek.protocol import chain
from odradek.protocol.batch import HEADER_SIZE, MAX_DECOMPRESSED, Buffer, Header, read_header, records
from odradek.protocol.compression import decompress
from odradek.protocol.output_bounds import output_bound
from odradek.storage.file_records import read_batch
from odradek.storage.segment import Segment
from odradek.storage.segments import LogSegments, LogSlice

NO_LIMIT: Final = 2**63 - 1
QUICK_RECORDS: Final = 1000
QUICK_BYTES: Final = 256 << 10
"""The records of a batch and their bytes, decompressed, that a search reads on the event loop."""
_MIN_INT64: Final = -(2**63)


class TimestampedOffset(NamedTuple):
    """A record found by its time; `leader_epoch` is -1 where the batch has none."""

    offset: int
    timestamp_ms: int
    leader_epoch: int


class SlowBatch(Exception):  # noqa: N818 - no error: the search continues when the batch has been read
    """A search needs a batch whose records take long to read. The caller calls `read` in a thread, stores its result
    under `base_offset`, and searches again.
    """

    def __init__(self, batch: bytes, base_offset: int, timestamp_ms: int, start_offset: int) -> None:
        super().__init__(f"the batch at offset {base_offset} takes long to read")
        self.base_offset = base_offset
        self._arguments = batch, timestamp_ms, start_offset

    def read(self) -> tuple[int, int] | None:
        """Offset and timestamp of the record. Raises ProtocolError, KafkaError."""
        return _first_record(*self._arguments)


Known = dict[int, tuple[int, int] | None]
"""Results of slow batches: base offset -> offset and timestamp of the record."""


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
        self, timestamp_ms: int, start_offset: int, end_offset: int = NO_LIMIT, known: Known | None = None
    ) -> TimestampedOffset | None:
        """The first record from `start_offset` on that is not older than a time; None unless it is below `end_offset`.

        `start_offset` is that of the log: records below it may still be on disk. With `known`, raises SlowBatch where a
        batch takes long to read whose result is not known.
        """
        with self._guard("searching for a timestamp"):
            for segment in self._segments:
                if segment.largest_timestamp() >= timestamp_ms:
                    found = _search(segment, timestamp_ms, start_offset, known)
                    if found is not None:  # else all records that are late enough are below the start
                        return found if found.offset < end_offset else None
        return None

    def max_timestamp(self, known: Known | None = None) -> TimestampedOffset | None:
        """The first record that has the highest timestamp of the log (KIP-734); None where no record has one.

        `known` as in `offset_for_timestamp`.
        """
        with self._guard("searching for the highest timestamp"):
            segment = max(self._segments, key=lambda segment: segment.max_timestamp)
            timestamp_ms = segment.max_timestamp
            if timestamp_ms < 0:
                return None
            start = segment.offset_index.lookup(segment.max_timestamp_offset)[1]
            for position, header in segment.headers(start):
                if header.max_timestamp == timestamp_ms:
                    found = _in_batch(segment, position, header, timestamp_ms, 0, known)
                    if found is not None:
                        return TimestampedOffset(*found, header.leader_epoch)
        return None


def _search(segment: Segment, timestamp_ms: int, start_offset: int, known: Known | None) -> TimestampedOffset | None:
    floor = max(segment.time_index.lookup(timestamp_ms)[1], start_offset)
    for position, header in segment.headers(segment.offset_index.lookup(floor)[1]):
        if header.max_timestamp >= timestamp_ms and header.last_offset >= start_offset:
            found = _in_batch(segment, position, header, timestamp_ms, start_offset, known)
            if found is not None:
                return TimestampedOffset(*found, header.leader_epoch)
    return None


def _in_batch(
    segment: Segment, position: int, header: Header, timestamp_ms: int, start_offset: int, known: Known | None
) -> tuple[int, int] | None:
    if known is not None and header.base_offset in known:
        return known[header.base_offset]
    batch = read_batch(segment, position, header)
    if known is not None:
        bound = output_bound(header.codec, memoryview(batch)[HEADER_SIZE:], QUICK_BYTES)
        if header.record_count > QUICK_RECORDS or (header.codec and bound > QUICK_BYTES):
            raise SlowBatch(batch, header.base_offset, timestamp_ms, start_offset)
    return _first_record(batch, timestamp_ms, start_offset)


def _first_record(batch: bytes, timestamp_ms: int, start_offset: int) -> tuple[int, int] | None:
    """Offset and timestamp of the first record from `start_offset` on that is not older; None where there is none."""
    header = read_header(batch)
    if header.record_count > QUICK_RECORDS and timestamp_ms >= 0 and not header.is_log_append_time:
        payload: Buffer = batch
        start = HEADER_SIZE
        if header.codec:
            payload, start = decompress(header.codec, memoryview(batch)[HEADER_SIZE:], MAX_DECOMPRESSED), 0
        # The walk in C reports records that are too late. It requires offsets without gaps, so it is no use for batches
        # that were compacted.
        fault, _, _, _, _, late = chain.scan(
            payload,
            start,
            len(payload),
            header.record_count,
            header.base_timestamp,
            chain.CHECK_TIMESTAMPS,
            _MIN_INT64,
            timestamp_ms - 1,
        )
        for index, _, found_ms in late if not fault else ():
            if header.base_offset + index >= start_offset:
                return header.base_offset + index, found_ms
        if not fault and len(late) < chain.MAX_VIOLATIONS:
            return None
    for record in records(batch):
        if record.timestamp_ms >= timestamp_ms and record.offset >= start_offset:
            return record.offset, record.timestamp_ms
    return None
