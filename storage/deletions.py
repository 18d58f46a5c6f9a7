"""Files that a log has given up: they are renamed at once and deleted after file.delete.delay.ms.

Until then a reader that has found a place in one can go on reading, and an operator can still look.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from odradek.storage.disk import Folder


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
