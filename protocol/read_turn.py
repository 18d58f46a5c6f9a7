"""Read turn: divides the iterations of the event loop among the connections of a broker (Kafka: Selector, Processor).

Kafka has threads for connections, and requests wait for others in a queue. Here one event loop reads from all
connections, so what it reads, handles and frees in one iteration is bounded for all of them together.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

from odradek.protocol.release import Memory, MemoryRelease

if TYPE_CHECKING:
    from odradek.protocol.net import Connection

FRAMES_AT_ONCE: Final = 8
"""Requests of one read that are handled before other connections have their turn."""
SHARED_FRAMES: Final = 126
"""Those of all connections in an iteration of the event loop, beside the first of each: about five milliseconds."""
FRAMES_NS: Final = 8_000_000
"""How long requests that arrive together on one connection, and those of connections in their turn, are handled in an
iteration of the event loop: a heartbeat of a group of the consumer protocol can take milliseconds."""
FIRST_FRAMES: Final = 32
"""Requests, the first of each connection, after which the end of the iteration of the event loop is watched: a callback
for each iteration would take a microsecond a request."""
FIRST_FRAMES_NS: Final = 5_000_000
"""How long the first requests of connections are handled in one iteration since it is watched."""
MORE_FRAMES: Final = 56
"""Requests of one connection in an iteration of the event loop, beside those that each connection has."""
CONNECTIONS_IN_A_TURN: Final = 4
"""Connections with waiting requests that have their turn in one iteration of the event loop."""
FRAMES_IN_A_TURN: Final = 16
"""Requests that such a connection has handled when it has its turn."""
COUNTED_BYTES: Final = 16 * 1024
"""The bytes of smaller reads and writes are not counted."""
WATCHED_BYTES: Final = 512 * 1024
"""Counted bytes, of one or several iterations of the event loop, after which the end of the iteration is watched: a
callback for each iteration would take a microsecond or two a request."""
READ_IN_ALL_BYTES: Final = 4 << 20
"""Bytes that all connections read in one iteration of the event loop, beside LITTLE_BYTES of each: about two
milliseconds."""
READ_IN_ALL_NS: Final = 3_000_000
"""How long the connections read large requests in one iteration: less than READ_IN_ALL_BYTES where each page that is
written for the first time takes the system longer."""
LITTLE_BYTES: Final = 4096
"""What a connection reads after that, some ten microseconds; it waits for its turn then."""
WRITTEN_BYTES: Final = 2 << 20
"""Bytes of responses that leave in one iteration of the event loop, one or two milliseconds, beside
SHORT_RESPONSE_BYTES of each response; the rest waits for the turn of its connection."""
WRITTEN_NS: Final = 2_000_000
"""How long responses leave in one iteration, where the system needs longer for WRITTEN_BYTES."""
WRITE_AT_ONCE_BYTES: Final = 256 * 1024
SHORT_RESPONSE_BYTES: Final = 64 * 1024
RELEASED_BYTES: Final = 4 << 20
"""Bytes of memory that the system gets back in one iteration of the event loop, about a millisecond."""


class ReadTurn:
    """The order in which the requests of several connections are handled, and in which responses leave.

    A connection that sends many requests at once has FRAMES_AT_ONCE of them handled when they arrive, or one where
    others have had SHARED_FRAMES in this iteration of the event loop, and one connection has MORE_FRAMES, all of them
    only for FRAMES_NS. The others wait until the connections before it in the queue have had their turn, a few in each
    iteration. So a crowd of such connections delays other clients no longer than one of them. Where the first requests
    of FIRST_FRAMES connections and those behind them have taken FIRST_FRAMES_NS, those of further connections wait,
    too: in a queue of their own, from which one request of each is handled, for FIRST_FRAMES_NS in each iteration.
    While it is not empty, one connection of the other queue has its turn, and no connection has a second request
    handled when it is read. So a client with one request waits for one request of each connection before it, and not
    for all that they have sent.

    An iteration reads READ_IN_ALL_BYTES, or large requests for READ_IN_ALL_NS. After that (`is_full`) each connection
    reads LITTLE_BYTES once more, and continues when it has its turn. While connections wait for their turn, one that
    reads a large request is queued behind them after each read.

    Of responses, an iteration sends WRITTEN_BYTES, or as much as leaves in WRITTEN_NS. After that each new response is
    sent up to SHORT_RESPONSE_BYTES, and connections whose sockets take more wait in a queue of their own.

    A request can complete requests of other connections: a produce request completes the waiting fetches of followers.
    The connection that is read sends its responses first, the others theirs after it, as Kafka completes delayed
    operations after it has sent the response (ReplicaManager.tryCompleteActions).
    """

    __slots__ = (
        "_began_ns",
        "_behind",
        "_first",
        "_first_ns",
        "_firsts",
        "_frames_ns",
        "_has_more",
        "_is_ending",
        "_is_scheduled",
        "_now_ns",
        "_read_bytes",
        "_released_bytes",
        "_shared",
        "_unused",
        "_writers",
        "_written_bytes",
        "_wrote_ns",
        "is_full",
        "reading",
        "room_to_write",
        "waiting",
    )

    def __init__(self, now_ns: Callable[[], int] = time.monotonic_ns) -> None:
        """`now_ns` is a clock that never runs backwards."""
        self._now_ns = now_ns
        self._behind: deque[Connection] = deque()
        self._firsts: deque[Connection] = deque()
        self._first = self._first_ns = self._frames_ns = 0
        self._has_more = True
        self._shared = SHARED_FRAMES
        self._read_bytes = self._began_ns = 0
        self._unused = MemoryRelease()
        self._released_bytes = 0
        self._writers: deque[Callable[[], None]] = deque()
        self._written_bytes = self._wrote_ns = 0
        self.room_to_write = WRITE_AT_ONCE_BYTES
        """How many bytes a connection may write to its socket at once."""
        self._is_scheduled = self._is_ending = False
        self.is_full = False
        """Whether the connections have read as much as they may in this iteration of the event loop."""
        self.reading = False
        self.waiting: list[tuple[Connection, Callable[[], None]]] = []

    def end(self) -> None:
        """The connection that was read has sent its responses; send those of the others."""
        waiting, self.waiting = self.waiting, []
        for connection, flush in waiting:
            if not connection.closed:
                flush()

    def queue(self, connection: Connection) -> None:
        """Resume the connection in a later iteration of the event loop."""
        self._behind.append(connection)
        self._schedule()

    def queue_first(self, connection: Connection) -> None:
        """Resume the connection, whose first request was not handled, before those that had one handled."""
        self._firsts.append(connection)
        self._schedule()

    def may_handle_first(self) -> bool:
        """Count the first request of a read; returns whether it is handled in this iteration of the event loop."""
        self._first += 1
        if self._first <= FIRST_FRAMES:
            return True
        if not self._first_ns:
            self._first_ns = self._now_ns()
            self._watch_end()
        return self._now_ns() - self._first_ns <= FIRST_FRAMES_NS

    def begin_frames(self) -> None:
        """A connection has several requests: their time counts, from the first of them in this iteration on."""
        if not self._frames_ns:
            self._frames_ns = self._now_ns()
            self._watch_end()

    def is_late(self) -> bool:
        """Whether these requests have taken FRAMES_NS in this iteration of the event loop."""
        return bool(self._frames_ns) and self._now_ns() - self._frames_ns > FRAMES_NS

    def frames_behind_the_first(self) -> int:
        """How many requests of a read are handled behind its first one: none where others had them, or where the first
        one of another connection waits.
        """
        if not self._shared or self._firsts or self.is_late():
            return 0
        self._watch_end()
        self._shared -= FRAMES_AT_ONCE - 1
        return FRAMES_AT_ONCE - 1

    def more_frames(self) -> int:
        """How many more requests of a connection are handled now: none where another one had them in this iteration."""
        if not self._has_more or self._firsts or self.is_late():
            return 0
        self._has_more = False
        self._watch_end()
        return MORE_FRAMES

    def count_read(self, count: int, *, is_large: bool) -> None:
        """Count bytes that a connection has read, of a request that `is_large` or others."""
        self._read_bytes += count
        if self._read_bytes < WATCHED_BYTES:
            return
        if not self._began_ns:
            self._began_ns = self._now_ns()
            self._watch_end()
        if self._read_bytes >= READ_IN_ALL_BYTES or (is_large and self._now_ns() - self._began_ns > READ_IN_ALL_NS):
            self.is_full = True

    def is_over(self, *, is_large: bool) -> bool:
        """Whether a connection with an incomplete request that `is_large` or not has to wait for others."""
        return self.is_full or (is_large and bool(self._behind))

    def may_write(self, count: int) -> bool:
        """Count bytes that a connection has written to its socket; returns whether more may follow now."""
        self._written_bytes += count
        if self._written_bytes < WATCHED_BYTES:
            return True
        if not self._wrote_ns:
            self._wrote_ns = self._now_ns()
            self._watch_end()
        if self._written_bytes >= WRITTEN_BYTES or self._now_ns() - self._wrote_ns > WRITTEN_NS:
            self.room_to_write = SHORT_RESPONSE_BYTES
            return False
        return True

    def waits_to_write(self, write: Callable[[], None]) -> bool:
        """Whether a connection that has written all it could before has to wait: then `write` is called when the
        connections before it have had their turn.
        """
        if self.room_to_write == WRITE_AT_ONCE_BYTES and not self._writers:
            return False
        self._writers.append(write)
        self._watch_end()
        return True

    def release(self, memory: Iterable[Memory], hold: Callable[[int], None]) -> None:
        """Release memory that is not in use, RELEASED_BYTES of all connections in one iteration of the event loop. The
        caller keeps no reference to it; `hold` counts its bytes as released.
        """
        self._watch_end()
        self._unused.add(memory, hold)
        self._released_bytes += self._unused.release(RELEASED_BYTES - self._released_bytes)

    def _watch_end(self) -> None:
        if not self._is_ending:
            self._is_ending = True
            asyncio.get_running_loop().call_soon(self._end_iteration)

    def _end_iteration(self) -> None:
        self._is_ending = self.is_full = False
        self._has_more = True
        self._first = self._first_ns = self._frames_ns = 0
        self._shared = SHARED_FRAMES
        self._read_bytes = self._released_bytes = self._written_bytes = 0
        self._began_ns = self._wrote_ns = 0
        self.room_to_write = WRITE_AT_ONCE_BYTES
        if self._unused:
            self._watch_end()
            self._released_bytes = self._unused.release(RELEASED_BYTES)
        for _ in range(len(self._writers)):
            if self.room_to_write == SHORT_RESPONSE_BYTES:
                break
            self._writers.popleft()()
        if self._writers:
            self._watch_end()

    def _schedule(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            asyncio.get_running_loop().call_soon(self._serve)

    def _serve(self) -> None:
        self._is_scheduled = False
        self._frames_ns = 0  # of another iteration
        self.begin_frames()
        if self._firsts:
            self._serve_firsts()
        for _ in range(min(len(self._behind), 1 if self._firsts else CONNECTIONS_IN_A_TURN)):
            self._behind.popleft().resume_if_caught_up(turn=FRAMES_IN_A_TURN)
            if self.is_late():
                break
        if self._behind or self._firsts:
            self._schedule()

    def _serve_firsts(self) -> None:
        until_ns = self._now_ns() + FIRST_FRAMES_NS
        while self._firsts:
            self._firsts.popleft().resume_if_caught_up(turn=1)
            if self._now_ns() > until_ns:
                break
