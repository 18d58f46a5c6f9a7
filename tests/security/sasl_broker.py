"""A broker in this process with SASL listeners, and the steps of a login on one of its connections."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from odradek.broker.server import Broker
from odradek.protocol import messages as m
from odradek.protocol.sasl import scram_credentials
from odradek.protocol.sasl.plain import client_message
from odradek.protocol.sasl.scram import salted_password
from tests.broker.wire import Client, running_broker
from tests.security.sasl_clients import PASSWORD

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
PREFIX = "listener.name.sasl_plaintext"
PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
PROPERTIES = {
    "listeners": "SASL_PLAINTEXT://127.0.0.1:0,PLAINTEXT://127.0.0.1:0",
    "sasl.enabled.mechanisms": ",".join(MECHANISMS),
    f"{PREFIX}.plain.sasl.jaas.config": f'{PLAIN_MODULE} required user_alice="{PASSWORD}" user_bob="bob-secret";',
    "connection.failed.authentication.delay.ms": "1",
}
METADATA = m.MetadataRequest(topics=[])


def port(broker: Broker, listener: str) -> int:
    """The port of a listener."""
    endpoint = broker.running.metadata_cache.brokers[0].endpoint(listener)
    assert endpoint is not None
    return endpoint.port


@asynccontextmanager
async def secured(folder: Path, **others: str) -> AsyncIterator[Broker]:
    """A broker with the users of PROPERTIES, and with alice's SCRAM credentials."""
    properties = PROPERTIES | {name.replace("_", "."): value for name, value in others.items()}
    async with running_broker(folder, properties) as broker:
        client = await Client.connect(port(broker, "PLAINTEXT"))
        await set_password(client, "alice", PASSWORD)
        client.close()
        yield broker


async def set_password(client: Client, user: str, password: str) -> None:
    """Create or replace the SCRAM credentials of a user."""
    upsertions = []
    for mechanism in scram_credentials.MECHANISMS.values():
        number = 1 + (mechanism.hash == "sha512")
        upsertions.append(
            m.AlterUserScramCredentialsRequest.ScramCredentialUpsertion(
                name=user,
                mechanism=number,
                iterations=4096,
                salt=b"salt",
                salted_password=salted_password(mechanism, password, b"salt", 4096),
            )
        )
    answer = await client.ask(m.AlterUserScramCredentialsRequest(upsertions=upsertions), 0)
    assert [each.error_code for each in answer.results] == [0]


async def handshake(client: Client, mechanism: str = "PLAIN", version: int = 1) -> m.SaslHandshakeResponse:
    answer: m.SaslHandshakeResponse = await client.ask(m.SaslHandshakeRequest(mechanism=mechanism), version)
    return answer


async def authenticate(client: Client, token: bytes, version: int = 2) -> m.SaslAuthenticateResponse:
    answer: m.SaslAuthenticateResponse = await client.ask(m.SaslAuthenticateRequest(auth_bytes=token), version)
    return answer


async def log_in(client: Client, user: str = "alice", password: str = PASSWORD) -> m.SaslAuthenticateResponse:
    assert (await handshake(client)).error_code == 0
    return await authenticate(client, client_message(user, password))
