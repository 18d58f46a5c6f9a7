"""Quota config handler: applies the quotas in the metadata store (Kafka: UserConfigHandler, ClientIdConfigHandler,
IpConfigHandler).
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
from collections.abc import Mapping

from odradek.broker.config.client_store import ClientConfigs
from odradek.broker.config.state import client_quotas
from odradek.broker.quota.connection_rate_quotas import ConnectionRateQuotas
from odradek.broker.quota.quota_managers import QuotaManagers
from odradek.broker.registry.interface import Registry

log = logging.getLogger(__name__)

CONNECTION_CREATION_RATE = "connection_creation_rate"


class QuotaConfigHandler:
    """Applies the quotas of clients and of addresses."""

    def __init__(self, clients: QuotaManagers, connections: ConnectionRateQuotas) -> None:
        self._clients = clients
        self._connections = connections

    async def update(self, path: str, properties: Mapping[str, str]) -> None:
        """Apply all properties of the entity whose path below /config is `path`; a path of no entity is ignored."""
        try:
            entity = client_quotas.entity_of_path(path)
        except ValueError:
            log.error("ignoring config change of unknown entity path=%s", path)
            return
        await self._apply(entity, client_quotas.values(properties))

    async def replace(self, registry: Registry) -> None:
        """Read the quotas of all entities and apply them. Raises RegistryError."""
        found = await ClientConfigs(lambda: registry).list_quotas({}, strict=False)
        kept = [dict(entity) for entity, _ in found]
        known: list[client_quotas.Entity] = [
            *self._clients.entities(),
            *({client_quotas.IP: address} for address in self._connections.addresses()),
        ]
        for gone in known:
            if dict(gone) not in kept:
                await self._apply(gone, {})
        for entity, values in found:
            await self._apply(entity, values)

    async def _apply(self, entity: client_quotas.Entity, values: Mapping[str, float]) -> None:
        if client_quotas.IP not in entity:
            self._clients.update(entity, values)
            return
        name, rate = entity[client_quotas.IP], values.get(CONNECTION_CREATION_RATE)
        for address in [None] if name is None else await _addresses(name):
            self._connections.update(address, rate)


async def _addresses(name: str) -> list[str]:
    """The addresses of an entity, which can be a host name; none for a name that cannot be resolved."""
    try:
        return [str(ipaddress.ip_address(name))]
    except ValueError:
        pass
    try:
        found = await asyncio.get_running_loop().getaddrinfo(name, None)
    except (OSError, UnicodeError) as error:
        log.error("ignoring quota of unknown address address=%s error=%s", name, error)
        return []
    return list(dict.fromkeys(str(each[4][0]) for each in found))
