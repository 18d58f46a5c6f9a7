"""SASL connections of one listener: from the first frame to the session and its end (Kafka: SaslChannelBuilder,
KafkaChannel).

A connection sends its frames to an authenticator until it is authenticated, and from then on to the dispatcher. Where
sessions end (connections.max.reauth.ms, the life of a token), `SessionGuard` stands between both: a SaslHandshake
request begins a re-authentication, and any other request after the end closes the connection (KIP-368). Connections
without such an end have no guard.

No object here holds its connection, since the connection holds them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from odradek.broker.metrics.authentication_metrics import AuthenticationMetrics
from odradek.broker.runtime.timers import Clock, Timers
from odradek.broker.security.session import Session
from odradek.broker.security.state.sasl import SaslMechanism
from odradek.broker.security.state.sasl_server_authenticator import (
    SASL_HANDSHAKE,
    AnswerApiVersions,
    Authenticated,
    Closed,
    Outcome,
    Previous,
    Rejected,
    Respond,
    SaslServerAuthenticator,
)
from odradek.protocol.framing import frame as with_size
from odradek.protocol.in_flight import Exchange
from odradek.protocol.net import Connection, FrameHandler

log = logging.getLogger(__name__)

REAUTHENTICATION_INTERVAL_NS: Final = 1_000_000_000
"""The shortest time between the beginnings of two re-authentications; sooner ones are refused."""
LONGEST_REASON: Final = 200
_HANDSHAKE_KEY: Final = SASL_HANDSHAKE.to_bytes(2, "big")


@dataclass(frozen=True, slots=True)
class SaslChannels:
    """What the SASL connections of one listener share."""

    mechanisms: Mapping[str, SaslMechanism]
    """By name, in the order of responses."""
    clock: Clock
    timers: Timers
    report: Callable[[str, str], None]
    """Called with the kind and the reason of each failure."""
    on_frame: FrameHandler
    """Receives the requests of authenticated connections."""
    failure_delay_ms: int
    """The delay of the response to a failed authentication (connection.failed.authentication.delay.ms)."""
    most_bytes: int
    """The size limit of a frame before authentication (sasl.server.max.receive.size)."""
    request_bytes: int
    """The size limit of a request (socket.request.max.bytes)."""
    metrics: AuthenticationMetrics

    def open(self, connection: Connection) -> None:
        """Begin the authentication of a new connection."""
        exchange = _Authentication(self, SaslServerAuthenticator(self.mechanisms))
        connection.take_frames(exchange.receive, self.most_bytes)


class _Authentication:
    """The authentication, or re-authentication, of one connection."""

    __slots__ = ("_authenticator", "_begun_ns", "_channels")

    def __init__(self, channels: SaslChannels, authenticator: SaslServerAuthenticator, begun_ns: int = 0) -> None:
        """`begun_ns` is when a re-authentication has begun."""
        self._channels = channels
        self._authenticator = authenticator
        self._begun_ns = begun_ns

    def receive(self, connection: Connection, frame: memoryview) -> None:
        """Handle one frame before the end of the authentication."""
        if self._authenticator.may_block(frame):
            self._evaluate_in_thread(connection, bytes(frame))
            return
        outcome = self._evaluate(connection, bytes(frame))
        if isinstance(outcome, AnswerApiVersions):
            self._channels.on_frame(connection, frame)
        else:
            self._apply(connection, outcome)

    def _evaluate(self, connection: Connection, frame: bytes) -> Outcome:
        try:
            return self._authenticator.receive(frame, self._channels.clock.now_ms())
        except Exception as error:  # only its type is logged: the message may contain what the client has sent
            log.error(
                "authentication failed unexpectedly connection=%s error=%s", connection.peer, type(error).__name__
            )
            return Closed("an unexpected error")

    def _evaluate_in_thread(self, connection: Connection, frame: bytes) -> None:
        """Evaluate a message of a mechanism that may wait for files. The client sends no other frame meanwhile."""
        channels = self._channels
        connection.take_frames(_refuse, channels.most_bytes)

        def ended(evaluated: asyncio.Future[Outcome]) -> None:
            if not connection.closed and not evaluated.cancelled():
                connection.take_frames(self.receive, channels.most_bytes)
                self._apply(connection, evaluated.result())

        loop = asyncio.get_running_loop()
        loop.run_in_executor(None, self._evaluate, connection, frame).add_done_callback(ended)

    def _apply(self, connection: Connection, outcome: Outcome) -> None:
        match outcome:
            case Authenticated():
                self._complete(connection, outcome)
                if outcome.frame is not None:
                    _send(connection, outcome.frame)
            case Rejected():
                self._channels.metrics.failed(again=self._begun_ns > 0)
                self._reject(connection, outcome)
            case Closed():
                self._channels.metrics.failed(again=self._begun_ns > 0)
                connection.refuse("authentication failed", outcome.reason[:LONGEST_REASON])
            case Respond():
                _send(connection, outcome.frame)

    def _complete(self, connection: Connection, outcome: Authenticated) -> None:
        channels = self._channels
        channels.metrics.succeeded(again=self._begun_ns > 0)
        connection.session = Session(outcome.principal, token_authenticated=outcome.token_authenticated)
        on_frame = channels.on_frame
        if outcome.lifetime_ms is not None:
            expires_ns = channels.clock.monotonic_ns() + outcome.lifetime_ms * 1_000_000
            previous = Previous(outcome.mechanism, outcome.principal)
            on_frame = SessionGuard(channels, previous, expires_ns, self._begun_ns).receive
        connection.take_frames(on_frame, channels.request_bytes)

    def _reject(self, connection: Connection, outcome: Rejected) -> None:
        """Respond and close after the delay; until then no request is read."""
        channels = self._channels
        channels.report(
            "authentication failed", f"{connection.name}: authentication failed: {outcome.reason[:LONGEST_REASON]}"
        )
        connection.take_frames(_ignore, channels.most_bytes)
        deadline_ms = channels.clock.monotonic_ms() + channels.failure_delay_ms
        channels.timers.at(deadline_ms, lambda: _finish(connection, outcome.frame))


class SessionGuard:
    """Requests of an authenticated connection whose session ends."""

    __slots__ = ("_begun_ns", "_channels", "_expires_ns", "_previous")

    def __init__(self, channels: SaslChannels, previous: Previous, expires_ns: int, begun_ns: int) -> None:
        """`begun_ns` is when the last re-authentication began; 0 if there was none."""
        self._channels = channels
        self._previous = previous
        self._expires_ns = expires_ns
        self._begun_ns = begun_ns

    def receive(self, connection: Connection, frame: memoryview) -> None:
        """Pass a request on, unless it begins a re-authentication or the session has ended."""
        channels = self._channels
        now_ns = channels.clock.monotonic_ns()
        if frame[:2] == _HANDSHAKE_KEY and self._may_begin(now_ns):
            authenticator = SaslServerAuthenticator(channels.mechanisms, self._previous)
            again = _Authentication(channels, authenticator, now_ns)
            connection.take_frames(again.receive, channels.most_bytes)
            again.receive(connection, frame)
        elif now_ns > self._expires_ns:
            channels.metrics.expired_connections_killed += 1
            connection.refuse("session expired", "the session has expired and the client has not re-authenticated")
        else:
            channels.on_frame(connection, frame)

    def _may_begin(self, now_ns: int) -> bool:
        return not self._begun_ns or now_ns - self._begun_ns >= REAUTHENTICATION_INTERVAL_NS


def _send(connection: Connection, frame: bytes) -> None:
    connection.send(Exchange(connection), [with_size(frame)])


def _finish(connection: Connection, frame: bytes | None) -> None:
    if connection.closed:
        return
    if frame is not None:
        _send(connection, frame)
    connection.close(flush=True)


def _refuse(connection: Connection, frame: memoryview) -> None:
    """Close a connection whose client sends a frame before it has the response to the last one."""
    connection.refuse("authentication failed", "a frame arrived before the response to the one before it")


def _ignore(connection: Connection, frame: memoryview) -> None:
    """Drop what arrives between a failure and its response."""
