"""Task assignor: decides which instance runs which task (org.apache.kafka.streams.processor.assignment, KIP-924).

    class Pinned(TaskAssignor):
        def assign(self, application_state):
            states = application_state.kafka_streams_states(compute_task_lags=False)
            assignments = {process: KafkaStreamsAssignment(process) for process in states}
            largest = max(states.values(), key=lambda state: state.num_processing_threads)
            for task in application_state.all_tasks:
                assignments[largest.process_id].assign_task(AssignedTask(task, TaskType.ACTIVE))
            return TaskAssignment(assignments.values())

    KafkaStreams(topology, {"task.assignor.class": Pinned, ...})

The leader of the group calls it in each rebalance, within the stream thread. All instances need the same assignor, as
each of them can be the leader.
"""

from __future__ import annotations

import enum
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from odradek.streams.assignment.application_state import ApplicationState
from odradek.streams.assignment.kafka_streams_assignment import TaskAssignment
from odradek.streams.errors import StreamsError

if TYPE_CHECKING:  # the messages of the protocol are many modules, which topologies and their tests do not need
    from odradek.streams.group.group_protocol import Assignments, MemberSubscription


class AssignmentError(enum.Enum):
    """Why an assignment is invalid. The names are Java's."""

    NONE = enum.auto()
    ACTIVE_TASK_ASSIGNED_MULTIPLE_TIMES = enum.auto()
    """Several instances run the task."""
    INVALID_STANDBY_TASK = enum.auto()
    """There is a standby of a task that has no state."""
    MISSING_PROCESS_ID = enum.auto()
    """An instance has no assignment; one without tasks needs an empty assignment."""
    UNKNOWN_PROCESS_ID = enum.auto()
    """There is no such instance."""
    UNKNOWN_TASK_ID = enum.auto()
    """There is no such task."""


class TaskAssignmentError(StreamsError):
    """An assignor cannot assign the tasks: all instances fail with the reason (Kafka: TaskAssignmentException)."""


class TaskAssignor(ABC):
    """Assigns all tasks. One object serves all rebalances of a client; several of its threads may call it."""

    def configure(self, config: Mapping[str, Any]) -> None:  # noqa: B027 - an assignor need not have it
        """Called with the application's properties before the first assignment."""

    @abstractmethod
    def assign(self, application_state: ApplicationState) -> TaskAssignment:
        """The assignment of each instance.

        An instance without tasks has an empty assignment; a task that no instance has does not run. If it raises
        TaskAssignmentError, all instances fail with the reason; any other error ends the thread of the leader.
        """

    def on_assignment_computed(  # noqa: B027 - an assignor need not have it
        self, assignment: Assignments, subscription: Mapping[str, MemberSubscription], error: AssignmentError
    ) -> None:
        """Called after `assign` with what the leader sends to each member of the group.

        Unless `error` is NONE, the leader sends nothing, and its thread ends with a StreamsError after this call; with
        UNKNOWN_PROCESS_ID and UNKNOWN_TASK_ID the assignment is empty.
        """
