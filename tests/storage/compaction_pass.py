"""A pass of the compaction over a log, and what a reader of that log finds before and after."""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

from odradek.protocol.batch import records
from odradek.protocol.offset_map import ENTRY_BYTES
from odradek.storage.cleanable import cleanable_part, request_for
from odradek.storage.compaction import CleanRequest
from odradek.storage.compaction_checkpoint import CompactionCheckpoint
from odradek.storage.config import MAX_INT64
from odradek.storage.disk import Folder
from odradek.storage.file_records import checked_batches, next_offset
from odradek.storage.log import Log
from odradek.storage.markers import read_marker

EVERYWHERE = 2**62


class Written(NamedTuple):
    """One record or marker of the model; `commit` is None for data, `transaction` numbers the transaction it is in."""

    offset: int
    producer_id: int
    transaction: int
    key: bytes | None = None
    value: bytes | None = None
    timestamp_ms: int = 0
    commit: bool | None = None


def a_pass(
    log: Log,
    now_ms: int,
    *,
    last_stable: int | None = None,
    everywhere: int = EVERYWHERE,
    keys: int = 1 << 20,
    high_watermark: int = MAX_INT64,
) -> CleanRequest | None:
    """The input of a pass over the log, None where there is nothing to clean; `keys` fit into its map."""
    unstable = log.producers.first_undecided_offset
    stable = log.end_offset if unstable is None else unstable
    part = cleanable_part(log, last_stable_offset=stable if last_stable is None else last_stable, now_ms=now_ms)
    if not part.dirty_bytes:
        return None
    return request_for(
        log,
        part,
        now_ms=now_ms,
        hash_key=bytes(16),
        compacted_everywhere=everywhere,
        high_watermark=high_watermark,
        map_bytes=(keys + 1) * ENTRY_BYTES,
        load_factor=1.0,
        bytes_per_second=float("inf"),
    )


def stored(log: Log) -> list[Written]:
    """All records in the log's files, markers too; the model's numbers of transactions are missing."""
    found = []
    for segment in log.segments:
        for buffer, place, _, header in checked_batches(segment):
            marker = read_marker(buffer, place, header) if header.is_control else None
            found += [
                Written(
                    each.offset,
                    header.producer_id,
                    -1,
                    None if marker else each.key,
                    None if marker else each.value,
                    each.timestamp_ms,
                    None if marker is None else marker.commits,
                )
                for each in records(buffer, place)
            ]
    return found


def committed_view(log: Log) -> list[Written]:
    """The records that a read_committed consumer reads by its rule: the list of aborted transactions."""
    aborted = sorted((first, producer_id) for producer_id, first in log.search.aborted_transactions(0, log.end_offset))
    skipped: set[int] = set()
    seen = []
    for segment in log.segments:
        for buffer, place, _, header in checked_batches(segment):
            while aborted and aborted[0][0] <= header.last_offset:
                skipped.add(aborted.pop(0)[1])
            if header.is_control:
                skipped.discard(header.producer_id)
            elif not (header.is_transactional and header.producer_id in skipped):
                seen += [
                    Written(each.offset, header.producer_id, -1, each.key, each.value, each.timestamp_ms)
                    for each in records(buffer, place)
                ]
    return seen


def folded(view: list[Written]) -> dict[bytes | None, bytes]:
    """The map of keys to values after reading the whole log."""
    values: dict[bytes | None, bytes] = {}
    for each in view:
        if each.value is None:
            values.pop(each.key, None)
        else:
            values[each.key] = each.value
    return values


def check_gaps(log: Log) -> None:
    """A gap between two segments must be one that the compaction checkpoint explains. Raises AssertionError."""
    checkpoint = CompactionCheckpoint(Folder(log.segments[0]._folder.disk, log.directory))
    for segment, behind in pairwise(log.segments):
        end = next_offset(segment)
        if end < behind.base_offset:
            assert checkpoint.end_of(segment.base_offset, segment.size) == behind.base_offset
        else:
            assert end == behind.base_offset
