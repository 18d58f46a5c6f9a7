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
from odradek.broker.replication.plain_fetch import FEW_PARTITIONS, PlainRead
from odradek.broker.runtime.purgatory import DelayedOperation
from odradek.broker.runtime.turns import turns_of_caller

if TYPE_CHECKING:
    from odradek.broker.network.dispatcher import Call
    from odradek.broker.replication.fetch_reader import FetchReading
    from odradek.protocol.messages import FetchResponse


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
        if not self._is_ready:
            self._reading.try_read()
        response = self._reading.finish()
        if response is not None:
            self._call.reply(response)


class DelayedPlainFetch(DelayedFetch):
    """A fetch whose plain read has found too little. It makes its `FetchReading` when one of its partitions has
    changed; at the deadline without a change it responds without another read.
    """

    __slots__ = ("_has_changed", "_make_reading", "_plain", "_respond_plain")

    def __init__(
        self,
        call: Call,
        plain: PlainRead,
        make_reading: Callable[[], FetchReading],
        respond: Callable[[PlainRead], FetchResponse | None],
        run: Callable[[Callable[[], None]], None],
    ) -> None:
        """`respond` makes the response of the plain read if it is still right; None where it takes another read."""
        DelayedOperation.__init__(self)
        self._call = call
        self._plain = plain
        self._make_reading = make_reading
        self._respond_plain = respond
        self._has_changed = False
        self._sizes = plain.sizes
        self._found = plain.found
        self._is_ready = False
        self._run_in_turns = None
        self._run = run
        call.operation = self

    def try_complete_all(self) -> None:
        """A consumer's fetch changes no partition that it has read."""

    def try_complete(self, replica: Replica) -> None:
        self._begin_reading()
        super().try_complete(replica)

    def _begin_reading(self) -> None:
        if not self._has_changed:
            self._has_changed = True
            self._reading = self._make_reading()

    def _respond(self) -> None:
        if self._call.closed:
            return
        response = None if self._has_changed else self._respond_plain(self._plain)
        if response is not None:
            self._call.reply(response)
            return
        self._begin_reading()
        super()._respond()
