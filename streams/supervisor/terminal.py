"""Controlling terminal: separates the SIGHUP at its end from a SIGHUP that a user sends.

The kernel sends SIGHUP when the terminal of a foreground command is closed. By then the process has no controlling
terminal any more, and that is the difference.
"""

from __future__ import annotations

import os


class ControllingTerminal:
    """The terminal that the process was started from, if any."""

    def __init__(self) -> None:
        self._is_open = _has_terminal()

    def has_hung_up(self) -> bool:
        """Whether the terminal has gone since the last call."""
        before, self._is_open = self._is_open, self._is_open and _has_terminal()
        return before and not self._is_open


def _has_terminal() -> bool:
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY))
    except OSError:
        return False
    return True
