"""Changes of the files of a log that wait for the disk: old segments are removed, compacted ones take their places.

A change has three parts, as a flush has. A method `start_…` selects the files and changes the state of the log as far
as readers may see it at once. `FolderChange.run` renames files and waits for the disk, in a thread where there is an
event loop. `finish_change` then applies the rest to the log.

A log has one change at a time. A call that needs the files to be in their places (another change, a truncation, an
epoch, a rename of the folder, the end) first runs the rest of it and applies it: `settle_change` waits for the disk,
which is rare. A roll (`roll.py`) is apart from these: it changes no older segment, so both may be under way.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from itertools import chain

from odradek.protocol.errors import KafkaError
from odradek.storage.checkpoints import LEADER_EPOCHS
from odradek.storage.compaction import Cleaned
from odradek.storage.compaction_checkpoint import CompactionCheckpoint
from odradek.storage.config import LogConfig
from odradek.storage.deletions import DelayedDeletions, detach_snapshots, rename_snapshots
from odradek.storage.epochs import LeaderEpochs
from odradek.storage.log_failures import LogFailures
from odradek.storage.producers import ProducerState
from odradek.storage.retention import count_deletable
from odradek.storage.segment import Segment
from odradek.storage.segments import LogSegments
from odradek.storage.swap import note, still_there, swap_in


class FolderChange:
    """A change that has started. `what` names it in errors; `apply` changes the log once `run` has ended."""

    __slots__ = ("_lock", "_work", "apply", "error", "what")

    def __init__(self, what: str, work: Callable[[], None], apply: Callable[[], None]) -> None:
        """`work` may raise OSError."""
        self._lock = threading.Lock()
        self._work: Callable[[], None] | None = work
        self.what = what
        self.apply = apply
        self.error: Exception | None = None
        """What the work has raised."""

    def run(self) -> None:
        """Do the work, in any thread: at the first call. Another one waits for its end. Raises nothing."""
        with self._lock:
            work, self._work = self._work, None
            if work is not None:
                try:
                    work()
                except Exception as error:
                    self.error = error

    def cancel(self) -> None:
        """Do not begin the work; wait for its end where a thread has begun it."""
        with self._lock:
            self._work = None


class FolderChanges(LogFailures):
    """The part of a log that removes and replaces segments. Methods raise KafkaError."""

    __slots__ = (
        "_change",
        "_rolling",
        "_rolls",
        "_rolls_synced",
        "_segments",
        "cleaned_to",
        "compaction_checkpoint",
        "config",
        "deletions",
        "end_offset",
        "epochs",
        "generation",
        "producers",
        "start_offset",
    )

    _change: FolderChange | None
    _rolling: FolderChange | None
    _rolls: int
    _rolls_synced: int
    _segments: LogSegments
    cleaned_to: int
    compaction_checkpoint: CompactionCheckpoint
    config: LogConfig
    deletions: DelayedDeletions
    end_offset: int
    epochs: LeaderEpochs
    generation: int
    producers: ProducerState
    start_offset: int

    def _roll(self, base_offset: int, now_ms: int) -> Segment:
        raise NotImplementedError

    def start_roll(self, now_ms: int) -> FolderChange | None:
        """Begin a new segment (`Log`)."""
        raise NotImplementedError

    def advance_start_offset(self, offset: int, *, high_watermark: int) -> bool:
        """Serve nothing below `offset` any more (`Log`)."""
        raise NotImplementedError

    # -- changes -------------------------------------------------------------------------------------------------------

    def _begin_change(self, what: str, work: Callable[[], None], apply: Callable[[], None]) -> FolderChange:
        rolls = self._rolls

        def applied() -> None:
            self._rolls_synced = max(self._rolls_synced, rolls)
            apply()

        self._change = FolderChange(what, work, applied)
        return self._change

    def finish_change(self, change: FolderChange) -> None:
        """Apply a change that has run, unless that has been done. An error of the disk takes the log offline."""
        if self._change is not change:
            if self.failure is not None:
                self._refuse()
            return
        self._change = None
        if change.error is not None:
            with self._disk(change.what):
                raise change.error
        change.apply()

    def settle_change(self) -> None:
        """Run the rest of a change that has started, if there is one, and apply it."""
        change = self._change
        if change is not None:
            change.run()
            self.finish_change(change)

    def finish_roll(self, roll: FolderChange) -> None:
        """Apply a roll that has run, unless that has been done. An error of the disk takes the log offline, but not a
        lack of room.
        """
        if self._rolling is not roll:
            return
        self._rolling = None
        if roll.error is not None:
            active = self._segments.active
            active.is_full = active.offset_index.is_full or active.time_index.is_full
            with self._disk(roll.what), self._room(roll.what):
                raise roll.error
        roll.apply()

    def settle_roll(self) -> None:
        """Run the rest of a roll that has started, if there is one, and apply it."""
        roll = self._rolling
        if roll is not None:
            roll.run()
            self.finish_roll(roll)

    def settle_changes(self) -> None:
        """Run the rest of all that has started, and apply it; without room for a new segment the log stays as it is."""
        try:
            self.settle_roll()
        except KafkaError:
            if self.failure is not None:
                raise
        self.settle_change()

    def sync_names(self) -> None:
        """Make the names in the folder durable, in any thread. Raises OSError; nothing where the log was deleted."""
        with suppress(FileNotFoundError):
            self.folder.sync()

    # -- retention -----------------------------------------------------------------------------------------------------

    def start_retention(self, *, high_watermark: int, now_ms: int) -> FolderChange | None:
        """Drop the segments beyond retention (`retention.count_deletable`); None where there are none.

        The change renames their files, oldest first: a loss of power in between must not leave a hole. A name of a new
        segment is durable before that, because the offsets of removed records must not be assigned again.
        """
        if self.failure is not None:
            self._refuse()
        self.settle_change()
        ends = {"start_offset": self.start_offset, "end_offset": self.end_offset, "high_watermark": high_watermark}
        with self._disk("looking for old segments"):
            count = count_deletable(list(self._segments), self.config, **ends, now_ms=now_ms)
        if count == len(self._segments):
            self._roll(self.end_offset, now_ms)
        if not count:
            return None
        gone = self._segments.oldest(count)
        self.advance_start_offset(self._segments.drop_oldest(count), high_watermark=high_watermark)
        removal = self.deletions.removal(gone, self.producers, syncs_first=self._rolls > self._rolls_synced)
        folder, epochs, due_ms = self.folder, self.epochs.encoded(), now_ms + self.config.file_delete_delay_ms

        def rename() -> None:
            removal.run()
            folder.replace(LEADER_EPOCHS, epochs, sync=False)

        def removed() -> None:
            self.deletions.add(removal.names, due_ms)
            self.epochs.unsynced = True

        return self._begin_change("renaming deleted segments", rename, removed)

    def start_retention_roll(self, *, high_watermark: int, now_ms: int) -> FolderChange | None:
        """Begin the segment that takes the place of all others, where `start_retention` would drop every one of them;
        None where it would not. The caller runs the roll in a thread, then passes it to `finish_roll`.
        """
        if self.failure is not None:
            self._refuse()
        ends = {"start_offset": self.start_offset, "end_offset": self.end_offset, "high_watermark": high_watermark}
        with self._disk("looking for old segments"):
            count = count_deletable(list(self._segments), self.config, **ends, now_ms=now_ms)
        return self.start_roll(now_ms) if count == len(self._segments) else None

    def delete_old_segments(self, *, high_watermark: int, now_ms: int) -> int:
        """Remove the segments beyond retention, in the calling thread; returns the number of removed ones."""
        before = set(self._segments)
        self.start_retention(high_watermark=high_watermark, now_ms=now_ms)
        self.settle_change()
        return len(before.difference(self._segments))

    def purge(self, now_ms: int) -> None:
        """Delete the files whose delay is over, in the calling thread."""
        delete = self.deletions.take_due(now_ms)
        if delete is not None:
            with self._disk("deleting old files"):
                delete()

    # -- compaction ----------------------------------------------------------------------------------------------------

    def start_swap(self, cleaned: Cleaned, *, now_ms: int) -> FolderChange | None:
        """Put compacted segments in place; None where the log was truncated, or lost segments, since.

        Until `finish_change` the old segments serve readers: their files are open and their indexes in memory.
        """
        if self.failure is not None:
            self._refuse()
        self.settle_change()
        groups = cleaned.groups
        if cleaned.generation != self.generation or not still_there(self._segments, groups):
            return None
        present = list(self._segments)
        with self._disk("putting compacted segments in place"):
            replaced = [[each for each in present if each.base_offset in set(group.replaces)] for group in groups]
            for segment in chain.from_iterable(replaced):
                _keep_readable(segment)
        fresh = [Segment(self.folder, group.base_offset, group.size, self.config) for group in groups]
        unused = detach_snapshots(self.producers, (base for group in groups for base in group.replaces[1:]))
        folder, checkpoint, epochs = self.folder, self.compaction_checkpoint, self.epochs.entries()
        names: list[str] = []

        def rename() -> None:
            note(checkpoint, present, groups, epochs)
            names.extend(swap_in(folder, fresh, replaced))
            names.extend(rename_snapshots(folder, unused))

        def swapped() -> None:
            for group, segment in zip(groups, fresh, strict=True):
                self._segments.replace(group.replaces, segment)
            self.deletions.add(names, now_ms + self.config.file_delete_delay_ms)
            self.cleaned_to = max(self.cleaned_to, cleaned.cleaned_to)

        return self._begin_change("putting compacted segments in place", rename, swapped)

    def swap_in(self, cleaned: Cleaned, *, now_ms: int) -> bool:
        """Put compacted segments in place, in the calling thread; False as `start_swap`."""
        if self.start_swap(cleaned, now_ms=now_ms) is None:
            return False
        self.settle_change()
        return True


def _keep_readable(segment: Segment) -> None:
    """Open the log file and load the indexes, so that the segment serves readers while its files have other names.

    Raises OSError, CorruptFile.
    """
    segment.file  # noqa: B018  (opens it)
    segment.offset_index  # noqa: B018  (loads both indexes)
    segment.aborted.entries()
