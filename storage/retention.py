"""Selects the old segments that a log may delete (UnifiedLog.deleteOldSegments); the log deletes them.

A segment is deletable when the log starts behind it, when the log is larger than `retention.bytes` without it, or when
its latest record is older than `retention.ms`. Segments are deleted oldest first, never one that reaches to the high
watermark or beyond: the log's start must not pass the offset that all replicas have. The active segment is deletable,
too, once a new one has replaced it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from odradek.storage.config import LogConfig
from odradek.storage.segment import Segment


def count_deletable(
    segments: Sequence[Segment],
    config: LogConfig,
    *,
    start_offset: int,
    end_offset: int,
    high_watermark: int,
    now_ms: int,
) -> int:
    """The number of deletable segments. Raises OSError where a segment has no timestamps and no file."""

    def leading(start: int, goes: Callable[[int, Segment], bool]) -> int:
        for number in range(start, len(segments)):
            segment = segments[number]
            last = number == len(segments) - 1
            upper_bound = end_offset if last else segments[number + 1].base_offset
            if upper_bound > high_watermark or (last and not segment.size) or not goes(number, segment):
                return number
        return len(segments)

    def starts_behind(number: int, _: Segment) -> bool:
        return number + 1 < len(segments) and segments[number + 1].base_offset <= start_offset

    count = leading(0, starts_behind)
    if not config.deletes:
        return count
    if config.retention_bytes >= 0:
        excess = sum(segment.size for segment in segments[count:]) - config.retention_bytes

        def exceeds(_: int, segment: Segment) -> bool:
            nonlocal excess
            excess -= segment.size
            return excess >= 0

        count = leading(count, exceeds)
    if config.retention_ms >= 0:
        count = leading(count, lambda _, segment: now_ms - segment.largest_timestamp() > config.retention_ms)
    return count
