"""Recovers many logs in parallel worker processes (Kafka's num.recovery.threads.per.data.dir).

Recovery spends its time in the interpreter, batch by batch, so threads would gain nothing. Each process gets a few logs
at a time, the largest first. It leaves the files as a clean stop does, and the broker's own process then loads the log
as after one. A process that dies leaves its logs unfinished; recovery can start again from any point, so the process
that loads these logs recovers them.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Final, NamedTuple

from odradek.protocol.errors import KafkaError
from odradek.storage.recovery import LoadRequest, Recovered, recover_folders
from odradek.storage.worker import WorkerDied, WorkerProcess

_log = logging.getLogger(__name__)

_WORTH_A_PROCESS: Final = 64 << 20
"""The bytes of recovery that justify starting processes: they need a few tenths of a second before they begin."""
_PORTION_BYTES: Final = 32 << 20
_PORTION_LOGS: Final = 100
_PROGRESS_S: Final = 5.0

Outcome = Recovered | KafkaError | OSError
"""The result of one log; an exception is that of the log's own disk or content."""


class Unclean(NamedTuple):
    """A log to be recovered: its folder on the operating system's disk, and the number of bytes to read."""

    path: str
    request: LoadRequest
    size: int


def recover_in_parallel(logs: Iterable[Unclean], processes: int) -> dict[str, Outcome]:
    """Recover logs in at most `processes` worker processes; returns the outcomes by path.

    A log without an outcome has not been recovered: there is too little work to start a process for, its process died,
    or another log has failed, which ends everything. Blocks, and logs its progress.
    """
    waiting = sorted(logs, key=lambda each: each.size, reverse=True)
    recovery_workers = _RecoveryWorkers(waiting)
    if recovery_workers.total_bytes < _WORTH_A_PROCESS:
        return {}
    _log.info("recovering logs logs=%d size=%s", recovery_workers.total_logs, _gib(recovery_workers.total_bytes))
    recovery_workers.work(processes)
    return recovery_workers.outcomes


class _RecoveryWorkers:
    """Worker processes, each with a thread that sends it one portion of logs after the other."""

    def __init__(self, waiting: list[Unclean]) -> None:
        self.outcomes: dict[str, Outcome] = {}
        self.total_logs = len(waiting)
        self.total_bytes = sum(each.size for each in waiting)
        self._portions = deque(_portions(waiting))
        self._done_bytes = 0  # threads add to it without a lock; it may lag by a portion, and serves progress only

    def work(self, processes: int) -> None:
        """Recover until no portion is left."""
        workers = [WorkerProcess() for _ in range(min(processes, len(self._portions)))]
        with ThreadPoolExecutor(len(workers), thread_name_prefix="odradek-recovery") as threads:
            try:
                running: set[Future[None]] = {threads.submit(self._work_off, worker) for worker in workers}
                while running:
                    ended, running = wait(running, _PROGRESS_S)
                    for each in ended:
                        each.result()
                    self._report()
            finally:
                self._portions.clear()
                for worker in workers:
                    worker.close()

    def _work_off(self, worker: WorkerProcess) -> None:
        while True:
            try:
                portion = self._portions.popleft()
            except IndexError:
                return
            try:
                outcomes = worker.call(recover_folders, [(each.path, each.request) for each in portion])
            except WorkerDied as error:
                _log.warning("recovering logs without a worker process logs=%d error=%s", len(portion), error)
                continue
            for each, outcome in zip(portion, outcomes, strict=True):
                self.outcomes[each.path] = outcome
                self._done_bytes += each.size
                if not isinstance(outcome, Recovered):
                    self._portions.clear()  # the directory cannot be opened, so the rest is of no use

    def _report(self) -> None:
        _log.info(
            "recovered logs logs=%d total_logs=%d size=%s total_size=%s",
            len(self.outcomes),
            self.total_logs,
            _gib(self._done_bytes),
            _gib(self.total_bytes),
        )


def _portions(logs: list[Unclean]) -> list[list[Unclean]]:
    """Portions of logs, one for each call of a worker process: few large ones, or many small ones."""
    portions: list[list[Unclean]] = []
    size = _PORTION_BYTES
    for each in logs:
        if size >= _PORTION_BYTES or len(portions[-1]) >= _PORTION_LOGS:
            portions.append([])
            size = 0
        portions[-1].append(each)
        size += each.size
    return portions


def _gib(size: int) -> str:
    return f"{size / 2**30:.1f} GiB"
