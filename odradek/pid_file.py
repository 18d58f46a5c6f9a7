"""Pid files: the id of a running process, and whether it still runs.

A process holds a lock on its pid file for as long as it lives, so a file that a crash has left identifies no process,
even when another process has the same id. The lock also signals the end of a process without polling.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import threading
from pathlib import Path


class PidFileInUseError(Exception):
    """Another process holds the pid file; the message contains its id and the file."""


class PidFile:
    """The pid file of this process, from `PidFile(path)` to `remove`."""

    def __init__(self, path: Path) -> None:
        """Lock the file and write this process's id into it. Raises PidFileInUseError, OSError."""
        self._path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        self._descriptor = _lock(path)
        os.ftruncate(self._descriptor, 0)
        os.write(self._descriptor, b"%d\n" % os.getpid())

    def remove(self) -> None:
        """Remove the file; the lock ends with the process."""
        with contextlib.suppress(OSError):
            self._path.unlink()


def _lock(path: Path) -> int:
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            raise PidFileInUseError(
                f"process {_read(path) or 'unknown'} runs already, with the pid file {path}"
            ) from None
        if _is_at(descriptor, path):
            return descriptor
        os.close(descriptor)  # its owner removed it between the two calls


def _is_at(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    except FileNotFoundError:
        return False


def _read(path: Path) -> int | None:
    with contextlib.suppress(OSError, ValueError):
        return int(path.read_text())
    return None


def running_process(path: Path) -> int | None:
    """The process that holds the pid file at `path`; None where none does. Raises OSError, FileNotFoundError not."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return _read(path)
    finally:
        os.close(descriptor)
    return None


def await_end(path: Path, timeout_s: float) -> bool:
    """Whether the process that holds the pid file at `path` ends within `timeout_s`."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return True
    # A thread, since flock(2) has no timeout; where time is over, it ends with this process.
    waiting = threading.Thread(target=fcntl.flock, args=(descriptor, fcntl.LOCK_SH), daemon=True)
    waiting.start()
    waiting.join(timeout_s)
    return not waiting.is_alive()
