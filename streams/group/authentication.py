"""Security of connections to brokers: TLS and SASL by the properties of librdkafka (Kafka: SaslClientAuthenticator,
SslFactory).

An application configures all of its clients with one set of properties, those of librdkafka (security.protocol, ssl.*,
sasl.*, oauth_cb). The connections of group membership are not librdkafka's, so this module applies the same properties
to them. A property that it cannot apply is an error: a connection that left one out would be less secure than the
others.
"""

from __future__ import annotations

import secrets
import socket
import ssl
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.serialization import pkcs12

from odradek.protocol.sasl import plain, scram_credentials
from odradek.protocol.sasl.exchange import SaslError
from odradek.protocol.sasl.oauthbearer import InitialResponse, OAuthBearerClient
from odradek.protocol.sasl.scram import ScramClient, salted_password
from odradek.protocol.sasl.scram_credentials import Mechanism
from odradek.streams.errors import StreamsError
from odradek.streams.group import oidc

PLAIN: Final = "PLAIN"
OAUTHBEARER: Final = "OAUTHBEARER"
SCRAM: Final[Mapping[str, Mechanism]] = {each.name: each for each in scram_credentials.MECHANISMS.values()}
MECHANISMS: Final = (PLAIN, *SCRAM, OAUTHBEARER)
PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
APPLIED: Final = (
    "security.protocol",
    "ssl.ca.location",
    "ssl.ca.pem",
    "ssl.certificate.location",
    "ssl.certificate.pem",
    "ssl.key.location",
    "ssl.key.pem",
    "ssl.key.password",
    "ssl.keystore.location",
    "ssl.keystore.password",
    "ssl.cipher.suites",
    "ssl.endpoint.identification.algorithm",
    "enable.ssl.certificate.verification",
    "sasl.mechanism",
    "sasl.mechanisms",
    "sasl.username",
    "sasl.password",
    "sasl.oauthbearer.config",
    *oidc.PROPERTIES,
    "oauth_cb",
)
"""The properties that these connections apply, with the meaning that they have in librdkafka."""
_PREFIXES: Final = ("ssl.", "enable.ssl.", "sasl.", "oauth_cb")
_NONCE_BYTES: Final = 16

Send = Callable[[bytes], bytes]
"""Sends a message of the mechanism and returns the challenge. Raises OSError, AuthenticationFailedError."""
Exchange = Callable[[Send], None]
"""Authenticates one connection. Raises OSError, SaslError, AuthenticationFailedError."""


class AuthenticationFailedError(StreamsError):
    """The broker rejects the login, or its certificate is not trusted; repeating the attempt changes nothing."""


@dataclass(frozen=True, slots=True)
class Login:
    """A SASL mechanism with the credentials of the application."""

    mechanism: str
    exchange: Exchange = field(repr=False)


@dataclass(frozen=True, slots=True)
class ConnectionSecurity:
    """How connections are encrypted and authenticated; without a context and a login they are PLAINTEXT."""

    context: ssl.SSLContext | None = None
    login: Login | None = None

    @classmethod
    def of(cls, properties: Mapping[str, Any]) -> ConnectionSecurity:
        """From the properties of librdkafka; others are ignored. Raises StreamsError."""
        protocol = str(properties.get("security.protocol") or PROTOCOLS[0]).upper()
        if protocol not in PROTOCOLS:
            raise StreamsError(f"security.protocol={protocol}; allowed: {', '.join(PROTOCOLS)}")
        if protocol == PROTOCOLS[0]:
            return cls()
        left_out = sorted(name for name in properties if name.startswith(_PREFIXES) and name not in APPLIED)
        if left_out:
            raise StreamsError(
                f"{left_out[0]} is not supported for the connections of group membership; "
                f"supported: {', '.join(APPLIED)}"
            )
        return cls(
            _context(properties) if protocol.endswith("SSL") else None,
            _login(properties) if protocol.startswith("SASL") else None,
        )

    def wrap(self, connection: socket.socket, host: str) -> socket.socket:
        """The connection with TLS, after its handshake, or as it is without. Raises OSError and
        AuthenticationFailedError.
        """
        if self.context is None:
            return connection
        try:
            return self.context.wrap_socket(connection, server_hostname=host)
        except (ssl.SSLEOFError, ssl.SSLZeroReturnError) as error:
            raise ConnectionResetError(f"{host} closed the connection in the TLS handshake") from error
        except ssl.SSLError as error:
            raise AuthenticationFailedError(f"the TLS handshake with {host} failed: {error}") from error


PLAINTEXT: Final = ConnectionSecurity()


def _context(properties: Mapping[str, Any]) -> ssl.SSLContext:
    try:
        authorities = properties.get("ssl.ca.location")
        folder = authorities if authorities and Path(authorities).is_dir() else None
        file = authorities if folder is None else None
        context = ssl.create_default_context(cafile=file, capath=folder, cadata=properties.get("ssl.ca.pem"))
        if str(properties.get("ssl.endpoint.identification.algorithm", "https")).lower() == "none":
            context.check_hostname = False
        if str(properties.get("enable.ssl.certificate.verification", "true")).lower() == "false":
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        if properties.get("ssl.cipher.suites"):
            context.set_ciphers(properties["ssl.cipher.suites"])
        _load_certificate(context, properties)
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        raise StreamsError(f"the ssl.* properties cannot be applied: {error}") from error
    return context


def _load_certificate(context: ssl.SSLContext, properties: Mapping[str, Any]) -> None:
    """The certificate and key of files in PEM, of texts in PEM, or of a keystore in PKCS12."""
    password = properties.get("ssl.key.password")
    if keystore := properties.get("ssl.keystore.location"):
        secret = secrets.token_urlsafe()
        pem = _pem_of_keystore(Path(keystore).read_bytes(), properties.get("ssl.keystore.password"), secret)
        _load_pem(context, pem, secret)
    elif texts := [properties[name] for name in ("ssl.certificate.pem", "ssl.key.pem") if properties.get(name)]:
        _load_pem(context, "\n".join(texts).encode(), password)
    elif certificate := properties.get("ssl.certificate.location"):
        context.load_cert_chain(certificate, properties.get("ssl.key.location"), password)


def _pem_of_keystore(data: bytes, password: str | None, secret: str) -> bytes:
    """Certificates and key of a PKCS12 keystore in PEM, the key encrypted by `secret`. Raises ValueError."""
    key, certificate, others = pkcs12.load_key_and_certificates(data, None if password is None else password.encode())
    if key is None or certificate is None:
        raise ValueError("ssl.keystore.location has no private key with its certificate")
    encrypted = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(secret.encode()),
    )
    chain = [each.public_bytes(serialization.Encoding.PEM) for each in (certificate, *others)]
    return b"".join([*chain, encrypted])


def _load_pem(context: ssl.SSLContext, pem: bytes, password: str | None) -> None:
    """Load a certificate and its key by a file that only this user can read, and only for the time of the call."""
    with tempfile.NamedTemporaryFile() as file:
        file.write(pem)
        file.flush()
        context.load_cert_chain(file.name, None, password)


def _login(properties: Mapping[str, Any]) -> Login:
    mechanism = properties.get("sasl.mechanism") or properties.get("sasl.mechanisms")
    if mechanism not in MECHANISMS:
        raise StreamsError(
            f"sasl.mechanism={mechanism} is not supported for the connections of group membership; "
            f"allowed: {', '.join(MECHANISMS)}"
        )
    if mechanism == OAUTHBEARER:
        token = oidc.token_source(properties) or properties.get("oauth_cb")
        if not callable(token):
            raise StreamsError(
                "sasl.mechanism=OAUTHBEARER requires oauth_cb, a function that returns a token, or "
                "sasl.oauthbearer.method=oidc"
            )
        return Login(mechanism, _OAuthBearerExchange(token, properties.get("sasl.oauthbearer.config") or ""))
    user, password = (properties.get(name) for name in ("sasl.username", "sasl.password"))
    if not user or not password:
        raise StreamsError(f"sasl.mechanism={mechanism} requires sasl.username and sasl.password")
    if mechanism == PLAIN:
        return Login(mechanism, _PlainExchange(user, password))
    return Login(mechanism, _ScramExchange(SCRAM[mechanism], user, password))


class _PlainExchange:
    def __init__(self, user: str, password: str) -> None:
        self._message = plain.client_message(user, password)

    def __call__(self, send: Send) -> None:
        send(self._message)


class _ScramExchange:
    """Hashes the password once for each salt."""

    def __init__(self, mechanism: Mechanism, user: str, password: str) -> None:
        self._mechanism, self._user, self._password = mechanism, user, password
        self._salted: tuple[bytes, int, bytes] = (b"", 0, b"")

    def __call__(self, send: Send) -> None:
        client = ScramClient(self._mechanism, self._user, secrets.token_hex(_NONCE_BYTES))
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
