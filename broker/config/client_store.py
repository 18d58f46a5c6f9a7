"""Client quotas and SCRAM credentials in the metadata store (Kafka: ZkAdminManager, AdminZkClient).

The nodes are those of Kafka 3.9 (/config/users, /config/clients, /config/ips). When an entity has no properties left,
its node is deleted, and with it parent nodes without other content (AdminZkClient). Each broker applies them when the
notification of a change arrives (`changes`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Final, TypeVar

from odradek.broker.config.changes import change_config, read_config
from odradek.broker.config.state import client_quotas as quotas
from odradek.broker.registry import znodes
from odradek.broker.registry.interface import (
    BadArgumentsError,
    BadVersionError,
    NoNodeError,
    NotEmptyError,
    Registry,
)
from odradek.broker.runtime.turns import each as items_of
from odradek.broker.runtime.turns import keep
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.sasl import scram_credentials as scram

T = TypeVar("T")

Quotas = tuple[quotas.Entity, dict[str, float]]
Credentials = list[tuple[int, int]]
"""SCRAM mechanisms (Kafka's numbers) and their iterations."""
USERS = "users"
CLIENTS = "clients"
IPS = "ips"


READS_AT_A_TIME: Final = 32
"""Reads that one iteration of the event loop handles, if the metadata store answers at once."""


async def _in_parallel(read: Callable[[str], Awaitable[T]], names: Iterable[str]) -> list[T]:
    """The results of `read`, in order. Each read takes a round trip to the metadata store, so many are sent at once."""
    waiting, found = keep([*names]), list[T]()
    for first in range(0, len(waiting), READS_AT_A_TIME):
        found += await asyncio.gather(*map(read, waiting[first : first + READS_AT_A_TIME]))
    return found


class ClientConfigs:
    """Reads and changes quotas and credentials."""

    def __init__(self, registry: Callable[[], Registry]) -> None:
        """`registry()` returns the current session."""
        self._registry = registry

    # ---- quotas

    async def list_quotas(self, wanted: quotas.Filter, *, strict: bool) -> list[Quotas]:
        """The quotas of the entities that match a filter. Raises RegistryError."""
        entities: list[quotas.Entity] = []
        if quotas.IP not in wanted:
            users = await self._names(USERS)
            paths = [f"{quotas.path({quotas.USER: user})}/{CLIENTS}" for user in users]
            for user, clients in zip(users, await _in_parallel(self._names, paths), strict=True):
                entities.append({quotas.USER: user})
                entities.extend({quotas.USER: user, quotas.CLIENT_ID: client} for client in clients)
            entities.extend({quotas.CLIENT_ID: client} for client in await self._names(CLIENTS))
        if not wanted or quotas.IP in wanted:
            entities.extend({quotas.IP: address} for address in await self._names(IPS))
        matching = [entity for entity in entities if quotas.matches(wanted, entity, strict=strict)]
        configs = await _in_parallel(lambda path: read_config(self._registry(), path), map(quotas.path, matching))
        return [
            (entity, values)
            for entity, config in zip(matching, configs, strict=True)
            if (values := quotas.values(config))
        ]

    async def alter_quotas(
        self, entity: quotas.Entity, changes: Mapping[str, float | None], *, validate_only: bool
    ) -> None:
        """Set quotas of an entity, or with None remove them.

        Raises KafkaError with INVALID_REQUEST, and RegistryError.
        """
        quotas.check_entity(entity)

        def edit(known: Mapping[str, str]) -> dict[str, str]:
            properties = dict(known)
            for key, value in changes.items():
                if value is None:
                    properties.pop(key, None)
                else:
                    properties[key] = quotas.value_text(entity, key, value)
            return properties

        path = quotas.path(entity)
        if validate_only:
            edit(await self._read(path))
            return
        await self._change(path, edit)

    # ---- credentials

    async def all_credentials(self) -> dict[str, Credentials]:
        """The credentials of every user that has any. Raises RegistryError."""
        found = await self.credentials([name for name in await self._names(USERS) if name is not None])
        return {user: credentials for user, credentials in found.items() if credentials}

    async def credentials(self, users: Sequence[str]) -> dict[str, Credentials]:
        """The SCRAM mechanisms of each user with their iterations. Raises RegistryError."""
        found = await _in_parallel(self._credentials_of, items_of(users))
        return keep(dict(items_of(zip(users, keep(found), strict=True))))

    async def _credentials_of(self, user: str) -> Credentials:
        return scram.iterations(await self._read(quotas.path({quotas.USER: user}))) if user else []

    async def alter_credentials(
        self,
        user: str,
        deletions: Sequence[scram.UserScramCredentialDeletion],
        upsertions: Sequence[scram.UserScramCredentialUpsertion],
    ) -> None:
        """Change a user's SCRAM credentials, all or none.

        Raises KafkaError: RESOURCE_NOT_FOUND, UNKNOWN_SERVER_ERROR; and RegistryError.
        """
        await self._change(quotas.path({quotas.USER: user}), lambda known: scram.changed(known, deletions, upsertions))

    # ---- nodes

    async def _names(self, parent: str) -> list[str | None]:
        """The names of the nodes below one, None for the default."""
        try:
            nodes, _ = await self._registry().children(znodes.config_path(parent))
        except NoNodeError:
            return []
        return [quotas.name_of_node(node) for node in sorted(nodes)]

    async def _read(self, path: str) -> dict[str, str]:
        """The properties of an entity; empty if its name is not valid for a node."""
        try:
            return await read_config(self._registry(), path)
        except BadArgumentsError:
            return {}

    async def _change(self, path: str, edit: Callable[[Mapping[str, str]], dict[str, str]]) -> None:
        try:
            await change_config(self._registry(), path, edit)
        except BadArgumentsError as error:  # an invalid name for a node, or too much data for one
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"{path} cannot be written: {error}") from error
        if not await read_config(self._registry(), path):
            await self._clear(path)

    async def _clear(self, path: str) -> None:
        """Delete the node of an entity without properties, and parent nodes that exist only for it."""
        registry = self._registry()
        while "/" in path:
            try:
                data, stat = await registry.get(znodes.config_path(path))
                if data and znodes.decode_config(data):
                    return
                await registry.delete(znodes.config_path(path), stat.version)
            except (NoNodeError, NotEmptyError, BadVersionError, znodes.ZnodeError):
                return
            path = path.rpartition("/")[0]
