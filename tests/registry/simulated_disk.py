"""A disk in memory that loses unsynced writes, and fails on request.

It implements journal.Disk. Files have the bytes that were written and those that are durable; names are durable once
their directory was synced. `crash` gives the disk that a power loss leaves: `keep` chooses how much of the unsynced
writes of each file survives.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import NamedTuple


class Entry(NamedTuple):
    name: str


class Content:
    """A file's bytes, as written and as durable."""

    def __init__(self, durable: bytes = b"") -> None:
        self.durable = durable
        self.written = bytearray(durable)


Keep = Callable[[bytes, bytes], bytes]
"""From the durable and the written bytes of a file to those that a crash leaves."""


def keep_nothing(durable: bytes, written: bytes) -> bytes:
    """Only what was synced."""
    return durable


def keep_all(durable: bytes, written: bytes) -> bytes:
    """Everything, as when only the process died."""
    return written


class SimulatedDisk:
    """Files by path. `fail_after` lets that many writes and syncs pass, and no more."""

    def __init__(self) -> None:
        self.files: dict[str, Content] = {}
        self._durable_names: dict[str, Content] = {}
        self._locked: set[str] = set()
        self.fail_after: int | None = None
        self.syncs = 0

    def crash(self, keep: Keep = keep_nothing) -> SimulatedDisk:
        """The disk after a power loss; this one stays as it is."""
        after = SimulatedDisk()
        # A new name may survive without having been synced; `keep` decides that through its content.
        names = self.files if keep is not keep_nothing else self._durable_names
        for path, content in names.items():
            after.files[path] = Content(keep(content.durable, bytes(content.written)))
        after._durable_names = dict(after.files)
        return after

    def step(self) -> None:
        """One call that may fail."""
        if self.fail_after is not None:
            if self.fail_after == 0:
                raise OSError(errno.EIO, "the simulated disk failed")
            self.fail_after -= 1

    def open(self, path: str) -> SimulatedFile:
        return SimulatedFile(self, self.files.setdefault(path, Content()))

    def read(self, path: str) -> bytes:
        if path not in self.files:
            raise FileNotFoundError(path)
        return bytes(self.files[path].written)

    def replace(self, path: str, data: bytes, *, sync: bool) -> None:
        self.step()
        self.files[path] = Content(bytes(data) if sync else b"")
        self.files[path].written = bytearray(data)
        if sync:
            self._durable_names[path] = self.files[path]

    def list(self, path: str) -> list[Entry]:
        prefix = path + "/"
        return [Entry(name.removeprefix(prefix)) for name in self.files if name.startswith(prefix)]

    def make_directory(self, path: str, mode: int = 0o777) -> None:
        self.step()

    def remove(self, path: str) -> None:
        self.step()
        self.files.pop(path, None)

    def sync_directory(self, path: str) -> None:
        self.step()
        prefix = path + "/"
        for name in [name for name in self._durable_names if name.startswith(prefix)]:
            del self._durable_names[name]
        self._durable_names |= {name: content for name, content in self.files.items() if name.startswith(prefix)}

    def lock(self, path: str) -> SimulatedLock | None:
        if path in self._locked:
            return None
        self._locked.add(path)
        return SimulatedLock(self._locked, path)


class SimulatedFile:
    def __init__(self, disk: SimulatedDisk, content: Content) -> None:
        self._disk = disk
        self._content = content

    def write(self, data: bytes, position: int) -> None:
        written = self._content.written
        try:
            self._disk.step()
        except OSError:
            written[position:] = data[: len(data) // 2]
            raise
        written.extend(bytes(max(0, position - len(written))))
        written[position : position + len(data)] = data

    def truncate(self, size: int) -> None:
        del self._content.written[size:]

    def sync(self) -> None:
        self._disk.step()
        self._disk.syncs += 1
        self._content.durable = bytes(self._content.written)

    def close(self) -> None:
        pass


class SimulatedLock:
    def __init__(self, locked: set[str], path: str) -> None:
        self._locked = locked
        self._path = path

    def release(self) -> None:
        self._locked.discard(self._path)
