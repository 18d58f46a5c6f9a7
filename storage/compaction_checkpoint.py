"""The compaction checkpoint of a log: the ends of segments and starts of epochs that compaction removed from batches.

    compaction-checkpoint     version 0, a count, then a line for each entry:
                              `segment BASE END SIZE`     a compacted segment of SIZE bytes, from BASE to END
                              `epoch EPOCH START`         a leader epoch and its start offset

Compaction may remove the last batches of a segment and the first ones of an epoch, as Kafka's cleaner does. Then
recovery cannot conclude from the batches whether a gap between two segments is a loss, nor where an epoch began. This
file stores both, durably, before the compacted segments take their places (`swap.py`).

An entry of a segment holds only for a file of exactly its size; that file was durable before the entry was written. The
epochs up to and including one are right for every log that has a batch of that one, since all such logs agree on what
is below it (KIP-101). So outdated entries do no harm: those of a pass that was never put in place, of segments that
were deleted since, or of a time before Apache Kafka had the directory (Kafka ignores the file).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from odradek.storage.checkpoints import CorruptFile, decode_rows, encode_rows
from odradek.storage.disk import Folder

_log = logging.getLogger(__name__)

COMPACTION_CHECKPOINT: Final = "compaction-checkpoint"


class CompactedSegment(NamedTuple):
    """A segment that compaction wrote; `end_offset` is where the next one begins, `size` is in bytes."""

    base_offset: int
    end_offset: int
    size: int


class CompactionCheckpoint:
    """The checkpoint of one log; empty where there is no file."""

    __slots__ = ("_folder", "_segments", "epochs")

    def __init__(self, folder: Folder, *, exists: bool = True) -> None:
        """Read the file; an unreadable one counts as empty. Raises OSError."""
        self._folder = folder
        self._segments: frozenset[CompactedSegment] = frozenset()
        self.epochs: list[tuple[int, int]] = []
        """(epoch, start offset), oldest first."""
        data = folder.read(COMPACTION_CHECKPOINT) if exists else None
        if data is None:
            return
        try:
            self._segments, self.epochs = _decode(data)
        except CorruptFile as error:
            _log.warning("ignoring an unreadable checkpoint path=%s error=%s", folder / COMPACTION_CHECKPOINT, error)

    def end_of(self, base_offset: int, size: int) -> int | None:
        """The end offset of the compacted segment at `base_offset` that has exactly `size` bytes, if there is one."""
        ends = [each.end_offset for each in self._segments if (each.base_offset, each.size) == (base_offset, size)]
        return max(ends, default=None)

    def add_segments(
        self, present: Iterable[tuple[int, int]], added: Iterable[CompactedSegment], epochs: Sequence[tuple[int, int]]
    ) -> None:
        """Add segments before they take their places, durably, with all epochs of the log. Raises OSError.

        `present` are base offset and size of the segments that the log has now; entries of others are dropped.
        """
        sizes = set(present)
        kept = {each for each in self._segments if (each.base_offset, each.size) in sizes}
        self._replace(kept | set(added), epochs)

    def set_epochs(self, epochs: Sequence[tuple[int, int]]) -> None:
        """Replace the epochs, durably. Raises OSError."""
        if epochs != self.epochs:
            self._replace(self._segments, epochs)

    def truncate(self, offset: int) -> None:
        """Drop the segments that reach beyond `offset`, durably, before the log is truncated there. Raises OSError."""
        kept = {each for each in self._segments if each.end_offset <= offset}
        if len(kept) < len(self._segments):
            self._replace(kept, self.epochs)

    def _replace(self, segments: Iterable[CompactedSegment], epochs: Sequence[tuple[int, int]]) -> None:
        segments, epochs = frozenset(segments), list(epochs)
        self._folder.replace(COMPACTION_CHECKPOINT, _encode(segments, epochs), sync=True)
        self._segments, self.epochs = segments, epochs


def _encode(segments: Iterable[CompactedSegment], epochs: Iterable[tuple[int, int]]) -> bytes:
    rows = [f"segment {base} {end} {size}" for base, end, size in sorted(segments)]
    rows += [f"epoch {epoch} {start}" for epoch, start in epochs]
    return encode_rows(rows)


def _decode(data: bytes) -> tuple[frozenset[CompactedSegment], list[tuple[int, int]]]:
    segments: set[CompactedSegment] = set()
    epochs: list[tuple[int, int]] = []
    for row in decode_rows(data):
        try:
            match row:
                case ["segment", base, end, size]:
                    segments.add(CompactedSegment(int(base), int(end), int(size)))
                case ["epoch", epoch, start]:
                    epochs.append((int(epoch), int(start)))
                case _:
                    raise CorruptFile(f"{row}, where a segment or an epoch is read")
        except ValueError as error:
            raise CorruptFile(f"{row}: {error}") from None
    return frozenset(segments), epochs
