"""Task executor: processes records, calls punctuators and commits for the tasks of one thread (Kafka: TaskExecutor).

The executor holds the lock of the thread for one chunk of records, and releases it between two chunks and while it
waits for the cluster in a commit, so that queries can read the stores.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any, Final

from odradek.streams.errors import TaskMigratedError
from odradek.streams.group.group_protocol import CommitFailed, CommitFailure
from odradek.streams.running.active_tasks import ActiveTasks, paced
from odradek.streams.running.application import Application
from odradek.streams.running.collector import RecordCollector
from odradek.streams.running.thread_context import ThreadContext

log = logging.getLogger(__name__)

Aside = Callable[[], AbstractContextManager[Any]]
CHUNK_S: Final = 0.1
"""The longest duration of one chunk of records, so that commits, punctuators and queries get their turn."""


class TaskExecutor:
    """The work of the running tasks. One thread calls its methods; other threads may read the counters."""

    def __init__(
        self, application: Application, context: ThreadContext, tasks: ActiveTasks, collector: RecordCollector
    ) -> None:
        self.processed = 0
        """Records processed so far."""
        self.commits = 0
        """Commits so far, without those that had nothing to commit."""
        self.last_commit = 0.0
        """When the last regular commit ended, on the monotonic clock; 0 before the first."""
        self.lacks_topic = False
        """Whether the coordinator did not have a topic at the last commit."""
        self._application = application
        self._context = context
        self._tasks = tasks
        self._collector = collector
        self._chunk = 1
        """The records of the next chunk."""
        self._commit_failing_since: float | None = None
        config = application.config
        self._commit_interval_s: float = config["commit.interval.ms"] / 1000
        self._timeout_s: float = config["task.timeout.ms"] / 1000
        self._turn_s: float = config["max.poll.interval.ms"] / 2000
        self._chunk_s = max(0.01, min(CHUNK_S, self._commit_interval_s, self._turn_s / 4))

    def process(self) -> bool:
        """Process buffered records in chunks, and commit in between when a commit is due. Raises StreamsError.

        Stops early when the thread has to poll the group (max.poll.interval.ms); returns whether it did.
        """
        ends = time.perf_counter() + self._turn_s
        clock, metrics, tasks = self._application.clock, self._context.metrics, self._tasks
        lock, shared = self._context.lock, self._application.global_lock or contextlib.nullcontext()
        while True:
            with lock, shared:  # for one chunk, so that queries run between two chunks
                start = time.perf_counter()
                done = tasks.process(clock(), self._chunk)
                if done:
                    self.processed += done
                    took_s = time.perf_counter() - start
                    self._chunk = paced(self._chunk, took_s, self._chunk_s)
                    metrics.process.record(took_s * 1000 / done, done)
                    metrics.process_records.record(done)
                self._punctuate(clock())
                self._collector.poll()
                self._commit_if_due()
            if not done or self._context.stopping.is_set():
                return False
            if time.perf_counter() > ends:
                return True

    def maybe_commit(self) -> None:
        """Commit when a commit is due. Raises as `commit` does."""
        with self._context.lock, self._application.global_lock or contextlib.nullcontext():
            self._tasks.calls.forward()
            self._commit_if_due()

    def commit(self, aside: Aside = contextlib.nullcontext) -> None:
        """Commit all tasks; the caller holds the lock of the thread.

        Raises StreamsError, and TaskMigratedError after the group has moved to a new generation without this thread.
        """
        try:
            start = time.perf_counter()
            if count := self._tasks.commit(aside):
                self.commits += 1
                self._context.metrics.commit.record((time.perf_counter() - start) * 1000 / count, count)
            self._commit_failing_since = None
            self.lacks_topic = False
        except CommitFailed as error:
            self.lacks_topic = error.kind is CommitFailure.UNKNOWN_TOPIC
            if error.kind is CommitFailure.MIGRATED:
                raise TaskMigratedError(str(error)) from error
            since = self._commit_failing_since = self._commit_failing_since or time.monotonic()
            passing = error.kind in (CommitFailure.REBALANCING, CommitFailure.TIMED_OUT, CommitFailure.UNKNOWN_TOPIC)
            if not passing or time.monotonic() - since > self._timeout_s:
                raise
            log.warning("retrying commit thread=%s error=%s", self._context.name, error)

    def time_to_commit_s(self) -> float:
        """The time until the next commit is due."""
        return max(0.0, self.last_commit + self._commit_interval_s - time.monotonic())

    def _commit_if_due(self) -> None:
        tasks = self._tasks
        due = time.monotonic() - self.last_commit >= self._commit_interval_s or tasks.commit_wanted
        if due and tasks.calls.hold():  # else the next call commits, when the last result was forwarded
            self.commit(self._released)
            self.last_commit = time.monotonic()

    def _punctuate(self, now_ms: int) -> None:
        tasks, start = self._tasks, time.perf_counter()
        tasks.punctuate(now_ms)
        count, tasks.punctuated = tasks.punctuated, 0
        if count:
            self._context.metrics.punctuate.record((time.perf_counter() - start) * 1000 / count, count)

    @contextlib.contextmanager
    def _released(self) -> Iterator[None]:
        """While the thread waits for the cluster, other threads may read its stores."""
        shared = self._application.global_lock
        if shared is not None:
            shared.release()
        self._context.lock.release()
        try:
            yield
        finally:
            self._context.lock.acquire()
            if shared is not None:
                shared.acquire()
