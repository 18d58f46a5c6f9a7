"""Timing wheel: the deadlines of many operations, with one timer of the event loop (Kafka: SystemTimer, TimingWheel).

An operation is in the bucket of the millisecond of its deadline. To enter or leave a bucket is one access to a dict, so
a request that waits costs no timer. A heap orders the buckets: as many as there are milliseconds, not operations.
"""

from __future__ import annotations

import heapq
import logging
from typing import Final, Protocol

from odradek.broker.runtime.timers import Clock, Timer, Timers

log = logging.getLogger(__name__)

LEAST_BUCKETS: Final = 64
"""With fewer buckets, those that all operations have left stay until their time."""


class DeadlineOperation(Protocol):
    """An operation with a deadline."""

    def expire(self) -> None:
        """The deadline has passed."""
        ...


Bucket = dict[DeadlineOperation, None]
"""The operations of one millisecond, in the order in which they entered it. One that leaves removes itself."""


class TimingWheel:
    """Calls `expire` of each operation once its deadline has passed."""

    __slots__ = ("_buckets", "_clock", "_deadlines", "_most_buckets", "_timer", "_timer_ms", "_timers")

    def __init__(self, clock: Clock, timers: Timers) -> None:
        self._clock = clock
        self._timers = timers
        self._buckets: dict[int, Bucket] = {}
        self._deadlines: list[int] = []
        self._most_buckets = LEAST_BUCKETS
        self._timer: Timer | None = None
        self._timer_ms = 0

    def __len__(self) -> int:
        return sum(map(len, self._buckets.values()))

    def add(self, operation: DeadlineOperation, deadline_ms: int) -> Bucket:
        """Expire the operation once `Clock.monotonic_ms()` has reached `deadline_ms`, unless it has left the bucket."""
        bucket = self._buckets.get(deadline_ms)
        if bucket is None:
            bucket = self._open(deadline_ms)
        bucket[operation] = None
        return bucket

    def _open(self, deadline_ms: int) -> Bucket:
        """A new bucket."""
        if len(self._deadlines) >= self._most_buckets:
            self._drop_empty()
        bucket = self._buckets[deadline_ms] = {}
        heapq.heappush(self._deadlines, deadline_ms)
        if self._timer is None or deadline_ms < self._timer_ms:
            self._set_timer(deadline_ms)
        return bucket

    def _drop_empty(self) -> None:
        """Remove the buckets that all operations have left: a long deadline must not keep one for each request."""
        self._buckets = {deadline: bucket for deadline, bucket in self._buckets.items() if bucket}
        self._deadlines = sorted(self._buckets)
        self._most_buckets = max(LEAST_BUCKETS, 2 * len(self._deadlines))

    def _set_timer(self, deadline_ms: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._timers.at(deadline_ms, self._advance)
        self._timer_ms = deadline_ms

    def _advance(self) -> None:
        """Expire the operations whose deadline has passed, and wait for the next bucket that has any."""
        self._timer = None
        now_ms = self._clock.monotonic_ms()
        while self._deadlines and (self._deadlines[0] <= now_ms or not self._buckets[self._deadlines[0]]):
            _expire_all(self._buckets.pop(heapq.heappop(self._deadlines)))
        if self._deadlines and self._timer is None:
            self._set_timer(self._deadlines[0])


def _expire_all(bucket: Bucket) -> None:
    """Expire the operations of a bucket. One that fails does not keep the others from it."""
    while bucket:
        operation = next(iter(bucket))
        del bucket[operation]
        try:
            operation.expire()
        except Exception:
            log.exception("delayed operation failed operation=%s", type(operation).__name__)
