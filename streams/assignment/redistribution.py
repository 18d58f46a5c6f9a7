"""Redistribution of tasks over instances at the lowest cost (Kafka: RackAwareGraphConstructor, KIP-925).

Each instance keeps the number of its tasks, so the load stays as even as it was. The two strategies differ in the paths
of a task through the flow network:

    min_traffic           source - task - instance - sink. The total cost is the lowest one.
    balance_subtopology   source - task - instance in this sub-topology - instance - sink. The second edge bounds how
                          many tasks of one sub-topology an instance gets, in proportion to the number of its tasks.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from odradek.streams.assignment.application_state import BALANCE_SUBTOPOLOGY
from odradek.streams.assignment.flow_network import FlowNetwork
from odradek.streams.assignment.kafka_streams_assignment import AssignedTask, Assignments, TaskType
from odradek.streams.assignment.process_id import ProcessId
from odradek.streams.records import TaskId

Cost = Callable[[TaskId, ProcessId, bool], int]
"""The cost of a task on a process, given whether the task is there already."""
_SOURCE = 0


@dataclass(frozen=True, slots=True)
class Redistribution:
    """Which tasks can move, between which processes, and what that costs.

    `sizes` is the number of tasks of each sub-topology, for balance_subtopology.
    """

    processes: Sequence[ProcessId]
    tasks: Sequence[TaskId]
    task_type: TaskType
    cost: Cost
    strategy: str
    sizes: Mapping[int, int]

    def apply(self, assignments: Assignments) -> bool:
        """Move the tasks; returns whether a task has moved. Raises ValueError for a task that no process, or more than
        one of them, has.
        """
        owners = self._owners(assignments)
        network = self._network(assignments, owners)
        network.minimize_cost()
        moved = False
        for node, task in enumerate(self.tasks, _SOURCE + 1):
            for index, process in enumerate(self.processes):
                if network.flow(node, self._node_of(index, task)) and process != owners[task]:
                    assignments[owners[task]].remove_task(AssignedTask(task, self.task_type))
                    assignments[process].assign_task(AssignedTask(task, self.task_type))
                    moved = True
                    break
        return moved

    def total_cost(self, assignments: Assignments) -> int:
        """The cost of the assignment as it is. Raises ValueError as `apply` does."""
        owners = self._owners(assignments)
        return sum(self.cost(task, owners[task], True) for task in self.tasks)

    # ---- internals

    def _owners(self, assignments: Assignments) -> dict[TaskId, ProcessId]:
        owners: dict[TaskId, ProcessId] = {}
        for task in self.tasks:
            found = [process for process in self.processes if assignments[process].holds(task, self.task_type)]
            if not found:
                raise ValueError(f"Task {task} not assigned to any client")
            if len(found) > 1:
                raise ValueError(f"Task {task} assigned to multiple clients {', '.join(map(str, found))}")
            owners[task] = found[0]
        return owners

    def _network(self, assignments: Assignments, owners: Mapping[TaskId, ProcessId]) -> FlowNetwork:
        counts = Counter(owners.values())
        if self.strategy == BALANCE_SUBTOPOLOGY:
            return self._balancing_network(owners, counts)
        sink = _SOURCE + 1 + len(self.tasks) + len(self.processes)
        network = FlowNetwork(sink + 1)
        for node, task in enumerate(self.tasks, _SOURCE + 1):
            network.add_edge(_SOURCE, node, 1, 0, 1)
            for index, process in enumerate(self.processes):
                here = process == owners[task]
                network.add_edge(node, self._node_of(index, task), 1, self.cost(task, process, here), int(here))
        for index, process in enumerate(self.processes):
            network.add_edge(sink - len(self.processes) + index, sink, counts[process], 0, counts[process])
        return network

    def _balancing_network(self, owners: Mapping[TaskId, ProcessId], counts: Mapping[ProcessId, int]) -> FlowNetwork:
        first = _SOURCE + 1 + len(self.tasks) + len(self.processes) * len(self.sizes)
        sink = first + len(self.processes)
        network = FlowNetwork(sink + 1)
        for node, task in enumerate(self.tasks, _SOURCE + 1):
            network.add_edge(_SOURCE, node, 1, 0)
            for index, process in enumerate(self.processes):
                cost = self.cost(task, process, process == owners[task])
                network.add_edge(node, self._node_of(index, task), 1, cost)
        present = {task.subtopology for task in self.tasks}
        for group, subtopology in enumerate(sorted(self.sizes)):
            for index, process in enumerate(self.processes if subtopology in present else ()):
                share = math.ceil(counts[process] * 1.0 / len(self.tasks) * self.sizes[subtopology])
                network.add_edge(self._node(group, index), first + index, share, 0)
        for index, process in enumerate(self.processes):
            network.add_edge(first + index, sink, counts[process], 0)
        amount = network.maximize(_SOURCE, sink)
        if amount != len(self.tasks):
            raise ValueError(f"max flow calculated: {amount} doesn't match taskSize: {len(self.tasks)}")
        return network

    def _node_of(self, index: int, task: TaskId) -> int:
        """The node of a process on the paths of a task."""
        group = sorted(self.sizes).index(task.subtopology) if self.strategy == BALANCE_SUBTOPOLOGY else 0
        return self._node(group, index)

    def _node(self, group: int, index: int) -> int:
        return _SOURCE + 1 + len(self.tasks) + len(self.processes) * group + index
