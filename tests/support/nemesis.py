"""Nemesis: the interface of all faults on running processes, and the campaign that strikes with them (Jepsen's terms).

    ODRADEK_SEED=7            another order, other victims, other operations
    ODRADEK_SOAK_ROUNDS=10    every fault of a nemesis that often, where a test of the suite has time for a few

A fault ends when its effect has shown and the processes have recovered from it, so that no fault is vacuous. What the
clients wrote and read meanwhile is for a checker to judge.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple, Protocol

SEED: Final = int(os.environ.get("ODRADEK_SEED", "1"))
ROUNDS: Final = int(os.environ.get("ODRADEK_SOAK_ROUNDS", "0"))
"""0 for the suite."""

KILL, BOUNCE, PAUSE, ISOLATE = "kill", "bounce", "pause", "isolate"
CUT, CUT_ONE_WAY, CUT_REGISTRY = "cut", "cut one way", "cut registry"
SESSION_FAULTS: Final = (KILL, PAUSE, ISOLATE, CUT_REGISTRY)
"""Those that end the session of a broker."""


class Fault(NamedTuple):
    """What happens, and to which process: a role of a broker, the registry, an instance of an application."""

    kind: str
    target: str
    disturbed: bool = False
    """Whether a broker, maybe another one, has a slow disk or a wrong clock for as long as the fault lasts."""

    def __str__(self) -> str:
        return f"{self.kind} {self.target}"


class Nemesis(Protocol):
    """Causes faults, one at a time."""

    @property
    def faults(self) -> Sequence[Fault]:
        """Every fault that it can cause."""

    def strike(self, fault: Fault) -> None:
        """Cause one of `faults`, and return when the processes have recovered."""


def in_order(faults: Iterable[Fault], chance: random.Random) -> list[Fault]:
    """Each of these faults ROUNDS times, and once in the suite, in an order that is drawn."""
    drawn = list(faults) * max(1, ROUNDS)
    chance.shuffle(drawn)
    return drawn


def torment(nemesis: Nemesis, faults: Iterable[Fault], await_progress: Callable[[], None]) -> None:
    """One fault after the other; clients progress before the first and after each."""
    await_progress()
    for fault in faults:
        nemesis.strike(fault)
        await_progress()


def last(seconds: float) -> None:
    """Return after the length of a fault: the fault has no condition that could be awaited."""
    time.sleep(seconds)
