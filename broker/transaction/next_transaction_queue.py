"""Next-transaction queue: requests that wait until the markers of the last transaction are written.

A producer begins its next transaction as soon as it receives the decision, and the markers of the last one are written
shortly after. Kafka returns CONCURRENT_TRANSACTIONS, and the producer retries after 20 ms or more; here the request
waits, for `DEADLINE_MS` at most.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final

from odradek.broker.runtime.timers import Clock, Timers
from odradek.broker.transaction.state.transaction import Transaction

DEADLINE_MS: Final = 100
MOST_WAITING: Final = 8
"""The limit of waiting requests for one transactional id; a client has one such request in flight."""

Request = Callable[[], None]


class NextTransactionQueue:
    """Waiting requests by transactional id, in the order of their arrival."""

    def __init__(self, clock: Clock, timers: Timers) -> None:
        self._clock = clock
        self._timers = timers
        self._waiting: dict[str, deque[Request]] = {}

    def add(self, transactional_id: str, request: Request) -> bool:
        """Handle a request later. False if the queue of the id is full."""
        queue = self._waiting.setdefault(transactional_id, deque())
        if len(queue) >= MOST_WAITING:
            return False
        queue.append(request)
        if len(queue) == 1:
            deadline_ms = self._clock.monotonic_ms() + DEADLINE_MS
            self._timers.at(deadline_ms, partial(self._expire, transactional_id, queue))
        return True

    def waits(self, transactional_id: str) -> bool:
        """Whether a request of the id waits."""
        return bool(self._waiting.get(transactional_id))

    def admit(self, transaction: Transaction) -> None:
        """Handle the waiting requests, in order, until the transaction writes a record again."""
        transactional_id = transaction.transactional_id
        queue = self._waiting.get(transactional_id)
        if queue is None:
            return
        while queue and not transaction.is_between:
            queue.popleft()()
        if not queue and self._waiting.get(transactional_id) is queue:
            del self._waiting[transactional_id]

    def release(self, transactional_id: str) -> None:
        """Handle the waiting requests now."""
        for request in self._waiting.pop(transactional_id, ()):
            request()

    def _expire(self, transactional_id: str, queue: deque[Request]) -> None:
        if self._waiting.get(transactional_id) is queue:
            self.release(transactional_id)
