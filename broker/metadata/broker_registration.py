"""Broker registration: the broker's ephemeral node /brokers/ids/N, with its endpoints and the time of its start.

The transaction that creates the node is the broker epoch, which differs for each incarnation of the broker (KIP-380).
The node lives as long as the session, so after a hard stop of the broker it remains for the session's timeout. Kafka
refuses to start in that time. Here a broker that finds a node with its own address concludes that the node belongs to
its predecessor, since it has bound that address itself. It replaces the node, and removes the controller znode if the
predecessor owned it. A node with another address belongs to another broker, unless it is removed within the timeout
(KAFKA-1387, KAFKA-7165, KAFKA-14845).
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from odradek.broker.registry import znodes
from odradek.broker.registry.interface import (
    BadVersionError,
    Create,
    Delete,
    NodeExistsError,
    NoNodeError,
    Operation,
    Registry,
    Stat,
    ensure_path,
)
from odradek.broker.runtime.timers import Clock, Timers
from odradek.protocol.errors import ErrorCode, KafkaError

log = logging.getLogger(__name__)

GRACE_MS: Final = 2000


class Registration:
    """Registers the broker with each new session."""

    def __init__(
        self, broker_id: int, entry: znodes.BrokerRegistration, session_timeout_ms: int, clock: Clock, timers: Timers
    ) -> None:
        """`entry` is the content of the node."""
        self.broker_id = broker_id
        self.broker_epoch = -1
        self._entry = entry
        self._registry: Registry | None = None
        self._timeout_ms = session_timeout_ms
        self._clock = clock
        self._timers = timers

    def session_lost(self) -> None:
        """Stop updating the node, which expires; the broker epoch stays until the next registration."""
        self._registry = None

    async def change(self, entry: znodes.BrokerRegistration) -> None:
        """Change the content of the node, in this session and in later ones. Raises RegistryError."""
        self._entry = entry
        if self._registry is not None:
            await self._registry.set(znodes.broker_path(self.broker_id), entry.encode())

    async def session_begun(self, registry: Registry) -> None:
        """Register. Raises RegistryError, and KafkaError with DUPLICATE_BROKER_REGISTRATION when another broker has
        the id.
        """
        for path in znodes.PERSISTENT_PATHS:
            await ensure_path(registry, path)
        path = znodes.broker_path(self.broker_id)
        deadline_ms = self._clock.monotonic_ms() + self._timeout_ms + GRACE_MS
        while True:
            try:
                created = await registry.create(path, self._entry.encode(), ephemeral=True)
            except NodeExistsError:
                epoch = await self._meet(registry, path, deadline_ms)
            else:
                epoch = created.stat.czxid
            if epoch is not None:
                self.broker_epoch, self._registry = epoch, registry
                log.info("broker registered broker=%d broker_epoch=%d", self.broker_id, epoch)
                return

    async def _meet(self, registry: Registry, path: str, deadline_ms: int) -> int | None:
        """Handle an existing node. Returns its epoch if this session owns it, else None when another try is due."""
        gone = asyncio.Event()
        try:
            data, stat = await registry.get(path, lambda event: gone.set())
        except NoNodeError:
            return None
        if stat.ephemeral_owner == registry.session_id:
            return stat.czxid
        if self._is_own(data):
            await self._replace(registry, path, stat)
            return None
        log.warning("waiting for the removal of a registration with another address broker=%d", self.broker_id)
        timer = self._timers.at(deadline_ms, gone.set)
        await gone.wait()
        timer.cancel()
        if self._clock.monotonic_ms() >= deadline_ms:
            raise self._taken(data)
        return None

    def _taken(self, data: bytes | None) -> KafkaError:
        return KafkaError(
            ErrorCode.DUPLICATE_BROKER_REGISTRATION,
            f"a broker with id {self.broker_id} is registered already: {(data or b'').decode(errors='replace')}; "
            "give this one another broker.id",
        )

    def _is_own(self, data: bytes | None) -> bool:
        try:
            return znodes.BrokerRegistration.decode(data).endpoints == self._entry.endpoints
        except znodes.ZnodeError:
            return False

    async def _replace(self, registry: Registry, path: str, stat: Stat) -> None:
        """Replace the nodes of the predecessor's session, whose process has ended."""
        operations: list[Operation] = [Delete(path, stat.version)]
        try:
            _, controller_stat = await registry.get(znodes.CONTROLLER)
            if controller_stat.ephemeral_owner == stat.ephemeral_owner:
                operations.append(Delete(znodes.CONTROLLER, controller_stat.version))
        except NoNodeError:
            pass
        operations.append(Create(path, self._entry.encode(), ephemeral=True))
        try:
            await registry.multi(operations)
            log.info("replaced the registration of the previous process broker=%d", self.broker_id)
        except (NoNodeError, NodeExistsError, BadVersionError):
            log.info("broker registration changed during its replacement, retrying broker=%d", self.broker_id)
