"""Pending calls of a stream thread: waits for the results of asynchronous operators, and prepares commits."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping

from odradek.streams.records import TaskId
from odradek.streams.task import Task
from odradek.streams.task_calls import TaskCalls


class ThreadCalls:
    """The pending calls of the tasks of one thread, which alone calls the methods."""

    def __init__(self, tasks: Mapping[TaskId, Task]) -> None:
        """`tasks` are the running tasks; most applications have none with calls."""
        self.ready = threading.Event()
        """The event loop sets it when a call has ended."""
        self._tasks = tasks

    @property
    def exist(self) -> bool:
        """Whether a task has asynchronous operators."""
        return any(task.calls is not None for task in self._tasks.values())

    @property
    def pending(self) -> int:
        """How many results have not been forwarded."""
        return sum(calls.pending for _, calls in self._calling())

    def forward(self) -> None:
        """Forward the results that are next in order. Raises StreamsError."""
        for task, _ in self._calling():
            task.forward_results()

    def wait(self, timeout_s: float) -> None:
        """Wait until there is a result to forward."""
        self.ready.clear()
        if not any(calls.has_result for _, calls in self._calling()):
            self.ready.wait(timeout_s)

    def hold(self) -> bool:
        """Prepare a commit: tasks with asynchronous operators take no new records, and flush their caches, until
        `release`. Returns whether all results have been forwarded. Raises StreamsError.
        """
        ready = True
        for task, calls in self._calling():
            if not calls.holding:
                calls.holding = True
                task.flush_caches()
                calls.start()
            ready = ready and not calls.pending
        return ready

    def release(self) -> None:
        """The commit is over: take new records again."""
        for _, calls in self._calling():
            calls.holding = False

    def _calling(self) -> Iterator[tuple[Task, TaskCalls]]:
        return ((task, task.calls) for task in self._tasks.values() if task.calls is not None)
