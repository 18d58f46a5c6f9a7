"""Logs that a data directory has found and not loaded yet (Kafka: LogManager.loadLogs)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Final, NamedTuple

from odradek.protocol.topic_partition import TopicPartition
from odradek.storage.disk import Folder
from odradek.storage.log_names import DELETE_SUFFIX, STRAY_SUFFIX, is_future, parse_name
from odradek.storage.logs_to_delete import LogsToDelete
from odradek.storage.parallel_recovery import Unclean
from odradek.storage.recovery import LoadRequest, bytes_to_recover, do_nothing, no_jitter

_log = logging.getLogger(__name__)

REPLACES: Final = ".replaces"
"""A file in the folder of a log that came from another directory, until the log there is certainly gone."""
_NOT_LOGS: Final = frozenset({"remote-log-index-cache", "__cluster_metadata-0", "lost+found"})


class FoundLog(NamedTuple):
    """The folder of a log, its partition, and the input of its load."""

    folder: Folder
    partition: TopicPartition
    request: LoadRequest

    @property
    def is_future(self) -> bool:
        """Whether this is a future log."""
        return is_future(self.folder.path)


class FoundLogs:
    """The logs of one directory that wait to be loaded, in the order of their names."""

    __slots__ = ("_row",)

    def __init__(self) -> None:
        self._row: list[FoundLog] = []

    def __iter__(self) -> Iterator[FoundLog]:
        return iter(self._row)

    def find(
        self, folder: Folder, request_for: Callable[[TopicPartition], LoadRequest], deleted: LogsToDelete, now_ms: int
    ) -> None:
        """List the logs in `folder`; those that have been deleted go to `deleted`. Raises OSError, KafkaError."""
        taken: set[TopicPartition] = set()
        for entry in sorted(folder.list()):  # a log sorts before its future log
            if not entry.is_directory or entry.name in _NOT_LOGS:
                continue
            if entry.name.endswith(DELETE_SUFFIX):
                deleted.add(entry.name, now_ms)
                continue
            if entry.name.endswith(STRAY_SUFFIX):
                _log.warning("ignoring a stray log directory path=%s", folder / entry.name)
                continue
            partition = parse_name(folder.path, entry.name)
            if is_future(entry.name) and partition in taken:
                _log.warning("removing a future log beside its log path=%s", folder / entry.name)
                deleted.add(entry.name, now_ms)
                continue
            taken.add(partition)
            found = Folder(folder.disk, folder / entry.name)
            self._row.append(FoundLog(found, partition, request_for(partition)))

    def partitions(self) -> list[TopicPartition]:
        """The partitions of the logs, but for future ones."""
        return [each.partition for each in self._row if not each.is_future]

    def has_replaced(self, partition: TopicPartition) -> bool:
        """Whether a log replaces all others of its partition."""
        return any(partition == each.partition and each.folder.exists(REPLACES) for each in self._row)

    def take(self, partition: TopicPartition) -> list[FoundLog]:
        """Remove and return the logs of a partition."""
        taken = [each for each in self._row if each.partition == partition]
        self._row = [each for each in self._row if each.partition != partition]
        return taken

    def unclean(self) -> list[Unclean]:
        """The logs that worker processes can recover. Raises OSError."""
        sizes = [bytes_to_recover(each.folder, each.request) for each in self._row]
        return [
            # Without the two functions, which cannot be sent to another process.
            Unclean(each.folder.path, replace(each.request, jitter_ms=no_jitter, on_cut=do_nothing), size)
            for each, size in zip(self._row, sizes, strict=True)
            if size
        ]

    def clear(self) -> None:
        """Forget all logs: they are loaded."""
        self._row.clear()
