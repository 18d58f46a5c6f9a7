"""Change notifications: sequential nodes that name what changed in the metadata store (Kafka:
ZkNodeChangeNotificationListener).

A broker that changes a node writes a sequential node with its name. Every broker watches the parent of these, and reads
again what they name. Notifications are never acknowledged: each broker stores the highest number that it has processed,
and any broker that finds a notification older than fifteen minutes deletes it. A session therefore begins with a read
of everything.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from odradek.broker.metadata.node_change_listener import NodeChangeListener
from odradek.broker.registry.interface import NoNodeError, Registry, Watcher, ensure_path
from odradek.broker.runtime.request_tasks import RequestTasks
from odradek.broker.runtime.timers import Clock

EXPIRE_AFTER_MS: Final = 15 * 60 * 1000
NONE_SEEN: Final = -1

ReadAll = Callable[[Registry], Awaitable[None]]
"""Reads and applies everything that notifications can name. Raises RegistryError."""
ApplyNotification = Callable[[Registry, bytes | None], Awaitable[None]]
"""Reads and applies what a notification names; the data is that of its node. Raises RegistryError."""


class ChangeNotifications:
    """The notifications below one path. Its `listener` reads them."""

    def __init__(
        self, prefix: str, read_all: ReadAll, apply: ApplyNotification, request_tasks: RequestTasks, clock: Clock
    ) -> None:
        """`prefix` is the path of the sequential nodes without their number. Nothing is read before a session."""
        self._path, _, self._prefix = prefix.rpartition("/")
        self._read_all = read_all
        self._apply = apply
        self._clock = clock
        self._seen = NONE_SEEN
        self._created_ms: dict[str, int] = {}
        """The creation time of each existing notification that was read: it needs no second read."""
        self._session: Registry | None = None
        """The session in which everything was read."""
        self.listener = NodeChangeListener(self._path, self._read, request_tasks)

    async def _read(self, registry: Registry, watch: Watcher) -> None:
        is_new = registry is not self._session
        if is_new:
            await ensure_path(registry, self._path)
        names, _ = await registry.children(self._path, watch)
        numbered = sorted((number, name) for name in names if (number := self._number(name)) is not None)
        if is_new:  # after the list: what a listed notification names was written before it
            await self._read_all(registry)
            self._seen = max((number for number, _ in numbered), default=NONE_SEEN)
            self._session = registry
        self._created_ms = {name: self._created_ms[name] for _, name in numbered if name in self._created_ms}
        for number, name in numbered:
            await self._process(registry, number, name)

    async def _process(self, registry: Registry, number: int, name: str) -> None:
        """Apply a notification that is new, and delete it if it is old."""
        path = f"{self._path}/{name}"
        if name not in self._created_ms:
            try:
                data, stat = await registry.get(path)
            except NoNodeError:  # another broker has deleted it, so it was expired
                return
            if number > self._seen:
                await self._apply(registry, data)
                self._seen = number
            self._created_ms[name] = stat.ctime_ms
        if self._clock.now_ms() - self._created_ms[name] > EXPIRE_AFTER_MS:
            try:
                await registry.delete(path)
            except NoNodeError:
                return

    def _number(self, name: str) -> int | None:
        digits = name.removeprefix(self._prefix)
        return int(digits) if name.startswith(self._prefix) and digits.isdecimal() else None
