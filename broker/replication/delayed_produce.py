"""Appends of one request, to several partitions, that wait until the in-sync replicas have them (acks=all).

Each append hears of its own outcome as soon as it is known; the request is done when all of them have.
"""

from __future__ import annotations

from collections.abc import Callable

from odradek.broker.replication.partition import ACKS_ALL, Replica
from odradek.broker.runtime.timers import Clock, Timer, Timers
from odradek.protocol.errors import ErrorCode

Outcome = Callable[[ErrorCode], None]


class DelayedAppend:
    """What one request has appended and not yet answered. Add every append, then `start`."""

    __slots__ = ("_done", "_timer", "_waiting")

    def __init__(self, done: Callable[[], None]) -> None:
        """`done` is called once, when no append is without an outcome; during `start` perhaps."""
        self._done = done
        self._timer: Timer | None = None
        self._waiting: list[tuple[Replica, int, Outcome]] = []

    def add(self, replica: Replica, end_offset: int, outcome: Outcome) -> None:
        """An append that ends at `end_offset`; `outcome` hears NONE or why it cannot be acknowledged, perhaps now."""
        settled = replica.settled(end_offset, ACKS_ALL)
        if settled is None:
            self._waiting.append((replica, end_offset, outcome))
        else:
            outcome(settled)

    def start(self, clock: Clock, timers: Timers, timeout_ms: int) -> None:
        """Wait for the rest; what is not settled after the timeout hears REQUEST_TIMED_OUT."""
        if not self._waiting:
            self._done()
            return
        self._timer = timers.at(clock.monotonic_ms() + timeout_ms, self._time_out)
        replicas = dict.fromkeys(replica for replica, _, _ in self._waiting)
        for replica in replicas:
            replica.watch(self)
        for replica in replicas:
            # A later append of the same request may have settled this one: its disk failed, for example.
            self.wake(replica)

    def wake(self, replica: Replica) -> None:
        """The replica has moved."""
        if not self._waiting:
            return
        left, received = [], []
        for entry in self._waiting:
            waited, end_offset, outcome = entry
            settled = waited.settled(end_offset, ACKS_ALL) if waited is replica else None
            if settled is None:
                left.append(entry)
            else:
                received.append((outcome, settled))
        self._waiting = left
        if all(waited is not replica for waited, _, _ in left):
            replica.unwatch(self)
        for outcome, settled in received:
            outcome(settled)
        if received and not left:
            if self._timer is not None:
                self._timer.cancel()
            self._done()

    def _time_out(self) -> None:
        waiting, self._waiting = self._waiting, []
        for replica, _, outcome in waiting:
            replica.unwatch(self)
            outcome(ErrorCode.REQUEST_TIMED_OUT)
        self._done()
