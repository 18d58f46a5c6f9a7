"""The ACL store over an embedded metadata store: two brokers, concurrent changes, sessions, damaged nodes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from odradek.broker.metadata.change_notifications import EXPIRE_AFTER_MS
from odradek.broker.registry import znodes
from odradek.broker.registry.embedded import EmbeddedEnsemble
from odradek.broker.registry.interface import Registry
from odradek.broker.runtime.request_tasks import RequestTasks
from odradek.broker.runtime.timers import SystemClock
from odradek.broker.security.acl_store import AclStore
from odradek.broker.security.state.acl_znodes import acl_path, change_prefix, encode_change, encode_entries
from odradek.broker.security.state.acls import (
    AccessControlEntry,
    AccessControlEntryFilter,
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    PatternType,
    ResourcePattern,
    ResourcePatternFilter,
    ResourceType,
)
from odradek.broker.security.state.authorizer import AclAuthorizer
from odradek.broker.security.state.principals import KafkaPrincipal
from odradek.protocol.errors import ErrorCode
from odradek.storage.disk import OsDisk
from tests.support.eventually import eventually_async

LITERAL = ResourcePattern(ResourceType.TOPIC, "orders", PatternType.LITERAL)
PREFIXED = ResourcePattern(ResourceType.TOPIC, "ord", PatternType.PREFIXED)
EVERYTHING = AclBindingFilter(
    ResourcePatternFilter(ResourceType.ANY, None, PatternType.ANY),
    AccessControlEntryFilter(None, None, AclOperation.ANY, AclPermissionType.ANY),
)
ALICE = KafkaPrincipal("User", "alice")
HOST = "10.0.0.1"


class SettableClock(SystemClock):
    """The time of day, with an offset."""

    ahead_ms = 0

    def now_ms(self) -> int:
        return super().now_ms() + self.ahead_ms


class Node:
    """The ACLs of one broker."""

    def __init__(self, ensemble: EmbeddedEnsemble, tasks: RequestTasks) -> None:
        self._ensemble = ensemble
        self.registry: Registry
        self.clock = SettableClock()
        self.authorizer = AclAuthorizer(frozenset({KafkaPrincipal("User", "root")}))
        self.store = AclStore(self.authorizer, lambda: self.registry, tasks, self.clock)

    async def begin(self) -> None:
        self.registry = await self._ensemble.connect()
        await self.store.session_begun(self.registry)

    @property
    def bindings(self) -> set[AclBinding]:
        return set(self.store.select(EVERYTHING))

    def may_read(self, name: str = "orders") -> bool:
        return self.authorizer.authorize(ALICE, HOST, AclOperation.READ, ResourceType.TOPIC, name)


@asynccontextmanager
async def two_brokers(folder: Path) -> AsyncIterator[tuple[Node, Node]]:
    ensemble = EmbeddedEnsemble(OsDisk(), str(folder), now_ms=SystemClock().now_ms)
    tasks = RequestTasks()
    try:
        nodes = Node(ensemble, tasks), Node(ensemble, tasks)
        for node in nodes:
            await node.begin()
        yield nodes
    finally:
        await tasks.close()
        await ensemble.close()


def binding(
    pattern: ResourcePattern = LITERAL,
    principal: str = "User:alice",
    operation: AclOperation = AclOperation.READ,
    permission: AclPermissionType = AclPermissionType.ALLOW,
) -> AclBinding:
    return AclBinding(pattern, AccessControlEntry(principal, "*", operation, permission))


def exactly(wanted: AclBinding) -> AclBindingFilter:
    return AclBindingFilter(ResourcePatternFilter(*wanted.pattern), AccessControlEntryFilter(*wanted.entry))


@pytest.mark.parametrize("pattern", [LITERAL, PREFIXED])
async def test_a_change_reaches_the_other_broker(tmp_path: Path, pattern: ResourcePattern) -> None:
    async with two_brokers(tmp_path) as (one, other):
        assert await one.store.create([binding(pattern)]) == [None]
        assert one.may_read()  # with the answer
        await eventually_async(other.may_read, bool, "the other broker applies the change")
        assert [len(each) for each in await other.store.delete([exactly(binding(pattern))])] == [1]
        assert not other.may_read()
        await eventually_async(one.may_read, lambda allowed: not allowed, "the first broker applies the deletion")
        assert not one.bindings
        assert not other.bindings
        assert await one.registry.exists(acl_path(pattern)) is None


@pytest.mark.parametrize("pattern", [LITERAL, PREFIXED])
async def test_removing_one_of_several_acls_keeps_the_others(tmp_path: Path, pattern: ResourcePattern) -> None:
    """CVE-2024-27309, on every broker, and for a broker that starts later."""
    async with two_brokers(tmp_path) as (one, other):
        allowed = [binding(pattern, operation=each) for each in (AclOperation.READ, AclOperation.WRITE)]
        denied = binding(pattern, "User:mallory", AclOperation.ALL, AclPermissionType.DENY)
        await one.store.create([*allowed, denied])
        await one.store.delete([exactly(allowed[0])])
        rest = {allowed[1], denied}
        assert one.bindings == rest
        await eventually_async(lambda: other.bindings, lambda found: found == rest, "the other broker has the rest")
        await other.begin()
        assert other.bindings == rest


async def test_changes_of_two_brokers_at_once_are_all_kept(tmp_path: Path) -> None:
    async with two_brokers(tmp_path) as (one, other):
        wanted = [binding(principal=f"User:{number}") for number in range(20)]
        nodes = [one, other]
        await asyncio.gather(*(nodes[number % 2].store.create([each]) for number, each in enumerate(wanted)))
        for node in nodes:
            await eventually_async(
                lambda node=node: node.bindings, lambda found: found == set(wanted), "every ACL is there"
            )
        gone, kept = wanted[:10], set(wanted[10:])
        await asyncio.gather(*(nodes[number % 2].store.delete([exactly(each)]) for number, each in enumerate(gone)))
        for node in nodes:
            await eventually_async(lambda node=node: node.bindings, lambda found: found == kept, "the others are kept")


async def test_a_new_session_applies_the_changes_between_two_sessions(tmp_path: Path) -> None:
    async with two_brokers(tmp_path) as (one, other):
        kept, gone, new = binding(), binding(PREFIXED), binding(principal="User:bob")
        await one.store.create([kept, gone])
        await eventually_async(lambda: len(other.bindings), lambda number: number == 2, "both ACLs are there")
        other.store.session_lost()
        await other.registry.close()
        await one.store.delete([exactly(gone)])
        await one.store.create([new])
        one.clock.ahead_ms = EXPIRE_AFTER_MS + 60_000
        await one.store.create([binding(principal="User:last")])  # deletes the notifications as expired
        assert not (await one.registry.children(znodes.ACL_CHANGES))[0]
        assert other.bindings == {kept, gone}  # until the next session
        await other.begin()
        assert other.bindings == {kept, new, binding(principal="User:last")}


@pytest.mark.parametrize("data", [b"{", b"[]", b'{"version":2,"acls":[]}', b'{"version":1,"acls":[{"principal":"x"}]}'])
async def test_acls_that_cannot_be_read_deny_everything(
    tmp_path: Path, data: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async with two_brokers(tmp_path) as (one, other):
        await one.store.create([binding()])
        with caplog.at_level(logging.ERROR):
            await one.registry.set(acl_path(LITERAL), data)
            await one.registry.create(change_prefix(LITERAL), encode_change(LITERAL), sequential=True)
            await eventually_async(other.may_read, lambda allowed: not allowed, "the broker reads the damaged node")
        assert f"path={acl_path(LITERAL)}" in caplog.text
        root = KafkaPrincipal("User", "root")
        assert other.authorizer.authorize(root, HOST, AclOperation.READ, ResourceType.TOPIC, "orders")
        (error,) = await other.store.create([binding()])
        assert error is not None
        assert error.code is ErrorCode.UNKNOWN_SERVER_ERROR
        await one.registry.set(acl_path(LITERAL), encode_entries([binding().entry]))
        await one.registry.create(change_prefix(LITERAL), encode_change(LITERAL), sequential=True)
        await eventually_async(other.may_read, bool, "the broker reads the repaired node")


async def test_other_nodes_do_not_stop_the_listener(tmp_path: Path) -> None:
    async with two_brokers(tmp_path) as (one, other):
        await one.registry.create(f"{znodes.ACL_CHANGES}/stranger", b"no change")
        await one.registry.create(f"{znodes.ACLS}/Nonsense", b"")
        await one.registry.create(f"{znodes.ACLS}/Nonsense/orders", b"{}")
        await one.store.create([binding()])
        await eventually_async(other.may_read, bool, "the other broker applies the change")
        await other.begin()
        assert other.may_read()


async def test_invalid_bindings_fail_alone(tmp_path: Path) -> None:
    async with two_brokers(tmp_path) as (one, _):
        slash = ResourcePattern(ResourceType.TOPIC, "a/b", PatternType.LITERAL)
        dots = ResourcePattern(ResourceType.TOPIC, "..", PatternType.LITERAL)
        errors = await one.store.create([binding(slash), binding(), binding(dots)])
        codes = [None if each is None else each.code for each in errors]
        assert codes == [ErrorCode.INVALID_REQUEST, None, ErrorCode.UNKNOWN_SERVER_ERROR]
        assert one.bindings == {binding()}
