"""Delegation tokens beside Kafka's TokenInformation, DelegationTokenManager and znodes; the manager over a tree."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator, Awaitable
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from odradek.broker.config.broker_config import BrokerConfig
from odradek.broker.registry import znodes
from odradek.broker.registry.embedded import EmbeddedEnsemble
from odradek.broker.registry.interface import ANY_VERSION, Registry
from odradek.broker.security.delegation_token_manager import DelegationTokenManager, secret_key
from odradek.broker.security.state.delegation_tokens import (
    DelegationToken,
    DelegationTokenCache,
    TokenInformation,
    TokenLifetimes,
    expire,
    token_credentials,
    token_hmac,
)
from odradek.broker.security.state.principals import KafkaPrincipal
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.sasl.scram import ScramClient, ScramServer, salted_password
from odradek.protocol.sasl.scram_credentials import MECHANISMS, Mechanism
from tests.security.kafka_classes import KafkaClasses, attempt, java_bytes, java_list
from tests.security.token_manager import SECRET, SetClock, begin_manager
from tests.support.eventually import eventually_async

ALICE, BOB, CAROL, DAVE = (KafkaPrincipal("User", name) for name in ("alice", "bob", "carol", "dave"))
HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
CLOCK_START_MS = 1_700_000_000_000
DEFAULTS = TokenLifetimes(7 * DAY_MS, DAY_MS)

names = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=8)
principals = st.builds(KafkaPrincipal, st.sampled_from(["User", "Group"]), names)
times = st.integers(0, 2**62)
tokens = st.builds(
    TokenInformation,
    st.text("abcXYZ019-_", min_size=1),
    principals,
    principals,
    st.lists(principals, max_size=3).map(tuple),
    times,
    times,
    times,
)


def _kafkas(classes: KafkaClasses, token: TokenInformation) -> Any:
    principal = classes.common("security.auth.KafkaPrincipal")
    owner, requester = principal(*token.owner), principal(*token.token_requester)
    renewers = java_list(principal(*each) for each in token.renewers)
    times_ms = (token.issue_timestamp_ms, token.max_timestamp_ms, token.expiry_timestamp_ms)
    kind = classes.common("security.token.delegation.TokenInformation")
    return kind(token.token_id, owner, requester, renewers, *times_ms)


@pytest.mark.jvm
@given(tokens)
def test_the_znode_of_a_token_is_kafkas(classes: KafkaClasses, token: TokenInformation) -> None:
    kafkas = _kafkas(classes, token)
    module = classes("kafka.zk.DelegationTokenInfoZNode")
    data = bytes(module.encode(kafkas))
    assert token.encode() == data
    assert TokenInformation.decode(data) == token
    assert module.decode(java_bytes(token.encode())).get().equals(kafkas)


@pytest.mark.jvm
@given(tokens, principals)
def test_owners_requesters_and_renewers_are_those_of_kafka(
    classes: KafkaClasses, token: TokenInformation, principal: KafkaPrincipal
) -> None:
    kafkas = _kafkas(classes, token)
    kind = classes.common("security.auth.KafkaPrincipal")
    for each in (principal, token.owner, token.token_requester, *token.renewers):
        assert token.owner_or_renewer(each) == bool(kafkas.ownerOrRenewer(kind(*each)))


@pytest.mark.jvm
@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1), st.text(st.characters(exclude_categories=["Cs"])))
def test_the_secret_of_a_token_is_kafkas(classes: KafkaClasses, secret_key: str, token_id: str) -> None:
    manager = classes("kafka.server.DelegationTokenManager")
    assert token_hmac(secret_key, token_id) == bytes(manager.createHmac(token_id, secret_key))


@pytest.mark.jvm
@pytest.mark.parametrize("version", [0, 1, 2, 3, 4])
@pytest.mark.parametrize("requester", ["", '"tokenRequester":"User%3Ar",'])
@pytest.mark.parametrize("owner", ["User%3Aa", "a", ""])
def test_nodes_of_other_versions_are_read_as_kafka_reads_them(
    classes: KafkaClasses, version: int, requester: str, owner: str
) -> None:
    data = (
        f'{{"version":{version},"owner":"{owner}",{requester}"renewers":["User%3Ab"],'
        '"issueTimestamp":1,"maxTimestamp":3,"expiryTimestamp":2,"tokenId":"t"}'
    ).encode()
    kafkas = attempt(classes("kafka.zk.DelegationTokenInfoZNode").decode, java_bytes(data))
    if kafkas.error is None:
        assert kafkas.value.get().equals(_kafkas(classes, TokenInformation.decode(data)))
    else:
        with pytest.raises(znodes.ZnodeError):
            TokenInformation.decode(data)


def test_a_token_lives_as_long_as_its_properties_allow() -> None:
    lifetimes = TokenLifetimes(max_lifetime_ms=100, expiry_time_ms=30)
    for wanted_ms, max_ms, expiry_ms in ((-1, 100, 30), (0, 100, 30), (50, 50, 30), (20, 20, 20), (2**63 - 1, 100, 30)):
        token = lifetimes.new_token("t", ALICE, BOB, [CAROL], wanted_ms, 1000)
        assert token == TokenInformation("t", ALICE, BOB, (CAROL,), 1000, 1000 + max_ms, 1000 + expiry_ms)


@given(st.integers(-3, 3), st.integers(0, 12), st.integers(0, 12), st.integers(0, 12), st.sampled_from([ALICE, BOB]))
@example(0, 5, 5, 5, ALICE)
def test_a_renewal_never_exceeds_the_life_of_a_token(
    period_ms: int, max_ms: int, expiry_ms: int, now_ms: int, principal: KafkaPrincipal
) -> None:
    token = TokenInformation("t", ALICE, CAROL, (), 0, max_ms, expiry_ms)
    lifetimes = TokenLifetimes(100, 4)
    expected = ErrorCode.NONE
    if principal != ALICE:
        expected = ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
    elif max_ms < now_ms or expiry_ms < now_ms:
        expected = ErrorCode.DELEGATION_TOKEN_EXPIRED
    if expected:
        with pytest.raises(KafkaError) as raised:
            lifetimes.renew(token, principal, period_ms, now_ms)
        assert raised.value.code == expected
    else:
        renewed = lifetimes.renew(token, principal, period_ms, now_ms)
        assert renewed.expiry_timestamp_ms == min(max_ms, now_ms + (4 if period_ms < 0 else period_ms))
        assert renewed._replace(expiry_timestamp_ms=expiry_ms) == token


def test_a_requester_that_is_not_the_owner_may_not_change_a_token() -> None:
    token = DEFAULTS.new_token("t", ALICE, BOB, [CAROL], -1, 1000)
    for principal in (BOB, DAVE, KafkaPrincipal("Group", "alice")):
        for call in (lambda who: DEFAULTS.renew(token, who, -1, 2000), lambda who: expire(token, who, -1, 2000)):
            with pytest.raises(KafkaError) as raised:
                call(principal)
            assert raised.value.code == ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
    assert expire(token, CAROL, -1, 2000) is None


def test_an_expired_token_can_be_removed_but_not_changed() -> None:
    token = DEFAULTS.new_token("t", ALICE, ALICE, [], 10, 1000)
    assert expire(token, ALICE, -1, 5000) is None
    with pytest.raises(KafkaError) as raised:
        expire(token, ALICE, 1, 5000)
    assert raised.value.code == ErrorCode.DELEGATION_TOKEN_EXPIRED


@pytest.mark.parametrize("mechanism", MECHANISMS.values(), ids=lambda each: each.name)
def test_a_client_logs_in_with_a_token_as_its_owner(mechanism: Mechanism) -> None:
    token = DelegationToken(DEFAULTS.new_token("t", ALICE, BOB, [], -1, 1000), token_hmac(SECRET, "t"))
    cache = DelegationTokenCache()
    cache.put(token, token_credentials(token.hmac, {each.name: b"salt" for each in MECHANISMS.values()}))
    server = ScramServer(mechanism, "server", lambda _: None, lambda name: cache.find(name, mechanism.name))
    client = ScramClient(mechanism, "t", "client", token_authenticated=True)
    first = client.receive_first(server.evaluate(client.first_message()))
    password = base64.b64encode(token.hmac).decode()
    proof = client.final_message(salted_password(mechanism, password, first.salt, first.iterations))
    client.receive_final(server.evaluate(proof))
    assert (server.authorization_id, server.token_authenticated) == ("alice", True)
    assert server.token_expiry_timestamp_ms == 1000 + DAY_MS


def test_secrets_of_tokens_are_not_printed() -> None:
    token = DelegationToken(DEFAULTS.new_token("t", ALICE, BOB, [], -1, 1000), b"a secret")
    assert "secret" not in f"{token!r} {token}"


# ---- the manager


@pytest.fixture
async def ensemble() -> AsyncIterator[EmbeddedEnsemble]:
    made = EmbeddedEnsemble.in_memory(now_ms=lambda: CLOCK_START_MS)
    yield made
    await made.close()


@pytest.fixture
async def registry(ensemble: EmbeddedEnsemble) -> Registry:
    return await ensemble.connect()


@pytest.fixture
def clock() -> SetClock:
    return SetClock(CLOCK_START_MS)


async def _ids(registry: Registry) -> list[str]:
    return (await registry.children(znodes.DELEGATION_TOKENS))[0]


async def _error(call: Awaitable[object]) -> ErrorCode:
    with pytest.raises(KafkaError) as raised:
        await call
    return raised.value.code


async def test_every_broker_receives_a_token_and_its_changes(registry: Registry, clock: SetClock) -> None:
    first, second = await begin_manager(registry, clock), await begin_manager(registry, clock, seed=2)
    token = await first.create(ALICE, BOB, [CAROL], -1)
    token_id = token.information.token_id
    assert len(base64.urlsafe_b64decode(token_id + "==")) == 16
    await eventually_async(lambda: second.cache.get(token_id) == token)
    clock.ms += HOUR_MS
    expiry_ms = await second.renew(CAROL, token.hmac, 2 * HOUR_MS)
    assert expiry_ms == CLOCK_START_MS + 3 * HOUR_MS
    await eventually_async(lambda: _expiry(first, token_id) == expiry_ms)
    assert await first.expire(ALICE, token.hmac, 5) == clock.ms + 5
    await eventually_async(lambda: _expiry(second, token_id) == clock.ms + 5)
    assert await second.expire(ALICE, token.hmac, -1) == clock.ms
    assert await _ids(registry) == []
    await eventually_async(lambda: first.cache.get(token_id) is None)
    for call in (first.renew, first.expire):
        assert await _error(call(ALICE, token.hmac, -1)) == ErrorCode.DELEGATION_TOKEN_NOT_FOUND


def _expiry(manager: DelegationTokenManager, token_id: str) -> int:
    token = manager.cache.get(token_id)
    return 0 if token is None else token.information.expiry_timestamp_ms


async def test_a_renewed_token_keeps_its_credentials(registry: Registry, clock: SetClock) -> None:
    manager = await begin_manager(registry, clock)
    token = await manager.create(ALICE, ALICE, [], -1)
    token_id = token.information.token_id
    before = manager.cache.credentials(token_id)
    await manager.renew(ALICE, token.hmac, -1)
    assert manager.cache.credentials(token_id) is before


async def test_expired_tokens_are_removed(registry: Registry, clock: SetClock) -> None:
    manager = await begin_manager(registry, clock)
    short = await manager.create(ALICE, ALICE, [], HOUR_MS)
    long = await manager.create(ALICE, ALICE, [], -1)
    clock.ms += HOUR_MS
    await manager.remove_expired()
    assert len(await _ids(registry)) == 2
    clock.ms += 1
    assert await _error(manager.renew(ALICE, short.hmac, -1)) == ErrorCode.DELEGATION_TOKEN_EXPIRED
    await manager.remove_expired()
    assert await _ids(registry) == [long.information.token_id]
    assert manager.cache.tokens == [long]


async def test_a_renewal_does_not_bring_back_a_token_that_was_removed(registry: Registry, clock: SetClock) -> None:
    manager = await begin_manager(registry, clock)
    token = await manager.create(ALICE, ALICE, [], -1)
    manager.session_lost()  # so that it does not receive the notification
    await registry.delete(znodes.delegation_token_path(token.information.token_id))
    assert await _error(manager.renew(ALICE, token.hmac, -1)) == ErrorCode.DELEGATION_TOKEN_NOT_FOUND
    assert await _ids(registry) == []
    assert manager.cache.tokens == []


async def test_a_new_session_reads_what_the_broker_has_missed(
    ensemble: EmbeddedEnsemble, registry: Registry, clock: SetClock
) -> None:
    session = await ensemble.connect()
    manager, other = await begin_manager(session, clock), await begin_manager(registry, clock, seed=2)
    kept, removed = [await manager.create(ALICE, ALICE, [], -1) for _ in range(2)]
    await eventually_async(lambda: len(other.cache.tokens) == 2)
    manager.session_lost()
    await session.close()
    await other.expire(ALICE, removed.hmac, -1)
    added = await other.create(BOB, BOB, [], -1)
    for name in (await registry.children(znodes.DELEGATION_TOKEN_CHANGES))[0]:
        await registry.delete(f"{znodes.DELEGATION_TOKEN_CHANGES}/{name}")
    assert sorted(manager.cache.tokens) == sorted([kept, removed])
    await manager.session_begun(await ensemble.connect())
    assert sorted(manager.cache.tokens) == sorted(other.cache.tokens) == sorted([kept, added])


async def test_old_notifications_are_deleted(registry: Registry, clock: SetClock) -> None:
    manager = await begin_manager(registry, clock)
    await manager.create(ALICE, ALICE, [], -1)
    clock.ms += 15 * 60_000
    await manager.create(ALICE, ALICE, [], -1)
    await eventually_async(lambda: len(manager.cache.tokens) == 2)
    assert len((await registry.children(znodes.DELEGATION_TOKEN_CHANGES))[0]) == 2
    clock.ms += 1
    await begin_manager(registry, clock, seed=2)
    assert (await registry.children(znodes.DELEGATION_TOKEN_CHANGES))[0] == []


async def test_an_unreadable_token_is_not_accepted(registry: Registry, clock: SetClock) -> None:
    manager = await begin_manager(registry, clock)
    token = await manager.create(ALICE, ALICE, [], -1)
    token_id = token.information.token_id
    await registry.set(znodes.delegation_token_path(token_id), b"{", ANY_VERSION)
    await registry.create(znodes.DELEGATION_TOKEN_CHANGE_PREFIX, token_id.encode(), sequential=True)
    await eventually_async(lambda: manager.cache.get(token_id) is None)
    assert manager.cache.find(token_id, "SCRAM-SHA-256") is None


async def test_without_a_secret_key_there_are_no_tokens(registry: Registry, clock: SetClock) -> None:
    manager = await begin_manager(registry, clock, {"delegation.token.secret.key": ""})
    assert not manager.is_enabled
    for call in (manager.create(ALICE, ALICE, [], -1), manager.renew(ALICE, b"", -1), manager.expire(ALICE, b"", -1)):
        assert await _error(call) == ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
    assert await registry.exists(znodes.DELEGATION_TOKENS) is None


@pytest.mark.parametrize(
    ("properties", "key"),
    [
        ({}, ""),
        ({"delegation.token.master.key": "old"}, "old"),
        ({"delegation.token.secret.key": "new", "delegation.token.master.key": "old"}, "new"),
        ({"delegation.token.secret.key": "", "delegation.token.master.key": "old"}, ""),
    ],
)
def test_the_secret_key_has_two_names(properties: dict[str, str], key: str) -> None:
    assert secret_key(BrokerConfig({"broker.id": "1", **properties})) == key
