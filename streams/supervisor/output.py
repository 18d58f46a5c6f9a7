"""Merged output of workers: each line with the number of its process.

As text a line begins with `process=N`. As JSON each line is an object with the member `process`: a worker's log entries
have it already, and any other line becomes the `message` of an object.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable
from typing import IO, Final

LONGEST_LINE: Final = 64 * 1024
"""Bytes; a longer line is divided."""

_writing: Final = threading.Lock()


def mark_text(process: int, line: bytes) -> bytes:
    """The line of a process in a log of text."""
    return b"process=%d %b\n" % (process, line)


def mark_json(process: int, line: bytes) -> bytes:
    """The line of a process in a log of JSON objects."""
    if line.startswith(b"{") and line.endswith(b"}"):
        return line + b"\n"
    return json.dumps({"process": process, "message": line.decode("utf-8", "replace")}).encode() + b"\n"


def copy_lines(source: IO[bytes], descriptor: int, mark: Callable[[bytes], bytes]) -> None:
    """Copy the lines of `source` to a file descriptor, marked, until the end. An error of the descriptor, such as a
    pipe without a reader, discards lines: the process that writes them must not wait for ever.
    """
    with source:
        while line := source.readline(LONGEST_LINE):
            _write_all(descriptor, mark(line.rstrip(b"\r\n")))


def _write_all(descriptor: int, data: bytes) -> None:
    """Write with no line of another thread in between."""
    left = memoryview(data)
    with _writing:
        try:
            while left:
                left = left[os.write(descriptor, left) :]
        except OSError:
            return
