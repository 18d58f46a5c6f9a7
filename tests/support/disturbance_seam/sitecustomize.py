"""Makes a broker's disk slow and its clock wrong while a test requests it, where PYTHONPATH names this folder.

`tests/support/disturbance.py` requests it, in files beside the broker's data folder: `slow-disk` holds the milliseconds
that every write and sync takes longer, `clock-step` those by which the wall clock is ahead. A broker in which either
acts writes a file of that name with `.felt` behind it. Processes other than brokers are unchanged.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any, Final

DATA_OPTION: Final = "--override=log.dirs="


class Flag:
    """Milliseconds in a file; 0 while it is not there."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._felt = path.with_suffix(".felt")

    def read_ms(self) -> int:
        try:
            found = int(self._path.read_text())
        except FileNotFoundError:
            return 0
        self._felt.touch()
        return found


def disturb(folder: Path) -> None:
    """Replace the functions that the broker's modules call."""
    from odradek.broker.runtime.timers import SystemClock
    from odradek.storage.disk import OsFile

    slow, step = Flag(folder / "slow-disk"), Flag(folder / "clock-step")

    def slowed(call: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(call)
        def late(*arguments: Any) -> Any:
            if delay_ms := slow.read_ms():
                time.sleep(delay_ms / 1000)
            return call(*arguments)

        return late

    for name in ("write", "write_parts", "sync"):
        setattr(OsFile, name, slowed(getattr(OsFile, name)))
    now_ms = SystemClock.now_ms
    setattr(SystemClock, "now_ms", lambda clock: now_ms(clock) + step.read_ms())  # noqa: B010 (mypy forbids the other way)


for argument in sys.orig_argv:
    if argument.startswith(DATA_OPTION):
        disturb(Path(argument.removeprefix(DATA_OPTION)).parent)
