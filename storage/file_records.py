"""Reads the batches in a segment's file, beside the path of a fetch (Kafka: FileRecords)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from odradek.protocol.batch import HEADER_SIZE, LOG_OVERHEAD, Header, crc_ok, is_framed, read_header
from odradek.storage.disk import Buffer
from odradek.storage.segment import EMPTY, Segment, corrupt

_SCAN_AT_ONCE: Final = 1 << 20


def checked_batches(segment: Segment, position: int = 0) -> Iterator[tuple[Buffer, int, int, Header]]:
    """(buffer, place in the buffer, position, header) of each whole batch, to the first that is not.

    Reads the file in pieces; one batch is in memory at a time, and never more than the file has. Raises OSError.
    """
    end = segment.size
    chunk, start = memoryview(EMPTY), position
    while end - position >= HEADER_SIZE:
        if position + HEADER_SIZE > start + len(chunk):
            chunk, start = memoryview(segment.file.read(_SCAN_AT_ONCE, position)), position
            if len(chunk) < HEADER_SIZE:
                return
        header = read_header(chunk, position - start)
        size = LOG_OVERHEAD + header.batch_length
        if not is_framed(header) or size > end - position:
            return
        if position + size > start + len(chunk):
            chunk, start = memoryview(segment.file.read(max(size, _SCAN_AT_ONCE), position)), position
        if not crc_ok(chunk, position - start, header):
            return
        yield chunk, position - start, position, header
        position += size


def read_batch(segment: Segment, position: int, header: Header) -> bytes:
    """The bytes of one batch. Raises KafkaError CORRUPT_MESSAGE, OSError."""
    data = segment.file.read(LOG_OVERHEAD + header.batch_length, position)
    if len(data) != LOG_OVERHEAD + header.batch_length:
        raise corrupt(segment.path, position, "the file ends within a batch")
    return data


def next_offset(segment: Segment) -> int:
    """The offset behind the last batch, found through the index. Raises KafkaError CORRUPT_MESSAGE, OSError."""
    offset = segment.base_offset
    if segment.size:
        for _, header in segment.headers(segment.offset_index.last()[1]):
            offset = header.base_offset + header.last_offset_delta + 1
    return offset
