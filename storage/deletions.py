"""Delayed deletion of files: a log renames them at once and deletes them after file.delete.delay.ms.

Until then a reader that has located an offset in such a file can continue, and an operator can still read the file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from odradek.storage.disk import Folder
from odradek.storage.producers import ProducerState
from odradek.storage.segment import DELETED_SUFFIX, Segment


def set_back(waiting: Iterable[tuple[int, str]], step_ms: int) -> list[tuple[int, str]]:
    """The names that wait, with the times from which they may be removed, after the clock was set back by `step_ms`.

    Otherwise they would take room for as long as the step is.
    """
    return [(due_ms - step_ms, name) for due_ms, name in waiting]


class DelayedDeletions:
    """The files of one folder that wait for deletion. `unsynced`: a loss of power may undo a renaming."""

    __slots__ = ("_folder", "_seen_ms", "_waiting", "unsynced")

    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        self._seen_ms = 0
        self._waiting: list[tuple[int, str]] = []
        self.unsynced = False

    def add(self, names: Iterable[str], due_ms: int) -> None:
        """Schedule the deletion of these files for `due_ms` or later."""
        before = len(self._waiting)
        self._waiting.extend((due_ms, name) for name in names)
        self.unsynced |= len(self._waiting) > before

    def add_segments(self, gone: Iterable[Segment], producers: ProducerState, due_ms: int) -> None:
        """Rename the files of removed segments, oldest first, and schedule their deletion for `due_ms`.

        Raises OSError.
        """
        names: list[str] = []
        bases: list[int] = []
        for segment in gone:
            if names or self.unsynced:
                self._folder.sync()  # a loss of power must not bring the previous segment back with a hole behind it
            names += segment.mark_deleted()
            bases.append(segment.base_offset)
        self.add_with_snapshots(names, bases, producers, due_ms)

    def add_with_snapshots(
        self, names: Iterable[str], bases: Iterable[int], producers: ProducerState, due_ms: int
    ) -> None:
        """Schedule the deletion of these files and of the snapshots at these base offsets. Raises OSError."""
        names = list(names)
        for base in bases:
            snapshot = producers.detach_snapshot(base)
            if snapshot is not None and self._folder.rename(snapshot, snapshot + DELETED_SUFFIX):
                names.append(snapshot + DELETED_SUFFIX)
        self.add(names, due_ms)

    def take_due(self, now_ms: int) -> Callable[[], None] | None:
        """A function that deletes the files that are due, safe in a thread; None where none is. It raises OSError."""
        if self._waiting and now_ms < self._seen_ms:
            self._waiting = set_back(self._waiting, self._seen_ms - now_ms)
        self._seen_ms = now_ms
        due = [name for due_ms, name in self._waiting if due_ms <= now_ms]
        if not due:
            return None
        self._waiting = [each for each in self._waiting if each[0] > now_ms]
        self.unsynced = False

        def delete() -> None:
            self._folder.sync()  # the deletion must not become durable before the renaming
            for name in due:
                self._folder.remove(name)

        return delete
