"""Records of all kinds, the same bytes for both brokers."""

from __future__ import annotations

import struct
import zlib
from typing import Any, Final

from odradek.protocol.batch import Record, build

THEN_MS: Final = 1_700_000_000_000
"""When all records were made."""


def batch_of(*values: bytes | None, key: bytes | None = b"key", at_ms: int = THEN_MS, **options: Any) -> bytes:
    """A batch as a producer sends it."""
    return bytes(build([Record(n, at_ms + n, key, value, []) for n, value in enumerate(values)], **options))


def with_headers() -> bytes:
    """A batch whose records have headers, an empty key, and neither key nor value."""
    return bytes(
        build(
            [
                Record(0, THEN_MS, b"", b"", [("a", b"1"), ("a", None), ("", b"")]),
                Record(1, THEN_MS + 5, None, None, []),
                Record(2, THEN_MS - 5, b"k", b"v", [("ü", b"x" * 200)]),
            ]
        )
    )


def control(*, producer_id: int = 77) -> bytes:
    """A batch that only a broker may write."""
    return batch_of(
        struct.pack(">hi", 0, 1),
        key=struct.pack(">hh", 0, 1),
        producer_id=producer_id,
        producer_epoch=0,
        transactional=True,
        control=True,
    )


def patched(data: bytes, position: int, value: bytes) -> bytes:
    """The same bytes with others at one place; checksums are left as they were."""
    return data[:position] + value + data[position + len(value) :]


def resealed(data: bytes, position: int, value: bytes) -> bytes:
    """As `patched`, for a batch of magic 2, and the checksum holds."""
    from crc32c import crc32c

    changed = patched(data, position, value)
    return patched(changed, 17, struct.pack(">I", crc32c(changed[21:])))


def message(
    value: bytes | None,
    key: bytes | None = b"key",
    *,
    magic: int = 1,
    offset: int = 0,
    at_ms: int = THEN_MS,
    attributes: int = 0,
) -> bytes:
    """One message of a message set, as it was before record batches."""
    body = struct.pack(">bb", magic, attributes)
    if magic:
        body += struct.pack(">q", at_ms)
    for each in (key, value):
        body += struct.pack(">i", -1 if each is None else len(each)) + (each or b"")
    body = struct.pack(">I", zlib.crc32(body)) + body
    return struct.pack(">qi", offset, len(body)) + body


def message_set(*values: bytes | None, magic: int = 1, **options: Any) -> bytes:
    """Several messages."""
    return b"".join(message(value, magic=magic, offset=n, **options) for n, value in enumerate(values))


def wrapped(*values: bytes, magic: int = 1) -> bytes:
    """Messages inside a compressed one (gzip)."""
    packer = zlib.compressobj(wbits=31)
    inner = b"".join(message(value, magic=magic, offset=n) for n, value in enumerate(values))
    return message(packer.compress(inner) + packer.flush(), None, magic=magic, offset=len(values) - 1, attributes=1)
