"""Requests of one connection that wait for their response, in order (Kafka: InFlightRequests).

A response leaves after those of all earlier requests. A response that is ready before them is kept here.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from odradek.protocol.outbox import Part, in_memory, memory_bytes
from odradek.protocol.release import Memory

if TYPE_CHECKING:
    from odradek.protocol.net import Connection


class WaitingOperation(Protocol):
    """What a request waits for."""

    def client_left(self) -> None:
        """The connection has ended, so the answer cannot be sent."""
        ...


class Exchange:
    """A request with a pending answer. `answer` is None until the answer is there; it then leaves in its turn."""

    __slots__ = ("answer", "connection", "operation")

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.answer: Sequence[Part] | None = None
        self.operation: WaitingOperation | None = None
        """The operation that has to be notified of the end of the connection, until it is complete."""


class InFlightRequests:
    """The queue of one connection; `kept_bytes` are those of responses that wait for earlier ones."""

    __slots__ = ("_hold", "kept_bytes", "queue")

    def __init__(self, hold: Callable[[int], None]) -> None:
        """`hold` counts bytes that are held in memory; a negative number releases them."""
        self._hold = hold
        self.queue: deque[Exchange] = deque()
        self.kept_bytes = 0

    def keep(self, parts: Sequence[Part]) -> None:
        """Count a response that is kept until the earlier ones have been sent."""
        size = memory_bytes(parts)
        self.kept_bytes += size
        self._hold(size)

    def take_ready(self, out: deque[Part]) -> None:
        """Move the response at the head of the queue to `out`, and the kept responses that waited only for it."""
        queue = self.queue
        out.extend(queue.popleft().answer or ())
        released = 0
        while queue and (ready := queue[0].answer) is not None:
            queue.popleft()
            out.extend(ready)
            released += memory_bytes(ready)
        if released:
            self.kept_bytes -= released
            self._hold(-released)

    def clear(self) -> list[Memory]:
        """Drop everything at the end of the connection, and notify the operations that requests wait for.

        Returns the kept responses, whose bytes the caller has to release.
        """
        unused: list[Memory] = []
        while self.queue:
            exchange = self.queue.popleft()
            unused.extend(in_memory(exchange.answer or ()))
            operation, exchange.operation = exchange.operation, None
            if operation is not None:
                operation.client_left()
        self.kept_bytes = 0
        return unused
