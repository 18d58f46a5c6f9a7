"""SASL between brokers: three brokers that authenticate with each mechanism, and sessions that end."""

from __future__ import annotations

import logging
from pathlib import Path
from random import Random

import pytest

from odradek.broker.config.changes import change_config
from odradek.broker.registry import znodes
from odradek.broker.registry.embedded import EmbeddedEnsemble
from odradek.broker.registry.interface import ensure_path
from odradek.broker.runtime.timers import SystemClock
from odradek.broker.security.sasl_client import PlainClient, SaslClient, SaslConnector, ScramClients, Send
from odradek.broker.security.sasl_client_mechanisms import MissingCredentials
from odradek.broker.security.sasl_oauth import ALLOW_UNSECURED, ALLOWED_URLS
from odradek.protocol import dial
from odradek.protocol.dial import Channel
from odradek.protocol.sasl.exchange import SaslError
from odradek.protocol.sasl.scram import salted_password
from odradek.protocol.sasl.scram_credentials import MECHANISMS, UserScramCredentialUpsertion, text
from odradek.storage.disk import OsDisk
from odradek.token_issuer import TokenIssuer
from tests.broker.cluster_in_process import Cluster, running_cluster
from tests.broker.wire import batch, running_broker
from tests.support.eventually import eventually_async

PEERS = {
    "listeners": "PLAINTEXT://127.0.0.1:0,PEERS://127.0.0.1:0",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,PEERS:SASL_PLAINTEXT",
    "inter.broker.listener.name": "PEERS",
    "min.insync.replicas": "3",
}
USER = 'username="broker" password="broker-secret"'


def properties(mechanism: str, options: str, **others: str) -> dict[str, str]:
    """The properties of brokers that authenticate with a mechanism."""
    own = {
        "sasl.enabled.mechanisms": mechanism,
        "sasl.mechanism.inter.broker.protocol": mechanism,
        f"listener.name.peers.{mechanism.lower()}.sasl.jaas.config": f"a.LoginModule required {options};",
    }
    return PEERS | own | {name.replace("_", "."): value for name, value in others.items()}


async def replicates(cluster: Cluster, topic: str) -> None:
    """A record with acks=all reaches three replicas."""
    await cluster.create(topic, [1, 2, 3])

    async def is_written() -> bool:
        return (await cluster.clients[1].produce(topic, batch(b"v"))).error_code == 0

    await eventually_async(is_written)


async def store_credential(folder: Path, user: str, password: str) -> None:
    """Write a SCRAM credential into the metadata store of a cluster that does not run."""
    ensemble = EmbeddedEnsemble(OsDisk(), str(folder / "registry"), now_ms=SystemClock().now_ms)
    registry = await ensemble.connect()
    await ensure_path(registry, znodes.CONFIG_CHANGES)
    for number, mechanism in MECHANISMS.items():
        hashed = salted_password(mechanism, password, b"salt", 4096)
        stored = text(UserScramCredentialUpsertion(user, number, 4096, b"salt", hashed))
        await change_config(registry, f"users/{user}", lambda known, name=mechanism.name, s=stored: {**known, name: s})
    await registry.close()
    await ensemble.close()


async def test_plain(tmp_path: Path) -> None:
    async with running_cluster(tmp_path, **properties("PLAIN", f'{USER} user_broker="broker-secret"')) as cluster:
        await replicates(cluster, "t")


async def test_plain_with_a_jaas_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "jaas.conf"
    path.write_text(f'peers.KafkaServer {{ a.PlainLoginModule required {USER} user_broker="broker-secret"; }};')
    monkeypatch.setenv("KAFKA_OPTS", f"-Djava.security.auth.login.config={path}")
    own = {"sasl.enabled.mechanisms": "PLAIN", "sasl.mechanism.inter.broker.protocol": "PLAIN"}
    async with running_cluster(tmp_path, **PEERS, **own) as cluster:
        await replicates(cluster, "t")


async def test_scram_with_credentials_from_before_the_first_start(tmp_path: Path) -> None:
    await store_credential(tmp_path, "broker", "broker-secret")
    async with running_cluster(tmp_path, **properties("SCRAM-SHA-512", USER)) as cluster:
        await replicates(cluster, "t")


async def test_tokens_of_an_issuer(tmp_path: Path) -> None:
    with TokenIssuer() as issuer:
        options = properties(
            "OAUTHBEARER",
            'clientId="broker" clientSecret="broker-secret"',
            sasl_oauthbearer_jwks_endpoint_url=issuer.jwks_url,
            sasl_oauthbearer_token_endpoint_url=issuer.token_url,
            sasl_oauthbearer_expected_audience=issuer.audience,
            sasl_oauthbearer_expected_issuer=issuer.url,
        )
        async with running_cluster(
            tmp_path, **options, **{ALLOWED_URLS: f"{issuer.jwks_url},{issuer.token_url}"}
        ) as cluster:
            await replicates(cluster, "t")


async def test_unsecured_tokens(tmp_path: Path) -> None:
    options = properties("OAUTHBEARER", 'unsecuredLoginStringClaim_sub="broker"')
    async with running_cluster(tmp_path, **options, **{ALLOW_UNSECURED: "true"}) as cluster:
        await replicates(cluster, "t")


@pytest.mark.slow
async def test_connections_re_authenticate_before_their_sessions_end(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    options = properties("PLAIN", f'{USER} user_broker="broker-secret"', connections_max_reauth_ms="1200")
    with caplog.at_level(logging.INFO):
        async with running_cluster(tmp_path, **options) as cluster:
            await replicates(cluster, "t")
            begin_ms = SystemClock().monotonic_ms()

            async def is_written_later() -> bool:
                assert (await cluster.clients[1].produce("t", batch(b"v"))).error_code == 0
                return SystemClock().monotonic_ms() - begin_ms > 3500

            await eventually_async(is_written_later)
            caught = caplog.text
    assert "session has expired" not in caught
    assert "authentication failed" not in caught


# ---- one connection


async def connect(port: int, mechanism: str, client: SaslClient) -> Channel:
    connector = SaslConnector(mechanism, client, SystemClock(), Random(1))
    nothing = lambda *_: None  # noqa: E731
    return await connector.connect(
        dial.connect, "127.0.0.1", port, on_frame=nothing, on_lost=nothing, frame_bytes=1 << 20
    )


class Broken:
    """A mechanism that fails with an exception of none of the declared classes."""

    async def exchange(self, send: Send, host: str) -> None:
        raise LookupError("x-secret")


@pytest.mark.parametrize(
    ("mechanism", "client", "message"),
    [
        ("PLAIN", PlainClient("alice", "x-secret"), "SASL_AUTHENTICATION_FAILED: .* Invalid username or password"),
        (
            "SCRAM-SHA-256",
            ScramClients(MECHANISMS[1], "alice", "x-secret", Random(1)),
            "SASL_AUTHENTICATION_FAILED: .* invalid credentials with SASL mechanism SCRAM-SHA-256",
        ),
        (
            "SCRAM-SHA-512",
            ScramClients(MECHANISMS[2], "alice", "x-secret", Random(1)),
            "UNSUPPORTED_SASL_MECHANISM: SASL/SCRAM-SHA-512; the broker has: PLAIN, SCRAM-SHA-256",
        ),
        ("PLAIN", MissingCredentials("the option username is missing"), "the option username is missing"),
        ("PLAIN", Broken(), "SASL/PLAIN failed unexpectedly: LookupError"),
    ],
)
async def test_a_rejected_connection_names_the_reason(
    tmp_path: Path, mechanism: str, client: SaslClient, message: str
) -> None:
    options = {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
        "security.inter.broker.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": 'a.B required user_alice="alice-secret";',
    }
    async with running_broker(tmp_path, options) as broker:
        with pytest.raises(OSError, match=message) as raised:
            await connect(broker.port, mechanism, client)
        assert "x-secret" not in repr(raised.value)


async def test_a_server_that_does_not_have_the_credential_is_rejected() -> None:
    """CVE-2026-10143's class: a server cannot keep a client busy, nor pass without the credential."""
    client = ScramClients(MECHANISMS[1], "alice", "alice-secret", Random(1))
    for iterations in (1, 4095, 16385, 2147483647):

        async def answer(message: bytes, iterations: int = iterations) -> bytes:
            nonce = message.partition(b"r=")[2]
            return b"r=" + nonce + b"x,s=c2FsdA==,i=%d" % iterations

        with pytest.raises(SaslError, match="Requested iterations"):
            await client.exchange(answer, "localhost")

    async def forge(message: bytes) -> bytes:
        nonce = message.partition(b"r=")[2]
        return b"v=AAAA" if b"p=" in message else b"r=" + nonce + b"x,s=c2FsdA==,i=4096"

    with pytest.raises(SaslError, match="Invalid server signature"):
        await client.exchange(forge, "localhost")
