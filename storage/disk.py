"""The interface between storage and the operating system: files, directories and locks.

`Disk` and `File` list the operations that the log needs of a file system; `OsDisk` is the real one. In tests a
simulated disk that loses unsynced writes, tears sectors or runs full replaces it, and no other module of storage opens,
renames or lists a file by itself.

Guarantees of a disk: `File.write` writes everything or raises OSError (a short write is one); after a failed write the
bytes past the old end are undefined. Nothing is durable before `File.sync`, and a created, renamed or removed name is
durable only after `Disk.sync_directory` of its parent.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shutil
from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol

from odradek.storage.descriptors import momentary

Buffer = bytes | bytearray | memoryview

TEMPORARY_SUFFIX: Final = ".tmp"


class Entry(NamedTuple):
    """One name in a directory; `size` is in bytes, 0 for a directory."""

    name: str
    is_directory: bool
    size: int


class File(Protocol):
    """An open file, read and written at positions that the caller keeps. It closes with its last reference."""

    def fileno(self) -> int:
        """The descriptor, for `os.sendfile`. Raises OSError where the file is not the operating system's."""
        ...

    def read(self, size: int, position: int) -> bytes:
        """Up to `size` bytes from `position`; fewer only at the end of the file."""
        ...

    def write(self, data: Buffer, position: int) -> None:
        """Write all of `data` at `position` with one system call. Raises OSError."""
        ...

    def write_parts(self, parts: Sequence[Buffer], position: int) -> None:
        """Write the parts one behind the other, with one system call. Raises OSError."""
        ...

    def truncate(self, size: int) -> None:
        """Truncate or extend to `size` bytes; added bytes read as zeros."""
        ...

    def sync(self) -> None:
        """Return once everything written is on stable storage. After an OSError the data counts as lost."""
        ...

    def close(self) -> None:
        """Close the descriptor; closing twice is harmless."""
        ...


class Disk(Protocol):
    """A file system; paths are absolute strings. Everything raises OSError as the operating system does."""

    def open(self, path: str) -> File:
        """Open for reading and writing, created empty where it is missing."""
        ...

    def open_existing(self, path: str) -> File:
        """Open as `open` does. Raises FileNotFoundError where it is missing."""
        ...

    def read(self, path: str) -> bytes:
        """The whole file. Raises FileNotFoundError."""
        ...

    def replace(self, path: str, data: Buffer, *, sync: bool) -> None:
        """Put a file in place whole: a reader sees the old bytes or the new ones. `sync` makes it durable too."""
        ...

    def exists(self, path: str) -> bool:
        """Whether there is a file or directory at `path`."""
        ...

    def modified_ms(self, path: str) -> int:
        """When the file was last written, in milliseconds since 1970."""
        ...

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        """Set the modification time of a file."""
        ...

    def list(self, path: str) -> list[Entry]:
        """The names in a directory, in no order; a file that a thread renames or removes meanwhile may be missing."""
        ...

    def make_directory(self, path: str, mode: int = 0o777) -> None:
        """Create a directory, with a mode, and its parents; an existing one stays as it is."""
        ...

    def rename(self, old: str, new: str) -> None:
        """Move a file or directory within the file system; a file at `new` is replaced."""
        ...

    def remove(self, path: str) -> None:
        """Remove a file; a missing one is no error."""
        ...

    def remove_directory(self, path: str) -> None:
        """Remove a directory and its contents; a missing one is no error."""
        ...

    def sync_directory(self, path: str) -> None:
        """Make the names in a directory durable."""
        ...

    def lock(self, path: str) -> Lock | None:
        """Take the exclusive lock on a file, which is created where missing; None where it is held already."""
        ...


class Lock(Protocol):
    """A lock that is held until `release`."""

    def release(self) -> None:
        """Release the lock; the file stays."""
        ...


class OsFile:
    """A file of the operating system."""

    __slots__ = ("_fd",)

    def __init__(self, path: str, *, create: bool = True) -> None:
        self._fd = -1
        self._fd = os.open(path, os.O_RDWR | (os.O_CREAT if create else 0) | os.O_CLOEXEC, 0o644)

    def __del__(self) -> None:
        # A slice of the file may still be sent to a consumer while its segment is dropped; the last reference closes.
        self.close()

    def fileno(self) -> int:
        return self._fd

    def read(self, size: int, position: int) -> bytes:
        data = os.pread(self._fd, size, position)
        if len(data) in (size, 0):
            return data
        parts = [data]
        missing = size - len(data)
        while missing:
            data = os.pread(self._fd, missing, position + size - missing)
            if not data:
                break
            parts.append(data)
            missing -= len(data)
        return b"".join(parts)

    def write(self, data: Buffer, position: int) -> None:
        written = os.pwrite(self._fd, data, position)
        size = len(data)
        while written < size:  # a signal or a full disk cut it short; the next call returns which
            more = os.pwrite(self._fd, memoryview(data)[written:], position + written)
            if more == 0:
                raise OSError(errno.EIO, "the disk takes no more bytes")
            written += more

    def write_parts(self, parts: Sequence[Buffer], position: int) -> None:
        if os.pwritev(self._fd, parts, position) != sum(map(len, parts)):
            self.write(b"".join(parts), position)

    def truncate(self, size: int) -> None:
        os.ftruncate(self._fd, size)

    def sync(self) -> None:
        os.fsync(self._fd)

    def close(self) -> None:
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            os.close(fd)


class OsDisk:
    """The file system of the operating system. Files that are open for a moment only may use the reserve."""

    def open(self, path: str) -> File:
        return OsFile(path)

    def open_existing(self, path: str) -> File:
        return OsFile(path, create=False)

    @momentary
    def read(self, path: str) -> bytes:
        with open(path, "rb") as file:
            return file.read()

    @momentary
    def replace(self, path: str, data: Buffer, *, sync: bool) -> None:
        temporary = path + TEMPORARY_SUFFIX
        with open(temporary, "wb") as file:
            file.write(data)
            if sync:
                file.flush()
                os.fsync(file.fileno())
        os.replace(temporary, path)
        if sync:
            self.sync_directory(os.path.dirname(path))

    def exists(self, path: str) -> bool:
        return os.path.lexists(path)

    def modified_ms(self, path: str) -> int:
        return os.stat(path).st_mtime_ns // 1_000_000

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        os.utime(path, ns=(modified_ms * 1_000_000, modified_ms * 1_000_000))

    @momentary
    def list(self, path: str) -> list[Entry]:
        found = []
        with os.scandir(path) as names:
            for name in names:
                with contextlib.suppress(FileNotFoundError):  # a thread has renamed or removed it meanwhile
                    is_directory = name.is_dir()
                    found.append(Entry(name.name, is_directory, 0 if is_directory else name.stat().st_size))
        return found

    def make_directory(self, path: str, mode: int = 0o777) -> None:
        os.makedirs(path, mode, exist_ok=True)

    def rename(self, old: str, new: str) -> None:
        os.replace(old, new)

    def remove(self, path: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)

    @momentary
    def remove_directory(self, path: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(path)

    @momentary
    def sync_directory(self, path: str) -> None:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def lock(self, path: str) -> Lock | None:
        return OsLock.take(path)


class ReservedDisk(OsDisk):
    """The same for one file that the broker cannot do without: it may take its descriptor from the reserve."""

    open = momentary(OsDisk.open)


def make_durable_directory(disk: Disk, path: str) -> None:
    """Create a directory and those above it, and make their names durable. Raises OSError.

    A loss of power that takes the name of a directory takes all files in it.
    """
    missing, at = [], path
    while not _is_there(disk, at):
        missing.append(at)
        at = os.path.dirname(at) or "."
    disk.make_directory(path)
    for each in missing:
        with contextlib.suppress(PermissionError):  # a user who may not read the parent may still use this directory
            disk.sync_directory(os.path.dirname(each) or ".")


def _is_there(disk: Disk, path: str) -> bool:
    try:
        disk.list(path)
    except FileNotFoundError:
        return False
    except OSError:
        return True  # it cannot be read, or is no directory: the caller that uses it gets the error
    return True


class OsLock:
    """A POSIX record lock, the kind that Java's FileChannel takes, so that Kafka and Odradek exclude each other.

    Such a lock belongs to the process: the system grants it to its holder again, and closing any descriptor of the file
    releases it. Against the first, this class keeps a list of the files that this process holds; against the second, no
    other code opens the file.
    """

    __slots__ = ("_fd", "_identity")

    _held: Final[set[tuple[int, int]]] = set()

    def __init__(self, fd: int, identity: tuple[int, int]) -> None:
        self._fd = fd
        self._identity = identity

    @classmethod
    def take(cls, path: str) -> OsLock | None:
        """The lock on `path`, or None where this process or another one holds it."""
        with contextlib.suppress(FileNotFoundError):
            status = os.stat(path)
            if (status.st_dev, status.st_ino) in cls._held:
                return None
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(fd)
            if error.errno in (errno.EACCES, errno.EAGAIN):
                return None
            raise
        status = os.fstat(fd)
        identity = (status.st_dev, status.st_ino)
        cls._held.add(identity)
        return cls(fd, identity)

    def release(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
            self._held.discard(self._identity)


class Folder:
    """One directory of a disk. The files of a log share it, so that renaming the directory is one assignment."""

    __slots__ = ("disk", "path")

    def __init__(self, disk: Disk, path: str) -> None:
        self.disk = disk
        self.path = path

    def __truediv__(self, name: str) -> str:
        return f"{self.path}/{name}"

    def open(self, name: str) -> File:
        """The file, created where missing."""
        return self.disk.open(self / name)

    def open_existing(self, name: str) -> File:
        """The file. Raises FileNotFoundError where it is missing."""
        return self.disk.open_existing(self / name)

    def read(self, name: str) -> bytes | None:
        """The whole file, or None where there is none."""
        try:
            return self.disk.read(self / name)
        except FileNotFoundError:
            return None

    def replace(self, name: str, data: Buffer, *, sync: bool) -> None:
        """Put the file in place whole (`Disk.replace`)."""
        self.disk.replace(self / name, data, sync=sync)

    def exists(self, name: str) -> bool:
        """Whether there is such a file."""
        return self.disk.exists(self / name)

    def modified_ms(self, name: str) -> int:
        """When the file was last written, in milliseconds since 1970."""
        return self.disk.modified_ms(self / name)

    def set_modified_ms(self, name: str, modified_ms: int) -> None:
        """Set the modification time of a file."""
        self.disk.set_modified_ms(self / name, modified_ms)

    def list(self) -> list[Entry]:
        """The names in the folder, in no order."""
        return self.disk.list(self.path)

    def remove(self, name: str) -> None:
        """Remove a file; a missing one is no error."""
        self.disk.remove(self / name)

    def rename(self, old: str, new: str) -> bool:
        """Rename a file within the folder; False where it is missing."""
        try:
            self.disk.rename(self / old, self / new)
        except FileNotFoundError:
            return False
        return True

    @momentary
    def sync_file(self, name: str) -> None:
        """Make a file durable by name; a missing one was deleted meanwhile and needs no sync."""
        if self.exists(name):
            file = self.open(name)
            try:
                file.sync()
            finally:
                file.close()

    def sync(self) -> None:
        """Make the names in the folder durable."""
        self.disk.sync_directory(self.path)
