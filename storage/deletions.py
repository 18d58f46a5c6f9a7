"""Delayed deletion of files: a log renames them at once and deletes them after file.delete.delay.ms.

Until then a reader that has located an offset in such a file can continue, and an operator can still read the file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress

from odradek.storage.disk import Folder
from odradek.storage.producers import ProducerState, snapshot_name
from odradek.storage.segment import DELETED_SUFFIX, Segment


def set_back(waiting: Iterable[tuple[int, str]], step_ms: int) -> list[tuple[int, str]]:
    """The names that wait, with the times from which they may be removed, after the clock was set back by `step_ms`.

    Otherwise they would take room for as long as the step is.
    """
    return [(due_ms - step_ms, name) for due_ms, name in waiting]


def detach_snapshots(producers: ProducerState, bases: Iterable[int]) -> list[str]:
    """Remove the snapshots at these base offsets from the list; returns the names of their files, which stay."""
    known = [base for base in bases if base in producers.snapshots]
    for base in known:
        producers.snapshots.remove(base)
    return [snapshot_name(base) for base in known]


def rename_snapshots(folder: Folder, names: Iterable[str]) -> list[str]:
    """Rename files of snapshots as those of removed segments; returns the new names. Raises OSError."""
    return [name + DELETED_SUFFIX for name in names if folder.rename(name, name + DELETED_SUFFIX)]


class Removal:
    """Renames the files of removed segments, oldest first, and of the snapshots that no segment needs any more."""

    def __init__(self, folder: Folder, gone: list[Segment], snapshots: list[str], *, syncs_first: bool) -> None:
        """With `syncs_first` all present names are durable before the first file is renamed."""
        self._folder = folder
        self._gone = gone
        self._snapshots = snapshots
        self._syncs_first = syncs_first
        self.names: list[str] = []
        """The new names, after `run`."""

    def run(self) -> None:
        """Rename the files, in any thread. Raises OSError."""
        for number, segment in enumerate(self._gone):
            if number or self._syncs_first:
                self._folder.sync()  # a loss of power must not bring the previous segment back with a hole behind it
            self.names += segment.mark_deleted()
        self.names += rename_snapshots(self._folder, self._snapshots)


class DelayedDeletions:
    """The files of one folder that wait for deletion."""

    __slots__ = ("_added", "_folder", "_seen_ms", "_synced", "_waiting")

    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        self._seen_ms = 0
        self._waiting: list[tuple[int, str]] = []
        self._added = self._synced = 0  # names since the start, and those of them whose renaming is durable

    @property
    def unsynced(self) -> bool:
        """Whether a loss of power may undo a renaming."""
        return self._synced < self._added

    def add(self, names: Iterable[str], due_ms: int) -> None:
        """Schedule the deletion of these files for `due_ms` or later."""
        before = len(self._waiting)
        self._waiting.extend((due_ms, name) for name in names)
        self._added += len(self._waiting) - before

    def removal(self, gone: Iterable[Segment], producers: ProducerState, *, syncs_first: bool = False) -> Removal:
        """The renaming of the files of removed segments, oldest first, and of their snapshots."""
        segments = list(gone)
        snapshots = detach_snapshots(producers, (segment.base_offset for segment in segments))
        return Removal(self._folder, segments, snapshots, syncs_first=syncs_first or self.unsynced)

    def add_segments(self, gone: Iterable[Segment], producers: ProducerState, due_ms: int) -> None:
        """Rename the files of removed segments, oldest first, and schedule their deletion for `due_ms`.

        Raises OSError.
        """
        removal = self.removal(gone, producers)
        removal.run()
        self.add(removal.names, due_ms)

    def take_due(self, now_ms: int) -> Callable[[], None] | None:
        """A function that deletes the files that are due, safe in a thread; None where none is. It raises OSError."""
        if self._waiting and now_ms < self._seen_ms:
            self._waiting = set_back(self._waiting, self._seen_ms - now_ms)
        self._seen_ms = now_ms
        due = [name for due_ms, name in self._waiting if due_ms <= now_ms]
        if not due:
            return None
        self._waiting = [each for each in self._waiting if each[0] > now_ms]
        added = self._added

        def delete() -> None:
            with suppress(FileNotFoundError):  # the folder was removed meanwhile, with its log
                self._folder.sync()  # the deletion must not become durable before the renaming
            self._synced = added
            for name in due:
                self._folder.remove(name)

        return delete
