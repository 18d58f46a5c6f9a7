"""Ends the processes that the tests started, however the tests end.

A Java process outlives a test run that was interrupted or killed, and holds memory and ports. So one small guard
process, in a session of its own, holds the list of running processes. It reads that list from a pipe; the kernel closes
the pipe when the test process dies, for any reason, and the guard then kills the rest.
"""

from __future__ import annotations

import atexit
import functools
import os
import signal
import subprocess
import sys
from contextlib import suppress


class Watchdog:
    """The test process's end of the guard."""

    def __init__(self) -> None:
        self._guard = subprocess.Popen(
            [sys.executable, "-I", __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C in the terminal must not reach it
        )

    def watch(self, pid: int) -> None:
        """Ends process `pid` together with this one, from now on."""
        self._send(f"+{pid}\n")

    def forget(self, pid: int) -> None:
        """Process `pid` has been waited for: the kernel may give its number to another process."""
        assert self._guard.stdin is not None
        if not self._guard.stdin.closed:  # what ends after the guard, when this process ends, needs it no more
            self._send(f"-{pid}\n")

    def close(self) -> None:
        """End the guard, and with it what it still watches."""
        assert self._guard.stdin is not None
        self._guard.stdin.close()
        self._guard.wait()

    def _send(self, line: str) -> None:
        assert self._guard.stdin is not None
        with suppress(BrokenPipeError):
            self._guard.stdin.write(line.encode())
            self._guard.stdin.flush()


@functools.cache
def watchdog() -> Watchdog:
    """The one watchdog of this process, started on first use."""
    made = Watchdog()
    atexit.register(made.close)
    return made


def _guard() -> None:
    running: set[int] = set()
    for line in sys.stdin:
        pid = int(line[1:])
        if line[0] == "+":
            running.add(pid)
        else:
            running.discard(pid)
    for pid in running:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


if __name__ == "__main__":
    _guard()
