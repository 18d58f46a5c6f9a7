"""TLS settings from properties: the `ssl.*` properties with the key stores that they name (Kafka:
DefaultSslEngineFactory, its createKeystore and createTruststore).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from odradek.broker.config.broker_config import BrokerConfig
from odradek.broker.config.types import Password
from odradek.broker.registry.znodes import Endpoint
from odradek.broker.security.keystores import (
    KeyEntry,
    KeystoreError,
    parse_pem_properties,
    parse_trusted_certificates,
    read_keystore,
)
from odradek.broker.security.tls import TlsError, TlsSettings

PEM: Final = "PEM"
Value = Callable[[str], Any]
"""The value of a property in its type; None where it is not set."""
FileStamps = tuple[tuple[int, int, int] | None, ...]


def listener_tls(config: BrokerConfig, endpoint: Endpoint) -> TlsSettings:
    """The settings of one listener: the properties with its prefix, otherwise the broker's. Raises TlsError.

    On a SASL listener only the listener's own `ssl.client.auth` counts, as in Kafka (SaslChannelBuilder).
    """
    value = _of_listener(config, endpoint.listener)
    own = config.only_of_listener(endpoint.listener, "ssl.client.auth") is not None
    return tls_settings(value, value("ssl.client.auth") if own or endpoint.security_protocol == "SSL" else "none")


def tls_settings(value: Value, client_auth: str = "none") -> TlsSettings:
    """The settings of the properties that `value` returns. Raises TlsError."""
    try:
        key = _key(value)
    except KeystoreError as error:
        raise TlsError(f"{_first_set(value, 'ssl.keystore.key', 'ssl.keystore.location')}: {error}") from error
    try:
        trusted = _trusted(value)
    except KeystoreError as error:
        names = ("ssl.truststore.certificates", "ssl.truststore.location")
        raise TlsError(f"{_first_set(value, *names)}: {error}") from error
    return TlsSettings(
        key_pem=key.private_key if key is not None else None,
        chain_pem=key.certificate_chain if key is not None else b"",
        trusted_pem=trusted,
        client_auth=client_auth,
        protocols=tuple(value("ssl.enabled.protocols") or ()),
        cipher_suites=tuple(value("ssl.cipher.suites") or ()),
        verifies_host=bool(value("ssl.endpoint.identification.algorithm")),
    )


def file_stamps(config: BrokerConfig, endpoint: Endpoint) -> FileStamps:
    """What changes with the key stores of a listener: inode, size and time of each file."""
    value = _of_listener(config, endpoint.listener)
    return tuple(_stamp(value(name)) for name in ("ssl.keystore.location", "ssl.truststore.location"))


def _of_listener(config: BrokerConfig, listener: str) -> Value:
    return lambda name: config.of_listener(listener, name)


def _stamp(location: str | None) -> tuple[int, int, int] | None:
    if location is None:
        return None
    try:
        found = Path(location).stat()
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns


def _first_set(value: Value, *names: str) -> str:
    return next((name for name in names if value(name) is not None), names[-1])


def _key(value: Value) -> KeyEntry | None:
    """The key of `ssl.keystore.key`, or of the file `ssl.keystore.location`. Raises KeystoreError."""
    kind, location = value("ssl.keystore.type"), value("ssl.keystore.location")
    key, chain = value("ssl.keystore.key"), value("ssl.keystore.certificate.chain")
    password, key_password = value("ssl.keystore.password"), _secret(value("ssl.key.password"))
    if key is not None:
        _require(kind == PEM, f"SSL private key can be specified only for PEM, but key store type is {kind}.")
        _require(chain is not None, "SSL private key is specified, but certificate chain is not specified.")
        _require(location is None, "Both SSL key store location and separate private key are specified.")
        _require(
            password is None,
            "SSL key store password cannot be specified with PEM format, only key password may be specified.",
        )
        return parse_pem_properties(chain.value, key.value, key_password)
    _require(chain is None, "SSL certificate chain is specified, but private key is not specified")
    if location is None:
        _require(
            password is None,
            "SSL key store is not specified, but key store password is specified.",
        )
        return None
    if kind == PEM:
        _require(
            password is None,
            "SSL key store password cannot be specified with PEM format, only key password may be specified",
        )
    else:
        _require(password is not None, "SSL key store is specified, but key store password is not specified.")
    return read_keystore(Path(location), kind, _secret(password), key_password).key()


def _trusted(value: Value) -> bytes | None:
    """The authorities of `ssl.truststore.certificates`, or of the file `ssl.truststore.location`.

    Raises KeystoreError.
    """
    kind, location = value("ssl.truststore.type"), value("ssl.truststore.location")
    certificates, password = value("ssl.truststore.certificates"), value("ssl.truststore.password")
    if certificates is not None:
        _require(kind == PEM, f"SSL trust store certs can be specified only for PEM, but trust store type is {kind}.")
        _require(location is None, "Both SSL trust store location and separate trust certificates are specified.")
        _require(password is None, "SSL trust store password cannot be specified for PEM format.")
        return parse_trusted_certificates(certificates.value)
    if location is None:
        _require(password is None, "SSL trust store is not specified, but trust store password is specified.")
        return None
    _require(kind != PEM or password is None, "SSL trust store password cannot be specified for PEM format.")
    return read_keystore(Path(location), kind, _secret(password), None).trusted_certificates


def _secret(password: Password | None) -> str | None:
    return None if password is None else password.value


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise KeystoreError(message)
