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

The listener (`listening.py`) decides which clients may connect, and how much all connections may hold together.
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import struct
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, cast

from odradek.protocol.framing import what_it_looks_like
from odradek.protocol.outbox import Outbox, Part, memory_bytes

if TYPE_CHECKING:
    from odradek.protocol.listening import Listener

read_size: Final = struct.Struct(">i").unpack_from
FIRST_FRAME_BUFFER_BYTES: Final = 256 * 1024
LARGE_REQUEST_BYTES: Final = 256 * 1024
LONGEST_WAIT_FOR_MEMORY_S: Final = 30.0
ANSWERS_AT_ONCE: Final = 64
FRAMES_IN_A_TURN: Final = 64
"""Requests of one connection that are handled before others have their turn."""
PEER_IS_GONE: Final = frozenset({errno.EPIPE, errno.ECONNRESET, errno.EBADF, errno.ENOTCONN})


class Exchange:
    """A request with a pending answer. `answer` is None until the answer is there; it then leaves in its turn."""

    __slots__ = ("answer", "connection")

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.answer: Sequence[Part] | None = None


FrameHandler = Callable[["Connection", memoryview], None]
"""Takes a connection and one frame without its size; the view is valid only until it returns."""


class Connection(asyncio.BufferedProtocol):
    """One accepted connection."""

    __slots__ = (
        "_backlog",
        "_corked",
        "_frame",
        "_frame_need",
        "_have",
        "_heavy",
        "_kept",
        "_listener",
        "_loop",
        "_most",
        "_on_frame",
        "_out",
        "_paused",
        "_queued",
        "_transport",
        "_turn",
        "_waits_for_memory",
        "_writer",
        "_writing",
        "address",
        "closed",
        "last_active_s",
        "owed",
        "peer",
        "socket",
        "state",
    )

    def __init__(self, listener: Listener, address: str, port: int) -> None:
        self._listener = listener
        self._turn = listener.connection_quotas.turn
        self._on_frame = listener.on_frame
        self._most = listener.limits.frame_bytes
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._writer = -1  # a second descriptor of the socket, to wait on until it is writable
        self._frame: bytearray | None = None  # a frame that has arrived in part, its size included
        self._frame_need = 0
        self._have = 0
        self._backlog: bytes = b""  # frames that arrived while the connection was paused
        self._out = Outbox()
        self._queued = 0
        self._kept = 0  # bytes of answers that wait for earlier ones
        self._heavy = 0  # bytes of a large request that is not answered yet
        self._corked = False
        self._writing = False
        self._paused = False
        self._waits_for_memory = False
        self.owed: deque[Exchange] = deque()
        self.address = address
        self.peer = f"{address}:{port}"
        self.socket: socket.socket | None = None
        """The transport's own socket, to write to directly; None where everything goes through the transport."""
        self.closed = False
        self.last_active_s = self._loop.time()
        self.state: object = None  # state of the frame handler for this connection

    @property
    def listener_name(self) -> str:
        """The name of the listener that accepted this connection."""
        return self._listener.name

    @property
    def name(self) -> str:
        """A description of the connection for log lines and error messages."""
        return f"connection from {self.peer} to listener {self._listener.name}"

    @property
    def unfinished(self) -> str:
        """A description of the pending work of the connection; empty when there is none."""
        if self._out.parts:
            return "it does not take its answers"
        return f"it sent {self._have} bytes of a request of {self._frame_need}" if self._frame is not None else ""

    # ---- life

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        if self.closed:
            self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed = True
        self.socket = None
        if self._writer >= 0:
            if self._writing:
                self._loop.remove_writer(self._writer)
            os.close(self._writer)
            self._writer = -1
        held = self._queued + self._kept + self._heavy + len(self._frame or b"") + len(self._backlog)
        self._queued = self._kept = self._heavy = 0
        self._frame = None
        self._backlog = b""
        self._out.parts.clear()
        self.owed.clear()
        self._listener.hold(-held)
        self._listener.forget(self)

    def eof_received(self) -> bool:
        return False

    def close(self) -> None:
        """Close the connection now; pending answers are not sent."""
        self.closed = True
        if self._transport is not None:
            self._transport.abort()

    def refuse(self, kind: str, text: str) -> None:
        """Report the reason and close the connection: the peer sent something unreadable or forbidden."""
        self._listener.report(kind, f"{self.name} closed: {text}")
        self.close()

    # ---- receiving

    def get_buffer(self, sizehint: int) -> memoryview:
        # This method must not stop the reading: libuv is in the middle of it and would call a removed callback.
        frame = self._frame
        if frame is None:
            return self._listener.receive_view
        if self._have == len(frame):
            self._grow(frame)
        return memoryview(self._frame)[self._have :]  # type: ignore[arg-type]

    def buffer_updated(self, nbytes: int) -> None:
        self.last_active_s = self._loop.time()
        turn = self._turn
        self._corked = turn.reading = True
        try:
            if self._frame is None:
                self._cut(self._listener.receive_view, nbytes)
            else:
                self._have += nbytes
                self._go_on_with_frame()
        finally:
            self._corked = turn.reading = False
        if self._frame is not None:
            self._check_memory()
        if self._out.parts and not self._writing:
            self._flush()
        if turn.waiting:
            turn.end()

    def _cut(self, view: memoryview, end: int) -> None:
        """Pass every whole frame in view[:end] to the handler and keep the rest."""
        position, most, on_frame, left = 0, self._most, self._on_frame, FRAMES_IN_A_TURN
        while end - position >= 4 and not self.closed:
            if self._paused or not left:
                if not self._paused:  # it continues after the other connections had their turn
                    self._pause()
                    self._loop.call_soon(self._resume_if_caught_up)
                self._keep_backlog(view[position:end])
                return
            left -= 1
            (size,) = read_size(view, position)
            if not 0 <= size <= most:
                self._refuse_size(size)
                return
            start = position + 4
            if start + size > end:
                break
            position = start + size
            on_frame(self, view[start:position])
        if position < end and not self.closed:
            if self._paused:
                self._keep_backlog(view[position:end])
            else:
                self._begin_frame(view[position:end])

    def _begin_frame(self, part: memoryview) -> None:
        """Keep the beginning of a frame in a buffer of its own."""
        have = len(part)
        need = 4 + read_size(part)[0] if have >= 4 else 4
        frame = bytearray(max(have, min(need, FIRST_FRAME_BUFFER_BYTES)))
        frame[:have] = part
        self._frame, self._have, self._frame_need = frame, have, need
        self._listener.hold(len(frame))

    def _go_on_with_frame(self) -> None:
        frame = cast("bytearray", self._frame)
        if self._have < self._frame_need:
            return
        if self._frame_need == 4:
            (size,) = read_size(frame)
            if not 0 <= size <= self._most:
                self._refuse_size(size)
                return
            self._frame_need = 4 + size
            if size:
                return
        self._frame = None
        self._on_frame(self, memoryview(frame)[4 : self._frame_need])
        if self.owed and self._frame_need > LARGE_REQUEST_BYTES and not self.closed:
            self._heavy = len(frame)  # a handler that keeps the request for later keeps about as much
            self._pause()
        else:
            self._listener.hold(-len(frame))

    def _grow(self, frame: bytearray) -> None:
        """Make room for more of a frame: double the received bytes, up to the frame's end."""
        room = min(self._frame_need, max(FIRST_FRAME_BUFFER_BYTES, 2 * len(frame)))
        larger = bytearray(room)
        larger[: self._have] = memoryview(frame)[: self._have]
        self._frame = larger
        self._listener.hold(room - len(frame))

    def _refuse_size(self, size: int) -> None:
        why = what_it_looks_like(size, tls=self._listener.tls is not None)
        limit = f"0 and {self._most} (socket.request.max.bytes)"
        self.refuse("invalid frame", why or f"a request of {size} bytes is not within {limit}")

    # ---- backpressure

    def _check_memory(self) -> None:
        """Stop reading an incomplete request while all connections hold too much, unless the request is small."""
        listener, frame = self._listener, self._frame
        connection_quotas = listener.connection_quotas
        if connection_quotas.held_bytes <= listener.limits.total_bytes or self._paused:
            return
        if frame is None or len(frame) <= listener.share_bytes:
            return
        waiting = connection_quotas.waiting_for_memory
        if waiting and self._loop.time() - waiting[0].last_active_s > LONGEST_WAIT_FOR_MEMORY_S:
            waiting.popleft().refuse("memory", f"it waited for memory over {LONGEST_WAIT_FOR_MEMORY_S:g} s")
        waiting.append(self)
        self._waits_for_memory = True
        listener.report(
            "memory",
            f"reading from {self.name} waits: {connection_quotas.held_bytes} bytes are held (queued.max.request.bytes)",
        )
        self._pause()

    def _pause(self) -> None:
        if not self._paused and self._transport is not None and not self.closed:
            self._paused = True
            self._transport.pause_reading()

    def _keep_backlog(self, view: memoryview) -> None:
        self._backlog = bytes(view)
        self._listener.hold(len(view))

    def _pause_if_behind(self) -> None:
        listener = self._listener
        if len(self.owed) >= listener.limits.owed_answers or self._queued + self._kept > listener.share_bytes:
            self._pause()

    def _resume_if_caught_up(self) -> None:
        listener = self._listener
        if self._heavy or self._waits_for_memory or len(self.owed) > listener.limits.owed_answers // 2:
            return
        if self._queued + self._kept <= listener.share_bytes // 2:
            self.resume()

    def resume(self) -> None:
        """Read from this connection again, beginning with the bytes that have arrived before."""
        if not self._paused or self.closed or self._transport is None:
            return
        self._paused = self._waits_for_memory = False
        backlog, self._backlog = self._backlog, b""
        if backlog:
            self._listener.hold(-len(backlog))
            corked, self._corked = self._corked, True
            self._cut(memoryview(bytearray(backlog)), len(backlog))
            self._corked = corked
            if self._out.parts and not corked and not self._writing:
                self._flush()
        if not self._paused and not self.closed:
            self._transport.resume_reading()

    # ---- answering

    def expect(self, exchange: Exchange) -> None:
        """Register a request whose answer comes later; later answers wait for it."""
        self.owed.append(exchange)
        self._pause_if_behind()

    def answer(self, exchange: Exchange, parts: Sequence[Part]) -> None:
        """Set the answer of a request, and send all answers that no earlier one blocks any more.

        An exchange that `expect` has not registered yet only stores its answer: `send` follows after its handler.
        """
        if self.closed:
            return
        exchange.answer = parts
        owed = self.owed
        if owed and owed[0] is exchange:
            self._send_in_turn()
        elif exchange in owed:
            self._keep_answer(parts)
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
            self._resume_if_caught_up()

    def send(self, exchange: Exchange, parts: Sequence[Part]) -> None:
        """Send the answer of a request that its handler answered at once (in its turn, if earlier ones are pending)."""
        if self.owed:
            exchange.answer = parts
            self.owed.append(exchange)
            self._keep_answer(parts)
            return
        out = self._out.parts
        out.extend(parts)
        if self._writing:
            self._count_queued()
            self._pause_if_behind()
        elif not self._corked or len(out) > ANSWERS_AT_ONCE:
            self._flush()

    def _send_in_turn(self) -> None:
        """Send the answer at the head of the queue, and the answers that waited only for it."""
        owed, out = self.owed, self._out.parts
        out.extend(owed.popleft().answer or ())
        kept = self._kept
        while owed and (ready := owed[0].answer) is not None:
            owed.popleft()
            out.extend(ready)
            self._kept -= memory_bytes(ready)
        if kept != self._kept:
            self._listener.hold(self._kept - kept)
        if self._heavy and not owed:
            heavy, self._heavy = self._heavy, 0
            self._listener.hold(-heavy)

    def _keep_answer(self, parts: Sequence[Part]) -> None:
        """Keep an answer until the earlier ones have been sent."""
        size = memory_bytes(parts)
        self._kept += size
        self._listener.hold(size)
        self._pause_if_behind()

    def _flush(self) -> None:
        sock = self.socket
        try:
            if sock is None:
                self._flush_transport()
            elif not self._out.flush(sock):
                self._wait_writable(sock)
            elif self._writing:
                self._stop_waiting()
        except OSError as error:
            if error.errno not in PEER_IS_GONE:
                self._listener.report("write failed", f"writing to {self.peer} failed: {error}")
            self.close()

    def _flush_transport(self) -> None:
        """Send through the transport (TLS). A range of a file is read in chunks, as fast as the peer takes them."""
        transport = cast("asyncio.Transport", self._transport)
        while self._out.parts and not self._writing:
            transport.write(self._out.next_chunk())

    def pause_writing(self) -> None:
        self._writing = True
        self._count_queued()

    def resume_writing(self) -> None:
        self._writing = False
        if self._out.parts:
            self._flush()
        self._count_queued()
        self._resume_if_caught_up()

    def _wait_writable(self, sock: socket.socket) -> None:
        if not self._writing:
            if self._writer < 0:  # the event loop does not watch a transport's own descriptor for other code
                self._writer = os.dup(sock.fileno())
            self._writing = True
            self._loop.add_writer(self._writer, self._writable)
        self._count_queued()
        self._pause_if_behind()

    def _writable(self) -> None:
        self._flush()
        if not self.closed:
            self.last_active_s = self._loop.time()
            self._count_queued()
            if self._paused:
                self._resume_if_caught_up()

    def _stop_waiting(self) -> None:
        self._writing = False
        self._loop.remove_writer(self._writer)

    def _count_queued(self) -> None:
        """Update the count of queued bytes; ranges of files take no memory and do not count."""
        queued = self._out.memory_bytes
        self._listener.hold(queued - self._queued)
        self._queued = queued
