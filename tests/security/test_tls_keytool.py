"""Listeners whose key stores keytool has made: PKCS12 and JKS, signed by an authority or by themselves; and key and
certificates as the texts of properties.
"""

from __future__ import annotations

import ssl
import subprocess
from pathlib import Path
from typing import Any

import pytest

from odradek.broker.config.broker_config import BrokerConfig
from odradek.broker.registry.znodes import Endpoint
from odradek.broker.security.ssl_factory import SslFactory
from tests.jvm.java import find_java, java_home
from tests.security.tls_broker import HOST, Files
from tests.support.handshake import shake_hands

PASSWORD = "store-secret"


def _keytool(*arguments: str) -> None:
    keytool = java_home(find_java()) / "bin" / "keytool"
    if not keytool.exists():
        pytest.skip("this Java has no keytool")
    subprocess.run([keytool, *arguments], check=True, capture_output=True, timeout=60)


def _shake(properties: dict[str, str]) -> Any:
    """A handshake between the listener's own two contexts: what brokers do among themselves. The server's end."""
    config = BrokerConfig({"listeners": "SSL://127.0.0.1:0", "security.inter.broker.protocol": "SSL", **properties})
    factory = SslFactory(config, Endpoint("SSL", HOST, 0, "SSL"))
    return shake_hands(factory.server, factory.client, HOST)[0]


@pytest.mark.jvm
@pytest.mark.parametrize("algorithm", ["EC", "RSA"])
@pytest.mark.parametrize("kind", ["PKCS12", "JKS"])
def test_a_store_that_is_signed_by_itself(tmp_path: Path, kind: str, algorithm: str) -> None:
    """The key store of most tutorials: its own certificate is the only one that the trust store has."""
    key_store, trust_store, certificate = (str(tmp_path / name) for name in ("key", "trust", "certificate"))
    store = "-storetype", kind, "-storepass", PASSWORD
    own = "-alias", "broker", "-keystore", key_store, *store
    names = "-dname", "CN=broker,O=Example\\, Inc.", "-ext", f"SAN=IP:{HOST}"
    _keytool("-genkeypair", "-keyalg", algorithm, "-keypass", PASSWORD, *names, *own)
    _keytool("-exportcert", "-file", certificate, *own)
    _keytool("-importcert", "-noprompt", "-file", certificate, "-alias", "own", "-keystore", trust_store, *store)
    found = _shake(
        {
            "ssl.keystore.type": kind,
            "ssl.keystore.location": key_store,
            "ssl.keystore.password": PASSWORD,
            "ssl.key.password": PASSWORD,
            "ssl.truststore.type": kind,
            "ssl.truststore.location": trust_store,
            "ssl.truststore.password": PASSWORD,
            "ssl.client.auth": "required",
        }
    )
    assert isinstance(found, ssl.SSLObject)
    subject = dict(found.getpeercert() or {})["subject"]
    assert subject == ((("organizationName", "Example, Inc."),), (("commonName", "broker"),))


def test_key_and_certificates_as_texts(tmp_path: Path) -> None:
    files = Files(tmp_path)
    files.issue("broker", HOST)
    certificate = files.certificates["broker"]
    found = _shake(
        {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.key": certificate.key_pem.decode(),
            "ssl.keystore.certificate.chain": (certificate.certificate_pem + certificate.authority_pem).decode(),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.certificates": files.authority.pem.decode(),
            "ssl.client.auth": "required",
        }
    )
    assert found.version() == "TLSv1.3"


def test_a_trusted_certificate_below_the_root_is_enough(tmp_path: Path) -> None:
    """As in Java, a trust store may have the certificate of the broker alone."""
    files = Files(tmp_path)
    files.issue("broker", HOST)
    (tmp_path / "leaf.pem").write_bytes(files.certificates["broker"].certificate_pem)
    trusted = {"ssl.truststore.location": str(tmp_path / "leaf.pem"), "ssl.client.auth": "required"}
    assert _shake({**files.stores("broker"), **trusted}).version() == "TLSv1.3"
