"""Records what holds the event loop of a broker, where PYTHONPATH names this folder and ODRADEK_TEST_STALLS a file.

A timer runs every INTERVAL_S. While it is late by more than FROM_S, a thread takes the stack of the loop every SAMPLE_S
and the functions of the kernel in which the loop's thread waits. When the timer runs, the file gets a line of JSON: by
how many milliseconds it was late (`late_ms`), of these how many the loop's thread ran (`cpu_ms`) and how many it waited
for a processor that another thread or process had (`queued_ms`), the same of the other threads together
(`threads_cpu_ms`) and of the one that waited longest (`thread_queued_ms`), what the host of a virtual machine took from
the processors (`stolen_ms`, in steps of 10), how long collections of reference cycles took (`collections_ms`), and how
often each stack was found, with what the other threads did. A
stack begins with the functions of the kernel in which the thread waited, the innermost first (for root; else one); with
`?` it ran, or waited for a processor. Other processes than brokers are unchanged.

A thread that waits for a processor may hold the interpreter lock, for which the loop then waits, too. This module
cannot take a sample during that.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import sys
import threading
import time
from collections import Counter
from typing import Any, Final

INTERVAL_S: Final = 0.005
FROM_S: Final = 0.010
SAMPLE_S: Final = 0.003
DEPTH: Final = 14
KERNEL_DEPTH: Final = 6


class Watch:
    """Measures one loop from its own thread, and looks at it from another one."""

    def __init__(self, path: str) -> None:
        self._file = open(path, "a", buffering=1)  # noqa: SIM115
        self._due_ns = 0
        self._ident = 0
        self._stacks: Counter[str] = Counter()

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Measure the loop, which the calling thread is going to run."""
        self._loop = loop
        self._ident = threading.get_ident()
        self._task = f"/proc/self/task/{threading.get_native_id()}"
        self._schedstat = os.open(f"{self._task}/schedstat", os.O_RDONLY)
        self._stat = os.open("/proc/stat", os.O_RDONLY)
        self._of_threads: dict[int, int] = {}
        """An open file with the counters of each other thread."""
        self._before = self._counters()
        self._threads_before = self._counters_of_threads()
        self._collection_began_ns = self._collections_ns = 0
        gc.callbacks.append(self._note_collection)
        self._schedule()
        threading.Thread(target=self._sample, name="stalls", daemon=True).start()

    def _counters(self) -> tuple[int, int, int]:
        ran_ns, queued_ns, _ = os.pread(self._schedstat, 100, 0).split()
        stolen = int(os.pread(self._stat, 200, 0).split(b"\n", 1)[0].split()[8])
        return int(ran_ns), int(queued_ns), stolen * 10

    def _note_collection(self, phase: str, _: dict[str, int]) -> None:
        if phase == "start":
            self._collection_began_ns = time.monotonic_ns()
        else:
            self._collections_ns += time.monotonic_ns() - self._collection_began_ns

    def _counters_of_threads(self) -> dict[int, tuple[int, int]]:
        found = {}
        for thread in threading.enumerate():
            number = thread.native_id
            if number is None or thread.ident == self._ident:
                continue
            try:
                if number not in self._of_threads:
                    self._of_threads[number] = os.open(f"/proc/self/task/{number}/schedstat", os.O_RDONLY)
                ran_ns, queued_ns, _ = os.pread(self._of_threads[number], 100, 0).split()
            except OSError:  # it has ended
                os.close(self._of_threads.pop(number, os.open(os.devnull, os.O_RDONLY)))
            else:
                found[number] = int(ran_ns), int(queued_ns)
        return found

    def _schedule(self) -> None:
        self._due_ns = time.monotonic_ns() + int(INTERVAL_S * 1e9)
        self._loop.call_later(INTERVAL_S, self._measure)

    def _measure(self) -> None:
        late_ns = time.monotonic_ns() - self._due_ns
        before, self._before = self._before, self._counters()
        threads_before, self._threads_before = self._threads_before, self._counters_of_threads()
        if late_ns > FROM_S * 1e9:
            ran, queued, stolen = (new - old for new, old in zip(self._before, before, strict=True))
            changes = [
                (ran - ran_before, queued - queued_before)
                for number, (ran, queued) in self._threads_before.items()
                for ran_before, queued_before in (threads_before.get(number, (0, 0)),)
            ]
            line = {
                "at": round(time.time(), 3),
                "late_ms": round(late_ns / 1e6, 1),
                "cpu_ms": round(ran / 1e6, 1),
                "queued_ms": round(queued / 1e6, 1),
                "threads_cpu_ms": round(sum(ran for ran, _ in changes) / 1e6, 1),
                "thread_queued_ms": round(max((queued for _, queued in changes), default=0) / 1e6, 1),
                "stolen_ms": stolen,
                "collections_ms": round(self._collections_ns / 1e6, 1),
                "stacks": dict(self._stacks),
            }
            self._file.write(json.dumps(line) + "\n")
        self._stacks = Counter()
        self._collections_ns = 0
        self._schedule()

    def _sample(self) -> None:
        while True:
            time.sleep(SAMPLE_S)
            if time.monotonic_ns() - self._due_ns > FROM_S * 1e9:
                self._stacks[f"{self._waits_in() or '?'} " + " < ".join(self._frames())] += 1

    def _waits_in(self) -> str:
        try:
            with open(f"{self._task}/stack") as file:
                functions = [line.split()[1].partition("+")[0] for line in file]
            return " < ".join(functions[:KERNEL_DEPTH])
        except (OSError, IndexError):
            pass
        try:
            with open(f"{self._task}/wchan") as file:
                return file.read().replace("0", "", 1)
        except OSError:
            return ""

    def _frames(self) -> list[str]:
        frames = []
        frames_of = sys._current_frames()
        # Its own frame refers to this dict: the cycle would keep all variables of all threads until a collection, files
        # of removed segments among them, and the loop would then close these.
        frames_of.pop(threading.get_ident())
        frame: Any = frames_of.get(self._ident)
        while frame is not None and len(frames) < DEPTH:
            code = frame.f_code
            frames.append(f"{os.path.basename(code.co_filename)}:{frame.f_lineno} {code.co_name}")
            frame = frame.f_back
        for ident, other in frames_of.items():
            if ident != self._ident:
                code = other.f_code
                if code.co_name not in ("wait", "_worker"):
                    frames.append(f"|| {os.path.basename(code.co_filename)}:{other.f_lineno} {code.co_name}")
        return frames


def watch(path: str) -> None:
    """Watch the loop that the broker makes."""
    import uvloop

    make: Any = uvloop.new_event_loop

    def make_and_watch() -> Any:
        loop = make()
        loop.call_soon(Watch(path).start, loop)
        return loop

    uvloop.new_event_loop = make_and_watch


if "ODRADEK_TEST_STALLS" in os.environ and "broker" in sys.orig_argv:
    watch(os.environ["ODRADEK_TEST_STALLS"])
