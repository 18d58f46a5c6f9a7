"""Subscription of a stream thread: what it joins its group with, and the errors in the assignment that it receives
(Kafka: StreamsPartitionAssignor).
"""

from __future__ import annotations

from odradek.streams.errors import MissingSourceTopicError, ShutdownRequestedError, StreamsError
from odradek.streams.group.subscription_info import (
    ASSIGNMENT_ERROR,
    INCOMPLETE_SOURCE_TOPIC_METADATA,
    NO_ERROR,
    SHUTDOWN_REQUESTED,
    AssignmentInfo,
    SubscriptionInfo,
)
from odradek.streams.running.application import Application
from odradek.streams.running.leadership import position_of
from odradek.streams.running.task_manager import TaskManager


class Subscription:
    """Encodes the tasks of a thread and their positions for the leader of the group."""

    def __init__(self, application: Application, tasks: TaskManager) -> None:
        self.error_code = NO_ERROR
        """SHUTDOWN_REQUESTED lets the leader shut down every instance."""
        self._application = application
        self._tasks = tasks
        self._serial = 0

    def encode(self) -> tuple[list[str], bytes]:
        """The topics and the user data to join with."""
        application, tasks = self._application, self._tasks
        self._serial += 1
        positions = {task: position_of(offsets) for task, offsets in application.directory.tasks().items()}
        positions.update(tasks.standbys.positions())
        positions.update(tasks.active.positions())
        info = SubscriptionInfo(
            application.directory.process_id.bytes,
            frozenset(tasks.active.tasks),
            frozenset(tasks.standbys.tasks),
            positions,
            application.config.client_tags,
            application.config["application.server"],
            error=self.error_code,
            serial=self._serial,
        )
        return application.source_topics(), info.encode()


def check_assignment(info: AssignmentInfo) -> None:
    """Raises StreamsError for the error code that the leader put into the assignment."""
    if info.error == NO_ERROR:
        return
    if info.error == INCOMPLETE_SOURCE_TOPIC_METADATA:
        raise MissingSourceTopicError(
            info.reason
            or "One or more source topics were missing during rebalance; the log of the leader's instance lists them"
        )
    if info.error == SHUTDOWN_REQUESTED:
        raise ShutdownRequestedError("an instance has requested the shutdown of the whole application")
    if info.error == ASSIGNMENT_ERROR:
        reason = info.reason or "the log of the leader's instance contains the error"
        raise StreamsError(f"the tasks could not be assigned: {reason}")
    raise StreamsError(f"the leader of the group returned error code {info.error}")
