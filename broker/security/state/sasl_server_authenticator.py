"""SASL server authenticator: the requests of a connection before it is authenticated (Kafka: SaslServerAuthenticator).

    ApiVersions (optional), SaslHandshake v1, SaslAuthenticate until the exchange is complete
    ApiVersions (optional), SaslHandshake v0, then the messages of the mechanism as frames without headers
    messages of GSSAPI as frames without headers (clients of Kafka 0.9)

States, order of checks and error messages are Kafka's. `receive` takes one frame and returns what to do: `Respond`,
`AnswerApiVersions`, `Authenticated`, `Rejected` or `Closed`. A new authenticator with `Previous` re-authenticates a
connection (KIP-368): its principal and its mechanism must not change.

Kafka parses a request of any API in the middle of an exchange, to answer it with ILLEGAL_SASL_STATE. Here only the
small requests ApiVersions and SaslHandshake get that response; for others there is none, so that a client without
credentials reaches no other decoder.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from enum import Enum, auto
from typing import Any, Final, NamedTuple

from odradek.broker.security.state import gssapi
from odradek.broker.security.state.principals import KafkaPrincipal
from odradek.broker.security.state.sasl import SaslMechanism
from odradek.protocol import client_software
from odradek.protocol import messages as m
from odradek.protocol.errors import ErrorCode, ProtocolError
from odradek.protocol.framing import RequestHeader, read_request_header, response_header
from odradek.protocol.sasl.exchange import SaslAuthenticationError, SaslError, SaslServer

SASL_HANDSHAKE: Final = 17
API_VERSIONS: Final = 18
SASL_AUTHENTICATE: Final = 36
HEADERS_FROM: Final = 1
"""The first version of SaslHandshake after which messages of the mechanism are SaslAuthenticate requests."""
LIFETIME_FROM: Final = 1
"""The first version of SaslAuthenticate whose response contains the lifetime of the session."""
MOST_API_VERSIONS_BYTES: Final = 40960
"""The largest ApiVersions request, with the longest client id; one with many tagged fields is larger."""
MOST_FRAMES: Final = 16
"""Of one authentication. Kafka answers any number of invalid ApiVersions requests, and checks any number of tokens of
one OAUTHBEARER exchange without the delay for failures. No client needs half as many frames.
"""
GSS_TOKEN: Final = b"\x60"
"""The first byte of a client's first token (RFC 2743, 3.1). No API key begins with it."""
_UNREADABLE: Final = (ProtocolError, struct.error, IndexError, ValueError)


class SaslState(Enum):
    """What a connection waits for; names are Kafka's."""

    INITIAL_REQUEST = auto()
    HANDSHAKE_OR_VERSIONS_REQUEST = auto()
    HANDSHAKE_REQUEST = auto()
    AUTHENTICATE = auto()
    COMPLETE = auto()
    FAILED = auto()
    REAUTH_PROCESS_HANDSHAKE = auto()
    REAUTH_BAD_MECHANISM = auto()


class Respond(NamedTuple):
    """Send a frame; the exchange continues."""

    frame: bytes


class AnswerApiVersions(NamedTuple):
    """The frame is an ApiVersions request that has to be answered as on every other connection."""


class Authenticated(NamedTuple):
    """Send a frame, if there is one; the exchange is complete."""

    frame: bytes | None
    mechanism: str
    principal: KafkaPrincipal
    token_authenticated: bool
    lifetime_ms: int | None
    """How long the session lasts; None for as long as the connection."""


class Rejected(NamedTuple):
    """The authentication has failed: after the delay for failures send the frame, if there is one, and close."""

    frame: bytes | None
    reason: str


class Closed(NamedTuple):
    """Close the connection at once."""

    reason: str


Outcome = Respond | AnswerApiVersions | Authenticated | Rejected | Closed


class Previous(NamedTuple):
    """The session that is to be re-authenticated."""

    mechanism: str
    principal: KafkaPrincipal


class SaslServerAuthenticator:
    """One authentication of one connection."""

    __slots__ = (
        "_bad_mechanism",
        "_frames",
        "_has_headers",
        "_mechanism",
        "_mechanisms",
        "_previous",
        "_server",
        "state",
    )

    def __init__(self, mechanisms: Mapping[str, SaslMechanism], previous: Previous | None = None) -> None:
        """`mechanisms` are those of the listener by name, in the order of responses."""
        self._mechanisms = mechanisms
        self._previous = previous
        self._mechanism: SaslMechanism | None = None
        self._server: SaslServer | None = None
        self._has_headers = False
        self._bad_mechanism = ""
        self._frames = 0
        self.state = SaslState.INITIAL_REQUEST if previous is None else SaslState.REAUTH_PROCESS_HANDSHAKE

    def may_block(self, frame: memoryview) -> bool:
        """Whether `receive` may wait for a file or a network, so that it needs a thread."""
        if self.state is SaslState.AUTHENTICATE:
            return self._mechanism is not None and self._mechanism.blocks
        return self._begins_with_token(frame)

    def _begins_with_token(self, frame: bytes | memoryview) -> bool:
        """Whether a client of Kafka 0.9 begins: it sends a Kerberos token without SaslHandshake."""
        return (
            self.state is SaslState.INITIAL_REQUEST and frame[:1] == GSS_TOKEN and gssapi.MECHANISM in self._mechanisms
        )

    @property
    def _authentication(self) -> str:
        return "authentication" if self._previous is None else "re-authentication"

    def receive(self, frame: bytes, now_ms: int) -> Outcome:
        """Evaluate one frame, without its size. `now_ms` is the time of the wall clock."""
        outcome = self._receive(frame, now_ms)
        if isinstance(outcome, Rejected | Closed):
            self.state = SaslState.FAILED
        elif isinstance(outcome, Authenticated):
            self.state = SaslState.COMPLETE
        return outcome

    def _receive(self, frame: bytes, now_ms: int) -> Outcome:
        if self.state is SaslState.REAUTH_BAD_MECHANISM:
            return Rejected(None, self._bad_mechanism)
        if self.state in (SaslState.COMPLETE, SaslState.FAILED):
            return Closed(f"a request after the end of the {self._authentication}")
        self._frames += 1
        if self._frames > MOST_FRAMES:
            return Closed(f"more than {MOST_FRAMES} requests of one {self._authentication}")
        if self._begins_with_token(frame):
            self._begin(self._mechanisms[gssapi.MECHANISM])
        elif self.state is not SaslState.AUTHENTICATE:
            return self._receive_request(frame)
        return self._receive_authenticate(frame, now_ms) if self._has_headers else self._receive_token(frame, now_ms)

    # ---- before the exchange

    def _receive_request(self, frame: bytes) -> Outcome:
        try:
            header = read_request_header(frame)
            if header.api_key not in (API_VERSIONS, SASL_HANDSHAKE):
                return Closed(f"an unexpected request of API key {header.api_key} during SASL handshake")
            if header.api_key == API_VERSIONS:
                return self._receive_api_versions(header, frame)
            request = m.SaslHandshakeRequest.decode(frame, header.version, header.body)
        except _UNREADABLE:
            return Closed("the request is invalid; is security.protocol of the client that of the listener?")
        return self._receive_handshake(header, request)

    def _receive_api_versions(self, header: RequestHeader, frame: bytes) -> Outcome:
        if self.state not in (SaslState.INITIAL_REQUEST, SaslState.HANDSHAKE_OR_VERSIONS_REQUEST):
            return Closed(f"an unexpected ApiVersions request in the state {self.state.name}")
        if len(frame) > MOST_API_VERSIONS_BYTES:
            return Closed(f"an ApiVersions request of {len(frame)} bytes; {MOST_API_VERSIONS_BYTES} are allowed")
        self.state = SaslState.HANDSHAKE_OR_VERSIONS_REQUEST
        if m.ApiVersionsRequest.MIN_VERSION <= header.version <= m.ApiVersionsRequest.MAX_VERSION:
            request = m.ApiVersionsRequest.decode(frame, header.version, header.body)
            if client_software.is_valid(request, header.version):
                self.state = SaslState.HANDSHAKE_REQUEST
        return AnswerApiVersions()

    def _receive_handshake(self, header: RequestHeader, request: m.SaslHandshakeRequest) -> Outcome:
        name, mechanisms = request.mechanism, list(self._mechanisms)
        self._has_headers = header.version >= HEADERS_FROM
        mechanism = self._mechanisms.get(name)
        if mechanism is None:
            reason = f"Unsupported SASL mechanism {name[:64]!r}"
            if self._previous is not None:
                return Closed(reason)
            unsupported = ErrorCode.UNSUPPORTED_SASL_MECHANISM
            response = m.SaslHandshakeResponse(error_code=unsupported, mechanisms=mechanisms)
            return Rejected(_encode(header, response), reason)
        if self._previous is not None and self._previous.mechanism != name:
            self._bad_mechanism = (
                f"SASL mechanism '{name}' requested by client is not supported for re-authentication of mechanism "
                f"'{self._previous.mechanism}'"
            )
            self.state = SaslState.REAUTH_BAD_MECHANISM
        else:
            try:
                self._begin(mechanism)
            except SaslError as error:
                return Closed(f"SASL/{name} is not available: {error}")
        return Respond(_encode(header, m.SaslHandshakeResponse(mechanisms=mechanisms)))

    def _begin(self, mechanism: SaslMechanism) -> None:
        """Raises SaslError."""
        self._server = mechanism.create()
        self._mechanism, self.state = mechanism, SaslState.AUTHENTICATE

    # ---- the exchange

    def _receive_token(self, token: bytes, now_ms: int) -> Outcome:
        """A message without a header, after SaslHandshake v0."""
        server = self._require_server()
        try:
            challenge = server.evaluate(token)
            self._require_same_principal(server)
        except SaslAuthenticationError as error:
            return Rejected(None, _reason(error))
        except SaslError as error:
            return Closed(str(error))
        lifetime_ms = self._lifetime_ms(server, now_ms)
        return self._authenticated(server, challenge, lifetime_ms) or Respond(challenge or b"")

    def _receive_authenticate(self, frame: bytes, now_ms: int) -> Outcome:
        try:
            header = read_request_header(frame)
            if header.api_key != SASL_AUTHENTICATE:
                return self._reject_other_request(header, frame)
            request = m.SaslAuthenticateRequest.decode(frame, header.version, header.body)
        except _UNREADABLE:
            return Closed(f"an invalid request during SASL {self._authentication}")
        server = self._require_server()
        try:
            challenge = server.evaluate(bytes(request.auth_bytes))
            self._require_same_principal(server)
        except SaslAuthenticationError as error:
            return self._fail(header, str(error), _reason(error))
        except SaslError as error:
            mechanism = self._mechanism.name if self._mechanism is not None else ""
            text = f"Authentication failed during {self._authentication} due to invalid credentials with SASL mechanism"
            return self._fail(header, f"{text} {mechanism}", str(error))
        lifetime_ms = self._lifetime_ms(server, now_ms)
        response = m.SaslAuthenticateResponse(auth_bytes=challenge or b"")
        if header.version >= LIFETIME_FROM:
            response.session_lifetime_ms = lifetime_ms or 0
        data = _encode(header, response)
        return self._authenticated(server, data, lifetime_ms) or Respond(data)

    def _reject_other_request(self, header: RequestHeader, frame: bytes) -> Outcome:
        reason = f"an unexpected request of API key {header.api_key} during SASL authentication"
        illegal = ErrorCode.ILLEGAL_SASL_STATE
        if header.api_key == SASL_HANDSHAKE:
            m.SaslHandshakeRequest.decode(frame, header.version, header.body)
            return Rejected(_encode(header, m.SaslHandshakeResponse(error_code=illegal)), reason)
        if header.api_key == API_VERSIONS and len(frame) <= MOST_API_VERSIONS_BYTES:
            if m.ApiVersionsRequest.MIN_VERSION <= header.version <= m.ApiVersionsRequest.MAX_VERSION:
                m.ApiVersionsRequest.decode(frame, header.version, header.body)
            else:
                header = header._replace(version=0)
            return Rejected(_encode(header, m.ApiVersionsResponse(error_code=illegal)), reason)
        return Rejected(None, reason)

    def _fail(self, header: RequestHeader, message: str, reason: str) -> Rejected:
        failed = ErrorCode.SASL_AUTHENTICATION_FAILED
        response = m.SaslAuthenticateResponse(error_code=failed, error_message=message)
        return Rejected(_encode(header, response), reason)

    def _require_server(self) -> SaslServer:
        assert self._server is not None
        return self._server

    def _require_same_principal(self, server: SaslServer) -> None:
        """Raises SaslAuthenticationError if the connection would get another principal."""
        if self._previous is None or not server.complete:
            return
        before, after = self._previous.principal, self._principal(server)
        if before != after:
            raise SaslAuthenticationError(
                "Cannot change principals during re-authentication from "
                f"{before.principal_type}.{before.name}: {after.principal_type}.{after.name}"
            )

    def _principal(self, server: SaslServer) -> KafkaPrincipal:
        assert self._mechanism is not None
        return self._mechanism.principal_of(server.authorization_id)

    def _lifetime_ms(self, server: SaslServer, now_ms: int) -> int | None:
        """The shorter of the mechanism's longest session and the rest of the credential's life."""
        assert self._mechanism is not None
        limits = [self._mechanism.max_reauth_ms] if self._mechanism.max_reauth_ms > 0 else []
        if server.complete and server.credential_expiry_ms is not None:
            limits.append(server.credential_expiry_ms - now_ms)
        return max(0, min(limits)) if limits and server.complete else None

    def _authenticated(self, server: SaslServer, frame: bytes | None, lifetime_ms: int | None) -> Authenticated | None:
        if not server.complete:
            return None
        assert self._mechanism is not None
        principal = self._principal(server)
        return Authenticated(frame, self._mechanism.name, principal, server.token_authenticated, lifetime_ms)


def _reason(error: SaslError) -> str:
    """The reason for the log, which may contain more than the message that the client receives."""
    return f"{error} ({error.__cause__})" if error.__cause__ is not None else str(error)


def _encode(header: RequestHeader, response: Any) -> bytes:
    body: bytes = response.encode(header.version)
    return response_header(header.api_key, header.version, header.correlation_id) + body
