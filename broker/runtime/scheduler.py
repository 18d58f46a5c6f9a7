"""Scheduler: runs periodic jobs, and blocking calls in threads (Kafka: KafkaScheduler).

The jobs are those of Kafka's scheduler: checkpoints of high watermarks and recovery points, flushes of logs that are
due, rolling and deletion of old segments, expiration of idle producers. Every job is short and runs on the event loop,
except for fsyncs, which run in a thread.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Generator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial

from odradek.broker.runtime.timers import Clock, Timer, Timers

log = logging.getLogger(__name__)


class ThreadWorker:
    """Runs blocking calls in a few threads and calls back on the event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, threads: int) -> None:
        self._loop = loop
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="odradek-io")

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
    """Calls jobs periodically until `close`; logs the failure of a job and calls it again after its interval."""

    def __init__(self, clock: Clock, timers: Timers) -> None:
        self._clock = clock
        self._timers = timers
        self._pending: dict[str, Timer] = {}
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
        try:
            parts = job()
        except Exception:
            log.exception("scheduled job failed job=%s retry_ms=%d", name, interval_ms())
            parts = None
        if parts is None:
            self.every(name, interval_ms, job)
        else:
            self._run_part(parts, name, interval_ms, job)

    def _run_part(self, parts: Parts, name: str, interval_ms: Callable[[], int], job: Job) -> None:
        """Run one part of a job, and have the next one run later."""
        if self._closed:
            parts.close()
            return
        try:
            wait = next(parts)
        except StopIteration:
            pass
        except Exception:
            log.exception("scheduled job failed job=%s retry_ms=%d", name, interval_ms())
        else:
            proceed = partial(self._run_part, parts, name, interval_ms, job)
            if wait is None:
                asyncio.get_running_loop().call_soon(proceed)
            else:
                wait(proceed)
            return
        self.every(name, interval_ms, job)

    def close(self) -> None:
        """Cancel all jobs."""
        self._closed = True
        for timer in self._pending.values():
            timer.cancel()
        self._pending.clear()
