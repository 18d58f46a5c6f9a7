"""Files that a log has given up: they are renamed at once and deleted after file.delete.delay.ms.

Until then a reader that has found a place in one can go on reading, and an operator can still look.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from odradek.storage.disk import Folder
from odradek.storage.producers import ProducerState
from odradek.storage.segment import DELETED_SUFFIX, Segment


class DelayedDeletions:
    """The files of one folder that wait to be deleted. `unsynced` says whether a loss of power may undo a renaming."""

    __slots__ = ("_folder", "_waiting", "unsynced")

    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        self._waiting: list[tuple[int, str]] = []
        self.unsynced = False

    def add(self, names: Iterable[str], due_ms: int) -> None:
        """Delete these at `due_ms`, or later."""
        before = len(self._waiting)
        self._waiting.extend((due_ms, name) for name in names)
        self.unsynced |= len(self._waiting) > before

    def add_segments(self, gone: Iterable[Segment], producers: ProducerState, due_ms: int) -> None:
        """Rename the files of segments that the log has given up, the first one first, and delete them at `due_ms`.

        Raises OSError.
        """
        names: list[str] = []
        bases: list[int] = []
        for segment in gone:
            if names or self.unsynced:
                self._folder.sync()  # the one before is not back after a loss of power, with a hole behind it
            names += segment.mark_deleted()
            segment.drop()
            bases.append(segment.base_offset)
        self.add_with_snapshots(names, bases, producers, due_ms)

    def add_with_snapshots(
        self, names: Iterable[str], bases: Iterable[int], producers: ProducerState, due_ms: int
    ) -> None:
        """Delete these at `due_ms`, or later, and with them the snapshots at these base offsets. Raises OSError."""
        names = list(names)
        for base in bases:
            snapshot = producers.detach_snapshot(base)
            if snapshot is not None and self._folder.rename(snapshot, snapshot + DELETED_SUFFIX):
                names.append(snapshot + DELETED_SUFFIX)
        self.add(names, due_ms)

    def take_due(self, now_ms: int) -> Callable[[], None] | None:
        """What deletes the files that are due, in a thread if need be; None where none is. The work raises OSError."""
        due = [name for due_ms, name in self._waiting if due_ms <= now_ms]
        if not due:
            return None
        self._waiting = [each for each in self._waiting if each[0] > now_ms]
        self.unsynced = False

        def delete() -> None:
            self._folder.sync()  # what comes after the renaming must not become durable before it
            for name in due:
                self._folder.remove(name)

        return delete
