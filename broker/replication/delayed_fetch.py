"""Delayed fetch: waits until a fetch has enough bytes, or until its deadline (Kafka: DelayedFetch).

A follower's fetch can change its own partitions: its position advances the high watermark, which completes a
coordinator's append, and the next request of the coordinator appends. Such a fetch is read once more after it has
entered the watch lists.

A fetch of many partitions, whose handler runs in a turn, is read again in turns, too. Fetches of some partitions wait
for other requests where many of them complete in one iteration of the event loop.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from odradek.broker.replication.partition import Replica
from odradek.broker.replication.plain_fetch import FEW_PARTITIONS
from odradek.broker.runtime.purgatory import DelayedOperation
from odradek.broker.runtime.turns import turns_of_caller

if TYPE_CHECKING:
    from odradek.broker.network.dispatcher import Call
    from odradek.broker.replication.fetch_reader import FetchReading


class DelayedFetch(DelayedOperation[Replica]):
    """A fetch that waits until its partitions have enough bytes; at the deadline it returns the records that exist."""

    __slots__ = ("_call", "_found", "_is_ready", "_reading", "_run", "_run_in_turns", "_sizes")

    def __init__(
        self, call: Call, reading: FetchReading, sizes: dict[Replica, int], run: Callable[[Callable[[], None]], None]
    ) -> None:
        """`sizes` has the bytes that the last read found in each replica. `run` calls the function that responds, now
        or when the event loop has time for a request that is not small.
        """
        super().__init__()
        self._call = call
        self._reading = reading
        self._sizes = sizes
        self._found = sum(sizes.values())
        self._is_ready = False
        call.operation = self
        self._run_in_turns = turns_of_caller()
        self._run = run

    def try_complete_all(self) -> None:
        """Read again if a partition has changed since the last read."""
        if self._reading.is_outdated(self._sizes, in_turns=self._run_in_turns is not None):
            if self._run_in_turns is None:
                self._read_again()
            else:
                self.force_complete()

    def try_complete(self, replica: Replica) -> None:
        size = self._reading.available(replica)
        if size is not None:
            self._found += size - self._sizes[replica]
            self._sizes[replica] = size
            if self._found < self._reading.min_bytes:
                return
        if self._call.closed or self._run_in_turns is not None:
            self.force_complete()
        else:
            self._read_again()

    def _read_again(self) -> None:
        sizes, ready = self._reading.try_read()
        if self.is_completed:
            return  # the read has completed an append, and the nested call of `try_complete` has sent the response
        if ready:
            self._is_ready = True
            self.force_complete()
        else:
            self._sizes.update(sizes)
            self._found = sum(self._sizes.values())

    def on_complete(self) -> None:
        self._call.operation = None
        if self._run_in_turns is not None:
            self._run_in_turns(self._respond)
        elif self._is_ready or len(self._sizes) <= FEW_PARTITIONS:
            self._respond()
        else:
            self._run(self._respond)

    def _respond(self) -> None:
        if self._call.closed:
            return
        response = self._reading.finish() if self._is_ready else self._reading.read_and_finish()
        if response is not None:
            self._call.reply(response)
