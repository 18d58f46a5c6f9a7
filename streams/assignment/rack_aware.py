"""Rack-aware optimization: less traffic between racks (Kafka: TaskAssignmentUtils, RackAwareTaskAssignor, KIP-925).

A task has the traffic cost once for each of its partitions without a replica in the rack of its instance
(rack.aware.assignment.traffic_cost), and the non-overlap cost where it moves (rack.aware.assignment.non_overlap_cost).
The optimization of active tasks is one redistribution over all instances. Standbys move between two instances at a
time, for at most four rounds: two copies of a task are never on one instance.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Final

from odradek.streams.assignment.application_state import (
    NONE,
    ApplicationState,
    KafkaStreamsState,
    TaskInfo,
    TaskTopicPartition,
)
from odradek.streams.assignment.kafka_streams_assignment import Assignments, KafkaStreamsAssignment, TaskType
from odradek.streams.assignment.process_id import ProcessId
from odradek.streams.assignment.redistribution import Redistribution
from odradek.streams.errors import StreamsError
from odradek.streams.records import TaskId

log = logging.getLogger(__name__)

STATELESS_TRAFFIC_COST: Final = 1
STATELESS_NON_OVERLAP_COST: Final = 0
"""A task without state moves for nothing."""
_STANDBY_ROUNDS: Final = 4

MoveStandbyTaskPredicate = Callable[[KafkaStreamsState, KafkaStreamsState, TaskId, Assignments], bool]
"""Whether a standby may move: the source, the destination, the task, and all assignments."""
PartitionsOf = Callable[[TaskInfo], Collection[TaskTopicPartition]]
"""The partitions of a task that count."""


@dataclass(frozen=True, slots=True)
class Costs:
    """The traffic cost and the non-overlap cost."""

    traffic: int
    non_overlap: int


@dataclass(frozen=True, slots=True)
class RackAwareOptimizationParams:
    """What to optimize: the costs in place of the configured ones, and the tasks in place of all that are assigned."""

    application_state: ApplicationState
    traffic_cost_override: int | None = None
    non_overlap_cost_override: int | None = None
    tasks_to_optimize: frozenset[TaskId] | None = None

    def for_stateful_tasks(self) -> RackAwareOptimizationParams:
        """The same for the tasks with a state store."""
        return self.for_tasks(task.id for task in self.application_state.all_tasks.values() if task.is_stateful)

    def for_stateless_tasks(self) -> RackAwareOptimizationParams:
        """The same for the tasks without a state store."""
        return self.for_tasks(task.id for task in self.application_state.all_tasks.values() if not task.is_stateful)

    def for_tasks(self, tasks: Iterable[TaskId]) -> RackAwareOptimizationParams:
        """The same for these tasks."""
        return replace(self, tasks_to_optimize=frozenset(tasks))

    def with_traffic_cost_override(self, cost: int) -> RackAwareOptimizationParams:
        """The same with this traffic cost."""
        return replace(self, traffic_cost_override=cost)

    def with_non_overlap_cost_override(self, cost: int) -> RackAwareOptimizationParams:
        """The same with this non-overlap cost."""
        return replace(self, non_overlap_cost_override=cost)

    def costs(self) -> Costs:
        """The costs. Raises StreamsError for one that is neither overridden nor configured."""
        configs = self.application_state.assignment_configs
        traffic, non_overlap = self.traffic_cost_override, self.non_overlap_cost_override
        traffic = configs.rack_aware_traffic_cost if traffic is None else traffic
        non_overlap = configs.rack_aware_non_overlap_cost if non_overlap is None else non_overlap
        if traffic is None or non_overlap is None:
            raise StreamsError(
                "set rack.aware.assignment.traffic_cost and rack.aware.assignment.non_overlap_cost, or override them"
            )
        return Costs(traffic, non_overlap)

    def tasks(self, assignments: Assignments, task_type: TaskType) -> list[TaskId]:
        """The tasks, sorted: by default those that are assigned with this type."""
        if self.tasks_to_optimize is not None:
            return sorted(self.tasks_to_optimize)
        return sorted({task for each in assignments.values() for task in each.of_type(task_type)})


def optimize_rack_aware_active_tasks(params: RackAwareOptimizationParams, assignments: Assignments) -> None:
    """Move active tasks so that their costs are the lowest, where each instance keeps the number of its tasks.

    Changes `assignments`. It does nothing where rack.aware.assignment.strategy is none, a cost is not configured, or
    the rack of an instance or of a partition is unknown; a line of the log has the reason. Assign standbys after it.
    Raises ValueError for a task to optimize that no instance runs.
    """
    tasks = params.tasks(assignments, TaskType.ACTIVE)
    costs = _prepare(params, tasks, partitions_of, assignments)
    if costs is not None:
        costs.optimize_active(tasks, Counter(task.subtopology for task in tasks), assignments)


def optimize_rack_aware_standby_tasks(params: RackAwareOptimizationParams, assignments: Assignments) -> None:
    """Swap standby tasks between two instances at a time so that their costs are lower; only changelogs count.

    Changes `assignments`, and does nothing in the same cases as `optimize_rack_aware_active_tasks`. It does not regard
    rack.aware.assignment.tags: Java's compares the tags of the source with themselves (3.9.2).
    """
    tasks = params.tasks(assignments, TaskType.STANDBY)
    costs = _prepare(params, tasks, changelogs_of, assignments)
    if costs is not None:
        costs.optimize_standby(Counter(task.subtopology for task in tasks), assignments)


def _prepare(
    params: RackAwareOptimizationParams, tasks: Collection[TaskId], partitions: PartitionsOf, assignments: Assignments
) -> RackCosts | None:
    """The costs, where there is something to optimize; then each instance has an assignment."""
    state = params.application_state
    if not tasks or not can_optimize(state, partitions):
        return None
    add_missing(assignments, state)
    return RackCosts(state, params.costs(), partitions, state.assignment_configs.rack_aware_assignment_strategy)


def can_optimize(state: ApplicationState, partitions: PartitionsOf, *, costs: bool = True) -> bool:
    """Whether the strategy, the racks, and with `costs` the two costs are there."""
    configs = state.assignment_configs
    if configs.rack_aware_assignment_strategy == NONE:
        return False
    if costs and None in (configs.rack_aware_traffic_cost, configs.rack_aware_non_overlap_cost):
        log.warning("assigning tasks without the racks, as a cost is not configured")
        return False
    for each in state.kafka_streams_states(compute_task_lags=False).values():
        if each.rack_id is None:
            log.error(
                "assigning tasks without the racks, as an instance has no client.rack process=%s", each.process_id
            )
            return False
    for task in state.all_tasks.values():
        for partition in partitions(task):
            if not partition.rack_ids:
                log.error(
                    "assigning tasks without the racks, as no replica has a known rack topic=%s partition=%d",
                    *partition.topic_partition,
                )
                return False
    return True


def add_missing(assignments: Assignments, state: ApplicationState) -> None:
    """Add an empty assignment for each instance without one."""
    for process in state.kafka_streams_states(compute_task_lags=False):
        assignments.setdefault(process, KafkaStreamsAssignment(process))


def partitions_of(task: TaskInfo) -> Collection[TaskTopicPartition]:
    """All partitions of a task."""
    return task.topic_partitions


def sources_of(task: TaskInfo) -> Collection[TaskTopicPartition]:
    """The partitions that a task reads."""
    return [each for each in task.topic_partitions if each.is_source]


def changelogs_of(task: TaskInfo) -> Collection[TaskTopicPartition]:
    """The changelogs of a task."""
    return [each for each in task.topic_partitions if each.is_changelog]


class RackCosts:
    """The costs of tasks on instances, and the optimization by them. All racks have to be known."""

    def __init__(self, state: ApplicationState, costs: Costs, partitions: PartitionsOf, strategy: str) -> None:
        self._states = state.kafka_streams_states(compute_task_lags=False)
        self._strategy = strategy
        self._costs = costs
        self._racks = {
            task: [each.rack_ids or frozenset() for each in partitions(info)] for task, info in state.all_tasks.items()
        }

    def cost(self, task: TaskId, process: ProcessId, here: bool) -> int:
        """The cost of a task on a process; `here`: the task is there already."""
        rack = self._states[process].rack_id
        remote = sum(rack not in racks for racks in self._racks[task])
        return remote * self._costs.traffic + (0 if here else self._costs.non_overlap)

    def optimize_active(self, tasks: list[TaskId], sizes: Mapping[int, int], assignments: Assignments) -> None:
        """Redistribute active tasks; `sizes` is the number of tasks of each sub-topology."""
        self._redistribution([*self._states], tasks, TaskType.ACTIVE, sizes).apply(assignments)

    def optimize_standby(
        self,
        sizes: Mapping[int, int],
        assignments: Assignments,
        may_move: MoveStandbyTaskPredicate = lambda *_: True,
    ) -> None:
        """Redistribute standby tasks between two processes of different racks at a time."""
        for _ in range(_STANDBY_ROUNDS):
            moved = False
            for pair in combinations(self._states, 2):
                if self._states[pair[0]].rack_id == self._states[pair[1]].rack_id:
                    continue
                there, back = (self._movable(*ends, assignments, may_move) for ends in (pair, (pair[1], pair[0])))
                if there and back:
                    tasks = sorted((*there, *back))
                    moved |= self._redistribution([*pair], tasks, TaskType.STANDBY, sizes).apply(assignments)
            if not moved:
                return

    def _movable(
        self, source: ProcessId, destination: ProcessId, assignments: Assignments, may_move: MoveStandbyTaskPredicate
    ) -> list[TaskId]:
        ends = self._states[source], self._states[destination]
        return [
            task
            for task in assignments[source].of_type(TaskType.STANDBY)
            if task not in assignments[destination].tasks and may_move(*ends, task, assignments)
        ]

    def _redistribution(
        self, processes: list[ProcessId], tasks: list[TaskId], task_type: TaskType, sizes: Mapping[int, int]
    ) -> Redistribution:
        return Redistribution(processes, tasks, task_type, self.cost, self._strategy, sizes)
