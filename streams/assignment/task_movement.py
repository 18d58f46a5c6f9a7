"""Task movements: tasks wait on caught-up instances until their own have caught up (Kafka: TaskMovement, KIP-441).

Where an instance should have a task and is behind, while another one is less behind, the other one has the task until
the next rebalance, and the instance gets a warm-up: a standby, of which there are max.warmup.replicas at most.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from odradek.streams.assignment.application_state import LATEST_OFFSET, KafkaStreamsState
from odradek.streams.assignment.kafka_streams_assignment import AssignedTask, Assignments, TaskType
from odradek.streams.assignment.priority_set import ConstrainedPrioritySet
from odradek.streams.assignment.process_id import ProcessId
from odradek.streams.records import TaskId

_UNBOUNDED = 2**63 - 1


class _Movement(NamedTuple):
    task: TaskId
    destination: ProcessId


@dataclass(slots=True)
class TaskMovements:
    """Changes assignments, first those of active tasks, then those of standbys."""

    states: Mapping[ProcessId, KafkaStreamsState]
    """With lags."""
    assignments: Assignments
    acceptable_lag: int
    warmups_left: int
    _warmups: set[_Movement] = field(default_factory=set)

    def move_active(self) -> int:
        """Let caught-up instances run tasks; returns how many tasks are not where they should be."""
        by_load = self._caught_up_by_load()
        movements = self._movements(TaskType.ACTIVE)
        for task, destination in movements:
            source = (
                by_load.poll(task, functools.partial(self._stands_by, task))
                or by_load.poll(task)
                or self._most_caught_up(task, destination, lambda process: True)
            )
            assert source is not None, "another instance is less behind"
            if self._stands_by(task, source):
                self._put(task, destination, TaskType.STANDBY)
            elif self._take_warmup():
                self._put(task, destination, TaskType.STANDBY)
                self._warmups.add(_Movement(task, destination))
            else:
                self.assignments[destination].remove_task(AssignedTask(task, TaskType.ACTIVE))
            self._put(task, source, TaskType.ACTIVE)
            by_load.offer_all((source, destination))
        return len(movements)

    def move_standbys(self) -> int:
        """Let caught-up instances have standbys; returns how many standbys are not where they should be."""
        by_load = self._caught_up_by_load()
        moved = 0
        for task, destination in self._movements(TaskType.STANDBY):
            free = functools.partial(self._is_free, task)
            source = by_load.poll(task, free) or self._most_caught_up(task, destination, free)
            if source is None:
                continue  # every instance that is less behind has a copy already
            self._put(task, source, TaskType.STANDBY)
            if not self._take_warmup():
                self.assignments[destination].remove_task(AssignedTask(task, TaskType.STANDBY))
            by_load.offer_all((source, destination))
            moved += 1
        return moved

    # ---- internals

    def _movements(self, task_type: TaskType) -> list[_Movement]:
        """The tasks whose instances are behind; first those that the fewest instances can have for now."""
        found = [
            _Movement(task, process)
            for process in self.states
            for task in self.assignments[process].of_type(task_type)
            if _Movement(task, process) not in self._warmups and self._is_behind(task, process)
        ]
        caught_up = {each: sum(self._is_caught_up(process, each.task) for process in self.states) for each in found}
        return sorted(found, key=lambda each: (caught_up[each], each.task))

    def _caught_up_by_load(self) -> ConstrainedPrioritySet:
        by_load = ConstrainedPrioritySet(
            self._is_caught_up,
            lambda process: len(self.assignments[process].tasks) / self.states[process].num_processing_threads,
        )
        by_load.offer_all(self.states)
        return by_load

    def _is_behind(self, task: TaskId, process: ProcessId) -> bool:
        least = min(state.lag_for(task) for state in self.states.values())
        return not self._is_caught_up(process, task) and least < self.states[process].lag_for(task)

    def _is_caught_up(self, process: ProcessId, task: TaskId) -> bool:
        lag = self.states[process].lag_for(task)
        return lag == LATEST_OFFSET or self.acceptable_lag == _UNBOUNDED or 0 <= lag <= self.acceptable_lag

    def _stands_by(self, task: TaskId, process: ProcessId) -> bool:
        return self.assignments[process].holds(task, TaskType.STANDBY)

    def _is_free(self, task: TaskId, process: ProcessId) -> bool:
        return task not in self.assignments[process].tasks

    def _most_caught_up(
        self, task: TaskId, destination: ProcessId, fits: Callable[[ProcessId], bool]
    ) -> ProcessId | None:
        """The first instance in the order of lags that fits, before `destination`."""
        by_lag = sorted(self.states, key=lambda process: self.states[process].lag_for(task))
        for process in by_lag[: by_lag.index(destination)]:
            if fits(process):
                return process
        return None

    def _take_warmup(self) -> bool:
        self.warmups_left -= 1
        return self.warmups_left >= 0

    def _put(self, task: TaskId, process: ProcessId, task_type: TaskType) -> None:
        self.assignments[process].assign_task(AssignedTask(task, task_type))
