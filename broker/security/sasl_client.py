"""SASL clients: connections of this broker to others authenticate (Kafka: SaslClientAuthenticator, LoginManager).

A connection authenticates before its first request, with SaslHandshake v1 and SaslAuthenticate. Where the other broker
ends sessions (KIP-368), the connection re-authenticates before the end: requests that are sent meanwhile wait for it,
and responses to earlier requests arrive before those of the exchange.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from random import Random
from typing import Any, Final, Protocol

from odradek.broker.runtime.timers import Clock
from odradek.broker.security.state.gssapi import GssapiClient, GssContext
from odradek.protocol import messages as m
from odradek.protocol.dial import Channel, Connect, OnFrame, OnLost
from odradek.protocol.errors import ErrorCode, ProtocolError
from odradek.protocol.framing import frame, request_header, response_header
from odradek.protocol.sasl import plain
from odradek.protocol.sasl.exchange import SaslError
from odradek.protocol.sasl.scram import ScramClient, salted_password
from odradek.protocol.sasl.scram_credentials import Mechanism

log = logging.getLogger(__name__)

HANDSHAKE_VERSION: Final = 1
AUTHENTICATE_VERSION: Final = 2
FIRST_CORRELATION_ID: Final = 2**31 - 8
"""Correlation ids of the exchange (Kafka: MIN_RESERVED_CORRELATION_ID); requests of the connection have others."""
CLIENT_ID: Final = "sasl"
EARLIEST: Final = 0.85
LATEST: Final = 0.95
"""A session is re-authenticated after a part of its life, between both and different for each connection."""
NONCE_BITS: Final = 160

Send = Callable[[bytes], Awaitable[bytes]]
"""Sends a message of the mechanism and returns the challenge. Raises OSError."""


class SaslClient(Protocol):
    """The client's side of a mechanism, with the credentials of this broker."""

    async def exchange(self, send: Send, host: str) -> None:
        """Authenticate one connection to a host. Raises SaslError, OSError."""
        ...


class PlainClient:
    """SASL/PLAIN."""

    def __init__(self, user: str, password: str) -> None:
        self._message = plain.client_message(user, password)

    async def exchange(self, send: Send, host: str) -> None:
        """Send the password."""
        await send(self._message)


class ScramClients:
    """SCRAM. The password is hashed in a thread, and once for each salt: it takes milliseconds."""

    def __init__(self, mechanism: Mechanism, user: str, password: str, random: Random) -> None:
        self._mechanism = mechanism
        self._user = user
        self._password = password
        self._random = random
        self._salted: tuple[bytes, int, bytes] = (b"", 0, b"")

    async def exchange(self, send: Send, host: str) -> None:
        """Prove the password, and check that the other broker has the credential."""
        client = ScramClient(self._mechanism, self._user, f"{self._random.getrandbits(NONCE_BITS):x}")
        first = client.receive_first(await send(client.first_message()))
        salted = await self._hash(first.salt, first.iterations)
        client.receive_final(await send(client.final_message(salted)))

    async def _hash(self, salt: bytes, iterations: int) -> bytes:
        if self._salted[:2] != (salt, iterations):
            loop = asyncio.get_running_loop()
            arguments = (self._mechanism, self._password, salt, iterations)
            self._salted = (salt, iterations, await loop.run_in_executor(None, salted_password, *arguments))
        return self._salted[2]


class GssapiClients:
    """GSSAPI. The calls of the library run in a thread: they may wait for files, and for the KDC."""

    def __init__(self, initiate: Callable[[str], GssContext]) -> None:
        """`initiate` begins a context with the service on a host."""
        self._initiate = initiate

    async def exchange(self, send: Send, host: str) -> None:
        """Send a ticket for the service on the host, and check that the other broker has its key."""
        loop = asyncio.get_running_loop()
        client = GssapiClient(self._initiate(host))
        message = await loop.run_in_executor(None, client.first_message)
        while not client.complete:
            challenge = await send(message)
            message = await loop.run_in_executor(None, client.evaluate, challenge)
        await send(message)


@dataclass(frozen=True, slots=True)
class SaslConnector:
    """Opens connections to a SASL listener of other brokers."""

    mechanism: str
    client: SaslClient
    clock: Clock
    random: Random

    async def connect(
        self,
        connect: Connect,
        host: str,
        port: int,
        *,
        on_frame: OnFrame,
        on_lost: OnLost,
        frame_bytes: int,
        **options: Any,
    ) -> Channel:
        """Open a connection with `connect` and authenticate it.

        Raises OSError, also where the other broker rejects it.
        """
        channel = SaslClientChannel(self, host, on_frame, on_lost)
        await channel.open(
            await connect(
                host,
                port,
                on_frame=channel.receive,
                on_lost=channel.lost,
                frame_bytes=frame_bytes,
                **options,
            )
        )
        return channel


class SaslClientChannel:
    """A connection that authenticates itself: before the first request, and before each end of its session."""

    def __init__(self, connector: SaslConnector, host: str, on_frame: OnFrame, on_lost: OnLost) -> None:
        """`open` has to follow. `host` is the name to which the connection was opened."""
        self._connector = connector
        self._host = host
        self._on_frame = on_frame
        self._on_lost: OnLost | None = None
        """Called when the connection is lost after it was opened."""
        self._notify_lost = on_lost
        self._channel: Channel | None = None
        self._is_lost = False
        self._expected: asyncio.Future[bytes] | None = None
        """The next frame that belongs to the exchange, after the responses to earlier requests."""
        self._unanswered = 0
        self._correlation_id = FIRST_CORRELATION_ID
        self._due_ns: int | None = None
        """When the session has to be re-authenticated; None if it does not end."""
        self._held: list[bytes] = []
        self._reauthentication: asyncio.Task[None] | None = None

    async def open(self, channel: Channel) -> None:
        """Authenticate a new connection. Raises OSError; the connection is closed then."""
        self._channel = channel
        try:
            if self._is_lost:
                raise ConnectionResetError("the connection was closed before the SASL exchange")
            await self._authenticate()
        except BaseException:
            self.close()
            raise
        self._on_lost = self._notify_lost

    # ---- called by the owner

    def write(self, data: bytes) -> None:
        """Send a request, or keep it while the connection re-authenticates."""
        if self._reauthentication is not None:
            self._held.append(data)
        elif self._due_ns is not None and self._connector.clock.monotonic_ns() >= self._due_ns:
            self._held.append(data)
            self._reauthentication = asyncio.get_running_loop().create_task(self._reauthenticate())
        elif self._channel is not None:
            self._unanswered += 1
            self._channel.write(data)

    def close(self) -> None:
        """End the connection."""
        self._on_lost = None
        if self._reauthentication is not None and self._reauthentication is not asyncio.current_task():
            self._reauthentication.cancel()
        channel, self._channel = self._channel, None
        if channel is not None:
            channel.close()

    # ---- called by the connection

    def receive(self, response: memoryview) -> None:
        """Pass a response on, unless it belongs to the exchange."""
        expected = self._expected
        if expected is not None and not self._unanswered:
            self._expected = None
            if not expected.done():
                expected.set_result(bytes(response))
        else:
            self._unanswered -= 1
            self._on_frame(response)

    def lost(self) -> None:
        """The other broker has closed the connection."""
        self._is_lost = True
        expected, self._expected = self._expected, None
        if expected is not None and not expected.done():
            expected.set_exception(ConnectionResetError("the broker closed the connection during the SASL exchange"))
        elif self._on_lost is not None:
            self._on_lost()

    # ---- the exchange

    async def _reauthenticate(self) -> None:
        try:
            await self._authenticate()
        except OSError as error:
            log.error("re-authentication to another broker failed error=%s", error)
            on_lost = self._on_lost
            self._reauthentication = None
            self.close()
            if on_lost is not None:
                on_lost()
            return
        self._reauthentication = None
        held, self._held = self._held, []
        for data in held:
            self.write(data)

    async def _authenticate(self) -> None:
        """Raises OSError."""
        connector, lifetime_ms = self._connector, 0

        async def send(token: bytes) -> bytes:
            nonlocal lifetime_ms
            request = m.SaslAuthenticateRequest(auth_bytes=token)
            answer: m.SaslAuthenticateResponse = await self._ask(request, AUTHENTICATE_VERSION)
            if answer.error_code:
                raise ConnectionRefusedError(f"{_name(answer.error_code)}: {answer.error_message}")
            lifetime_ms = answer.session_lifetime_ms
            return bytes(answer.auth_bytes)

        handshake = m.SaslHandshakeRequest(mechanism=connector.mechanism)
        answer: m.SaslHandshakeResponse = await self._ask(handshake, HANDSHAKE_VERSION)
        if answer.error_code:
            enabled = ", ".join(answer.mechanisms)
            raise ConnectionRefusedError(
                f"{_name(answer.error_code)}: SASL/{connector.mechanism}; the broker has: {enabled}"
            )
        begin_ns = connector.clock.monotonic_ns()
        try:
            await connector.client.exchange(send, self._host)
        except SaslError as error:
            raise ConnectionRefusedError(f"SASL/{connector.mechanism} failed: {error}") from error
        except OSError:
            raise
        except Exception as error:  # only its type is named: the message may contain a secret
            raise ConnectionRefusedError(
                f"SASL/{connector.mechanism} failed unexpectedly: {type(error).__name__}"
            ) from None
        part = EARLIEST + (LATEST - EARLIEST) * connector.random.random()
        self._due_ns = begin_ns + int(lifetime_ms * part * 1_000_000) if lifetime_ms > 0 else None

    async def _ask(self, request: Any, version: int) -> Any:
        """The response of the exchange. Raises OSError."""
        key = request.API_KEY
        number = self._correlation_id = FIRST_CORRELATION_ID | self._correlation_id + 1 & 7
        channel = self._channel
        if channel is None or self._is_lost:
            raise ConnectionResetError("the connection is closed")
        expected = self._expected = asyncio.get_running_loop().create_future()
        channel.write(frame(request_header(key, version, number, CLIENT_ID), request.encode(version)))
        data = await expected
        head = response_header(key, version, number)
        if not data.startswith(head):
            raise ConnectionResetError("the broker sent a response that does not belong to the SASL exchange")
        try:
            return m.response_class(key).decode(data, version, len(head))
        except (ProtocolError, IndexError) as error:
            raise ConnectionResetError(f"the broker sent an invalid response: {error}") from error


def _name(code: int) -> str:
    """The name of an error code; its number if this broker does not have it."""
    try:
        return ErrorCode(code).name
    except ValueError:
        return str(code)
