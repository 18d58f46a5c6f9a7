"""Measures for how long the event loop of a broker serves no other connection, where PYTHONPATH names this folder.

A stretch is one iteration of the loop: from the end of one wait for events to the beginning of the next. It counts with
the CPU time of the process, or with its duration where that is less, so other processes of the machine do not change
it. The file `stretches` beside the broker's data folder has a line for each stretch over FROM_MS: its milliseconds, its
duration and the CPU time of the process in milliseconds, how often the system preempted the process, the pages that it
mapped, and the milliseconds that the host of a virtual machine took from its processors (`steal` in /proc/stat, in
steps of 10) since STEAL_NS before the stretch or later. The loop is asyncio's instead of uvloop's, whose iterations
cannot be measured. Processes other than brokers are unchanged.

With STACKS_MS in the environment, standard error (the broker's log) has a profile of each stretch that takes so many
milliseconds: the stack of the loop, or of the thread that has its turn, each time the process has used another
SAMPLE_MS of CPU time since the beginning of the stretch, and how much of it were collections of garbage. The timer
counts the CPU time of the process, so other processes of the machine do not change it. Calls of C functions, as a sort,
are not interrupted: the function that returns from one is the stack of all of its time.
"""

from __future__ import annotations

import asyncio
import gc
import os
import resource
import selectors
import signal
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final, TypeAlias

FROM_MS: Final = 1.0
STACKS_MS: Final = float(os.environ.get("STACKS_MS", "0"))
SAMPLE_MS: Final = 1.0
STACK_LINES: Final = 10
Calls: TypeAlias = tuple[tuple[CodeType, int], ...]
"""Functions and the lines in which they are, the innermost first."""
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
        self._profile = Profile() if STACKS_MS else None

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        took_ns = 0
        if self._began_ns:
            wall_ns, cpu_ns = time.monotonic_ns() - self._began_ns, time.process_time_ns() - self._cpu_ns
            took_ns = min(wall_ns, cpu_ns)
            if took_ns > FROM_MS * 1e6:
                used = resource.getrusage(resource.RUSAGE_SELF)
                preemptions, pages = used.ru_nivcsw - self._used.ru_nivcsw, used.ru_minflt - self._used.ru_minflt
                times = f"{took_ns / 1e6:.3f} {wall_ns / 1e6:.3f} {cpu_ns / 1e6:.3f}"
                self._file.write(f"{times} {preemptions} {pages} {stolen_ms() - self._stolen_ms}\n")
        if self._profile is not None:
            self._profile.end(took_ns / 1e6)
        found = super().select(timeout)
        if self._profile is not None:
            self._profile.begin()
        if time.monotonic_ns() - self._stolen_ns > STEAL_NS:
            self._stolen_ms, self._stolen_ns = stolen_ms(), time.monotonic_ns()
        self._used = resource.getrusage(resource.RUSAGE_SELF)
        self._began_ns, self._cpu_ns = time.monotonic_ns(), time.process_time_ns()
        return found

    def close(self) -> None:
        super().close()
        self._file.close()
        if self._profile is not None:
            self._profile.close()


def stolen_ms() -> int:
    """What the host has taken from all processors since the start of the virtual machine; 0 on other systems."""
    try:
        with open("/proc/stat") as file:
            return int(file.readline().split()[8]) * 10
    except (OSError, IndexError):
        return 0


class Profile:
    """The stacks of the present stretch, which are printed if it takes STACKS_MS."""

    def __init__(self) -> None:
        self._stacks: Counter[Calls] = Counter()
        self._is_sampling = False
        self._collecting_ns = self._collection_began_ns = 0
        signal.signal(signal.SIGPROF, self._sample)
        gc.callbacks.append(self._collect)
        start = threading.Thread.start

        def start_without_signal(thread: threading.Thread) -> None:
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGPROF})  # of the new thread: the loop's thread samples
            try:
                start(thread)
            finally:
                signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGPROF})

        setattr(threading.Thread, "start", start_without_signal)  # noqa: B010  # mypy permits no other assignment

    def begin(self) -> None:
        """A stretch begins."""
        self._stacks.clear()
        self._collecting_ns = 0
        signal.setitimer(signal.ITIMER_PROF, SAMPLE_MS / 1000, SAMPLE_MS / 1000)

    def end(self, took_ms: float) -> None:
        """The stretch has ended."""
        signal.setitimer(signal.ITIMER_PROF, 0)
        if took_ms < STACKS_MS:
            return
        lines = [f"stretch of {took_ms:.1f} ms, {self._collecting_ns / 1e6:.1f} ms of it in collections of garbage"]
        lines += [f"  {count:>3} times {_text(stack)}" for stack, count in self._stacks.most_common()]
        print("\n".join(lines), file=sys.stderr, flush=True)

    def close(self) -> None:
        """The loop has ended, and the interpreter will: a signal without a handler would end the process."""
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, signal.SIG_IGN)

    def _sample(self, *_: object) -> None:
        if self._is_sampling:
            return  # the signal came again before the end
        self._is_sampling = True
        names = {thread.ident: thread.name for thread in threading.enumerate()}
        for ident, frame in sys._current_frames().items():
            name, stack = names.get(ident, ""), _calls(frame)
            if name not in ("MainThread", "request handler") or not stack:
                continue
            innermost = stack[0][0].co_name
            waits = innermost in ("pause_if_due", "_run") if name == "request handler" else innermost == "resume"
            if not waits:
                self._stacks[stack] += 1
        self._is_sampling = False

    def _collect(self, phase: str, _: object) -> None:
        now_ns = time.monotonic_ns()
        if phase == "start":
            self._collection_began_ns = now_ns
        else:
            self._collecting_ns += now_ns - self._collection_began_ns


def _calls(frame: FrameType | None) -> Calls:
    """The innermost calls of a stack, without those of this module."""
    calls: list[tuple[CodeType, int]] = []
    while frame is not None and len(calls) < STACK_LINES:
        if frame.f_code.co_filename != __file__:
            calls.append((frame.f_code, frame.f_lineno or 0))
        frame = frame.f_back
    return tuple(calls)


def _text(calls: Calls) -> str:
    return " < ".join(f"{Path(code.co_filename).stem}:{line} {code.co_name}" for code, line in calls)


def measure(path: Path) -> None:
    """Replace the loop that the broker makes."""
    import uvloop

    make: Any = lambda: asyncio.SelectorEventLoop(MeasuringSelector(path))  # noqa: E731
    uvloop.new_event_loop = make


for argument in sys.orig_argv:
    if argument.startswith(DATA_OPTION):
        measure(Path(argument.removeprefix(DATA_OPTION)).with_name("stretches"))
