"""Clock and timers: the time source and the deadlines of the broker (Kafka: Time, Timer).

The broker reads the time only from a `Clock` and sets deadlines only with `Timers`, so that a simulation can supply
both. Requests that cannot be answered yet wait in a `purgatory`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Protocol


class Clock(Protocol):
    """The time source of the broker (Kafka: Time)."""

    def now_ms(self) -> int:
        """The wall clock: milliseconds since 1970 (record timestamps, retention, the metadata store)."""
        ...

    def monotonic_ms(self) -> int:
        """Milliseconds of a monotonic clock (deadlines)."""
        ...

    def monotonic_ns(self) -> int:
        """Nanoseconds of a monotonic clock, for measuring durations."""
        ...


class SystemClock:
    """The clocks of the operating system."""

    __slots__ = ()

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000

    monotonic_ns = staticmethod(time.monotonic_ns)  # each request calls it twice


class Timer(Protocol):
    """A scheduled callback."""

    def cancel(self) -> None:
        """Cancel the callback; a second call, or a call after the callback ran, does nothing."""
        ...


class Timers(Protocol):
    """Schedules callbacks."""

    def at(self, deadline_ms: int, callback: Callable[[], None]) -> Timer:
        """Call `callback` once `Clock.monotonic_ms()` has reached `deadline_ms`."""
        ...

    def after(self, delay_ms: int, callback: Callable[[], None]) -> Timer:
        """Call `callback` when `delay_ms` have passed: the same as `at`, without a read of the clock."""
        ...


class LoopTimers:
    """Timers of the running event loop."""

    __slots__ = ("_clock", "_loop")

    def __init__(self, clock: Clock, loop: asyncio.AbstractEventLoop) -> None:
        self._clock = clock
        self._loop = loop

    def at(self, deadline_ms: int, callback: Callable[[], None]) -> Timer:
        return self.after(max(0, deadline_ms - self._clock.monotonic_ms()), callback)

    def after(self, delay_ms: int, callback: Callable[[], None]) -> Timer:
        # uvloop counts whole milliseconds and may call up to one early; the callback must not run before the deadline.
        return self._loop.call_later((delay_ms + 1) / 1000, callback)
