"""What lies in the data directories (KIP-113, KIP-827; the describeLogDirs of Kafka's ReplicaManager)."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Collection
from typing import Final, NamedTuple

from odradek.broker.replica import Replicas
from odradek.storage.directory import Directory

UNKNOWN: Final = -1

Space = Callable[[str], tuple[int, int]]
"""Total and usable bytes of the volume that a path is on. Raises OSError."""


class LogDescription(NamedTuple):
    """A log: its topic and partition, its bytes, and how many records it lacks below the replica's high watermark; -1
    where no replica serves it.
    """

    topic: str
    partition: int
    size: int
    lag: int


class DirectoryDescription(NamedTuple):
    """A data directory. Of one that has failed nothing else is known. Bytes of the volume are -1 where unknown."""

    path: str
    failure: str | None
    logs: tuple[LogDescription, ...] = ()
    total_bytes: int = UNKNOWN
    usable_bytes: int = UNKNOWN


def space_of_volume(path: str) -> tuple[int, int]:
    """What the operating system says. Raises OSError."""
    usage = shutil.disk_usage(path)
    return usage.total, usage.free


class LogDirs:
    """The data directories of this broker."""

    def __init__(self, directories: list[Directory], replicas: Replicas, space: Space = space_of_volume) -> None:
        self._directories = directories
        self._replicas = replicas
        self._space = space

    def describe(self, wanted: Collection[tuple[str, int]] | None) -> list[DirectoryDescription]:
        """Every directory, with the logs of these partitions, or with all of its logs."""
        return [self._describe(directory, wanted) for directory in self._directories]

    def _describe(self, directory: Directory, wanted: Collection[tuple[str, int]] | None) -> DirectoryDescription:
        if directory.failure is not None:
            return DirectoryDescription(directory.path, directory.failure)
        logs = tuple(
            LogDescription(*name, log.size, self._lag(name, log.end_offset))
            for name, log in sorted(directory.logs.items())
            if wanted is None or name in wanted
        )
        try:
            total, usable = self._space(directory.path)
        except OSError:
            total = usable = UNKNOWN
        return DirectoryDescription(directory.path, None, logs, total, usable)

    def _lag(self, name: tuple[str, int], end_offset: int) -> int:
        replica = self._replicas.get(*name)
        return UNKNOWN if replica is None else max(0, replica.machine.high_watermark - end_offset)
