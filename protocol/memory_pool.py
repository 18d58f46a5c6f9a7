"""Memory pool: counts the bytes held for all connections, and orders requests that wait for memory (Kafka: MemoryPool).

While the connections hold more than half of their limit, the incomplete large requests wait, except for one: the
request that has waited longest reads on. Without it no request would proceed where incomplete requests hold all of the
memory. This request may exceed the limit, as in Kafka's SimpleMemoryPool, which grants a whole request as long as one
byte is free. The other half is for requests that are being handled and for their responses: the large requests of a
crowd arrive side by side, and would hold all of the memory before the first of them is complete.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from odradek.protocol.net import Connection

LONGEST_WAIT_FOR_MEMORY_S: Final = 30.0
SHARE_OF_INCOMPLETE: Final = 0.5
"""The share of the limit up to which incomplete large requests are read."""


class MemoryPool:
    """The held bytes of the connections that share one limit."""

    __slots__ = ("_exempt", "_resuming", "_waiting", "held_bytes")

    def __init__(self) -> None:
        self.held_bytes = 0
        self._waiting: deque[Connection] = deque()
        self._exempt: Connection | None = None  # reads its request although the limit is exceeded
        self._resuming = False

    def hold(self, count: int, limit_bytes: int) -> None:
        """Add `count` to the held bytes; a negative one releases memory and resumes connections that wait for it."""
        self.held_bytes += count
        if count < 0 and self._waiting and not self._resuming:
            self._resume(limit_bytes)

    def is_short(self, limit_bytes: int) -> bool:
        """Whether incomplete large requests have to wait."""
        return self.held_bytes > limit_bytes * SHARE_OF_INCOMPLETE

    def exempts(self, connection: Connection) -> bool:
        """Whether this connection is the one that reads its request although the limit is exceeded."""
        if not self._has_exempt():
            self._exempt = connection
        return self._exempt is connection

    def wait(self, connection: Connection, now_s: float) -> None:
        """Let a connection wait until it is resumed; refuse one that has kept others waiting for too long."""
        exempt, waiting, earliest_s = self._exempt, self._waiting, now_s - LONGEST_WAIT_FOR_MEMORY_S
        waiting.append(connection)
        if exempt is not None and exempt.has_incomplete_request and exempt.last_active_s < earliest_s:
            exempt.refuse("memory", f"it sent nothing for {LONGEST_WAIT_FOR_MEMORY_S:g} s while others need memory")
        elif waiting[0].last_active_s < earliest_s:
            waiting.popleft().refuse("memory", f"it waited for memory over {LONGEST_WAIT_FOR_MEMORY_S:g} s")

    def _has_exempt(self) -> bool:
        exempt = self._exempt
        return exempt is not None and not exempt.closed and exempt.holds_request

    def _resume(self, limit_bytes: int) -> None:
        """Resume waiting connections in order: all that fit the limit, and one beyond it."""
        self._resuming = True
        waiting = self._waiting
        while waiting:
            if self.held_bytes >= limit_bytes * SHARE_OF_INCOMPLETE:
                if self._has_exempt():
                    break
                self._exempt = waiting[0]
            waiting.popleft().resume()
        self._resuming = False
