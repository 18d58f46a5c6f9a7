"""A real ZooKeeper as one implementation of the contract suite: sessions over a link that the tests control."""

from __future__ import annotations

import asyncio

from kazoo.client import KazooClient

from odradek.broker.registry import zookeeper
from odradek.broker.registry.interface import SessionState
from odradek.broker.registry.zookeeper import ZooKeeperRegistry
from tests.registry.zookeeper_link import ZooKeeperLink


class KazooEnsemble:
    """Sessions with the server at host:port, each one of `odradek.broker.registry.zookeeper`."""

    def __init__(self, connect: str, chroot: str = "") -> None:
        self._server = connect
        self._chroot = chroot
        self._started = False
        self._sessions: dict[int, ZooKeeperRegistry] = {}
        self.link = ZooKeeperLink(connect)

    async def connect(self, timeout_ms: int = 10_000) -> ZooKeeperRegistry:
        """Begin a session."""
        if not self._started:
            self._started = True
            await self.link.start()
        registry = await zookeeper.connect(
            self.link.connect, self._chroot, session_timeout_ms=timeout_ms, connection_timeout_ms=30_000
        )
        self._sessions[registry.session_id] = registry
        return registry

    async def expire(self, session_id: int) -> None:
        """End a session without its client: a second connection takes it over and closes it."""
        registry = self._sessions[session_id]
        expired = asyncio.Event()
        registry.add_listener(lambda state: expired.set() if state is SessionState.EXPIRED else None)
        double = KazooClient(self._server, client_id=(session_id, self.link.passwords[session_id]))
        await asyncio.to_thread(double.start)
        await asyncio.to_thread(double.stop)
        double.close()
        await asyncio.wait_for(expired.wait(), 30)

    async def close(self) -> None:
        """End all sessions."""
        for registry in self._sessions.values():
            await registry.close()
        await self.link.close()
