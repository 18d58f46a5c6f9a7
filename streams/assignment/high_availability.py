"""High-availability assignor: Java's default (Kafka: HighAvailabilityTaskAssignor, KIP-441).

1. Active tasks with a changelog are dealt to the instances in turn and balanced over threads.
2. Standbys follow (`standby_tasks.py`), by tags where there are any, and are balanced among instances of equal tags.
3. Tasks whose instances are behind wait on caught-up ones (`task_movement.py`), and a rebalance follows after
   probing.rebalance.interval.ms.
4. Tasks without a changelog go to the instances with the least active tasks for each thread.

With rack.aware.assignment.strategy the costs are optimized after each of the steps 1, 2 and 4; those of standbys by
min_traffic with either strategy, as in Java.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from itertools import cycle, permutations

from odradek.streams.assignment.application_state import MIN_TRAFFIC, ApplicationState, KafkaStreamsState
from odradek.streams.assignment.kafka_streams_assignment import (
    AssignedTask,
    Assignments,
    KafkaStreamsAssignment,
    TaskAssignment,
    TaskType,
)
from odradek.streams.assignment.priority_set import ConstrainedPrioritySet
from odradek.streams.assignment.process_id import ProcessId
from odradek.streams.assignment.rack_aware import (
    STATELESS_NON_OVERLAP_COST,
    STATELESS_TRAFFIC_COST,
    Costs,
    RackCosts,
    can_optimize,
    changelogs_of,
    partitions_of,
    sources_of,
)
from odradek.streams.assignment.standby_tasks import StandbyPlacement, keeps_apart
from odradek.streams.assignment.task_assignor import TaskAssignor
from odradek.streams.assignment.task_movement import TaskMovements
from odradek.streams.records import TaskId

_MayMove = Callable[[KafkaStreamsState, KafkaStreamsState], bool]


def _always(*_: object) -> bool:
    return True


def _have_equal_tags(source: KafkaStreamsState, destination: KafkaStreamsState) -> bool:
    return source.client_tags.items() <= destination.client_tags.items()


def _wall_clock_ms() -> int:
    return int(time.time() * 1000)


class HighAvailabilityTaskAssignor(TaskAssignor):
    """Prefers instances whose state has caught up. The costs are 10 (traffic) and 1 (non-overlap) by default."""

    def __init__(self, clock_ms: Callable[[], int] = _wall_clock_ms) -> None:
        """`clock_ms` returns the time in ms since the epoch."""
        self._clock_ms = clock_ms

    def assign(self, application_state: ApplicationState) -> TaskAssignment:
        """The assignment of each instance; the first one has the deadline of a rebalance that is needed."""
        plan = _Plan(application_state)
        plan.assign_active_stateful()
        plan.assign_standbys()
        moved = plan.move_to_caught_up()
        plan.assign_stateless()
        made = [*plan.assignments.values()]
        if moved and made:
            interval = application_state.assignment_configs.probing_rebalance_interval_ms
            made[0] = made[0].with_followup_rebalance(self._clock_ms() + interval)
        return TaskAssignment(made)


class _Plan:
    """The assignment while it is made."""

    def __init__(self, state: ApplicationState) -> None:
        self._configs = configs = state.assignment_configs
        self._states = state.kafka_streams_states(compute_task_lags=True)
        self.assignments: Assignments = {process: KafkaStreamsAssignment(process) for process in self._states}
        self._stateful = [task.id for task in state.all_tasks.values() if task.is_logged]
        self._stateless = [task.id for task in state.all_tasks.values() if not task.is_logged]
        self._sizes = Counter(task.subtopology for task in state.all_tasks)
        self._state = state
        self._racks = can_optimize(state, partitions_of if configs.num_standby_replicas else sources_of, costs=False)
        traffic, non_overlap = configs.rack_aware_traffic_cost, configs.rack_aware_non_overlap_cost
        self._costs = Costs(10 if traffic is None else traffic, 1 if non_overlap is None else non_overlap)

    def assign_active_stateful(self) -> None:
        for task, assignment in zip(self._stateful, cycle(self.assignments.values()), strict=False):
            assignment.assign_task(AssignedTask(task, TaskType.ACTIVE))
        self._balance(TaskType.ACTIVE, _always)
        self._optimize_active(self._stateful, self._costs)

    def assign_standbys(self) -> None:
        replicas = self._configs.num_standby_replicas
        if not replicas:
            return
        standbys = StandbyPlacement(self._states, self.assignments, replicas)
        by_tags = bool(self._configs.rack_aware_assignment_tags)
        if by_tags:
            standbys.assign_by_tags(self._stateful, self._configs.rack_aware_assignment_tags)
        else:
            standbys.assign_by_load(self._stateful)
        self._balance(TaskType.STANDBY, _have_equal_tags if by_tags else _always)
        if self._racks:
            costs = RackCosts(self._state, self._costs, changelogs_of, MIN_TRAFFIC)
            may_move = keeps_apart(self._states) if by_tags else _always
            costs.optimize_standby(self._sizes, self.assignments, may_move)

    def move_to_caught_up(self) -> int:
        """Returns how many tasks are not where they should be."""
        movements = TaskMovements(
            self._states, self.assignments, self._configs.acceptable_recovery_lag, self._configs.max_warmup_replicas
        )
        return movements.move_active() + movements.move_standbys()

    def assign_stateless(self) -> None:
        by_load = ConstrainedPrioritySet(
            lambda process, task: True,
            lambda process: (
                len(self.assignments[process].of_type(TaskType.ACTIVE)) / self._states[process].num_processing_threads
            ),
        )
        by_load.offer_all(self._states)
        for task in self._stateless:
            process = by_load.poll(task)
            assert process is not None, "there is an instance"
            self.assignments[process].assign_task(AssignedTask(task, TaskType.ACTIVE))
            by_load.offer_all((process,))
        self._optimize_active(self._stateless, Costs(STATELESS_TRAFFIC_COST, STATELESS_NON_OVERLAP_COST))

    # ---- internals

    def _optimize_active(self, tasks: list[TaskId], costs: Costs) -> None:
        if self._racks and tasks:
            strategy = self._configs.rack_aware_assignment_strategy
            RackCosts(self._state, costs, sources_of, strategy).optimize_active(tasks, self._sizes, self.assignments)

    def _balance(self, task_type: TaskType, may_move: _MayMove) -> None:
        """Move tasks of a type between instances while that makes the loads more even."""
        moved = True
        while moved:
            moved = False
            for source, destination in permutations(self._states.values(), 2):
                if may_move(source, destination):
                    moved |= self._balance_two(source.process_id, destination.process_id, task_type)

    def _balance_two(self, source: ProcessId, destination: ProcessId, task_type: TaskType) -> bool:
        here, there = self.assignments[source], self.assignments[destination]
        moved = False
        for task in here.of_type(task_type):
            if not self._evens_out(source, destination):
                break
            if task not in there.tasks:
                here.remove_task(AssignedTask(task, task_type))
                there.assign_task(AssignedTask(task, task_type))
                moved = True
        return moved

    def _evens_out(self, source: ProcessId, destination: ProcessId) -> bool:
        """Whether a task less at the source and one more at the destination make their loads more even."""
        skew = self._load(source) - self._load(destination)
        after = self._load(source, -1.0) - self._load(destination, 1.0)
        return skew > 0 and 0 <= after < skew

    def _load(self, process: ProcessId, change: float = 0.0) -> float:
        return (len(self.assignments[process].tasks) + change) / self._states[process].num_processing_threads
