"""Certificates for a laptop, a test or a small cluster: one authority, brokers and clients.

`CertificateAuthority` issues certificates; `make_certificates` writes a folder of PEM files that Odradek, Apache Kafka
and every client read (Kafka: PEM key stores, KIP-651). Keys are on the curve P-256, which every TLS 1.2 and 1.3 client
has. A private key is readable by its owner only. Nothing here replaces the authority of a company.
"""

from __future__ import annotations

import contextlib
import ipaddress
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
    pkcs12,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

AUTHORITY_DAYS: Final = 3650
CLOCKS_APART: Final = timedelta(minutes=5)
"""A certificate is valid this long before it is issued: clocks of other machines may be behind."""
OWNER_ONLY: Final = 0o600
_UNENCRYPTED: Final = NoEncryption()


@dataclass(frozen=True, slots=True)
class Certificate:
    """A certificate with its private key and the certificate of its authority, each as PEM."""

    key_pem: bytes
    certificate_pem: bytes
    authority_pem: bytes

    @property
    def keystore_pem(self) -> bytes:
        """The text of a PEM key store (`ssl.keystore.type=PEM`): private key, then the chain."""
        return self.key_pem + self.certificate_pem + self.authority_pem

    def pkcs12(self, name: str, password: str) -> bytes:
        """The same as a PKCS12 key store, for clients without PEM (Java clients before Kafka 2.7)."""
        key = load_pem_private_key(self.key_pem, None)
        assert isinstance(key, ec.EllipticCurvePrivateKey)
        chain = [x509.load_pem_x509_certificate(self.authority_pem)]
        certificate = x509.load_pem_x509_certificate(self.certificate_pem)
        encryption = BestAvailableEncryption(password.encode())
        return pkcs12.serialize_key_and_certificates(name.encode(), key, certificate, chain, encryption)


class CertificateAuthority:
    """Issues certificates that all who trust `pem` accept."""

    def __init__(self, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> None:
        """A new one comes from `create`, one with the same key from `load`."""
        self._certificate = certificate
        self._key = key

    @classmethod
    def create(cls, common_name: str = "Odradek test authority", days: int = AUTHORITY_DAYS) -> CertificateAuthority:
        """An authority with a new key."""
        key = ec.generate_private_key(ec.SECP256R1())
        name = _name(common_name)
        builder = _builder(name, name, key.public_key(), days)
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        builder = builder.add_extension(_key_usage(authority=True), critical=True)
        builder = builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        return cls(builder.sign(key, hashes.SHA256()), key)

    @classmethod
    def load(cls, certificate_pem: bytes, key_pem: bytes) -> CertificateAuthority:
        """The authority of these files. Raises ValueError where they are no certificate and key of P-256."""
        key = load_pem_private_key(key_pem, None)
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise ValueError("the private key of the authority is not on an elliptic curve")
        return cls(x509.load_pem_x509_certificate(certificate_pem), key)

    @property
    def pem(self) -> bytes:
        """The certificate of the authority: what the other side has to trust (`ssl.truststore.type=PEM`)."""
        return self._certificate.public_bytes(Encoding.PEM)

    @property
    def key_pem(self) -> bytes:
        """The private key of the authority."""
        return _key_pem(self._key)

    def issue(self, common_name: str, hosts: Iterable[str] = (), days: int = 365) -> Certificate:
        """A certificate for a broker at these host names and addresses, or for a client without any.

        It is valid for `days` from now; a negative number makes one that has expired. Raises ValueError for an empty
        name.
        """
        if not common_name:
            raise ValueError("a certificate needs a common name")
        key = ec.generate_private_key(ec.SECP256R1())
        builder = _builder(_name(common_name), self._certificate.subject, key.public_key(), days)
        builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        builder = builder.add_extension(_key_usage(authority=False), critical=True)
        both = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        builder = builder.add_extension(x509.ExtendedKeyUsage(both), critical=False)
        issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        builder = builder.add_extension(issuer, critical=False)
        names = [_alternative_name(host) for host in hosts]
        if names:
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        certificate = builder.sign(self._key, hashes.SHA256())
        return Certificate(_key_pem(key), certificate.public_bytes(Encoding.PEM), self.pem)


def make_certificates(
    folder: Path, brokers: Sequence[Sequence[str]], clients: Sequence[str], *, days: int, password: str | None = None
) -> list[Path]:
    """Write an authority, a key store for each broker (named by its hosts) and each client, and their properties.

    An authority that is in the folder already issues the new certificates, so that a certificate can be renewed or a
    broker added. Returns the written files. Raises OSError, and ValueError where the authority's files are not valid.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    written: list[Path] = []

    def write(name: str, data: bytes, mode: int = 0o644) -> None:
        _write(folder / name, data, mode)
        written.append(folder / name)

    authority_file, authority_key = folder / "ca.pem", folder / "ca.key"
    if authority_file.exists() and authority_key.exists():
        authority = CertificateAuthority.load(authority_file.read_bytes(), authority_key.read_bytes())
    else:
        authority = CertificateAuthority.create()
        write("ca.key", authority.key_pem, OWNER_ONLY)
        write("ca.pem", authority.pem)
    wanted = [(f"broker-{number}", hosts[0], hosts) for number, hosts in enumerate(brokers)]
    for file, common_name, hosts in [*wanted, *((name, name, ()) for name in clients)]:
        certificate = authority.issue(common_name, hosts, days)
        write(f"{file}.pem", certificate.keystore_pem, OWNER_ONLY)
        if password is not None:
            write(f"{file}.p12", certificate.pkcs12(file, password), OWNER_ONLY)
        write(f"{file}.properties", _properties(folder, file, is_broker=bool(hosts)))
    return written


def _properties(folder: Path, file: str, *, is_broker: bool) -> bytes:
    lines = [
        f"ssl.keystore.location={(folder / file).absolute()}.pem",
        "ssl.keystore.type=PEM",
        f"ssl.truststore.location={(folder / 'ca.pem').absolute()}",
        "ssl.truststore.type=PEM",
    ]
    if not is_broker:
        lines.insert(0, "security.protocol=SSL")
    return ("\n".join(lines) + "\n").encode()


def _write(path: Path, data: bytes, mode: int) -> None:
    """Replace a file at once: a broker that reads it meanwhile finds the old one or the new one, never a part."""
    temporary = path.with_name(f".{path.name}.new")
    with contextlib.suppress(FileNotFoundError):
        temporary.unlink()
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
    temporary.replace(path)


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, days: int
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    ends = now + timedelta(days=days)
    begins = min(now, ends - timedelta(days=1)) - CLOCKS_APART
    builder = x509.CertificateBuilder().subject_name(subject).issuer_name(issuer).public_key(key)
    return builder.serial_number(x509.random_serial_number()).not_valid_before(begins).not_valid_after(ends)


def _key_usage(*, authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=authority,
        crl_sign=authority,
        encipher_only=False,
        decipher_only=False,
    )


def _alternative_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, _UNENCRYPTED)
