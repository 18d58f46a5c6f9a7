"""Processes of `odradek streams connect`, of which a test kills one after the other."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from odradek.ready_process import OWN_COMMAND
from tests.jvm.process import BackgroundProcess
from tests.support.eventually import eventually

ROOT: Final = Path(__file__).parents[3]
TIMEOUT_S: Final = 120.0
PROPERTIES: Final = {
    "session.timeout.ms": "30000",
    "poll.ms": "10",
    "commit.interval.ms": "20",
    "max.poll.records": "50",
    "producer.linger.ms": "0",
    "consumer.fetch.wait.max.ms": "20",
    "source.partitions.refresh.interval.ms": "200",
}
"""Small transactions, so that a kill comes within one."""


def start(name: str, bootstrap: str, application_id: str, **properties: Any) -> BackgroundProcess:
    """A process with the connector `name` of apps.py, and its first line of output. With a static membership, the next
    process of the same one need not wait until the group has removed a killed one.
    """
    given = {**PROPERTIES, "group.instance.id": "only", **{k.replace("_", "."): v for k, v in properties.items()}}
    process = BackgroundProcess(
        [
            *OWN_COMMAND,
            *("streams", "connect", f"tests.streams.connectors.apps:{name}", f"--app-dir={ROOT}"),
            *(f"--bootstrap-server={bootstrap}", f"--name={application_id}"),
            *(f"--set={each}={value}" for each, value in given.items() if value != ""),
        ]
    )
    process.stdout.wait_for("ready: tests.streams.connectors.apps", TIMEOUT_S)
    return process


class Storm:
    """A source and a sink, each in a process that is killed and started again while records pass through."""

    def __init__(
        self, starts: Sequence[Callable[[], BackgroundProcess]], progress: Callable[[], int], chance: random.Random
    ) -> None:
        """`progress` counts what has arrived at the end."""
        self._starts = starts
        self._progress = progress
        self._chance = chance
        self._running: list[BackgroundProcess] = []

    def strike(self, write: Callable[[int], None], kills: int, records: int) -> int:
        """Write so many records for each kill, and kill a process when a part of them has arrived, drawn by chance.
        Returns the number of records. All have arrived then, and the processes have closed.
        """
        with contextlib.ExitStack() as stack:
            self._running = [start() for start in self._starts]
            stack.callback(lambda: [process.kill() for process in self._running])
            written = 0
            for _ in range(kills):
                write(records)
                arrived = written + self._chance.randint(1, records - 1)
                written += records
                self._await(arrived)
                victim = self._chance.randrange(len(self._running))
                self._running[victim].kill()
                self._running[victim] = self._starts[victim]()
            self._await(written)
            for process in self._running:
                assert process.stop() == 0, process.stderr.lines()[-30:]
        return written

    def _await(self, count: int) -> None:
        eventually(
            self._progress,
            lambda found: found >= count,
            lambda: (
                f"{count} records\n" + "\n".join(line for each in self._running for line in each.stderr.lines()[-15:])
            ),
            timeout_s=TIMEOUT_S,
        )
