"""Controller election: creates /controller, an ephemeral node that only one broker can create (Kafka:
KafkaController.elect, KafkaZkClient.registerControllerAndIncrementControllerEpoch).

The transaction that creates the node increments the controller epoch.
"""

from __future__ import annotations

import contextlib
from typing import NamedTuple

from odradek.broker.registry import znodes
from odradek.broker.registry.interface import (
    BadVersionError,
    Check,
    Create,
    NodeExistsError,
    NoNodeError,
    Operation,
    Registry,
    Set,
    Watcher,
)
from odradek.broker.runtime.timers import Clock


class WonElection(NamedTuple):
    """The epoch of the elected controller, and the version of /controller_epoch that belongs to it."""

    epoch: int
    epoch_version: int


class LostElection(NamedTuple):
    """The broker that is the controller."""

    controller_id: int


class ControllerElection:
    """The elections in which one broker takes part."""

    def __init__(self, broker_id: int, clock: Clock) -> None:
        """`clock` gives the time of the election."""
        self._broker_id = broker_id
        self._clock = clock

    async def run(self, registry: Registry, on_change: Watcher) -> WonElection | LostElection:
        """Create the controller znode, or read which broker has it. Raises RegistryError.

        `on_change` is called when the node changes or is removed.
        """
        while True:
            try:
                data, stat = await registry.get(znodes.CONTROLLER, on_change)
            except NoNodeError:
                content = znodes.ControllerZNode(self._broker_id, self._clock.now_ms()).encode()
                won = await self._increment_epoch(registry, Create(znodes.CONTROLLER, content, ephemeral=True))
            else:
                if stat.ephemeral_owner != registry.session_id:
                    return LostElection(znodes.ControllerZNode.decode(data).broker_id)
                # This session owns the znode from an epoch that failed: a new epoch fences requests of the old one.
                won = await self._increment_epoch(registry, Check(znodes.CONTROLLER, stat.version))
            if won is not None:
                await registry.exists(znodes.CONTROLLER, on_change)
                return won

    async def is_controller(self, registry: Registry, on_change: Watcher) -> bool:
        """Whether this session owns the controller znode; an operator may have removed it. Raises RegistryError."""
        stat = await registry.exists(znodes.CONTROLLER, on_change)
        return stat is not None and stat.ephemeral_owner == registry.session_id

    async def _increment_epoch(self, registry: Registry, controller_znode: Operation) -> WonElection | None:
        """Take the controller znode with the next epoch; None when another broker was faster."""
        try:
            data, stat = await registry.get(znodes.CONTROLLER_EPOCH)
        except NoNodeError:
            with contextlib.suppress(NodeExistsError):
                await registry.create(znodes.CONTROLLER_EPOCH, znodes.encode_controller_epoch(0))
            data, stat = await registry.get(znodes.CONTROLLER_EPOCH)
        epoch = znodes.decode_controller_epoch(data) + 1
        try:
            await registry.multi(
                [controller_znode, Set(znodes.CONTROLLER_EPOCH, znodes.encode_controller_epoch(epoch), stat.version)]
            )
        except (NodeExistsError, BadVersionError, NoNodeError):
            return None
        return WonElection(epoch, stat.version + 1)
