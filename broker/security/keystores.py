"""Keystores and truststores as PEM, which Python's ssl reads (Kafka: DefaultSslEngineFactory, its FileBasedStore and
PemStore).

JKS, PKCS12 and PEM, from files or as the texts of properties. As in Java, a file that is configured as JKS may be
PKCS12, and the other way round: the first bytes decide.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeVar

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_der_private_key,
    load_pem_private_key,
)
from cryptography.hazmat.primitives.serialization.pkcs12 import load_pkcs12
from cryptography.x509 import Certificate, load_der_x509_certificate, load_pem_x509_certificates

from odradek.broker.security.jks import JCEKS_MAGIC, JksError, is_jks, parse_jks

T = TypeVar("T")
STORE_TYPES: Final = ("JKS", "PKCS12", "PEM")
_CERTIFICATE: Final = re.compile(rb"-----BEGIN ([A-Z0-9 ]*CERTIFICATE)-----.*?-----END \1-----", re.DOTALL)
_PRIVATE_KEY: Final = re.compile(rb"-----BEGIN ([A-Z ]*PRIVATE KEY)-----.*?-----END \1-----", re.DOTALL)


class KeystoreError(ValueError):
    """A keystore that cannot be used. Messages contain neither keys nor passwords."""


@dataclass(frozen=True, slots=True)
class KeyEntry:
    """A private key (PKCS#8, not encrypted) and its certificates, the leaf first; both in PEM."""

    private_key: bytes = field(repr=False)
    certificate_chain: bytes


@dataclass(frozen=True, slots=True)
class Keystore:
    """The contents of a keystore or truststore."""

    keys: tuple[KeyEntry, ...]
    trusted_certificates: bytes
    """In PEM, one behind the other; empty if there are none."""

    def key(self) -> KeyEntry:
        """The key of a listener. Raises KeystoreError if there is none, or if the choice is not defined."""
        if len(self.keys) != 1:
            raise KeystoreError(f"the keystore has {len(self.keys)} private keys, should be 1")
        return self.keys[0]


def read_keystore(path: Path, store_type: str, store_password: str | None, key_password: str | None) -> Keystore:
    """The contents of a file. Raises KeystoreError, also where the file cannot be read."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise KeystoreError(f"the keystore {path} cannot be read: {error.strerror}") from error
    try:
        return parse_keystore(data, store_type, store_password, key_password)
    except KeystoreError as error:
        raise KeystoreError(f"{path}: {error}") from error


def parse_keystore(data: bytes, store_type: str, store_password: str | None, key_password: str | None) -> Keystore:
    """The contents of a store of `ssl.keystore.type`; without a key password the store password is used, too.

    Raises KeystoreError.
    """
    if store_type.upper() not in STORE_TYPES:
        raise KeystoreError(f"the keystore type {store_type} is not supported; supported are {', '.join(STORE_TYPES)}")
    if store_type.upper() == "PEM":
        if store_password is not None:
            raise KeystoreError("a store password is not allowed for a PEM store")
        return _parse_pem(data, key_password)
    if data[:4] == JCEKS_MAGIC.to_bytes(4, "big"):
        raise KeystoreError("the file is a JCEKS keystore; convert it with keytool -importkeystore")
    if is_jks(data):
        return _parse_jks(data, store_password, key_password if key_password is not None else store_password)
    if key_password not in (None, store_password):
        raise KeystoreError("in a PKCS12 keystore the password of the key has to be that of the store")
    return _parse_pkcs12(data, store_password)


def parse_pem_properties(certificate_chain: str, private_key: str, key_password: str | None) -> KeyEntry:
    """`ssl.keystore.certificate.chain`, `ssl.keystore.key` and `ssl.key.password`. Raises KeystoreError."""
    return _parse_pem(f"{private_key}\n{certificate_chain}".encode(), key_password).key()


def parse_trusted_certificates(certificates: str) -> bytes:
    """`ssl.truststore.certificates`. Raises KeystoreError."""
    return _pem(_load_certificates(certificates.encode()))


def _parse_jks(data: bytes, store_password: str | None, key_password: str | None) -> Keystore:
    try:
        contents = parse_jks(data, store_password, key_password)
    except JksError as error:
        raise KeystoreError(str(error)) from error
    keys = tuple(
        _entry(_guarded("key", load_der_private_key, each.key, None), _load_der(each.chain)) for each in contents.keys
    )
    return Keystore(keys, _pem(_load_der(contents.trusted)))


def _parse_pkcs12(data: bytes, password: str | None) -> Keystore:
    secret = password.encode() if password is not None else None
    contents = _guarded("PKCS12 keystore, or the password was incorrect", load_pkcs12, data, secret)
    others = [each.certificate for each in contents.additional_certs]
    if contents.key is None:
        own = [contents.cert.certificate] if contents.cert is not None else []
        return Keystore((), _pem([*own, *others]))
    if contents.cert is None:
        raise KeystoreError("the PKCS12 keystore has a key without a certificate")
    chain = _ordered_chain(contents.cert.certificate, others)
    rest = [each for each in others if each not in chain]
    return Keystore((_entry(contents.key, chain),), _pem(rest))


def _ordered_chain(leaf: Certificate, others: Sequence[Certificate]) -> list[Certificate]:
    """The leaf, its issuer, and so on: PKCS12 does not order certificates."""
    chain = [leaf]
    while chain[-1].issuer != chain[-1].subject:
        issuer = next((each for each in others if each.subject == chain[-1].issuer and each not in chain), None)
        if issuer is None:
            break
        chain.append(issuer)
    return chain


def _parse_pem(data: bytes, key_password: str | None) -> Keystore:
    found = [each[0] for each in _PRIVATE_KEY.finditer(data)]
    if not found:
        return Keystore((), _pem(_load_certificates(data)))
    if len(found) > 1:
        raise KeystoreError(f"the PEM store has {len(found)} private keys, should be 1")
    secret = key_password.encode() if key_password is not None else None
    key = _guarded("private key, or ssl.key.password does not fit", load_pem_private_key, found[0], secret)
    return Keystore((_entry(key, _load_certificates(data)),), b"")


def _load_certificates(data: bytes) -> list[Certificate]:
    found = [each[0] for each in _CERTIFICATE.finditer(data)]
    if not found:
        raise KeystoreError("the PEM store has no certificate")
    loaded: list[Certificate] = _guarded("certificate", load_pem_x509_certificates, b"\n".join(found))
    return loaded


def _load_der(certificates: Iterable[bytes]) -> list[Certificate]:
    return [_guarded("certificate", load_der_x509_certificate, each) for each in certificates]


def _guarded(what: str, load: Callable[..., T], *arguments: object) -> T:
    try:
        return load(*arguments)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise KeystoreError(f"cannot read the {what}: {error}") from error


def _entry(key: PrivateKeyTypes, chain: Sequence[Certificate]) -> KeyEntry:
    """Raises KeystoreError if the first certificate is not that of the key."""
    if not chain:
        raise KeystoreError("the keystore has a key without a certificate")
    form = (Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    if key.public_key().public_bytes(*form) != chain[0].public_key().public_bytes(*form):
        raise KeystoreError("the certificate does not belong to the private key")
    return KeyEntry(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()), _pem(chain))


def _pem(certificates: Iterable[Certificate]) -> bytes:
    return b"".join(each.public_bytes(Encoding.PEM) for each in certificates)
