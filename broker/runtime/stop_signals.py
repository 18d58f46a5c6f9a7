"""The signals that cause an orderly shutdown of a process."""

from __future__ import annotations

import signal
from typing import Final

_ALWAYS: Final = (signal.SIGTERM, signal.SIGINT)


def stop_signals() -> tuple[signal.Signals, ...]:
    """SIGTERM, SIGINT, and SIGHUP unless the process was started with SIGHUP ignored, as nohup does (a JVM, too)."""
    ignored = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    return _ALWAYS if ignored else (*_ALWAYS, signal.SIGHUP)
