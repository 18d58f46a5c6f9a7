"""Messages of SCRAM, RFC 5802 as far as Kafka implements it (Kafka: ScramMessages, ScramExtensions).

There is no channel binding (gs2 header "n" only). Extensions are parsed, and only `tokenauth` has a meaning. As in
Kafka, the signed text of a client's final message has no extensions. The signed text of its first message is what the
client sent; Kafka rebuilds it, with several extensions in the order of a hash map.
"""

from __future__ import annotations

import base64
import re
from typing import Final, NamedTuple

from odradek.protocol.sasl.exchange import SaslError

TOKEN_AUTH: Final = "tokenauth"
GS2_HEADER: Final = b"n,,"
MOST_ITERATIONS_DIGITS: Final = 10
MOST_BYTES: Final = 32 * 1024
"""Of a message. A client's longest holds a name of some hundred bytes; half a megabyte, which
`sasl.server.max.receive.size` allows, would occupy the event loop for 0.15 s.
"""

_VALUE_SAFE: Final = r"[\x01-\x2b\x2d-\x3c\x3e-\x7f]+"
_VALUE: Final = r"[\x01-\x2b\x2d-\x7f]+"
_PRINTABLE: Final = r"[\x21-\x2b\x2d-\x7e]+"
_SASLNAME: Final = r"(?:[\x01-\x2b\x2d-\x3c\x3e-\x7f]|=2C|=3D)+"
_BASE64: Final = r"(?:[a-zA-Z0-9/+]{4})*(?:[a-zA-Z0-9/+]{3}=|[a-zA-Z0-9/+]{2}==)?"
_RESERVED: Final = rf"(?:m={_VALUE},)?"
_EXTENSIONS: Final = rf"(?:,[A-Za-z]+={_VALUE})*"

_CLIENT_FIRST: Final = (
    rf"n,(?:a=(?P<authzid>{_SASLNAME}))?,{_RESERVED}"
    rf"(?P<bare>n=(?P<name>{_SASLNAME}),r=(?P<nonce>{_PRINTABLE})(?P<extensions>{_EXTENSIONS}))"
)
_SERVER_FIRST: Final = (
    rf"{_RESERVED}r=(?P<nonce>{_PRINTABLE}),s=(?P<salt>{_BASE64}),i=(?P<iterations>[0-9]+){_EXTENSIONS}"
)
_CLIENT_FINAL: Final = rf"(?P<signed>c={_BASE64},r=(?P<nonce>{_PRINTABLE})){_EXTENSIONS},p=(?P<proof>{_BASE64})"
_SERVER_FINAL: Final = rf"e=(?P<error>{_VALUE_SAFE})|v=(?P<signature>{_BASE64}){_EXTENSIONS}"


class ClientFirst(NamedTuple):
    """The client's first message."""

    name: str
    nonce: str
    authorization_id: str
    extensions: dict[str, str]
    bare: bytes
    """The signed part of the message."""

    @property
    def token_authenticated(self) -> bool:
        """Whether the name is that of a delegation token."""
        return self.extensions.get(TOKEN_AUTH, "").lower() == "true"


class ServerFirst(NamedTuple):
    """The server's first message."""

    nonce: str
    salt: bytes
    iterations: int

    def encode(self) -> bytes:
        """The message, all of which is signed."""
        return f"r={self.nonce},s={_encode(self.salt)},i={self.iterations}".encode()


class ClientFinal(NamedTuple):
    """The client's final message."""

    nonce: str
    proof: bytes
    signed: bytes
    """The message without extensions and proof."""


class ServerFinal(NamedTuple):
    """The server's final message: a signature, or an error."""

    signature: bytes | None
    error: str | None


def encode_client_first(user: str, nonce: str, *, token_authenticated: bool) -> ClientFirst:
    """The first message of a client; sent as GS2_HEADER and `bare`."""
    name = user.replace("=", "=3D").replace(",", "=2C")
    extensions = {TOKEN_AUTH: "true"} if token_authenticated else {}
    more = "".join(f",{key}={value}" for key, value in extensions.items())
    return ClientFirst(user, nonce, "", extensions, f"n={name},r={nonce}{more}".encode())


def decode_client_first(message: bytes) -> ClientFirst:
    """Raises SaslError."""
    found = _match(_CLIENT_FIRST, "client first", message)
    pairs = (each.partition("=") for each in found["extensions"][1:].split(",") if each)
    name = found["name"].replace("=2C", ",").replace("=3D", "=")
    extensions = {key: value for key, _, value in pairs}
    return ClientFirst(name, found["nonce"], found["authzid"] or "", extensions, found["bare"].encode())


def decode_server_first(message: bytes) -> ServerFirst:
    """Raises SaslError."""
    found = _match(_SERVER_FIRST, "server first", message)
    digits = found["iterations"]
    iterations = int(digits) if len(digits) <= MOST_ITERATIONS_DIGITS else 0
    if not 0 < iterations < 1 << 31:
        raise SaslError(f"Invalid SCRAM server first message format: invalid iterations {digits[:20]}")
    return ServerFirst(found["nonce"], base64.b64decode(found["salt"]), iterations)


def client_final_signed(nonce: str) -> bytes:
    """The signed part of a client's final message."""
    return f"c={_encode(GS2_HEADER)},r={nonce}".encode()


def encode_client_final(signed: bytes, proof: bytes) -> bytes:
    """The client's final message."""
    return signed + f",p={_encode(proof)}".encode()


def decode_client_final(message: bytes) -> ClientFinal:
    """Raises SaslError."""
    found = _match(_CLIENT_FINAL, "client final", message)
    return ClientFinal(found["nonce"], base64.b64decode(found["proof"]), found["signed"].encode())


def encode_server_final(signature: bytes) -> bytes:
    """The server's final message after a success."""
    return f"v={_encode(signature)}".encode()


def decode_server_final(message: bytes) -> ServerFinal:
    """Raises SaslError."""
    found = _match(_SERVER_FINAL, "server final", message)
    error, signature = found["error"], found["signature"]
    return ServerFinal(None if error is not None else base64.b64decode(signature), error)


def _match(pattern: str, kind: str, message: bytes) -> re.Match[str]:
    """The match of a pattern, which `re` compiles at its first use: most brokers need none of them.

    Kafka's exception contains the message; the proof of a password is in it, so here it does not.
    """
    found = re.fullmatch(pattern, message.decode("utf-8", "replace")) if len(message) <= MOST_BYTES else None
    if found is None:
        raise SaslError(f"Invalid SCRAM {kind} message format")
    return found


def _encode(data: bytes) -> str:
    return base64.b64encode(data).decode()
