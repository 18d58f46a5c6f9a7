"""Faults on a broker that is alone: Odradek's, or Apache Kafka's."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Protocol

from odradek.broker_process import BrokerProcess
from tests.support.disturbance import CLOCK_STEP, SLOW_DISK, disturbed
from tests.support.nemesis import KILL, PAUSE, Fault, last

BROKER: Final = "the broker"
SLOW_MS: Final = 100
STEP_MS: Final = 900_000
DISTURBED_S: Final = 1.0


class OneBroker(Protocol):
    """A broker in a process of its own."""

    @property
    def pid(self) -> int: ...

    def kill(self) -> None: ...

    def start(self) -> None: ...


class OneBrokerNemesis:
    """Kills and pauses a broker; disturbs the disk and the clock of a `disturbable` one."""

    def __init__(self, broker: OneBroker, paused_s: float, disturbable: BrokerProcess | None = None) -> None:
        self._broker = broker
        self._paused_s = paused_s
        self._disturbable = disturbable
        self._strikes: Mapping[str, Callable[[], None]] = {KILL: self._kill, PAUSE: self._pause}

    @property
    def faults(self) -> Sequence[Fault]:
        """A kill and a pause, and the disturbances of a broker that can be disturbed."""
        kinds = [KILL, PAUSE] if self._disturbable is None else [KILL, PAUSE, SLOW_DISK, CLOCK_STEP]
        return [Fault(kind, BROKER) for kind in kinds]

    def strike(self, fault: Fault) -> None:
        """Cause it; clients show whether the broker has recovered."""
        print(fault, flush=True)
        if fault.kind in self._strikes:
            self._strikes[fault.kind]()
        else:
            self._disturb(fault.kind, SLOW_MS if fault.kind == SLOW_DISK else STEP_MS)

    def _kill(self) -> None:
        self._broker.kill()
        self._broker.start()

    def _pause(self) -> None:
        os.kill(self._broker.pid, signal.SIGSTOP)
        last(self._paused_s)
        os.kill(self._broker.pid, signal.SIGCONT)

    def _disturb(self, disturbance: str, by_ms: int) -> None:
        assert self._disturbable is not None, "the broker has no seam for disturbances"
        with disturbed(self._disturbable, disturbance, by_ms):
            last(DISTURBED_S)
