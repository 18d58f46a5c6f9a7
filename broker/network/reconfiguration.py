"""Reconfiguration: notifies components of dynamic configuration changes (KIP-226; Kafka: BrokerReconfigurable).

Most components read the configuration each time and need no notification. The components here keep state that depends
on it: connection limits, key stores, listeners and their advertised addresses, fetchers, and the controller's setting
for unclean elections.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

from odradek.broker.config.broker_config import BrokerConfig
from odradek.broker.config.types import ConfigError
from odradek.broker.metadata.broker_registration import Registration
from odradek.broker.network.addresses import Addresses
from odradek.broker.registry.interface import RegistryError
from odradek.broker.runtime.request_tasks import RequestTasks

log = logging.getLogger(__name__)


class Reconfiguration:
    """The components to notify. Call the object when the configuration has changed."""

    def __init__(
        self,
        config: BrokerConfig,
        addresses: Addresses,
        registration: Registration,
        request_tasks: RequestTasks,
        received: Sequence[Callable[[], None]],
    ) -> None:
        """`received` are called for each change."""
        self._config = config
        self._addresses = addresses
        self._registration = registration
        self._request_tasks = request_tasks
        self._notified = received
        self._turn = asyncio.Lock()

    def __call__(self) -> None:
        self._addresses.update_limits(self._config)
        self._addresses.update_security(self._config)
        for each in self._notified:
            each()
        self._request_tasks.run(self._change_addresses())

    async def _change_addresses(self) -> None:
        async with self._turn:
            try:
                if await self._addresses.reconfigure(self._config):
                    await self._registration.change(self._addresses.registration())
            except OSError as error:
                log.error("cannot open listener error=%s", error)
            except ConfigError as error:
                log.error("cannot open listener error=%s", error.message)
            except RegistryError as error:
                log.warning(
                    "delaying registration of new addresses until the metadata store is connected error=%s", error
                )
