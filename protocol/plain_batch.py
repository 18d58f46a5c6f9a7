"""Recognizes plain batches: what nearly every Produce request contains, validated with one call.

A plain batch is a whole one of magic 2, without compression and control records, whose base offset is 0, whose records
are sound, whose maximum timestamp is that of its records and whose checksum matches. A producer's batch has a sequence.
A leader then has to check its size only, and changes nothing in it; for any other batch it goes from rule to rule
(`storage/validation.py`).
"""

from __future__ import annotations

from typing import Final

from odradek.protocol import chain
from odradek.protocol.batch import (
    CODEC_MASK,
    CONTROL,
    HEADER_SIZE,
    LOG_APPEND_TIME,
    MAGIC,
    NO_PRODUCER_ID,
    Buffer,
    Header,
    crc_ok,
    read_header,
)

NOT_PLAIN: Final = CODEC_MASK | LOG_APPEND_TIME | CONTROL
MANY_RECORDS: Final = 50_000
"""A walk along more takes so long that other threads have to run meanwhile. `_chain.c` has the same numbers."""
SHORT_BATCH: Final = 4096
"""C computes the checksum of a batch that has no more bytes. `checksum.crc32c` is faster for longer ones."""


def plain_header_in_python(batch: Buffer) -> Header | None:
    """The header of a plain batch; None for any other bytes."""
    if len(batch) < HEADER_SIZE:
        return None
    header = read_header(batch)
    if (
        header.base_offset
        or header.size != len(batch)
        or header.magic != MAGIC
        or header.attributes & NOT_PLAIN
        or not 0 < header.record_count == header.last_offset_delta + 1
        or header.record_count > MANY_RECORDS
        or (header.producer_id > NO_PRODUCER_ID and header.base_sequence < 0)
    ):
        return None
    count, timestamp = header.record_count, header.base_timestamp
    fault, _, _, max_timestamp, _, _ = chain.scan(batch, HEADER_SIZE, len(batch), count, timestamp, 0, 0, 0)
    return None if fault or max_timestamp != header.max_timestamp or not crc_ok(batch, 0, header) else header


def _in_c(batch: Buffer) -> Header | None:
    fields = _chain.plain_header(batch)
    if fields is None:
        return None
    header: Header = _new(Header, fields)
    return header if len(batch) <= SHORT_BATCH or crc_ok(batch, 0, header) else None


_new = tuple.__new__

try:
    from odradek.protocol import _chain

    _chain.own_batch  # noqa: B018  # absent from older builds, whose `plain_header` verifies no checksum
    plain_header = _in_c
except (ImportError, AttributeError):  # installed without a compiler, or built from older sources
    plain_header = plain_header_in_python
