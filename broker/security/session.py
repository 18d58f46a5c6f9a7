"""Session: the authenticated identity at the other end of a connection (Kafka: RequestContext, RequestChannel.Session).

A connection gets its session when it is open (PLAINTEXT, TLS) or when its SASL exchange is complete. Connections of one
listener without authentication share one session.
"""

from __future__ import annotations

from typing import Final

from odradek.broker.security.state.principals import ANONYMOUS, KafkaPrincipal


class Session:
    """An identity, and how it was proved."""

    __slots__ = ("is_broker_itself", "name", "principal", "token_authenticated")

    def __init__(
        self, principal: KafkaPrincipal, *, token_authenticated: bool = False, is_broker_itself: bool = False
    ) -> None:
        """`token_authenticated` for a login with a delegation token, which may not create others.

        `is_broker_itself` for requests that this broker sends to itself without a socket.
        """
        self.principal = principal
        self.name = str(principal)
        """As text: `User:alice`."""
        self.token_authenticated = token_authenticated
        self.is_broker_itself = is_broker_itself

    @property
    def allows_token_requests(self) -> bool:
        """Whether requests for delegation tokens are allowed: not without authentication, and not after a login with
        such a token (Kafka: KafkaApis.allowTokenRequests).
        """
        return not self.token_authenticated and self.principal != ANONYMOUS


ANONYMOUS_SESSION: Final = Session(ANONYMOUS)
OWN_SESSION: Final = Session(ANONYMOUS, is_broker_itself=True)
"""Requests of a broker to itself. Every operation is allowed to them."""
