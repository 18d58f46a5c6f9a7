"""Finds the readable batches of a damaged log file, also behind damage, and reads only.

A reader of a log stops at the first bad byte. Here the search continues behind it, until a header with possible values
has a checksum that matches its batch.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from odradek.protocol.batch import HEADER_SIZE, is_framed, read_header
from odradek.storage.read_files import ReadFile
from odradek.storage.reading import Batch

_AT_ONCE: Final = 1 << 20
# An offset below 2**56, a length that is not negative, magic 2, and attributes without an undefined high byte.
_POSSIBLE_HEADER: Final = re.compile(rb"\x00.{7}[\x00-\x7f].{7}\x02.{4}\x00", re.DOTALL)


class Unreadable(NamedTuple):
    """Bytes of a file from `position` to before `end` in which no whole batch is."""

    path: str
    position: int
    end: int


def pieces(path: str) -> Iterator[Batch | Unreadable]:
    """The batches of a file whose checksum matches, and the ranges between them, in the order of their positions.

    One batch is in memory at a time. Raises OSError.
    """
    with ReadFile(path) as file:
        size, position = file.size, 0
        while position < size:
            batch = _batch_at(file, position, size)
            if batch is None:
                found = _next_batch(file, position + 1, size)
                yield Unreadable(path, position, size if found is None else found.position)
                if found is None:
                    return
                batch = found
            yield batch
            position = batch.position + batch.header.size


def _batch_at(file: ReadFile, position: int, end: int) -> Batch | None:
    head = file.read(HEADER_SIZE, position)
    if len(head) < HEADER_SIZE:
        return None
    header = read_header(head)
    if not is_framed(header) or header.size > end - position:
        return None
    batch = Batch(file.path, position, header, memoryview(file.read(header.size, position)), 0)
    return batch if batch.checksum_holds else None


def _next_batch(file: ReadFile, position: int, end: int) -> Batch | None:
    """The first batch that begins at `position` or behind it."""
    while end - position >= HEADER_SIZE:
        chunk = file.read(_AT_ONCE + HEADER_SIZE, position)
        match = _POSSIBLE_HEADER.search(chunk)
        while match is not None and match.start() < _AT_ONCE:
            batch = _batch_at(file, position + match.start(), end)
            if batch is not None:
                return batch
            match = _POSSIBLE_HEADER.search(chunk, match.start() + 1)
        position += _AT_ONCE
    return None
