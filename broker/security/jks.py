"""Java's keystore format "JKS" (Java: sun.security.provider.JavaKeyStore, KeyProtector), read-only.

    FEEDFEED, version, number of entries
    1, alias, date, protected key, certificates      a private key with its chain
    2, alias, date, certificate                      a trusted certificate
    SHA-1 of the store password, "Mighty Aphrodite" and everything before

A key is XORed with a stream of SHA-1 blocks over the key password. JKS is kept by clusters that were set up before
Java 9; since then keytool writes PKCS12.
"""

from __future__ import annotations

import hashlib
import hmac
import struct
from dataclasses import dataclass, field
from typing import Final

MAGIC: Final = 0xFEEDFEED
JCEKS_MAGIC: Final = 0xCECECECE
_PRIVATE_KEY: Final = 1
_TRUSTED_CERTIFICATE: Final = 2
_DIGEST_BYTES: Final = 20
_WHITENER: Final = b"Mighty Aphrodite"
_PROTECTOR_OID: Final = bytes.fromhex("2b060104012a02110101")
_SEQUENCE: Final = 0x30
_OID: Final = 0x06
_OCTETS: Final = 0x04


class JksError(ValueError):
    """A keystore that cannot be read: damaged, of another format, or with another password."""


@dataclass(frozen=True, slots=True)
class JksKey:
    """A private key (PKCS#8, DER) with its certificates (X.509, DER), the leaf first."""

    alias: str
    key: bytes = field(repr=False)
    chain: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class JksContents:
    """The entries of a keystore."""

    keys: tuple[JksKey, ...]
    trusted: tuple[bytes, ...]
    """Certificates (X.509, DER)."""


def is_jks(data: bytes) -> bool:
    """Whether the file begins as a JKS keystore does."""
    return data[:4] == MAGIC.to_bytes(4, "big")


def parse_jks(data: bytes, store_password: str | None, key_password: str | None) -> JksContents:
    """The entries of a keystore. Raises JksError.

    As in Java, the integrity of a store is not checked without a store password, and keys need a password.
    """
    content, digest = data[:-_DIGEST_BYTES], data[-_DIGEST_BYTES:]
    if store_password is not None:
        expected = hashlib.sha1(_password_bytes(store_password) + _WHITENER + content).digest()
        if not hmac.compare_digest(expected, digest):
            raise JksError("the keystore was tampered with, or the password was incorrect")
    reader = _Reader(content)
    if reader.number(">I") != MAGIC:
        raise JksError("the file is no JKS keystore")
    version = reader.number(">I")
    if version not in (1, 2):
        raise JksError(f"JKS version {version} is not 1 or 2")
    keys, trusted = [], []
    for _ in range(reader.number(">I")):
        tag, alias, _date = reader.number(">I"), reader.text(), reader.number(">Q")
        if tag == _PRIVATE_KEY:
            protected = reader.block()
            chain = tuple(reader.certificate(version) for _ in range(reader.number(">I")))
            if key_password is None:
                raise JksError(f"the key {alias!r} needs a password")
            keys.append(JksKey(alias, _recover_key(protected, key_password, alias), chain))
        elif tag == _TRUSTED_CERTIFICATE:
            trusted.append(reader.certificate(version))
        else:
            raise JksError(f"entry {alias!r} has the unknown type {tag}")
    reader.expect_end()
    return JksContents(tuple(keys), tuple(trusted))


class _Reader:
    """Reads what Java's DataOutputStream writes."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def take(self, size: int) -> bytes:
        if size > len(self._data) - self._at:
            raise JksError("the keystore ends in the middle of an entry")
        self._at += size
        return self._data[self._at - size : self._at]

    def number(self, form: str) -> int:
        (value,) = struct.unpack(form, self.take(struct.calcsize(form)))
        return int(value)

    def block(self) -> bytes:
        return self.take(self.number(">I"))

    def text(self) -> str:
        """Java's modified UTF-8: NUL in two bytes, characters outside of the BMP as two surrogates."""
        encoded = self.take(self.number(">H")).replace(b"\xc0\x80", b"\0")
        try:
            return encoded.decode("utf-8", "surrogatepass").encode("utf-16", "surrogatepass").decode("utf-16")
        except UnicodeDecodeError as error:
            raise JksError("the name of an entry is not in UTF-8") from error

    def certificate(self, version: int) -> bytes:
        kind = self.text() if version == 2 else "X.509"
        if kind not in ("X.509", "X509"):
            raise JksError(f"a certificate has the type {kind[:20]}, not X.509")
        return self.block()

    def expect_end(self) -> None:
        if self._at != len(self._data):
            raise JksError("the keystore has data behind its entries")


def _recover_key(protected: bytes, password: str, alias: str) -> bytes:
    """The key behind Sun's protection: a salt, the key, and a digest of password and key."""
    algorithm, rest = _take_der(_whole_der(protected, _SEQUENCE), _SEQUENCE)
    if _take_der(algorithm, _OID)[0] != _PROTECTOR_OID:
        raise JksError(f"the key {alias!r} is not protected as JKS protects keys")
    data = _whole_der(rest, _OCTETS)
    if len(data) < 2 * _DIGEST_BYTES:
        raise JksError(f"the key {alias!r} is too short")
    salt, hidden, digest = data[:_DIGEST_BYTES], data[_DIGEST_BYTES:-_DIGEST_BYTES], data[-_DIGEST_BYTES:]
    secret = _password_bytes(password)
    stream, block = bytearray(), salt
    while len(stream) < len(hidden):
        block = hashlib.sha1(secret + block).digest()
        stream += block
    key = bytes(a ^ b for a, b in zip(hidden, stream, strict=False))
    if not hmac.compare_digest(hashlib.sha1(secret + key).digest(), digest):
        raise JksError(f"the key {alias!r} cannot be recovered: the key password is incorrect")
    return key


def _password_bytes(password: str) -> bytes:
    return password.encode("utf-16-be", "surrogatepass")


def _whole_der(data: bytes, tag: int) -> bytes:
    content, rest = _take_der(data, tag)
    if rest:
        raise JksError("a protected key has data behind its end")
    return content


def _take_der(data: bytes, tag: int) -> tuple[bytes, bytes]:
    """The content of one element, and the data behind it."""
    if len(data) < 2 or data[0] != tag:
        raise JksError("a protected key is not in DER")
    length, start = data[1], 2
    if length & 0x80:
        start += length & 0x7F
        length = int.from_bytes(data[2:start], "big")
    if start + length > len(data):
        raise JksError("a protected key ends too early")
    return data[start : start + length], data[start + length :]
