"""Deleted logs whose directories wait for their removal (Kafka: LogManager.logsToBeDeleted)."""

from __future__ import annotations

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

    def purge(self, now_ms: int) -> int | None:
        """Remove the directories that are due; returns when the next one is, None where none waits. Raises OSError."""
        if now_ms < self._seen_ms:
            self._waiting = set_back(self._waiting, self._seen_ms - now_ms)
        self._seen_ms = now_ms
        waiting = []
        for due_ms, name in self._waiting:
            if due_ms <= now_ms:
                self._folder.disk.remove_directory(self._folder / name)
            else:
                waiting.append((due_ms, name))
        self._waiting = waiting
        return min(waiting)[0] if waiting else None
