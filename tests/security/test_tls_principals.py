"""Sessions of TLS connections beside Kafka's DefaultKafkaPrincipalBuilder: from the certificate of a client to its
principal.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import jpype
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key
from cryptography.x509.oid import NameOID

from odradek.broker.config.broker_config import BrokerConfig
from odradek.broker.config.types import ConfigError
from odradek.broker.security.channel_builder import ChannelBuilder
from odradek.broker.security.session import ANONYMOUS_SESSION
from odradek.protocol.listening import Limits, Listener
from odradek.protocol.net import Connection
from tests.security.kafka_classes import KafkaClasses, java_bytes
from tests.security.tls_broker import HOST, Files
from tests.support.eventually import eventually_async

RULES = "RULE:^CN=([^,+]+),OU=Services.*$/$1/L,RULE:^CN=kafka-(\\d+)\\..*$/broker$1/,DEFAULT"
NAMES = [
    [("CN", "Alice")],
    [("O", "Example, Inc."), ("OU", "Services"), ("CN", "Billing")],
    [("CN", "kafka-7.example.com")],
    [("C", "DE"), ("O", "Grün & Söhne"), ("CN", 'ünï "quoted" #1')],
    [("emailAddress", "a@example.com"), ("CN", " spaces ")],
]
TYPES = {
    "CN": NameOID.COMMON_NAME,
    "OU": NameOID.ORGANIZATIONAL_UNIT_NAME,
    "O": NameOID.ORGANIZATION_NAME,
    "C": NameOID.COUNTRY_NAME,
    "emailAddress": NameOID.EMAIL_ADDRESS,
}


def _certificate(files: Files, name: list[tuple[str, str]]) -> x509.Certificate:
    """A certificate of the authority for any name; its key is in client.pem."""
    issued = x509.load_pem_x509_certificate(files.authority.issue("template").certificate_pem)
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(TYPES[kind], value) for kind, value in name])
    authority = files.authority
    builder = x509.CertificateBuilder().subject_name(subject).issuer_name(issued.issuer).public_key(key.public_key())
    builder = builder.serial_number(x509.random_serial_number()).not_valid_before(issued.not_valid_before_utc)
    made = builder.not_valid_after(issued.not_valid_after_utc).sign(_signing_key(authority), hashes.SHA256())
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()) + made.public_bytes(Encoding.PEM)
    (files.folder / "client.pem").write_bytes(pem)
    return made


def _signing_key(authority: Any) -> Any:
    return load_pem_private_key(authority.key_pem, None)


def _builder(config: BrokerConfig) -> ChannelBuilder:
    """The security of the first listener, which has no SASL."""
    no_sasl: Any = None
    return ChannelBuilder(config, config.listeners[0], on_frame=lambda connection, frame: None, sasl=no_sasl)


@contextlib.asynccontextmanager
async def listening(config: BrokerConfig) -> AsyncIterator[tuple[int, list[Connection], list[str]]]:
    """The port of the first listener of a configuration, the connections that it has opened, and its reports."""
    opened: list[Connection] = []
    reports: list[str] = []
    builder = _builder(config)

    def open_connection(connection: Connection) -> None:
        builder.open(connection)
        opened.append(connection)

    listener = Listener(
        "SECURE",
        builder.on_frame,
        limits=Limits(),
        on_open=open_connection,
        tls=builder.server_tls,
        report=lambda _, text: reports.append(text),
    )
    port = await listener.bind(HOST, 0)
    await listener.serve()
    try:
        yield port, opened, reports
    finally:
        listener.close()


def _config(files: Files, **changes: str) -> BrokerConfig:
    return BrokerConfig(
        {
            "listeners": f"SECURE://{HOST}:0",
            "listener.security.protocol.map": "SECURE:SSL",
            "inter.broker.listener.name": "SECURE",
            "ssl.client.auth": "requested",
            **files.stores("broker"),
            **{name.replace("_", "."): value for name, value in changes.items()},
        }
    )


@pytest.fixture
def files(tmp_path: Path) -> Files:
    made = Files(tmp_path)
    made.issue("broker", HOST)
    return made


async def _session(config: BrokerConfig, context: ssl.SSLContext) -> Any:
    async with listening(config) as (port, opened, _):
        _, writer = await asyncio.open_connection(HOST, port, ssl=context)
        await eventually_async(lambda: opened)
        writer.close()
        return opened[0].session


async def test_a_client_without_a_certificate_is_anonymous(files: Files) -> None:
    assert await _session(_config(files), files.context()) is ANONYMOUS_SESSION


@pytest.mark.jvm
@pytest.mark.parametrize("rules", ["DEFAULT", RULES])
@pytest.mark.parametrize("name", NAMES, ids=[name[-1][1] for name in NAMES])
async def test_principals_are_those_of_kafka(
    classes: KafkaClasses, files: Files, name: list[tuple[str, str]], rules: str
) -> None:
    certificate = _certificate(files, name)
    session = await _session(_config(files, **{"ssl.principal.mapping.rules": rules}), files.context("client"))
    mapper = classes.common("security.ssl.SslPrincipalMapper").fromRules(rules)
    subject = jpype.JClass("javax.security.auth.x500.X500Principal")(java_bytes(certificate.subject.public_bytes()))
    assert session.principal.name == str(mapper.getName(subject.getName()))
    assert session.name == f"User:{session.principal.name}"


async def test_a_certificate_to_which_no_rule_applies_is_refused(files: Files) -> None:
    _certificate(files, NAMES[0])
    config = _config(files, **{"ssl.principal.mapping.rules": "RULE:^CN=bob$/bob/"})
    async with listening(config) as (port, opened, reports):
        reader, writer = await asyncio.open_connection(HOST, port, ssl=files.context("client"))
        with contextlib.suppress(ConnectionError):
            assert await reader.read() == b""
        writer.close()
        assert opened[0].session is None
        assert "No rules apply to CN=Alice" in reports[0]


@pytest.mark.parametrize("rules", ["RULE:(a+)+/x/", "RULE:", "RULE:[/x/"])
def test_rules_that_cannot_work_fail_the_start(files: Files, rules: str) -> None:
    config = _config(files, **{"ssl.principal.mapping.rules": rules})
    with pytest.raises(ConfigError, match=r"ssl\.principal\.mapping\.rules"):
        _builder(config)
