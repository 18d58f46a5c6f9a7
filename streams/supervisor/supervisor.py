"""Supervisor: carries out the decisions of `supervision.py` on real processes, with signals and a clock.

SIGINT and SIGTERM close all processes, a second one kills them. SIGHUP starts a rolling restart, except where it
signals the end of the terminal: then it closes all processes, or, under nohup, has no effect.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import time
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from odradek.streams.supervisor.process import Command, Mark, StartedWorker
from odradek.streams.supervisor.status import Sample
from odradek.streams.supervisor.supervision import FAILED, Action, Effect, ProcessPhase, Supervision
from odradek.streams.supervisor.terminal import ControllingTerminal

log = logging.getLogger(__name__)


class ProcessStatus(NamedTuple):
    """One process at one moment."""

    process: int
    pid: int | None
    """None while no process runs."""
    state: str
    """The state of its client, or the phase of a process that does not run."""
    restarts: int
    """Starts after an unexpected end."""
    uptime_s: float
    samples: Sequence[Sample]


class Supervisor:
    """The processes of one application. `run` is called once; other methods are for its loop, except `document`."""

    def __init__(
        self, supervision: Supervision, command: Command, mark: Mark, on_running: Callable[[], None] = lambda: None
    ) -> None:
        """`on_running` is called once, when all processes are RUNNING for the first time."""
        self._supervision = supervision
        self._command = command
        self._mark = mark
        self._on_running = on_running
        self._has_run = False
        self._terminal = ControllingTerminal()
        self._survives_terminal = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
        self._processes: dict[int, StartedWorker] = {}
        self._changed = asyncio.Event()

    async def run(self) -> int:
        """Run until all processes have ended for good. Returns the exit status: 0 after a graceful close, 1 where a
        process failed in it or was killed, 2 where the application could not be used.
        """
        loop = asyncio.get_running_loop()
        supervision = self._supervision
        handlers: dict[signal.Signals, Callable[[float], Sequence[Effect]]] = {
            signal.SIGINT: supervision.stop,
            signal.SIGTERM: supervision.stop,
            signal.SIGHUP: self._hang_up,
        }
        for number, handler in handlers.items():
            loop.add_signal_handler(number, self._on_signal, number, handler)
        try:
            self._apply(supervision.start())
            while not supervision.ended:
                self._changed.clear()
                await self._wait(supervision.next_due)
                self._apply(supervision.tick(time.monotonic()))
        finally:
            for each in self._processes.values():
                each.send(signal.SIGKILL)
            for number in handlers:
                loop.remove_signal_handler(number)
        return supervision.exit_status

    async def status(self, timeout_s: float) -> list[ProcessStatus]:
        """The processes, with the metrics of those that answer within `timeout_s`."""
        running = dict(self._processes)
        samples = await asyncio.gather(*(each.collect(timeout_s) for each in running.values()))
        collected = dict(zip(running, samples, strict=True))
        now, found = time.monotonic(), []
        for each in self._supervision.processes:
            process = self._processes.get(each.number)
            if process is None:
                found.append(ProcessStatus(each.number, None, each.phase.name, each.restarts, 0.0, []))
            else:
                state, uptime_s = process.state, now - process.started_at
                mine = collected.get(each.number, [])
                found.append(ProcessStatus(each.number, process.pid, state, each.restarts, uptime_s, mine))
        return found

    def document(self) -> str | None:
        """The document of the topology that a process has loaded: any thread may call it."""
        found = [each.document for each in tuple(self._processes.values()) if each.document is not None]
        return found[-1] if found else None

    async def _wait(self, due: float | None) -> None:
        timeout_s = None if due is None else max(0.0, due - time.monotonic())
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._changed.wait()

    def _on_signal(self, number: signal.Signals, handler: Callable[[float], Sequence[Effect]]) -> None:
        log.info("signal received signal=%s", number.name)
        self._apply(handler(time.monotonic()))

    def _hang_up(self, now: float) -> Sequence[Effect]:
        if not self._terminal.has_hung_up():
            return self._supervision.roll(now)
        return [] if self._survives_terminal else self._supervision.stop(now)

    # ---- events of processes

    def _on_state(self, process: StartedWorker, state: str) -> None:
        if self._processes.get(process.number) is not process:
            return
        self._apply(self._supervision.client_state(process.number, state == "RUNNING", time.monotonic()))
        if self._supervision.all_running and not self._has_run:
            self._has_run = True
            self._on_running()

    def _on_exit(self, process: StartedWorker, status: int) -> None:
        if self._processes.get(process.number) is process:
            del self._processes[process.number]
            self._exited(process.number, process.pid, status)

    def _exited(self, number: int, pid: int, status: int) -> None:
        now, supervision = time.monotonic(), self._supervision
        rolling = supervision.rolling == number and supervision.processes[number].phase is not ProcessPhase.CLOSING
        effects = supervision.exited(number, status, now)
        supervised = supervision.processes[number]
        log.log(
            logging.WARNING if supervised.phase is ProcessPhase.BACKOFF or status else logging.INFO,
            "process ended process=%d pid=%d status=%s",
            *(number, pid, _status_text(status)),
        )
        if rolling:
            log.error("rolling restart abandoned process=%d", number)
        if supervised.phase is ProcessPhase.BACKOFF and supervised.due is not None:
            log.warning(
                "restarting process after backoff process=%d failures=%d backoff_ms=%d",
                *(number, supervised.backoff.failures, round((supervised.due - now) * 1000)),
            )
        self._apply(effects)

    # ---- effects

    def _apply(self, effects: Iterable[Effect]) -> None:
        for action, number in effects:
            if action is Action.START:
                self._start(number)
            elif process := self._processes.get(number):
                process.send(signal.SIGTERM if action is Action.CLOSE else signal.SIGKILL)
                if action is Action.KILL:
                    log.error("killing process process=%d pid=%d", number, process.pid)
        self._changed.set()

    def _start(self, number: int) -> None:
        try:
            process = StartedWorker(number, self._command, self._mark, on_state=self._on_state, on_exit=self._on_exit)
        except OSError as error:
            log.error("cannot start process process=%d error=%s", number, error)
            self._exited(number, 0, FAILED)
            return
        self._processes[number] = process
        log.info("process started process=%d pid=%d", number, process.pid)


def _status_text(status: int) -> str:
    """An exit status, or the name of the signal that ended the process."""
    if status >= 0:
        return str(status)
    try:
        return signal.Signals(-status).name
    except ValueError:
        return f"signal {-status}"
