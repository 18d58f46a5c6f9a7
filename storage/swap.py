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

No reader can run in between: the caller does all of it without interruption, and a reader with a position in an old
file keeps that file open.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from odradek.storage.compaction import CLEANED_SUFFIX, CleanedGroup
from odradek.storage.compaction_checkpoint import CompactedSegment, CompactionCheckpoint
from odradek.storage.config import LogConfig
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
    segments: LogSegments,
    groups: Sequence[CleanedGroup],
    epochs: Sequence[tuple[int, int]],
) -> None:
    """Write the compaction checkpoint for the swap that follows. Raises OSError."""
    if groups:
        present = [(segment.base_offset, segment.size) for segment in segments]
        added = [CompactedSegment(group.base_offset, group.end_offset, group.size) for group in groups]
        checkpoint.add_segments(present, added, epochs)


def swap_in(
    folder: Folder, segments: LogSegments, groups: Sequence[CleanedGroup], config: LogConfig
) -> tuple[list[str], list[int]]:
    """Carry out the swap after `note`, in the folder and in `segments`.

    Returns the names of the files that can be deleted, and the base offsets that no segment has any more. Raises
    OSError, after which the log on disk is whole, but `segments` no longer matches it.
    """
    fresh = [Segment(folder, group.base_offset, group.size, config) for group in groups]
    for segment in fresh:
        _rename(folder, segment, CLEANED_SUFFIX, SWAP_SUFFIX)
    folder.sync()
    names: list[str] = []
    bases: list[int] = []
    for group, segment in zip(groups, fresh, strict=True):
        for old in segments.replace(group.replaces, segment):
            names += old.mark_deleted()
        bases += group.replaces[1:]
    folder.sync()
    for segment in fresh:
        _rename(folder, segment, SWAP_SUFFIX, "")
    folder.sync()
    return names, bases


def _rename(folder: Folder, segment: Segment, old_suffix: str, new_suffix: str) -> None:
    for name in reversed(segment.file_names()):
        folder.rename(name + old_suffix, name + new_suffix)
