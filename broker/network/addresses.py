"""Listeners of a broker and their advertised addresses (Kafka: SocketServer)."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable
from dataclasses import replace

from odradek.broker.config.broker_config import BrokerConfig
from odradek.broker.metadata.cache import ListenerAddress
from odradek.broker.metadata.features import REGISTERED
from odradek.broker.metrics.authentication_metrics import AuthenticationMetrics
from odradek.broker.metrics.refusals import RateLimitedReport
from odradek.broker.registry import znodes
from odradek.broker.runtime.timers import Clock
from odradek.broker.security.channel_builder import ChannelBuilder, ssl_values
from odradek.protocol.listening import ConnectionQuotas, Limits, Listener, OwnLimits


class Addresses:
    """All listeners of a broker; they share limits on connections and memory, and each has its own limits as well."""

    def __init__(
        self,
        config: BrokerConfig,
        listen: Callable[..., Listener],
        clock: Clock,
        build_channels: Callable[[BrokerConfig, znodes.Endpoint], ChannelBuilder],
        throttle_ms: Callable[[str], int] | None = None,
    ) -> None:
        """`build_channels` returns the security of a listener, `throttle_ms` for how long a new connection of an
        address is throttled. No address is bound before `bind`.
        """
        self._config = config
        self._listen = listen
        self._clock = clock
        self._report = RateLimitedReport(clock)
        self._limits = _limits(config)
        self._connection_quotas = ConnectionQuotas(throttle_ms)
        self._listeners: dict[str, tuple[Listener, str, int]] = {}
        """By name, each with its configured host and its bound port."""
        self._builders: dict[str, ChannelBuilder] = {}
        self.endpoints: tuple[ListenerAddress, ...] = ()
        """The advertised addresses."""
        self._build_channels = build_channels

    @property
    def held_bytes(self) -> int:
        """Bytes in memory for connections: incomplete requests, and responses that wait."""
        return next((listener.held_bytes for listener, _, _ in self._listeners.values()), 0)

    def connections(self) -> dict[str, int]:
        """How many connections each listener has."""
        return {name: len(listener.connections) for name, (listener, _, _) in self._listeners.items()}

    def authentications(self) -> dict[str, AuthenticationMetrics]:
        """The authentications of each listener, with the TLS handshakes that failed."""
        return {
            name: replace(
                builder.metrics,
                failed_authentication=builder.metrics.failed_authentication
                + self._listeners[name][0].failed_handshakes,
            )
            for name, builder in self._builders.items()
        }

    async def bind(self) -> None:
        """Bind the addresses.

        Raises OSError for an address in use, or not of this machine, and ConfigError for a listener whose security
        cannot be set up.
        """
        for endpoint in self._config.listeners:
            await self._open(endpoint)
        self._advertise()

    def channel_builder(self, listener: str) -> ChannelBuilder:
        """The security of a bound listener."""
        return self._builders[listener]

    async def serve(self) -> None:
        """Begin to accept connections."""
        for listener, _, _ in self._listeners.values():
            await listener.serve()

    def validate(self, config: BrokerConfig, names: Iterable[str]) -> None:
        """Raise ConfigError where a listener cannot have, or change to, the security settings of `config`.

        The key stores of a listener are read if their properties are among `names`, or have other values than before.
        """
        for name, builder in self._builders.items():
            prefix = f"listener.name.{name.lower()}.ssl."
            if any(each.startswith(prefix) for each in names) or ssl_values(config, name) != ssl_values(
                self._config, name
            ):
                builder.validate(config)
        for endpoint in config.listeners:
            if endpoint.listener not in self._builders:
                self._build_channels(config, endpoint)

    def update_security(self, config: BrokerConfig) -> None:
        """Apply changed security settings to new connections."""
        for name, builder in self._builders.items():
            if builder.reconfigure(config):
                self._listeners[name][0].tls = builder.server_tls

    def reload_changed_files(self) -> None:
        """Read key stores and trust stores again whose files have changed; the scheduler calls this periodically."""
        for name, builder in self._builders.items():
            if builder.reload_changed_files(self._config):
                self._listeners[name][0].tls = builder.server_tls

    def update_limits(self, config: BrokerConfig) -> None:
        """Apply changed connection limits."""
        self._limits.become(_limits(config))
        for name, (listener, _, _) in self._listeners.items():
            listener.own = _own_limits(config, name)
            listener.resume_accepting()

    async def reconfigure(self, config: BrokerConfig) -> bool:
        """Open and close listeners as configured. Returns whether the advertised addresses have changed.

        Raises OSError when a new address cannot be bound, ConfigError when its security cannot be set up; the other
        listeners are then as configured. A listener that stays keeps its socket, even if its address in the
        configuration has changed (Kafka's DynamicListenerConfig).
        """
        self._config = config
        wanted = {each.listener: each for each in config.listeners}
        for name in [each for each in self._listeners if each not in wanted]:
            self._listeners.pop(name)[0].close()
            self._builders.pop(name).close()
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
        builder = self._build_channels(config, endpoint)
        await builder.start()
        listener = self._listen(
            name,
            builder.on_frame,
            on_open=builder.open,
            tls=builder.server_tls,
            limits=self._limits,
            report=self._report,
            connection_quotas=self._connection_quotas,
        )
        listener.protected = self._is_protected(name)
        listener.own = _own_limits(config, name)
        backlog = int(config["socket.listen.backlog.size"])
        try:
            port = await listener.bind(endpoint.host or None, endpoint.port, backlog=backlog, **_buffers(config))
        except OSError:
            builder.close()
            raise
        self._listeners[name] = listener, endpoint.host, port
        self._builders[name] = builder
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
        for builder in self._builders.values():
            builder.close()

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
