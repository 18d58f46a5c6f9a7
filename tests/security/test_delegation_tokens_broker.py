"""Delegation tokens of a broker with SASL: Kafka's tool, Java clients that log in with tokens, and the expiry check."""

from __future__ import annotations

import asyncio
import base64
import logging
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from odradek.broker.security.state.delegation_tokens import token_password
from odradek.broker.server import Broker
from odradek.protocol import messages as m
from odradek.protocol.errors import ErrorCode
from tests.broker.wire import running_broker
from tests.jvm.process import Result
from tests.jvm.tools import run_tool
from tests.security.token_manager import SECRET
from tests.security.token_requests import KafkaSide, TokenClients, plain_jaas, rows_of
from tests.support.eventually import eventually_async

pytestmark = [pytest.mark.jvm, pytest.mark.slow]

TOOL = "kafka-delegation-tokens"
MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-512")
PROPERTIES = {
    "listeners": "SASL_PLAINTEXT://127.0.0.1:0,PLAINTEXT://127.0.0.1:0",
    "sasl.enabled.mechanisms": ",".join(("PLAIN", *MECHANISMS)),
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": plain_jaas(),
    "delegation.token.secret.key": SECRET,
    "connection.failed.authentication.delay.ms": "1",
}


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    async with running_broker(tmp_path / "data", PROPERTIES) as running:
        yield running


def _port(broker: Broker, listener: str) -> int:
    endpoint = broker.running.metadata_cache.brokers[0].endpoint(listener)
    assert endpoint is not None
    return endpoint.port


async def _run(version: str, tool: str, *arguments: str, check: bool = True) -> Result:
    return await asyncio.to_thread(run_tool, version, tool, arguments, check=check)


@pytest.mark.parametrize("version", ["2.8.2", "3.9.2", "4.3.0"])
async def test_the_tool_creates_renews_describes_and_expires(broker: Broker, tmp_path: Path, version: str) -> None:
    clients = TokenClients(tmp_path, _port(broker, "SASL_PLAINTEXT"))
    alice, bob = clients.user("alice"), clients.user("bob")
    create = ["--create", "--max-life-time-period", "-1", "--renewer-principal", "User:bob"]
    (row,) = rows_of((await _run(version, TOOL, *alice, *create)).stdout)
    assert row["OWNER"] == "User:alice"
    hmac = ["--hmac", row["HMAC"]]
    assert "expiry date" in (await _run(version, TOOL, *bob, "--renew", "--renew-time-period", "-1", *hmac)).stdout
    rows = rows_of((await _run(version, TOOL, *alice, "--describe", "--owner-principal", "User:alice")).stdout)
    assert [each["TOKENID"] for each in rows] == [row["TOKENID"]]
    for mechanism in MECHANISMS:
        login = clients.with_token(mechanism, row["TOKENID"], base64.b64decode(row["HMAC"]))
        await _run(version, "kafka-topics", *login, "--create", "--topic", f"by-token-{mechanism}")
        refused = await _run(version, TOOL, *login, *create, check=False)
        assert "not allowed" in refused.stdout + refused.stderr
    await _run(version, TOOL, *alice, "--expire", "--expiry-time-period", "-1", *hmac)
    refused = await _run(version, "kafka-topics", *login, "--list", check=False)
    assert "SaslAuthenticationException" in refused.stdout + refused.stderr


async def _ids(side: KafkaSide) -> list[str]:
    """The ids of all tokens."""
    found = await side.ask("alice", m.DescribeDelegationTokenRequest(owners=None), 3)
    return [each.token_id for each in found.tokens]


async def test_the_controller_removes_expired_tokens(tmp_path: Path) -> None:
    short = {"delegation.token.expiry.time.ms": "1", "delegation.token.expiry.check.interval.ms": "20"}
    async with running_broker(tmp_path / "data", {**PROPERTIES, **short}) as broker:
        side = KafkaSide(_port(broker, "PLAINTEXT"), _port(broker, "SASL_PLAINTEXT"))
        answer = await side.ask("alice", m.CreateDelegationTokenRequest(max_lifetime_ms=-1), 3)
        assert answer.error_code == ErrorCode.NONE

        await eventually_async(lambda: _ids(side), lambda ids: not ids)
        side.close()


async def test_a_new_controller_removes_expired_tokens(tmp_path: Path) -> None:
    ids = []
    for expiry_ms in ("1", "60000"):
        properties = {**PROPERTIES, "delegation.token.expiry.time.ms": expiry_ms}
        async with running_broker(tmp_path / "data", properties) as broker:
            side = KafkaSide(_port(broker, "PLAINTEXT"), _port(broker, "SASL_PLAINTEXT"))
            answer = await side.ask("alice", m.CreateDelegationTokenRequest(max_lifetime_ms=-1), 3)
            ids.append(answer.token_id)
            await eventually_async(lambda side=side: _ids(side), lambda found: found == ids[-1:])
            side.close()


async def test_tokens_outlive_a_restart(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    ids = []
    for _ in range(2):
        async with running_broker(tmp_path / "data", PROPERTIES) as broker:
            side = KafkaSide(_port(broker, "PLAINTEXT"), _port(broker, "SASL_PLAINTEXT"))
            found = await side.ask("bob", m.DescribeDelegationTokenRequest(owners=None), 3)
            assert [each.token_id for each in found.tokens] == ids
            answer = await side.ask("bob", m.CreateDelegationTokenRequest(max_lifetime_ms=-1), 3)
            ids.append(answer.token_id)
            side.close()
            secrets = (SECRET, token_password(answer.hmac), answer.hmac.hex(), repr(answer.hmac))
            assert not [secret for secret in secrets if secret in caplog.text]
    assert f"token_id={ids[0]}" in caplog.text


async def test_a_session_ends_with_its_token(tmp_path: Path) -> None:
    """The lifetime in the response to SaslAuthenticate is the rest of the token's life."""
    async with running_broker(tmp_path / "data", {**PROPERTIES, "delegation.token.expiry.time.ms": "60000"}) as broker:
        side = KafkaSide(_port(broker, "PLAINTEXT"), _port(broker, "SASL_PLAINTEXT"))
        answer = await side.ask("alice", m.CreateDelegationTokenRequest(max_lifetime_ms=-1), 3)
        for mechanism in MECHANISMS:
            lifetime_ms = await side.log_in_with_token(mechanism, answer.token_id, answer.hmac)
            assert 0 < lifetime_ms <= 60_000
        side.close()
