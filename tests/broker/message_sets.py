"""Message sets of magic 0 and 1 as old clients send them, valid and invalid, and the records read back, in a comparable
form.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from typing import Any

from odradek.protocol.batch import HEADER_SIZE, LOG_OVERHEAD, headers, records
from odradek.protocol.compression import Codec, break_lz4_header, compress, decompress, mend_lz4_header

THEN_MS = 1_700_000_000_000
APPEND_TIME = 8
RECENT_MS = 300_000


def message(
    value: bytes | None = b"value",
    key: bytes | None = b"key",
    *,
    magic: int = 1,
    offset: int = 0,
    at_ms: int = THEN_MS,
    attributes: int = 0,
) -> bytes:
    """One message; magic 0 has no timestamp."""
    body = bytes((magic, attributes)) + (struct.pack(">q", at_ms) if magic else b"")
    for content in (key, value):
        body += struct.pack(">i", -1 if content is None else len(content)) + (content or b"")
    return framed(body, offset)


def framed(body: bytes, offset: int = 0) -> bytes:
    """A message of these bytes, from its magic on."""
    return struct.pack(">qiI", offset, 4 + len(body), zlib.crc32(body)) + body


def wrapper(
    inner: bytes,
    codec: int,
    *,
    magic: int = 1,
    offset: int = 0,
    at_ms: int = THEN_MS,
    attributes: int = 0,
    fault: bool = True,
) -> bytes:
    """A compressed message around a set; with magic 0 the header of an lz4 frame has the wrong checksum (`fault`)."""
    value = bytes(compress(codec, inner))
    if codec == Codec.LZ4 and magic == 0 and fault:
        value = bytes(break_lz4_header(value))
    return message(value, None, magic=magic, offset=offset, at_ms=at_ms, attributes=attributes | codec)


def damaged(data: bytes, position: int) -> bytes:
    """The bytes with one bit flipped."""
    return data[:position] + bytes((data[position] ^ 1,)) + data[position + 1 :]


def messages_in(data: bytes, base: int | None = None) -> Iterator[tuple[Any, ...]]:
    """The messages that a reader finds in a set: (magic, attributes, offset, time, key, value or the set inside,
    checksum holds)…

    A message that is cut off is represented by the number of its bytes that are there.
    """
    position = 0
    while position < len(data):
        if len(data) - position < LOG_OVERHEAD:
            yield "cut", len(data) - position
            return
        offset, size = struct.unpack_from(">qi", data, position)
        end = position + LOG_OVERHEAD + size
        if end > len(data):
            yield "cut", offset, size, len(data) - position, data[position + LOG_OVERHEAD :].strip(b"\0") != b""
            return
        crc, magic, attributes = struct.unpack_from(">IBB", data, position + LOG_OVERHEAD)
        holds = zlib.crc32(data[position + 16 : end]) == crc
        at = position + 18
        time = None
        if magic:
            time = struct.unpack_from(">q", data, at)[0]
            at += 8
        key, at = _bytes(data, at)
        value, at = _bytes(data, at)
        codec = attributes & 7
        if codec:
            assert value is not None
            notified = value
            if codec == Codec.LZ4 and magic == 0:
                value = bytes(mend_lz4_header(value))
                assert value != notified, "an lz4 frame of magic 0 has the fault that its consumers expect"
            inside: Any = tuple(messages_in(bytes(decompress(codec, value, 1 << 27))))
        else:
            inside = value
        yield magic, attributes, offset, time, key, inside, holds, at == end
        position = end


def _bytes(data: bytes, at: int) -> tuple[bytes | None, int]:
    (length,) = struct.unpack_from(">i", data, at)
    return (None, at + 4) if length < 0 else (data[at + 4 : at + 4 + length], at + 4 + length)


def batches_in(data: bytes, now_ms: int) -> list[Any]:
    """The batches of a log: all header fields except checksum and size, and the records; an append's own time is "now".

    A batch without codec includes its bytes, too.
    """
    found: list[Any] = []
    for position, header in headers(data):
        shown: dict[str, Any] = header._asdict()
        del shown["crc"]
        if header.codec:
            del shown["batch_length"]
        stamped = abs(now_ms - header.max_timestamp) < RECENT_MS
        if stamped:
            shown["max_timestamp"] = "now"
        raw = None if header.codec or stamped else data[position + HEADER_SIZE : position + header.size].hex()
        kept = [
            each._replace(timestamp_ms=0) if abs(now_ms - each.timestamp_ms) < RECENT_MS else each
            for each in records(data, position)
        ]
        found.append((shown, raw, kept))
    return found
