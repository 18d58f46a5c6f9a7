"""A program on a pseudo-terminal."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import struct
import subprocess
import termios
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

LINES = 30


class Terminal:
    """A program that runs on a terminal. A context manager: its end ends the program."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        columns: int = 100,
        folder: Path | None = None,
        environment: Mapping[str, str] = os.environ,
    ) -> None:
        self._ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, columns, 0, 0))
        os.set_blocking(self._ours, False)
        sizes = ("COLUMNS", "LINES")  # pytest-xdist sets them, and they would count more than the terminal's own
        kept = {name: value for name, value in environment.items() if name not in sizes}
        self.process = subprocess.Popen(
            command,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env={**kept, "TERM": "xterm-256color"},
            cwd=folder,
            start_new_session=True,
        )
        os.close(theirs)
        self._printed = b""

    def printed(self) -> str:
        """Everything until now, with the sequences that place the text."""
        with contextlib.suppress(OSError):  # nothing yet, or the program has ended
            while data := os.read(self._ours, 65536):
                self._printed += data
        return self._printed.decode(errors="replace").replace("\r\n", "\n")

    def press(self, keys: str) -> None:
        """Type keys."""
        os.write(self._ours, keys.encode())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self._ours)
