"""The broker's own entry in the registry, /brokers/ids/N: that it lives, where, and since when.

The transaction that creates the node is the broker's epoch: it tells this incarnation from the ones before (KIP-380).
The node lives as long as the registry session, so a broker that is stopped hard leaves it behind for the session's
timeout. Kafka refuses to start in that time. Here the broker that finds a node of its own address knows that it is its
predecessor's, for it holds that address itself, and replaces it, and the controller's seat with it if the predecessor
had that; a node of another address is another broker's, unless it goes away within the timeout (KAFKA-1387, KAFKA-7165,
KAFKA-14845).
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
        """`entry` is what the node will say."""
        self.broker_id = broker_id
        self.broker_epoch = -1
        self._entry = entry
        self._registry: Registry | None = None
        self._timeout_ms = session_timeout_ms
        self._clock = clock
        self._timers = timers

    def session_lost(self) -> None:
        """Others may take this broker for dead; its epoch stays until there is another."""
        self._registry = None

    async def change(self, entry: znodes.BrokerRegistration) -> None:
        """The node says something else from now on, in this session and in others. Raises RegistryError."""
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
                log.info("broker %d is registered with epoch %d", self.broker_id, epoch)
                return

    async def _meet(self, registry: Registry, path: str, deadline_ms: int) -> int | None:
        """There is a node. Returns its epoch if it is this session's, else None when another try is due."""
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
        log.warning("broker id %d is taken by a broker at another address; waiting for it to go", self.broker_id)
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
        """Remove what the predecessor's session has left: it cannot speak for itself any more."""
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
            log.info("broker %d replaces the registration of the process before it", self.broker_id)
        except (NoNodeError, NodeExistsError, BadVersionError):
            log.info("the registration of broker %d has changed meanwhile; looking again", self.broker_id)
