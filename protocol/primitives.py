"""Primitives of the wire format: unsigned varints, tagged fields, and errors for lengths (Kafka: ByteUtils).

Compiled encoders and decoders handle the common case in line and call these functions for the rest. Varints are those
of Kafka's `ByteUtils`: seven bits to a byte, lowest first. The lengths, counts and tags that they carry are 32-bit
integers of which the sign bit is never set, so five bytes are the longest. Tagged fields are KIP-482's.
"""

from __future__ import annotations

from collections.abc import Iterable
from operator import itemgetter
from typing import Final

Bytes = bytes | bytearray | memoryview
"""The input of a decoder."""

MAX_UVARINT: Final = 0x7FFF_FFFF
MAX_STRING: Final = 0x7FFF
"""The longest string in bytes; flexible versions could write more, and Kafka rejects it there too."""

BYTE: Final = tuple(bytes((value,)) for value in range(128))
"""The varints of one byte."""


class MalformedError(Exception):
    """The reason why a field cannot be read. The decoder adds field and position: see ProtocolError."""


def read_uvarint(buffer: Bytes, pos: int) -> tuple[int, int]:
    """Read the unsigned varint at `pos`; returns it and the position after it. Raises MalformedError, IndexError."""
    value = buffer[pos]
    return (value, pos + 1) if value < 128 else read_long_uvarint(buffer, pos + 1, value)


def read_long_uvarint(buffer: Bytes, pos: int, first: int) -> tuple[int, int]:
    """Read the rest of a varint of which `first`, just before `pos`, was the first byte, 128 or more."""
    value = first & 0x7F
    for shift in (7, 14, 21, 28):
        byte = buffer[pos]
        pos += 1
        if byte < 128:
            value |= byte << shift
            if value > MAX_UVARINT:
                break
            return value, pos
        value |= (byte & 0x7F) << shift
    raise MalformedError(f"a varint beyond {MAX_UVARINT}")


def read_long_length(buffer: Bytes, pos: int, first: int) -> tuple[int, int]:
    """As `read_long_uvarint`, for the length of a nullable field: in Kafka 2**31 and more is negative, so null."""
    value = first & 0x7F
    for shift in (7, 14, 21, 28):
        byte = buffer[pos]
        pos += 1
        value |= (byte & 0x7F) << shift
        if byte < 128:
            value &= 0xFFFF_FFFF
            return (value if value <= MAX_UVARINT else value - (1 << 32)), pos
    raise MalformedError("a varint of more than five bytes")


def uvarint(value: int) -> bytes:
    """The varint of `value`. Raises ValueError outside 0 to 2**31 - 1."""
    if not 0 <= value <= MAX_UVARINT:
        raise ValueError(f"{value} does not fit a varint: 0 to {MAX_UVARINT}")
    out = bytearray()
    while value > 127:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def write_tags(out: bytearray, tags: Iterable[tuple[int, bytes | bytearray]]) -> None:
    """Append a section of tagged fields, lowest tag first. Raises ValueError for a tag outside 0 to 2**31 - 1."""
    ordered = sorted(tags, key=itemgetter(0))
    out += uvarint(len(ordered))
    for tag, data in ordered:
        out += uvarint(tag)
        out += uvarint(len(data))
        out += data


def bad_length(length: int, left: int) -> MalformedError:
    """The error for a length that is negative or beyond the bytes that are left."""
    if length == -1:
        return MalformedError("null, and null is not a value here")
    if length < 0:
        return MalformedError(f"a negative length: {length}")
    return MalformedError(f"{length} bytes announced, {left} left")


def bad_count(count: int, smallest: int, left: int) -> MalformedError:
    """The error for an array whose elements, each at least `smallest` bytes, cannot fit the bytes that are left."""
    if count < 0:
        return bad_length(count, left)
    return MalformedError(f"{count} elements of at least {smallest} bytes announced, {left} bytes left")
