"""Walks the records of one batch: the part of a write's validation that must read every record (Kafka: DefaultRecord).

A record of magic 2 (Kafka's DefaultRecord) is a length and a body, all numbers zigzag varints but the first byte:

    length, attributes (1 byte, unused), timestamp delta, offset delta, key length, key, value length, value,
    header count, then for each header: key length, key, value length, value

A length of -1 (any negative one, as Java reads it) stands for null; a header key cannot be null. One call of `scan`
returns the input of all rules of a write. It has two implementations: in C (`_chain.c`), and here for installs without
a compiler. This text is the specification; a test compares both implementations on every input.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

Buffer = bytes | bytearray | memoryview

# fault, index of the record, its position in the buffer, max timestamp, index of that record, violations.
# A violation is (index, Violation, timestamp).
Scan = tuple[int, int, int, int, int, tuple[tuple[int, int, int], ...]]

REQUIRE_KEYS: Final = 1
ONE_TIMESTAMP: Final = 2
CHECK_TIMESTAMPS: Final = 4

MAX_VIOLATIONS: Final = 1000
"""Violations reported for one batch; further ones are omitted, so that an error is never much larger than its batch."""


class Fault(IntEnum):
    """A reason why a chain of records is unreadable. `_chain.c` has the same numbers."""

    SOUND = 0
    TRUNCATED = 1
    RECORD_SIZE = 2
    VARINT = 3
    OFFSET = 4
    HEADERS = 5
    HEADER_KEY = 6
    TRAILING = 7


FAULTS: Final[dict[int, str]] = {
    Fault.TRUNCATED: "the payload ends inside the record",
    Fault.RECORD_SIZE: "the fields do not fill the length that the record gives",
    Fault.VARINT: "a varint has no end",
    Fault.OFFSET: "the offset delta is not the one after its predecessor's, counted from 0",
    Fault.HEADERS: "the number of headers is negative or exceeds the bytes left",
    Fault.HEADER_KEY: "a header has a null key",
    Fault.TRAILING: "bytes are left after the last record that the header counts",
}


class Violation(IntEnum):
    """A rule that a readable record breaks. `_chain.c` has the same numbers."""

    NULL_KEY = 1
    TIMESTAMP = 2


class ChainError(Exception):
    """The walk met a fault; internal to the reading of records, never raised to callers of batch.py."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(FAULTS[fault])
        self.fault = fault


def read_varint(buffer: Buffer, position: int, end: int, bits: int, beyond: Fault) -> tuple[int, int]:
    """A zigzag varint of 32 or 64 bits at `position`, as (value, position after it). As in Java, higher bits are lost.

    Raises ChainError: `beyond` where the bytes up to `end` run out, VARINT where it has no end.
    """
    if position < end and (byte := buffer[position]) < 0x80:  # one byte: nearly always
        return (byte >> 1) ^ -(byte & 1), position + 1
    total = 0
    for shift in range(0, bits, 7):
        if position >= end:
            raise ChainError(beyond)
        byte = buffer[position]
        position += 1
        total |= (byte & 0x7F) << shift
        if byte < 0x80:
            total &= (1 << bits) - 1
            return (total >> 1) ^ -(total & 1), position
    raise ChainError(Fault.VARINT)


def _skip_bytes(buffer: Buffer, position: int, end: int) -> tuple[int, int]:
    length, position = read_varint(buffer, position, end, 32, Fault.RECORD_SIZE)
    after = position + max(length, 0)
    if after > end:
        raise ChainError(Fault.RECORD_SIZE)
    return length, after


def skip_headers(buffer: Buffer, position: int, end: int) -> int:
    """The position after the headers of a record that start at `position`. Raises ChainError."""
    count, position = read_varint(buffer, position, end, 32, Fault.RECORD_SIZE)
    if not 0 <= count <= end - position:
        raise ChainError(Fault.HEADERS)
    for _ in range(count):
        length, position = _skip_bytes(buffer, position, end)
        if length < 0:
            raise ChainError(Fault.HEADER_KEY)
        _, position = _skip_bytes(buffer, position, end)
    return position


def _read_record(buffer: Buffer, position: int, end: int) -> tuple[int, int, bool, int]:
    """Timestamp delta, offset delta, whether there is a key, and the position after the record."""
    size, position = read_varint(buffer, position, end, 32, Fault.TRUNCATED)
    if size < 1:
        raise ChainError(Fault.RECORD_SIZE)
    if end - position < size:
        raise ChainError(Fault.TRUNCATED)
    end = position + size
    timestamp_delta, position = read_varint(buffer, position + 1, end, 64, Fault.RECORD_SIZE)
    offset_delta, position = read_varint(buffer, position, end, 32, Fault.RECORD_SIZE)
    key_length, position = _skip_bytes(buffer, position, end)
    _, position = _skip_bytes(buffer, position, end)
    if skip_headers(buffer, position, end) != end:
        raise ChainError(Fault.RECORD_SIZE)
    return timestamp_delta, offset_delta, key_length >= 0, end


def wrapped_int64(number: int) -> int:
    """The number after the overflow of Java's long arithmetic."""
    return ((number + (1 << 63)) & ((1 << 64) - 1)) - (1 << 63)


def scan_in_python(
    buffer: Buffer,
    start: int,
    end: int,
    count: int,
    base_timestamp: int,
    flags: int,
    earliest: int,
    latest: int,
    /,
) -> Scan:
    """Walk `count` records from `start`, which must fill the bytes up to `end`.

    `base_timestamp` (ms) is the base of the timestamp deltas, or with ONE_TIMESTAMP the timestamp of every record (a
    batch with LogAppendTime). With CHECK_TIMESTAMPS those outside `earliest` to `latest` (ms, inclusive) are
    violations, except -1, which means none; where timestamps are not checked, ONE_TIMESTAMP is itself the violation.
    With REQUIRE_KEYS a null key is one. Bounds beyond int64 are replaced by its nearest number. The first fault ends
    the walk; the result has the fault, the record and the byte.
    """
    if not 0 <= start <= end <= len(buffer):
        raise ValueError("start and end must lie within the buffer")
    earliest, latest = (min(max(bound, -(1 << 63)), (1 << 63) - 1) for bound in (earliest, latest))
    max_timestamp, max_index = -1, -1
    violations: list[tuple[int, int, int]] = []
    position = start
    for index in range(count):
        try:
            timestamp_delta, offset_delta, has_key, after = _read_record(buffer, position, end)
        except ChainError as found:
            return found.fault, index, position, max_timestamp, max_index, tuple(violations)
        if offset_delta != index:
            return Fault.OFFSET, index, position, max_timestamp, max_index, tuple(violations)
        timestamp = base_timestamp if flags & ONE_TIMESTAMP else wrapped_int64(base_timestamp + timestamp_delta)
        if timestamp > max_timestamp:
            max_timestamp, max_index = timestamp, index
        if flags & CHECK_TIMESTAMPS and timestamp != -1:
            wrong_time = not earliest <= timestamp <= latest
        else:
            wrong_time = bool(flags & ONE_TIMESTAMP)
        no_key = flags & REQUIRE_KEYS and not has_key
        if (no_key or wrong_time) and len(violations) < MAX_VIOLATIONS:
            violations.append((index, Violation.NULL_KEY if no_key else Violation.TIMESTAMP, timestamp))
        position = after
    fault = Fault.SOUND if position == end else Fault.TRAILING
    return fault, max(count, 0), position, max_timestamp, max_index, tuple(violations)


try:
    from odradek.protocol import _chain

    scan = _chain.scan
except (ImportError, AttributeError):  # installed without a compiler, or built from older sources
    scan = scan_in_python
