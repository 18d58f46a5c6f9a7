"""The latest batches of a segment: their positions in memory, so that a consumer near the end of a log is served with
one read of the file.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from odradek.storage.log import Log

MOST_REMEMBERED: Final = 128


class RecentBatches:
    """The last offset and the position of each batch from `first_offset` on; -1 as that where none is remembered.

    The segment adds a batch to both arrays itself, because each append does so.
    """

    __slots__ = ("first_offset", "last_offsets", "positions")

    def __init__(self, first_offset: int) -> None:
        self.first_offset = first_offset
        self.last_offsets = array("q")
        self.positions = array("q")

    def drop_older_half(self) -> None:
        """Forget the positions of the older batches."""
        half = len(self.last_offsets) // 2
        self.first_offset = self.last_offsets[half - 1] + 1
        del self.last_offsets[:half], self.positions[:half]

    def has(self, offset: int) -> bool:
        """Whether the batch that reaches to `offset` or beyond is remembered, if there is one."""
        return 0 <= self.first_offset <= offset

    def find(self, offset: int, end: int) -> tuple[int, int] | None:
        """Position and size of the first batch that reaches to `offset` or beyond; None where all end below it. `end`
        is the size of the segment.
        """
        number = bisect_left(self.last_offsets, offset)
        if number == len(self.last_offsets):
            return None
        position = self.positions[number]
        return position, (self.positions[number + 1] if number + 1 < len(self.positions) else end) - position

    def find_all(self, offset: int, end_offset: int, end: int) -> tuple[int, int] | None:
        """Position and size of the batches from that of `find` on that end below `end_offset`; None without one."""
        first, behind = bisect_left(self.last_offsets, offset), bisect_left(self.last_offsets, end_offset)
        if first >= behind:
            return None
        position = self.positions[first]
        return position, (self.positions[behind] if behind < len(self.positions) else end) - position


def read_recent(log: Log, offset: int, max_bytes: int, *, end_offset: int) -> bytes | None:
    """The bytes that `log.read` finds, if all batches from `offset` to `end_offset` are remembered and have at most
    `max_bytes`; None otherwise, or where the log or its disk has failed: `log.read` takes these cases.
    """
    segment = log.active
    recent = segment.recent
    if (
        log.failure is not None
        or not log.start_offset <= offset <= end_offset <= log.end_offset
        or not recent.has(offset)
    ):
        return None
    found = recent.find_all(offset, end_offset, segment.size)
    if found is None or found[1] > max_bytes:
        return None
    position, size = found
    try:
        data = segment.file.read(size, position)
    except OSError:
        return None
    return data if len(data) == size else None
