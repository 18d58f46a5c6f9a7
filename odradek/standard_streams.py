"""Standard streams: makes closed ones, and pipes without a reader, harmless for a broker.

Where descriptor 0, 1 or 2 is closed at the start, the next opened file gets its number: a log segment as descriptor 2
would receive any output of a library. Where the reader of a pipe has closed it, a write fails, and the process would
fail, too.
"""

from __future__ import annotations

import errno
import os
import sys
from typing import Final

_STREAMS: Final = ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w"))
GONE: Final = frozenset({errno.EPIPE, errno.EIO, errno.EBADF})
"""Errors of a pipe without a reader, of a terminal that has hung up, and of a closed descriptor: they are permanent."""


def open_missing_streams() -> None:
    """Open /dev/null in the place of each closed standard stream. Call it before any file is opened."""
    for number, name, mode in _STREAMS:
        try:
            os.fstat(number)
        except OSError:
            discard(number)
        if getattr(sys, name) is None:
            setattr(sys, name, open(number, mode, closefd=False))  # noqa: SIM115


def print_line(text: str) -> None:
    """Print to standard output and flush; a closed pipe is not an error."""
    try:
        print(text, file=sys.stdout, flush=True)
    except OSError:
        discard(1)  # or the interpreter's last flush would fail, and the exit status with it


def discard(number: int) -> None:
    """Redirect a descriptor to /dev/null from now on."""
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, number)  # also where they are the same: child processes have to inherit it
    os.set_inheritable(number, True)
    if null != number:
        os.close(null)
