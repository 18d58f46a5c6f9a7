"""Tells the parts of a broker that its configuration has changed while it runs (KIP-226).

Most parts ask the configuration anew each time and need not be told. These have made something of it that has to
change with it: limits on connections, listeners and what others are told of them, loops that follow leaders, what the
controller thinks of unclean elections.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

from odradek.broker.config.broker_config import BrokerConfig
from odradek.broker.metadata.broker_registration import Registration
from odradek.broker.network.addresses import Addresses
from odradek.broker.registry.interface import RegistryError
from odradek.broker.runtime.request_tasks import RequestTasks

log = logging.getLogger(__name__)


class Reconfiguration:
    """Who has to be told. An object of it is called when the configuration has changed."""

    def __init__(
        self,
        config: BrokerConfig,
        addresses: Addresses,
        registration: Registration,
        request_tasks: RequestTasks,
        received: Sequence[Callable[[], None]],
    ) -> None:
        """`received` are called each time."""
        self._config = config
        self._addresses = addresses
        self._registration = registration
        self._request_tasks = request_tasks
        self._notified = received
        self._turn = asyncio.Lock()

    def __call__(self) -> None:
        self._addresses.grant(self._config)
        for each in self._notified:
            each()
        self._request_tasks.run(self._change_addresses())

    async def _change_addresses(self) -> None:
        async with self._turn:
            try:
                if await self._addresses.obey(self._config):
                    await self._registration.change(self._addresses.registration())
            except OSError as error:
                log.error("a listener cannot be opened: %s", error)
            except RegistryError as error:
                log.warning("the registry learns of the other addresses when it is back: %s", error)
