"""Metadata store server: serves the embedded tree over ZooKeeper's protocol, so that several brokers on one machine
need no Java.

To its clients it is a standalone ZooKeeper 3.8: kazoo, Kafka's brokers and its ZooKeeper shell. It is for one machine;
a production cluster runs Apache ZooKeeper. It supports what Kafka uses: nodes, ephemeral and sequential ones, access
lists, watches that fire once, transactions, sessions. Containers, nodes that time out and persistent watches are
rejected with ZooKeeper's error codes. With users it serves only clients that authenticate (`server_authentication`).

A request changes or reads the tree when it arrives. Its response, and the watches that it fires, are sent when the
journal has all that they show, in one queue for all clients (`EmbeddedEnsemble.when_settled`). So each client receives
responses in the order of its requests, and the watch of a change before any response that shows it.

Malformed input ends the connection that it came on, and its session lives on until it times out; a body that cannot be
decoded gets a marshalling error, as in ZooKeeper. While a client does not read its responses, the server does not read
its requests.

The zxid in a response is that of the last accepted write. ZooKeeper counts failed writes, too; it logs them, and the
journal does not. Clients send the number back with their watches after a reconnect, and one from before a restart must
not be ahead of the writes to come.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import struct
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple, cast

from odradek.broker.registry import client_wire as wire
from odradek.broker.registry.client_wire import OpCode
from odradek.broker.registry.embedded import EmbeddedEnsemble
from odradek.broker.registry.interface import ConnectionLossError, Event, RegistryError
from odradek.broker.registry.jute import JuteError, JuteReader
from odradek.broker.registry.request_processor import Requester, RequestProcessor
from odradek.broker.registry.server_authentication import ClientAuthentication
from odradek.broker.registry.server_sessions import SessionTracker

DEFAULT_TICK_MS = 2_000
"""ZooKeeper's tickTime: sessions last from 2 to 20 of these."""

_HEADER: Final = struct.Struct(">ii")
_MOST_WAITING_BYTES: Final = 4 * 1024 * 1024
"""Responses of one connection that may wait for the disk."""
_ANSWER_OVERHEAD_BYTES: Final = 1024
"""Added to the length of each response, so that many small ones count, too."""
_MOST_BYTES_AT_ONCE: Final = 1024 * 1024
"""Responses of one connection before the other connections have their turn."""
_GREETING_TIMEOUT_MS: Final = 10_000
"""How long a connection may take to request a session (ZooKeeper's sessionless connection timeout)."""
_CLOSE_GRACE_S: Final = 1.0
"""How long clients have to read the last responses when the server closes."""
_WORDS: Final = (b"ruok", b"srvr")
_ENDING_ERRORS: Final = (wire.AuthFailedError.code, wire.AuthenticationRequiredError.code)
"""The connection ends with a response that has one of these."""

_log = logging.getLogger(__name__)


class Statistics:
    """The numbers that `srvr` returns beside the tree's."""

    __slots__ = ("connections", "received", "sent")

    def __init__(self) -> None:
        self.connections = 0
        self.received = 0
        self.sent = 0


class Service(NamedTuple):
    """The objects that all connections of a server share."""

    ensemble: EmbeddedEnsemble
    sessions: SessionTracker
    processor: RequestProcessor
    statistics: Statistics
    users: Mapping[str, str]


class ServerConnection(asyncio.Protocol):
    """One client's connection, in frames. Its session may outlive it."""

    def __init__(
        self, service: Service, on_made: Callable[[ServerConnection], None], on_lost: Callable[[ServerConnection], None]
    ) -> None:
        self._ensemble, self._sessions, self._processor, self._statistics, self._users = service
        self._on_made = on_made
        self._on_lost = on_lost
        self._transport: asyncio.Transport | None = None
        self._buffer = bytearray()
        self._session_id = 0
        self._authentication = ClientAuthentication(self._users, "")
        self._requester = Requester(0, (), self._send_event)
        self._waiting_bytes = 0
        self._bytes_at_once = 0
        self._is_full = False
        self._is_paused = False
        self._is_refused = False
        self._is_over = False

    @property
    def is_greeted(self) -> bool:
        """Whether the client has sent its ConnectRequest."""
        return self._session_id != 0

    def end(self) -> None:
        """Send nothing more and end the connection."""
        self._is_over = True
        if self._transport is not None:
            self._transport.abort()

    def close(self) -> None:
        """End the connection after the data that was written."""
        self._is_over = True
        if self._transport is not None:
            self._transport.close()

    # Called by the loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        peer = transport.get_extra_info("peername")
        self._authentication = ClientAuthentication(self._users, peer[0] if peer else "")
        self._on_made(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._is_over = True
        self._sessions.leave(self._session_id, self)
        self._on_lost(self)

    def pause_writing(self) -> None:
        self._is_full = True
        self._regulate()

    def resume_writing(self) -> None:
        self._is_full = False
        self._regulate()

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        self._take_packets()

    def _take_packets(self) -> None:
        position = 0
        try:
            while (packet := self._cut(position)) is not None:
                position += wire.LENGTH.size + len(packet)
                self._statistics.received += 1
                if self.is_greeted:
                    self._request(packet)
                else:
                    self._greet(packet)
        except (JuteError, ConnectionLossError) as error:
            _log.info("closing client connection session=%#x error=%s", self._session_id, error)
            self.end()
        del self._buffer[:position]
        if self._bytes_at_once:
            asyncio.get_running_loop().call_soon(self._begin_turn)

    def _begin_turn(self) -> None:
        self._bytes_at_once = 0
        self._regulate()

    def _cut(self, position: int) -> bytes | None:
        """The packet at a position, or None if it has not arrived or has to wait.

        Raises JuteError for an invalid size.
        """
        body = position + wire.LENGTH.size
        if self._is_over or self._is_refused or self._is_paused or len(self._buffer) < body:
            return None
        if not self.is_greeted and bytes(self._buffer[position:body]) in _WORDS:
            self._send_four_letter_response(bytes(self._buffer[position:body]))
            return None
        (size,) = wire.LENGTH.unpack_from(self._buffer, position)
        if not 0 <= size <= wire.MAX_PACKET_BYTES:
            raise JuteError(f"a packet of {size} bytes; at most {wire.MAX_PACKET_BYTES} are allowed")
        if len(self._buffer) < body + size:
            return None
        return bytes(self._buffer[body : body + size])

    def _send_four_letter_response(self, word: bytes) -> None:
        self._write(b"imok" if word == b"ruok" else self._describe().encode())
        self.close()

    # Packets

    def _greet(self, packet: bytes) -> None:
        asked = wire.decode_connect(packet)
        granted = self._sessions.open(asked, self)
        if granted is None:
            refused = asked._replace(timeout_ms=0, session_id=0, password=bytes(wire.PASSWORD_BYTES))
            self._send(wire.encode_connected(refused))
            self._ensemble.when_settled(self.close)
            return
        self._session_id = granted.session_id
        self._requester = Requester(self._session_id, self._authentication.identities, self._send_event)
        self._send(wire.encode_connected(granted))

    def _request(self, packet: bytes) -> None:
        self._sessions.touch(self._session_id)
        source = JuteReader(packet)
        xid, kind = source.take_struct(_HEADER)
        error, body = 0, b""
        try:
            body = self._do(kind, source)
        except JuteError:
            error = wire.MarshallingError.code
        except ConnectionLossError:
            raise
        except RegistryError as refusal:
            error = refusal.code
        is_about_client = kind in (OpCode.AUTH, OpCode.SASL) or error in _ENDING_ERRORS
        self._send(wire.encode_reply(xid, 0 if is_about_client else self._ensemble.committed_zxid, error, body))
        if error in _ENDING_ERRORS:
            self._is_refused = True
            _log.info("rejected unauthenticated client session=%#x error=%d", self._session_id, error)
        if kind == OpCode.CLOSE_SESSION or self._is_refused:
            self._ensemble.when_settled(self.close)

    def _do(self, kind: int, source: JuteReader) -> bytes:
        if kind in (OpCode.AUTH, OpCode.SASL):
            return self._authenticate(kind, source)
        self._authentication.require()
        match kind:
            case OpCode.PING:
                pass
            case OpCode.CLOSE_SESSION:
                self._sessions.close(self._session_id)
            case OpCode.SET_WATCHES | OpCode.SET_WATCHES_2:
                for event in self._processor.set_watches(kind, self._requester, source):
                    self._send(wire.encode_event(event))
            case _:
                return self._processor.process(kind, self._requester, source)
        return b""

    def _authenticate(self, kind: int, source: JuteReader) -> bytes:
        body = b""
        if kind == OpCode.AUTH:
            self._authentication.authenticate(*wire.decode_auth(source))
        else:
            body = wire.encode_token(self._authentication.evaluate(source.take_buffer() or b""))
        self._requester = self._requester._replace(identities=self._authentication.identities)
        return body

    # Output

    def _send_event(self, event: Event) -> None:
        """Send the event of a watch; the queue has reached it."""
        self._write(wire.encode_event(event))

    def _send(self, data: bytes) -> None:
        """Send a frame when all that it shows is durable."""
        self._waiting_bytes += len(data) + _ANSWER_OVERHEAD_BYTES
        self._bytes_at_once += len(data) + _ANSWER_OVERHEAD_BYTES
        self._ensemble.when_settled(functools.partial(self._settled, data))
        self._regulate()

    def _settled(self, data: bytes) -> None:
        self._waiting_bytes -= len(data) + _ANSWER_OVERHEAD_BYTES
        self._write(data)
        self._regulate()

    def _write(self, data: bytes) -> None:
        if not self._is_over and self._transport is not None:
            self._statistics.sent += 1
            self._transport.write(data)

    def _regulate(self) -> None:
        """Read from the client only while it reads its responses, the disk keeps up, and its turn is not used up."""
        wanted = (
            self._is_full or self._waiting_bytes >= _MOST_WAITING_BYTES or self._bytes_at_once >= _MOST_BYTES_AT_ONCE
        )
        if wanted == self._is_paused or self._is_over or self._transport is None:
            return
        self._is_paused = wanted
        if wanted:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()
            asyncio.get_running_loop().call_soon(self._take_packets)

    def _describe(self) -> str:
        tree, _ = self._ensemble.tree_and_watches()
        statistics = self._statistics
        return (
            f"Zookeeper version: 3.8.4 (the protocol; served by Odradek)\n"
            f"Latency min/avg/max: 0/0.0/0\n"
            f"Received: {statistics.received}\n"
            f"Sent: {statistics.sent}\n"
            f"Connections: {statistics.connections}\n"
            f"Outstanding: 0\n"
            f"Zxid: {self._ensemble.committed_zxid:#x}\n"
            f"Mode: standalone\n"
            f"Node count: {sum(1 for _ in tree.nodes())}\n"
        )


class RegistryServer:
    """Serves an ensemble from `start` to `close`. At the start it takes over sessions that have no listener."""

    __slots__ = (
        "_connections",
        "_deserted",
        "_ensemble",
        "_listener",
        "_monotonic_ms",
        "_service",
        "_tick",
        "_tick_ms",
        "_users",
    )

    def __init__(
        self,
        ensemble: EmbeddedEnsemble,
        *,
        tick_ms: int = DEFAULT_TICK_MS,
        monotonic_ms: Callable[[], float] | None = None,
        users: Mapping[str, str] | None = None,
    ) -> None:
        """`monotonic_ms` is the clock of the sessions, by default the loop's. With `users`, names and passwords, only
        they are served.
        """
        self._users = dict(users or {})
        self._ensemble = ensemble
        self._tick_ms = tick_ms
        self._monotonic_ms = monotonic_ms or _loop_ms
        self._connections: dict[ServerConnection, float] = {}
        self._deserted = asyncio.Event()
        self._deserted.set()
        self._service: Service | None = None
        self._listener: asyncio.Server | None = None
        self._tick: asyncio.TimerHandle | None = None

    async def start(self, host: str, port: int) -> int:
        """Listen; returns the port, a free one if `port` is 0. Raises OSError."""
        loop = asyncio.get_running_loop()
        sessions = SessionTracker(self._ensemble, self._tick_ms, self._monotonic_ms)
        processor = RequestProcessor(self._ensemble)
        service = self._service = Service(self._ensemble, sessions, processor, Statistics(), self._users)
        try:
            self._listener = await loop.create_server(
                lambda: ServerConnection(service, self._enter, self._leave), host, port
            )
        except BaseException:
            sessions.detach()
            raise
        self._tick = loop.call_later(self._tick_ms / 1000, self._on_tick)
        bound: int = self._listener.sockets[0].getsockname()[1]
        return bound

    def sweep(self) -> None:
        """Expire sessions whose clients sent nothing for too long, and end connections that never requested one. The
        server calls it once a tick.
        """
        assert self._service is not None
        self._service.sessions.sweep()
        since_ms = self._monotonic_ms() - _GREETING_TIMEOUT_MS
        for connection, made_ms in list(self._connections.items()):
            if not connection.is_greeted and made_ms < since_ms:
                connection.end()

    async def close(self) -> None:
        """End all connections after the responses to pending requests. The sessions stay in the ensemble."""
        if self._listener is None or self._service is None:
            return
        self._listener.close()
        if self._tick is not None:
            self._tick.cancel()
        with contextlib.suppress(ConnectionLossError):
            await self._ensemble.settle()
        self._service.sessions.detach()
        for connection in list(self._connections):
            connection.close()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_CLOSE_GRACE_S):
                await self._deserted.wait()
        for connection in list(self._connections):
            connection.end()
        await self._listener.wait_closed()
        self._listener = None

    def _on_tick(self) -> None:
        self._tick = asyncio.get_running_loop().call_later(self._tick_ms / 1000, self._on_tick)
        self.sweep()

    def _enter(self, connection: ServerConnection) -> None:
        self._connections[connection] = self._monotonic_ms()
        self._deserted.clear()
        self._count()

    def _leave(self, connection: ServerConnection) -> None:
        self._connections.pop(connection, None)
        if not self._connections:
            self._deserted.set()
        self._count()

    def _count(self) -> None:
        assert self._service is not None
        self._service.statistics.connections = len(self._connections)


def _loop_ms() -> float:
    return asyncio.get_running_loop().time() * 1000
