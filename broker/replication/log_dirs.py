"""What lies in the data directories (KIP-113, KIP-827; the describeLogDirs of Kafka's ReplicaManager)."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Collection, Iterable
from typing import Final, NamedTuple

from odradek.broker.replication.partition import Replicas
from odradek.broker.replication.state.partition import Role
from odradek.storage.directory import Directory

UNKNOWN: Final = -1

Space = Callable[[str], tuple[int, int]]
"""Total and usable bytes of the volume that a path is on. Raises OSError."""


class LogDescription(NamedTuple):
    """A log: its topic and partition, its bytes, and how many records it lacks below the replica's high watermark; -1
    where no replica serves it. A future log lacks what it has to catch up with before it takes the log's place.
    """

    topic: str
    partition: int
    size: int
    lag: int
    is_future: bool = False


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

    def __init__(self, directories: Iterable[Directory], replicas: Replicas, space: Space = space_of_volume) -> None:
        self._directories = directories
        self._replicas = replicas
        self._space = space

    def offline(self) -> dict[str, bool]:
        """Every directory, and whether it has failed."""
        return {directory.path: directory.failure is not None for directory in self._directories}

    def describe(self, wanted: Collection[tuple[str, int]] | None) -> list[DirectoryDescription]:
        """Every directory, with the logs of these partitions, or with all of its logs."""
        return [self._describe(directory, wanted) for directory in self._directories]

    def _describe(self, directory: Directory, wanted: Collection[tuple[str, int]] | None) -> DirectoryDescription:
        if directory.failure is not None:
            return DirectoryDescription(directory.path, directory.failure)
        logs = tuple(
            LogDescription(*name, log.size, self._lag(name, log.end_offset, is_future=is_future), is_future)
            for row, is_future in ((directory.logs, False), (directory.futures, True))
            for name, log in sorted(row.items())
            if wanted is None or name in wanted
        )
        try:
            total, usable = self._space(directory.path)
        except OSError:
            total = usable = UNKNOWN
        return DirectoryDescription(directory.path, None, logs, total, usable)

    def _lag(self, name: tuple[str, int], end_offset: int, *, is_future: bool) -> int:
        replica = self._replicas.get(*name)
        if replica is None or replica.machine.role is Role.OFFLINE:
            return UNKNOWN
        if is_future:
            return replica.log.end_offset - end_offset
        return max(0, replica.machine.high_watermark - end_offset)
