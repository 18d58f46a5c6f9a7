"""The resources of processes over time, and whether they grow.

A process that works fills its caches, then stays as it is. Its resources are measured repeatedly; the first third of
the measurements is warming up, and the medians of the other two thirds are compared.
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from tests.benchmarks import usage

ENOUGH: Final = 9
"""The minimum number of measurements for a verdict."""
_MB: Final = 1e6


class Footprint(NamedTuple):
    """The resources of one process, with its children, at one time; descriptors and threads without them."""

    megabytes: float
    descriptors: int
    threads: int


MAY_GROW: Final = Footprint(3.0, 10, 2)
"""How far a median may lie above the one before, on top of GROWTH: the noise of the allocator and of the draw of
clients.
"""
GROWTH: Final = 0.03


def footprint(pid: int) -> Footprint:
    """Raises ProcessLookupError if it is gone."""
    try:
        return Footprint(
            usage.memory(pid).resident / _MB,
            len(os.listdir(f"/proc/{pid}/fd")),
            len(os.listdir(f"/proc/{pid}/task")),
        )
    except FileNotFoundError:
        raise ProcessLookupError(f"no process {pid}") from None


def growth(notes: Sequence[Footprint]) -> Mapping[str, tuple[float, float]]:
    """The resources that have grown: the name, with the medians of the second and of the last third. Raises ValueError
    for too few.
    """
    if len(notes) < ENOUGH:
        raise ValueError(f"{len(notes)} measurements are too few; {ENOUGH} are the least")
    third = len(notes) // 3
    grown = {}
    for name in Footprint._fields:
        values = [getattr(note, name) for note in notes]
        before, after = statistics.median(values[-2 * third : -third]), statistics.median(values[-third:])
        if after > before * (1 + GROWTH) + getattr(MAY_GROW, name):
            grown[name] = (before, after)
    return grown
