"""Output of a task assignor: the tasks of each instance (org.apache.kafka.streams.processor.assignment)."""

from __future__ import annotations

import enum
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

from odradek.streams.assignment.process_id import ProcessId
from odradek.streams.records import TaskId


class TaskType(enum.Enum):
    """Whether a task runs, or keeps a copy of the state (Kafka: AssignedTask.Type)."""

    ACTIVE = enum.auto()
    STANDBY = enum.auto()


class AssignedTask(NamedTuple):
    """A task and its type on one instance."""

    id: TaskId
    type: TaskType

    def __str__(self) -> str:
        return f"AssignedTask{{{self.type.name}, {self.id}}}"


class KafkaStreamsAssignment:
    """The tasks of one instance. An instance has a task once: as the active one, or as a standby."""

    process_id: ProcessId
    followup_rebalance_deadline_ms: int | None
    """When the instance requests a rebalance, in ms since the epoch; None is never."""

    def __init__(
        self,
        process_id: ProcessId,
        tasks: Iterable[AssignedTask] = (),
        followup_rebalance_deadline_ms: int | None = None,
    ) -> None:
        """The deadline is in ms since the epoch. Raises ValueError for a task that is in `tasks` twice."""
        self.process_id = process_id
        self.followup_rebalance_deadline_ms = followup_rebalance_deadline_ms
        self._tasks: dict[TaskId, AssignedTask] = {}
        for task in tasks:
            if self._tasks.setdefault(task.id, task) is not task:
                raise ValueError(f"task {task.id} is assigned twice to process {process_id}")

    @property
    def tasks(self) -> Mapping[TaskId, AssignedTask]:
        """The assigned tasks by id; read only."""
        return MappingProxyType(self._tasks)

    def assign_task(self, task: AssignedTask) -> None:
        """Assign a task, in place of one with the same id."""
        self._tasks[task.id] = task

    def remove_task(self, task: AssignedTask) -> None:
        """Remove the task with this id, if the instance has it."""
        self._tasks.pop(task.id, None)

    def holds(self, task: TaskId, task_type: TaskType) -> bool:
        """Whether the instance has a task as one of this type."""
        found = self._tasks.get(task)
        return found is not None and found.type is task_type

    def of_type(self, task_type: TaskType) -> list[TaskId]:
        """Its tasks of a type, sorted."""
        return sorted(task.id for task in self._tasks.values() if task.type is task_type)

    def with_followup_rebalance(self, deadline_ms: int) -> KafkaStreamsAssignment:
        """The same assignment, with a rebalance as soon as `deadline_ms`, in ms since the epoch, has passed.

        The deadline holds until the next rebalance, whose assignment has to set it again.
        """
        return KafkaStreamsAssignment(self.process_id, self._tasks.values(), deadline_ms)

    def __repr__(self) -> str:
        tasks = ", ".join(map(str, self._tasks.values()))
        return f"KafkaStreamsAssignment{{{self.process_id}, [{tasks}], {self.followup_rebalance_deadline_ms}}}"


@dataclass(frozen=True, slots=True)
class TaskAssignment:
    """The assignments of all instances (Kafka: TaskAssignor.TaskAssignment)."""

    assignment: Collection[KafkaStreamsAssignment]


Assignments = dict[ProcessId, KafkaStreamsAssignment]
"""An assignment under construction, by process."""
