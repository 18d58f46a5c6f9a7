"""SASL/OAUTHBEARER, RFC 7628 (Kafka: OAuthBearerClientInitialResponse, OAuthBearerSaslServer, OAuthBearerSaslClient).

    client: n,,^Aauth=Bearer TOKEN^Aname=value^A^A     server: empty, or a JSON object with the error
    client, after an error: ^A                         server: the exchange has failed

The validation of tokens is a function of the caller: `jwt.TokenValidator`, or one for unsecured tokens.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from odradek.protocol.sasl.exchange import IllegalSaslStateError, SaslAuthenticationError, SaslError

MECHANISM: Final = "OAUTHBEARER"
SEPARATOR: Final = "\x01"
AUTH_KEY: Final = "auth"

_SASLNAME: Final = r"(?:[\x01-\x2b\x2d-\x3c\x3e-\x7f]|=2C|=3D)+"
_KEY: Final = re.compile(r"[A-Za-z]+")
_VALUE: Final = re.compile(r"[\x21-\x7e \t\r\n]+")
_INITIAL_RESPONSE: Final = re.compile(
    rf"n,(?:a=(?P<authzid>{_SASLNAME}))?,\x01(?P<pairs>(?:{_KEY.pattern}={_VALUE.pattern}\x01)*)\x01"
)
_AUTH: Final = re.compile(r"(?P<scheme>[A-Za-z0-9_]+) +(?P<token>[-_.+~/a-zA-Z0-9]+=*)")
_INVALID: Final = "Invalid OAUTHBEARER client first message"


class OAuthBearerToken(NamedTuple):
    """A valid token."""

    principal_name: str
    lifetime_ms: int
    """When it expires."""
    start_time_ms: int | None
    scope: frozenset[str]


class TokenRejectedError(Exception):
    """The token is not valid; the client receives the status."""

    def __init__(self, reason: str, status: str = "invalid_token", scope: str | None = None) -> None:
        super().__init__(reason)
        self.status = status
        self.scope = scope


class InitialResponse(NamedTuple):
    """The client's first message."""

    token: str
    authorization_id: str = ""
    extensions: Mapping[str, str] = {}

    def encode(self) -> bytes:
        """The message. Raises SaslError if an extension has a name or a value that the message cannot contain."""
        _validate_extensions(self.extensions)
        authorization_id = f"a={self.authorization_id}" if self.authorization_id else ""
        pairs = "".join(f"{name}={value}{SEPARATOR}" for name, value in self.extensions.items())
        return f"n,{authorization_id},{SEPARATOR}auth=Bearer {self.token}{SEPARATOR}{pairs}{SEPARATOR}".encode()

    @classmethod
    def decode(cls, message: bytes) -> InitialResponse:
        """Raises SaslError, without the message: it contains a token."""
        found = _INITIAL_RESPONSE.fullmatch(message.decode("utf-8", "replace"))
        if found is None:
            raise SaslError(_INVALID)
        pairs = dict(each.partition("=")[::2] for each in found["pairs"].split(SEPARATOR) if each)
        auth = pairs.pop(AUTH_KEY, None)
        if auth is None:
            raise SaslError(f"{_INVALID}: 'auth' not specified")
        parts = _AUTH.fullmatch(auth)
        if parts is None:
            raise SaslError(f"{_INVALID}: invalid 'auth' format")
        if parts["scheme"].lower() != "bearer":
            raise SaslError(f"Invalid scheme in OAUTHBEARER client first message: {parts['scheme']}")
        return cls(parts["token"], found["authzid"] or "", pairs)


def _validate_extensions(extensions: Mapping[str, str]) -> None:
    for name, value in extensions.items():
        if name == AUTH_KEY or not _KEY.fullmatch(name):
            raise SaslError(f"Extension name {name} is invalid")
        if not _VALUE.fullmatch(value):
            raise SaslError(f"Extension value ({value}) for extension {name} is invalid")


class OAuthBearerServer:
    """The server's side of one exchange."""

    token_authenticated = False

    def __init__(self, validate: Callable[[str], OAuthBearerToken]) -> None:
        """`validate` returns the contents of a token; it raises TokenRejectedError."""
        self.token: OAuthBearerToken | None = None
        """The token of a client that is authenticated."""
        self.extensions: Mapping[str, str] = {}
        self._validate = validate
        self._error: str | None = None
        self._rejected: TokenRejectedError | None = None

    @property
    def complete(self) -> bool:
        """Whether the client is authenticated."""
        return self.token is not None

    @property
    def authorization_id(self) -> str:
        """The principal name in the token; empty before the end."""
        return self.token.principal_name if self.token is not None else ""

    @property
    def credential_expiry_ms(self) -> int | None:
        """When the token expires."""
        return self.token.lifetime_ms if self.token is not None else None

    def evaluate(self, response: bytes) -> bytes:
        """Empty after a success, otherwise the error, which the client has to acknowledge. Raises SaslError."""
        if self.complete:
            raise IllegalSaslStateError("Unexpected message after the end of SASL/OAUTHBEARER")
        if self._error is not None and response == SEPARATOR.encode():
            raise SaslAuthenticationError(self._error) from self._rejected
        self._error = self._rejected = None
        message = InitialResponse.decode(response)
        try:
            token = self._validate(message.token)
        except TokenRejectedError as error:
            self._error, self._rejected = _error_response(error.status, error.scope), error
            return self._error.encode()
        if message.authorization_id not in ("", token.principal_name):
            raise SaslAuthenticationError(
                f"Authentication failed: Client requested an authorization id ({message.authorization_id}) that is "
                f"different from the token's principal name ({token.principal_name})"
            )
        self.token, self.extensions = token, message.extensions
        return b""


def _error_response(status: str, scope: str | None) -> str:
    parts = {"status": status} | ({"scope": scope} if scope is not None else {})
    return json.dumps(parts, separators=(", ", ":"))


class OAuthBearerClient:
    """The client's side of one exchange, for connections to other brokers."""

    def __init__(self, message: InitialResponse) -> None:
        self.complete = False
        self._message = message
        self._failed = False

    def first_message(self) -> bytes:
        """The message that begins the exchange. Raises SaslError."""
        return self._message.encode()

    def receive(self, challenge: bytes) -> bytes | None:
        """None after a success; otherwise the acknowledgment of the error, after which the server closes."""
        if self.complete or self._failed:
            raise IllegalSaslStateError("Unexpected challenge after the end of SASL/OAUTHBEARER")
        if challenge:
            self._failed = True
            return SEPARATOR.encode()
        self.complete = True
        return None
