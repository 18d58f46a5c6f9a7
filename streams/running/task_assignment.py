"""Runs the configured task assignor in the leader of the group (Kafka: StreamsPartitionAssignor, KIP-924).

It makes the application's state from the subscriptions of the members, validates the assignment, and distributes the
tasks of each instance over its threads, where they stay as far as the loads allow.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from odradek.streams.assignment.application_state import (
    LATEST_OFFSET,
    UNKNOWN_OFFSET_SUM,
    ApplicationState,
    AssignmentConfigs,
    KafkaStreamsState,
    Racks,
    TaskInfo,
    TaskTopicPartition,
)
from odradek.streams.assignment.high_availability import HighAvailabilityTaskAssignor
from odradek.streams.assignment.kafka_streams_assignment import TaskAssignment, TaskType
from odradek.streams.assignment.process_id import ProcessId
from odradek.streams.assignment.sticky import StickyTaskAssignor
from odradek.streams.assignment.task_assignor import AssignmentError, TaskAssignor
from odradek.streams.assignment.validation import validate_task_assignment
from odradek.streams.errors import StreamsError
from odradek.streams.group.assignor_threads import Thread, place_on_threads
from odradek.streams.group.group_protocol import Assignments, MemberSubscription
from odradek.streams.group.subscription_info import RUNNING, UNKNOWN_POSITION, SubscriptionInfo
from odradek.streams.records import TaskId
from odradek.streams.running.locations import host_of
from odradek.streams.running.topic_groups import Plan, TaskTopics

_FATAL = (AssignmentError.UNKNOWN_PROCESS_ID, AssignmentError.UNKNOWN_TASK_ID)


class Placed(NamedTuple):
    """The tasks of each thread, and the time of the next rebalance in ms since the epoch; 0 is never."""

    active: Mapping[str, list[TaskId]]
    standby: Mapping[str, list[TaskId]]
    next_rebalance_ms: int


@dataclass(frozen=True, slots=True)
class Members:
    """The members of the group at a rebalance, by name."""

    subscriptions: Mapping[str, MemberSubscription]
    infos: Mapping[str, SubscriptionInfo]
    threads: Mapping[str, Thread]


class AssignorRun:
    """One call of an assignor. `place`, then `report` with what the leader is about to send."""

    def __init__(self, assignor: TaskAssignor, members: Members) -> None:
        self._assignor = assignor
        self._members = members
        self._error = AssignmentError.NONE

    def place(self, state: ApplicationState, logged: Iterable[TaskId]) -> Placed:
        """Call the assignor. `logged` are the tasks with changelogs.

        Raises StreamsError for an assignment with an unknown instance or task, and what the assignor raises.
        """
        made = self._assignor.assign(state)
        self._error = validate_task_assignment(state, made)
        if self._error in _FATAL:
            self._assignor.on_assignment_computed({}, self._members.subscriptions, self._error)
            raise StreamsError(f"Task assignment with {self._name} returned a fatal error: {self._error.name}")
        active, standby = place_on_threads(
            _by_process(made, TaskType.ACTIVE),
            _by_process(made, TaskType.STANDBY),
            frozenset(logged),
            self._members.threads,
        )
        deadlines = [
            each.followup_rebalance_deadline_ms
            for each in made.assignment
            if each.followup_rebalance_deadline_ms is not None
        ]
        return Placed(active, standby, max(1, min(deadlines)) if deadlines else 0)

    def report(self, given: Assignments) -> None:
        """Call the assignor with the assignment of each member. Raises StreamsError if the assignment is invalid."""
        self._assignor.on_assignment_computed(given, self._members.subscriptions, self._error)
        if self._error is not AssignmentError.NONE:
            raise StreamsError(f"Task assignment with {self._name} returned an error: {self._error.name}")

    @property
    def _name(self) -> str:
        kind = type(self._assignor)
        return f"{kind.__module__}.{kind.__qualname__}"


def _by_process(made: TaskAssignment, task_type: TaskType) -> dict[bytes, list[TaskId]]:
    return {each.process_id.id.bytes: each.of_type(task_type) for each in made.assignment}


def without_lags(assignor: TaskAssignor) -> TaskAssignor:
    """The assignor to use while no lags are known: one that needs them is replaced by one that moves no active task
    (Kafka: FallbackPriorTaskAssignor).
    """
    if isinstance(assignor, HighAvailabilityTaskAssignor):
        return StickyTaskAssignor(must_preserve_active_task_assignment=True)
    return assignor


def application_state(
    configs: AssignmentConfigs, found: Plan, members: Members, sizes: Mapping[TaskId, int] | None, racks: Racks
) -> ApplicationState:
    """The input of an assignor.

    `sizes` has the size of the state of each task with a changelog, in records of its changelogs, or is None where no
    broker returned the end offsets.
    """
    tasks = [
        TaskInfo(task, frozenset(found.subtopologies[task.subtopology].stores), _partitions(topics, racks))
        for task, topics in found.tasks.items()
    ]
    logged = [task for task, topics in found.tasks.items() if topics.changelogs]
    by_process: dict[bytes, list[str]] = {}
    for name in sorted(members.infos):
        by_process.setdefault(members.infos[name].process_id, []).append(name)
    states = []
    for process, names in by_process.items():
        infos = [members.infos[name] for name in names]
        states.append(
            KafkaStreamsState(
                process_id=ProcessId(uuid.UUID(bytes=process)),
                num_processing_threads=len(names),
                client_tags=infos[0].tags,
                previous_active_tasks=frozenset().union(*(info.active for info in infos)),
                previous_standby_tasks=frozenset().union(*(info.standby for info in infos)),
                task_ids_by_consumer={
                    name: info.active | info.standby for name, info in zip(names, infos, strict=True)
                },
                host_info=host_of(infos[0].endpoint) if infos[0].endpoint else None,
                rack_id=next(filter(None, (members.subscriptions[name].rack for name in names)), None),
                task_lags={task: _lag(task, infos, None if sizes is None else sizes[task]) for task in logged},
            )
        )
    return ApplicationState(configs, tasks, states)


def _partitions(topics: TaskTopics, racks: Racks) -> tuple[TaskTopicPartition, ...]:
    changelogs = frozenset(topics.changelogs.values())
    return tuple(
        TaskTopicPartition(place, place in topics.sources, place in changelogs, racks)
        for place in sorted(changelogs.union(topics.sources))
    )


def _lag(task: TaskId, infos: Iterable[SubscriptionInfo], size: int | None) -> int:
    """How far the state of an instance is behind, as in ClientState.computeTaskLags."""
    positions = {info.positions[task] for info in infos if task in info.positions}
    if RUNNING in positions:
        return LATEST_OFFSET
    if size is None or positions == {UNKNOWN_POSITION}:
        return UNKNOWN_OFFSET_SUM
    position = max(positions, default=0)
    return size - position if position <= size else size
