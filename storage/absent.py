"""A log that the broker cannot open, because an offline directory may hold it.

The partition of this log answers requests as the partition of a log with a failed disk does.
"""

from __future__ import annotations

import errno
from collections.abc import Sequence
from typing import NoReturn

from odradek.protocol.topic_partition import TopicPartition
from odradek.storage.config import LogConfig
from odradek.storage.disk import Buffer, Entry, Folder, Lock
from odradek.storage.log import Log
from odradek.storage.recovery import LoadRequest


def absent_log(name: TopicPartition, topic_id: bytes, config: LogConfig, reason: str) -> Log:
    """A log of (topic, partition) without a directory; it is offline for `reason`."""
    log = Log.open(Folder(_NoDisk(), f"offline/{name[0]}-{name[1]}"), name, topic_id, LoadRequest(config=config))
    log.failure = reason
    return log


def _refuse() -> NoReturn:
    raise OSError(errno.EIO, "the directory is offline")


class _NoFile:
    """A file that is empty and rejects every write."""

    def fileno(self) -> int:
        _refuse()

    def read(self, size: int, position: int) -> bytes:
        return b""

    def write(self, data: Buffer, position: int) -> None:
        _refuse()

    def write_parts(self, parts: Sequence[Buffer], position: int) -> None:
        _refuse()

    def truncate(self, size: int) -> None:
        pass

    def sync(self) -> None:
        pass

    def close(self) -> None:
        pass


class _NoDisk:
    """A disk without files that rejects every write."""

    def open(self, path: str) -> _NoFile:
        return _NoFile()

    def open_existing(self, path: str) -> _NoFile:
        raise FileNotFoundError(path)

    def read(self, path: str) -> bytes:
        raise FileNotFoundError(path)

    def replace(self, path: str, data: Buffer, *, sync: bool) -> None:
        _refuse()

    def exists(self, path: str) -> bool:
        return False

    def modified_ms(self, path: str) -> int:
        raise FileNotFoundError(path)

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        _refuse()

    def list(self, path: str) -> list[Entry]:
        return []

    def make_directory(self, path: str, mode: int = 0o777) -> None:
        _refuse()

    def rename(self, old: str, new: str) -> None:
        _refuse()

    def remove(self, path: str) -> None:
        pass

    def remove_directory(self, path: str) -> None:
        pass

    def sync_directory(self, path: str) -> None:
        pass

    def lock(self, path: str) -> Lock | None:
        return None
