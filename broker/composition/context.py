"""Broker context: what several parts of one broker are built from."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass

from odradek.broker.composition.environment import Environment
from odradek.broker.config.broker_config import BrokerConfig
from odradek.broker.metadata.broker_registration import Registration
from odradek.broker.metadata.cache import MetadataCache
from odradek.broker.metadata.registry_session import RegistrySession
from odradek.broker.network.addresses import Addresses
from odradek.broker.network.controller_channel import ControllerChannel
from odradek.broker.network.inter_broker_client import InterBrokerClient, Local
from odradek.broker.network.inter_broker_connection import Network
from odradek.broker.replication.partition import Replicas
from odradek.broker.runtime.request_tasks import RequestTasks
from odradek.broker.runtime.timers import Clock, Timers


@dataclass(frozen=True, slots=True)
class BrokerContext:
    """The dependencies that several parts of a broker share."""

    config: BrokerConfig
    environment: Environment
    timers: Timers
    session: RegistrySession
    addresses: Addresses
    registration: Registration
    metadata_cache: MetadataCache
    replicas: Replicas
    request_tasks: RequestTasks
    local: Local
    """Answers requests of this broker to itself."""
    undo: contextlib.AsyncExitStack
    """Each part that has to be closed adds its callback; the stop runs them in the reverse order."""

    @property
    def clock(self) -> Clock:
        """The clock of the environment."""
        return self.environment.clock

    @property
    def controller_timeout_ms(self) -> int:
        """The timeout of requests to the controller, and of control requests."""
        return int(self.config["controller.socket.timeout.ms"])

    def network(self) -> Network:
        """The network for connections to other brokers."""
        config = self.config
        return Network(
            self.environment.connect,
            self.clock,
            self.timers,
            setup_timeout_ms=int(config["socket.connection.setup.timeout.ms"]),
            setup_timeout_max_ms=int(config["socket.connection.setup.timeout.max.ms"]),
        )

    def controller_channel(self) -> ControllerChannel:
        """A channel to the active controller, with its own connection."""
        config, cache = self.config, self.metadata_cache
        client = InterBrokerClient.of_metadata(
            cache, config.inter_broker_listener, config.broker_id, self.network(), self.local, "to-controller"
        )
        return ControllerChannel(client, cache, self.controller_timeout_ms)
