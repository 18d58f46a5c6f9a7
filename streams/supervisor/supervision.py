"""Supervision: decides when each process of an application starts and ends.

A state machine without input or output: events go in with the time, effects come out for `supervisor.py` to carry out.

    BACKOFF -> STARTING -> RUNNING <-> REBALANCING      any of these -> CLOSING -> ENDED, or STARTING in a restart
          <-      when the process ends unexpectedly

In a rolling restart one process at a time restarts, first those that are not up. The next one follows only when every
process is RUNNING again; if the restarted process ends before that, the rolling restart is abandoned and the other
processes continue with the code that they have loaded.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from odradek.streams.supervisor.restarts import RestartBackoff

CLOSED: Final = 0
"""Exit status of a worker: closed on request, everything is committed."""
FAILED: Final = 1
"""Exit status of a worker: its client ended by an error, or was not closed in time."""
UNUSABLE: Final = 2
"""Exit status of a worker: no topology where it should be, or an invalid one, or an invalid property."""
SHUTDOWN_REQUESTED: Final = 3
"""Exit status of a worker: an instance has requested the shutdown of the whole application (KIP-671)."""
KILL_AFTER_S: Final = 5.0
"""How long after its close timeout a process is killed."""
_TERMINATED: Final = -15
"""SIGTERM ended the process before its client was created: nothing was left to close."""


class ProcessPhase(enum.Enum):
    """The phase of one process."""

    BACKOFF = enum.auto()
    STARTING = enum.auto()
    RUNNING = enum.auto()
    REBALANCING = enum.auto()
    CLOSING = enum.auto()
    ENDED = enum.auto()


UP: Final = frozenset({ProcessPhase.STARTING, ProcessPhase.RUNNING, ProcessPhase.REBALANCING})


class Action(enum.Enum):
    """What to do with a process."""

    START = enum.auto()
    CLOSE = enum.auto()
    """Send SIGTERM."""
    KILL = enum.auto()
    """Send SIGKILL."""


class Effect(NamedTuple):
    """One action to carry out, in the order of the list."""

    action: Action
    process: int


@dataclass(slots=True)
class SupervisedProcess:
    """One process over all of its starts."""

    number: int
    backoff: RestartBackoff
    phase: ProcessPhase = ProcessPhase.BACKOFF
    restarts: int = 0
    """How often it was started again after an unexpected end."""
    due: float | None = None
    """When to start it (BACKOFF) or to kill it (CLOSING); None: never."""


class Supervision:
    """The processes of one application. Times are seconds of a monotonic clock."""

    def __init__(self, backoffs: Sequence[RestartBackoff], close_timeout_s: float) -> None:
        """One process for each of `backoffs`; `close_timeout_s` is the time that a client gets to close."""
        self.processes = [SupervisedProcess(number, backoff) for number, backoff in enumerate(backoffs)]
        self.exit_status = CLOSED
        """The status of the supervisor, valid once `ended`."""
        self.stopping = False
        """Whether all processes are to end."""
        self.rolling: int | None = None
        """The process that a rolling restart restarts at the moment."""
        self.to_roll: list[int] = []
        """The processes that the rolling restart has yet to restart."""
        self._kill_after_s = close_timeout_s + KILL_AFTER_S
        self._has_run = False

    @property
    def ended(self) -> bool:
        """Whether all processes have ended for good."""
        return all(each.phase is ProcessPhase.ENDED for each in self.processes)

    @property
    def all_running(self) -> bool:
        """Whether the client of each process is RUNNING."""
        return all(each.phase is ProcessPhase.RUNNING for each in self.processes)

    @property
    def next_due(self) -> float | None:
        """When `tick` has to be called; None: not before another event."""
        return min((each.due for each in self.processes if each.due is not None), default=None)

    # ---- events

    def start(self) -> list[Effect]:
        """Start every process."""
        return [self._start(each) for each in self.processes]

    def client_state(self, number: int, running: bool, now: float) -> list[Effect]:
        """The client of a process is RUNNING, or is not RUNNING any more."""
        process = self.processes[number]
        if not running:
            if process.phase is ProcessPhase.RUNNING:
                process.phase = ProcessPhase.REBALANCING
            return []
        if process.phase not in UP:
            return []
        process.phase = ProcessPhase.RUNNING
        process.backoff.running(now)
        self._has_run = True
        if self.rolling == number:
            self.rolling = None
        return self._roll_next(now)

    def exited(self, number: int, status: int, now: float) -> list[Effect]:
        """A process has ended; a negative status is the signal that ended it."""
        process = self.processes[number]
        if process.phase is ProcessPhase.CLOSING:
            if not self.stopping:
                return [self._start(process)]
            self._end(process)
            if status not in (CLOSED, _TERMINATED):
                self.exit_status = self.exit_status or FAILED
            return []
        if status == SHUTDOWN_REQUESTED or (status == UNUSABLE and not self._has_run):
            self._end(process)
            return self._close_all(now, UNUSABLE if status == UNUSABLE else FAILED)
        if self.rolling == number:
            self.rolling = None
            self.to_roll.clear()
        process.phase = ProcessPhase.BACKOFF
        process.due = now + process.backoff.failed(now)
        return []

    def stop(self, now: float) -> list[Effect]:
        """Close every process; the second call kills those that are left."""
        if not self.stopping:
            return self._close_all(now, CLOSED)
        left = [each for each in self.processes if each.phase is ProcessPhase.CLOSING]
        for each in left:
            each.due = None
        return [Effect(Action.KILL, each.number) for each in left]

    def roll(self, now: float) -> list[Effect]:
        """Restart every process, one at a time, also those that a rolling restart has restarted already."""
        if self.stopping:
            return []
        self.to_roll += [each.number for each in self.processes if each.number not in self.to_roll]
        return self._roll_next(now)

    def tick(self, now: float) -> list[Effect]:
        """The time is `now`: start or kill the processes that are due."""
        effects = []
        for each in self.processes:
            if each.due is None or each.due > now:
                continue
            if each.phase is ProcessPhase.BACKOFF:
                each.restarts += 1
                effects.append(self._start(each))
            else:
                each.due = None
                effects.append(Effect(Action.KILL, each.number))
        return effects

    # ---- transitions

    def _start(self, process: SupervisedProcess) -> Effect:
        process.phase, process.due = ProcessPhase.STARTING, None
        return Effect(Action.START, process.number)

    def _close(self, process: SupervisedProcess, now: float) -> Effect:
        process.phase, process.due = ProcessPhase.CLOSING, now + self._kill_after_s
        return Effect(Action.CLOSE, process.number)

    @staticmethod
    def _end(process: SupervisedProcess) -> None:
        process.phase, process.due = ProcessPhase.ENDED, None

    def _close_all(self, now: float, status: int) -> list[Effect]:
        self.stopping, self.exit_status = True, status
        self.rolling = None
        self.to_roll.clear()
        for each in self.processes:
            if each.phase is ProcessPhase.BACKOFF:
                self._end(each)
        return [self._close(each, now) for each in self.processes if each.phase in UP]

    def _roll_next(self, now: float) -> list[Effect]:
        """Restart the next process of the rolling restart, if it may restart now."""
        if self.rolling is not None or not self.to_roll:
            return []
        down = [n for n in self.to_roll if self.processes[n].phase in (ProcessPhase.BACKOFF, ProcessPhase.STARTING)]
        if not down and not self.all_running:
            return []
        process = self.processes[(down or self.to_roll)[0]]
        self.rolling = process.number
        self.to_roll.remove(process.number)
        process.backoff.reset()
        if process.phase is ProcessPhase.BACKOFF:
            return [self._start(process)]
        return [self._close(process, now)]
