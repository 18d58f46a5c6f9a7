"""What a request uses of the quotas of its client: bytes, and time of the event loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

from odradek.broker.runtime.request_tasks import WORK

A = TypeVar("A")
B = TypeVar("B")
R = TypeVar("R")
NOT_CHARGED: Final = -1


class Usage:
    """What one request uses of the quotas of its client."""

    __slots__ = ("_busy_ns", "_now_ns", "_step_ns", "request_bytes", "throttle_ms")

    def __init__(self, now_ns: Callable[[], int], started_ns: int, request_bytes: int) -> None:
        self._now_ns = now_ns
        self._busy_ns = 0
        self._step_ns = started_ns
        self.request_bytes = request_bytes
        """The size of header and body."""
        self.throttle_ms = NOT_CHARGED
        """For how long the client is throttled because of this request."""

    @property
    def busy_ns(self) -> int:
        """For how long the request has kept the event loop, the tasks that it has started included."""
        return self._busy_ns + (self._now_ns() - self._step_ns if self._step_ns else 0)

    def begin_step(self) -> None:
        """The event loop begins to work for the request."""
        self._step_ns = self._now_ns()

    def end_step(self) -> None:
        """The request waits, or is complete."""
        self._busy_ns = self.busy_ns
        self._step_ns = 0


def measured(usage: Usage, handle: Callable[[A, B], R], call: A, request: B) -> R:
    """Handle a request of a client that may have a quota; the time of its tasks counts, too."""
    token = WORK.set(usage)
    try:
        return handle(call, request)
    finally:
        WORK.reset(token)
