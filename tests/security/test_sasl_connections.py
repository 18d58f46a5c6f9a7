"""SASL listeners of a broker in this process: clients of three libraries, sessions, and raw frames."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from odradek.broker.config.broker_config import BrokerConfig
from odradek.broker.config.types import ConfigError
from odradek.broker.network.reconfiguration import Reconfiguration
from odradek.broker.runtime.request_tasks import RequestTasks
from odradek.broker.server import Broker
from odradek.protocol import messages as m
from odradek.protocol.errors import ErrorCode
from odradek.protocol.framing import frame, request_header
from odradek.protocol.sasl import scram_credentials
from odradek.protocol.sasl.plain import client_message
from odradek.protocol.sasl.scram import ScramClient, salted_password
from tests.broker.wire import Client, running_broker
from tests.security.sasl_broker import (
    MECHANISMS,
    METADATA,
    authenticate,
    handshake,
    log_in,
    port,
    secured,
    set_password,
)
from tests.security.sasl_clients import CLIENTS, PASSWORD
from tests.support.eventually import eventually_async


@pytest.mark.slow
async def test_clients_authenticate_with_every_mechanism(tmp_path: Path) -> None:
    async with secured(tmp_path) as broker:
        sasl = port(broker, "SASL_PLAINTEXT")
        for mechanism in MECHANISMS:
            for client in CLIENTS:
                assert await asyncio.to_thread(client, sasl, mechanism, PASSWORD) == {0}, (mechanism, client)
        for client in CLIENTS:
            with pytest.raises(PermissionError):
                await asyncio.to_thread(client, sasl, "SCRAM-SHA-256", "another-secret")


async def test_a_changed_password_counts_at_once_and_a_deleted_user_is_rejected(tmp_path: Path) -> None:
    async with secured(tmp_path) as broker:
        admin = await Client.connect(port(broker, "PLAINTEXT"))
        await set_password(admin, "alice", "another-secret")
        await eventually_async(lambda: authenticates(broker, "SCRAM-SHA-256", "another-secret"))
        assert not await authenticates(broker, "SCRAM-SHA-256", PASSWORD)
        deletions = [
            m.AlterUserScramCredentialsRequest.ScramCredentialDeletion(name="alice", mechanism=number)
            for number in (1, 2)
        ]
        await admin.ask(m.AlterUserScramCredentialsRequest(deletions=deletions), 0)

        async def is_rejected() -> bool:
            return not await authenticates(broker, "SCRAM-SHA-256", "another-secret")

        await eventually_async(is_rejected)
        admin.close()


# ---- one connection


async def authenticates(broker: Broker, mechanism: str, password: str, listener: str = "SASL_PLAINTEXT") -> bool:
    """Whether SCRAM accepts the password of alice."""
    kind = next(each for each in scram_credentials.MECHANISMS.values() if each.name == mechanism)
    client, exchange = await Client.connect(port(broker, listener)), ScramClient(kind, "alice", "nonce")
    try:
        await handshake(client, mechanism)
        first = exchange.receive_first((await authenticate(client, exchange.first_message())).auth_bytes)
        salted = salted_password(kind, password, first.salt, first.iterations)
        return (await authenticate(client, exchange.final_message(salted))).error_code == 0
    finally:
        client.close()


@pytest.fixture
async def sasl(tmp_path: Path) -> AsyncIterator[Client]:
    """A connection to a listener whose sessions last 1.5 s."""
    async with secured(tmp_path, connections_max_reauth_ms="1500") as broker:
        client = await Client.connect(port(broker, "SASL_PLAINTEXT"))
        yield client
        client.close()


@pytest.mark.slow
async def test_a_session_ends_unless_the_client_re_authenticates(sasl: Client) -> None:
    assert (await log_in(sasl)).session_lifetime_ms == 1500
    begin_s = asyncio.get_running_loop().time()
    assert (await log_in(sasl)).session_lifetime_ms == 1500  # the first re-authentication may begin at once
    refused = await handshake(sasl)
    assert (refused.error_code, refused.mechanisms) == (ErrorCode.ILLEGAL_SASL_STATE, [])  # the second may not
    assert (await authenticate(sasl, b"")).error_code == ErrorCode.ILLEGAL_SASL_STATE

    async def is_closed() -> bool:
        try:
            await sasl.ask(METADATA, 12)
        except (asyncio.IncompleteReadError, ConnectionError):
            return True
        return False

    await eventually_async(is_closed)
    assert asyncio.get_running_loop().time() - begin_s > 1.4


async def test_a_connection_keeps_its_principal(sasl: Client) -> None:
    assert (await log_in(sasl)).error_code == 0
    await sasl.send(METADATA, 12)
    await sasl.send(m.SaslHandshakeRequest(mechanism="PLAIN"), 1)
    await sasl.send(m.SaslAuthenticateRequest(auth_bytes=client_message("bob", "bob-secret")), 2)
    assert (await sasl.receive()).brokers
    assert (await sasl.receive()).error_code == 0
    refused = await sasl.receive()
    assert refused.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert refused.error_message.startswith("Cannot change principals during re-authentication")
    assert await sasl.is_closed()


async def test_requests_in_one_packet_with_the_authentication_are_answered(sasl: Client) -> None:
    await sasl.send(m.ApiVersionsRequest(client_software_name="c", client_software_version="1"), 3)
    await sasl.send(m.SaslHandshakeRequest(mechanism="PLAIN"), 1)
    await sasl.send(m.SaslAuthenticateRequest(auth_bytes=client_message("alice", PASSWORD)), 2)
    await sasl.send(METADATA, 12)
    assert len((await sasl.receive()).api_keys) > 50
    assert [(await sasl.receive()).error_code for _ in range(2)] == [0, 0]
    assert (await sasl.receive()).brokers


async def test_a_failure_is_answered_after_the_delay(tmp_path: Path) -> None:
    async with secured(tmp_path, connection_failed_authentication_delay_ms="300") as broker:
        client = await Client.connect(port(broker, "SASL_PLAINTEXT"))
        await handshake(client)
        begin_s = asyncio.get_running_loop().time()
        await client.send(m.SaslAuthenticateRequest(auth_bytes=client_message("alice", "x")), 2)
        await client.send_bytes(b"\0\0\0\1x")  # dropped
        assert (await client.receive()).error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert asyncio.get_running_loop().time() - begin_s >= 0.3
        assert await client.is_closed()
        client.close()


async def test_cve_2022_34917_frames_are_small_before_authentication(tmp_path: Path) -> None:
    async with secured(tmp_path, sasl_server_max_receive_size="1000") as broker:
        for frames in ((), (m.SaslHandshakeRequest(mechanism="PLAIN"),)):
            client = await Client.connect(port(broker, "SASL_PLAINTEXT"))
            for each in frames:
                await client.ask(each, 1)
            await client.send_bytes((1001).to_bytes(4, "big"))
            assert await client.is_closed()
            client.close()
        client = await Client.connect(port(broker, "SASL_PLAINTEXT"))
        await log_in(client)
        large = m.MetadataRequest(topics=[m.MetadataRequest.MetadataRequestTopic(name=f"topic-{n}") for n in range(99)])
        assert len((await client.ask(large, 8)).topics) == 99
        client.close()


async def test_incomplete_frames_of_strangers_hold_a_bounded_number_of_bytes(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with secured(tmp_path, sasl_server_max_receive_size="100000") as broker:
        clients = [await Client.connect(port(broker, "SASL_PLAINTEXT")) for _ in range(20)]
        for client in clients:
            await client.send_bytes((100_000).to_bytes(4, "big") + bytes(99_999))

        async def held() -> int:
            return broker.running.held_bytes

        await eventually_async(held, lambda found: found >= 20 * 100_000)
        assert await held() <= 20 * 100_004
        for client in clients:
            await client.send_bytes(b"\0")  # the frame is complete, and no request
            assert await client.is_closed()
            client.close()
        await eventually_async(held, lambda found: found == 0)
        large = await Client.connect(port(broker, "SASL_PLAINTEXT"))
        await large.send_bytes((100_001).to_bytes(4, "big"))
        assert await large.is_closed()
        large.close()
    assert "a request of 100001 bytes is not within 0 and 100000 (sasl.server.max.receive.size)" in caplog.text


PIECES = (
    request_header(18, 3, 1, "c") + b"\x02c\x021\0",
    request_header(17, 1, 1, "c") + b"\0\5PLAIN",
    request_header(17, 0, 1, "c") + b"\0\x0dSCRAM-SHA-256",
    request_header(36, 1, 1, "c") + b"\0\0\0\1x",
    request_header(36, 2, 1, "c") + b"\0\x05\0a\0b\0",
    b"n,,n=alice,r=nonce",
)


async def test_no_bytes_of_strangers_harm_the_broker(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Frames of any content and bytes without frames: the broker closes the connection, and logs no exception."""
    async with secured(tmp_path) as broker:
        for seed in range(200):
            random = Random(seed)
            frames = [random.choice((*PIECES, random.randbytes(random.randrange(60)))) for _ in range(5)]
            client = await Client.connect(port(broker, "SASL_PLAINTEXT"))
            if seed % 4:
                await client.send_bytes(b"".join(map(frame, frames)) + b"\xff\xff\xff\xff")
                while not await client.is_closed():
                    pass  # a byte of a response
            else:
                await client.send_bytes(b"".join(frames))
            client.close()
        good = await Client.connect(port(broker, "SASL_PLAINTEXT"))
        assert (await log_in(good)).error_code == 0
        good.close()
    assert not [each for each in caplog.records if each.exc_info or each.levelname == "ERROR"]


async def test_a_listener_that_is_added_at_run_time(tmp_path: Path) -> None:
    """One whose mechanism has no users is refused, and the broker continues."""
    plaintext = "PLAINTEXT://127.0.0.1:0"
    own = {
        "listeners": plaintext,
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,BAD:SASL_PLAINTEXT,GOOD:SASL_PLAINTEXT",
        "listener.name.bad.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.good.sasl.enabled.mechanisms": "SCRAM-SHA-256",
        "connection.failed.authentication.delay.ms": "1",
    }
    async with running_broker(tmp_path, own) as broker:
        admin = await Client.connect(port(broker, "PLAINTEXT"))
        await set_password(admin, "alice", PASSWORD)
        request = m.IncrementalAlterConfigsRequest
        for name, code in (("BAD", ErrorCode.INVALID_REQUEST), ("GOOD", ErrorCode.NONE)):
            value = f"{plaintext},{name}://127.0.0.1:0"
            change = request.AlterableConfig(name="listeners", config_operation=0, value=value)
            resource = request.AlterConfigsResource(resource_type=4, resource_name="0", configs=[change])
            (result,) = (await admin.ask(request(resources=[resource]), 1)).responses
            assert result.error_code == code
            assert code is ErrorCode.NONE or "SASL/PLAIN of listener BAD needs" in result.error_message
        await eventually_async(
            lambda: authenticates(broker, "SCRAM-SHA-256", PASSWORD, "GOOD"), retry_on=(AssertionError,)
        )
        assert broker.running.metadata_cache.brokers[0].endpoint("BAD") is None
        admin.close()


class ListenersWithoutSecurity:
    """Listeners of which one cannot be opened: another program has written its properties without validation."""

    def update_limits(self, config: BrokerConfig) -> None:
        pass

    def update_security(self, config: BrokerConfig) -> None:
        pass

    async def reconfigure(self, config: BrokerConfig) -> bool:
        raise ConfigError("SASL/PLAIN of listener BAD needs sasl.jaas.config")


async def test_a_listener_that_cannot_be_opened_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    tasks, changed = RequestTasks(), list[str]()
    listeners: Any = ListenersWithoutSecurity()
    registration: Any = None
    Reconfiguration(BrokerConfig({}), listeners, registration, tasks, [lambda: changed.append("others")])()
    await eventually_async(lambda: "cannot open listener error=SASL/PLAIN of listener BAD needs" in caplog.text)
    assert changed == ["others"]


async def test_messages_without_headers(sasl: Client) -> None:
    await handshake(sasl, version=0)
    await sasl.send_bytes(frame(client_message("alice", PASSWORD)))
    assert await sasl.read(4) == bytes(4)
    assert (await sasl.ask(METADATA, 12)).brokers


async def test_a_request_without_authentication_closes_the_connection(sasl: Client) -> None:
    await sasl.send(METADATA, 12)
    assert await sasl.is_closed()
