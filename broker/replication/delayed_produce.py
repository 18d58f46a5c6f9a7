"""Delayed produce: appends of one request that wait for the in-sync replicas, with acks=all (Kafka: DelayedProduce).

Each append receives its own outcome as soon as it is final; the request is done when all appends have one.
"""

from __future__ import annotations

from collections.abc import Callable

from odradek.broker.replication.partition import ACKS_ALL, Replica
from odradek.broker.runtime.timers import Clock, Timer, Timers
from odradek.protocol.errors import ErrorCode

Outcome = Callable[[ErrorCode], None]


class DelayedAppend:
    """The appends of one request without an outcome. Call `add` for every append, then `start`."""

    __slots__ = ("_done", "_timer", "_waiting")

    def __init__(self, done: Callable[[], None]) -> None:
        """`done` is called once, when every append has an outcome; perhaps during `start`."""
        self._done = done
        self._timer: Timer | None = None
        self._waiting: list[tuple[Replica, int, Outcome]] = []

    def add(self, replica: Replica, end_offset: int, outcome: Outcome) -> None:
        """Add an append that ends at `end_offset`; `outcome` receives NONE or an error, perhaps before this returns."""
        settled = replica.settled(end_offset, ACKS_ALL)
        if settled is None:
            self._waiting.append((replica, end_offset, outcome))
        else:
            outcome(settled)

    def start(self, clock: Clock, timers: Timers, timeout_ms: int) -> None:
        """Wait for the appends without an outcome; after the timeout the remaining ones receive REQUEST_TIMED_OUT."""
        if not self._waiting:
            self._done()
            return
        self._timer = timers.at(clock.monotonic_ms() + timeout_ms, self._time_out)
        replicas = dict.fromkeys(replica for replica, _, _ in self._waiting)
        for replica in replicas:
            replica.watch(self)
        for replica in replicas:
            # A later append of the same request may have decided this one, for example because the disk failed.
            self.wake(replica)

    def wake(self, replica: Replica) -> None:
        """The replica's end offset, high watermark or role has changed."""
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
