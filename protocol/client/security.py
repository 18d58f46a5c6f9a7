"""Security of connections to brokers: TLS and SASL by the properties of librdkafka (Kafka: SaslClientAuthenticator,
SslFactory).

An application configures all of its clients with one set of properties, those of librdkafka (security.protocol, ssl.*,
sasl.*, oauth_cb). Connections of this package are not librdkafka's, so this module applies the same properties to them.
A property that it cannot apply is an error: a connection that left one out would be less secure than the others.

Modules of TLS are imported when a property needs them: a command over PLAINTEXT starts without them.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from odradek.protocol.client.errors import LoginFailedError, SecurityConfigError

if TYPE_CHECKING:
    import ssl

    from odradek.protocol.client.login import Login

MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
OIDC: Final = (
    "sasl.oauthbearer.method",
    "sasl.oauthbearer.token.endpoint.url",
    "sasl.oauthbearer.client.id",
    "sasl.oauthbearer.client.secret",
    "sasl.oauthbearer.scope",
    "sasl.oauthbearer.extensions",
)
"""The properties of an OpenID provider (`oidc`)."""
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
    "sasl.scram.tokenauth",
    "sasl.oauthbearer.config",
    *OIDC,
    "oauth_cb",
)
"""The properties that these connections apply, with the meaning that they have in librdkafka."""
_PREFIXES: Final = ("ssl.", "enable.ssl.", "sasl.", "oauth_cb")


@dataclass(frozen=True, slots=True)
class ConnectionSecurity:
    """How connections are encrypted and authenticated; without a context and a login they are PLAINTEXT."""

    context: ssl.SSLContext | None = None
    login: Login | None = None

    @classmethod
    def of(cls, properties: Mapping[str, Any]) -> ConnectionSecurity:
        """From the properties of librdkafka; others are ignored. Raises SecurityConfigError."""
        protocol = str(properties.get("security.protocol") or PROTOCOLS[0]).upper()
        if protocol not in PROTOCOLS:
            raise SecurityConfigError(f"security.protocol={protocol}; allowed: {', '.join(PROTOCOLS)}")
        if protocol == PROTOCOLS[0]:
            return cls()
        left_out = sorted(name for name in properties if name.startswith(_PREFIXES) and name not in APPLIED)
        if left_out:
            raise SecurityConfigError(
                f"{left_out[0]} is not supported for these connections; supported: {', '.join(APPLIED)}"
            )
        return cls(
            _context(properties) if protocol.endswith("SSL") else None,
            _login(properties) if protocol.startswith("SASL") else None,
        )

    def wrap(self, connection: socket.socket, host: str) -> socket.socket:
        """The connection with TLS, after its handshake, or as it is without. Raises OSError and
        LoginFailedError.
        """
        if self.context is None:
            return connection
        import ssl

        try:
            return self.context.wrap_socket(connection, server_hostname=host)
        except (ssl.SSLEOFError, ssl.SSLZeroReturnError) as error:
            raise ConnectionResetError(f"{host} closed the connection in the TLS handshake") from error
        except ssl.SSLError as error:
            raise LoginFailedError(f"the TLS handshake with {host} failed: {error}") from error


PLAINTEXT: Final = ConnectionSecurity()


def _context(properties: Mapping[str, Any]) -> ssl.SSLContext:
    import ssl

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
        raise SecurityConfigError(f"the ssl.* properties cannot be applied: {error}") from error
    return context


def _load_certificate(context: ssl.SSLContext, properties: Mapping[str, Any]) -> None:
    """The certificate and key of files in PEM, of texts in PEM, or of a keystore in PKCS12."""
    password = properties.get("ssl.key.password")
    if keystore := properties.get("ssl.keystore.location"):
        import secrets

        secret = secrets.token_urlsafe()
        pem = _pem_of_keystore(Path(keystore).read_bytes(), properties.get("ssl.keystore.password"), secret)
        _load_pem(context, pem, secret)
    elif texts := [properties[name] for name in ("ssl.certificate.pem", "ssl.key.pem") if properties.get(name)]:
        _load_pem(context, "\n".join(texts).encode(), password)
    elif certificate := properties.get("ssl.certificate.location"):
        context.load_cert_chain(certificate, properties.get("ssl.key.location"), password)


def _pem_of_keystore(data: bytes, password: str | None, secret: str) -> bytes:
    """Certificates and key of a PKCS12 keystore in PEM, the key encrypted by `secret`. Raises ValueError."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.serialization import pkcs12

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
    import tempfile

    with tempfile.NamedTemporaryFile() as file:
        file.write(pem)
        file.flush()
        context.load_cert_chain(file.name, None, password)


def _login(properties: Mapping[str, Any]) -> Login:
    from odradek.protocol.client.login import login_of

    mechanism = properties.get("sasl.mechanism") or properties.get("sasl.mechanisms")
    if mechanism not in MECHANISMS:
        raise SecurityConfigError(
            f"sasl.mechanism={mechanism} is not supported for these connections; allowed: {', '.join(MECHANISMS)}"
        )
    return login_of(mechanism, properties)
