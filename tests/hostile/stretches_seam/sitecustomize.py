"""Measures for how long the event loop of a broker serves no other connection, where PYTHONPATH names this folder.

A stretch is one iteration of the loop: from the end of one wait for events to the beginning of the next. It counts with
the CPU time of the process, or with its duration where that is less, so other processes of the machine do not change
it. The file `stretches` beside the broker's data folder has a line for each stretch over FROM_MS: its milliseconds, its
duration and the CPU time of the process in milliseconds, how often the system preempted the process, the pages that it
mapped, and the milliseconds that the host of a virtual machine took from its processors (`steal` in /proc/stat, in
steps of 10) since STEAL_NS before the stretch or later. The loop is asyncio's instead of uvloop's, whose iterations
cannot be measured. Processes other than brokers are unchanged.

With STACKS_MS in the environment, standard error has the stacks of all threads of each stretch that takes so many
milliseconds, as they are at that time.
"""

from __future__ import annotations

import asyncio
import os
import resource
import selectors
import signal
import sys
import threading
import time
import traceback
from pathlib import Path
from typing import Any, Final

FROM_MS: Final = 1.0
STACKS_MS: Final = float(os.environ.get("STACKS_MS", "0"))
STACK_LINES: Final = 10
STEAL_NS: Final = 20_000_000
DATA_OPTION: Final = "--override=log.dirs="


class MeasuringSelector(selectors.EpollSelector):
    """A selector that measures the time between two waits."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._file = path.open("a", buffering=1)
        self._began_ns = self._cpu_ns = 0
        self._used = resource.getrusage(resource.RUSAGE_SELF)
        self._stolen_ms, self._stolen_ns = stolen_ms(), time.monotonic_ns()

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if self._began_ns:
            wall_ns, cpu_ns = time.monotonic_ns() - self._began_ns, time.process_time_ns() - self._cpu_ns
            took_ns = min(wall_ns, cpu_ns)
            if took_ns > FROM_MS * 1e6:
                used = resource.getrusage(resource.RUSAGE_SELF)
                preemptions, pages = used.ru_nivcsw - self._used.ru_nivcsw, used.ru_minflt - self._used.ru_minflt
                times = f"{took_ns / 1e6:.3f} {wall_ns / 1e6:.3f} {cpu_ns / 1e6:.3f}"
                self._file.write(f"{times} {preemptions} {pages} {stolen_ms() - self._stolen_ms}\n")
        if STACKS_MS:
            signal.setitimer(signal.ITIMER_REAL, 0)
        found = super().select(timeout)
        if STACKS_MS:
            signal.setitimer(signal.ITIMER_REAL, STACKS_MS / 1000)
        if time.monotonic_ns() - self._stolen_ns > STEAL_NS:
            self._stolen_ms, self._stolen_ns = stolen_ms(), time.monotonic_ns()
        self._used = resource.getrusage(resource.RUSAGE_SELF)
        self._began_ns, self._cpu_ns = time.monotonic_ns(), time.process_time_ns()
        return found

    def close(self) -> None:
        super().close()
        self._file.close()


def stolen_ms() -> int:
    """What the host has taken from all processors since the start of the virtual machine; 0 on other systems."""
    try:
        with open("/proc/stat") as file:
            return int(file.readline().split()[8]) * 10
    except (OSError, IndexError):
        return 0


def print_stacks(*_: object) -> None:
    """Write the stacks of the loop and of the threads that take turns with it to standard error."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    for ident, frame in sys._current_frames().items():
        stack = traceback.extract_stack(frame)
        if stack[-1].name == "print_stacks":
            del stack[-1]
        if names.get(ident) in ("MainThread", "request handler") and "acquire" not in (stack[-1].line or ""):
            calls = " < ".join(
                f"{Path(call.filename).stem}:{call.lineno} {call.name}" for call in stack[:-STACK_LINES:-1]
            )
            print(f"stack of {names[ident]}: {calls}", file=sys.stderr, flush=True)


def measure(path: Path) -> None:
    """Replace the loop that the broker makes."""
    import uvloop

    if STACKS_MS:
        signal.signal(signal.SIGALRM, print_stacks)

    make: Any = lambda: asyncio.SelectorEventLoop(MeasuringSelector(path))  # noqa: E731
    uvloop.new_event_loop = make


for argument in sys.orig_argv:
    if argument.startswith(DATA_OPTION):
        measure(Path(argument.removeprefix(DATA_OPTION)).with_name("stretches"))
