"""SASL mechanisms of a listener, and the principals of their users (Kafka: DefaultKafkaPrincipalBuilder)."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from odradek.broker.security.state.principals import USER_TYPE, KafkaPrincipal
from odradek.protocol.sasl.exchange import SaslServer


def user_principal(authorization_id: str) -> KafkaPrincipal:
    """The principal of a user name (Kafka: DefaultKafkaPrincipalBuilder)."""
    return KafkaPrincipal(USER_TYPE, authorization_id)


class SaslMechanism(NamedTuple):
    """A mechanism of one listener."""

    name: str
    create: Callable[[], SaslServer]
    """Creates the server of a new exchange. Raises SaslError."""
    max_reauth_ms: int = 0
    """The longest life of a session (connections.max.reauth.ms); 0 sets no end."""
    principal_of: Callable[[str], KafkaPrincipal] = user_principal
    """The principal of an authorization id."""
    blocks: bool = False
    """Whether evaluating a message may wait for a file or a network, so that it needs a thread."""
