"""Delayed fetch: waits until a fetch has enough bytes, or until its deadline (Kafka: DelayedFetch).

The fetch registers with its replicas before it checks the condition for the last time: it is not notified of a change
between a read and the registration.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Protocol

from odradek.broker.replication.partition import Replica
from odradek.broker.runtime.timers import Timer, Timers

if TYPE_CHECKING:
    from odradek.broker.network.dispatcher import Call


class Reading(Protocol):
    """The partitions of one request, which can be read repeatedly."""

    min_bytes: int

    def try_read(self) -> tuple[dict[Replica, int], bool]:
        """Read every partition. Returns the bytes read from each replica, and whether to send the response now."""
        ...

    def is_outdated(self, replicas: Iterable[Replica]) -> bool:
        """Whether a partition has changed since the last read; `replicas` are all replicas that were read."""
        ...

    def available(self, replica: Replica) -> int | None:
        """The number of bytes that a read of the replica would return now; None if the response must not wait."""
        ...

    def finish(self) -> Any:
        """The response for the last read; None if it is sent later."""
        ...


class DelayedFetch:
    """A fetch that waits until its partitions have enough bytes."""

    __slots__ = ("_call", "_found", "_reading", "_sizes", "_timer")

    def __init__(self, call: Call, reading: Reading, sizes: dict[Replica, int]) -> None:
        self._call = call
        self._reading = reading
        self._sizes = sizes
        self._found = sum(sizes.values())
        self._timer: Timer | None = None
        """None before the start, and after the fetch was answered."""

    def start(self, timers: Timers, deadline_ms: int) -> None:
        """Begin to wait; at the deadline the response has the records that exist then."""
        self._timer = timers.at(deadline_ms, self._time_out)
        for replica in self._sizes:
            replica.watch(self)
        if self._reading.is_outdated(self._sizes):
            self._read_again()

    def wake(self, replica: Replica) -> None:
        size = self._reading.available(replica)
        if size is not None:
            self._found += size - self._sizes[replica]
            self._sizes[replica] = size
            if self._found < self._reading.min_bytes:
                return
        if self._call.closed:
            self._stop()
            return
        self._read_again()

    def _read_again(self) -> None:
        sizes, ready = self._reading.try_read()
        if self._timer is None:
            return  # the read has completed an append, and the nested call of `wake` has sent the response
        if ready:
            self._stop()
            self._answer()
        else:
            self._sizes.update(sizes)
            self._found = sum(self._sizes.values())

    def _time_out(self) -> None:
        self._stop()
        if not self._call.closed:
            self._reading.try_read()
            self._answer()

    def _answer(self) -> None:
        response = self._reading.finish()
        if response is not None:
            self._call.reply(response)

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for replica in self._sizes:
            replica.unwatch(self)
