"""What a request uses of the quotas of its client: bytes, and time of the event loop and of other threads."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final, TypeVar

from odradek.broker.runtime.request_tasks import WORK

A = TypeVar("A")
B = TypeVar("B")
R = TypeVar("R")
NOT_CHARGED: Final = -1


class Usage:
    """What one request uses of the quotas of its client."""

    __slots__ = ("_in_threads_ns", "_now_ns", "_on_loop_ns", "_recorded_ns", "_step_ns", "request_bytes", "throttle_ms")

    def __init__(self, now_ns: Callable[[], int], started_ns: int, request_bytes: int) -> None:
        self._now_ns = now_ns
        self._on_loop_ns = 0
        self._step_ns = started_ns
        self._in_threads_ns: list[int] = []
        self._recorded_ns = 0
        self.request_bytes = request_bytes
        """The size of header and body."""
        self.throttle_ms = NOT_CHARGED
        """For how long the client is throttled because of this request."""

    @property
    def busy_ns(self) -> int:
        """For how long the request has kept the event loop, with the tasks that it has started, and other threads."""
        return self._until_now_ns() + sum(self._in_threads_ns)

    def take_unrecorded_ns(self) -> int:
        """What of `busy_ns` earlier calls have not returned."""
        busy_ns = self.busy_ns
        unrecorded_ns, self._recorded_ns = busy_ns - self._recorded_ns, busy_ns
        return unrecorded_ns

    def begin_step(self) -> None:
        """The event loop begins to work for the request."""
        self._step_ns = self._now_ns()

    def end_step(self) -> None:
        """The request waits, or is complete."""
        self._on_loop_ns = self._until_now_ns()
        self._step_ns = 0

    def in_thread(self, work: Callable[[], None]) -> None:
        """Run `work`, a part of the request, in a thread, perhaps beside others. Raises what it raises."""
        started_ns = self._now_ns()
        try:
            work()
        finally:
            self._in_threads_ns.append(self._now_ns() - started_ns)

    def _until_now_ns(self) -> int:
        return self._on_loop_ns + (self._now_ns() - self._step_ns if self._step_ns else 0)


def measured(usage: Usage, handle: Callable[[A, B], R], call: A, request: B) -> R:
    """Handle a request of a client that may have a quota; the time of its tasks counts, too."""
    token = WORK.set(usage)
    try:
        return handle(call, request)
    finally:
        WORK.reset(token)


def current_usage() -> Usage | None:
    """What the request in whose context this is called uses; None where its client can have no quota."""
    usage = WORK.get()
    return usage if isinstance(usage, Usage) else None


def charged(work: Callable[[], None], usage: Usage | None) -> Callable[[], None]:
    """`work` for another thread, whose time there counts as that of the request with this usage."""
    return work if usage is None else partial(usage.in_thread, work)
