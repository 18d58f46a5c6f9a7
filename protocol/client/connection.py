"""Blocking connection of one thread to a broker (Kafka: NetworkClient, of one node).

The first request is ApiVersions; every other request uses the highest version that both sides support. A request may be
sent before the responses to earlier ones are received: the broker answers in the order of the requests. A connection
belongs to one thread; only `interrupt` may be called by another.

TLS and SASL are those of `security`. A session that ends (connections.max.reauth.ms of the broker) is renewed on the
connection before its end (KIP-368).
"""

from __future__ import annotations

import contextlib
import socket
import struct
import time
from collections import deque
from typing import Any, Final, NamedTuple

from odradek.protocol import messages as m
from odradek.protocol.client.errors import LoginFailedError, UnsupportedRequestError
from odradek.protocol.client.receiving import LARGEST_RESPONSE_BYTES, receive
from odradek.protocol.client.security import PLAINTEXT, ConnectionSecurity
from odradek.protocol.errors import ErrorCode, ProtocolError
from odradek.protocol.framing import frame, request_header, response_header_version

Address = tuple[str, int]
SETUP_TIMEOUT_S: Final = 10.0
"""For a TCP connection and ApiVersions; socket.connection.setup.timeout.ms of Kafka's clients."""
SASL_HANDSHAKE_VERSION: Final = 1
"""The version after which messages of the mechanism are in SaslAuthenticate requests."""
SESSION_SHARE: Final = 0.85
"""The part of a session after which it is renewed; Kafka's clients draw one from 0.85 to 0.95."""
_TLS: Final = (b"\x15\x03", b"\x16\x03")
"""The first bytes of a TLS record: an alert, a handshake."""


class InFlight(NamedTuple):
    """A request without a response."""

    correlation_id: int
    api_key: int
    version: int


class BrokerConnection:
    """An open connection to one broker. Every call raises OSError when the broker does not answer in time."""

    def __init__(
        self,
        address: Address,
        client_id: str,
        security: ConnectionSecurity = PLAINTEXT,
        setup_timeout_s: float = SETUP_TIMEOUT_S,
    ) -> None:
        """Connects, requests the supported versions of the broker, and authenticates.

        Raises OSError, ProtocolError, LoginFailedError.
        """
        self.address = address
        self._client_id = client_id
        self._setup_timeout_s = setup_timeout_s
        self._correlation_id = 0
        self._in_flight: deque[InFlight] = deque()
        self._login = security.login
        self._renewal_s: float | None = None
        try:
            self._socket = socket.create_connection(address, timeout=setup_timeout_s)
        except OSError as error:
            raise ConnectionError(f"{shown(address)} cannot be reached: {error}") from error
        self._versions: dict[int, tuple[int, int]] = {}
        try:
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._socket = security.wrap(self._socket, address[0])
            # Version 0: every broker understands it, older and newer ones.
            answer: m.ApiVersionsResponse = self._exchange(m.ApiVersionsRequest(), 0, setup_timeout_s)
            self._versions = {api.api_key: (api.min_version, api.max_version) for api in answer.api_keys}
            if self._login is not None:
                self._authenticate()
        except BaseException:
            self._socket.close()
            raise

    def ask(self, request: Any, timeout_s: float, highest: int | None = None) -> Any:
        """The response to a request, in the highest version that both sides support and that is not above `highest`.

        Raises OSError (TimeoutError after `timeout_s`), ProtocolError, LoginFailedError, UnsupportedRequestError.
        After any of them but the last the connection is unusable.
        """
        self.send(request, timeout_s, highest)
        return self.receive(timeout_s)

    def send(self, request: Any, timeout_s: float, highest: int | None = None) -> None:
        """Send a request as `ask` does; `receive` returns its response. Raises what `ask` raises."""
        due = self._renewal_s is not None and time.monotonic() >= self._renewal_s
        if due and not self._in_flight:
            self._authenticate()
        self._send(request, self.version_of(request, highest), timeout_s)

    def receive(self, timeout_s: float) -> Any:
        """The response to the earliest request without one. Raises what `ask` raises."""
        expected = self._in_flight.popleft()
        self._socket.settimeout(timeout_s)
        start = self._read(4)
        (size,) = struct.unpack(">i", start)
        if not 4 <= size <= LARGEST_RESPONSE_BYTES:
            hint = "; it uses TLS, and security.protocol does not" if start[:2] in _TLS else ""
            raise ProtocolError("size", 0, f"{shown(self.address)} does not answer in Kafka's protocol{hint}")
        data = self._read(size)
        (correlation_id,) = struct.unpack_from(">i", data)
        if correlation_id != expected.correlation_id:
            raise ProtocolError("correlation_id", 0, f"{correlation_id} answers {expected.correlation_id}")
        key, version = expected.api_key, expected.version
        return m.response_class(key).decode(data, version, 5 if response_header_version(key, version) else 4)

    def version_of(self, request: Any, highest: int | None = None) -> int:
        """The version in which `ask` sends a request. Raises UnsupportedRequestError."""
        ours = request.MAX_VERSION if highest is None else min(highest, request.MAX_VERSION)
        least, most = self._versions.get(request.API_KEY, (0, -1))
        version: int = min(ours, most)
        if version < max(request.MIN_VERSION, least):
            there = f"in versions {least} to {most}" if most >= 0 else "in no version"
            raise UnsupportedRequestError(
                f"the broker at {shown(self.address)} supports {type(request).__name__} {there}, this client in "
                f"{request.MIN_VERSION} to {ours}"
            )
        return version

    def versions(self) -> dict[int, tuple[int, int]]:
        """The lowest and highest version of each API that the broker supports, by API key."""
        return dict(self._versions)

    def interrupt(self) -> None:
        """Fail the blocking call of the connection's thread with an OSError. Any thread may call it."""
        with contextlib.suppress(OSError):  # closed already
            # Of the TCP connection: the method of an SSLSocket would drop the TLS state that the other thread uses.
            socket.socket.shutdown(self._socket, socket.SHUT_RDWR)

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    def _authenticate(self) -> None:
        """Log in, for a session of the length that the broker answers."""
        from odradek.protocol.sasl.exchange import SaslError

        login, begin_s, lifetime_ms = self._login, time.monotonic(), 0
        assert login is not None

        def send(message: bytes) -> bytes:
            nonlocal lifetime_ms
            request = m.SaslAuthenticateRequest(auth_bytes=message)
            version = self.version_of(request)
            answer: m.SaslAuthenticateResponse = self._exchange(request, version, self._setup_timeout_s)
            self._check_login(answer.error_code, answer.error_message)
            lifetime_ms = answer.session_lifetime_ms
            return bytes(answer.auth_bytes)

        handshake = m.SaslHandshakeRequest(mechanism=login.mechanism)
        answer: m.SaslHandshakeResponse = self._exchange(handshake, SASL_HANDSHAKE_VERSION, self._setup_timeout_s)
        self._check_login(answer.error_code, f"the broker has {', '.join(answer.mechanisms)}")
        try:
            login.exchange(send)
        except SaslError as error:
            raise self._failed(str(error)) from error
        self._renewal_s = begin_s + lifetime_ms * SESSION_SHARE / 1000 if lifetime_ms else None

    def _check_login(self, error_code: int, detail: str | None) -> None:
        if error_code:
            raise self._failed(f"{code_of(error_code).name}: {detail}")

    def _failed(self, detail: str) -> LoginFailedError:
        mechanism = self._login.mechanism if self._login is not None else ""
        return LoginFailedError(f"SASL/{mechanism} with {shown(self.address)} failed: {detail}")

    def _exchange(self, request: Any, version: int, timeout_s: float) -> Any:
        self._send(request, version, timeout_s)
        return self.receive(timeout_s)

    def _send(self, request: Any, version: int, timeout_s: float) -> None:
        key = request.API_KEY
        body = request.encode(version)
        self._correlation_id += 1
        self._socket.settimeout(timeout_s)
        self._socket.sendall(frame(request_header(key, version, self._correlation_id, self._client_id), body))
        self._in_flight.append(InFlight(self._correlation_id, key, version))

    def _read(self, size: int) -> bytes:
        closed = f"{shown(self.address)} closed the connection; a listener that requires SASL or TLS does so, too"
        return receive(self._socket, size, closed)


def code_of(number: int) -> ErrorCode:
    """The error code on the wire; an unknown one is UNKNOWN_SERVER_ERROR, as for Kafka's clients."""
    try:
        return ErrorCode(number)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR


def shown(address: Address) -> str:
    """host:port, with brackets around an IPv6 address."""
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
