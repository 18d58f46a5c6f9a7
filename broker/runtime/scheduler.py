"""Scheduler: runs periodic jobs, and blocking calls in threads (Kafka: KafkaScheduler).

The jobs are those of Kafka's scheduler: checkpoints of high watermarks and recovery points, flushes of logs that are
due, rolling and deletion of old segments, expiration of idle producers. Every job is short and runs on the event loop,
except for fsyncs, which run in a thread.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Callable, Generator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial

from odradek.broker.runtime.timers import Clock, Timer, Timers

log = logging.getLogger(__name__)


class ThreadWorker:
    """Runs blocking calls in a few threads and calls back on the event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, threads: int, *, start: bool = False) -> None:
        """Up to so many threads. Each starts when it is first needed, and the loop waits until the system runs it;
        with `start` all start here.
        """
        self._loop = loop
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="odradek-io")
        if start:
            self._start(threads)

    def _start(self, threads: int) -> None:
        are_started = threading.Event()
        try:
            for _ in range(threads):
                self._pool.submit(are_started.wait)
        finally:
            are_started.set()

    def run(self, work: Callable[[], None], done: Callable[[BaseException | None], None]) -> None:
        """Run `work` in a thread, then call `done` on the loop with the exception that it raised, or None."""

        def finished(future: Future[None]) -> None:
            if not self._loop.is_closed():
                self._loop.call_soon_threadsafe(done, future.exception())

        self._pool.submit(work).add_done_callback(finished)

    async def close(self) -> None:
        """Wait for the running calls and their callbacks; accept no new calls."""
        # Each callback is scheduled on the loop before its thread ends, so it runs before this coroutine continues.
        await self._loop.run_in_executor(None, self._pool.shutdown)


Wait = Callable[[Callable[[], None]], None]
"""Calls its argument once, on the event loop, when a job may continue."""
Parts = Generator[Wait | None, None, None]
"""The parts of a job: the event loop serves others at each `yield`. After None the next part runs in a later iteration
of the loop, after a `Wait` when that is over.
"""
Job = Callable[[], Parts | None]
"""A job; one with parts runs up to their end."""


class Periodic:
    """Calls jobs periodically until `close`; logs the failure of a job and calls it again after its interval.

    Jobs of the same interval are due at the same time, so their parts take turns: an iteration of the event loop runs
    one part of one job.
    """

    def __init__(self, clock: Clock, timers: Timers) -> None:
        self._clock = clock
        self._timers = timers
        self._pending: dict[str, Timer] = {}
        self._ready: deque[tuple[Parts, Callable[[], None]]] = deque()
        """The jobs that can continue, and what calls each again after its end."""
        self._closed = False

    def every(self, name: str, interval_ms: Callable[[], int], job: Job, first_ms: int | None = None) -> None:
        """Call `job` every `interval_ms()` milliseconds, the first time after one interval, or `first_ms` if sooner."""
        wait_ms = interval_ms() if first_ms is None else min(first_ms, interval_ms())
        self._pending[name] = self._timers.at(
            self._clock.monotonic_ms() + max(1, wait_ms), lambda: self._run(name, interval_ms, job)
        )

    def _run(self, name: str, interval_ms: Callable[[], int], job: Job) -> None:
        if self._closed:
            return
        again = partial(self.every, name, interval_ms, job)
        try:
            parts = job()
        except Exception:
            log.exception("scheduled job failed job=%s retry_ms=%d", name, interval_ms())
            parts = None
        if parts is None:
            again()
        else:
            self._proceed(_logged(parts, name, interval_ms), again)

    def _proceed(self, parts: Parts, again: Callable[[], None]) -> None:
        """Run the next part of a job when those that were ready before have had a part."""
        if self._closed:
            parts.close()
            return
        self._ready.append((parts, again))
        if len(self._ready) == 1:
            asyncio.get_running_loop().call_soon(self._run_part)

    def _run_part(self) -> None:
        """Run one part of the job that is ready for the longest time."""
        if self._closed:
            return
        parts, again = self._ready.popleft()
        if self._ready:
            asyncio.get_running_loop().call_soon(self._run_part)
        try:
            wait = next(parts)
        except StopIteration:
            again()
            return
        proceed = partial(self._proceed, parts, again)
        if wait is None:
            proceed()
        else:
            wait(proceed)

    def close(self) -> None:
        """Cancel all jobs."""
        self._closed = True
        for timer in self._pending.values():
            timer.cancel()
        self._pending.clear()
        while self._ready:
            self._ready.popleft()[0].close()


def _logged(parts: Parts, name: str, interval_ms: Callable[[], int]) -> Parts:
    """The parts of a job, whose failure is logged and is its end."""
    try:
        yield from parts
    except Exception:
        log.exception("scheduled job failed job=%s retry_ms=%d", name, interval_ms())
