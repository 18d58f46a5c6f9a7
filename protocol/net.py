"""Connections: bytes to frames, answers to bytes, in the order in which the requests came.

The Kafka protocol frames every request and response with an int32 size. A client may send many requests before it
reads an answer, and the answers have to leave in the order of the requests. This is the only module of the protocol
package that knows asyncio.

Receiving. All connections of a listener share one receive buffer. What arrives is cut into frames in place, and a
frame is handed on as a view into that buffer, which is valid only until the frame handler returns: a record batch
goes from here to the log file without a copy in between. Only the beginning of a frame that has not arrived whole is
copied, into a buffer of that frame's own, and the rest is then read straight into it. So an idle connection holds no
buffer at all, and a frame that announces 100 MB costs no more memory than the bytes that did arrive.

Sending. A plain connection writes to its socket directly, not through the transport: small answers leave with one
system call for everything that one read produced, and a range of a file goes out through sendfile without entering
this process. What the socket does not take waits in a queue of the connection and goes on when the socket is
writable. An encrypted connection (TLS has to see the bytes) takes the same queue through its transport.

Limits. The size of a frame, the number of connections in all and for each address, the idle time, the answers that
one connection may owe, and the bytes held for one connection and for all. A connection that reads slowly is not read
from until it catches up; nobody else notices.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import socket
import ssl
import struct
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, cast

from odradek.protocol.outbox import Outbox, Part

read_size: Final = struct.Struct(">i").unpack_from
RECEIVE_BUFFER_BYTES: Final = 256 * 1024
FIRST_FRAME_BUFFER_BYTES: Final = 256 * 1024
ANSWERS_AT_ONCE: Final = 64
PEER_IS_GONE: Final = frozenset({errno.EPIPE, errno.ECONNRESET, errno.EBADF, errno.ENOTCONN})


class Exchange:
    """A request whose answer is owed. `answer` is None until the answer is there; it then leaves in its turn."""

    __slots__ = ("answer", "connection")

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.answer: Sequence[Part] | None = None


class Limits:
    """What a listener grants. Names in brackets are Kafka's properties."""

    __slots__ = (
        "connections",
        "connections_by_address",
        "connections_per_address",
        "frame_bytes",
        "idle_s",
        "owed_answers",
        "queued_bytes",
        "total_bytes",
    )

    def __init__(
        self,
        *,
        frame_bytes: int = 104857600,
        connections: int = 2147483647,
        connections_per_address: int = 2147483647,
        connections_by_address: dict[str, int] | None = None,
        idle_s: float = 600.0,
        owed_answers: int = 128,
        queued_bytes: int = 16 << 20,
        total_bytes: int = 1 << 30,
    ) -> None:
        """Bytes are bytes, `idle_s` is seconds.

        frame_bytes (socket.request.max.bytes): the largest request. connections (max.connections),
        connections_per_address (max.connections.per.ip), connections_by_address (…per.ip.overrides).
        idle_s (connections.max.idle.ms): a connection silent for longer is closed; no limit when not above 0.
        owed_answers: requests of one connection that may wait for their answer before it is read from again.
        queued_bytes: answers in memory for one connection before it is read from again.
        total_bytes: incomplete requests and queued answers of all connections together.
        """
        self.frame_bytes = frame_bytes
        self.connections = connections
        self.connections_per_address = connections_per_address
        self.connections_by_address = connections_by_address or {}
        self.idle_s = idle_s
        self.owed_answers = owed_answers
        self.queued_bytes = queued_bytes
        self.total_bytes = total_bytes


class Census:
    """The connections and the held bytes that count together: those of all listeners of a broker."""

    __slots__ = ("by_address", "count", "held_bytes", "waiting_for_memory")

    def __init__(self) -> None:
        self.count = 0
        self.by_address: dict[str, int] = {}
        self.held_bytes = 0
        self.waiting_for_memory: deque[Connection] = deque()


FrameHandler = Callable[["Connection", memoryview], None]
"""Takes a connection and one frame without its size; the view is valid only until it returns."""


class Listener:
    """One listening socket and its connections."""

    def __init__(
        self,
        name: str,
        on_frame: FrameHandler,
        *,
        limits: Limits,
        on_close: Callable[[Connection], None] | None = None,
        report: Callable[[str, str], None] | None = None,
        tls: ssl.SSLContext | None = None,
        census: Census | None = None,
    ) -> None:
        """`on_close` hears of each connection that ends. `report(kind, text)` hears what was refused and why.

        Listeners that share a `census` share the limits on connections and memory.
        """
        self.name = name
        self.limits = limits
        self.on_frame = on_frame
        self.on_close = on_close
        self.report = report or (lambda kind, text: None)
        self.tls = tls
        self.receive_view = memoryview(bytearray(RECEIVE_BUFFER_BYTES))
        self.connections: set[Connection] = set()
        self.census = census or Census()
        self._server: asyncio.Server | None = None
        self._sweep: asyncio.TimerHandle | None = None

    async def bind(self, host: str | None, port: int, *, backlog: int = 511) -> int:
        """Take the address (every one of this machine when None or empty); returns the port, a free one for port 0.

        Nobody is answered before `serve`. Raises OSError when the address is taken or not this machine's.
        """
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            lambda: Connection(self),
            host or None,
            port,
            ssl=self.tls,
            backlog=backlog,
            reuse_address=True,
            start_serving=False,
        )
        return int(self._server.sockets[0].getsockname()[1])

    async def serve(self) -> None:
        """Begin to accept connections. Call `bind` before."""
        if self._server is None:
            raise RuntimeError(f"the listener {self.name} has no address yet")
        await self._server.start_serving()
        if self.limits.idle_s > 0:
            loop = asyncio.get_running_loop()
            self._sweep = loop.call_later(self.limits.idle_s / 4, self._close_idle)

    def stop_accepting(self) -> None:
        """Take no new connection; those that exist go on."""
        if self._server is not None:
            self._server.close()

    def close(self) -> None:
        """Stop listening and end every connection."""
        self.stop_accepting()
        if self._sweep is not None:
            self._sweep.cancel()
        for connection in list(self.connections):
            connection.close()

    def admit(self, connection: Connection) -> str | None:
        """Count a new connection; the answer is None, or why it cannot stay."""
        address, limits, census = connection.address, self.limits, self.census
        allowed = limits.connections_by_address.get(address, limits.connections_per_address)
        count = census.by_address.get(address, 0)
        if census.count >= limits.connections:
            return f"the broker has its {limits.connections} connections (max.connections)"
        if count >= allowed:
            return f"{address} has its {allowed} connections (max.connections.per.ip)"
        census.count += 1
        census.by_address[address] = count + 1
        self.connections.add(connection)
        return None

    def forget(self, connection: Connection) -> None:
        """The connection has ended."""
        if connection not in self.connections:
            return
        self.connections.discard(connection)
        census = self.census
        census.count -= 1
        left = census.by_address.get(connection.address, 1) - 1
        if left > 0:
            census.by_address[connection.address] = left
        else:
            census.by_address.pop(connection.address, None)
        if self.on_close is not None:
            self.on_close(connection)

    def hold(self, count: int) -> None:
        """Account for `count` bytes more (or fewer, when negative) that are kept in memory for connections."""
        census = self.census
        census.held_bytes += count
        while count < 0 and census.waiting_for_memory and census.held_bytes < self.limits.total_bytes:
            census.waiting_for_memory.popleft().resume()

    @property
    def held_bytes(self) -> int:
        """Bytes in memory for the connections of this census: incomplete requests and answers that wait."""
        return self.census.held_bytes

    def _close_idle(self) -> None:
        loop = asyncio.get_running_loop()
        oldest = loop.time() - self.limits.idle_s
        for connection in [c for c in self.connections if c.last_active_s < oldest and not c.owed]:
            connection.close()
        self._sweep = loop.call_later(self.limits.idle_s / 4, self._close_idle)


class Connection(asyncio.BufferedProtocol):
    """One accepted connection."""

    __slots__ = (
        "_backlog",
        "_corked",
        "_frame",
        "_frame_need",
        "_have",
        "_listener",
        "_loop",
        "_most",
        "_on_frame",
        "_out",
        "_paused",
        "_queued",
        "_socket",
        "_transport",
        "_writing",
        "address",
        "closed",
        "last_active_s",
        "owed",
        "peer",
        "state",
    )

    def __init__(self, listener: Listener) -> None:
        self._listener = listener
        self._on_frame = listener.on_frame
        self._most = listener.limits.frame_bytes
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._socket: socket.socket | None = None
        self._frame: bytearray | None = None  # a frame that has arrived in part, its size included
        self._frame_need = 0
        self._have = 0
        self._backlog: bytes = b""  # frames that arrived while the connection was paused
        self._out = Outbox()
        self._queued = 0
        self._corked = False
        self._writing = False
        self._paused = False
        self.owed: deque[Exchange] = deque()
        self.address = ""
        self.peer = ""
        self.closed = False
        self.last_active_s = 0.0
        self.state: object = None  # whatever the frame handler keeps for a connection

    @property
    def listener_name(self) -> str:
        """The name of the listener that accepted this connection."""
        return self._listener.name

    # ---- life

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        peer = transport.get_extra_info("peername") or ("", 0)
        self.address, self.peer = str(peer[0]), f"{peer[0]}:{peer[1]}"
        self.last_active_s = self._loop.time()
        refusal = self._listener.admit(self)
        if refusal is not None:
            self._listener.report("connection refused", f"connection from {self.peer} refused: {refusal}")
            self.closed = True
            self._transport.abort()
            return
        if self._listener.tls is None:
            self._socket = _own_socket(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed = True
        if self._socket is not None:
            if self._writing:
                self._loop.remove_writer(self._socket.fileno())
            self._socket.close()
            self._socket = None
        self._listener.hold(-(self._queued + len(self._frame or b"")))
        self._queued = 0
        self._frame = None
        self._backlog = b""
        self._out.parts.clear()
        self.owed.clear()
        self._listener.forget(self)

    def eof_received(self) -> bool:
        return False

    def close(self) -> None:
        """End the connection now; answers that are still owed are not sent."""
        self.closed = True
        if self._transport is not None:
            self._transport.abort()

    def refuse(self, kind: str, text: str) -> None:
        """Say why and end the connection: what this peer sends cannot be understood or is not allowed."""
        self._listener.report(kind, f"connection from {self.peer} closed: {text}")
        self.close()

    # ---- receiving

    def get_buffer(self, sizehint: int) -> memoryview:
        # Nothing here may stop the reading: libuv is in the middle of it and would call a callback that is gone.
        frame = self._frame
        if frame is None:
            return self._listener.receive_view
        if self._have == len(frame):
            self._grow(frame)
        return memoryview(self._frame)[self._have :]  # type: ignore[arg-type]

    def buffer_updated(self, nbytes: int) -> None:
        self.last_active_s = self._loop.time()
        self._corked = True
        if self._frame is None:
            self._cut(self._listener.receive_view, nbytes)
        else:
            self._have += nbytes
            self._go_on_with_frame()
        self._corked = False
        if self._frame is not None:
            self._check_memory()
        if self._out.parts and not self._writing:
            self._flush()

    def _cut(self, view: memoryview, end: int) -> None:
        """Hand on every whole frame in view[:end] and keep what is left."""
        position, most, on_frame = 0, self._most, self._on_frame
        while end - position >= 4 and not self.closed:
            if self._paused:
                self._keep_backlog(view[position:end])
                return
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
        self._listener.hold(-len(frame))
        self._on_frame(self, memoryview(frame)[4 : self._frame_need])

    def _grow(self, frame: bytearray) -> None:
        """Make room for more of a frame: double what has arrived, up to the frame's end."""
        room = min(self._frame_need, max(FIRST_FRAME_BUFFER_BYTES, 2 * len(frame)))
        larger = bytearray(room)
        larger[: self._have] = memoryview(frame)[: self._have]
        self._frame = larger
        self._listener.hold(room - len(frame))

    def _refuse_size(self, size: int) -> None:
        limit = self._most
        self.refuse(
            "invalid frame", f"a request of {size} bytes is not within 0 and {limit} (socket.request.max.bytes)"
        )

    # ---- backpressure

    def _check_memory(self) -> None:
        listener = self._listener
        if listener.held_bytes > listener.limits.total_bytes and not self._paused:
            listener.census.waiting_for_memory.append(self)
            listener.report("memory", f"reading from {self.peer} waits: {listener.held_bytes} bytes are held in all")
            self._pause()

    def _pause(self) -> None:
        if not self._paused and self._transport is not None and not self.closed:
            self._paused = True
            self._transport.pause_reading()

    def _keep_backlog(self, view: memoryview) -> None:
        self._backlog = bytes(view)

    def _pause_if_behind(self) -> None:
        limits = self._listener.limits
        if len(self.owed) >= limits.owed_answers or self._queued > limits.queued_bytes:
            self._pause()

    def _resume_if_caught_up(self) -> None:
        limits = self._listener.limits
        if len(self.owed) <= limits.owed_answers // 2 and self._queued <= limits.queued_bytes // 2:
            self.resume()

    def resume(self) -> None:
        """Read from this connection again, beginning with what had arrived before."""
        if not self._paused or self.closed or self._transport is None:
            return
        self._paused = False
        backlog, self._backlog = self._backlog, b""
        if backlog:
            self._cut(memoryview(bytearray(backlog)), len(backlog))
        if not self._paused and not self.closed:
            self._transport.resume_reading()

    # ---- answering

    def expect(self, exchange: Exchange) -> None:
        """The answer of this request comes later; those after it wait for it."""
        self.owed.append(exchange)
        self._pause_if_behind()

    def answer(self, exchange: Exchange, parts: Sequence[Part]) -> None:
        """The answer of a request is there; send whatever is now at the head of the line.

        An exchange that is not expected yet only keeps its answer: `send` follows when its handler returns.
        """
        if self.closed:
            return
        exchange.answer = parts
        owed = self.owed
        while owed and (ready := owed[0].answer) is not None:
            owed.popleft()
            self._out.parts.extend(ready)
        if self._writing:
            self._count_queued()
            self._pause_if_behind()
        elif self._out.parts and not self._corked:
            self._flush()
        if self._paused:
            self._resume_if_caught_up()

    def send(self, exchange: Exchange, parts: Sequence[Part]) -> None:
        """Send the answer of a request that nobody had to wait for (in its turn, if others before it wait)."""
        if self.owed:
            exchange.answer = parts
            self.owed.append(exchange)
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
        sock = self._socket
        try:
            if sock is None:
                self._flush_transport()
            elif not self._out.flush(sock):
                self._wait_writable(sock)
            elif self._writing:
                self._stop_waiting(sock)
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
            self._writing = True
            self._loop.add_writer(sock.fileno(), self._writable)
        self._count_queued()
        self._pause_if_behind()

    def _writable(self) -> None:
        self._flush()
        if not self.closed:
            self.last_active_s = self._loop.time()
            self._count_queued()
            if self._paused:
                self._resume_if_caught_up()

    def _stop_waiting(self, sock: socket.socket) -> None:
        self._writing = False
        self._loop.remove_writer(sock.fileno())

    def _count_queued(self) -> None:
        """Bring the account of queued bytes up to date; ranges of files take no memory and do not count."""
        queued = self._out.memory_bytes
        self._listener.hold(queued - self._queued)
        self._queued = queued


def _own_socket(transport: asyncio.BaseTransport) -> socket.socket | None:
    """A second descriptor of the transport's socket, to write to; None where the transport has no real socket."""
    theirs = transport.get_extra_info("socket")
    if theirs is None:
        return None
    own = socket.socket(fileno=os.dup(theirs.fileno()))
    own.setblocking(False)
    with contextlib.suppress(OSError):
        own.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return own
