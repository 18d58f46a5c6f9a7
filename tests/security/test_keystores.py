"""Keystores beside Java's KeyStore, and as keytool writes them."""

from __future__ import annotations

import datetime
import functools
import ssl
import subprocess
from pathlib import Path
from typing import Any, NamedTuple

import jpype
import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    KeySerializationEncryption,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.broker.security.jks import JksError, parse_jks
from odradek.broker.security.keystores import (
    KeystoreError,
    parse_keystore,
    parse_pem_properties,
    parse_trusted_certificates,
    read_keystore,
)
from tests.jvm.java import find_java, java_home
from tests.security.kafka_classes import KafkaClasses, java_bytes

ascii_passwords = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=6, max_size=20)
passwords = st.text(st.characters(min_codepoint=1, exclude_categories=["Cs"]), min_size=1, max_size=12)
aliases = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8).map(str.lower)


class Identity(NamedTuple):
    """A key with its certificate and that of its issuer."""

    key: Any
    chain: list[x509.Certificate]

    def key_bytes(self, encoding: Encoding, encryption: KeySerializationEncryption | None = None) -> bytes:
        """The key in PKCS#8."""
        made: bytes = self.key.private_bytes(encoding, PrivateFormat.PKCS8, encryption or NoEncryption())
        return made

    def chain_pem(self) -> bytes:
        """The certificates, the leaf first."""
        return b"".join(each.public_bytes(Encoding.PEM) for each in self.chain)


def _certificate(subject: str, key: Any, issuer: str, issuer_key: Any) -> x509.Certificate:
    def name(text: str) -> x509.Name:
        return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, text)])

    now = datetime.datetime.now(datetime.UTC)
    builder = x509.CertificateBuilder().subject_name(name(subject)).issuer_name(name(issuer))
    builder = builder.public_key(key.public_key()).serial_number(x509.random_serial_number())
    builder = builder.not_valid_before(now).not_valid_after(now + datetime.timedelta(days=10))
    return builder.sign(issuer_key, SHA256())


@functools.cache
def _identity(kind: str = "EC") -> Identity:
    authority = ec.generate_private_key(ec.SECP256R1())
    key = rsa.generate_private_key(65537, 2048) if kind == "RSA" else ec.generate_private_key(ec.SECP256R1())
    chain = [_certificate("broker", key, "authority", authority)]
    return Identity(key, [*chain, _certificate("authority", authority, "authority", authority)])


def _java_certificate(certificate: x509.Certificate) -> Any:
    factory = jpype.JClass("java.security.cert.CertificateFactory").getInstance("X.509")
    data = java_bytes(certificate.public_bytes(Encoding.DER))
    return factory.generateCertificate(jpype.JClass("java.io.ByteArrayInputStream")(data))


def _chars(password: str) -> Any:
    return jpype.JString(password).toCharArray()


class JavaStore:
    """A keystore of the JVM in this process."""

    def __init__(self, kind: str) -> None:
        self._store = jpype.JClass("java.security.KeyStore").getInstance(kind)
        self._store.load(None, None)

    def add_key(self, alias: str, identity: Identity, password: str) -> None:
        """A private key with its chain."""
        algorithm = "RSA" if isinstance(identity.key, rsa.RSAPrivateKey) else "EC"
        spec = jpype.JClass("java.security.spec.PKCS8EncodedKeySpec")(java_bytes(identity.key_bytes(Encoding.DER)))
        key = jpype.JClass("java.security.KeyFactory").getInstance(algorithm).generatePrivate(spec)
        chain = jpype.JArray(jpype.JClass("java.security.cert.Certificate"))([*map(_java_certificate, identity.chain)])
        self._store.setKeyEntry(alias, key, _chars(password), chain)

    def add_trusted(self, alias: str, certificate: x509.Certificate) -> None:
        """A trusted certificate."""
        self._store.setCertificateEntry(alias, _java_certificate(certificate))

    def save(self, password: str) -> bytes:
        """The bytes of the file."""
        out = jpype.JClass("java.io.ByteArrayOutputStream")()
        self._store.store(out, _chars(password))
        return bytes(out.toByteArray())


def _same_key(pem: bytes, identity: Identity) -> bool:
    loaded: Any = load_pem_private_key(pem, None)
    return bool(loaded.private_numbers() == identity.key.private_numbers())


@pytest.mark.jvm
@settings(max_examples=100)
@given(passwords, passwords, aliases, st.sampled_from(("EC", "RSA")))
def test_jks_files_of_java_are_read(
    classes: KafkaClasses, store_password: str, key_password: str, alias: str, kind: str
) -> None:
    identity, made = _identity(kind), JavaStore("JKS")
    made.add_key(alias, identity, key_password)
    made.add_trusted("authority-" + alias, identity.chain[1])
    data = made.save(store_password)
    found = parse_keystore(data, "JKS", store_password, key_password)
    assert _same_key(found.key().private_key, identity)
    assert found.key().certificate_chain == identity.chain_pem()
    assert found.trusted_certificates == identity.chain[1].public_bytes(Encoding.PEM)
    assert parse_jks(data, store_password, key_password).keys[0].alias == alias.lower()
    with pytest.raises(KeystoreError, match="tampered with, or the password was incorrect"):
        parse_keystore(data, "JKS", store_password + "x", key_password)
    with pytest.raises(KeystoreError, match="the key password is incorrect"):
        parse_keystore(data, "JKS", store_password, key_password + "x")
    damaged = data[:40] + bytes([data[40] ^ 1]) + data[41:]
    with pytest.raises(KeystoreError, match="tampered"):
        parse_keystore(damaged, "JKS", store_password, key_password)


@pytest.mark.jvm
@settings(max_examples=12)
@given(ascii_passwords, st.sampled_from(("EC", "RSA")), st.sampled_from(("JKS", "PKCS12")))
def test_pkcs12_files_of_java_are_read(classes: KafkaClasses, password: str, kind: str, configured: str) -> None:
    identity, made = _identity(kind), JavaStore("PKCS12")
    made.add_key("broker", identity, password)
    data = made.save(password)
    found = parse_keystore(data, configured, password, None)
    assert _same_key(found.key().private_key, identity)
    assert found.key().certificate_chain == identity.chain_pem()
    with pytest.raises(KeystoreError, match="password was incorrect"):
        parse_keystore(data, configured, password + "x", None)
    trust = JavaStore("PKCS12")
    trust.add_trusted("authority", identity.chain[1])
    store = parse_keystore(trust.save(password), configured, password, None)
    assert store.trusted_certificates == identity.chain[1].public_bytes(Encoding.PEM)
    assert store.keys == ()


@pytest.mark.jvm
@pytest.mark.parametrize("store_type", ["JKS", "PKCS12"])
@pytest.mark.parametrize("algorithm", [("RSA", "-keysize", "2048"), ("EC", "-groupname", "secp256r1")])
def test_files_of_keytool_serve_python(tmp_path: Path, store_type: str, algorithm: tuple[str, ...]) -> None:
    keytool = java_home(find_java()) / "bin" / "keytool"
    if not keytool.exists():
        pytest.skip("this Java has no keytool")
    path = tmp_path / "broker.keystore"

    def run(*arguments: str) -> None:
        store = ("-keystore", str(path), "-storetype", store_type, "-storepass", "store secret", "-noprompt")
        subprocess.run([keytool, *arguments, *store], check=True, capture_output=True, timeout=60)

    name = ("-alias", "Broker", "-dname", "CN=localhost, O=ü", "-validity", "5")
    run("-genkeypair", "-keyalg", *algorithm, *name, *(("-keypass", "key secret") if store_type == "JKS" else ()))
    found = read_keystore(path, store_type, "store secret", "key secret" if store_type == "JKS" else None)
    pem = tmp_path / "broker.pem"
    pem.write_bytes(found.key().private_key + found.key().certificate_chain)
    ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(pem)
    exported = tmp_path / "certificate.pem"
    run("-exportcert", "-rfc", "-alias", "Broker", "-file", str(exported))
    certificate = exported.read_text()
    path.unlink()
    run("-importcert", "-alias", "trusted", "-file", str(exported))
    trusted = read_keystore(path, store_type, "store secret", None).trusted_certificates
    assert trusted == parse_trusted_certificates(certificate)
    ssl.create_default_context(cadata=trusted.decode())


@pytest.mark.parametrize("password", [None, "key secret"])
def test_pem_is_read_from_files_and_properties(tmp_path: Path, password: str | None) -> None:
    identity = _identity()
    encryption = BestAvailableEncryption(password.encode()) if password is not None else None
    key, chain = identity.key_bytes(Encoding.PEM, encryption).decode(), identity.chain_pem().decode()
    path = tmp_path / "store.pem"
    path.write_text(f"Bag Attributes\n{key}\nsubject=broker\n{chain}")
    for found in (read_keystore(path, "PEM", None, password).key(), parse_pem_properties(chain, key, password)):
        assert _same_key(found.private_key, identity)
        assert found.certificate_chain == identity.chain_pem()
        assert "PRIVATE" not in repr(found)
    for wrong in {"wrong", "key secret", None} - {password}:
        with pytest.raises(KeystoreError, match=r"ssl\.key\.password does not fit"):
            parse_pem_properties(chain, key, wrong)


def test_a_certificate_of_another_key_is_rejected() -> None:
    key = _identity("RSA").key_bytes(Encoding.PEM).decode()
    with pytest.raises(KeystoreError, match="does not belong"):
        parse_pem_properties(_identity("EC").chain_pem().decode(), key, None)


@pytest.mark.parametrize(
    ("data", "store_type", "reason"),
    [
        (b"", "PEM", "no certificate"),
        (b"-----BEGIN CERTIFICATE-----\nAA\n-----END CERTIFICATE-----", "PEM", "cannot read the certificate"),
        (b"-----BEGIN PRIVATE KEY-----\nAA\n-----END PRIVATE KEY-----", "PEM", "cannot read the private key"),
        (b"", "PKCS12", "cannot read the PKCS12"),
        (b"", "JKS", "cannot read the PKCS12"),
        (b"\xce\xce\xce\xce", "JKS", "JCEKS"),
        (b"\xfe\xed\xfe\xed", "JKS", "tampered"),
        (b"", "BKS", "BKS is not supported; supported are JKS, PKCS12, PEM"),
    ],
)
def test_other_files_are_rejected(data: bytes, store_type: str, reason: str) -> None:
    with pytest.raises(KeystoreError, match=reason):
        parse_keystore(data, store_type, None if store_type == "PEM" else "secret", None)
    with pytest.raises(KeystoreError) as caught:
        parse_keystore(data, store_type, "s3cret", None)
    assert "s3cret" not in str(caught.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(KeystoreError, match=r"absent\.jks cannot be read: No such file"):
        read_keystore(tmp_path / "absent.jks", "JKS", "secret", None)


@given(st.binary(max_size=80), st.integers(0, 3))
def test_any_bytes_are_rejected(junk: bytes, entries: int) -> None:
    head = b"\xfe\xed\xfe\xed\0\0\0\x02" + entries.to_bytes(4, "big")
    for data in (head + junk, head + b"\0\0\0\x01\0\1a" + junk, head + b"\0\0\0\x02\0\1a" + bytes(8) + junk):
        try:
            contents = parse_jks(data, None, "secret")
        except JksError as error:
            message = str(error)
            assert "secret" not in message
        else:
            assert contents.keys == ()
