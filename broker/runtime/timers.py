"""Time, deadlines and wake-ups: the only place where a request waits.

Kafka keeps requests that cannot be answered yet (a long poll, an acknowledgement, a group that is rebalancing) in
"purgatories" with a timing wheel. Here a request that waits is an object that somebody wakes: the replica whose log
grew, the flush that finished, or a timer. Time itself enters the broker as a `Clock` and leaves it as a `Timer`, so
that a simulation can supply both.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Protocol


class Clock(Protocol):
    """Where the broker gets the time from."""

    def now_ms(self) -> int:
        """The wall clock: milliseconds since 1970 (record timestamps, retention, the registry)."""
        ...

    def monotonic_ms(self) -> int:
        """Milliseconds that never run backwards (deadlines)."""
        ...

    def monotonic_ns(self) -> int:
        """Nanoseconds that never run backwards, for measuring how long something took."""
        ...


class SystemClock:
    """The machine's own clocks."""

    __slots__ = ()

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000

    def monotonic_ns(self) -> int:
        return time.monotonic_ns()


class Timer(Protocol):
    """A callback that has been asked for."""

    def cancel(self) -> None:
        """Do not call; calling this twice, or after the callback ran, does nothing."""
        ...


class Timers(Protocol):
    """Where the broker asks to be called later."""

    def at(self, deadline_ms: int, callback: Callable[[], None]) -> Timer:
        """Call `callback` once `Clock.monotonic_ms()` has reached `deadline_ms`."""
        ...


class LoopTimers:
    """Timers of the running event loop."""

    __slots__ = ("_clock", "_loop")

    def __init__(self, clock: Clock, loop: asyncio.AbstractEventLoop) -> None:
        self._clock = clock
        self._loop = loop

    def at(self, deadline_ms: int, callback: Callable[[], None]) -> Timer:
        delay_ms = max(0, deadline_ms - self._clock.monotonic_ms())
        # uvloop counts whole milliseconds and may fire up to one early; a deadline is never early.
        return self._loop.call_later((delay_ms + 1) / 1000, callback)


class Waiter(Protocol):
    """A request that waits for a log to move. It is told of every move and decides by itself whether it has enough."""

    def wake(self) -> None:
        """The log that this waits for has moved, or this broker no longer leads it."""
        ...
