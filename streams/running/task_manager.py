"""Task manager: the tasks of one stream thread over rebalances, restorations and failures (Kafka: TaskManager).

After a rebalance the thread closes the tasks that it has lost, keeps those that it is assigned again, and opens and
restores the new ones beside those that run. A standby that becomes active keeps its stores.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

from odradek.protocol.topic_partition import TopicPartition
from odradek.streams.errors import TaskCorruptedError, TaskMigratedError
from odradek.streams.group.group_protocol import CommitFailed
from odradek.streams.group.subscription_info import AssignmentInfo
from odradek.streams.records import TaskId
from odradek.streams.running.active_tasks import ActiveTasks
from odradek.streams.running.application import Application
from odradek.streams.running.collector import RecordCollector
from odradek.streams.running.restoration import Restorer
from odradek.streams.running.standby_tasks import StandbyTasks
from odradek.streams.running.task_state import TaskState
from odradek.streams.running.thread_context import ThreadContext

log = logging.getLogger(__name__)

RESTORE_STEP_S: Final = 0.1
"""The duration of a restoration step while no task runs yet; the step is shorter while tasks run."""
RESTORE_BESIDE_S: Final = 0.02


class TaskManager:
    """The active and the standby tasks of one thread. Only that thread calls its methods, except for `states`."""

    def __init__(
        self,
        application: Application,
        context: ThreadContext,
        active: ActiveTasks,
        restorer: Restorer,
        collector: RecordCollector,
    ) -> None:
        self.active = active
        self.standbys = StandbyTasks(restorer)
        self.restorer = restorer
        self.collector = collector
        self._application = application
        self._name = context.name
        self._lock = context.lock

    def states(self) -> list[tuple[TaskState, bool]]:
        """The stores of all tasks, standby tasks included, and whether each task is active and running. Any thread may
        call it.
        """
        found = [(each.state, each.task is not None) for each in list(self.active.tasks.values())]
        return found + [(state, False) for state in list(self.standbys.tasks.values())]

    # ---- rebalances

    def handle_assignment(self, info: AssignmentInfo, partitions: Sequence[TopicPartition], missed: bool) -> None:
        """Close removed tasks, keep retained tasks and create new tasks. Raises StreamsError.

        A thread that `missed` a generation keeps no task: in that generation other members may have run its tasks and
        committed further offsets.
        """
        application, active = self._application, self.active
        subtopologies = application.topology.subtopologies(
            application.application_id, sorted({topic for topic, _ in partitions})
        )
        wanted = {
            task: frozenset(
                place
                for place in partitions
                if place[1] == task.partition and place[0] in subtopologies[task[0]].source_topics
            )
            for task in info.active
        }
        log.info(
            "assignment received thread=%s active=%s standby=%s",
            self._name,
            ",".join(map(str, info.active)) or "none",
            ",".join(map(str, info.standby)) or "none",
        )
        with self._lock:
            for task_id, each in list(active.tasks.items()):
                if missed or wanted.get(task_id) != each.sources:
                    active.close(task_id)
            for task_id, sources in wanted.items():
                if task_id not in active.tasks:
                    promoted = self.standbys.promote(task_id)
                    active.give(task_id, subtopologies[task_id.subtopology], sources, promoted)
            self.standbys.take(info.standby, self._make_standby)

    def handle_lost_all(self) -> None:
        """Close all tasks without a commit; their uncommitted output is discarded."""
        with self._lock:
            self.active.close_dirty()
            self.standbys.close_all()
            self.collector.renew()

    def _make_standby(self, task_id: TaskId) -> TaskState:
        application = self._application
        subtopologies = application.topology.subtopologies(application.application_id)
        return self.active.make_state(task_id, subtopologies[task_id.subtopology])

    # ---- restoration

    def restore(self) -> None:
        """Continue restorations during a rebalance, which takes long and moves few tasks."""
        if self.restorer.active:
            self.active.start(self.restorer.step(RESTORE_STEP_S))

    def try_to_complete_restoration(self) -> bool:
        """Open and restore assigned tasks, and update standbys. Returns whether the thread must not block for records.
        Raises StreamsError, TaskCorruptedError.
        """
        active, standbys, restorer = self.active, self.standbys, self.restorer
        if active.all_running:
            if standbys.tasks or not standbys.all_open:
                standbys.advance()
                restorer.step(0.0, beside=True)
            return False
        active.advance()
        standbys.advance()
        active.start(restorer.step(RESTORE_BESIDE_S if active.running else RESTORE_STEP_S, bool(active.running)))
        return restorer.active and not active.all_running

    def handle_corruption(self, error: TaskCorruptedError) -> None:
        """Rebuild the state of tasks. None of them runs yet, so an open transaction contains no records of theirs."""
        with self._lock:
            self.active.revive(error.tasks & self.active.tasks.keys())
            for task_id in error.tasks & self.standbys.tasks.keys():
                self.standbys.revive(task_id, self._make_standby)

    # ---- close

    def shut_down(self, *, commit: bool) -> None:
        """Commit, unless a rebalance is in progress, and close all tasks. Raises the first error of a task."""
        with self._lock:
            try:
                if commit:
                    self.active.commit()
                    self.active.learn_ends()
            except (CommitFailed, TaskMigratedError) as error:
                log.warning("cannot commit at shutdown thread=%s error=%s", self._name, error)
                self.active.close_dirty()
            for task_id in list(self.active.tasks):
                self.active.close(task_id)
            self.standbys.close_all()
