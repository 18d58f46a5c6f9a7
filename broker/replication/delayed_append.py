"""Delayed append: appends that each get their own outcome, as soon as it is final (Kafka: DelayedProduce).

Transaction markers use it: the response to WriteTxnMarkers is sent when every marker has an outcome, but the offsets of
a transaction are committed when their own marker is.
"""

from __future__ import annotations

from collections.abc import Callable

from odradek.broker.replication.partition import ACKS_ALL, Replica
from odradek.broker.runtime.purgatory import DelayedOperation, DelayedOperationPurgatory
from odradek.protocol.errors import ErrorCode

OnOutcome = Callable[[ErrorCode], None]


class DelayedAppend(DelayedOperation[Replica]):
    """The appends of one request without an outcome. Call `add` for every append, then `start`."""

    __slots__ = ("_done", "_unsettled", "_waiting")

    def __init__(self, done: Callable[[], None]) -> None:
        """`done` is called once, when every append has received its outcome; perhaps during `start`."""
        super().__init__()
        self._done = done
        self._waiting: dict[Replica, list[tuple[int, OnOutcome]]] = {}
        """By partition, the end offset of each append, in order."""
        self._unsettled = 0
        """Appends that have not received their outcome. Outcomes nest, because the callback of one may append."""

    def add(self, replica: Replica, end_offset: int, on_outcome: OnOutcome) -> None:
        """Add an append that ends at `end_offset`; `on_outcome` receives NONE or an error, perhaps before this
        returns.
        """
        settled = replica.settled(end_offset, ACKS_ALL)
        if settled is None:
            self._waiting.setdefault(replica, []).append((end_offset, on_outcome))
            self._unsettled += 1
        else:
            on_outcome(settled)

    def start(self, purgatory: DelayedOperationPurgatory, timeout_ms: int) -> None:
        """Wait for the appends without an outcome; after the timeout the remaining ones receive REQUEST_TIMED_OUT."""
        if not self._waiting:
            self.force_complete()
            return
        purgatory.try_complete_else_watch(self, tuple(self._waiting), timeout_ms)

    def try_complete(self, replica: Replica) -> None:
        entries = self._waiting.get(replica)
        if entries is None:
            return
        received: list[tuple[OnOutcome, ErrorCode]] = []
        for end_offset, on_outcome in entries:
            settled = replica.settled(end_offset, ACKS_ALL)
            if settled is None:
                break
            received.append((on_outcome, settled))
        if len(received) < len(entries):
            del entries[: len(received)]
        else:
            del self._waiting[replica]
            self.unwatch(replica)
        for on_outcome, settled in received:
            on_outcome(settled)
            self._unsettled -= 1
        if received and not self._unsettled:
            self.force_complete()

    def on_complete(self) -> None:
        waiting, self._waiting = self._waiting, {}
        for entries in waiting.values():
            for _, on_outcome in entries:
                on_outcome(ErrorCode.REQUEST_TIMED_OUT)
        self._done()
