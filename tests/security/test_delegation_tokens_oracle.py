"""Delegation tokens beside Apache Kafka 3.9.2: the same requests to both, and one ZooKeeper with tokens of both."""

from __future__ import annotations

import base64
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any, Final

import pytest

from odradek.broker.registry import znodes, zookeeper
from odradek.broker.registry.embedded import EmbeddedEnsemble
from odradek.broker.registry.interface import Registry
from odradek.broker.runtime.timers import SystemClock
from odradek.broker.security.delegation_token_manager import DelegationTokenManager
from odradek.broker.security.session import Session
from odradek.broker.security.state.acls import AclOperation, ResourceType
from odradek.broker.security.state.delegation_tokens import token_password
from odradek.broker.security.state.principals import KafkaPrincipal
from odradek.protocol import messages as m
from odradek.protocol.errors import ErrorCode
from tests.jvm.tools import run_tool
from tests.security.token_broker import TokenBroker
from tests.security.token_manager import begin_manager
from tests.security.token_requests import HandlerSide, KafkaSide, Right, rows_of
from tests.support.eventually import eventually, eventually_async

pytestmark = [pytest.mark.jvm, pytest.mark.slow]

HOUR_MS: Final = 3_600_000
ALICE, BOB, CAROL = (KafkaPrincipal("User", name) for name in ("alice", "bob", "carol"))
Create = m.CreateDelegationTokenRequest
Renew = m.RenewDelegationTokenRequest
Expire = m.ExpireDelegationTokenRequest
Describe = m.DescribeDelegationTokenRequest


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TokenBroker]:
    made = TokenBroker(tmp_path_factory.mktemp("kafka"))
    made.kafka.start()
    yield made
    made.kafka.close()


@pytest.fixture
def kafka_side(broker: TokenBroker) -> Iterator[KafkaSide]:
    side = KafkaSide(broker.plaintext, broker.sasl)
    yield side
    side.close()


@pytest.fixture
async def handler_side() -> AsyncIterator[HandlerSide]:
    ensemble = EmbeddedEnsemble.in_memory(now_ms=SystemClock().now_ms)
    manager = await begin_manager(await ensemble.connect(), SystemClock())
    yield HandlerSide(manager, with_authorizer=True)
    manager.session_lost()
    await ensemble.close()


@pytest.fixture
async def session(broker: TokenBroker) -> AsyncIterator[Registry]:
    """A session of Kafka's ZooKeeper."""
    hosts, slash, root = broker.kafka.zookeeper_connect.partition("/")
    opened = await zookeeper.connect(hosts, slash + root, session_timeout_ms=10_000, connection_timeout_ms=10_000)
    yield opened
    await opened.close()


@pytest.fixture
async def in_zookeeper(session: Registry) -> AsyncIterator[DelegationTokenManager]:
    """A manager over Kafka's ZooKeeper."""
    manager = await begin_manager(session, SystemClock(), seed=time.time_ns())
    yield manager
    manager.session_lost()


# ---- the same requests


class Transcript:
    """The answers of one side, without what differs in every run."""

    def __init__(self, side: KafkaSide | HandlerSide) -> None:
        self._side = side
        self._names: dict[str, str] = {}
        self.hmacs: dict[str, bytes] = {"unknown": b"no such token"}
        self.ids: dict[str, str] = {}
        self.lines: list[Any] = []

    async def create(self, name: str, user: str, request: Create, version: int) -> None:
        answer = await self._side.ask(user, request, version)
        self._names[answer.token_id], self.hmacs[name], self.ids[name] = name, answer.hmac, answer.token_id
        issued_ms = answer.issue_timestamp_ms
        lives = answer.expiry_timestamp_ms - issued_ms, answer.max_timestamp_ms - issued_ms
        owner, requester = _principals(answer)
        self.lines.append((name, version, ErrorCode(answer.error_code).name, owner, requester, lives, issued_ms > 0))

    async def change(
        self, kind: type[Renew] | type[Expire], user: str, name: str, period_ms: int, version: int
    ) -> None:
        hmac = self.hmacs[name]
        request: Any
        if kind is Renew:
            request = Renew(hmac=hmac, renew_period_ms=period_ms)
        else:
            request = Expire(hmac=hmac, expiry_time_period_ms=period_ms)
        answer = await self._side.ask(user, request, version)
        if period_ms == 0:  # a token is valid until the end of its last millisecond
            await eventually_async(lambda: time.time() * 1000 > answer.expiry_timestamp_ms + 1)
        expiry = self._rounded(answer.expiry_timestamp_ms)
        self.lines.append((kind.__name__, user, name, period_ms, version, ErrorCode(answer.error_code).name, expiry))

    async def describe(self, user: str, owners: list[str] | None, version: int) -> None:
        listed = None
        if owners is not None:
            kind = Describe.DescribeDelegationTokenOwner
            listed = [kind(principal_type="User", principal_name=owner) for owner in owners]
        answer = await self._side.ask(user, Describe(owners=listed), version)
        tokens = [
            (
                self._names[each.token_id],
                _principals(each),
                [(renewer.principal_type, renewer.principal_name) for renewer in each.renewers],
                each.hmac == self.hmacs[self._names[each.token_id]],
                each.max_timestamp - each.issue_timestamp,
                self._rounded(each.expiry_timestamp),
            )
            for each in answer.tokens
            if each.token_id in self._names
        ]
        self.lines.append((user, owners, version, ErrorCode(answer.error_code).name, sorted(tokens)))

    def _rounded(self, timestamp_ms: int) -> int:
        """Minutes from now, or what is not a time."""
        return timestamp_ms if timestamp_ms <= 0 else round((timestamp_ms - time.time() * 1000) / 60_000)


def _principals(answer: Any) -> tuple[tuple[str, str], tuple[str, str]]:
    requester = (answer.token_requester_principal_type, answer.token_requester_principal_name)
    return (answer.principal_type, answer.principal_name), requester


def _renewers(*names: str, kind: str = "User") -> list[Create.CreatableRenewers]:
    return [Create.CreatableRenewers(principal_type=kind, principal_name=name) for name in names]


RIGHTS = [
    Right("alice", AclOperation.CREATE_TOKENS, ResourceType.USER, "User:bob"),
    Right("dave", AclOperation.DESCRIBE_TOKENS, ResourceType.USER, "User:alice"),
]


async def _play(side: KafkaSide | HandlerSide) -> Transcript:
    play = Transcript(side)
    await side.allow(RIGHTS)
    for version in range(4):
        await play.create(f"plain-{version}", "alice", Create(max_lifetime_ms=-1), version)
        await play.create("anonymous", "", Create(max_lifetime_ms=-1, renewers=_renewers("x", kind="Group")), version)
        await play.create("group", "alice", Create(max_lifetime_ms=-1, renewers=_renewers("x", kind="Group")), version)
    await play.create("short", "alice", Create(max_lifetime_ms=HOUR_MS, renewers=_renewers("carol")), 3)
    await play.create("zero", "alice", Create(max_lifetime_ms=0), 3)
    await play.create("long", "alice", Create(max_lifetime_ms=2**63 - 1), 3)
    for requester, owner in (("alice", "bob"), ("bob", "alice"), ("alice", "alice"), ("alice", "")):
        request = Create(owner_principal_type="User", owner_principal_name=owner, max_lifetime_ms=-1)
        await play.create(f"{requester}-{owner}", requester, request, 3)
    request = Create(owner_principal_type="Group", owner_principal_name="bob", max_lifetime_ms=-1)
    await play.create("of a group", "alice", request, 3)
    right = Right("eve", AclOperation.DESCRIBE, ResourceType.DELEGATION_TOKEN, play.ids["short"])
    await side.allow([right])
    for version in range(4):
        for user in ("", "alice", "bob", "carol", "dave", "eve"):
            await play.describe(user, None, version)
            await play.describe(user, [], version)
            await play.describe(user, ["alice"], version)
            await play.describe(user, ["carol", "bob"], version)
    for kind in (Renew, Expire):
        for user in ("", "alice", "bob", "carol", "eve"):
            for name in ("short", "alice-bob", "unknown"):
                for period_ms in (10 * 60_000, 0, 2 * HOUR_MS):
                    await play.change(kind, user, name, period_ms, 2)
    await play.change(Renew, "alice", "plain-0", -1, 0)
    await play.change(Renew, "alice", "plain-0", -5, 1)
    for user in ("bob", "alice", "alice"):
        await play.change(Expire, user, "plain-0", -1, 1)
    await play.change(Renew, "alice", "plain-0", -1, 2)
    await play.describe("alice", ["alice"], 3)
    return play


async def test_requests_for_tokens_have_the_answers_of_kafka(kafka_side: KafkaSide, handler_side: HandlerSide) -> None:
    expected, found = await _play(kafka_side), await _play(handler_side)
    for theirs, ours in zip(expected.lines, found.lines, strict=True):
        assert ours == theirs
    errors = {word for line in expected.lines for word in line if isinstance(word, str)}
    assert {
        "DELEGATION_TOKEN_REQUEST_NOT_ALLOWED",
        "DELEGATION_TOKEN_AUTHORIZATION_FAILED",
        "DELEGATION_TOKEN_OWNER_MISMATCH",
        "DELEGATION_TOKEN_NOT_FOUND",
        "DELEGATION_TOKEN_EXPIRED",
        "INVALID_PRINCIPAL_TYPE",
    } <= errors


async def test_a_login_with_a_token_creates_no_other(broker: TokenBroker, handler_side: HandlerSide) -> None:
    session = Session(ALICE, token_authenticated=True)
    for request in (Create(max_lifetime_ms=-1), Renew(hmac=b""), Expire(hmac=b""), Describe(owners=None)):
        answer = await handler_side.ask_in(session, request, 2)
        assert answer.error_code == ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    tool, action = "kafka-delegation-tokens", ["--create", "--max-life-time-period", "-1"]
    created = rows_of(run_tool("3.9.2", tool, [*broker.clients.user("alice"), *action]).stdout)[0]
    login = broker.clients.with_token("SCRAM-SHA-512", created["TOKENID"], base64.b64decode(created["HMAC"]))
    refused = run_tool("3.9.2", tool, [*login, *action], check=False)
    assert "not allowed" in refused.stdout + refused.stderr


# ---- one ZooKeeper


async def test_tokens_of_kafka_are_accepted(broker: TokenBroker, in_zookeeper: DelegationTokenManager) -> None:
    tool = "kafka-delegation-tokens"
    create = ["--create", "--max-life-time-period", str(HOUR_MS), "--renewer-principal", "User:bob"]
    row = rows_of(run_tool("3.9.2", tool, [*broker.clients.user("alice"), *create]).stdout)[0]
    await eventually_async(lambda: in_zookeeper.cache.get(row["TOKENID"]) is not None)
    token = in_zookeeper.cache.get(row["TOKENID"])
    assert token is not None
    assert token_password(token.hmac) == row["HMAC"]
    assert (token.information.owner, token.information.renewers) == (ALICE, (BOB,))
    assert token.information.max_timestamp_ms - token.information.issue_timestamp_ms == HOUR_MS
    before_ms = token.information.expiry_timestamp_ms
    expire = ["--expire", "--expiry-time-period", "60000", "--hmac", row["HMAC"]]
    run_tool("3.9.2", tool, [*broker.clients.user("bob"), *expire])
    await eventually_async(lambda: _expiry_ms(in_zookeeper, row["TOKENID"]) < before_ms)
    renewed_ms = await in_zookeeper.renew(BOB, token.hmac, -1)
    assert renewed_ms == token.information.max_timestamp_ms
    run_tool(
        "3.9.2", tool, [*broker.clients.user("alice"), "--expire", "--expiry-time-period", "-1", "--hmac", row["HMAC"]]
    )
    await eventually_async(lambda: in_zookeeper.cache.get(row["TOKENID"]) is None)


def _expiry_ms(manager: DelegationTokenManager, token_id: str) -> int:
    token = manager.cache.get(token_id)
    assert token is not None
    return token.information.expiry_timestamp_ms


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
async def test_kafka_accepts_tokens_of_odradek(
    broker: TokenBroker, in_zookeeper: DelegationTokenManager, mechanism: str
) -> None:
    token = await in_zookeeper.create(ALICE, BOB, [CAROL], HOUR_MS)
    token_id = token.information.token_id
    tool, describe = "kafka-delegation-tokens", ["--describe", "--owner-principal", "User:alice"]

    def described() -> list[dict[str, str]]:
        rows = rows_of(run_tool("3.9.2", tool, [*broker.clients.user("carol"), *describe]).stdout)
        return [row for row in rows if row["TOKENID"] == token_id]

    (row,) = eventually(described, bool)
    assert row["HMAC"] == token_password(token.hmac)
    assert (row["OWNER"], row["REQUESTER"], row["RENEWERS"]) == ("User:alice", "User:bob", "[User:carol]")
    login = broker.clients.with_token(mechanism, token_id, token.hmac)
    listed = run_tool("3.9.2", "kafka-topics", [*login, "--list"])
    assert listed.status == 0
    await in_zookeeper.expire(ALICE, token.hmac, -1)
    eventually(described, lambda rows: not rows)
    refused = run_tool("3.9.2", "kafka-topics", [*login, "--list"], check=False)
    assert "SaslAuthenticationException" in refused.stdout + refused.stderr


async def test_the_nodes_of_kafka_are_encoded_again_as_they_are(broker: TokenBroker, session: Registry) -> None:
    run_tool(
        "3.9.2", "kafka-delegation-tokens", [*broker.clients.user("eve"), "--create", "--max-life-time-period", "-1"]
    )
    for token_id in (await session.children(znodes.DELEGATION_TOKENS))[0]:
        data, _ = await session.get(znodes.delegation_token_path(token_id))
        assert znodes.DelegationTokenZNode.decode(data).encode() == data
    changes = (await session.children(znodes.DELEGATION_TOKEN_CHANGES))[0]
    assert all(name.startswith("token_change_") for name in changes)
