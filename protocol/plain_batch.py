"""Recognizes plain batches: what nearly every Produce request contains, validated with one call.

A plain batch is a whole one of magic 2, without compression and control records, whose base offset is 0, whose records
are sound and whose maximum timestamp is that of its records. A producer's batch has a sequence. A leader then has to
check its size and its checksum only, and changes nothing in it; for any other batch it goes from rule to rule
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
    read_header,
)

NOT_PLAIN: Final = CODEC_MASK | LOG_APPEND_TIME | CONTROL
MANY_RECORDS: Final = 50_000
"""A walk along more takes so long that other threads have to run meanwhile. `_chain.c` has the same numbers."""


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
    return None if fault or max_timestamp != header.max_timestamp else header


def _in_c(batch: Buffer) -> Header | None:
    fields = _chain.plain_header(batch)
    return None if fields is None else _new(Header, fields)


_new = tuple.__new__

try:
    from odradek.protocol import _chain

    _chain.plain_header  # noqa: B018  # absent where the extension was built from other sources
    plain_header = _in_c
except (ImportError, AttributeError):  # installed without a compiler, or built from older sources
    plain_header = plain_header_in_python
