"""SASL: what the server sides of all mechanisms have in common (Kafka: SaslServer, SaslAuthenticationException)."""

from __future__ import annotations

from typing import Final

AUTHORIZATION_ID_DIFFERS: Final = (
    "Authentication failed: Client requested an authorization id that is different from username"
)


class SaslError(Exception):
    """The exchange has failed. The client receives a text that does not depend on the reason (Kafka: SaslException)."""


class SaslAuthenticationError(SaslError):
    """The exchange has failed, and the client receives this message (Kafka: SaslAuthenticationException)."""


class IllegalSaslStateError(SaslAuthenticationError):
    """A message arrived after the end of the exchange (Kafka: IllegalSaslStateException)."""
