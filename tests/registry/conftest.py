"""The implementations of the registry under test, and the real ZooKeeper that is their reference."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path
from random import Random
from typing import Protocol

import pytest

from odradek.broker.registry.embedded import EmbeddedEnsemble
from odradek.broker.registry.interface import Registry
from odradek.broker.registry.server import RegistryServer
from tests.registry.kazoo_registry import KazooEnsemble
from tests.registry.simulated_disk import SimulatedDisk
from tests.registry.zookeeper_server import ZooKeeperServer
from tests.simulation.loop import Owner
from tests.simulation.network import Network
from tests.simulation.registry import SimulatedEnsemble

USERS = {"kafka": "broker-secret", "alice": "other-secret"}
"""The users of a server that serves no strangers, with their passwords."""


class Ensemble(Protocol):
    """The interface that the contract suite needs of an implementation."""

    async def connect(self) -> Registry: ...

    async def expire(self, session_id: int) -> None: ...


@pytest.fixture(scope="session")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperServer]:
    """A real ZooKeeper, one for all tests: each works below a path of its own."""
    folder = tmp_path_factory.mktemp("zookeeper")
    server = ZooKeeperServer(folder, folder / "data")
    try:
        server.start()
        yield server
    finally:
        server.stop()


class SimulatedRegistry:
    """The registry of the simulation, on the loop of the test."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        network = Network(loop, Random(1), 0.0001)  # type: ignore[arg-type]
        self._ensemble = SimulatedEnsemble(loop, network, Random(2))  # type: ignore[arg-type]
        self._owner = Owner("test")

    async def connect(self) -> Registry:
        registry: Registry = await self._ensemble.connect(self._owner, 60_000)()
        return registry

    async def expire(self, session_id: int) -> None:
        session = self._ensemble.sessions[session_id]
        notified = asyncio.Event()
        session.add_listener(lambda state: notified.set())
        self._ensemble.expire(session)
        session.learn()
        await notified.wait()


@pytest.fixture(params=["embedded", "served", "simulated", pytest.param("zookeeper", marks=pytest.mark.jvm)])
async def ensemble(request: pytest.FixtureRequest) -> AsyncIterator[Ensemble]:
    """Each implementation in turn: the tree itself, over the wire, in the simulation, and the real ZooKeeper."""
    match request.param:
        case "embedded":
            embedded = embedded_ensemble()
            yield embedded
            await embedded.close()
        case "served":
            async with serving() as connect:
                served = KazooEnsemble(connect)
                yield served
                await served.close()
        case "simulated":
            yield SimulatedRegistry()
        case _:
            real = KazooEnsemble(request.getfixturevalue("zookeeper").connect)
            yield real
            await real.close()


def embedded_ensemble() -> EmbeddedEnsemble:
    """An embedded registry on a disk in memory."""
    return EmbeddedEnsemble(SimulatedDisk(), "/registry", now_ms=itertools.count(1_700_000_000_000).__next__)


@contextlib.asynccontextmanager
async def serving(users: Mapping[str, str] | None = None) -> AsyncIterator[str]:
    """An embedded registry behind Odradek's server, for these users, within the block; yields host:port."""
    ensemble = embedded_ensemble()
    server = RegistryServer(ensemble, tick_ms=500, users=users)
    yield f"127.0.0.1:{await server.start('127.0.0.1', 0)}"
    await server.close()
    await ensemble.close()


_roots = itertools.count()


@pytest.fixture
async def registry(ensemble: Ensemble) -> Registry:
    """A session of the implementation under test."""
    return await ensemble.connect()


@pytest.fixture
async def root(registry: Registry) -> str:
    """A node that no other test uses."""
    path = f"/test-{next(_roots)}"
    await registry.create(path)
    return path


@pytest.fixture
def data_folder(tmp_path: Path) -> Path:
    """A folder for a registry on the real disk."""
    return tmp_path / "registry"
