"""A disk whose calls fail or block for chosen files, below a broker with two directories."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path

from odradek.storage.disk import Buffer, OsDisk, OsFile
from tests.broker.wire import Client


class Disk(OsDisk):
    """The machine's disk, with faults for the files whose path contains a given string."""

    def __init__(self) -> None:
        self.place = "nowhere"
        self.write_error = 0
        self.sync_error = 0
        self.sync_error_once = 0
        self.syncs = 0
        self.gate = threading.Event()  # a sync waits here
        self.gate.set()
        self.syncing = asyncio.Event()
        self.on_sync: Callable[[], object] = lambda: None

    def hold(self, place: str) -> None:
        """Let the syncs of a path wait until the gate is set; `syncing` is set when one does."""
        loop = asyncio.get_running_loop()
        self.place, self.on_sync = place, lambda: loop.call_soon_threadsafe(self.syncing.set)
        self.gate.clear()

    def replace(self, path: str, data: Buffer, *, sync: bool) -> None:
        if self.write_error and self.place in path:
            raise OSError(self.write_error, "planted")
        if sync and self.place in path:
            self.syncs += 1
            self.on_sync()
            assert self.gate.wait(20)
        super().replace(path, data, sync=sync)

    def rename(self, old: str, new: str) -> None:
        if self.write_error and self.place in old:
            raise OSError(self.write_error, "planted")
        super().rename(old, new)

    def open(self, path: str) -> OsFile:
        return File(path, self)


class File(OsFile):
    __slots__ = ("_disk", "_path")

    def __init__(self, path: str, disk: Disk) -> None:
        super().__init__(path)
        self._path, self._disk = path, disk

    def write(self, data: Buffer, position: int) -> None:
        disk = self._disk
        if disk.write_error and disk.place in self._path:
            super().write(memoryview(data)[: len(data) // 2], position)
            raise OSError(disk.write_error, "planted")
        super().write(data, position)

    def sync(self) -> None:
        disk = self._disk
        if disk.place in self._path:
            disk.syncs += 1
            disk.on_sync()
            assert disk.gate.wait(20)
            error, disk.sync_error_once = disk.sync_error_once or disk.sync_error, 0
            if error:
                raise OSError(error, "planted")
        super().sync()


def two(tmp_path: Path) -> str:
    """log.dirs of a broker with two directories."""
    return f"{tmp_path / 'd0'},{tmp_path / 'd1'}"


async def spread(client: Client, tmp_path: Path, **configs: str) -> tuple[list[int], list[int]]:
    """A topic "t" with two partitions in each directory; which partitions are where."""
    await client.create_topic("t", partitions=4, configs=configs)
    here, there = ([index for index in range(4) if (tmp_path / name / f"t-{index}").exists()] for name in ("d0", "d1"))
    assert (len(here), len(there)) == (2, 2)
    return here, there
