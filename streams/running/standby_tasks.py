"""Standby tasks of a stream thread: their stores follow the changelogs, and they process no records (Kafka:
StandbyTask).

When such a task becomes active on the thread, its stores stay open and keep their positions. A task that was active
before is closed with a checkpoint and opened again, since its caches are outdated (KIP-441).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection

from odradek.streams.errors import LockError
from odradek.streams.records import TaskId
from odradek.streams.running.leadership import position_of
from odradek.streams.running.restoration import Restorer
from odradek.streams.running.standby_listener import SuspendReason
from odradek.streams.running.task_state import TaskState

log = logging.getLogger(__name__)

MakeState = Callable[[TaskId], TaskState]


class StandbyTasks:
    """One thread's standbys. Only that thread calls its methods; other threads may read `tasks`."""

    def __init__(self, restorer: Restorer) -> None:
        self.tasks: dict[TaskId, TaskState] = {}
        self._waiting: dict[TaskId, TaskState] = {}
        """Tasks whose directory is still locked."""
        self._restorer = restorer

    def take(self, wanted: Collection[TaskId], make_state: MakeState) -> None:
        """Replace the set of standby tasks by these. Raises the first error of a store that is closed."""
        for task_id in [each for each in self.tasks if each not in wanted]:
            self.close(task_id)
        self._waiting = {each: state for each, state in self._waiting.items() if each in wanted}
        for task_id in wanted:
            if task_id not in self.tasks and task_id not in self._waiting:
                self._waiting[task_id] = make_state(task_id)

    def advance(self) -> None:
        """Open the tasks whose directory is free. Raises StreamsError, TaskCorruptedError."""
        for task_id, state in list(self._waiting.items()):
            try:
                state.open()
            except LockError as error:
                log.debug("retrying to lock the task directory error=%s", error)
                continue
            del self._waiting[task_id]
            self.tasks[task_id] = state
            self._restorer.add(state, standby=True)

    @property
    def all_open(self) -> bool:
        """Whether no task waits for its directory."""
        return not self._waiting

    def promote(self, task_id: TaskId) -> TaskState | None:
        """Remove a standby that becomes active and return its stores, open; None if there is no such standby."""
        return self._removed(task_id, SuspendReason.PROMOTED)

    def _removed(self, task_id: TaskId, reason: SuspendReason) -> TaskState | None:
        state = self.tasks.pop(task_id, None)
        if state is not None:
            self._restorer.drop(task_id, reason)
        return state

    def positions(self) -> dict[TaskId, int]:
        """The position of each task's state."""
        return {task_id: position_of(state.positions) for task_id, state in self.tasks.items()}

    def revive(self, task_id: TaskId, make_state: MakeState) -> None:
        """Wipe a standby's state and start it anew."""
        state = self._removed(task_id, SuspendReason.MIGRATED)
        if state is not None:
            state.wipe()
            self._waiting[task_id] = make_state(task_id)

    def close(self, task_id: TaskId) -> None:
        """Close one standby, with a checkpoint. Raises the first error of its stores."""
        state = self._removed(task_id, SuspendReason.MIGRATED)
        if state is not None:
            state.close(True)
            log.info("standby task closed task=%s", task_id)

    def close_all(self) -> None:
        """Close all of them. Errors go to the log: the changelog contains everything that a standby has."""
        self._waiting.clear()
        for task_id in list(self.tasks):
            try:
                self.close(task_id)
            except Exception as error:
                log.warning("error while closing standby task task=%s error=%r", task_id, error)
