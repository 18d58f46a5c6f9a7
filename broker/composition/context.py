"""Broker context: what several parts of one broker are built from."""

from __future__ import annotations

import contextlib
from functools import partial
from typing import NamedTuple

from odradek.broker.composition.environment import Environment
from odradek.broker.composition.quotas import BrokerQuotas
from odradek.broker.composition.security import BrokerSecurity
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
from odradek.broker.security.client_channel import ClientChannels
from odradek.protocol.dial import connect


class BrokerContext(NamedTuple):
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
    security: BrokerSecurity
    quotas: BrokerQuotas
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

    def network(self, listener: str | None = None, receive_buffer_bytes: int | None = None) -> Network:
        """The network for connections to a listener of other brokers: the inter-broker listener, unless it is given.

        The operating system chooses the size of their receive buffers, unless it is given.
        """
        config = self.config
        open_connection = self.environment.connect
        if receive_buffer_bytes is not None and open_connection is connect:
            open_connection = partial(connect, receive_buffer_bytes=receive_buffer_bytes)
        builder = self.addresses.channel_builder(listener or config.inter_broker_listener)
        return Network(
            ClientChannels(open_connection, builder).connect,
            self.clock,
            self.timers,
            setup_timeout_ms=int(config["socket.connection.setup.timeout.ms"]),
            setup_timeout_max_ms=int(config["socket.connection.setup.timeout.max.ms"]),
        )

    def controller_channel(self) -> ControllerChannel:
        """A channel to the active controller, with its own connection, to the control plane listener if there is one
        (Kafka: MetadataCacheControllerNodeProvider).
        """
        config, cache, listener = self.config, self.metadata_cache, self.config.control_listener
        client = InterBrokerClient.of_metadata(
            cache, listener, config.broker_id, self.network(listener), self.local, "to-controller"
        )
        return ControllerChannel(client, cache, self.controller_timeout_ms)
