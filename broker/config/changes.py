"""Config change notifications: distributes changes through the metadata store (KIP-21; Kafka: ZkConfigManager).

A broker that changes the configuration of a topic or a broker writes its node below /config and then a sequential node
below /config/changes that contains its name. Every broker watches that path, reads the changed configuration again and
applies it. Notifications are never acknowledged: each broker stores the highest number that it has processed, and any
broker that finds a notification older than fifteen minutes deletes it (ZkNodeChangeNotificationListener). A broker with
an expired session may have missed some that are deleted, so it reads everything again in its next session.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple, Protocol

from odradek.broker.metadata.node_change_listener import NodeChangeListener
from odradek.broker.registry import znodes
from odradek.broker.registry.interface import (
    BadVersionError,
    Create,
    NodeExistsError,
    NoNodeError,
    Operation,
    Registry,
    Set,
    Stat,
    Watcher,
    ensure_path,
)
from odradek.broker.runtime.request_tasks import RequestTasks
from odradek.broker.runtime.timers import Clock

log = logging.getLogger(__name__)

EXPIRE_AFTER_MS: Final = 15 * 60 * 1000
TOPICS: Final = "topics"
BROKERS: Final = "brokers"
USERS: Final = "users"
OF_CLIENTS: Final = (USERS, "clients", "ips")
"""The kinds of entities with quotas."""
READS_AT_A_TIME: Final = 100
NONE_SEEN: Final = -1

Properties = Mapping[str, str]


class WrittenChange(NamedTuple):
    """A change that this broker has written: the new properties, and the number of its notification."""

    entity: str
    properties: Properties
    notification: str
    """The name of the node."""


class ConfigHandler(Protocol):
    """Applies configurations (Kafka: ConfigHandler)."""

    def topic(self, name: str, properties: Properties) -> None:
        """Apply all properties that are set for a topic."""
        ...

    def broker(self, cluster_default: Properties, own: Properties) -> None:
        """Apply the dynamic properties of all brokers, and those of this one."""
        ...


class UserConfigHandler(Protocol):
    """Applies the properties of users (Kafka: UserConfigHandler)."""

    def update(self, user: str, properties: Properties) -> None:
        """Apply all properties of a user; none for a user that is deleted."""
        ...

    def replace(self, users: Mapping[str, Properties]) -> None:
        """Apply the properties of all users that exist."""
        ...


class ClientConfigHandler(Protocol):
    """Applies the quotas of users, client ids and addresses."""

    async def update(self, path: str, properties: Properties) -> None:
        """Apply all properties of an entity, such as "users/U/clients/C"."""
        ...

    async def replace(self, registry: Registry) -> None:
        """Read the quotas of all entities and apply them. Raises RegistryError."""
        ...


class ConfigChanges:
    """Applies configurations; its `listener` reads them, and the notifications of changes."""

    def __init__(
        self,
        broker_id: int,
        handler: ConfigHandler,
        request_tasks: RequestTasks,
        clock: Clock,
        users: UserConfigHandler | None = None,
        quotas: ClientConfigHandler | None = None,
    ) -> None:
        """There are no watches before the first session begins."""
        self._entities = frozenset({f"{BROKERS}/{broker_id}", f"{BROKERS}/{znodes.DEFAULT_ENTITY}"})
        self._broker_id = broker_id
        self._handler = handler
        self._users = users
        self._quotas = quotas
        self._clock = clock
        self._seen = NONE_SEEN
        self._created_ms: dict[str, int] = {}
        """The creation time of each existing notification that was read: it needs no second read."""
        self._session: Registry | None = None
        """The session in which the configurations were last read as a whole."""
        self.listener = NodeChangeListener(znodes.CONFIG_CHANGES, self._read, request_tasks)

    async def written(self, change: WrittenChange) -> None:
        """Apply a change of this broker, after all changes before it. Raises RegistryError."""
        if not self._apply_written(change):
            await self.listener.catch_up()

    def _apply_written(self, change: WrittenChange) -> bool:
        """Apply a change to a topic without reading it, if it is the next one; return whether it was.

        A read that has begun finds it applied: there is no `await` here.
        """
        number, (kind, _, name) = _number(change.notification), change.entity.partition("/")
        if kind != TOPICS or number != self._seen + 1:
            return False
        self._handler.topic(name, change.properties)
        self._seen = number
        self._created_ms[change.notification] = self._clock.now_ms()
        return True

    # ---- reading

    async def _read(self, registry: Registry, watch: Watcher) -> None:
        if registry is not self._session:
            await ensure_path(registry, znodes.CONFIG_CHANGES)
            await self._read_broker(registry)
            if self._session is not None:  # notifications between two sessions may be deleted already
                await self._read_topics(registry)
                if self._users is not None:
                    self._users.replace(await read_users(registry))
                if self._quotas is not None:
                    await self._quotas.replace(registry)
        await self._read_notifications(registry, watch)
        self._session = registry

    async def _read_notifications(self, registry: Registry, watch: Watcher) -> None:
        names, _ = await registry.children(znodes.CONFIG_CHANGES, watch)
        numbered = sorted((number, name) for name in names if (number := _number(name)) is not None)
        self._created_ms = {name: self._created_ms[name] for _, name in numbered if name in self._created_ms}
        for number, name in numbered:
            path = f"{znodes.CONFIG_CHANGES}/{name}"
            if name not in self._created_ms:
                try:
                    data, stat = await registry.get(path)
                except NoNodeError:  # another broker has deleted it, so it was expired
                    continue
                if number > self._seen:
                    await self._apply(registry, data)
                    self._seen = number
                self._created_ms[name] = stat.ctime_ms
            await self._clear(registry, path, self._created_ms[name])

    async def _clear(self, registry: Registry, path: str, created_ms: int) -> None:
        if self._clock.now_ms() - created_ms > EXPIRE_AFTER_MS:
            try:
                await registry.delete(path)
            except NoNodeError:
                return

    # ---- applying

    async def _apply(self, registry: Registry, notification: bytes | None) -> None:
        try:
            entity = znodes.decode_config_change(notification)
        except znodes.ZnodeError as error:
            log.error("skipping invalid config change notification error=%s", error)
            return
        kind, _, name = entity.partition("/")
        if kind == TOPICS:
            self._handler.topic(name, await read_config(registry, entity))
        elif entity in self._entities:
            await self._read_broker(registry)
        elif kind in OF_CLIENTS:
            await self._apply_client(kind, name, await read_config(registry, entity))

    async def _apply_client(self, kind: str, name: str, properties: Properties) -> None:
        if self._quotas is not None:
            await self._quotas.update(f"{kind}/{name}", properties)
        if kind == USERS and self._users is not None and "/" not in name and name != znodes.DEFAULT_ENTITY:
            self._users.update(znodes.desanitize(name), properties)

    async def _read_broker(self, registry: Registry) -> None:
        default = await read_config(registry, f"{BROKERS}/{znodes.DEFAULT_ENTITY}")
        own = await read_config(registry, f"{BROKERS}/{self._broker_id}")
        self._handler.broker(default, own)

    async def _read_topics(self, registry: Registry) -> None:
        try:
            names, _ = await registry.children(znodes.config_path(TOPICS))
        except NoNodeError:
            return
        for name in names:
            self._handler.topic(name, await read_config(registry, f"{TOPICS}/{name}"))


async def read_config(registry: Registry, entity: str) -> dict[str, str]:
    """The properties of "topics/T", "brokers/N" or "brokers/<default>". Raises RegistryError.

    Unreadable data is logged and counts as empty.
    """
    return (await _read(registry, entity))[0]


async def read_users(registry: Registry) -> dict[str, Properties]:
    """The properties of every user, without those for all other users. Raises RegistryError."""
    try:
        nodes, _ = await registry.children(znodes.config_path(USERS))
    except NoNodeError:
        return {}
    waiting, found = [each for each in nodes if each != znodes.DEFAULT_ENTITY], dict[str, Properties]()
    for first in range(0, len(waiting), READS_AT_A_TIME):
        names = waiting[first : first + READS_AT_A_TIME]
        configs = await asyncio.gather(*(read_config(registry, f"{USERS}/{name}") for name in names))
        found.update(zip(map(znodes.desanitize, names), configs, strict=True))
    return found


async def change_config(
    registry: Registry, entity: str, change: Callable[[dict[str, str]], Properties]
) -> WrittenChange:
    """Set the properties that `change` returns for those of an entity, and write a notification for every broker.

    If another broker changes the entity at the same time, `change` is called again. Raises RegistryError, and the
    exceptions of `change`.
    """
    path = znodes.config_path(entity)
    while True:
        known, stat = await _read(registry, entity)
        properties = change(known)
        data = znodes.encode_config(properties)
        put: Operation = Create(path, data) if stat is None else Set(path, data, stat.version)
        try:
            _, notification = await registry.multi(
                [put, Create(znodes.CONFIG_CHANGE_PREFIX, znodes.encode_config_change(entity), sequential=True)]
            )
        except (BadVersionError, NodeExistsError, NoNodeError) as error:
            if error.index != 0:
                raise
            await ensure_path(registry, path.rpartition("/")[0])
        else:
            return WrittenChange(entity, properties, str(notification).rpartition("/")[2])


async def _read(registry: Registry, entity: str) -> tuple[dict[str, str], Stat | None]:
    try:
        data, stat = await registry.get(znodes.config_path(entity))
    except NoNodeError:
        return {}, None
    try:
        return znodes.decode_config(data), stat
    except znodes.ZnodeError as error:
        log.error("ignoring unreadable configuration entity=%s error=%s", entity, error)
        return {}, stat


def _number(name: str) -> int | None:
    prefix = znodes.CONFIG_CHANGE_PREFIX.rpartition("/")[2]
    digits = name.removeprefix(prefix)
    return int(digits) if name.startswith(prefix) and digits.isdecimal() else None
