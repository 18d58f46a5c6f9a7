"""Describes the logs in the log directories (KIP-113, KIP-827; Kafka: ReplicaManager.describeLogDirs)."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Collection, Iterable
from typing import Final, NamedTuple, TypeAlias

from odradek.broker.replication.partition import Replicas
from odradek.broker.replication.state.partition import Role
from odradek.broker.runtime.turns import each as items_of
from odradek.protocol.topic_partition import TopicPartition
from odradek.storage.directory import Directory
from odradek.storage.log import Log

_Logs: TypeAlias = tuple[tuple[TopicPartition, Log], ...]
UNKNOWN: Final = -1

Space = Callable[[str], tuple[int, int]]
"""Total and usable bytes of the volume that a path is on. Raises OSError."""


class LogDescription(NamedTuple):
    """A log: topic, partition, size in bytes and lag.

    The lag of a log is the number of records below the replica's high watermark that it does not have, -1 if there is
    no online replica. The lag of a future log is the number of records that it does not have of the current log.
    """

    topic: str
    partition: int
    size: int
    lag: int
    is_future: bool = False


class DirectoryDescription(NamedTuple):
    """A data directory. For a failed one only the failure is set. Bytes of the volume are -1 if unknown."""

    path: str
    failure: str | None
    logs: tuple[LogDescription, ...] = ()
    total_bytes: int = UNKNOWN
    usable_bytes: int = UNKNOWN


def space_of_volume(path: str) -> tuple[int, int]:
    """Total and usable bytes from the operating system. Raises OSError."""
    usage = shutil.disk_usage(path)
    return usage.total, usage.free


class LogDirs:
    """The data directories of this broker."""

    def __init__(self, directories: Iterable[Directory], replicas: Replicas, space: Space = space_of_volume) -> None:
        self._directories = directories
        self._replicas = replicas
        self._space = space

    def offline(self) -> dict[str, bool]:
        """Every directory path, with True if the directory has failed."""
        return {directory.path: directory.failure is not None for directory in self._directories}

    def quarantined_bytes(self) -> dict[str, int]:
        """Every directory path, with the bytes that recoveries have moved to its quarantine."""
        return {directory.path: directory.quarantined_bytes for directory in self._directories}

    def describe(self, wanted: Collection[TopicPartition] | None) -> list[DirectoryDescription]:
        """Every directory with its logs of the `wanted` partitions; with all of its logs if `wanted` is None.

        The logs are those of one moment in all directories: a log can move between two of them while a large
        description is interrupted.
        """
        present = [(each, tuple(each.logs.items()), tuple(each.futures.items())) for each in self._directories]
        return [self._describe(directory, logs, futures, wanted) for directory, logs, futures in present]

    def _describe(
        self, directory: Directory, logs: _Logs, futures: _Logs, wanted: Collection[TopicPartition] | None
    ) -> DirectoryDescription:
        if directory.failure is not None:
            return DirectoryDescription(directory.path, directory.failure)
        described = tuple(
            LogDescription(*name, log.size, self._lag(name, log.end_offset, is_future=is_future), is_future)
            for row, is_future in ((logs, False), (futures, True))
            for name, log in items_of(sorted(row))
            if wanted is None or name in wanted
        )
        try:
            total, usable = self._space(directory.path)
        except OSError:
            total = usable = UNKNOWN
        return DirectoryDescription(directory.path, None, described, total, usable)

    def _lag(self, name: TopicPartition, end_offset: int, *, is_future: bool) -> int:
        replica = self._replicas.get(*name)
        if replica is None or replica.machine.role is Role.OFFLINE:
            return UNKNOWN
        if is_future:
            return replica.log.end_offset - end_offset
        return max(0, replica.machine.high_watermark - end_offset)
