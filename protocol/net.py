"""Server connections: splits bytes into frames and sends the answers in the order of the requests (Kafka: Processor).

The Kafka protocol frames every request and response with an int32 size. A client may send many requests before it
reads an answer, and the connection must send the answers in the order of the requests. Only the connection modules of
the protocol package (this one, accepting, dial, listening) import asyncio.

Receiving. All connections of a listener share one receive buffer. The connection splits received bytes into frames in
place. The frame handler gets a view into that buffer, which is valid only until the handler returns: a record batch is
written from here to the log file without a copy. Only the beginning of an incomplete frame is copied, into a buffer of
that frame's own, and the rest is then read straight into it. So an idle connection holds no buffer at all, and a frame
that announces 100 MB costs no more memory than the bytes that did arrive.

Sending. A plain connection writes to its socket directly, not through the transport: small answers to the requests of
one read leave in one system call, and a range of a file leaves through sendfile without entering this process. Bytes
that the socket does not take wait in a queue of the connection until the socket is writable. An encrypted connection
(TLS has to process the bytes) sends the same queue through its transport.

A connection that is not read, because a large request or many requests wait for their responses, is watched for its end
(`hang_up.py`). Operations that requests wait for are notified when the connection ends.

`receive.py` has the incomplete request, `in_flight.py` the requests without a response, `outbox.py` the send queue. The
listener (`listening.py`) decides which clients may connect, and how much all connections may hold together.
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast

from odradek.protocol.framing import what_it_looks_like
from odradek.protocol.hang_up import ConnectionEnd
from odradek.protocol.in_flight import Exchange, InFlightRequests
from odradek.protocol.outbox import Outbox, Part
from odradek.protocol.read_turn import (
    COUNTED_BYTES,
    FIRST_FRAMES,
    FIRST_FRAMES_NS,
    FRAMES_IN_A_TURN,
    LITTLE_BYTES,
    ReadTurn,
)
from odradek.protocol.reads import ReadLimits, install
from odradek.protocol.receive import NetworkReceive, read_size

if TYPE_CHECKING:
    import ssl

    from odradek.protocol.listening import Listener

ANSWERS_AT_ONCE: Final = 64
TIMER_S: Final = 0.002
"""The timers of the event loop may end that much early."""
PEER_IS_GONE: Final = frozenset({errno.EPIPE, errno.ECONNRESET, errno.EBADF, errno.ENOTCONN})


FrameHandler = Callable[["Connection", memoryview], None]
"""Takes a connection and one frame without its size; the view is valid only until it returns."""


def _not_held(count: int) -> None:
    """In place of `Listener.hold` for bytes that count as held until the request is answered."""


class WritableWatch:
    """Calls back while a socket is writable and its connection has its turn, through a second descriptor of the socket.

    The event loop does not watch the descriptor of a transport for other code.
    """

    __slots__ = ("_callback", "_descriptor", "_loop", "_turn")

    def __init__(self, loop: asyncio.AbstractEventLoop, turn: ReadTurn) -> None:
        self._loop = loop
        self._turn = turn
        self._descriptor = -1
        self._callback: Callable[[], None] | None = None  # while it watches

    def start(self, sock: socket.socket, callback: Callable[[], None]) -> None:
        """Call `callback` whenever the socket is writable. Raises OSError."""
        if self._descriptor < 0:
            self._descriptor = os.dup(sock.fileno())
        self._callback = callback
        self._loop.add_writer(self._descriptor, self._notify)

    def stop(self) -> None:
        """Call back no more; `start` may follow."""
        self._callback = None
        self._loop.remove_writer(self._descriptor)

    def close(self) -> None:
        """Stop, and close the descriptor."""
        if self._descriptor >= 0:
            if self._callback is not None:
                self.stop()
            os.close(self._descriptor)
            self._descriptor = -1

    def _notify(self) -> None:
        assert self._callback is not None
        if self._turn.waits_to_write(self._go_on):
            self._loop.remove_writer(self._descriptor)
        else:
            self._callback()

    def _go_on(self) -> None:
        if self._callback is not None:
            self._loop.add_writer(self._descriptor, self._notify)
            self._callback()


def _size_fault(size: int, most_bytes: int, listener: Listener) -> str:
    """What is wrong with the size of a request, where `most_bytes` are allowed."""
    name = "socket.request.max.bytes" if most_bytes == listener.limits.frame_bytes else "sasl.server.max.receive.size"
    looks_like = what_it_looks_like(size, tls=listener.tls is not None)
    return looks_like or f"a request of {size} bytes is not within 0 and {most_bytes} ({name})"


class Connection(asyncio.BufferedProtocol):
    """One accepted connection."""

    __slots__ = (
        "_corked",
        "_end",
        "_heavy",
        "_in_flight",
        "_incomplete",
        "_is_left",
        "_listener",
        "_loop",
        "_memory",
        "_most",
        "_muted",
        "_on_frame",
        "_out",
        "_paused",
        "_queued",
        "_receive",
        "_throttle",
        "_throttled_until_s",
        "_transport",
        "_turn",
        "_view",
        "_waits_for_memory",
        "_waits_for_turn",
        "_watch",
        "_writing",
        "address",
        "closed",
        "last_active_s",
        "listener_name",
        "owed",
        "peer",
        "session",
        "socket",
        "tls",
    )

    def __init__(self, listener: Listener, address: str, port: int) -> None:
        self._listener = listener
        self.listener_name = listener.name
        self._turn = listener.connection_quotas.turn
        self._view = listener.receive_view
        self._on_frame = listener.on_frame
        self._most = listener.limits.frame_bytes
        self._memory = listener.connection_quotas.memory
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._receive = NetworkReceive(listener.hold)
        self._incomplete: NetworkReceive | None = None  # `_receive`, while it has an incomplete request
        self._in_flight = InFlightRequests(listener.hold)
        self._out = Outbox()
        self._watch = WritableWatch(self._loop, self._turn)
        self._queued = 0
        self._heavy = 0  # bytes of a large request that is not answered yet
        self._corked = False
        self._writing = False
        self._paused = False
        self._muted = False
        self._waits_for_memory = False
        self._waits_for_turn = False
        self._throttle: asyncio.TimerHandle | None = None
        self._throttled_until_s = 0.0
        self._end = ConnectionEnd(listener.connection_quotas.hang_ups)
        self._is_left = False  # the peer has closed: its last bytes are read without further pauses
        self.owed = self._in_flight.queue
        self.address = address
        self.peer = f"{address}:{port}"
        self.socket: socket.socket | None = None
        """The transport's own socket, to write to directly; None where everything goes through the transport."""
        self.tls: ssl.SSLObject | None = None
        """What the TLS handshake has agreed on, for `on_open` of the listener."""
        self.closed = False
        self.last_active_s = self._loop.time()
        self.session: Any = None
        """The identity at the other end, for the frame handler; None before the authentication, and without one."""

    @property
    def name(self) -> str:
        """A description of the connection for log lines and error messages."""
        return f"connection from {self.peer} to listener {self._listener.name}"

    @property
    def unfinished(self) -> str:
        """A description of the pending work of the connection; empty when there is none."""
        if self._out.parts:
            return "it does not take its answers"
        request = self._incomplete
        return f"it sent {request.have} bytes of a request of {request.need}" if request is not None else ""

    @property
    def has_incomplete_request(self) -> bool:
        """Whether a part of a request has arrived, and its rest has not."""
        return self._incomplete is not None

    @property
    def holds_request(self) -> bool:
        """Whether the connection holds memory for a request: an incomplete one, or a large one without its answer."""
        return self._incomplete is not None or self._heavy > 0

    def take_frames(self, on_frame: FrameHandler, frame_bytes: int) -> None:
        """Pass further requests to `on_frame`, and allow `frame_bytes` for each (before and after authentication)."""
        self._on_frame = on_frame
        self._most = frame_bytes

    # ---- life

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        if self.closed:
            self._transport.abort()
        elif self._listener.on_open is not None:
            self.tls = transport.get_extra_info("ssl_object")
            self._listener.on_open(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed = True
        self._end.stop()
        self.socket = None
        self._transport = None  # uvloop's transports with TLS refer to their protocol for as long as they exist
        self._watch.close()
        if self._throttle is not None:
            self._throttle.cancel()
        held = self._queued + self._heavy + self._receive.held_bytes + self._in_flight.kept_bytes
        self._queued = self._heavy = 0
        self._incomplete = None
        unused = [*self._receive.clear(), *self._in_flight.clear(), *self._out.clear()]
        self._listener.hold(sum(map(len, unused)) - held)
        if unused:
            self._turn.release(unused, self._listener.hold)
        self._listener.forget(self)

    def close(self, *, flush: bool = False) -> None:
        """Close the connection now; pending answers are not sent, with `flush` only those that the transport has."""
        self.closed = True
        self._end.stop()
        if self._transport is not None:
            if flush:
                self._transport.close()
            else:
                self._transport.abort()

    def refuse(self, kind: str, text: str) -> None:
        """Report the reason and close the connection: the peer sent something unreadable or forbidden."""
        self._listener.report(kind, f"{self.name} closed: {text}")
        self.close()

    # ---- receiving

    def get_buffer(self, sizehint: int) -> memoryview:
        # This method must not stop the reading: libuv is in the middle of it and would call a removed callback.
        incomplete = self._incomplete
        if self._turn.is_full:
            return self._listener.little_view if incomplete is None else incomplete.room(LITTLE_BYTES)
        return self._view if incomplete is None else incomplete.room()

    def buffer_updated(self, nbytes: int) -> None:
        self.last_active_s = self._loop.time()
        turn = self._turn
        turn.reading = True
        begun = self._incomplete
        try:
            if begun is None:
                view = self._view
                is_whole = 0 <= read_size(view)[0] == nbytes - 4 <= self._most and not (self._paused or self.closed)
                if is_whole and turn.may_handle_first():
                    self._on_frame(self, view[4:nbytes])
                elif is_whole:
                    # Most clients send no other request before its response, so the transport goes on reading: to stop
                    # and to start it takes system calls.
                    self._paused = self._waits_for_turn = True
                    self._receive.keep_backlog(view[:nbytes])
                    turn.queue_first(self)
                else:
                    if self._paused:  # while its first request waits for other connections
                        self._transport.pause_reading()  # type: ignore[union-attr]  # it is reading
                    self._corked = True
                    self._cut(view, nbytes)
            else:
                self._corked = True
                begun.have += nbytes
                self._go_on_with_frame(begun)
        finally:
            self._corked = turn.reading = False
        if nbytes >= COUNTED_BYTES:
            receive = self._incomplete or begun
            turn.count_read(nbytes, is_large=receive is not None and receive.is_large)
        if self._incomplete is not None:
            self._check_memory(self._incomplete)
            if turn.is_over(is_large=self._incomplete.is_large) and not (self._paused or self._is_left):
                self._paused = self._waits_for_turn = True
                cast("asyncio.Transport", self._transport).pause_reading()
                turn.queue(self)
        if self._out.parts and not self._writing:
            self._flush()
        if turn.waiting:
            turn.end()

    def eof_received(self) -> None:
        # Afterwards the transport closes. The request that waits for other connections is handled before.
        if self._receive.has_backlog:
            self.resume(is_left=True)

    def _cut(self, view: memoryview, end: int, left: int = 0) -> None:
        """Pass the whole frames in view[:end] to the handler, `left` or a few more at most, and keep the rest.

        Without `left`, the first one and those that the connection has behind it, or none where others had theirs.
        """
        position, turn = 0, self._turn
        is_first = not left
        waits = is_first and not turn.may_handle_first()
        left = 0 if waits else left or 1
        while end - position >= 4 and not self.closed:
            if not left and not self._paused and not waits:
                if is_first:
                    left, is_first = turn.frames_behind_the_first(), False
                left = left or turn.more_frames()
            if self._paused or not left:
                if not self._paused:  # it continues after the other connections had their turn
                    self._paused = self._waits_for_turn = True
                    cast("asyncio.Transport", self._transport).pause_reading()
                    (turn.queue_first if waits else turn.queue)(self)
                self._receive.keep_backlog(view[position:end])
                return
            left -= 1
            (size,) = read_size(view, position)
            if not 0 <= size <= self._most:  # a handler may have changed it, and itself
                self.refuse("invalid frame", _size_fault(size, self._most, self._listener))
                return
            start = position + 4
            if start + size > end:
                break
            position = start + size
            if position == end:
                self._on_frame(self, view[start:position])
                break
            turn.begin_frames()
            self._on_frame(self, view[start:position])
            if left and turn.is_late():
                left = 0
        if position < end and not self.closed:
            if self._paused:
                self._receive.keep_backlog(view[position:end])
            else:
                self._incomplete = self._receive
                self._receive.begin(view[position:end])

    def _go_on_with_frame(self, receive: NetworkReceive) -> None:
        if receive.have < receive.need:
            return
        if receive.need == 4:
            (size,) = read_size(receive.buffer)
            if not 0 <= size <= self._most:
                self.refuse("invalid frame", _size_fault(size, self._most, self._listener))
                return
            receive.need = 4 + size
            if size:
                return
        frame = receive.take()
        self._incomplete = None
        self._on_frame(self, memoryview(frame)[4 : receive.need])
        hold = self._listener.hold
        if not receive.is_large:
            hold(-len(frame))
        else:
            if self.owed and not self.closed:
                self._heavy += len(frame)  # a handler that keeps the request for later keeps about as much
                hold = _not_held
                self._pause()
            self._turn.release([frame], hold)

    # ---- backpressure

    def _check_memory(self, receive: NetworkReceive) -> None:
        """Stop reading an incomplete request while all connections hold too much, unless the request is small."""
        listener, memory = self._listener, self._memory
        if self._paused or self._is_left or not memory.is_short(listener.limits.total_bytes):
            return
        if len(receive.buffer) <= listener.share_bytes or memory.exempts(self):
            return
        memory.wait(self, self._loop.time())
        self._waits_for_memory = True
        listener.report(
            "memory",
            f"reading from {self.name} waits: {memory.held_bytes} bytes are held (queued.max.request.bytes)",
        )
        self._pause()

    def _pause(self) -> None:
        if not self._paused and not self._is_left and self._transport is not None and not self.closed:
            self._paused = True
            self._transport.pause_reading()
            try:
                sock = self.socket or self._transport.get_extra_info("socket")
                self._end.start(self._loop, sock, partial(self.resume, is_left=True), self.close)
            except OSError as error:
                self._listener.report("no hang-up watch", f"the end of {self.name} is noticed late: {error}")

    def _pause_if_behind(self) -> None:
        listener = self._listener
        waiting_bytes = self._queued + self._in_flight.kept_bytes
        waiting = max(len(self.owed), len(self._out.parts))  # ranges of files have no bytes in memory, but objects
        if waiting >= listener.limits.owed_answers or waiting_bytes > listener.share_bytes:
            self._pause()

    def set_muted(self, *, muted: bool) -> Callable[[int], None]:
        """While muted, pass on no request: one is being handled in turns with the loop.

        Returns the function that counts bytes as held in memory for all connections, or releases them.
        """
        self._muted = muted
        if muted:
            self._pause()
        elif self._paused:
            self.resume_if_caught_up()
        return self._listener.hold

    def resume_if_caught_up(self, *, turn: int = 0) -> None:
        """Read again where no more than half of what pauses the connection waits. `turn` is how many requests are
        handled of those that have arrived before, where they have waited for other connections, and not for responses.
        """
        if turn:
            if not self._waits_for_turn:
                return
            self._waits_for_turn = False
        if self._is_left:
            self.resume()
            return
        listener = self._listener
        if self._heavy or self._muted or self._waits_for_memory or self._waits_for_turn:
            return
        if self._loop.time() < self._throttled_until_s:
            return
        most_answers, most_bytes = listener.limits.owed_answers - 1, listener.share_bytes
        if not turn:
            most_answers, most_bytes = listener.limits.owed_answers // 2, most_bytes // 2
        if max(len(self.owed), len(self._out.parts)) <= most_answers and (
            self._queued + self._in_flight.kept_bytes <= most_bytes
        ):
            if turn or not self._receive.has_backlog:
                self.resume(frames=turn or FRAMES_IN_A_TURN)
            else:  # one event may answer the requests of many connections
                self._waits_for_turn = True
                self._turn.queue(self)

    def resume(self, *, is_left: bool = False, frames: int = FRAMES_IN_A_TURN) -> None:
        """Read from this connection again, beginning with `frames` requests of the bytes that have arrived before.

        `is_left` means that the peer has closed. Requests that have arrived are still handled, as in Kafka (Selector's
        closing channels): the last bytes, no more than the receive buffer of the socket, are read without further
        pauses up to the end, which closes the connection.
        """
        self._is_left = self._is_left or is_left
        if not self._paused or self.closed or self._transport is None:
            return
        if self._waits_for_memory:
            self.last_active_s = self._loop.time()  # the listener did not read, so the client was not idle
        self._waits_for_memory = False
        if self._loop.time() < self._throttled_until_s and not self._is_left:
            return
        self._paused = self._waits_for_turn = False
        self._end.stop()
        if backlog := self._receive.take_backlog():
            corked, self._corked = self._corked, True
            self._cut(memoryview(bytearray(backlog)), len(backlog), frames)
            self._corked = corked
            if self._out.parts and not corked and not self._writing:
                self._flush()
        if not self._paused and not self.closed:
            self._transport.resume_reading()

    def mute(self, delay_s: float) -> None:
        """Read no request for `delay_s` seconds, or until the end of an earlier call that is later; responses leave
        meanwhile (KIP-219; Kafka: Processor.handleChannelMuteEvent). The time counts as idle, as in Kafka.
        """
        until_s = self._loop.time() + delay_s
        if self.closed or until_s <= self._throttled_until_s:
            return
        if self._throttle is not None:
            self._throttle.cancel()
        self._throttled_until_s = until_s
        self._throttle = self._loop.call_later(delay_s + TIMER_S, self.resume_if_caught_up)
        self._pause()

    # ---- answering

    def expect(self, exchange: Exchange) -> None:
        """Register a request whose answer comes later; later answers wait for it."""
        owed = self.owed
        owed.append(exchange)
        if len(owed) > 1 or self._out.parts:
            self._pause_if_behind()

    def answer(self, exchange: Exchange, parts: Sequence[Part]) -> None:
        """Set the answer of a request, and send all answers that no earlier one blocks any more.

        An exchange that `expect` has not registered yet only stores its answer: `send` follows after its handler.
        """
        if self.closed:
            return
        exchange.answer = parts
        owed = self.owed
        self.last_active_s = self._loop.time()
        if owed and owed[0] is exchange:
            self._in_flight.take_ready(self._out.parts)
            if self._heavy and not owed:
                heavy, self._heavy = self._heavy, 0
                self._listener.hold(-heavy)
        elif exchange in owed:
            self._in_flight.keep(parts)
            self._pause_if_behind()
            return
        if self._writing:
            self._count_queued()
            self._pause_if_behind()
        elif self._out.parts and not self._corked:
            if self._turn.reading:
                self._turn.waiting.append((self, self._flush))
            else:
                self._flush()
        if self._paused:
            self.resume_if_caught_up()

    def send(self, exchange: Exchange, parts: Sequence[Part]) -> None:
        """Send the answer of a request that its handler answered at once (in its turn, if earlier ones are pending)."""
        if self.owed:
            exchange.answer = parts
            self.owed.append(exchange)
            self._in_flight.keep(parts)
            self._pause_if_behind()
            return
        out = self._out.parts
        out.extend(parts)
        if self._writing:
            self._count_queued()
            self._pause_if_behind()
        elif not self._corked or len(out) > ANSWERS_AT_ONCE:
            self._flush()

    def _flush(self) -> None:
        sock, turn = self.socket, self._turn
        try:
            if sock is None:  # TLS: a range of a file is read in chunks, as fast as the peer takes them
                transport = cast("asyncio.Transport", self._transport)
                while self._out.parts and not self._writing:
                    chunk = self._out.next_chunk()
                    if len(chunk) >= COUNTED_BYTES:
                        turn.may_write(len(chunk))
                    transport.write(chunk)
                return
            sent = self._out.flush(sock, turn.room_to_write)
            while sent >= COUNTED_BYTES and turn.may_write(sent) and self._out.parts:
                sent = self._out.flush(sock, turn.room_to_write)
            if self._out.parts:
                if not self._writing:
                    self._watch.start(sock, self._writable)
                    self._writing = True
                self._count_queued()
                self._pause_if_behind()
            elif self._writing:
                self._watch.stop()
                self._writing = False
        except OSError as error:
            if error.errno not in PEER_IS_GONE:
                self._listener.report("write failed", f"writing to {self.peer} failed: {error}")
            self.close()

    def pause_writing(self) -> None:
        self._writing = True
        self._count_queued()

    def resume_writing(self, *, has_turn: bool = False) -> None:
        if self.closed or (not has_turn and self._turn.waits_to_write(partial(self.resume_writing, has_turn=True))):
            return
        self._writing = False
        if self._out.parts:
            self._flush()
        self._count_queued()
        self.resume_if_caught_up()

    def _writable(self) -> None:
        self._flush()
        if not self.closed:
            self.last_active_s = self._loop.time()
            self._count_queued()
            if self._paused:
                self.resume_if_caught_up()

    def _count_queued(self) -> None:
        """Update the count of queued bytes; ranges of files take no memory and do not count."""
        queued = self._out.memory_bytes
        self._listener.hold(queued - self._queued)
        self._queued = queued


LIMITS: Final = ReadLimits(FIRST_FRAMES, FIRST_FRAMES_NS, COUNTED_BYTES)
IN_PYTHON: Final = install(Connection, ReadTurn, Outbox, LIMITS)
"""The methods `get_buffer` and `buffer_updated` above: the specification of those in C."""
