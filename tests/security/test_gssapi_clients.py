"""SASL/GSSAPI with MIT Kerberos: clients of three libraries here, and the same client here and at Apache Kafka."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
from aiokafka.admin import AIOKafkaAdminClient
from kafka import KafkaAdminClient

from odradek.broker.config.types import ConfigError
from odradek.broker.runtime.timers import SystemClock
from odradek.broker.security.kerberos import KerberosLogin
from odradek.broker.security.sasl_client import GssapiClients, SaslConnector
from odradek.broker.security.state.gssapi import GssapiClient
from odradek.broker.server import Broker
from odradek.ports import free_port
from odradek.protocol import dial
from odradek.protocol import messages as m
from odradek.protocol.errors import ErrorCode
from odradek.protocol.framing import frame, request_header
from tests.broker.cluster_in_process import running_cluster
from tests.broker.wire import batch, running_broker
from tests.jvm.kafka import SMALL_JVM, Kafka
from tests.jvm.process import QUICK_START, QUIET, run_java
from tests.jvm.tools import tool_command
from tests.security.kdc import REALM, Kdc
from tests.support.eventually import eventually_async

pytestmark = [pytest.mark.slow]

SERVICE = "kafka/localhost"
MODULE = "com.sun.security.auth.module.Krb5LoginModule"


def _jaas(key_table: Path, principal: str) -> str:
    return f'{MODULE} required useKeyTab=true storeKey=true keyTab="{key_table}" principal="{principal}@{REALM}";'


@pytest.fixture(scope="module")
def broker_keys(kdc: Kdc) -> Path:
    return kdc.key_table(SERVICE)


@pytest.fixture(scope="module")
def alice_keys(kdc: Kdc) -> Path:
    return kdc.key_table("alice")


def _properties(broker_keys: Path) -> dict[str, str]:
    return {
        "listeners": "SASL_PLAINTEXT://localhost:0,PLAINTEXT://127.0.0.1:0",
        "sasl.enabled.mechanisms": "GSSAPI",
        "sasl.kerberos.service.name": "kafka",
        "listener.name.sasl_plaintext.gssapi.sasl.jaas.config": _jaas(broker_keys, SERVICE),
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        "super.users": "User:ANONYMOUS;User:alice",
        "connection.failed.authentication.delay.ms": "1",
    }


@pytest.fixture
async def broker(broker_keys: Path, tmp_path: Path) -> AsyncIterator[Broker]:
    async with running_broker(tmp_path / "data", _properties(broker_keys)) as running:
        yield running


def _port(broker: Broker) -> int:
    endpoint = broker.running.metadata_cache.brokers[0].endpoint("SASL_PLAINTEXT")
    assert endpoint is not None
    return endpoint.port


# ---- clients of this broker


@pytest.mark.jvm
@pytest.mark.parametrize("version", ["2.8.2", "3.9.2", "4.3.0"])
async def test_java_clients_log_in(kdc: Kdc, broker: Broker, alice_keys: Path, tmp_path: Path, version: str) -> None:
    config = tmp_path / "client.properties"
    config.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=GSSAPI\nsasl.kerberos.service.name=kafka\n"
        f"sasl.jaas.config={_jaas(alice_keys, 'alice')}\n"
    )
    arguments = ["--bootstrap-server", f"localhost:{_port(broker)}", "--command-config", str(config)]
    java = (*QUICK_START, *QUIET, f"-Djava.security.krb5.conf={kdc.config}")
    command = tool_command(version, "kafka-topics", [*arguments, "--create", "--topic", "of-alice"], java)
    result = await asyncio.to_thread(run_java, command, timeout_s=60)
    assert "Created topic of-alice" in result.stdout


async def test_aiokafka_logs_in(kdc: Kdc, broker: Broker, alice_keys: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KRB5_CLIENT_KTNAME", str(alice_keys))
    client = AIOKafkaAdminClient(
        bootstrap_servers=f"localhost:{_port(broker)}", security_protocol="SASL_PLAINTEXT", sasl_mechanism="GSSAPI"
    )
    await client.start()
    assert (await client.describe_cluster())["brokers"]
    await client.close()


async def test_kafka_python_logs_in(
    kdc: Kdc, broker: Broker, alice_keys: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KRB5_CLIENT_KTNAME", str(alice_keys))

    def brokers() -> int:
        client = KafkaAdminClient(
            bootstrap_servers=f"localhost:{_port(broker)}", security_protocol="SASL_PLAINTEXT", sasl_mechanism="GSSAPI"
        )
        found = len(client.describe_cluster()["brokers"])
        client.close()
        return found

    assert await asyncio.to_thread(brokers) == 1


async def test_a_frame_that_does_not_wait_for_its_turn_closes_the_connection(broker: Broker) -> None:
    reader, writer = await asyncio.open_connection("localhost", _port(broker))
    token = m.SaslAuthenticateRequest(auth_bytes=b"no ticket")
    writer.write(_framed(m.SaslHandshakeRequest(mechanism="GSSAPI"), 1) + _framed(token, 1) * 2)
    answer = await asyncio.wait_for(reader.read(), 20)
    assert answer.count(b"GSSAPI") == 1, "only the handshake has a response"
    writer.close()
    await writer.wait_closed()


@pytest.mark.parametrize(
    "change", [{"sasl.kerberos.service.name": ""}, {"sasl.kerberos.principal.to.local.rules": "RULE:[x]"}]
)
async def test_an_invalid_listener_stops_the_start(broker_keys: Path, tmp_path: Path, change: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match=r"sasl\.kerberos"):
        async with running_broker(tmp_path / "data", {**_properties(broker_keys), **change}):
            pass


# ---- the same client here and at Apache Kafka


def _framed(request: Any, version: int) -> bytes:
    return frame(request_header(request.API_KEY, version, 1, "client"), request.encode(version))


class RawClient:
    """A connection whose frames are those of the test."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("localhost", port), 20)
        self._file = self._socket.makefile("rb")

    def send(self, framed: bytes) -> None:
        """Send a frame."""
        self._socket.sendall(framed)

    def ask(self, framed: bytes) -> bytes:
        """Send a frame; return the next frame, without its size. Raises ConnectionResetError at the end."""
        self.send(framed)
        size = self._file.read(4)
        if len(size) < 4:
            raise ConnectionResetError
        return self._file.read(struct.unpack(">i", size)[0])

    def close(self) -> None:
        self._file.close()
        self._socket.close()


def _log_in(port: int, login: KerberosLogin, version: int | None) -> list[str]:
    """What a client receives that logs in and asks for the versions, after SaslHandshake of a version.

    Clients of Kafka 0.9 have no SaslHandshake.
    """
    client, connection, received = GssapiClient(login.initiate("localhost")), RawClient(port), []
    if version is not None:
        handshake = m.SaslHandshakeResponse.decode(
            connection.ask(_framed(m.SaslHandshakeRequest(mechanism="GSSAPI"), version)), version, 4
        )
        received.append(f"{handshake.error_code} {handshake.mechanisms}")

    def send(token: bytes) -> bytes:
        if not version:
            return connection.ask(struct.pack(">i", len(token)) + token)
        answered = connection.ask(_framed(m.SaslAuthenticateRequest(auth_bytes=token), 1))
        answer = m.SaslAuthenticateResponse.decode(answered, 1, 4)
        received.append(f"{answer.error_code} {answer.error_message} {answer.session_lifetime_ms}")
        return answer.auth_bytes

    message = client.first_message()
    while not client.complete:
        challenge = send(message)
        received.append("token" if message else f"layers of {len(challenge)} bytes")
        message = client.evaluate(challenge)
    if not version:  # the last message has no response
        connection.send(struct.pack(">i", len(message)) + message)
    else:
        received.append(repr(send(message)))
    versions = m.ApiVersionsResponse.decode(connection.ask(_framed(m.ApiVersionsRequest(), 0)), 0, 4)
    received.append(f"{versions.error_code} {bool(versions.api_keys)}")
    connection.close()
    return received


def _fail(port: int, token: bytes, version: int | None) -> list[str]:
    """What a client receives whose token is not valid."""
    connection, received = RawClient(port), []
    if version is not None:
        connection.ask(_framed(m.SaslHandshakeRequest(mechanism="GSSAPI"), version))
    framed = struct.pack(">i", len(token)) + token
    if version:
        framed = _framed(m.SaslAuthenticateRequest(auth_bytes=token), 1)
    try:
        answer = m.SaslAuthenticateResponse.decode(connection.ask(framed), 1, 4)
        received.append(f"{ErrorCode(answer.error_code).name} {answer.error_message} {answer.auth_bytes!r}")
        connection.ask(b"")
    except ConnectionResetError:
        received.append("closed")
    connection.close()
    return received


@pytest.fixture(scope="module")
def kafka_port(kdc: Kdc, broker_keys: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """The port of Apache Kafka."""
    plaintext, sasl = free_port(), free_port()
    addresses = f"PLAINTEXT://127.0.0.1:{plaintext},SASL_PLAINTEXT://localhost:{sasl}"
    properties = {**_properties(broker_keys), "listeners": addresses, "advertised.listeners": addresses}
    jvm = (*SMALL_JVM, f"-Djava.security.krb5.conf={kdc.config}")
    made = Kafka(tmp_path_factory.mktemp("kafka"), properties, jvm)
    made.port = plaintext
    try:
        made.start()
        yield sasl
    finally:
        made.close()


@pytest.mark.jvm
@pytest.mark.parametrize("version", [None, 0, 1])
async def test_both_brokers_send_the_same(
    kafka_port: int, broker: Broker, alice_keys: Path, version: int | None
) -> None:
    options = {"useKeyTab": "true", "keyTab": str(alice_keys), "principal": f"alice@{REALM}"}
    login = KerberosLogin(options, "kafka")
    ports = kafka_port, _port(broker)
    theirs, ours = [await asyncio.to_thread(_log_in, port, login, version) for port in ports]
    assert ours == theirs
    for token in (b"no token", b""):
        theirs, ours = [await asyncio.to_thread(_fail, port, token, version) for port in ports]
        assert ours == theirs


# ---- between brokers


async def test_brokers_authenticate_to_each_other(broker_keys: Path, tmp_path: Path) -> None:
    properties = {
        "listeners": "PLAINTEXT://127.0.0.1:0,PEERS://localhost:0",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,PEERS:SASL_PLAINTEXT",
        "inter.broker.listener.name": "PEERS",
        "min.insync.replicas": "3",
        "sasl.enabled.mechanisms": "GSSAPI",
        "sasl.mechanism.inter.broker.protocol": "GSSAPI",
        "sasl.kerberos.service.name": "kafka",
        "listener.name.peers.gssapi.sasl.jaas.config": _jaas(broker_keys, SERVICE),
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        "super.users": "User:kafka;User:ANONYMOUS",
    }
    async with running_cluster(tmp_path, **properties) as cluster:
        await cluster.create("t", [1, 2, 3])

        async def is_written() -> bool:
            return (await cluster.clients[1].produce("t", batch(b"v"))).error_code == 0

        await eventually_async(is_written)


async def test_a_ticket_for_another_service_is_rejected(kdc: Kdc, broker: Broker, alice_keys: Path) -> None:
    options = {"useKeyTab": "true", "keyTab": str(alice_keys), "principal": f"alice@{REALM}"}
    kdc.key_table("http/localhost")
    clients = GssapiClients(KerberosLogin(options, "http").initiate)
    connector = SaslConnector("GSSAPI", clients, SystemClock(), Random(1))
    with pytest.raises(OSError, match="SASL_AUTHENTICATION_FAILED"):
        await connector.connect(
            dial.connect, "localhost", _port(broker), on_frame=print, on_lost=lambda: None, frame_bytes=1 << 20
        )
