"""Loop stalls: how late the event loop runs a timer, as a histogram.

While code holds the loop, no connection is served. A timer every INTERVAL_S measures that by the time by which it is
late. Stalls that end between two timers are not seen, so short ones are a sample.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections.abc import Callable
from typing import Final

INTERVAL_S: Final = 0.05
BOUNDS_S: Final = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
"""Upper bounds of the histogram, in seconds; a last bucket has no bound."""


class LoopStalls:
    """The stalls of one loop since `start`."""

    def __init__(self, now_ns: Callable[[], int]) -> None:
        """`now_ns` is a clock that never runs backwards."""
        self._now_ns = now_ns
        self._due_ns = 0
        self._timer: asyncio.TimerHandle | None = None
        self.counts = [0] * (len(BOUNDS_S) + 1)
        """How many measurements are in each bucket, without those of lower buckets."""
        self.sum_s = 0.0

    def start(self) -> None:
        """Begin to measure the running loop."""
        self._schedule()

    def stop(self) -> None:
        """Measure no more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _schedule(self) -> None:
        self._due_ns = self._now_ns() + int(INTERVAL_S * 1e9)
        self._timer = asyncio.get_running_loop().call_later(INTERVAL_S, self._measure)

    def _measure(self) -> None:
        late_s = max(0, self._now_ns() - self._due_ns) / 1e9
        self.counts[bisect_left(BOUNDS_S, late_s)] += 1
        self.sum_s += late_s
        self._schedule()
