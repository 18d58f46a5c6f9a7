"""Sticky assignor: tasks stay on their instances (org.apache.kafka.streams.processor.assignment.assignors).

1. An active task stays on the instance that ran it, then goes to one that had a standby of it, while the instance has
   fewer than its threads times floor(tasks / threads).
2. The other active tasks go to instances that had them, unless another one has less load, and else to the least loaded
   instance; among these to one with a pair of tasks that no other instance had so far, which spreads sub-topologies.
3. Standbys follow by the same rule.

With rack.aware.assignment.strategy, the costs are optimized after the active tasks and after the standbys.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable

from odradek.streams.assignment.application_state import ApplicationState
from odradek.streams.assignment.kafka_streams_assignment import (
    AssignedTask,
    Assignments,
    KafkaStreamsAssignment,
    TaskAssignment,
    TaskType,
)
from odradek.streams.assignment.process_id import ProcessId
from odradek.streams.assignment.rack_aware import (
    STATELESS_NON_OVERLAP_COST,
    STATELESS_TRAFFIC_COST,
    RackAwareOptimizationParams,
    optimize_rack_aware_active_tasks,
    optimize_rack_aware_standby_tasks,
)
from odradek.streams.assignment.task_assignor import TaskAssignor
from odradek.streams.java_order import hash_set_order_of_tasks
from odradek.streams.records import TaskId

log = logging.getLogger(__name__)


class StickyTaskAssignor(TaskAssignor):
    """Prefers that tasks stay to an even load. The costs are 1 (traffic) and 10 (non-overlap) by default."""

    def __init__(self, must_preserve_active_task_assignment: bool = False) -> None:
        """With `must_preserve_active_task_assignment` active tasks stay, and another rebalance follows at once."""
        self._must_preserve = must_preserve_active_task_assignment

    def assign(self, application_state: ApplicationState) -> TaskAssignment:
        """The assignment of each instance."""
        plan = _Plan(application_state)
        configs = application_state.assignment_configs
        plan.assign_active(preserve=self._must_preserve)
        params = RackAwareOptimizationParams(application_state)
        with_costs = params.with_traffic_cost_override(
            1 if configs.rack_aware_traffic_cost is None else configs.rack_aware_traffic_cost
        ).with_non_overlap_cost_override(
            10 if configs.rack_aware_non_overlap_cost is None else configs.rack_aware_non_overlap_cost
        )
        if not self._must_preserve:
            optimize_rack_aware_active_tasks(with_costs.for_stateful_tasks(), plan.assignments)
            stateless = params.for_stateless_tasks().with_traffic_cost_override(STATELESS_TRAFFIC_COST)
            optimize_rack_aware_active_tasks(
                stateless.with_non_overlap_cost_override(STATELESS_NON_OVERLAP_COST), plan.assignments
            )
        plan.assign_standbys(configs.num_standby_replicas)
        if configs.num_standby_replicas and not self._must_preserve:
            optimize_rack_aware_standby_tasks(with_costs, plan.assignments)
        made = [*plan.assignments.values()]
        if self._must_preserve and made:
            made[0] = made[0].with_followup_rebalance(0)
        return TaskAssignment(made)


class _Plan:
    """The assignment while it is made."""

    def __init__(self, state: ApplicationState) -> None:
        self._tasks = state.all_tasks
        self._states = state.kafka_streams_states(compute_task_lags=False)
        self.assignments: Assignments = {process: KafkaStreamsAssignment(process) for process in self._states}
        self._ran: dict[TaskId, ProcessId] = {}
        self._stood_by: dict[TaskId, list[ProcessId]] = {}
        for process, each in self._states.items():
            self._ran.update(dict.fromkeys(sorted(each.previous_active_tasks), process))
            for task in each.previous_standby_tasks:
                self._stood_by.setdefault(task, []).append(process)
        self._pairs: set[frozenset[TaskId]] = set()

    def assign_active(self, *, preserve: bool) -> None:
        """Assign every task to an instance that runs it."""
        threads = sum(state.num_processing_threads for state in self._states.values())
        for_each_thread = len(self._tasks) // threads
        waiting = set(self._tasks)
        for task in hash_set_order_of_tasks(self._ran):
            owner = self._ran[task]
            if task in waiting and (preserve or self._has_room(owner, for_each_thread)):
                self._put(task, owner, TaskType.ACTIVE)
                waiting.remove(task)
        for task in hash_set_order_of_tasks(self._tasks, copied=True):
            if task in waiting:
                for process in self._stood_by.get(task, ()):
                    if self._has_room(process, for_each_thread):
                        self._put(task, process, TaskType.ACTIVE)
                        waiting.remove(task)
                        break
        for task in sorted(waiting):
            self._put(task, self._best(task, [*self._states]), TaskType.ACTIVE)

    def assign_standbys(self, replicas: int) -> None:
        """Assign standbys of each task with a changelog."""
        for task in self._tasks.values() if replicas else ():
            if task.is_logged:
                self._assign_standbys_of(task.id, replicas)

    # ---- internals

    def _assign_standbys_of(self, task: TaskId, replicas: int) -> None:
        for missing in range(replicas, 0, -1):
            free = [process for process, each in self.assignments.items() if task not in each.tasks]
            if not free:
                log.warning("too few instances for the standbys task=%s missing=%d of=%d", task, missing, replicas)
                return
            self._put(task, self._best(task, free), TaskType.STANDBY)

    def _put(self, task: TaskId, process: ProcessId, task_type: TaskType) -> None:
        assignment = self.assignments[process]
        self._pairs.update(frozenset((task, other)) for other in assignment.tasks)
        assignment.assign_task(AssignedTask(task, task_type))

    def _has_room(self, process: ProcessId, for_each_thread: int) -> bool:
        threads = self._states[process].num_processing_threads
        return len(self.assignments[process].of_type(TaskType.ACTIVE)) < threads * for_each_thread

    def _best(self, task: TaskId, among: Collection[ProcessId]) -> ProcessId:
        if len(among) == 1:
            return next(iter(among))
        standby = self._least_loaded(task, (process for process in self._stood_by.get(task, ()) if process in among))
        previous = self._ran.get(task)
        if previous is None or previous not in among:
            previous = standby
        for preferred in (previous, standby):
            if preferred is not None and not self._should_balance(preferred):
                return preferred
        found = self._least_loaded(task, among)
        assert found is not None, "there is an instance"
        return found

    def _least_loaded(self, task: TaskId, among: Iterable[ProcessId]) -> ProcessId | None:
        """The least loaded instance, among those with a new pair of tasks if there are any."""
        by_load = sorted(among, key=self._load)
        if not by_load or not self._load(by_load[0]):
            return by_load[0] if by_load else None
        total = len(self._tasks) * (len(self._tasks) - 1) // 2
        for process in by_load if len(self._pairs) != total else ():
            if any(frozenset((task, other)) not in self._pairs for other in self.assignments[process].tasks):
                return process
        return by_load[0]

    def _load(self, process: ProcessId) -> float:
        return len(self.assignments[process].tasks) / self._states[process].num_processing_threads

    def _should_balance(self, process: ProcessId) -> bool:
        """Whether the instance has a task for each thread, and another one has less load."""
        load = self._load(process)
        return load >= 1 and any(self._load(other) < load for other in self._states)
