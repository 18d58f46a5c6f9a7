"""Listeners of a broker and their advertised addresses (Kafka: SocketServer)."""

from __future__ import annotations

import socket
from collections.abc import Callable

from odradek.broker.config.broker_config import BrokerConfig
from odradek.broker.config.types import ConfigError
from odradek.broker.metadata.cache import ListenerAddress
from odradek.broker.metadata.features import REGISTERED
from odradek.broker.metrics.refusals import RateLimitedReport
from odradek.broker.registry import znodes
from odradek.broker.runtime.timers import Clock
from odradek.protocol.listening import ConnectionQuotas, Limits, Listener, OwnLimits
from odradek.protocol.net import Connection

OnFrame = Callable[[Connection, memoryview], None]


class Addresses:
    """All listeners of a broker; they share limits on connections and memory, and each has its own limits as well."""

    def __init__(self, config: BrokerConfig, listen: Callable[..., Listener], clock: Clock, on_frame: OnFrame) -> None:
        """`on_frame` is called for each request. No address is bound before `bind`.

        Raises ConfigError for a listener that is not supported.
        """
        for endpoint in config.listeners:
            if endpoint.security_protocol != "PLAINTEXT":
                raise ConfigError(
                    f"listener {endpoint} uses {endpoint.security_protocol}, which is not supported; PLAINTEXT is"
                )
        self._config = config
        self._listen = listen
        self._clock = clock
        self._report = RateLimitedReport(clock)
        self._limits = _limits(config)
        self._connection_quotas = ConnectionQuotas()
        self._listeners: dict[str, tuple[Listener, str, int]] = {}
        """By name, each with its configured host and its bound port."""
        self.endpoints: tuple[ListenerAddress, ...] = ()
        """The advertised addresses."""
        self._on_frame = on_frame

    @property
    def held_bytes(self) -> int:
        """Bytes in memory for connections: incomplete requests, and responses that wait."""
        return next((listener.held_bytes for listener, _, _ in self._listeners.values()), 0)

    def connections(self) -> dict[str, int]:
        """How many connections each listener has."""
        return {name: len(listener.connections) for name, (listener, _, _) in self._listeners.items()}

    async def bind(self) -> None:
        """Bind the addresses. Raises OSError for an address in use, or not of this machine."""
        for endpoint in self._config.listeners:
            await self._open(endpoint)
        self._advertise()

    async def serve(self) -> None:
        """Begin to accept connections."""
        for listener, _, _ in self._listeners.values():
            await listener.serve()

    def update_limits(self, config: BrokerConfig) -> None:
        """Apply changed connection limits."""
        self._limits.become(_limits(config))
        for name, (listener, _, _) in self._listeners.items():
            listener.own = _own_limits(config, name)
            listener.resume_accepting()

    async def reconfigure(self, config: BrokerConfig) -> bool:
        """Open and close listeners as configured. Returns whether the advertised addresses have changed.

        Raises OSError when a new address cannot be bound; the other listeners are then as configured. A listener that
        stays keeps its socket, even if its address in the configuration has changed (Kafka's DynamicListenerConfig).
        """
        self._config = config
        wanted = {each.listener: each for each in config.listeners}
        for name in [each for each in self._listeners if each not in wanted]:
            self._listeners.pop(name)[0].close()
        for name, (listener, _, _) in self._listeners.items():
            listener.protected = self._is_protected(name)
        try:
            for name, endpoint in wanted.items():
                if name not in self._listeners:
                    await (await self._open(endpoint)).serve()
        finally:
            before = self.endpoints
            self._advertise()
        return before != self.endpoints

    async def _open(self, endpoint: znodes.Endpoint) -> Listener:
        config, name = self._config, endpoint.listener
        listener = self._listen(
            name, self._on_frame, limits=self._limits, report=self._report, connection_quotas=self._connection_quotas
        )
        listener.protected = self._is_protected(name)
        listener.own = _own_limits(config, name)
        backlog = int(config["socket.listen.backlog.size"])
        port = await listener.bind(endpoint.host or None, endpoint.port, backlog=backlog, **_buffers(config))
        self._listeners[name] = listener, endpoint.host, port
        return listener

    def _is_protected(self, name: str) -> bool:
        return len(self._config.listeners) > 1 and name == self._config.inter_broker_listener

    def _advertise(self) -> None:
        """Compute the advertised addresses of the open listeners."""
        received = []
        reported_to = {each.listener: each for each in self._config.advertised_listeners}
        for name, (_, host, port) in self._listeners.items():
            if name in reported_to:
                reachable = reported_to[name].advertise(_own_name(host), port)
                received.append(ListenerAddress(name, reachable.host, reachable.port))
        self.endpoints = tuple(received)

    def log_suppressed_refusals(self) -> None:
        """Log how many refusals were suppressed; the scheduler calls this periodically."""
        self._report.sum_up()

    def close(self) -> None:
        """Close every connection and all listeners."""
        for listener, _, _ in self._listeners.values():
            listener.close()

    def registration(self) -> znodes.BrokerRegistration:
        """The registration of this broker for the metadata store."""
        protocols = {each.listener: each.security_protocol for each in self._config.listeners}
        return znodes.BrokerRegistration(
            tuple(
                znodes.Endpoint(each.listener, each.host, each.port, protocols[each.listener])
                for each in self.endpoints
            ),
            self._clock.now_ms(),
            self._config["broker.rack"],
            features=REGISTERED,
        )


def _limits(config: BrokerConfig) -> Limits:
    total = int(config["queued.max.request.bytes"])
    return Limits(
        frame_bytes=int(config["socket.request.max.bytes"]),
        connections=int(config["max.connections"]),
        connections_per_address=int(config["max.connections.per.ip"]),
        connections_by_address=config.connections_per_address,
        connections_per_second=int(config["max.connection.creation.rate"]),
        idle_s=int(config["connections.max.idle.ms"]) / 1000,
        **({"total_bytes": total} if total > 0 else {}),
    )


def _own_limits(config: BrokerConfig, listener: str) -> OwnLimits:
    return OwnLimits(
        int(config.of_listener(listener, "max.connections")),
        int(config.of_listener(listener, "max.connection.creation.rate")),
    )


def _buffers(config: BrokerConfig) -> dict[str, int]:
    """Sizes of the socket buffers, where they are configured: a fixed size is slower than the system's own tuning."""
    names = {"send_buffer_bytes": "socket.send.buffer.bytes", "receive_buffer_bytes": "socket.receive.buffer.bytes"}
    return {argument: int(config[name]) for argument, name in names.items() if config.is_set(name) and config[name] > 0}


def _own_name(host: str) -> str:
    """The host to advertise when a listener has none: this machine's name, like Kafka."""
    return host or socket.getfqdn()
