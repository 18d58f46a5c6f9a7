"""The registry's folder is a ZooKeeper data directory: Apache ZooKeeper starts on Odradek's, and Odradek on
ZooKeeper's.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from odradek.broker.registry.embedded import EmbeddedEnsemble
from odradek.broker.registry.interface import Create, Delete, Registry, Set, Stat
from odradek.storage.disk import OsDisk
from tests.registry.kazoo_registry import KazooEnsemble
from tests.registry.zookeeper_server import ZooKeeperServer

pytestmark = pytest.mark.jvm


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


async def _fill(registry: Registry) -> None:
    await registry.create("/a", None)
    await registry.create("/a/ü", b"\x00\xff" * 50)
    await registry.create("/a/n-", b"", sequential=True)
    await registry.create("/a/gone", ephemeral=True)
    await registry.set("/a/ü", b"new")
    await registry.multi([Create("/b"), Create("/b/c", b"1"), Set("/b", b"2", 0), Delete("/a/n-0000000001")])
    for number in range(40):
        await registry.create(f"/b/{number}", b"x" * number)
    await registry.delete("/b/7")


async def _everything(registry: Registry, path: str = "/") -> dict[str, tuple[bytes | None, Stat]]:
    found = {path: await registry.get(path)}
    for name in (await registry.children(path))[0]:
        if name != "zookeeper":
            found |= await _everything(registry, f"{path.rstrip('/')}/{name}")
    return found


@pytest.mark.parametrize("snapshot_bytes", [1_000_000, 500])
def test_zookeeper_starts_on_odradeks_folder(tmp_path: Path, data_folder: Path, snapshot_bytes: int) -> None:
    async def write() -> dict[str, tuple[bytes | None, Stat]]:
        ensemble = EmbeddedEnsemble(OsDisk(), str(data_folder), now_ms=_now_ms, snapshot_bytes=snapshot_bytes)
        registry = await ensemble.connect()
        await _fill(registry)
        await registry.close()
        reader = await ensemble.connect()
        content = await _everything(reader)
        await reader.close()
        await ensemble.close()
        return content

    async def read(connect: str) -> dict[str, tuple[bytes | None, Stat]]:
        real = KazooEnsemble(connect)
        content = await _everything(await real.connect())
        await real.close()
        return content

    ours = asyncio.run(write())
    assert len(ours) == 44
    server = ZooKeeperServer(tmp_path, data_folder)
    try:
        server.start()
        theirs = asyncio.run(read(server.connect))
    finally:
        server.stop()
    assert theirs == ours


def test_odradek_starts_on_the_folder_of_zookeeper(tmp_path: Path, data_folder: Path) -> None:
    async def write(connect: str) -> dict[str, tuple[bytes | None, Stat]]:
        real = KazooEnsemble(connect)
        registry = await real.connect()
        await _fill(registry)
        await registry.close()
        content = await _everything(await real.connect())
        await real.close()
        return content

    async def read() -> dict[str, tuple[bytes | None, Stat]]:
        ensemble = EmbeddedEnsemble(OsDisk(), str(data_folder), now_ms=_now_ms)
        content = await _everything(await ensemble.connect())
        await ensemble.close()
        return content

    server = ZooKeeperServer(tmp_path, data_folder)
    try:
        server.start()
        theirs = asyncio.run(write(server.connect))
    finally:
        server.stop()
    assert asyncio.run(read()) == theirs
