"""Channel builders: what the security protocol of a listener adds to its connections (Kafka: ChannelBuilders,
SslChannelBuilder, DefaultKafkaPrincipalBuilder).

A listener has one of the four security protocols. TLS gives its connections a context, and a principal from the
client's certificate; SASL puts an exchange before the first request.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from odradek.broker.config.broker_config import BrokerConfig
from odradek.broker.config.definitions import BROKER_PROPERTIES
from odradek.broker.config.types import ConfigError
from odradek.broker.metrics.authentication_metrics import AuthenticationMetrics
from odradek.broker.registry.znodes import Endpoint
from odradek.broker.security.sasl_dependencies import MechanismService, SaslDependencies
from odradek.broker.security.session import ANONYMOUS_SESSION
from odradek.protocol.net import Connection, FrameHandler

if TYPE_CHECKING:
    import ssl

    from odradek.broker.security.sasl_channel import SaslChannels
    from odradek.broker.security.sasl_client import SaslConnector
    from odradek.broker.security.ssl_factory import SslFactory
    from odradek.broker.security.tls_principals import TlsPrincipals

TLS_PROTOCOLS: Final = ("SSL", "SASL_SSL")
SASL_PROTOCOLS: Final = ("SASL_PLAINTEXT", "SASL_SSL")


def ssl_values(config: BrokerConfig, listener: str) -> tuple[Any, ...]:
    """The values of all properties of TLS for a listener."""
    return tuple(config.of_listener(listener, name) for name in BROKER_PROPERTIES if name.startswith("ssl."))


class ChannelBuilder:
    """The security of one listener."""

    def __init__(
        self, config: BrokerConfig, endpoint: Endpoint, on_frame: FrameHandler, sasl: SaslDependencies | None = None
    ) -> None:
        """`on_frame` receives the requests of authenticated connections; a SASL listener needs `sasl`.

        Raises ConfigError.
        """
        self._endpoint = endpoint
        self.metrics = AuthenticationMetrics()
        self.on_frame = on_frame
        """Receives the first requests of a connection."""
        self._ssl_factory = self._make_ssl_factory(config)
        self._principals = self._make_principals(config)
        self._services: list[MechanismService] = []
        self._sasl: SaslChannels | None = None
        self.client_sasl: SaslConnector | None = None
        """Authenticates connections to this listener of other brokers; None without SASL."""
        if endpoint.security_protocol in SASL_PROTOCOLS:
            assert sasl is not None
            # imported late: only a broker with SASL needs its mechanisms
            from odradek.broker.security.sasl_client_mechanisms import client_connector

            self._sasl = self._channels(config, sasl)
            if endpoint.listener in (config.inter_broker_listener, config.control_listener):
                self.client_sasl = client_connector(config, endpoint.listener, sasl)

    def _make_ssl_factory(self, config: BrokerConfig) -> SslFactory | None:
        if self._endpoint.security_protocol not in TLS_PROTOCOLS:
            return None
        # imported late: only a broker with TLS needs the libraries, which take as long to load as a broker to start
        from odradek.broker.security.ssl_factory import SslFactory

        return SslFactory(config, self._endpoint)

    def _make_principals(self, config: BrokerConfig) -> TlsPrincipals | None:
        name = "ssl.principal.mapping.rules"
        rules = config.of_listener(self._endpoint.listener, name)
        if self._ssl_factory is None and rules == BROKER_PROPERTIES[name].default:
            return None
        # imported late, as `SslFactory`; rules that are set are checked without TLS, too
        from odradek.broker.security.state.principal_mapping import RuleError
        from odradek.broker.security.tls_principals import TlsPrincipals

        try:
            return TlsPrincipals(rules, self.metrics)
        except RuleError as error:
            raise ConfigError(f"listener {self._endpoint}: {name}: {error}") from error

    @property
    def server_tls(self) -> ssl.SSLContext | None:
        """The context of new connections to the listener; None without TLS."""
        return self._ssl_factory.server if self._ssl_factory is not None else None

    @property
    def client_tls(self) -> ssl.SSLContext | None:
        """The context of new connections to this listener of other brokers; None without TLS."""
        return self._ssl_factory.client if self._ssl_factory is not None else None

    def validate(self, config: BrokerConfig) -> None:
        """Raise ConfigError where the listener cannot change to the settings of `config`."""
        if self._ssl_factory is not None:
            self._ssl_factory.validate(config)

    def reconfigure(self, config: BrokerConfig) -> bool:
        """Change to the settings of `config`, if they are valid; return whether new connections need a new context."""
        return self._ssl_factory is not None and self._ssl_factory.reconfigure(config)

    def reload_changed_files(self, config: BrokerConfig) -> bool:
        """Read key stores again whose files have changed; return whether new connections need a new context."""
        return self._ssl_factory is not None and self._ssl_factory.reload_changed_files(config)

    def _channels(self, config: BrokerConfig, sasl: SaslDependencies) -> SaslChannels:
        from odradek.broker.security.sasl_channel import SaslChannels
        from odradek.broker.security.sasl_mechanisms import listener_mechanisms

        listener = self._endpoint.listener
        return SaslChannels(
            mechanisms=listener_mechanisms(config, listener, sasl, self._services),
            clock=sasl.clock,
            timers=sasl.timers,
            report=sasl.report,
            on_frame=self.on_frame,
            failure_delay_ms=int(config.of_listener(listener, "connection.failed.authentication.delay.ms")),
            most_bytes=int(config.of_listener(listener, "sasl.server.max.receive.size")),
            request_bytes=int(config["socket.request.max.bytes"]),
            metrics=self.metrics,
        )

    async def start(self) -> None:
        """Prepare the listener before it opens. Raises ConfigError."""
        for service in self._services:
            await service.start()

    def close(self) -> None:
        """End the work beside the connections, when the listener closes."""
        for service in self._services:
            service.close()

    def open(self, connection: Connection) -> None:
        """Give a new connection its session, or begin the SASL exchange that leads to one."""
        if self._sasl is not None:
            self._sasl.open(connection)
            return
        if self._principals is not None and connection.tls is not None:
            self._principals.open(connection)
        else:
            connection.session = ANONYMOUS_SESSION
