"""Deleted logs whose directories wait for their removal (Kafka: LogManager.logsToBeDeleted)."""

from __future__ import annotations

from collections.abc import Callable

from odradek.storage.deletions import set_back
from odradek.storage.disk import Folder


class LogsToDelete:
    """The directories of deleted logs in one data directory, each with the time from which it may be removed."""

    __slots__ = ("_folder", "_seen_ms", "_waiting")

    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        self._seen_ms = 0
        self._waiting: list[tuple[int, str]] = []

    def add(self, name: str, due_ms: int) -> None:
        """Schedule the removal of a directory."""
        self._waiting.append((due_ms, name))

    def take_due(self, now_ms: int) -> Callable[[], None] | None:
        """A function that removes the directories that are due, safe in a thread; None where none is. It raises
        OSError.
        """
        if now_ms < self._seen_ms:
            self._waiting = set_back(self._waiting, self._seen_ms - now_ms)
        self._seen_ms = now_ms
        due = [name for due_ms, name in self._waiting if due_ms <= now_ms]
        if not due:
            return None
        self._waiting = [each for each in self._waiting if each[0] > now_ms]

        def remove() -> None:
            for name in due:
                self._folder.disk.remove_directory(self._folder / name)

        return remove
