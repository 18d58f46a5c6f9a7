"""A simulated disk with the interface of `storage.disk`: the effects of a file system and its medium on a log.

A file is pages of 4 KiB in front of a medium that writes sectors of 512 bytes. Writes since the last sync are only in
memory; `lose_power` lets any of these pages reach the medium, or the first sectors of one, and lets the file's size be
the old or the new one: bytes that were never written read as zeros. Names follow the same rule: creating, renaming and
removing wait until their directory is synced, and of those that wait any may be lost, but those of one name or one file
only in order, and a rename never in half. POSIX allows no less; a file system with an ordered journal (ext4) keeps a
prefix. Each loss of power draws which of the two it is.

A sync that fails marks its pages clean, so that the next one succeeds and writes nothing: they are gone with the power
(Linux does this, found by PostgreSQL in 2018). `Plan` chooses the call that fails and its error; `flip` and `spoil`
damage the content of the medium.

A directory right below the root is a mount point, which exists before any broker.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import Final

from odradek.storage.disk import TEMPORARY_SUFFIX, Buffer, Entry, Lock
from tests.storage.names import Directory, Pending, settle_names
from tests.storage.pages import Choose, Content

__all__ = ["Choose", "MemoryDisk", "Plan", "at_random", "keep_all", "keep_nothing"]

ROOT: Final = "/"


def keep_nothing(most: int) -> int:
    """The loss of power that drops every unsynced write."""
    return 0


def keep_all(most: int) -> int:
    """The loss of power that came just after everything had been written."""
    return most


def at_random(random: Random, *first: int) -> Choose:
    """A loss of power that keeps anything; `first` are its first draws (1 alone: the order of a journal)."""
    drawn = iter(first)
    return lambda most: min(next(drawn, random.randint(0, most)), most)


class Plan:
    """Lets the call number `at` of those that change the disk fail with `code`, and all later ones if `lasting`.

    A failing write leaves half of its bytes behind, and a failing sync loses its pages. `calls` counts, so that a test
    has the number of calls, and `failed` those that failed; `before` is called before each call is carried out.
    """

    def __init__(self, at: int = -1, code: int = errno.EIO, *, lasting: bool = False) -> None:
        self.at, self.code, self.lasting = at, code, lasting
        self.calls = 0
        self.failed = 0
        self.before: Callable[[], None] | None = None
        self._next_sync = False

    def fail_next(self, code: int = errno.EIO, *, lasting: bool = False) -> None:
        """Let the next call fail, and those behind it if `lasting`."""
        self.at, self.code, self.lasting = self.calls, code, lasting

    def fail_next_sync(self) -> None:
        """Let the next sync of a file fail, after any other calls."""
        self._next_sync, self.code = True, errno.EIO

    def recover(self) -> None:
        """Let no call fail any more."""
        self.at, self._next_sync = -1, False

    def step(self, *, is_sync: bool = False) -> bool:
        """Count a call; whether it fails."""
        if self.before is not None:
            self.before()
        self.calls += 1
        fails = 0 <= self.at < self.calls if self.lasting else self.calls - 1 == self.at
        if is_sync and self._next_sync:
            self._next_sync, fails = False, True
        self.failed += fails
        return fails

    def check(self) -> None:
        """Count a call, and raise where it fails."""
        if self.step():
            raise self.error()

    def error(self) -> OSError:
        """The error of a failing call."""
        return OSError(self.code, os.strerror(self.code))


class MemoryFile:
    """An open file of a MemoryDisk."""

    def __init__(self, content: Content, plan: Plan) -> None:
        self._content, self._plan = content, plan
        self._open = True

    def fileno(self) -> int:
        raise OSError(errno.EBADF, "this file is in memory")

    def read(self, size: int, position: int) -> bytes:
        assert self._open
        return self._content.read(size, position)

    def write(self, data: Buffer, position: int) -> None:
        assert self._open
        if self._plan.step():
            self._content.write(bytes(data)[: len(data) // 2], position)
            raise self._plan.error()
        self._content.write(data, position)

    def write_parts(self, parts: Sequence[Buffer], position: int) -> None:
        self.write(b"".join(parts), position)

    def truncate(self, size: int) -> None:
        assert self._open
        self._plan.check()
        self._content.truncate(size)

    def sync(self) -> None:
        assert self._open
        if self._plan.step(is_sync=True):
            self._content.fail_sync()
            raise self._plan.error()
        self._content.sync()

    def close(self) -> None:
        self._open = False


class MemoryLock:
    """A lock of a MemoryDisk."""

    def __init__(self, held: set[str], path: str) -> None:
        self._held, self._path = held, path

    def release(self) -> None:
        self._held.discard(self._path)


class MemoryDisk:
    """A whole file system in memory, with all state that a loss of power can affect."""

    def __init__(self, plan: Plan | None = None) -> None:
        self.plan = plan or Plan()
        self._root = Directory()
        self._pending: list[Pending] = []
        self._held: set[str] = set()

    # ---- faults

    def lose_power(self, choose: Choose) -> None:
        """Every process is gone, and `choose` selects the unsynced writes that survive (0 each time: none)."""
        self._held.clear()
        any_order = choose(1) == 0
        settle_names(self._pending, choose, any_order=any_order)
        self._pending = []
        self._root = self._root.settled(choose, any_order=any_order)

    def kill(self) -> None:
        """Every process is gone; the operating system still has their writes."""
        self._held.clear()

    def fork(self) -> MemoryDisk:
        """A disk of its own with the same state, synced and unsynced; it has a new plan, and no process holds its
        locks.
        """
        copies: dict[int, Directory | Content] = {}
        disk = MemoryDisk()
        disk._root = self._root.copy(copies)
        disk._pending = [each.copy(copies) for each in self._pending]
        return disk

    def flip(self, path: str, bit: int) -> None:
        """Flip one bit of a file, counted from its begin, on the medium and in memory."""
        self._file(path).flip(bit)

    def spoil(self, path: str, position: int) -> None:
        """Let the page at a position be unreadable (EIO) until it is written again."""
        self._file(path).unreadable.add(position // Content.PAGE)

    @property
    def files(self) -> dict[str, Content]:
        """Every file by its path, as processes see them; sorted."""
        return dict(sorted(self._walk(ROOT, self._root)))

    def fingerprint(self) -> int:
        """A digest that is equal for disks with the same files, all of them synced, as after a loss of power."""
        assert not self._pending
        return self.visible()

    def visible(self) -> int:
        """A digest that is equal for disks on which processes see the same files."""
        return hash(
            (
                frozenset(self._folders(ROOT, self._root)),
                *((path, bytes(each.data), each.modified_ms) for path, each in self.files.items()),
            )
        )

    def _folders(self, path: str, directory: Directory) -> Iterator[str]:
        yield path
        for name, node in directory.names.items():
            if isinstance(node, Directory):
                yield from self._folders(os.path.join(path, name), node)

    def _walk(self, path: str, directory: Directory) -> Iterator[tuple[str, Content]]:
        for name, node in directory.names.items():
            below = os.path.join(path, name)
            if isinstance(node, Directory):
                yield from self._walk(below, node)
            else:
                yield below, node

    # ---- names

    def _find(self, path: str) -> Directory | Content | None:
        node: Directory | Content | None = self._root
        for name in path.split("/"):
            if name:
                if not isinstance(node, Directory):
                    return None
                node = node.names.get(name)
        return node

    def _directory(self, path: str) -> Directory:
        node = self._find(path)
        if not isinstance(node, Directory):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return node

    def _file(self, path: str) -> Content:
        node = self._find(path)
        if node is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        if isinstance(node, Directory):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        return node

    def _place(self, path: str) -> tuple[Directory, str]:
        above, _, name = path.rpartition("/")
        return self._directory(above or ROOT), name

    def _change(self, pending: Pending) -> None:
        pending.carry_out()
        self._pending.append(pending)

    # ---- the Disk protocol

    def open(self, path: str) -> MemoryFile:
        if self._find(path) is None:
            directory, name = self._place(path)
            self.plan.check()
            self._change(Pending(directory, name, Content()))
        return MemoryFile(self._file(path), self.plan)

    def open_existing(self, path: str) -> MemoryFile:
        return MemoryFile(self._file(path), self.plan)

    def read(self, path: str) -> bytes:
        content = self._file(path)
        return content.read(len(content.data), 0)

    def replace(self, path: str, data: Buffer, *, sync: bool) -> None:
        if self.exists(path + TEMPORARY_SUFFIX):
            self.open(path + TEMPORARY_SUFFIX).truncate(0)
        file = self.open(path + TEMPORARY_SUFFIX)
        file.write(data, 0)
        if sync:
            file.sync()
        self.rename(path + TEMPORARY_SUFFIX, path)
        if sync:
            self.sync_directory(os.path.dirname(path))

    def exists(self, path: str) -> bool:
        return self._find(path) is not None

    def modified_ms(self, path: str) -> int:
        return self._file(path).modified_ms

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        self._file(path).modified_ms = modified_ms

    def list(self, path: str) -> list[Entry]:
        return [
            Entry(name, True, 0) if isinstance(node, Directory) else Entry(name, False, len(node.data))
            for name, node in self._directory(path).names.items()
        ]

    def make_directory(self, path: str, mode: int = 0o777) -> None:
        if isinstance(self._find(path), Directory) or not path.strip("/"):
            return
        above = os.path.dirname(path)
        self.make_directory(above)
        directory, name = self._place(path)
        if directory is not self._root:
            self.plan.check()
        self._change(Pending(directory, name, Directory()))
        if directory is self._root:
            self._sync_names(directory)

    def rename(self, old: str, new: str) -> None:
        directory, name = self._place(old)
        node = directory.names.get(name)
        if node is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), old)
        target, new_name = self._place(new)
        self.plan.check()
        self._change(Pending(target, new_name, node, came_from=(directory, name)))

    def remove(self, path: str) -> None:
        if self._find(path) is not None:
            directory, name = self._place(path)
            self.plan.check()
            self._change(Pending(directory, name, None))

    def remove_directory(self, path: str) -> None:
        node = self._find(path)
        if node is None:
            return
        for name, below in list(self._directory(path).names.items()):
            if isinstance(below, Directory):
                self.remove_directory(f"{path}/{name}")
            else:
                self.remove(f"{path}/{name}")
        self.remove(path)

    def sync_directory(self, path: str) -> None:
        directory = self._directory(path)
        self.plan.check()
        self._sync_names(directory)

    def _sync_names(self, directory: Directory) -> None:
        waiting = []
        for pending in self._pending:
            if pending.touches(directory):
                pending.make_durable()
            else:
                waiting.append(pending)
        self._pending = waiting

    def lock(self, path: str) -> Lock | None:
        self.open(path)
        if path in self._held:
            return None
        self._held.add(path)
        return MemoryLock(self._held, path)
