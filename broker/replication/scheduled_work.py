"""Scheduled work: calls of scheduled tasks that wait for the disk, few at a time.

A task on all logs starts a call for each of them: on a slow disk these would queue before a flush for which a client
waits. So some threads stay free, and a task yields `wait` while it may not start another call.
"""

from __future__ import annotations

from collections.abc import Callable

from odradek.broker.replication.partition import Worker
from odradek.broker.runtime.scheduler import Parts


class ScheduledWork:
    """The calls of all scheduled tasks on logs; used on the event loop."""

    def __init__(self, worker: Worker, most: int) -> None:
        """At most `most` calls run or wait for a thread."""
        self._worker = worker
        self._most = most
        self._running = 0
        self._waiting: list[Callable[[], None]] = []

    def until_free(self) -> Parts:
        """The parts of a task that wait until `run` may be called."""
        while self._running >= self._most:
            yield self._waiting.append

    def run(self, work: Callable[[], None], done: Callable[[BaseException | None], None]) -> None:
        """Run `work` in a thread, then call `done` on the loop; after `until_free`."""
        self._running += 1

        def ended(error: BaseException | None) -> None:
            self._running -= 1
            waiting, self._waiting = self._waiting, []
            try:
                done(error)
            finally:
                for resume in waiting:
                    resume()

        self._worker.run(work, ended)
