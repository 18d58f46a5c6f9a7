"""Makes the batches that a broker writes itself: uncompressed records of one time, without a producer."""

from __future__ import annotations

from typing import Final

from odradek.protocol.batch import Header, Record, build, read_header

Entries = list[tuple[bytes, bytes | None]]
"""Keys and values; a value of None is a tombstone."""


def own_batch_in_python(entries: Entries, timestamp_ms: int) -> tuple[bytearray, Header]:
    """The same as `build` makes of records with these keys and values, all of one time, and its header.

    Such a batch needs no checks. There is at least one record.
    """
    batch = build([Record(offset, timestamp_ms, key, value) for offset, (key, value) in enumerate(entries)])
    return batch, read_header(batch)


def _in_c(entries: Entries, timestamp_ms: int) -> tuple[bytearray, Header]:
    batch, fields = _chain.own_batch(entries, timestamp_ms)
    return batch, _new(Header, fields)


_new: Final = tuple.__new__

try:
    from odradek.protocol import _chain

    _chain.own_batch  # noqa: B018  # absent where the extension was built from other sources
    own_batch = _in_c
except (ImportError, AttributeError):  # installed without a compiler, or built from older sources
    own_batch = own_batch_in_python
