"""File descriptors: separates a process that has none left from a disk that fails, and holds some in reserve.

EMFILE and ENFILE are no sign of a failing disk. An operation that gets one fails with `NoDescriptor`, which is
KAFKA_STORAGE_ERROR for the client, and everything stays online: the next request succeeds when descriptors are free.

Most files are open for a moment only: checkpoints, indexes, snapshots of producers, a directory that is synced or
listed. These must not fail in the middle of a change to a log, so the process holds a few descriptors in reserve and
closes them for as long as such a file is open (`momentary`). Files that stay open (segments) and connections never use
the reserve.
"""

from __future__ import annotations

import errno
import functools
import os
import resource
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final, ParamSpec, TypeVar

from odradek.protocol.errors import ErrorCode, KafkaError

EXHAUSTED: Final = frozenset({errno.EMFILE, errno.ENFILE})
RESERVED: Final = 8
"""Descriptors that a broker holds in reserve: a few threads that each have a file open, or one that removes a tree."""
_OPEN_FILES: Final = "/dev/fd"
_WHAT_TO_DO: Final = "close connections, or raise the limit (ulimit -n, LimitNOFILE)"

P = ParamSpec("P")
R = TypeVar("R")


class NoDescriptor(KafkaError):  # noqa: N818 - named after the missing resource
    """A file could not be opened for lack of a descriptor; the disk is sound, and no data is lost."""

    def __init__(self, what: str, error: BaseException) -> None:
        super().__init__(ErrorCode.KAFKA_STORAGE_ERROR, f"{what}: {error}; {_WHAT_TO_DO}")


def is_exhausted(error: BaseException | None) -> bool:
    """Whether an operation failed only for lack of a descriptor."""
    return isinstance(error, NoDescriptor) or (isinstance(error, OSError) and error.errno in EXHAUSTED)


class Reserve:
    """Descriptors that this process holds in order to release them. Empty until `fill`; thread-safe."""

    def __init__(self) -> None:
        self._wanted = 0
        self._held: list[int] = []
        self._lock = threading.Lock()

    def fill(self, count: int = RESERVED) -> None:
        """Hold `count` descriptors from here on, as far as the process can open them."""
        self._wanted = count
        self._replenish()

    @property
    def missing(self) -> int:
        """The number of descriptors that the reserve lacks at the moment."""
        return self._wanted - len(self._held)

    def release(self) -> None:
        """Close all descriptors of the reserve, for good."""
        self._wanted = 0
        with self._lock:
            while self._held:
                os.close(self._held.pop())

    @contextmanager
    def lent(self) -> Iterator[None]:
        """Close the descriptors of the reserve while the body opens files."""
        with self._lock:
            while self._held:
                os.close(self._held.pop())
        try:
            yield
        finally:
            self._replenish()

    def _replenish(self) -> None:
        with self._lock, suppress(OSError):
            while len(self._held) < self._wanted:
                self._held.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))


RESERVE: Final = Reserve()
"""The reserve of this process."""


def momentary(work: Callable[P, R]) -> Callable[P, R]:
    """Let a function use the reserve. It must close the files that it opens, and must be repeatable."""

    @functools.wraps(work)
    def done(*arguments: P.args, **named: P.kwargs) -> R:
        try:
            return work(*arguments, **named)
        except OSError as error:
            if error.errno not in EXHAUSTED:
                raise
        with RESERVE.lent():
            return work(*arguments, **named)

    return done


def limit_and_left() -> tuple[int, int]:
    """How many descriptors this process may have, and how many of these are free. Raises OSError."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit == resource.RLIM_INFINITY:
        return limit, 2**31
    return limit, limit - _open_files()


@momentary
def _open_files() -> int:
    """The number of open descriptors without that of the listing itself; the reserve counts while it is lent, too."""
    return len(os.listdir(_OPEN_FILES)) - 1 + RESERVE.missing
