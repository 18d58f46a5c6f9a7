"""Selects the part of a log that the cleaner may compact, and its urgency (Kafka: LogCleanerManager; KIP-58, KIP-354).

The cleaner never compacts the active segment, offsets from the last stable offset on, or segments younger than
min.compaction.lag.ms. A log is due when its dirty part is large enough (min.cleanable.dirty.ratio), or older than
max.compaction.lag.ms.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Final, NamedTuple

from odradek.storage.compaction import CleanRequest, SourceSegment
from odradek.storage.config import MAX_INT64
from odradek.storage.log import Log
from odradek.storage.segment import Segment

NO_DATA: Final = -1


class Cleanable(NamedTuple):
    """The part of a log from `first_dirty` to `first_uncleanable`, in bytes and in urgency.

    `delay_ms` is by how much max.compaction.lag.ms is exceeded, 0 where it is not.
    """

    first_dirty: int
    first_uncleanable: int
    clean_bytes: int
    dirty_bytes: int
    delay_ms: int

    @property
    def dirty_ratio(self) -> float:
        """The share of dirty bytes, 0 where there are no bytes at all."""
        total = self.clean_bytes + self.dirty_bytes
        return self.dirty_bytes / total if total else 0.0

    def is_due(self, min_ratio: float) -> bool:
        """Whether the log should be cleaned now."""
        return self.dirty_bytes > 0 and (self.delay_ms > 0 or self.dirty_ratio > min_ratio)


def cleanable_part(log: Log, *, last_stable_offset: int, now_ms: int) -> Cleanable:
    """The part of a log that can be cleaned. Raises OSError, CorruptFile."""
    segments = log.segments
    first_dirty = log.cleaned_to
    if not log.start_offset <= first_dirty <= log.end_offset:
        first_dirty = log.start_offset
    closed = segments[:-1]
    ends = [segment.base_offset for segment in segments[1:]]
    dirty = [segment for segment, end in zip(closed, ends, strict=True) if end > first_dirty]
    limit = min(last_stable_offset, log.active.base_offset)
    lag_ms = log.config.min_compaction_lag_ms
    if lag_ms > 0:
        young = (each.base_offset for each in dirty if each.largest_timestamp() > now_ms - lag_ms)
        limit = min(limit, next(young, limit))
    # Whole segments only: the one that holds the limit is not cleaned.
    first_uncleanable = max((base for base in (segments[0].base_offset, *ends) if base <= limit), default=limit)
    clean_bytes = sum(segment.size for segment, end in zip(closed, ends, strict=True) if end <= first_dirty)
    dirty_bytes = sum(segment.size for segment in dirty if segment.base_offset < first_uncleanable)
    return Cleanable(first_dirty, first_uncleanable, clean_bytes, dirty_bytes, _delay_ms(log, dirty, now_ms))


def _delay_ms(log: Log, dirty: list[Segment], now_ms: int) -> int:
    if log.config.max_compaction_lag_ms == MAX_INT64:
        return 0
    written = [segment.first_timestamp for segment in dirty]
    earliest = min((each for each in written if each > 0), default=MAX_INT64)
    return max(0, now_ms - log.config.max_compaction_lag_ms - earliest)


def request_for(
    log: Log,
    part: Cleanable,
    *,
    now_ms: int,
    hash_key: bytes,
    compacted_everywhere: int,
    high_watermark: int = MAX_INT64,
    map_bytes: int,
    load_factor: float,
    bytes_per_second: float,
    written_at_once: int = 1 << 20,
) -> CleanRequest:
    """The request with which a worker process cleans that part of a log. Raises OSError, CorruptFile."""
    segments = log.segments
    sources = tuple(
        SourceSegment(segment.base_offset, segment.size, behind.base_offset)
        for segment, behind in pairwise(segments)
        if behind.base_offset <= part.first_uncleanable
    )
    remembered = {
        each.producer_id: (each.epoch, each.batches[-1].last_offset if each.batches else NO_DATA)
        for each in log.producers.active()
    }
    replicated = {
        each.producer_id: max((b.last_offset for b in each.batches if b.last_offset < high_watermark), default=NO_DATA)
        for each in log.producers.active()
        if each.batches and each.batches[-1].last_offset >= high_watermark
    }
    return CleanRequest(
        path=log.directory,
        config=log.config,
        sources=sources,
        first_dirty=part.first_dirty,
        now_ms=now_ms,
        hash_key=hash_key,
        compacted_everywhere=compacted_everywhere,
        remembered=remembered,
        replicated=replicated,
        aborted=tuple(entry for segment in segments for entry in segment.aborted.entries()),
        map_bytes=map_bytes,
        load_factor=load_factor,
        bytes_per_second=bytes_per_second,
        written_at_once=written_at_once,
        generation=log.generation,
    )
