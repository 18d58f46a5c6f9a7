"""Dynamic passwords in the metadata store: their text beside Kafka's EncryptingPasswordEncoder, and their whole way."""

from __future__ import annotations

import asyncio
import logging
import socket
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    load_pem_private_key,
    pkcs12,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.broker.config.broker_config import BrokerConfig
from odradek.broker.config.password_encoder import PasswordEncoder, from_stored, to_stored, under_new_secret
from odradek.broker.config.types import ConfigError
from odradek.broker.server import Broker
from odradek.certificates import Certificate
from odradek.protocol.errors import ErrorCode
from tests.broker.admin_requests import replace_configs
from tests.broker.wire import Client, running_broker
from tests.security.kafka_classes import KafkaClasses
from tests.security.sasl_broker import port
from tests.security.tls_broker import HOST, Files

BROKER = 4
SECRET = "encoder-secret-é€"
NAME = "listener.name.tls.ssl.keystore.password"
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
key_factories = st.sampled_from([f"PBKDF2WithHmacSHA{bits}" for bits in (1, 224, 256, 384, 512)])
ciphers = st.sampled_from(("AES/CBC/PKCS5Padding", "AES/GCM/NoPadding"))
encoders = st.builds(
    PasswordEncoder, texts.filter(bool), key_factories, ciphers, st.sampled_from((128, 192, 256)), st.just(1024)
)


def _kafka(classes: KafkaClasses, ours: PasswordEncoder) -> Any:
    return classes("org.apache.kafka.security.PasswordEncoder").encrypting(
        classes.common("config.types.Password")(ours.secret),
        ours.key_factory,
        ours.cipher,
        ours.key_length,
        ours.iterations,
    )


@pytest.mark.jvm
@settings(max_examples=40)
@given(encoders, texts)
def test_kafka_reads_passwords_of_odradek_and_the_other_way_round(
    classes: KafkaClasses, ours: PasswordEncoder, password: str
) -> None:
    theirs = _kafka(classes, ours)
    assert str(theirs.decode(ours.encode(password)).value()) == password
    stored = str(theirs.encode(classes.common("config.types.Password")(password)))
    assert ours.decode(stored) == password
    names = [{each.partition(":")[0] for each in text.split(",")} for text in (stored, ours.encode(password))]
    assert names[0] == names[1]


@given(st.text(max_size=300))
def test_any_other_text_is_an_error_without_its_content(text: str) -> None:
    encoder = _encoder("AES/CBC/PKCS5Padding")
    with pytest.raises(ConfigError, match="could not be decoded") as failed:
        encoder.decode(text)
    assert failed.value.__cause__ is None


@pytest.mark.parametrize("cipher", ["AES/CBC/PKCS5Padding", "AES/GCM/NoPadding"])
def test_another_secret_does_not_decode_a_password(cipher: str) -> None:
    stored = _encoder(cipher).encode("hunter2")
    assert "hunter2" not in stored
    other = _encoder(cipher)._replace(secret="another")
    for _ in range(20):
        with pytest.raises(ConfigError, match="could not be decoded"):
            other.decode(stored)
    assert SECRET not in repr(other._replace(secret=SECRET))


def _encoder(cipher: str) -> PasswordEncoder:
    return PasswordEncoder(SECRET, "PBKDF2WithHmacSHA512", cipher, 128, 1024)


def _config(**properties: str) -> BrokerConfig:
    return BrokerConfig({"broker.id": "0"} | {f"password.encoder.{name}": text for name, text in properties.items()})


def test_only_passwords_are_encrypted() -> None:
    config = _config(secret=SECRET)
    properties = {NAME: "hunter2", "log.retention.ms": "9", "listener.name.tls.ssl.keystore.type": "PKCS12"}
    stored = to_stored(config, properties)
    assert {name: text for name, text in stored.items() if name != NAME} == {
        name: text for name, text in properties.items() if name != NAME
    }
    assert "hunter2" not in stored[NAME]
    assert from_stored(config, stored) == properties


def test_a_password_of_another_secret_is_logged_and_left_out(caplog: pytest.LogCaptureFixture) -> None:
    stored = to_stored(_config(secret=SECRET), {NAME: "hunter2", "log.retention.ms": "9"})
    with caplog.at_level(logging.ERROR):
        for config in (_config(), _config(secret="another")):
            assert from_stored(config, stored) == {"log.retention.ms": "9"}
    assert caplog.text.count(NAME) == 2
    assert "hunter2" not in caplog.text


def test_a_new_secret_takes_over_from_the_old_one() -> None:
    stored = to_stored(_config(secret=SECRET), {NAME: "hunter2", "log.retention.ms": "9"})
    config = _config(**{"secret": "new-secret", "old.secret": SECRET})
    changed = under_new_secret(config, stored)
    assert from_stored(_config(secret="new-secret"), changed) == {NAME: "hunter2", "log.retention.ms": "9"}
    assert under_new_secret(config, changed) == changed


@pytest.mark.parametrize(
    ("name", "value"),
    [("cipher.algorithm", "DES/CBC/PKCS5Padding"), ("keyfactory.algorithm", "MD5"), ("key.length", "64")],
)
def test_algorithms_that_are_not_supported_are_named(name: str, value: str) -> None:
    with pytest.raises(ConfigError, match=f"password.encoder.{name} {value}: expected"):
        to_stored(_config(**{"secret": SECRET, name: value}), {NAME: "hunter2"})


# ---- the whole way: AlterConfigs, restart, another secret


def _write(path: Path, certificate: Certificate, password: str) -> Path:
    """A PKCS12 key store."""
    key: Any = load_pem_private_key(certificate.key_pem, None)
    own = x509.load_pem_x509_certificate(certificate.certificate_pem)
    path.write_bytes(
        pkcs12.serialize_key_and_certificates(b"key", key, own, None, BestAvailableEncryption(password.encode()))
    )
    return path


async def _serial(broker: Broker, files: Files) -> int:
    """The serial number of the certificate of the TLS listener."""

    def connected() -> int:
        with (
            socket.create_connection((HOST, port(broker, "TLS")), timeout=20) as plain,
            files.context().wrap_socket(plain, server_hostname=HOST) as encrypted,
        ):
            certificate: Any = encrypted.getpeercert()
            return int(certificate["serialNumber"], 16)

    return await asyncio.to_thread(connected)


def _number(certificate: Certificate) -> int:
    return x509.load_pem_x509_certificate(certificate.certificate_pem).serial_number


@pytest.mark.slow
async def test_a_key_store_with_a_new_password_stays_after_restarts_and_a_new_secret(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    files, data = Files(tmp_path / "tls"), tmp_path / "data"
    first, second = (files.authority.issue("broker", [HOST]) for _ in range(2))
    properties = {
        "listeners": "PLAINTEXT://127.0.0.1:0,TLS://127.0.0.1:0",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,TLS:SSL",
        "listener.name.tls.ssl.keystore.type": "PKCS12",
        "listener.name.tls.ssl.keystore.location": str(_write(tmp_path / "first.p12", first, "first-password")),
        "listener.name.tls.ssl.key.password": "first-password",
        NAME: "first-password",
        "password.encoder.secret": SECRET,
    }
    wanted = [
        ("listener.name.tls.ssl.keystore.location", str(_write(tmp_path / "second.p12", second, "hunter2"))),
        (NAME, "hunter2"),
        ("listener.name.tls.ssl.key.password", "hunter2"),
    ]
    async with running_broker(data, properties) as broker:
        assert await _serial(broker, files) == _number(first)
        client = await Client.connect(port(broker, "PLAINTEXT"))
        (wrong,) = (await client.ask(replace_configs((BROKER, "0", [*wanted[:1], (NAME, "wrong")])), 2)).responses
        assert wrong.error_code == ErrorCode.INVALID_REQUEST
        (result,) = (await client.ask(replace_configs((BROKER, "0", wanted)), 2)).responses
        assert result.error_code == ErrorCode.NONE, result.error_message
        client.close()
        assert await _serial(broker, files) == _number(second)
    for changes in (
        {},
        {"password.encoder.secret": "new-secret", "password.encoder.old.secret": SECRET},
        {"password.encoder.secret": "new-secret"},
    ):
        async with running_broker(data, properties | changes) as broker:
            assert await _serial(broker, files) == _number(second)
    assert not any(b"hunter2" in path.read_bytes() for path in data.rglob("*") if path.is_file())
    assert "hunter2" not in caplog.text
