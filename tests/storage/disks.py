"""Disks that fail: one in memory that loses power, and a plan of which call fails in which way.

`MemoryDisk` keeps apart what was written and what is on stable storage. A killed process loses nothing; `lose_power`
gives back, file by file and as `choose` decides, something between the last sync and the last write, torn at any byte.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Sequence

from odradek.storage.disk import Buffer, Entry, Lock

Choose = Callable[[int], int]  # a number from 0 to the argument, both included


class Plan:
    """Lets the call number `at` of those that change the disk fail with `code`, and all later ones if `lasting`.

    A failing write leaves half of its bytes behind. `calls` counts, so that a test knows how many there were.
    """

    def __init__(self, at: int = -1, code: int = errno.EIO, *, lasting: bool = False) -> None:
        self.at, self.code, self.lasting = at, code, lasting
        self.calls = 0

    def step(self) -> bool:
        """Count a call; whether it fails."""
        self.calls += 1
        return 0 <= self.at < self.calls if self.lasting else self.calls - 1 == self.at

    def check(self) -> None:
        """Count a call, and raise where it fails."""
        if self.step():
            raise OSError(self.code, os.strerror(self.code))


class Content:
    """The bytes behind a name, and those of them that survive a loss of power."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.synced: bytes | None = None  # None: not even the name is sure
        self.modified_ms = 0

    def settle(self, choose: Choose) -> bool:
        """Take what the disk happens to have after a loss of power; False where the file is not there at all."""
        synced, data = self.synced, self.data
        if synced is None and choose(2) == 0:
            return False
        synced = synced or b""
        if data.startswith(synced):
            kept = len(synced) + choose(len(data) - len(synced))
            torn = bytes(choose(min(len(data) - kept, 64)))
            self.data = bytearray(data[:kept] + torn)
        elif choose(1):
            self.data = bytearray(synced)
        self.synced = bytes(self.data)
        return True


class MemoryFile:
    """An open file of a MemoryDisk."""

    def __init__(self, content: Content, plan: Plan) -> None:
        self._content, self._plan = content, plan
        self._open = True

    def fileno(self) -> int:
        raise OSError(errno.EBADF, "this file is in memory")

    def read(self, size: int, position: int) -> bytes:
        assert self._open
        return bytes(self._content.data[position : position + size])

    def write(self, data: Buffer, position: int) -> None:
        assert self._open
        fails = self._plan.step()
        data = bytes(data)[: len(data) // 2] if fails else bytes(data)
        content = self._content.data
        content.extend(bytes(max(0, position - len(content))))
        content[position : position + len(data)] = data
        if fails:
            raise OSError(self._plan.code, "the write failed half way")

    def write_parts(self, parts: Sequence[Buffer], position: int) -> None:
        self.write(b"".join(parts), position)

    def truncate(self, size: int) -> None:
        assert self._open
        self._plan.check()
        content = self._content.data
        del content[size:]
        content.extend(bytes(size - len(content)))

    def sync(self) -> None:
        assert self._open
        self._plan.check()
        self._content.synced = bytes(self._content.data)

    def close(self) -> None:
        self._open = False


class MemoryLock:
    """A lock of a MemoryDisk."""

    def __init__(self, held: set[str], path: str) -> None:
        self._held, self._path = held, path

    def release(self) -> None:
        self._held.discard(self._path)


class MemoryDisk:
    """A whole file system in memory."""

    def __init__(self, plan: Plan | None = None) -> None:
        self.plan = plan or Plan()
        self.files: dict[str, Content] = {}
        self.directories: set[str] = set()
        self._held: set[str] = set()

    def lose_power(self, choose: Choose) -> None:
        """Every process is gone, and with it whatever was not on stable storage, or not all of it."""
        self._held.clear()
        self.files = {path: content for path, content in sorted(self.files.items()) if content.settle(choose)}

    def kill(self) -> None:
        """Every process is gone; what they wrote is still with the operating system."""
        self._held.clear()

    def open(self, path: str) -> MemoryFile:
        if path not in self.files:
            self.plan.check()
            if os.path.dirname(path) not in self.directories:
                raise FileNotFoundError(path)
            self.files[path] = Content()
        return MemoryFile(self.files[path], self.plan)

    def read(self, path: str) -> bytes:
        if path not in self.files:
            raise FileNotFoundError(path)
        return bytes(self.files[path].data)

    def replace(self, path: str, data: Buffer, *, sync: bool) -> None:
        self.plan.check()
        content = Content()
        content.data = bytearray(data)
        old = self.files.get(path)
        content.synced = bytes(data) if sync else old.synced if old else None
        self.files[path] = content
        if sync:
            self._keep_names(os.path.dirname(path))

    def exists(self, path: str) -> bool:
        return path in self.files or path in self.directories

    def modified_ms(self, path: str) -> int:
        return self.files[path].modified_ms

    def list(self, path: str) -> list[Entry]:
        below = sorted(each for each in self.directories if os.path.dirname(each) == path)
        inside = [Entry(os.path.basename(each), True, 0) for each in below]
        return inside + [
            Entry(os.path.basename(name), False, len(content.data))
            for name, content in self.files.items()
            if os.path.dirname(name) == path
        ]

    def make_directory(self, path: str) -> None:
        while path not in self.directories and path != "/":
            self.directories.add(path)
            path = os.path.dirname(path)

    def rename(self, old: str, new: str) -> None:
        self.plan.check()
        if old in self.files:
            self.files[new] = self.files.pop(old)
        elif old in self.directories:
            self.directories = {new if path == old else path for path in self.directories}
            self.files = {path.replace(old + "/", new + "/", 1): content for path, content in self.files.items()}
        else:
            raise FileNotFoundError(old)

    def remove(self, path: str) -> None:
        self.plan.check()
        self.files.pop(path, None)

    def remove_directory(self, path: str) -> None:
        self.plan.check()
        self.directories.discard(path)
        self.files = {name: content for name, content in self.files.items() if not name.startswith(path + "/")}

    def sync_directory(self, path: str) -> None:
        self.plan.check()
        self._keep_names(path)

    def _keep_names(self, path: str) -> None:
        for name, content in self.files.items():
            if content.synced is None and os.path.dirname(name) == path:
                content.synced = b""

    def lock(self, path: str) -> Lock | None:
        if path in self._held:
            return None
        self._held.add(path)
        return MemoryLock(self._held, path)
