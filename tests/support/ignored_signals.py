"""Signals that a shell ignores for the tests, and so for the processes that they start."""

from __future__ import annotations

import signal
from typing import Final

SIGNALS: Final = (signal.SIGINT, signal.SIGHUP)
"""What `&` of a script and `nohup` ignore."""


def handle_ignored_signals() -> None:
    """Give each of SIGNALS that is ignored a handler: the processes of tests then start with its default effect."""
    for number in SIGNALS:
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler if number is signal.SIGINT else _no_effect)


def _no_effect(*_: object) -> None:
    """Let the tests continue without their terminal, as `nohup` does."""
