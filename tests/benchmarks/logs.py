"""The honesty check: the records that a contestant acknowledged are on its disk.

All three keep Kafka's segment files, so one reader serves: it walks the record batches of magic 2 (the layout in
Kafka's DefaultRecordBatch) and checks each CRC-32C and that offsets continue without a gap.
"""

from __future__ import annotations

import mmap
import struct
from pathlib import Path
from typing import NamedTuple

from crc32c import crc32c

_HEAD = struct.Struct(">qiibIhi")  # base offset, length, leader epoch, magic, CRC, attributes, last offset delta
_RECORD_COUNT = struct.Struct(">i")
_RECORD_COUNT_AT = 57
_CHECKED_FROM = 21
_LENGTH_END = 12


class Contents(NamedTuple):
    """The contents of the logs of a topic; `size` is in bytes."""

    records: int
    batches: int
    size: int


class DishonestLogError(Exception):
    """A log does not hold the acknowledged records; the message names the log and the difference."""


def read_topic(data_dir: Path, topic: str) -> Contents:
    """Sum up all partitions of `topic`. Raises DishonestLogError at a torn or damaged batch or a gap in the offsets."""
    records = batches = size = 0
    for folder in sorted(data_dir.glob(f"{topic}-*")):
        expected = 0
        for segment in sorted(folder.glob("*.log")):
            if not segment.stat().st_size:
                continue
            found = _read_segment(segment, expected)
            expected += found.records
            records += found.records
            batches += found.batches
            size += found.size
    return Contents(records, batches, size)


def check_topic(data_dir: Path, topic: str, records: int, least_size: int) -> Contents:
    """As `read_topic`, and raise DishonestLogError unless `records` are there, in at least `least_size` bytes."""
    found = read_topic(data_dir, topic)
    if found.records != records or found.size < least_size:
        raise DishonestLogError(
            f"{topic} in {data_dir}: {found.records:,} records in {found.size:,} bytes, "
            f"expected {records:,} in at least {least_size:,}"
        )
    return found


def _read_segment(path: Path, expected_offset: int) -> Contents:
    position = records = batches = 0
    with (
        path.open("rb") as file,
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data,
        memoryview(data) as view,
    ):
        while position + _RECORD_COUNT_AT + 4 <= len(view):
            base_offset, length, _, magic, crc, _, last_delta = _HEAD.unpack_from(view, position)
            end = position + _LENGTH_END + length
            (count,) = _RECORD_COUNT.unpack_from(view, position + _RECORD_COUNT_AT)
            if magic != 2 or length <= 0 or end > len(view) or crc32c(view[position + _CHECKED_FROM : end]) != crc:
                break
            if base_offset != expected_offset + records or last_delta != count - 1:
                raise DishonestLogError(f"{path}: offset {base_offset} where {expected_offset + records} was due")
            records += count
            batches += 1
            position = end
        if position != len(view):
            raise DishonestLogError(f"{path}: no sound batch at byte {position} of {len(view)}")
    return Contents(records, batches, position)
