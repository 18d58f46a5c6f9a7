"""The addresses of a broker: where it listens, and where it tells others that it can be reached."""

from __future__ import annotations

import socket
from collections.abc import Callable

from odradek.broker.cluster_view import Endpoint
from odradek.broker.config import BrokerConfig
from odradek.broker.config_types import ConfigError
from odradek.broker.feature_levels import REGISTERED
from odradek.broker.observe import RateLimitedReport
from odradek.broker.registry import znodes
from odradek.broker.waiting import Clock
from odradek.protocol.net import Census, Connection, Limits, Listener

OnFrame = Callable[[Connection, memoryview], None]


class Addresses:
    """All listeners of a broker; they share the limits on connections and memory."""

    def __init__(self, config: BrokerConfig, listen: Callable[..., Listener], clock: Clock) -> None:
        """Nothing is bound before `bind`. Raises ConfigError for a listener that cannot be served."""
        for endpoint in config.listeners:
            if endpoint.security_protocol != "PLAINTEXT":
                raise ConfigError(
                    f"listener {endpoint} speaks {endpoint.security_protocol}, which is not served yet; PLAINTEXT is"
                )
        self._config = config
        self._listen = listen
        self._clock = clock
        self._listeners: list[Listener] = []
        self.endpoints: tuple[Endpoint, ...] = ()
        """Where others are told to go."""

    @property
    def held_bytes(self) -> int:
        """Bytes in memory for connections: incomplete requests, and answers that wait."""
        return self._listeners[0].held_bytes if self._listeners else 0

    async def bind(self, on_frame: OnFrame) -> None:
        """Take the addresses. Raises OSError when one is taken or not this machine's."""
        config = self._config
        limits = _limits(config)
        census = Census()
        report = RateLimitedReport(self._clock)
        told = []
        told_to = {each.listener: each for each in config.advertised_listeners}
        for endpoint in config.listeners:
            listener = self._listen(endpoint.listener, on_frame, limits=limits, report=report, census=census)
            self._listeners.append(listener)
            backlog = int(config["socket.listen.backlog.size"])
            port = await listener.bind(endpoint.host or None, endpoint.port, backlog=backlog)
            advertised = told_to.get(endpoint.listener)
            if advertised is not None:
                reachable = advertised.advertise(_own_name(endpoint.host), port)
                told.append(Endpoint(endpoint.listener, reachable.host, reachable.port))
        self.endpoints = tuple(told)

    async def serve(self) -> None:
        """Begin to accept connections."""
        for listener in self._listeners:
            await listener.serve()

    def close(self) -> None:
        """End every connection and give the addresses back."""
        for listener in self._listeners:
            listener.close()

    def registration(self) -> znodes.BrokerRegistration:
        """What the registry is told."""
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
        idle_s=int(config["connections.max.idle.ms"]) / 1000,
        **({"total_bytes": total} if total > 0 else {}),
    )


def _own_name(host: str) -> str:
    """What to tell clients when a listener names no address: this machine's name, as Kafka does."""
    return host or socket.getfqdn()
