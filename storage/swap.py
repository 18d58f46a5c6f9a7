"""Replaces segments by the compacted ones that were made from them (Kafka: LocalLog.replaceSegments).

A crash at any step, and a loss of power that keeps any of the renames since the last sync, must leave a log that is
whole. So, for all groups of a pass together:

0. The compaction checkpoint stores where the compacted segments end, and where epochs begin of which they may lack the
   first batch (`compaction_checkpoint.py`); it is durable before anything else happens.
1. `.cleaned` becomes `.swap`, the indexes first and the log last, and the folder is synced. From here on a load
   finishes the swap (`recovery.py`); before this point a load removes the files.
2. The old files get `.deleted`, and the folder is synced: without that a load could find a compacted segment and some
   of the old ones, truncate the former where the latter begin, and lose the rest.
3. `.swap` becomes the plain name, the indexes first and the log last, and the folder is synced before any file is
   deleted or another pass begins.

All of it may run in a thread. Meanwhile, the old segments serve readers: their files are open and their indexes in
memory (`folder_changes.py`), and a reader with a position in an old file keeps that file open.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from odradek.storage.compaction import CLEANED_SUFFIX, CleanedGroup
from odradek.storage.compaction_checkpoint import CompactedSegment, CompactionCheckpoint
from odradek.storage.disk import Folder
from odradek.storage.segment import Segment
from odradek.storage.segments import LogSegments

SWAP_SUFFIX: Final = ".swap"


def still_there(segments: LogSegments, groups: Sequence[CleanedGroup]) -> bool:
    """Whether a log still has all segments that are to be replaced, adjacent and closed to writes."""
    bases = [segment.base_offset for segment in segments if segment is not segments.active]
    for group in groups:
        if group.base_offset not in bases:
            return False
        first = bases.index(group.base_offset)
        if tuple(bases[first : first + len(group.replaces)]) != group.replaces:
            return False
    return True


def note(
    checkpoint: CompactionCheckpoint,
    segments: Iterable[Segment],
    groups: Sequence[CleanedGroup],
    epochs: Sequence[tuple[int, int]],
) -> None:
    """Write the compaction checkpoint for the swap that follows. Raises OSError."""
    if groups:
        present = [(segment.base_offset, segment.size) for segment in segments]
        added = [CompactedSegment(group.base_offset, group.end_offset, group.size) for group in groups]
        checkpoint.add_segments(present, added, epochs)


def swap_in(folder: Folder, fresh: Sequence[Segment], replaced: Iterable[Iterable[Segment]]) -> list[str]:
    """Carry out the swap after `note`, in the folder: each of `fresh` takes the place of the segments in its row of
    `replaced`.

    Returns the names of the files that can be deleted. Raises OSError, after which the log on disk is whole, but its
    segments have other names.
    """
    for segment in fresh:
        _rename(folder, segment, CLEANED_SUFFIX, SWAP_SUFFIX)
    folder.sync()
    names = [name for row in replaced for segment in row for name in segment.mark_deleted()]
    folder.sync()
    for segment in fresh:
        _rename(folder, segment, SWAP_SUFFIX, "")
    folder.sync()
    return names


def _rename(folder: Folder, segment: Segment, old_suffix: str, new_suffix: str) -> None:
    for name in reversed(segment.file_names()):
        folder.rename(name + old_suffix, name + new_suffix)
