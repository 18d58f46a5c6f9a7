"""Loop watchdog: notices an event loop that stands still, from a thread of its own.

A broker whose event loop stands still answers no client and no controller, but the client of the metadata store has
another thread, which keeps the session alive: the broker would stay the leader of its partitions. Kafka has no such
watchdog, because its threads stand still one by one.

The loop counts as standing still when a timer on it is late by the timeout. Time in which the whole process was stopped
(SIGSTOP, a suspended machine) does not count: the thread was late by then, too, and the metadata store has noticed.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Final

from odradek.broker.runtime.timers import Clock, Timer, Timers

log = logging.getLogger(__name__)

CHECKS_IN_A_TIMEOUT: Final = 10


class LoopWatchdog:
    """Calls `give_up` in its thread, once in each stall of the loop."""

    def __init__(self, clock: Clock, timers: Timers, timeout_ms: int, give_up: Callable[[], None]) -> None:
        """`give_up` must not wait for the event loop."""
        self._clock = clock
        self._timers = timers
        self._timeout_ms = timeout_ms
        self._interval_ms = max(1, timeout_ms // CHECKS_IN_A_TIMEOUT)
        self._give_up = give_up
        self._beat_ms = 0
        self._timer: Timer | None = None
        self._stalled_since_ms: int | None = None
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="odradek-loop-watchdog", daemon=True)

    def start(self) -> None:
        """Begin to watch the running loop."""
        self._beat()
        self._thread.start()

    def close(self) -> None:
        """Stop watching; a call of `give_up` that is running continues."""
        self._closing.set()
        if self._timer is not None:
            self._timer.cancel()

    def _beat(self) -> None:
        now_ms = self._clock.monotonic_ms()
        since_ms, self._stalled_since_ms = self._stalled_since_ms, None
        if since_ms is not None:
            log.warning("event loop runs again stalled_ms=%d", now_ms - since_ms)
        self._beat_ms = now_ms
        self._timer = self._timers.at(now_ms + self._interval_ms, self._beat)

    def _watch(self) -> None:
        forgiven_ms = woken_ms = self._clock.monotonic_ms()
        while not self._closing.wait(self._interval_ms / 1000):
            now_ms = self._clock.monotonic_ms()
            if now_ms - woken_ms > self._timeout_ms // 2:  # the process stood still, or did not get the processor
                forgiven_ms = now_ms
            woken_ms = now_ms
            since_ms = max(self._beat_ms, forgiven_ms)
            if now_ms - since_ms > self._timeout_ms + self._interval_ms and self._stalled_since_ms is None:
                self._stalled_since_ms = since_ms
                self._report_stall(now_ms - since_ms)

    def _report_stall(self, stalled_ms: int) -> None:
        log.error("event loop stalled, ending the metadata store session stalled_ms=%d", stalled_ms)
        try:
            self._give_up()
        except Exception:
            log.exception("cannot end the metadata store session of a stalled broker")
