"""The tree beside a real ZooKeeper: the same calls to both, and every answer, stat and watch must be the same.

The test compares the results and errors, the stats with zxids counted from the first node's (both must assign the same
numbers, failed writes included), the owners of ephemeral nodes, and the events of each watch.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from odradek.broker.registry.embedded import EmbeddedEnsemble
from odradek.broker.registry.interface import (
    Create,
    Created,
    Delete,
    Event,
    Operation,
    Registry,
    RegistryError,
    Set,
    Stat,
)
from tests.registry.conftest import Ensemble
from tests.registry.kazoo_registry import KazooEnsemble
from tests.registry.operations import PATHS, bare_creates, paths, transactions, writes
from tests.registry.simulated_disk import SimulatedDisk
from tests.registry.zookeeper_server import ZooKeeperServer

pytestmark = pytest.mark.jvm

reads = st.tuples(st.sampled_from(["get", "exists", "children"]), paths, st.booleans())
Call: TypeAlias = Operation | list[Operation] | tuple[str, str, bool] | str
calls = st.lists(
    st.tuples(st.booleans(), st.one_of(writes, writes, bare_creates, transactions, reads, reads, st.just("reconnect"))),
    min_size=1,
    max_size=25,
)

_roots = itertools.count()


class Transcript:
    """Runs calls against one implementation and records everything that a client can see."""

    def __init__(self, ensemble: Ensemble, root: str) -> None:
        self._ensemble = ensemble
        self._root = root
        self._base_zxid = 0
        self._owners: dict[int, str] = {0: "nobody"}
        self._sessions: list[Registry] = []
        self._received: list[list[Event]] = []

    async def run(self, sequence: list[tuple[bool, Call]]) -> list[Any]:
        """One line for each call, then the tree, then the events of each watch."""
        self._sessions = [await self._connect(), await self._connect()]
        self._base_zxid = (await self._sessions[0].create(self._root)).stat.czxid
        lines = [await self._one(int(second), call) for second, call in sequence]
        lines.append([await self._answer(self._sessions[1].get(self._root + path)) for path in PATHS])
        lines.append([[(event.kind, self._short(event.path)) for event in events] for events in self._received])
        for session in self._sessions:
            await session.close()
        return lines

    async def _connect(self) -> Registry:
        session = await self._ensemble.connect()
        self._owners[session.session_id] = f"session {len(self._owners)}"
        return session

    async def _one(self, index: int, call: Call) -> Any:
        session = self._sessions[index]
        match call:
            case "reconnect":
                await session.close()
                self._sessions[index] = await self._connect()
                return "reconnected"
            case list():
                return await self._answer(session.multi([self._below(operation) for operation in call]))
            case (method, path, watched):
                read: Callable[..., Awaitable[Any]] = getattr(session, method)
                return await self._answer(read(self._root + path, self._watch() if watched else None))
            case Create(path, content, ephemeral, sequential):
                return await self._answer(
                    session.create(self._root + path, content, ephemeral=ephemeral, sequential=sequential)
                )
            case Set(path, content, version):
                return await self._answer(session.set(self._root + path, content, version))
            case Delete(path, version):
                return await self._answer(session.delete(self._root + path, version))
            case _:
                raise AssertionError(call)

    def _watch(self) -> Callable[[Event], None]:
        events: list[Event] = []
        self._received.append(events)
        return events.append

    def _below(self, operation: Operation) -> Operation:
        fields = {name: getattr(operation, name) for name in operation.__dataclass_fields__}
        return type(operation)(**{**fields, "path": self._root + operation.path})

    async def _answer(self, call: Awaitable[Any]) -> Any:
        try:
            return self._plain(await call)
        except RegistryError as error:
            return type(error).__name__, error.index

    def _plain(self, value: Any) -> Any:
        match value:
            case Stat():
                zxids = {name: getattr(value, name) - self._base_zxid for name in ("czxid", "mzxid", "pzxid")}
                plain = value._replace(**zxids, ctime_ms=0, mtime_ms=int(value.mtime_ms != 0), ephemeral_owner=0)
                return plain, self._owners[value.ephemeral_owner]
            case Created(path, stat):
                return self._short(path), self._plain(stat)
            case tuple() | list():
                return [self._plain(item) for item in value]
            case str():
                return self._short(value)
            case _:
                return value

    def _short(self, path: str) -> str:
        return path.removeprefix(self._root)


async def _compare(connect: str, sequence: list[tuple[bool, Call]]) -> None:
    real = KazooEnsemble(connect)
    ours = EmbeddedEnsemble(SimulatedDisk(), "/registry", now_ms=itertools.count(1_700_000_000_000).__next__)
    root = f"/differential-{next(_roots)}"
    try:
        assert await Transcript(ours, root).run(sequence) == await Transcript(real, root).run(sequence)
    finally:
        await real.close()
        await ours.close()


@settings(
    max_examples=50,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(sequence=calls)
def test_the_tree_answers_as_zookeeper_does(zookeeper: ZooKeeperServer, sequence: list[tuple[bool, Call]]) -> None:
    asyncio.run(_compare(zookeeper.connect, sequence))
