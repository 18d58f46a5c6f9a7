"""The walks along message sets of magic 0 and 1 (layout: legacy.py): survey, up-convert, down-convert.

`survey`, `up_convert` and `down_convert` exist twice: in C (`_legacy.c`) and here, the pure-Python fallback of an
install without a compiler. This text is the specification; a test compares both implementations on every input.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import Final
from zlib import crc32

from odradek.protocol.chain import (
    CHECK_TIMESTAMPS,
    FAULTS,
    MAX_VIOLATIONS,
    ONE_TIMESTAMP,
    REQUIRE_KEYS,
    Buffer,
    ChainError,
    Fault,
    read_varint,
    skip_headers,
    wrapped_int64,
)
from odradek.protocol.records import put_varint

HIGHEST_MAGIC: Final = 1
LOG_OVERHEAD: Final = 12
MAGIC_AT: Final = 16
ATTRIBUTES_AT: Final = 17
FIELDS_AT: Final = 18
SHORTEST: Final = 14
"""Bytes that follow the length in the shortest message, of magic 0 with neither key nor value."""
CODEC_MASK: Final = 7
APPEND_TIME: Final = 8
NO_TIMESTAMP: Final = -1
MAX_INT32: Final = 2**31 - 1
MAX_INT64: Final = 2**63 - 1

INNER: Final = 8
"""A flag beside those of `chain`: the messages come from a wrapper, or will be put into one."""

Survey = tuple[int, int, int, int]
"""Fault, position where the walk ended, messages before it, the last codec in their attributes."""
UpConverted = tuple[int, int, int, bytes | bytearray, int, int, int, tuple[tuple[int, int, int], ...]]
"""Fault, messages, position, records of magic 2, base and max timestamp, last offset, (index, Rule, timestamp)…"""
DownConverted = tuple[int, int, int, int, int, bytes]
"""Fault, messages, offset of the first and the last, max timestamp, the set."""

_OFFSET_SIZE: Final = struct.Struct(">qi")
_INT32: Final = struct.Struct(">i")
_INT64: Final = struct.Struct(">q")
_UINT32: Final = struct.Struct(">I")


class LegacyFault(IntEnum):
    """A fault of a message, beside `chain.Fault`. `_legacy.c` has the same numbers."""

    SHORT = 8
    MAGIC = 9
    TOO_LARGE = 10
    CHECKSUM = 11
    FIELDS = 12
    NESTED = 13
    MANY = 14


REASONS: Final[dict[int, str]] = {
    **FAULTS,
    LegacyFault.SHORT: f"a message has a length of less than {SHORTEST} bytes",
    LegacyFault.MAGIC: "a message has another magic than the first one, or one that does not exist",
    LegacyFault.TOO_LARGE: "a message is larger than the topic takes (max.message.bytes)",
    LegacyFault.CHECKSUM: "the checksum of a message does not hold",
    LegacyFault.FIELDS: "key or value reach beyond their message",
    LegacyFault.NESTED: "a compressed message inside a compressed message",
    LegacyFault.MANY: "more messages than a batch can count",
}


class Rule(IntEnum):
    """A rule that a sound message breaks; the first two are those of `chain.Violation`."""

    NULL_KEY = 1
    TIMESTAMP = 2
    OTHER_MAGIC = 3


def _next_message(buffer: Buffer, position: int, end: int) -> tuple[int, int]:
    """(fault, size behind the length) of the message at `position`; the fault is -1 where no whole one is left."""
    if end - position < LOG_OVERHEAD:
        return -1, 0
    size = _INT32.unpack_from(buffer, position + 8)[0]
    if size < SHORTEST:
        return LegacyFault.SHORT, size
    return (-1 if end - position - LOG_OVERHEAD < size else 0), size


def _checksum_holds(buffer: Buffer, position: int, size: int) -> bool:
    stated: int = _UINT32.unpack_from(buffer, position + LOG_OVERHEAD)[0]
    return crc32(memoryview(buffer)[position + MAGIC_AT : position + LOG_OVERHEAD + size]) == stated


def survey_in_python(buffer: Buffer, limit: int, /) -> Survey:
    """Check a produced set: lengths, magic, sizes up to `limit` bytes, checksums."""
    position, count, codec, end = 0, 0, 0, len(buffer)
    while True:
        fault, size = _next_message(buffer, position, end)
        if not fault:
            if buffer[position + MAGIC_AT] > HIGHEST_MAGIC:
                fault = LegacyFault.MAGIC
            elif LOG_OVERHEAD + size > limit:
                fault = LegacyFault.TOO_LARGE
            elif not _checksum_holds(buffer, position, size):
                fault = LegacyFault.CHECKSUM
        if fault:
            return max(fault, 0), position, count, codec
        codec = buffer[position + ATTRIBUTES_AT] & CODEC_MASK or codec
        count += 1
        position += LOG_OVERHEAD + size


def up_convert_in_python(
    buffer: Buffer, magic: int, flags: int, stamp: int, earliest: int, latest: int, /
) -> UpConverted:
    """Write the messages of a set as records of magic 2 whose offsets count from 0.

    With INNER they come from a wrapper: their checksums have not been verified yet, and with ONE_TIMESTAMP all have
    the time `stamp`. REQUIRE_KEYS and CHECK_TIMESTAMPS are as in `chain.scan`; a time below -1 is always a violation.
    """
    earliest, latest = (min(max(bound, -(1 << 63)), MAX_INT64) for bound in (earliest, latest))
    out = bytearray()
    position, end, count = 0, len(buffer), 0
    base, top, last_offset = NO_TIMESTAMP, NO_TIMESTAMP, -1
    violations: list[tuple[int, int, int]] = []
    while True:
        fault, size = _next_message(buffer, position, end)
        if fault:
            break
        after = position + LOG_OVERHEAD + size
        attributes, own_magic = buffer[position + ATTRIBUTES_AT], buffer[position + MAGIC_AT]
        fault = _message_fault(buffer, position, size, magic, flags)
        if fault:
            break
        if own_magic != magic:
            if len(violations) < MAX_VIOLATIONS:
                violations.append((count, Rule.OTHER_MAGIC, NO_TIMESTAMP))
            count, position = count + 1, after
            continue
        at, timestamp, stamped = position + FIELDS_AT, NO_TIMESTAMP, bool(flags & ONE_TIMESTAMP)
        if magic == 1:
            timestamp = stamp if stamped else _INT64.unpack_from(buffer, at)[0]
            at += 8
            if not flags & INNER:
                stamped = bool(attributes & APPEND_TIME)
        content = _read_fields(buffer, at, after)
        if content is None:
            fault = LegacyFault.FIELDS
            break
        if count > MAX_INT32:
            fault = LegacyFault.MANY
            break
        key, value = content
        last_offset = _INT64.unpack_from(buffer, position)[0]
        rule = _broken_rule(flags, key is None, stamped, timestamp, earliest, latest)
        if rule:
            if len(violations) < MAX_VIOLATIONS:
                violations.append((count, rule, timestamp))
        else:
            base = timestamp if count == 0 else base
            top = max(top, timestamp)
            _put_record(out, wrapped_int64(timestamp - base), count, key, value)
        count, position = count + 1, after
    return max(fault, 0), count, position, bytes(out), base, top, last_offset, tuple(violations)


def _message_fault(buffer: Buffer, position: int, size: int, magic: int, flags: int) -> int:
    if flags & INNER and buffer[position + ATTRIBUTES_AT] & CODEC_MASK:
        return LegacyFault.NESTED
    if buffer[position + MAGIC_AT] != magic:
        return 0 if flags & INNER else LegacyFault.MAGIC
    if flags & INNER and not _checksum_holds(buffer, position, size):
        return LegacyFault.CHECKSUM
    return LegacyFault.FIELDS if magic == 1 and size < SHORTEST + 8 else 0


def _broken_rule(flags: int, no_key: bool, stamped: bool, timestamp: int, earliest: int, latest: int) -> int:
    if flags & REQUIRE_KEYS and no_key:
        return Rule.NULL_KEY
    if flags & CHECK_TIMESTAMPS and timestamp != NO_TIMESTAMP:
        wrong = not earliest <= timestamp <= latest
    else:
        wrong = stamped
    return Rule.TIMESTAMP if wrong or timestamp < NO_TIMESTAMP else 0


def _read_fields(buffer: Buffer, position: int, end: int) -> tuple[Buffer | None, Buffer | None] | None:
    """Key and value at `position`; None where they reach beyond `end`."""
    found: list[Buffer | None] = []
    for _ in range(2):
        if end - position < 4:
            return None
        length = _INT32.unpack_from(buffer, position)[0]
        position += 4
        if length > end - position:
            return None
        found.append(None if length < 0 else buffer[position : position + length])
        position += max(0, length)
    return found[0], found[1]


def _put_record(out: bytearray, timestamp_delta: int, offset: int, key: Buffer | None, value: Buffer | None) -> None:
    body = bytearray(1)
    put_varint(body, timestamp_delta)
    put_varint(body, offset)
    for content in (key, value):
        put_varint(body, -1 if content is None else len(content))
        body += content or b""
    body.append(0)
    put_varint(out, len(body))
    out += body


def down_convert_in_python(
    buffer: Buffer,
    start: int,
    end: int,
    count: int,
    magic: int,
    flags: int,
    base_offset: int,
    base_timestamp: int,
    first_offset: int,
    limit: int,
    /,
) -> DownConverted:
    """Write `count` records of magic 2 as messages of `magic`, without those below `first_offset` and without headers.

    With ONE_TIMESTAMP all have the time `base_timestamp`, and magic 1 gets LogAppendTime; with INNER offsets of magic 1
    count from the first. More than `limit` bytes are the fault TOO_LARGE; after a fault there is no set.
    """
    if not 0 <= start <= end <= len(buffer):
        raise ValueError("start and end must lie within the buffer")
    out = bytearray()
    kept, first, last, top, size = 0, -1, -1, NO_TIMESTAMP, 0
    position = start
    for _ in range(count):
        try:
            timestamp, delta, key, value, position = _read_record(buffer, position, end)
        except ChainError as found:
            return found.fault, kept, first, last, top, b""
        offset = base_offset + delta
        if offset < first_offset:
            continue
        first = offset if not kept else first
        kept, last = kept + 1, offset
        timestamp = base_timestamp if flags & ONE_TIMESTAMP else wrapped_int64(base_timestamp + timestamp)
        top = max(top, timestamp)
        body = bytearray((magic, APPEND_TIME if magic and flags & ONE_TIMESTAMP else 0))
        if magic:
            body += _INT64.pack(timestamp)
        for content in (key, value):
            body += _INT32.pack(-1 if content is None else len(content)) + (content or b"")
        size += LOG_OVERHEAD + 4 + len(body)
        if size <= limit:
            stored = offset - first if magic and flags & INNER else offset
            out += _OFFSET_SIZE.pack(stored, 4 + len(body)) + _UINT32.pack(crc32(body)) + body
    if size > limit:
        return LegacyFault.TOO_LARGE, kept, first, last, top, b""
    return Fault.SOUND, kept, first, last, top, bytes(out)


def _read_record(buffer: Buffer, position: int, end: int) -> tuple[int, int, bytes | None, bytes | None, int]:
    """Timestamp delta, offset delta, key, value of the record at `position`, and where it ends. Raises ChainError."""
    size, position = read_varint(buffer, position, end, 32, Fault.TRUNCATED)
    if size < 1:
        raise ChainError(Fault.RECORD_SIZE)
    if end - position < size:
        raise ChainError(Fault.TRUNCATED)
    end = position + size
    timestamp, position = read_varint(buffer, position + 1, end, 64, Fault.RECORD_SIZE)
    delta, position = read_varint(buffer, position, end, 32, Fault.RECORD_SIZE)
    content: list[bytes | None] = []
    for _ in range(2):
        length, position = read_varint(buffer, position, end, 32, Fault.RECORD_SIZE)
        if length > end - position:
            raise ChainError(Fault.RECORD_SIZE)
        content.append(None if length < 0 else bytes(buffer[position : position + length]))
        position += max(0, length)
    if skip_headers(buffer, position, end) != end:
        raise ChainError(Fault.RECORD_SIZE)
    return timestamp, delta, content[0], content[1], end


try:
    from odradek.protocol import _legacy

    survey, up_convert, down_convert = _legacy.survey, _legacy.up_convert, _legacy.down_convert
except (ImportError, AttributeError):  # installed without a compiler, or built from older sources
    survey, up_convert, down_convert = survey_in_python, up_convert_in_python, down_convert_in_python
