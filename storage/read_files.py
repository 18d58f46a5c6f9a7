"""Opens files that another process may be writing, for reading only.

`disk.py` is the file system of a log that this process owns: it opens for writing and creates missing files. A reader
beside a running broker must do neither, so it uses this module. No call of it changes a file, a directory or a lock.
"""

from __future__ import annotations

import os
from types import TracebackType
from typing import Final, Self

from odradek.storage.segment import DELETED_SUFFIX, LOG_SUFFIX

_DIGITS: Final = 20


class ReadFile:
    """One file, open to be read at positions that the caller keeps; a context that closes it. Methods raise OSError.

    It continues to read the opened file after its name was removed, or was given to another file.
    """

    __slots__ = ("_fd", "path")

    def __init__(self, path: str) -> None:
        """Raises OSError, so FileNotFoundError where there is no such file."""
        self._fd = -1
        self.path = path
        self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()

    @property
    def name(self) -> str:
        """The last part of the path."""
        return os.path.basename(self.path)

    @property
    def size(self) -> int:
        """The size of the file at this moment, in bytes."""
        return os.fstat(self._fd).st_size

    @property
    def identity(self) -> tuple[int, int]:
        """A value that distinguishes this file from another one of the same name."""
        status = os.fstat(self._fd)
        return status.st_dev, status.st_ino

    def read(self, size: int, position: int) -> bytes:
        """Up to `size` bytes from `position`; fewer only at the end of the file."""
        data = os.pread(self._fd, size, position)
        while data and len(data) < size:
            more = os.pread(self._fd, size - len(data), position + len(data))
            if not more:
                break
            data += more
        return data

    def close(self) -> None:
        """Close the descriptor; closing twice is harmless."""
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            os.close(fd)


def read_whole(path: str) -> bytes:
    """All of a small file. Raises OSError."""
    with ReadFile(path) as file:
        return file.read(file.size, 0)


def base_offset_of(path: str) -> int | None:
    """The offset in the name of a segment, index or snapshot; None for any other name."""
    stem = os.path.basename(path).partition(".")[0]
    return int(stem) if len(stem) == _DIGITS and stem.isascii() and stem.isdigit() else None


def sibling(path: str, suffix: str) -> str:
    """The file beside `path` that belongs to the same segment: `suffix` is `.log`, `.index` and so on."""
    folder, name = os.path.split(path)
    return os.path.join(folder, name.partition(".")[0] + suffix)


def segments_in(folder: str) -> list[int]:
    """The base offsets of the segments in a partition's directory, ascending. Raises OSError."""
    with os.scandir(folder) as entries:
        bases = (base_offset_of(entry.name) for entry in entries if entry.name.endswith(LOG_SUFFIX) and entry.is_file())
        return sorted(base for base in bases if base is not None)


def log_files(path: str) -> list[str]:
    """The logs of `path`: itself, those of a partition's directory, or those of all partitions in it.

    Raises OSError.
    """
    if not os.path.isdir(path):
        return [path]
    found = [os.path.join(path, f"{base:020d}{LOG_SUFFIX}") for base in segments_in(path)]
    for folder in sorted(entry.path for entry in os.scandir(path) if entry.is_dir()):
        found += [os.path.join(folder, f"{base:020d}{LOG_SUFFIX}") for base in segments_in(folder)]
    return found


def files_to_rescue(path: str) -> list[str]:
    """`path` itself, or the files of all segments below a directory, deleted ones included. Raises OSError."""
    if not os.path.isdir(path):
        return [path]
    found: list[str] = []
    for folder, _, names in os.walk(path, onerror=_raise):
        found += (
            os.path.join(folder, name) for name in names if name.removesuffix(DELETED_SUFFIX).endswith(LOG_SUFFIX)
        )
    return sorted(found)


def _raise(error: OSError) -> None:
    raise error
