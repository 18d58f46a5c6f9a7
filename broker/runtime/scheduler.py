"""What a broker does beside answering: periodic work, and blocking work in threads.

Kafka runs these from a scheduler: checkpoints of high watermarks and recovery points, the flush of logs that are due,
rolling and deleting of old segments, the expiry of idle producers. Every job here is short and runs on the loop,
except for the fsyncs, which run in a thread.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

from odradek.broker.runtime.timers import Clock, Timer, Timers

log = logging.getLogger(__name__)


class ThreadWorker:
    """Runs blocking calls in a few threads and reports back on the loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, threads: int) -> None:
        self._loop = loop
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="odradek-io")

    def run(self, work: Callable[[], None], done: Callable[[BaseException | None], None]) -> None:
        """Run `work` in a thread, then call `done` on the loop with what it raised, or None."""

        def finished(future: Future[None]) -> None:
            if not self._loop.is_closed():
                self._loop.call_soon_threadsafe(done, future.exception())

        self._pool.submit(work).add_done_callback(finished)

    async def close(self) -> None:
        """Wait for what runs, and until it has been reported; nothing new is taken."""
        # Each report is on the loop before its thread ends, so it runs before this goes on.
        await self._loop.run_in_executor(None, self._pool.shutdown)


class Periodic:
    """Calls jobs again and again until it is closed; a job that fails is logged and stays on the list."""

    def __init__(self, clock: Clock, timers: Timers) -> None:
        self._clock = clock
        self._timers = timers
        self._pending: dict[str, Timer] = {}
        self._closed = False

    def every(
        self, name: str, interval_ms: Callable[[], int], job: Callable[[], None], first_ms: int | None = None
    ) -> None:
        """Call `job` every `interval_ms()` milliseconds, the first time after one interval, or `first_ms` if sooner."""
        wait_ms = interval_ms() if first_ms is None else min(first_ms, interval_ms())
        self._pending[name] = self._timers.at(
            self._clock.monotonic_ms() + max(1, wait_ms), lambda: self._run(name, interval_ms, job)
        )

    def _run(self, name: str, interval_ms: Callable[[], int], job: Callable[[], None]) -> None:
        if self._closed:
            return
        try:
            job()
        except Exception:
            log.exception("the job %s failed; it runs again in %d ms", name, interval_ms())
        self.every(name, interval_ms, job)

    def close(self) -> None:
        """Call no job any more."""
        self._closed = True
        for timer in self._pending.values():
            timer.cancel()
        self._pending.clear()
