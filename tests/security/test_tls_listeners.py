"""Clients of every kind on TLS listeners of one broker, each with its own certificate and its own `ssl.client.auth`."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import socket
import ssl
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaConsumer, KafkaProducer

from odradek.broker.config.broker_config import BrokerConfig
from odradek.broker.config.types import ConfigError
from odradek.broker.server import Broker
from odradek.broker_process import BrokerProcess
from odradek.ready_process import OWN_COMMAND
from tests.compatibility.console import consume, produce
from tests.jvm.tools import run_tool
from tests.security.tls_broker import HOST, Files, listeners
from tests.support.eventually import eventually

LISTENERS = {"INSIDE": "PLAINTEXT", "OPEN": "SSL", "ASKING": "SSL", "MUTUAL": "SSL"}
VALUES = [b"first", b"second", bytes(200_000)]


class Secured(NamedTuple):
    """A broker, the ports of its listeners, and the files of its clients."""

    broker: BrokerProcess
    ports: dict[str, int]
    files: Files

    def bootstrap(self, listener: str) -> str:
        return f"{HOST}:{self.ports[listener]}"


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    folder = tmp_path_factory.mktemp("tls")
    files = Files(folder)
    for name, hosts in (("broker", [HOST, "localhost"]), ("other", [HOST]), ("alice", [])):
        files.issue(name, *hosts)
    ports, properties = listeners(LISTENERS)
    own = files.stores("other", "listener.name.asking.")
    own["listener.name.asking.ssl.client.auth"] = "requested"
    own["listener.name.mutual.ssl.client.auth"] = "required"
    with BrokerProcess(folder, {**properties, **files.stores("broker"), **own}) as broker:
        yield Secured(broker, ports, files)


def _round_trip(config: dict[str, Any], topic: str) -> list[bytes]:
    """The values that a consumer of librdkafka gets after a producer has sent VALUES."""
    admin = AdminClient(config)
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(30)
    producer = Producer(config)
    for value in VALUES:
        producer.produce(topic, value)
    assert producer.flush(30) == 0
    consumer = Consumer({**config, "group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    received: list[bytes] = []
    try:
        eventually(lambda: received.extend(_values(consumer.consume(10, 0.2))), lambda _: len(received) >= len(VALUES))
    finally:
        consumer.close()
    return received


def _values(messages: list[Any]) -> list[bytes]:
    for message in messages:
        assert message.error() is None, message.error()
    return [message.value() for message in messages]


def test_plain_bytes_on_a_tls_listener_end_the_connection(secured: Secured) -> None:
    with socket.create_connection((HOST, secured.ports["OPEN"]), timeout=20) as plain:
        plain.sendall(b"\0\0\0\x0c\0\x12\0\0\0\0\0\x01\xff\xff\0\0")
        with contextlib.suppress(ConnectionError):
            while plain.recv(1000):
                pass
    failed = "to listener OPEN refused: TLS handshake failed: [SSL: "
    eventually(lambda: secured.broker.output, lambda text: failed in text)


def test_a_tls_hello_on_a_plain_listener_is_named(secured: Secured) -> None:
    with pytest.raises((ssl.SSLError, ConnectionError)):
        _peer(secured, "INSIDE")
    eventually(lambda: secured.broker.output, timeout_s=20, holds=lambda text: re.search("INSIDE closed: .*TLS", text))


@pytest.mark.parametrize(
    ("listener", "client"),
    [("OPEN", None), ("OPEN", "alice"), ("ASKING", None), ("ASKING", "alice"), ("MUTUAL", "alice")],
)
def test_librdkafka(secured: Secured, listener: str, client: str | None) -> None:
    config = {"bootstrap.servers": secured.bootstrap(listener), **secured.files.librdkafka(client)}
    assert _round_trip(config, f"librdkafka-{listener}-{client}") == VALUES


def test_a_client_without_a_certificate_is_refused_and_learns_why(secured: Secured) -> None:
    errors: list[str] = []
    config = {"bootstrap.servers": secured.bootstrap("MUTUAL"), **secured.files.librdkafka()}
    producer = Producer({**config, "error_cb": lambda error: errors.append(str(error))})
    eventually(lambda: producer.poll(0.1), lambda _: any("certificate required" in error for error in errors))


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_failed_handshake_ends_with_an_alert(secured: Secured, version: ssl.TLSVersion) -> None:
    context = secured.files.context()
    context.maximum_version = version
    alert = "HANDSHAKE_FAILURE" if version is ssl.TLSVersion.TLSv1_2 else "CERTIFICATE_REQUIRED"
    with (
        socket.create_connection((HOST, secured.ports["MUTUAL"]), timeout=20) as plain,
        pytest.raises(ssl.SSLError, match=alert),
    ):
        _talk(context, plain)


def _talk(context: ssl.SSLContext, plain: socket.socket) -> None:
    with context.wrap_socket(plain, server_hostname=HOST) as encrypted:
        encrypted.sendall(b"a request of a client that does not wait")
        encrypted.recv(10)


@pytest.mark.jvm
def test_a_java_client_without_a_certificate_fails_at_once(secured: Secured) -> None:
    options = ["--bootstrap-server", secured.bootstrap("MUTUAL"), "--command-config", str(secured.files.java())]
    result = run_tool("3.9.2", "kafka-topics", [*options, "--list"], check=False)
    assert result.status == 1
    assert "SslAuthenticationException" in result.stderr


async def test_aiokafka(secured: Secured) -> None:
    options = {
        "bootstrap_servers": secured.bootstrap("MUTUAL"),
        "security_protocol": "SSL",
        "ssl_context": secured.files.context("alice"),
    }
    async with AIOKafkaProducer(**options) as producer:
        for value in VALUES:
            await producer.send_and_wait("aiokafka", value)
    async with AIOKafkaConsumer("aiokafka", auto_offset_reset="earliest", **options) as consumer:
        async with asyncio.timeout(30):
            assert [(await consumer.getone()).value for _ in VALUES] == VALUES


def test_kafka_python(secured: Secured) -> None:
    options = {
        "bootstrap_servers": secured.bootstrap("MUTUAL"),
        "security_protocol": "SSL",
        "ssl_context": secured.files.context("alice"),
    }
    producer = KafkaProducer(**options)
    for value in VALUES:
        producer.send("kafka-python", value).get(30)
    producer.close()
    consumer = KafkaConsumer("kafka-python", auto_offset_reset="earliest", consumer_timeout_ms=30_000, **options)
    assert [message.value for _, message in zip(VALUES, consumer, strict=False)] == VALUES
    consumer.close()


@pytest.mark.jvm
@pytest.mark.parametrize(("listener", "client"), [("OPEN", None), ("MUTUAL", "alice")])
def test_console_tools(secured: Secured, listener: str, client: str | None, tmp_path: Path) -> None:
    lines, properties = tmp_path / "lines", secured.files.java(client)
    topic, bootstrap = f"console-{listener}", secured.bootstrap(listener)
    options = "--producer.config", str(properties)
    lines.write_text("".join(f"header:1\tkey\tvalue {number}\n" for number in range(20)))
    produce("3.9.2", bootstrap, topic, lines, *options)
    selection = ["--topic", topic, "--from-beginning", "--consumer.config", str(properties)]
    records = consume("3.9.2", bootstrap, selection, 20, tmp_path / "printed")
    assert [record.value for record in records] == [f"value {number}" for number in range(20)]


def _peer(secured: Secured, listener: str, host: str = HOST) -> dict[str, Any]:
    with (
        socket.create_connection((HOST, secured.ports[listener]), timeout=20) as plain,
        secured.files.context("alice").wrap_socket(plain, server_hostname=host) as encrypted,
    ):
        found: Any = encrypted.getpeercert()
        return dict(found)


def test_each_listener_has_the_certificate_of_its_prefix(secured: Secured) -> None:
    names = {listener: _peer(secured, listener)["subject"][0][0][1] for listener in ("OPEN", "ASKING", "MUTUAL")}
    assert names == {"OPEN": "broker", "ASKING": "other", "MUTUAL": "broker"}
    with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
        _peer(secured, "ASKING", "localhost")


@pytest.mark.slow
def test_200_clients_that_never_finish_their_handshake_do_not_stop_others(secured: Secured) -> None:
    with contextlib.ExitStack() as stack:
        for _ in range(200):
            stack.enter_context(socket.create_connection((HOST, secured.ports["OPEN"]), timeout=20))
        begin = time.monotonic()
        assert _peer(secured, "OPEN")
        assert time.monotonic() - begin < 10


def _odradek(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*OWN_COMMAND, *arguments], capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.slow
@pytest.mark.parametrize(("listener", "client"), [("OPEN", None), ("MUTUAL", "alice")])
def test_commands_take_the_properties_of_kafkas_clients(secured: Secured, listener: str, client: str | None) -> None:
    options = "--command-config", str(secured.files.java(client))
    bootstrap = secured.bootstrap(listener)
    found = _odradek("cluster", "status", "--json", "--bootstrap-server", bootstrap, *options)
    assert [each["error"] for each in json.loads(found.stdout)["brokers"]] == [None]
    assert _odradek("health", bootstrap, *options).returncode == 0


@pytest.mark.slow
def test_commands_name_what_is_wrong_with_their_properties(secured: Secured, tmp_path: Path) -> None:
    config = tmp_path / "client.properties"
    stores = "ssl.truststore.location=/nowhere.pem\nssl.truststore.type=PEM\n"
    for text, message in (
        (f"security.protocol=SSL\n{stores}", "ssl.truststore.location: the keystore /nowhere.pem cannot be read"),
        ("security.protocol=TLS\n", "security.protocol=TLS; allowed: PLAINTEXT, SSL"),
        ("security.protocol=SSL\n", "CERTIFICATE_VERIFY_FAILED"),
    ):
        config.write_text(text)
        failed = _odradek("health", secured.bootstrap("OPEN"), "--command-config", str(config))
        assert failed.returncode == 1
        assert message in failed.stderr


async def _start(folder: Path, properties: dict[str, str]) -> None:
    broker = Broker(BrokerConfig({"broker.id": "0", "log.dirs": str(folder / "data"), **properties}))
    await broker.start()
    await broker.stop()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"ssl.keystore.location": "/nowhere/broker.pem"}, "ssl.keystore.location: the keystore /nowhere/broker.pem"),
        ({"ssl.truststore.location": "/nowhere/ca.pem"}, "ssl.truststore.location: the keystore /nowhere/ca.pem"),
        ({"ssl.keystore.password": "secret-1"}, "SSL key store password cannot be specified with PEM format"),
        ({"ssl.enabled.protocols": "TLSv1.1"}, "ssl.enabled.protocols has TLSv1.1; allowed: TLSv1.2, TLSv1.3"),
        ({"ssl.cipher.suites": "NO_SUCH_SUITE"}, "NO_SUCH_SUITE"),
        ({"ssl.principal.mapping.rules": "RULE:(a+)+/x/"}, "ssl.principal.mapping.rules: Invalid rule"),
        ({"ssl.keystore.type": "JKS"}, "SSL key store is specified, but key store password is not specified."),
    ],
)
async def test_errors_at_the_start_name_the_property(tmp_path: Path, change: dict[str, str], message: str) -> None:
    files = Files(tmp_path)
    files.issue("broker", HOST)
    _, properties = listeners({"SECURE": "SSL"})
    with pytest.raises(ConfigError) as refused:
        await _start(tmp_path, {**properties, **files.stores("broker"), **change})
    assert message in str(refused.value)
    assert "secret-1" not in str(refused.value)


@pytest.mark.slow
async def test_a_broker_whose_own_certificate_its_peers_would_not_trust_does_not_start(tmp_path: Path) -> None:
    files, strangers = Files(tmp_path), Files(tmp_path / "strangers")
    files.issue("broker", HOST)
    _, properties = listeners({"SECURE": "SSL"})
    trusted = {"ssl.truststore.location": str(strangers.trusted)}
    with pytest.raises(ConfigError, match="can't connect to a server SSLEngine created with those settings"):
        await _start(tmp_path, {**properties, **files.stores("broker"), **trusted})
