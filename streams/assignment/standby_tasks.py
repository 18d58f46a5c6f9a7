"""Default assignment of standby tasks (Kafka: TaskAssignmentUtils, ClientTagAwareStandbyTaskAssignor, KIP-708).

Without tags each standby goes to the instance with the least load that has no copy of the task. With tags it goes first
to instances whose tags differ from those of all copies; a tag whose values all have a copy does not count any more.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence

from odradek.streams.assignment.application_state import ApplicationState, KafkaStreamsState
from odradek.streams.assignment.kafka_streams_assignment import AssignedTask, Assignments, TaskType
from odradek.streams.assignment.priority_set import ConstrainedPrioritySet
from odradek.streams.assignment.process_id import ProcessId
from odradek.streams.assignment.rack_aware import add_missing
from odradek.streams.java_order import hash_set_order_of_tasks
from odradek.streams.records import TaskId

log = logging.getLogger(__name__)


def default_standby_task_assignment(application_state: ApplicationState, assignments: Assignments) -> None:
    """Add num.standby.replicas standbys of each task with a changelog, by rack.aware.assignment.tags where there are
    any. Changes `assignments`, which have the active tasks.
    """
    add_missing(assignments, application_state)
    configs = application_state.assignment_configs
    states = application_state.kafka_streams_states(compute_task_lags=False)
    tasks = hash_set_order_of_tasks(task.id for task in application_state.all_tasks.values() if task.is_logged)
    standbys = StandbyPlacement(states, assignments, configs.num_standby_replicas)
    if configs.rack_aware_assignment_tags:
        standbys.assign_by_tags(tasks, configs.rack_aware_assignment_tags)
    else:
        standbys.assign_by_load(tasks)


class StandbyPlacement:
    """Adds standbys to assignments, which have the active tasks."""

    def __init__(self, states: Mapping[ProcessId, KafkaStreamsState], assignments: Assignments, replicas: int) -> None:
        """`replicas` is the number of standbys of a task."""
        self._states = states
        self._assignments = assignments
        self._replicas = replicas
        self._by_load = ConstrainedPrioritySet(
            lambda process, task: task not in assignments[process].tasks,
            lambda process: len(assignments[process].tasks) / states[process].num_processing_threads,
        )

    def assign_by_load(self, tasks: Sequence[TaskId]) -> None:
        """Assign the standbys of `tasks`, in their order, to the instances with the least load."""
        self._by_load.offer_all(self._states)
        for task in tasks:
            self._assign_rest(task, self._replicas)

    def assign_by_tags(self, tasks: Sequence[TaskId], tags: Sequence[str]) -> None:
        """Assign the standbys of `tasks`, in their order, to instances with other values of `tags`."""
        if not self._replicas:
            return
        labels = {
            process: {tag: value for tag, value in state.client_tags.items() if tag in tags}
            for process, state in self._states.items()
        }
        remaining = dict.fromkeys(tasks, self._replicas)
        for task in tasks:
            for process in self._assignments:
                if self._assignments[process].holds(task, TaskType.ACTIVE):
                    remaining[task] = self._assign_apart(task, process, labels)
        self._by_load.offer_all(self._assignments)
        for task in hash_set_order_of_tasks(tasks):
            if remaining[task]:
                self._assign_rest(task, remaining[task])

    def _assign_apart(self, task: TaskId, active: ProcessId, labels: Mapping[ProcessId, Mapping[str, str]]) -> int:
        """Assign standbys to instances that share no tag with another copy; returns how many are missing."""
        self._by_load.offer_all(self._states)
        values = {pair for own in labels.values() for pair in own.items()}
        used: set[tuple[str, str]] = set()
        last = active
        for copies in range(1, self._replicas + 1):
            for tag, value in labels[last].items():
                if sum(name == tag for name, _ in values) <= copies:
                    used = {pair for pair in used if pair[0] != tag}
                else:
                    used.add((tag, value))
            allowed = {process for process, own in labels.items() if used.isdisjoint(own.items())}
            found = self._by_load.poll(task, allowed.__contains__)
            if found is None:
                return self._replicas - copies + 1
            self._assignments[found].assign_task(AssignedTask(task, TaskType.STANDBY))
            last = found
        return 0

    def _assign_rest(self, task: TaskId, count: int) -> None:
        for missing in range(count, 0, -1):
            found = self._by_load.poll(task)
            if found is None:
                log.warning(
                    "too few instances for the standbys task=%s missing=%d of=%d", task, missing, self._replicas
                )
                return
            self._assignments[found].assign_task(AssignedTask(task, TaskType.STANDBY))
            self._by_load.offer_all((found,))


def keeps_apart(
    states: Mapping[ProcessId, KafkaStreamsState],
) -> Callable[[KafkaStreamsState, KafkaStreamsState, TaskId, Assignments], bool]:
    """A predicate: whether a standby can move so that the copies of its task do not have fewer tags afterwards."""

    def may_move(
        source: KafkaStreamsState, destination: KafkaStreamsState, task: TaskId, assignments: Assignments
    ) -> bool:
        ends = (source.process_id, destination.process_id)
        others = {
            pair
            for process, each in assignments.items()
            if task in each.tasks and process not in ends
            for pair in states[process].client_tags.items()
        }
        return len(others.union(destination.client_tags.items())) >= len(others.union(source.client_tags.items()))

    return may_move
