"""Listeners and their limits on connections, requests and memory (Kafka: SocketServer, ConnectionQuotas).

A listener limits the size of a frame, the number of connections in all and for each address, the idle time, the
pending answers of one connection, and the bytes held for one connection and for all. From a connection that reads
slowly the listener does not read until it catches up; other connections are unaffected. While all connections together
exceed their limit, the listener reads from a connection as long as that one holds less than its fair share, so that
many connections that hold much memory do not shut out those that need little. One request may exceed the limit
(`memory_pool.py`), so that incomplete requests that wait for each other's memory do not all wait. The total then stays
below twice the limit, plus one large request for each connection whose large request is still incomplete or unanswered.

Connections over max.connections wait in the backlog until others end; connections over max.connections.per.ip are
closed at once, as in Kafka (SocketServer's ConnectionQuotas). Clients never shut out the brokers' own connections:
their listener may close the connections of others. A listener has limits of its own beside those of the broker, for
connections at one time (KIP-402) and for new ones (KIP-612); both apply.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from odradek.protocol.accepting import Acceptor
from odradek.protocol.hang_up import HangUpWatch
from odradek.protocol.memory_pool import MemoryPool
from odradek.protocol.net import Connection, FrameHandler
from odradek.protocol.read_turn import LITTLE_BYTES, ReadTurn

RECEIVE_BUFFER_BYTES: Final = 256 * 1024
UNLIMITED: Final = 2147483647
HANDSHAKE_TIMEOUT_S: Final = 60.0
"""The limit of a whole handshake, where connections.max.idle.ms is longer; Kafka limits only its pauses."""
HANDSHAKES_AT_ONCE: Final = 4
"""Each takes the event loop about a millisecond."""
SHUTDOWN_TIMEOUT_S: Final = 5.0
MOST_THROTTLED: Final = 1024
"""Connections over the quota of their address that stay open for the throttle time; others are closed at once."""
ALERT_S: Final = 0.5
"""How long the client has to read why its handshake failed."""


class Limits:
    """The limits of a listener. Names in brackets are Kafka's properties."""

    __slots__ = (
        "connections",
        "connections_by_address",
        "connections_per_address",
        "connections_per_second",
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
        connections_per_second: int = 2147483647,
        idle_s: float = 600.0,
        owed_answers: int = 128,
        queued_bytes: int = 16 << 20,
        total_bytes: int = 512 << 20,
    ) -> None:
        """Sizes are in bytes, `idle_s` is in seconds.

        frame_bytes (socket.request.max.bytes): the largest request. connections (max.connections),
        connections_per_address (max.connections.per.ip), connections_by_address (…per.ip.overrides),
        connections_per_second (max.connection.creation.rate): new ones; further connections wait in the backlog.
        idle_s (connections.max.idle.ms): a connection idle for longer is closed, also while requests wait, as in Kafka;
        no limit when not above 0.
        owed_answers: requests of one connection that may wait for their answer before it is read from again.
        queued_bytes: answers in memory for one connection before it is read from again.
        total_bytes: requests that are incomplete or large, and queued answers, of all connections together.
        """
        self.frame_bytes = frame_bytes
        self.connections = connections
        self.connections_per_address = connections_per_address
        self.connections_by_address = connections_by_address or {}
        self.connections_per_second = connections_per_second
        self.idle_s = idle_s
        self.owed_answers = owed_answers
        self.queued_bytes = queued_bytes
        self.total_bytes = total_bytes

    def become(self, other: Limits) -> None:
        """Take over the limits of `other`."""
        for name in self.__slots__:
            setattr(self, name, getattr(other, name))


class OwnLimits(NamedTuple):
    """The connection limits of one listener, beside those of the broker; properties as in `Limits`."""

    connections: int = UNLIMITED
    connections_per_second: int = UNLIMITED


class CreationRate:
    """Counts new connections against the number that is allowed each second."""

    __slots__ = ("_allowance", "_counted_s")

    def __init__(self) -> None:
        self._allowance = 0.0  # connections that may still be accepted now, when their rate is limited
        self._counted_s = 0.0

    def too_soon(self, now_s: float, per_second: int) -> bool:
        """Whether a connection now would exceed `per_second`; those of one second may come at once."""
        if per_second >= UNLIMITED:
            return False
        self._allowance = min(float(per_second), self._allowance + (now_s - self._counted_s) * per_second)
        self._counted_s = now_s
        return self._allowance < 1

    def came_in(self) -> None:
        """Count a new connection where the rate is limited."""
        self._allowance = max(0.0, self._allowance - 1)


class ConnectionQuotas:
    """The connections and the held bytes that count together: those of all listeners of a broker."""

    __slots__ = (
        "by_address",
        "count",
        "hang_ups",
        "listeners",
        "memory",
        "rate",
        "throttle_ms",
        "turn",
    )

    def __init__(self, throttle_ms: Callable[[str], int] | None = None) -> None:
        """`throttle_ms` counts a new connection of an address, and returns 0 or for how long it has to wait."""
        self.throttle_ms = throttle_ms
        self.turn = ReadTurn()
        self.count = 0
        self.rate = CreationRate()
        self.by_address: dict[str, int] = {}
        self.memory = MemoryPool()
        self.hang_ups = HangUpWatch()
        self.listeners: list[Listener] = []

    def longest_idle(self) -> Connection | None:
        """The connection that was idle for longest, outside of protected listeners."""
        candidates = [each for listener in self.listeners if not listener.protected for each in listener.connections]
        return min(candidates, key=lambda each: each.last_active_s, default=None)


class Listener:
    """One listening socket and its connections."""

    def __init__(
        self,
        name: str,
        on_frame: FrameHandler,
        *,
        limits: Limits,
        on_open: Callable[[Connection], None] | None = None,
        on_close: Callable[[Connection], None] | None = None,
        report: Callable[[str, str], None] | None = None,
        tls: ssl.SSLContext | None = None,
        connection_quotas: ConnectionQuotas | None = None,
    ) -> None:
        """`on_open` is called for each connection before its first request and after its TLS handshake, `on_close` for
        each that ends, `report(kind, text)` for each rejection with the reason.

        Listeners that share a `connection_quotas` share the limits on connections and memory.
        """
        self.name = name
        self.limits = limits
        self.on_frame = on_frame
        self.on_open = on_open
        self.on_close = on_close
        self.protected = False
        """Whether the others make room here while the broker has its max.connections: the brokers' own listener,
        where it is not the only one."""
        self.own = OwnLimits()
        self.report = report or (lambda kind, text: None)
        self.tls = tls
        """The context of new connections; another one may take its place."""
        self.failed_handshakes = 0
        """TLS handshakes that have failed."""
        self.receive_view = memoryview(bytearray(RECEIVE_BUFFER_BYTES))
        self.little_view = self.receive_view[:LITTLE_BYTES]
        self.connections: set[Connection] = set()
        self.connection_quotas = connection_quotas or ConnectionQuotas()
        self.connection_quotas.listeners.append(self)
        self._acceptor = Acceptor(self._take, self._full, self._report_here)
        if tls is not None:
            self._acceptor.at_once = HANDSHAKES_AT_ONCE
        self._rate = CreationRate()
        self._backlog = 0
        self._arriving: set[asyncio.Task[None]] = set()
        self._accepted: dict[Connection, socket.socket] = {}
        """Those whose task has not begun."""
        self._throttled: dict[socket.socket, asyncio.TimerHandle] = {}
        """Those of addresses that open too many."""
        self._sweep: asyncio.TimerHandle | None = None

    async def bind(
        self,
        host: str | None,
        port: int,
        *,
        backlog: int = 511,
        send_buffer_bytes: int | None = None,
        receive_buffer_bytes: int | None = None,
    ) -> int:
        """Bind the address (every one of this machine when None or empty); returns the port, a free one for port 0.

        The buffers are the system's for each connection, which chooses their sizes where they are None. The listener
        answers no request before `serve`. Raises OSError when the address is taken or not this machine's.
        """
        self._backlog = backlog
        found = await self._acceptor.bind(host or None, port)
        self._acceptor.set_buffers(send_buffer_bytes, receive_buffer_bytes)
        return found

    async def serve(self) -> None:
        """Begin to accept connections. Raises RuntimeError before `bind`, OSError when the address is taken."""
        if not self._backlog:
            raise RuntimeError(f"the listener {self.name} has no address yet")
        self._acceptor.start(self._backlog)
        if self.limits.idle_s > 0:
            loop = asyncio.get_running_loop()
            self._sweep = loop.call_later(self.limits.idle_s / 4, self._close_idle)

    def stop_accepting(self) -> None:
        """Accept no new connection; existing ones continue."""
        self._acceptor.close()

    def close(self) -> None:
        """Stop listening and end every connection."""
        self.stop_accepting()
        if self._sweep is not None:
            self._sweep.cancel()
        for task in self._arriving:
            task.cancel()
        for connection, taken in self._accepted.items():
            taken.close()
            self._abandon(connection)
        self._accepted.clear()
        for taken, timer in self._throttled.items():
            timer.cancel()
            taken.close()
        self._throttled.clear()
        for connection in list(self.connections):
            connection.close()
        if self in self.connection_quotas.listeners:
            self.connection_quotas.listeners.remove(self)
        if not self.connection_quotas.listeners:
            self.connection_quotas.hang_ups.close()

    def resume_accepting(self) -> None:
        """Accept waiting connections, if there is room."""
        self._acceptor.resume()

    # ---- accepting

    def _full(self) -> str | None:
        """The reason why none can be accepted now. For a protected listener, close the connection idle for longest."""
        connection_quotas, most, own = self.connection_quotas, self.limits.connections, self.own
        now_s = asyncio.get_running_loop().time()
        rate = self.limits.connections_per_second
        if not self.protected and connection_quotas.rate.too_soon(now_s, rate):
            return f"{rate} have come in this second (max.connection.creation.rate)"
        if self._rate.too_soon(now_s, own.connections_per_second):
            return f"{own.connections_per_second} have come in here this second (max.connection.creation.rate)"
        if len(self.connections) >= own.connections:
            return f"the listener has its {own.connections} connections (max.connections)"
        if connection_quotas.count < most:
            return None
        if self.protected:
            idle = connection_quotas.longest_idle()
            if idle is not None:
                self.report("connection closed for another", f"{idle.name} closed, to make room for another broker's")
                idle.close()
            return None
        return f"the broker has its {most} connections (max.connections)"

    def _take(self, taken: socket.socket, peer: tuple[Any, ...]) -> None:
        throttle_ms = self.connection_quotas.throttle_ms
        if throttle_ms is not None and (delay_ms := throttle_ms(str(peer[0]))) > 0:
            self._close_later(taken, str(peer[0]), delay_ms)
            return
        connection = Connection(self, str(peer[0]), int(peer[1]))
        refusal = self._admit(connection)
        if refusal is not None:
            self.report("connection refused", f"{connection.name} refused: {refusal}")
            taken.close()
            return
        self._accepted[connection] = taken
        task = asyncio.get_running_loop().create_task(self._open(connection, taken))
        self._arriving.add(task)
        task.add_done_callback(self._arriving.discard)

    def _close_later(self, taken: socket.socket, address: str, delay_ms: int) -> None:
        """Close a connection over the quota of its address (connection_creation_rate) after the throttle time, so that
        its client does not connect again at once (KIP-612). Nothing is read from it.
        """
        self.report("connection rate", f"connection from {address} to listener {self.name} throttled for {delay_ms} ms")
        if len(self._throttled) >= MOST_THROTTLED:
            taken.close()
            return

        def close() -> None:
            del self._throttled[taken]
            taken.close()

        self._throttled[taken] = asyncio.get_running_loop().call_later(delay_ms / 1000, close)

    async def _open(self, connection: Connection, taken: socket.socket) -> None:
        """Give the connection its transport; with TLS this takes the handshake."""
        del self._accepted[connection]
        if self.tls is not None:
            await self._open_with_tls(connection, taken, self.tls)
            return
        connection.socket = taken
        try:
            await asyncio.get_running_loop().connect_accepted_socket(lambda: connection, taken)
        except OSError as error:
            self.report("connection refused", f"{connection.name} refused: {error}")
            self._abandon(connection)
        except asyncio.CancelledError:
            self._abandon(connection)
            raise

    async def _open_with_tls(self, connection: Connection, taken: socket.socket, tls: ssl.SSLContext) -> None:
        idle_s = self.limits.idle_s
        try:
            rest = taken.dup()  # the transport closes its own socket when the handshake fails
        except OSError as error:
            self.report("connection refused", f"{connection.name} refused: {error}")
            taken.close()
            self._abandon(connection)
            return
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: connection,
                taken,
                ssl=tls,
                ssl_handshake_timeout=min(HANDSHAKE_TIMEOUT_S, idle_s) if idle_s > 0 else HANDSHAKE_TIMEOUT_S,
                ssl_shutdown_timeout=SHUTDOWN_TIMEOUT_S,
            )
        except OSError as error:  # an SSLError is one, too
            reason = str(error) or "the client closed the connection"
            self.failed_handshakes += not isinstance(error, ConnectionError)  # a client that leaves has not failed
            self.report("connection refused", f"{connection.name} refused: TLS handshake failed: {reason}")
            if alert := getattr(error, "alert", b""):
                await _send_alert(rest, alert)
            self._abandon(connection)
        except asyncio.CancelledError:
            self._abandon(connection)
            raise
        finally:
            rest.close()

    def _abandon(self, connection: Connection) -> None:
        connection.close()
        self.forget(connection)

    def _admit(self, connection: Connection) -> str | None:
        """Count a new connection; returns None, or why it must be closed."""
        address, limits, connection_quotas = connection.address, self.limits, self.connection_quotas
        allowed = limits.connections_by_address.get(address, limits.connections_per_address)
        count = connection_quotas.by_address.get(address, 0)
        if count >= allowed:
            return f"{address} has its {allowed} connections (max.connections.per.ip)"
        connection_quotas.count += 1
        self._rate.came_in()
        if not self.protected:
            connection_quotas.rate.came_in()
        connection_quotas.by_address[address] = count + 1
        self.connections.add(connection)
        return None

    def _report_here(self, kind: str, text: str) -> None:
        self.report(kind, f"listener {self.name}: {text}")

    def forget(self, connection: Connection) -> None:
        """Remove a connection that has ended."""
        if connection not in self.connections:
            return
        self.connections.discard(connection)
        connection_quotas = self.connection_quotas
        connection_quotas.count -= 1
        left = connection_quotas.by_address.get(connection.address, 1) - 1
        if left > 0:
            connection_quotas.by_address[connection.address] = left
        else:
            connection_quotas.by_address.pop(connection.address, None)
        if self.on_close is not None:
            self.on_close(connection)
        for listener in connection_quotas.listeners:
            listener.resume_accepting()

    def hold(self, count: int) -> None:
        """Add `count` to the bytes (fewer, when negative) that are held in memory for connections."""
        self.connection_quotas.memory.hold(count, self.limits.total_bytes)

    @property
    def share_bytes(self) -> int:
        """The limit of one connection: the whole one, or its fair share when all hold too much."""
        limits, connection_quotas = self.limits, self.connection_quotas
        if connection_quotas.memory.held_bytes <= limits.total_bytes:
            return limits.queued_bytes
        return min(limits.queued_bytes, limits.total_bytes // max(1, connection_quotas.count))

    @property
    def held_bytes(self) -> int:
        """Bytes in memory for the connections of all listeners: incomplete requests and answers that wait."""
        return self.connection_quotas.memory.held_bytes

    def _close_idle(self) -> None:
        loop = asyncio.get_running_loop()
        oldest = loop.time() - self.limits.idle_s
        for connection in [each for each in self.connections if each.last_active_s < oldest]:
            if unfinished := connection.unfinished:
                limit = f"{self.limits.idle_s:g} s (connections.max.idle.ms)"
                self.report("idle connection", f"{connection.name} closed: {unfinished}, and nothing for {limit}")
            connection.close()
        self._sweep = loop.call_later(self.limits.idle_s / 4, self._close_idle)


async def _send_alert(sock: socket.socket, alert: bytes) -> None:
    """Send the reason why a handshake failed. If the socket closed at once, data that still arrives would reset the
    connection, and the client might not read the alert.
    """
    with contextlib.suppress(OSError):
        sock.send(alert)
        sock.shutdown(socket.SHUT_WR)
        await asyncio.sleep(ALERT_S)
