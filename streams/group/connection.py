"""Blocking connection of one thread to a broker, and the link to the coordinator of a consumer group.

librdkafka reads and writes the records of an application; requests that it has no call for (joining a group with a
custom assignment, committing as that member) go over this connection, in the messages of `odradek.protocol`. The first
request is ApiVersions; every other request uses the highest version that both sides support. A connection belongs to
one thread; only `interrupt` may be called by another.

TLS and SASL are those of the other clients of the application (`authentication`). A session that ends
(connections.max.reauth.ms of the broker) is renewed on the connection before its end (KIP-368).
"""

from __future__ import annotations

import logging
import socket
import struct
import threading
import time
from collections.abc import Iterable, Iterator
from typing import Any, Final

from odradek.protocol import messages as m
from odradek.protocol.errors import ErrorCode, KafkaError, ProtocolError
from odradek.protocol.framing import frame, request_header, response_header_version
from odradek.protocol.sasl.exchange import SaslError
from odradek.streams.errors import StreamsError
from odradek.streams.group.authentication import PLAINTEXT, AuthenticationFailedError, ConnectionSecurity, Login

log = logging.getLogger(__name__)

Address = tuple[str, int]
SETUP_TIMEOUT_S: Final = 10.0
"""For a TCP connection and ApiVersions; socket.connection.setup.timeout.ms of Kafka's clients."""
LARGEST_ANSWER_BYTES: Final = 100 * 1024 * 1024
GROUP: Final = 0
"""The key type in FindCoordinator."""
ONE_KEY: Final = 3
"""The highest version of FindCoordinator with a single key; every broker supports it."""
METADATA_BY_NAME: Final = 9
SASL_HANDSHAKE_VERSION: Final = 1
"""The version after which messages of the mechanism are in SaslAuthenticate requests."""
SESSION_SHARE: Final = 0.85
"""The part of a session after which it is renewed; Kafka's clients draw one from 0.85 to 0.95."""
_TLS: Final = (b"\x15\x03", b"\x16\x03")
"""The first bytes of a TLS record: an alert, a handshake."""


class VersionsApartError(StreamsError):
    """The broker and this runtime support no common version of a request."""


def parse_bootstrap(servers: str | Iterable[str]) -> list[Address]:
    """The addresses in `bootstrap.servers`: host:port, comma-separated, or a list of them. Raises StreamsError."""
    texts = servers.split(",") if isinstance(servers, str) else list(servers)
    found = []
    for text in (text.strip() for text in texts):
        if not text:
            continue
        host, _, port = text.rpartition("://")[2].rpartition(":")
        if not host or not port.isdigit() or not 0 < int(port) < 65536:
            raise StreamsError(f"bootstrap.servers: {text!r} is not host:port")
        found.append((host.removeprefix("[").removesuffix("]"), int(port)))
    if not found:
        raise StreamsError("bootstrap.servers contains no broker")
    return found


class BrokerConnection:
    """An open connection to one broker. Every call raises OSError when the broker does not answer in time."""

    def __init__(self, address: Address, client_id: str, security: ConnectionSecurity = PLAINTEXT) -> None:
        """Connects, requests the supported versions of the broker, and authenticates.

        Raises OSError, ProtocolError, AuthenticationFailedError.
        """
        self.address = address
        self._client_id = client_id
        self._correlation_id = 0
        self._login = security.login
        self._renewal_s: float | None = None
        try:
            self._socket = socket.create_connection(address, timeout=SETUP_TIMEOUT_S)
        except OSError as error:
            raise ConnectionError(f"{shown(address)} cannot be reached: {error}") from error
        self._versions: dict[int, tuple[int, int]] = {}
        try:
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._socket = security.wrap(self._socket, address[0])
            # Version 0: every broker understands it, older and newer ones.
            answer: m.ApiVersionsResponse = self._exchange(m.ApiVersionsRequest(), 0, SETUP_TIMEOUT_S)
        except BaseException:
            self._socket.close()
            raise
        self._versions = {api.api_key: (api.min_version, api.max_version) for api in answer.api_keys}
        if self._login is not None:
            try:
                self._authenticate(self._login)
            except BaseException:
                self._socket.close()
                raise

    def ask(self, request: Any, timeout_s: float, highest: int | None = None) -> Any:
        """The response to a request, in the highest version that both sides support and that is not above `highest`.

        Raises OSError (TimeoutError after `timeout_s`), ProtocolError, AuthenticationFailedError, VersionsApartError.
        After any of them but the last the connection is unusable.
        """
        if self._login is not None and self._renewal_s is not None and time.monotonic() >= self._renewal_s:
            self._authenticate(self._login)
        return self._exchange(request, self._version(request, highest), timeout_s)

    def interrupt(self) -> None:
        """Fail the blocking call of the connection's thread with an OSError. Any thread may call it."""
        try:
            # Of the TCP connection: the method of an SSLSocket would drop the TLS state that the other thread uses.
            socket.socket.shutdown(self._socket, socket.SHUT_RDWR)
        except OSError:
            log.debug("connection was already closed address=%s", shown(self.address))

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    def _authenticate(self, login: Login) -> None:
        """Log in, for a session of the length that the broker answers."""
        begin_s, lifetime_ms = time.monotonic(), 0

        def send(message: bytes) -> bytes:
            nonlocal lifetime_ms
            request = m.SaslAuthenticateRequest(auth_bytes=message)
            answer: m.SaslAuthenticateResponse = self._exchange(request, self._version(request, None), SETUP_TIMEOUT_S)
            self._check_login(login, answer.error_code, answer.error_message)
            lifetime_ms = answer.session_lifetime_ms
            return bytes(answer.auth_bytes)

        handshake = m.SaslHandshakeRequest(mechanism=login.mechanism)
        answer: m.SaslHandshakeResponse = self._exchange(handshake, SASL_HANDSHAKE_VERSION, SETUP_TIMEOUT_S)
        self._check_login(login, answer.error_code, f"the broker has {', '.join(answer.mechanisms)}")
        try:
            login.exchange(send)
        except SaslError as error:
            raise self._failed(login, str(error)) from error
        self._renewal_s = begin_s + lifetime_ms * SESSION_SHARE / 1000 if lifetime_ms else None

    def _check_login(self, login: Login, error_code: int, detail: str | None) -> None:
        if error_code:
            raise self._failed(login, f"{code_of(error_code).name}: {detail}")

    def _failed(self, login: Login, detail: str) -> AuthenticationFailedError:
        return AuthenticationFailedError(f"SASL/{login.mechanism} with {shown(self.address)} failed: {detail}")

    def _version(self, request: Any, highest: int | None) -> int:
        ours = request.MAX_VERSION if highest is None else min(highest, request.MAX_VERSION)
        least, most = self._versions.get(request.API_KEY, (0, -1))
        version: int = min(ours, most)
        if version < max(request.MIN_VERSION, least):
            raise VersionsApartError(
                f"the broker at {shown(self.address)} supports {type(request).__name__} in versions {least} to {most}, "
                f"this runtime in {request.MIN_VERSION} to {ours}"
            )
        return version

    def _exchange(self, request: Any, version: int, timeout_s: float) -> Any:
        key = request.API_KEY
        self._correlation_id += 1
        head = request_header(key, version, self._correlation_id, self._client_id)
        self._socket.settimeout(timeout_s)
        self._socket.sendall(frame(head, request.encode(version)))
        start = self._read(4)
        (size,) = struct.unpack(">i", start)
        if not 4 <= size <= LARGEST_ANSWER_BYTES:
            hint = "; it uses TLS, and security.protocol does not" if start[:2] in _TLS else ""
            raise ProtocolError("size", 0, f"{shown(self.address)} does not answer in Kafka's protocol{hint}")
        data = self._read(size)
        (correlation_id,) = struct.unpack_from(">i", data)
        if correlation_id != self._correlation_id:
            raise ProtocolError("correlation_id", 0, f"{correlation_id} answers {self._correlation_id}")
        return m.response_class(key).decode(data, version, 5 if response_header_version(key, version) else 4)

    def _read(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            chunk = self._socket.recv(min(size - len(data), 1 << 20))
            if not chunk:
                raise ConnectionResetError(
                    f"{shown(self.address)} closed the connection; a listener that requires SASL or TLS does so, too"
                )
            data += chunk
        return bytes(data)


class CoordinatorLink:
    """The link to the coordinator of a group, found again after it has moved. For one thread; retries nothing.

    Brokers from earlier responses are candidates for FindCoordinator, too, so that an application outlives the brokers
    of its bootstrap list.
    """

    def __init__(
        self,
        bootstrap: list[Address],
        group_id: str,
        client_id: str,
        request_timeout_s: float,
        security: ConnectionSecurity = PLAINTEXT,
    ) -> None:
        self._bootstrap = list(bootstrap)
        self._learned: list[Address] = []
        self._group_id = group_id
        self._client_id = client_id
        self._request_timeout_s = request_timeout_s
        self._security = security
        self._connection: BrokerConnection | None = None
        self._ended = threading.Event()

    def ask(self, request: Any, timeout_s: float | None = None, highest: int | None = None) -> Any:
        """The coordinator's response. `timeout_s` replaces the request timeout.

        Raises OSError when no broker answers, KafkaError when no broker returns the coordinator, and what
        `BrokerConnection.ask` raises. After an error the next call finds the coordinator again.
        """
        connection = self._connection or self._connect()
        try:
            return connection.ask(request, timeout_s or self._request_timeout_s, highest)
        except (OSError, ProtocolError):
            self.forget()
            raise

    def forget(self) -> None:
        """Drop the connection: the coordinator has moved or is unavailable."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def interrupt(self) -> None:
        """Fail the blocking call and all later ones with an OSError. Any thread may call it."""
        self._ended.set()
        connection = self._connection
        if connection is not None:
            connection.interrupt()

    @property
    def ended(self) -> bool:
        """Whether `interrupt` was called."""
        return self._ended.is_set()

    def _connect(self) -> BrokerConnection:
        self._connection = BrokerConnection(self._find(), self._client_id, self._security)
        if self._ended.is_set():  # interrupted while it was opened: `interrupt` has not closed it
            self.forget()
            raise ConnectionAbortedError("the member is closed")
        return self._connection

    def _find(self) -> Address:
        """The address of the coordinator, from the first broker that answers."""
        failure: Exception | None = None
        for address in self._candidates():
            if self._ended.is_set():
                raise ConnectionAbortedError("the member is closed")
            try:
                return self._ask_for_coordinator(address)
            except (OSError, ProtocolError, KafkaError) as error:
                failure = error
        raise failure or OSError("there is no broker address")

    def _candidates(self) -> Iterator[Address]:
        seen: set[Address] = set()
        for address in (*self._learned, *self._bootstrap):
            if address not in seen:
                seen.add(address)
                yield address

    def _ask_for_coordinator(self, address: Address) -> Address:
        connection = BrokerConnection(address, self._client_id, self._security)
        try:
            brokers: m.MetadataResponse = connection.ask(
                m.MetadataRequest(topics=[]), self._request_timeout_s, METADATA_BY_NAME
            )
            self._learned = sorted((broker.host, broker.port) for broker in brokers.brokers)
            request = m.FindCoordinatorRequest(key=self._group_id, key_type=GROUP)
            answer: m.FindCoordinatorResponse = connection.ask(request, self._request_timeout_s, ONE_KEY)
        finally:
            connection.close()
        if answer.error_code:
            raise KafkaError(code_of(answer.error_code), answer.error_message or "")
        return answer.host, answer.port


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
