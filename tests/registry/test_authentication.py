"""Clients of the embedded server authenticate: strangers are refused where it has users."""

from __future__ import annotations

import asyncio
import contextlib
import re
import stat
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kazoo.client import KazooClient, KazooState
from puresasl.client import SASLClient

from odradek.broker.registry import zookeeper
from odradek.broker.registry.digest_md5 import DigestError, DigestMd5Server
from odradek.broker.registry.interface import ConnectionLossError
from odradek.broker.registry.interface import NoAuthError as NoAuth
from odradek.broker.registry.kazoo_handler import LoopHandler
from odradek.registry_login import ensure_jaas_file
from odradek.registry_service import JaasFileError, users_in
from tests.registry import wire_client as w
from tests.registry.conftest import USERS, serving
from tests.registry.wire_client import WireClient

REQUIRED, FAILED, NO_AUTH = -124, -115, -102


@pytest.fixture
async def connect() -> AsyncIterator[str]:
    async with serving(USERS) as address:
        yield address


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        (w.CREATE, w.create("/a")),
        (w.GET_DATA, w.read("/")),
        (w.EXISTS, w.read("/")),
        (w.GET_ACL, w.text("/")),
        (w.SET_WATCHES, w.set_watches(0, ["/"], [], [])),
        (w.MULTI, w.multi((w.CREATE, w.create("/a")))),
        (w.SYNC, w.text("/")),
        (w.PING, b""),
        (99, b""),
    ],
)
async def test_a_stranger_is_refused_and_disconnected(connect: str, kind: int, body: bytes) -> None:
    client = await WireClient.begin(connect)
    reply = await client.ask(kind, body)
    assert (reply.error, reply.body) == (REQUIRED, b"")
    assert await client.rest() == b""


@pytest.mark.parametrize(
    ("scheme", "credentials"),
    [
        ("digest", b"kafka:wrong"),
        ("digest", b"stranger:"),
        ("digest", b"stranger:broker-secret"),
        ("digest", b"kafka"),
        ("digest", b""),
        ("digest", b"\xff\xff:\xff"),
        ("digest", b"kafka:broker-secret\0"),
        ("sasl", b"kafka"),
        ("super", b""),
        ("x509", b"CN=kafka"),
    ],
)
async def test_wrong_credentials_end_the_connection(connect: str, scheme: str, credentials: bytes) -> None:
    client = await WireClient.begin(connect)
    client.send(w.AUTH, w.auth(scheme, credentials), xid=-4)
    client.send(w.CREATE, w.create("/a"))  # in the same write: it must not be served
    reply = await client.reply()
    assert (reply.xid, reply.error) == (-4, FAILED)
    assert await client.rest() == b""


async def test_an_address_is_no_authentication(connect: str) -> None:
    client = await WireClient.begin(connect)
    assert (await client.ask(w.AUTH, w.auth("ip", b""), xid=-4)).error == 0
    assert (await client.ask(w.GET_DATA, w.read("/"))).error == REQUIRED


async def test_a_user_is_served_and_owns_nodes(connect: str) -> None:
    kafka, alice = await WireClient.begin(connect), await WireClient.begin(connect)
    assert (await kafka.ask(w.AUTH, w.auth("digest", b"kafka:broker-secret"), xid=-4)).error == 0
    assert (await alice.ask(w.AUTH, w.auth("digest", b"alice:other-secret"), xid=-4)).error == 0
    assert (await kafka.ask(w.CREATE, w.create("/secret", b"x", entries=[(31, "auth", "")]))).error == 0
    assert (await kafka.ask(w.GET_DATA, w.read("/secret"))).error == 0
    for kind, body in (
        (w.GET_DATA, w.read("/secret", True)),
        (w.GET_CHILDREN, w.read("/secret")),
        (w.SET_DATA, w.set_data("/secret", b"y")),
        (w.CREATE, w.create("/secret/child")),
        (w.GET_ACL, w.text("/secret")),
        (w.SET_ACL, w.set_acl("/secret", w.WORLD)),
    ):
        assert (await alice.ask(kind, body)).error == NO_AUTH
    results = await alice.ask(w.MULTI, w.multi((w.CREATE, w.create("/b")), (w.SET_DATA, w.set_data("/secret", b"y"))))
    assert results.body.count(NO_AUTH.to_bytes(4, "big", signed=True)) == 2
    assert (await alice.ask(w.EXISTS, w.read("/b"))).error == -101


async def _sasl(client: WireClient, user: str, password: str) -> int:
    """The error with which an exchange of DIGEST-MD5 ends; the client is another implementation."""
    sasl = SASLClient("zk-sasl-md5", "zookeeper", "DIGEST-MD5", username=user, password=password)
    challenge = None
    while True:
        answer = sasl.process(challenge)
        if sasl.complete and not answer:
            return 0
        reply = await client.ask(w.SASL, w.buffer(answer or b""))
        if reply.error:
            return reply.error
        challenge = reply.body[4:]


async def test_digest_md5(connect: str) -> None:
    client = await WireClient.begin(connect)
    assert await _sasl(client, "kafka", "broker-secret") == 0
    assert (await client.ask(w.CREATE, w.create("/mine", entries=[(31, "auth", "")]))).error == 0
    assert w.acl([(31, "sasl", "kafka")]) in (await client.ask(w.GET_ACL, w.text("/mine"))).body
    for user, password in (("kafka", "other-secret"), ("stranger", ""), ("", "")):
        stranger = await WireClient.begin(connect)
        assert await _sasl(stranger, user, password) == FAILED
        assert await stranger.rest() == b""


@given(st.binary(max_size=300), st.binary(max_size=20))
def test_no_token_but_the_right_one_is_accepted(first: bytes, tail: bytes) -> None:
    for tokens in ([first], [b"", first], [b"", b'username="kafka",realm="zk-sasl-md5",nonce="n",' + first + tail]):
        server = DigestMd5Server(USERS, "n")
        with contextlib.suppress(DigestError):
            for token in tokens:
                server.evaluate(token)
        assert server.user is None


@pytest.mark.parametrize(
    "change",
    [
        (rb'nonce="n"', b'nonce="m"'),
        (b"nc=00000001", b"nc=00000002"),
        (rb"response=\w", b"response=g"),
        (rb"qop=auth", b"qop=auth-int"),
        (rb"zookeeper/", b"kafka/"),
        (rb'username="kafka"', b'username="alice"'),
        (rb"$", b',authzid="alice"'),
        (rb"$", b',username="kafka"'),
    ],
)
def test_a_changed_response_is_rejected(change: tuple[bytes, bytes]) -> None:
    server = DigestMd5Server(USERS, "n")
    sasl = SASLClient("zk-sasl-md5", "zookeeper", "DIGEST-MD5", username="kafka", password=USERS["kafka"])
    sasl.process(None)
    answer = sasl.process(server.evaluate(b""))
    changed = re.sub(*change, answer, count=1)
    assert changed != answer
    with pytest.raises(DigestError):
        server.evaluate(changed)
    assert server.user is None


async def test_kazoo_logs_in_with_either_scheme(connect: str) -> None:
    def use(**options: object) -> bool:
        client = KazooClient(connect, **options)
        try:
            client.start(timeout=10)
            client.ensure_path("/kazoo")
            return True
        finally:
            client.stop()
            client.close()

    sasl = {"mechanism": "DIGEST-MD5", "username": "kafka", "password": "broker-secret"}
    assert await asyncio.to_thread(use, auth_data=[("digest", "kafka:broker-secret")])
    assert await asyncio.to_thread(use, sasl_options=sasl)


async def test_the_client_of_a_broker_logs_in_and_sets_access_lists(connect: str) -> None:
    async def begin(user: str, password: str) -> zookeeper.ZooKeeperRegistry:
        login = zookeeper.ZooKeeperLogin(user, password)
        assert password not in repr(login)
        return await zookeeper.connect(
            connect, "/kafka", session_timeout_ms=6000, connection_timeout_ms=6000, login=login, set_acl=True
        )

    broker, other = await begin("kafka", "broker-secret"), await begin("alice", "other-secret")
    try:
        for path in ("/config", "/config/users", "/config/users/u", "/brokers", "/consumers"):
            await broker.create(path, b"data")
        assert await other.get("/brokers")
        with pytest.raises(NoAuth):
            await other.set("/brokers", b"")
        with pytest.raises(NoAuth):
            await other.get("/config/users/u")
        with pytest.raises(NoAuth):
            await other.delete("/config/users/u")
        await other.set("/consumers", b"")  # old consumers of any user write there, as in Kafka
    finally:
        await broker.close()
        await other.close()


async def test_a_wrong_password_of_a_broker_is_an_error_of_its_start(connect: str) -> None:
    login = zookeeper.ZooKeeperLogin("kafka", "a-wrong-password")
    with pytest.raises(ConnectionLossError) as raised:
        await zookeeper.connect(connect, session_timeout_ms=6000, connection_timeout_ms=60_000, login=login)
    assert "a-wrong-password" not in str(raised.value)
    assert "authentication" in str(raised.value)


async def test_the_rejection_is_the_reason_also_where_it_arrives_with_the_connection(
    connect: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A loop that is busy is notified of the connection and of its end in one iteration."""
    held: list[Callable[[], None]] = []
    deliver = LoopHandler.deliver

    def deliver_at_once(handler: LoopHandler, call: Callable[[], None]) -> None:
        held.append(call)
        if isinstance(call, partial) and call.args[:1] == (KazooState.LOST,):
            deliver(handler, run_all)

    def run_all() -> None:
        for each in held:
            each()

    monkeypatch.setattr(LoopHandler, "deliver", deliver_at_once)
    login = zookeeper.ZooKeeperLogin("kafka", "a-wrong-password")
    with pytest.raises(ConnectionLossError, match="rejected the authentication"):
        await zookeeper.connect(connect, session_timeout_ms=6000, connection_timeout_ms=60_000, login=login)


def test_the_login_of_a_cluster_is_made_once_and_readable_by_its_owner_only(tmp_path: Path) -> None:
    path = ensure_jaas_file(tmp_path / "new")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    text = path.read_text()
    assert ensure_jaas_file(tmp_path / "new").read_text() == text
    (password,) = users_in(path).values()
    assert len(password) >= 32
    assert f'password="{password}"' in text


@pytest.mark.parametrize("text", ["", "Client { a.B required; };", "Server { a.B required user_x=secret-text }", "{"])
def test_a_jaas_file_without_users_is_rejected(tmp_path: Path, text: str) -> None:
    path = tmp_path / "jaas.conf"
    path.write_text(text)
    with pytest.raises(JaasFileError) as raised:
        users_in(path)
    assert "secret-text" not in str(raised.value)
