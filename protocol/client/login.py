"""Logins of a client: a SASL mechanism with its credentials (Kafka: SaslClientAuthenticator, LoginManager)."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from odradek.protocol.client.errors import SecurityConfigError
from odradek.protocol.sasl import oauthbearer, plain, scram_credentials
from odradek.protocol.sasl.exchange import SaslError
from odradek.protocol.sasl.oauthbearer import InitialResponse, OAuthBearerClient
from odradek.protocol.sasl.scram import ScramClient, salted_password
from odradek.protocol.sasl.scram_credentials import Mechanism

SCRAM: Final[Mapping[str, Mechanism]] = {each.name: each for each in scram_credentials.MECHANISMS.values()}
TOKEN_AUTH: Final = "sasl.scram.tokenauth"
"""Whether the user is the id of a delegation token and the password its HMAC: `tokenauth` of Java's ScramLoginModule.

librdkafka has no property for it."""
_NONCE_BYTES: Final = 16

Send = Callable[[bytes], bytes]
"""Sends a message of the mechanism and returns the challenge. Raises OSError, LoginFailedError."""
Exchange = Callable[[Send], None]
"""Authenticates one connection. Raises OSError, SaslError, LoginFailedError."""


@dataclass(frozen=True, slots=True)
class Login:
    """A SASL mechanism with the credentials of the application."""

    mechanism: str
    exchange: Exchange = field(repr=False)


def login_of(mechanism: str, properties: Mapping[str, Any]) -> Login:
    """The login by a mechanism of `security.MECHANISMS`. Raises SecurityConfigError."""
    if mechanism == oauthbearer.MECHANISM:
        from odradek.protocol.client.oidc import token_source  # imported late: it imports a client of HTTP

        token = token_source(properties) or properties.get("oauth_cb")
        if not callable(token):
            raise SecurityConfigError(
                "sasl.mechanism=OAUTHBEARER requires oauth_cb, a function that returns a token, or "
                "sasl.oauthbearer.method=oidc"
            )
        return Login(mechanism, _OAuthBearerExchange(token, properties.get("sasl.oauthbearer.config") or ""))
    user, password = (properties.get(name) for name in ("sasl.username", "sasl.password"))
    if not user or not password:
        raise SecurityConfigError(f"sasl.mechanism={mechanism} requires sasl.username and sasl.password")
    if mechanism == plain.MECHANISM:
        return Login(mechanism, _PlainExchange(user, password))
    token_auth = str(properties.get(TOKEN_AUTH, "false")).lower() == "true"
    return Login(mechanism, _ScramExchange(SCRAM[mechanism], user, password, token_auth))


class _PlainExchange:
    def __init__(self, user: str, password: str) -> None:
        self._message = plain.client_message(user, password)

    def __call__(self, send: Send) -> None:
        send(self._message)


class _ScramExchange:
    """Hashes the password once for each salt."""

    def __init__(self, mechanism: Mechanism, user: str, password: str, token_authenticated: bool) -> None:
        self._mechanism, self._user, self._password = mechanism, user, password
        self._token_authenticated = token_authenticated
        self._salted: tuple[bytes, int, bytes] = (b"", 0, b"")

    def __call__(self, send: Send) -> None:
        nonce = secrets.token_hex(_NONCE_BYTES)
        client = ScramClient(self._mechanism, self._user, nonce, token_authenticated=self._token_authenticated)
        first = client.receive_first(send(client.first_message()))
        salt, iterations, salted = self._salted
        if (salt, iterations) != (first.salt, first.iterations):
            salted = salted_password(self._mechanism, self._password, first.salt, first.iterations)
            self._salted = (first.salt, first.iterations, salted)
        client.receive_final(send(client.final_message(salted)))


class _OAuthBearerExchange:
    """Requests a token for each connection, as librdkafka does it: token, expiry time, principal, extensions."""

    def __init__(self, token: Callable[[str], Any], argument: str) -> None:
        self._token, self._argument = token, argument

    def __call__(self, send: Send) -> None:
        token, _, *more = self._token(self._argument)
        extensions = more[1] if len(more) > 1 else {}
        client = OAuthBearerClient(InitialResponse(token, "", extensions))
        answer = client.receive(send(client.first_message()))
        if answer is not None:
            send(answer)
            raise SaslError("the broker rejects the token")
