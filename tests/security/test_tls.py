"""TLS contexts: handshakes in memory between what brokers make and what clients have; OpenSSL's own list of names."""

from __future__ import annotations

import shutil
import ssl
import subprocess
from dataclasses import replace

import pytest

from odradek.broker.security.cipher_suites import CipherSuiteError, openssl_name
from odradek.broker.security.tls import TlsError, TlsSettings, client_context, server_context
from odradek.certificates import Certificate, CertificateAuthority
from tests.support.handshake import shake_hands

AUTHORITY = CertificateAuthority.create()
BROKER = AUTHORITY.issue("localhost", ["localhost"])
ALICE = AUTHORITY.issue("alice")
STRANGER = CertificateAuthority.create("another authority").issue("alice")
AES_128 = "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"
AES_256 = "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384"


def settings(certificate: Certificate | None, **others: object) -> TlsSettings:
    key_pem = certificate.key_pem if certificate is not None else None
    chain_pem = certificate.certificate_pem if certificate is not None else b""
    return replace(TlsSettings(key_pem, chain_pem, AUTHORITY.pem), **others)  # type: ignore[arg-type]


def handshake(broker: TlsSettings, client: TlsSettings, host: str = "localhost") -> tuple[ssl.SSLObject, ssl.SSLObject]:
    """Both ends after the handshake and the first byte of each. Raises SSLError."""
    near, far = shake_hands(server_context(broker), client_context(client), host)
    far.write(b"x")
    assert near.read(1) == b"x"  # a broker rejects a certificate of TLS 1.3 after the client's handshake
    return near, far


@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
def test_both_sides_agree_on_the_only_version(version: str) -> None:
    near, _ = handshake(settings(BROKER, protocols=(version,)), settings(None))
    assert near.version() == version


def test_a_client_without_a_version_of_the_broker_is_rejected() -> None:
    with pytest.raises(ssl.SSLError, match="UNSUPPORTED_PROTOCOL"):
        handshake(settings(BROKER, protocols=("TLSv1.3",)), settings(None, protocols=("TLSv1.2",)))


def test_the_newest_common_version_is_the_default() -> None:
    assert handshake(settings(BROKER), settings(None))[0].version() == "TLSv1.3"


@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
@pytest.mark.parametrize(
    ("client_auth", "certificate", "accepted"),
    [
        ("none", None, True),
        ("none", ALICE, True),
        ("requested", None, True),
        ("requested", ALICE, True),
        ("requested", STRANGER, False),
        ("required", None, False),
        ("required", ALICE, True),
        ("required", STRANGER, False),
    ],
)
def test_client_auth(version: str, client_auth: str, certificate: Certificate | None, accepted: bool) -> None:
    broker = settings(BROKER, client_auth=client_auth, protocols=(version,))
    if not accepted:
        with pytest.raises(ssl.SSLError):
            handshake(broker, settings(certificate))
        return
    near, _ = handshake(broker, settings(certificate))
    received = near.getpeercert()
    assert bool(received) is (certificate is not None and client_auth != "none")


def test_a_client_checks_the_name_of_the_host_unless_it_is_configured_not_to() -> None:
    with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
        handshake(settings(BROKER), settings(None), "elsewhere.example")
    handshake(settings(BROKER), settings(None, verifies_host=False), "elsewhere.example")


def test_only_the_configured_suites_are_used() -> None:
    near, _ = handshake(settings(BROKER, cipher_suites=(AES_128,)), settings(None))
    assert near.cipher() == ("ECDHE-ECDSA-AES128-GCM-SHA256", "TLSv1.2", 128)
    with pytest.raises(ssl.SSLError, match="NO_SHARED_CIPHER"):
        handshake(settings(BROKER, cipher_suites=(AES_128,)), settings(None, cipher_suites=(AES_256,)))


@pytest.mark.parametrize(
    ("others", "message"),
    [
        ({"protocols": ("TLSv1.1",)}, r"ssl\.enabled\.protocols has TLSv1\.1; allowed: TLSv1\.2, TLSv1\.3"),
        ({"protocols": ()}, "has no protocol"),
        ({"cipher_suites": ("NONE_SUCH",)}, "NONE_SUCH is not a name like"),
        (
            {"cipher_suites": ("TLS_RSA_WITH_NULL_NULL",)},
            "not have the cipher suite TLS_RSA_WITH_NULL_NULL",
        ),
        ({"cipher_suites": (AES_128,), "protocols": ("TLSv1.3",)}, "no suite of the versions"),
        ({"chain_pem": ALICE.certificate_pem}, "KEY_VALUES_MISMATCH"),
        ({"chain_pem": b"no certificate"}, "does not accept the key store"),
        ({"trusted_pem": b"no certificate"}, "does not accept the key store or trust store"),
        ({"trusted_pem": "Umlaut ü".encode()}, "ascii"),
        ({"key_pem": None}, "needs a private key"),
    ],
)
def test_settings_that_cannot_work_are_named(others: dict[str, object], message: str) -> None:
    with pytest.raises(TlsError, match=message):
        server_context(settings(BROKER, **others))


def test_no_error_has_the_private_key_in_it() -> None:
    with pytest.raises(TlsError) as refused:
        server_context(settings(BROKER, key_pem=BROKER.key_pem.replace(b"M", b"N")))
    assert BROKER.key_pem.splitlines()[1].decode() not in repr(refused.value)


def test_openssl_has_the_same_names() -> None:
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("openssl is not installed")
    listed = subprocess.run(
        [openssl, "ciphers", "-stdname", "ALL:!aNULL:!PSK:!SRP"], capture_output=True, text=True, check=True
    ).stdout
    names = [line.split()[:3:2] for line in listed.splitlines() if "_WITH_" in line and "ARIA" not in line]
    assert len(names) > 20
    assert {standard: openssl_name(standard) for standard, _ in names} == dict(names)


@pytest.mark.parametrize("suite", ["", "AES128-SHA", "TLS_AES_128_GCM_SHA256", "WITH", "_WITH_"])
def test_names_of_another_form_are_refused(suite: str) -> None:
    with pytest.raises(CipherSuiteError):
        openssl_name(suite)
