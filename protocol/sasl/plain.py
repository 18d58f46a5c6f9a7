"""SASL/PLAIN, RFC 4616: a user's name and password in one message (Kafka: PlainSaslServer, PlainServerCallbackHandler).

    [authorization id] NUL user NUL password

Only a TLS listener keeps the password secret. The authorization id is empty or the user's name.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable, Mapping
from typing import Final

from odradek.protocol.sasl.exchange import AUTHORIZATION_ID_DIFFERS, IllegalSaslStateError, SaslAuthenticationError

MECHANISM: Final = "PLAIN"
USER_PREFIX: Final = "user_"
"""Of the JAAS options with the users of a listener: `user_alice="secret"`."""
_TOKENS: Final = 3
_NO_PASSWORD: Final = b"no password"
"""Compared in place of the password of a user that does not exist."""

PasswordCheck = Callable[[str, str], bool]
"""Whether a user has a password."""


class PlainServer:
    """The server's side of one exchange, which is one message."""

    credential_expiry_ms = None
    token_authenticated = False

    def __init__(self, check: PasswordCheck) -> None:
        self.complete = False
        self.authorization_id = ""
        self._check = check

    def evaluate(self, response: bytes) -> bytes:
        """The empty challenge after a success. Raises SaslAuthenticationError."""
        if self.complete:
            raise IllegalSaslStateError("Unexpected message after the end of SASL/PLAIN")
        tokens = response.decode("utf-8", "replace").split("\0", _TOKENS)
        if len(tokens) != _TOKENS:
            raise SaslAuthenticationError(f"Invalid SASL/PLAIN response: expected 3 tokens, got {len(tokens)}")
        authorization_id, user, password = tokens
        if not user:
            raise SaslAuthenticationError("Authentication failed: username not specified")
        if not password:
            raise SaslAuthenticationError("Authentication failed: password not specified")
        if not self._check(user, password):
            raise SaslAuthenticationError("Authentication failed: Invalid username or password")
        if authorization_id not in ("", user):
            raise SaslAuthenticationError(AUTHORIZATION_ID_DIFFERS)
        self.authorization_id, self.complete = user, True
        return b""


def client_message(user: str, password: str) -> bytes:
    """The message of a client (Kafka: PlainSaslClient of the JDK)."""
    return f"\0{user}\0{password}".encode()


def password_check(options: Mapping[str, str]) -> PasswordCheck:
    """The check against the users in the JAAS options of a listener.

    The time of a comparison does not depend on the password (CVE-2021-38153), nor on whether the user exists.
    """
    passwords = {
        name.removeprefix(USER_PREFIX): password.encode()
        for name, password in options.items()
        if name.startswith(USER_PREFIX)
    }

    def check(user: str, password: str) -> bool:
        expected = passwords.get(user)
        equal = hmac.compare_digest(_NO_PASSWORD if expected is None else expected, password.encode())
        return equal and expected is not None

    return check
