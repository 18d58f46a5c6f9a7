"""Priority set: the instance with the least load among those that may have a task (Kafka: ConstrainedPrioritySet)."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from odradek.streams.assignment.process_id import ProcessId
from odradek.streams.records import TaskId


class ConstrainedPrioritySet:
    """Processes by their weight at the time of the call, then by their ids."""

    def __init__(self, constraint: Callable[[ProcessId, TaskId], bool], weight: Callable[[ProcessId], float]) -> None:
        """`constraint` is whether a process may have a task."""
        self._constraint = constraint
        self._weight = weight
        self._offered: set[ProcessId] = set()

    def offer_all(self, processes: Iterable[ProcessId]) -> None:
        """Add processes; those that are in the set stay in it."""
        self._offered.update(processes)

    def poll(self, task: TaskId, extra: Callable[[ProcessId], bool] = lambda process: True) -> ProcessId | None:
        """Remove and return the first process that meets both constraints; None where there is none."""
        fit = [process for process in self._offered if self._constraint(process, task) and extra(process)]
        if not fit:
            return None
        found = min(sorted(fit), key=self._weight)
        self._offered.remove(found)
        return found
