"""SASL exchanges: what the server sides of all mechanisms have in common (Kafka: SaslServer,
SaslAuthenticationException).
"""

from __future__ import annotations

from typing import Final, Protocol

AUTHORIZATION_ID_DIFFERS: Final = (
    "Authentication failed: Client requested an authorization id that is different from username"
)


class SaslError(Exception):
    """The exchange has failed. The client receives a text that does not depend on the reason (Kafka: SaslException)."""


class SaslAuthenticationError(SaslError):
    """The exchange has failed, and the client receives this message (Kafka: SaslAuthenticationException)."""


class IllegalSaslStateError(SaslAuthenticationError):
    """A message arrived after the end of the exchange (Kafka: IllegalSaslStateException)."""


class SaslServer(Protocol):
    """The server's side of one exchange."""

    @property
    def complete(self) -> bool:
        """Whether the client is authenticated."""
        ...

    @property
    def authorization_id(self) -> str:
        """The name of the authenticated client."""
        ...

    @property
    def credential_expiry_ms(self) -> int | None:
        """When the credential of the client expires, and the session with it; None if it does not."""
        ...

    @property
    def token_authenticated(self) -> bool:
        """Whether the client has logged in with a delegation token."""
        ...

    def evaluate(self, response: bytes) -> bytes | None:
        """The challenge after a message of the client; None where the exchange ends without one. Raises SaslError."""
        ...
