"""Node change listener: reads a path of the metadata store in every session, and again after each change (Kafka:
ZkNodeChangeNotificationListener, FinalizedFeatureChangeListener).

A watch fires once and ends with its session. So each read sets the watch anew, and each session begins with a read.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from odradek.broker.registry.interface import Event, Registry, RegistryError, Watcher
from odradek.broker.runtime.request_tasks import RequestTasks

log = logging.getLogger(__name__)

RETRY_S: Final = 1

ReadNodes = Callable[[Registry, Watcher], Awaitable[None]]
"""Reads the nodes, sets the watch on them and applies their content. Raises RegistryError."""


class NodeChangeListener:
    """Watches one path; lives as long as the broker, through all its sessions."""

    def __init__(self, path: str, read: ReadNodes, request_tasks: RequestTasks) -> None:
        """`path` is for the log. There is no watch before the first session begins."""
        self._path = path
        self._read = read
        self._request_tasks = request_tasks
        self._registry: Registry | None = None
        self._turn = asyncio.Lock()  # reads are applied one after the other

    def session_lost(self) -> None:
        """Stop, because the watch has ended with the session."""
        self._registry = None

    async def session_begun(self, registry: Registry) -> None:
        """Read the nodes, and watch for changes. Raises RegistryError."""
        self._registry = registry
        await self.catch_up()

    async def catch_up(self) -> None:
        """Apply all changes until now. Raises RegistryError."""
        registry = self._registry
        if registry is not None:
            async with self._turn:
                await self._read(registry, self._fired)

    def _fired(self, event: Event) -> None:
        self._request_tasks.run(self._read_again())

    async def _read_again(self) -> None:
        while (registry := self._registry) is not None:
            try:
                await self.catch_up()
            except RegistryError as error:
                if registry is not self._registry:
                    return  # the next session begins with a read
                log.warning("retrying read after a change path=%s error=%s", self._path, error)
                await asyncio.sleep(RETRY_S)
            else:
                return
