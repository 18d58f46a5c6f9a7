"""The tasks that a stream thread stands by for: their stores follow the changelogs, and nothing is processed.

When such a task becomes active here, its stores are handed on open, and go on from where they are. One that was active
before is closed with a checkpoint and opened anew, since its caches speak of the past (StandbyTask, KIP-441).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection

from odradek.streams.errors import LockError
from odradek.streams.records import TaskId
from odradek.streams.running.leadership import position_of
from odradek.streams.running.restoration import Restorer
from odradek.streams.running.task_state import TaskState

log = logging.getLogger(__name__)

MakeState = Callable[[TaskId], TaskState]


class StandbyTasks:
    """One thread's standbys. All methods belong to that thread; others may look at `tasks`."""

    def __init__(self, restorer: Restorer) -> None:
        self.tasks: dict[TaskId, TaskState] = {}
        self._waiting: dict[TaskId, TaskState] = {}
        """Those whose directory is not free yet."""
        self._restorer = restorer

    def take(self, wanted: Collection[TaskId], make_state: MakeState) -> None:
        """Stand by for these and no others. Raises the first error of a store that is closed."""
        for task_id in [each for each in self.tasks if each not in wanted]:
            self.close(task_id)
        self._waiting = {each: state for each, state in self._waiting.items() if each in wanted}
        for task_id in wanted:
            if task_id not in self.tasks and task_id not in self._waiting:
                self._waiting[task_id] = make_state(task_id)

    def advance(self) -> None:
        """Open what is free now. Raises StreamsError, TaskCorruptedError."""
        for task_id, state in list(self._waiting.items()):
            try:
                state.open()
            except LockError as error:
                log.debug("%s; it is tried again", error)
                continue
            del self._waiting[task_id]
            self.tasks[task_id] = state
            self._restorer.add(state, standby=True)

    @property
    def all_open(self) -> bool:
        """Whether nothing waits for its directory."""
        return not self._waiting

    def promote(self, task_id: TaskId) -> TaskState | None:
        """Hand on a standby's stores, open; None where there is none."""
        state = self.tasks.pop(task_id, None)
        if state is not None:
            self._restorer.drop(task_id)
        return state

    def positions(self) -> dict[TaskId, int]:
        """How far the state of each is."""
        return {task_id: position_of(state.positions) for task_id, state in self.tasks.items()}

    def revive(self, task_id: TaskId, make_state: MakeState) -> None:
        """Wipe a standby's state, and begin anew."""
        state = self.promote(task_id)
        if state is not None:
            state.wipe()
            self._waiting[task_id] = make_state(task_id)

    def close(self, task_id: TaskId) -> None:
        """Close one, with a checkpoint. Raises the first error of its stores."""
        state = self.promote(task_id)
        if state is not None:
            state.close(True)
            log.info("standby task %s is closed", task_id)

    def close_all(self) -> None:
        """Close all of them. Errors go to the log: what a standby has, the changelog has."""
        self._waiting.clear()
        for task_id in list(self.tasks):
            try:
                self.close(task_id)
            except Exception as error:
                log.warning("closing standby task %s: %r", task_id, error)
