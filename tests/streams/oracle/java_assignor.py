"""Java's task assignors for the application states of odradek.streams.assignment.

The maps that Java gets are sorted, where an application has hash maps by process id: so the results depend on no
hash code of a process, and can be compared exactly.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from typing import Any, Final

import jpype

from odradek.protocol.topic_partition import TopicPartition
from odradek.streams.assignment import (
    ApplicationState,
    AssignmentConfigs,
    KafkaStreamsAssignment,
    KafkaStreamsState,
    ProcessId,
    RackAwareOptimizationParams,
    TaskInfo,
)
from odradek.streams.assignment.kafka_streams_assignment import TaskAssignment, TaskType
from odradek.streams.records import TaskId
from tests.streams.oracle.java import Java

API: Final = "org.apache.kafka.streams.processor.assignment"
INTERNALS: Final = "org.apache.kafka.streams.processor.internals.assignment"

Tasks = dict[str, dict[str, str]]
"""The type of each task, by process: what is compared."""


def tasks_of(assignments: Iterable[KafkaStreamsAssignment]) -> Tasks:
    """The tasks of each process, by odradek.streams."""
    return {
        str(each.process_id): {str(task.id): task.type.name for task in each.tasks.values()} for each in assignments
    }


class JavaAssignment:
    """Converts to Java's classes, and runs them."""

    def __init__(self, java: Java) -> None:
        self._java = java
        self.utils = java.find(f"{API}.TaskAssignmentUtils")
        self._nothing = jpype.JProxy("java.lang.Runnable", dict={"run": lambda: None})
        self.type = java.find(f"{API}.KafkaStreamsAssignment$AssignedTask$Type")

    # ---- runs

    def assign(self, assignor: Any, state: ApplicationState) -> tuple[Tasks, bool]:
        """The result of an assignor of the public interface, and whether it demands a rebalance."""
        made = [*assignor.assign(self.state(state)).assignment()]
        return self._tasks(made), any(each.followupRebalanceDeadline().isPresent() for each in made)

    def assign_internally(self, assignor: str, state: ApplicationState) -> tuple[Tasks, bool]:
        """The result of an assignor of Java's internal interface, and whether it demands a rebalance."""
        java, configs = self._java, self.configs(state.assignment_configs)
        states = state.kafka_streams_states(compute_task_lags=True)
        client_state = java.find(f"{INTERNALS}.ClientState")
        clients = java.TreeMap()
        for process, each in states.items():
            made = client_state(
                self.task_set(each.previous_active_tasks),
                self.task_set(each.previous_standby_tasks),
                self.lags(each),
                self.map(each.client_tags),
                each.num_processing_threads,
                self.process(process),
            )
            clients.put(self.process(process), made)
        logged = [task.id for task in state.all_tasks.values() if task.is_logged]
        probing = java.find(f"{INTERNALS}.{assignor}")().assign(
            clients,
            self.task_set(state.all_tasks),
            self.task_set(logged),
            self._rack_aware(state, configs),
            configs,
        )
        tasks: Tasks = {}
        for process in states:
            client = clients.get(self.process(process))
            tasks[str(process)] = {
                **{str(task): "ACTIVE" for task in client.activeTasks()},
                **{str(task): "STANDBY" for task in client.standbyTasks()},
            }
        return tasks, bool(probing)

    def optimize(
        self, which: TaskType, params: RackAwareOptimizationParams, assignments: Iterable[KafkaStreamsAssignment]
    ) -> Tasks:
        """The assignments after the rack-aware optimization of one type."""
        java = self._java
        kind = java.find(f"{API}.TaskAssignmentUtils$RackAwareOptimizationParams")
        theirs = kind.of(self.state(params.application_state))
        if params.traffic_cost_override is not None:
            theirs = theirs.withTrafficCostOverride(params.traffic_cost_override)
        if params.non_overlap_cost_override is not None:
            theirs = theirs.withNonOverlapCostOverride(params.non_overlap_cost_override)
        if params.tasks_to_optimize is not None:
            theirs = theirs.forTasks(self.task_set(params.tasks_to_optimize))
        made = self.assignments(assignments)
        run = self.utils.optimizeRackAwareActiveTasks if which is TaskType.ACTIVE else None
        (run or self.utils.optimizeRackAwareStandbyTasks)(theirs, made)
        return self._tasks(made.values())

    def default_standbys(self, state: ApplicationState, assignments: Iterable[KafkaStreamsAssignment]) -> Tasks:
        """The assignments after the default assignment of standbys."""
        made = self.assignments(assignments)
        self.utils.defaultStandbyTaskAssignment(self.state(state), made)
        return self._tasks(made.values())

    def identity(self, state: ApplicationState) -> Tasks:
        """The previous tasks."""
        return self._tasks(self.utils.identityAssignment(self.state(state)).values())

    def validate(self, state: ApplicationState, made: TaskAssignment) -> str:
        """The name of the error of an assignment."""
        theirs = self._java.ArrayList([self._assignment(each) for each in made.assignment])
        task_assignment = self._java.find(f"{API}.TaskAssignor$TaskAssignment")(theirs)
        return str(self.utils.validateTaskAssignment(self.state(state), task_assignment))

    def _tasks(self, assignments: Iterable[Any]) -> Tasks:
        return {
            str(each.processId().id()): {str(task.id()): str(task.type()) for task in each.tasks().values()}
            for each in assignments
        }

    # ---- conversions

    def process(self, process: ProcessId) -> Any:
        """A ProcessId."""
        return self._java.find(f"{API}.ProcessId")(self._java.UUID.fromString(str(process)))

    def task(self, task: TaskId) -> Any:
        """A TaskId."""
        return self._java.TaskId(task.subtopology, task.partition)

    def task_set(self, tasks: Iterable[TaskId]) -> Any:
        """A sorted set of task ids."""
        found = self._java.TreeSet()
        for task in tasks:
            found.add(self.task(task))
        return found

    def map(self, items: Mapping[str, str]) -> Any:
        """A map of texts."""
        found = self._java.TreeMap()
        for name, value in items.items():
            found.put(name, value)
        return found

    def lags(self, state: KafkaStreamsState) -> Any:
        """The lags of an instance."""
        found = self._java.TreeMap()
        for task, lag in state.stateful_tasks_to_lag_sums.items():
            found.put(self.task(task), jpype.JLong(lag))
        return found

    def configs(self, configs: AssignmentConfigs) -> Any:
        """AssignmentConfigs."""
        java, costs = self._java, (configs.rack_aware_traffic_cost, configs.rack_aware_non_overlap_cost)
        optional = java.OptionalInt
        return java.find(f"{API}.AssignmentConfigs")(
            configs.acceptable_recovery_lag,
            configs.max_warmup_replicas,
            configs.num_standby_replicas,
            configs.probing_rebalance_interval_ms,
            java.ArrayList([*configs.rack_aware_assignment_tags]),
            *(optional.empty() if cost is None else optional.of(cost) for cost in costs),
            configs.rack_aware_assignment_strategy,
        )

    def state(self, state: ApplicationState) -> Any:
        """An ApplicationState."""
        tasks, with_lags, without_lags = (self._java.TreeMap() for _ in range(3))
        for order, task in enumerate(state.all_tasks.values()):
            tasks.put(self.task(task.id), self._info(task, order))
        for process, each in state.kafka_streams_states(compute_task_lags=True).items():
            with_lags.put(self.process(process), self._state(each, lags=True))
            without_lags.put(self.process(process), self._state(each, lags=False))
        answers = {"assignmentConfigs": self.configs(state.assignment_configs), "allTasks": tasks}
        methods: dict[str, Any] = {name: lambda value=value: value for name, value in answers.items()}
        methods["kafkaStreamsStates"] = lambda lags: with_lags if lags else without_lags
        return jpype.JProxy(f"{API}.ApplicationState", dict=methods)

    def assignments(self, assignments: Iterable[KafkaStreamsAssignment]) -> Any:
        """Assignments by process."""
        found = self._java.TreeMap()
        for each in assignments:
            found.put(self.process(each.process_id), self._assignment(each))
        return found

    def _assignment(self, assignment: KafkaStreamsAssignment) -> Any:
        assigned_task = self._java.find(f"{API}.KafkaStreamsAssignment$AssignedTask")
        tasks = self._java.HashSet()
        for task in assignment.tasks.values():
            tasks.add(assigned_task(self.task(task.id), self.type.valueOf(task.type.name)))
        kind = self._java.find(f"{API}.KafkaStreamsAssignment")
        return kind.of(self.process(assignment.process_id), tasks)

    def _info(self, task: TaskInfo, order: int) -> Any:
        java = self._java
        partitions = java.HashSet()
        for each in task.topic_partitions:
            made = java.find(f"{INTERNALS}.DefaultTaskTopicPartition")(
                self._partition(each.topic_partition), each.is_source, each.is_changelog, self._nothing
            )
            if each.rack_ids is not None:
                made.annotateWithRackIds(java.TreeSet(java.ArrayList([*each.rack_ids])))
            partitions.add(made)
        stores = java.HashSet(java.ArrayList([*task.state_store_names]))
        # The hash code of Java's own class is the identity of the object, and from it follows the order in which Java's
        # sticky assignor assigns standbys.
        answers = {
            "id": self.task(task.id),
            "isStateful": task.is_stateful,
            "stateStoreNames": stores,
            "topicPartitions": partitions,
            "hashCode": order,
        }
        return jpype.JProxy(
            f"{API}.TaskInfo", dict={name: lambda value=value: value for name, value in answers.items()}
        )

    def _partition(self, place: TopicPartition) -> Any:
        return self._java.find("org.apache.kafka.common.TopicPartition")(*place)

    def _state(self, state: KafkaStreamsState, *, lags: bool) -> Any:
        java = self._java
        consumers = java.TreeMap()
        for name, own in state.task_ids_by_consumer.items():
            consumers.put(name, self.task_set(own))
        return java.find(f"{INTERNALS}.DefaultKafkaStreamsState")(
            self.process(state.process_id),
            state.num_processing_threads,
            self.map(state.client_tags),
            self.task_set(state.previous_active_tasks),
            self.task_set(state.previous_standby_tasks),
            consumers,
            java.Optional.empty(),
            java.Optional.of(self.lags(state)) if lags else java.Optional.empty(),
            java.Optional.ofNullable(None if state.rack_id is None else java.String(state.rack_id)),
        )

    def _rack_aware(self, state: ApplicationState, configs: Any) -> Any:
        """Java's RackAwareTaskAssignor. It requests the racks from a cluster; here reflection sets them."""
        java, optional = self._java, self._java.Optional
        sources, changelogs, clients = (java.TreeMap() for _ in range(3))
        racks = java.HashMap()
        groups = java.HashMap()
        subtopology = java.find("org.apache.kafka.streams.processor.internals.TopologyMetadata$Subtopology")
        known = True
        for task in state.all_tasks.values():
            own, logs = java.HashSet(), java.HashSet()
            for each in task.topic_partitions:
                place = self._partition(each.topic_partition)
                if each.is_source:
                    own.add(place)
                if each.is_changelog:
                    logs.add(place)
                if each.is_source or state.assignment_configs.num_standby_replicas:
                    known = known and bool(each.rack_ids)
                racks.put(place, java.HashSet(java.ArrayList([*(each.rack_ids or ())])))
            sources.put(self.task(task.id), own)
            if not logs.isEmpty():
                changelogs.put(self.task(task.id), logs)
            group = subtopology(task.id.subtopology, None)
            if not groups.containsKey(group):
                groups.put(group, java.TreeSet())
            groups.get(group).add(self.task(task.id))
        for process, own_state in state.kafka_streams_states(compute_task_lags=False).items():
            rack = optional.ofNullable(None if own_state.rack_id is None else java.String(own_state.rack_id))
            clients.put(self.process(process), java.Collections.singletonMap("consumer", rack))
        cluster = java.find("org.apache.kafka.common.Cluster").empty()
        made = java.find(f"{INTERNALS}.RackAwareTaskAssignor")(
            cluster,
            sources,
            changelogs,
            groups,
            clients,
            None,
            configs,
            java.find("org.apache.kafka.common.utils.Time").SYSTEM,
        )
        self._set(made, "racksForPartition", racks)
        self._set(made, "canEnable", java.Boolean(bool(made.validClientRack()) and known))
        return made

    @staticmethod
    def _set(owner: Any, name: str, value: Any) -> None:
        field = owner.getClass().getDeclaredField(name)
        field.setAccessible(True)
        field.set(owner, value)


def process_of(number: int) -> ProcessId:
    """A process id whose hash code is its number: Java's hash sets are sorted then, up to sixteen."""
    return ProcessId(uuid.UUID(int=number))
