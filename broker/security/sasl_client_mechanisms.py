"""SASL mechanisms with which this broker connects to others, from its properties (Kafka: LoginManager).

The credentials are options of the same JAAS configuration that a listener has for its clients:
`listener.name.NAME.MECHANISM.sasl.jaas.config` with `username` and `password`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from odradek.broker.config.broker_config import BrokerConfig
from odradek.broker.config.types import ConfigError
from odradek.broker.security.sasl_client import (
    GssapiClients,
    PlainClient,
    SaslClient,
    SaslConnector,
    ScramClients,
    Send,
)
from odradek.broker.security.sasl_dependencies import SaslDependencies
from odradek.broker.security.sasl_mechanisms import MechanismConfig, kerberos_login
from odradek.broker.security.state import gssapi
from odradek.protocol.sasl import oauthbearer, plain, scram_credentials
from odradek.protocol.sasl.exchange import SaslError


class MissingCredentials:
    """A broker without credentials for other brokers: connections to them fail. A single broker needs none."""

    def __init__(self, reason: str) -> None:
        self._reason = reason

    async def exchange(self, send: Send, host: str) -> None:
        """Raises SaslError."""
        raise SaslError(self._reason)


def _plain(config: MechanismConfig, dependencies: SaslDependencies) -> SaslClient:
    return PlainClient(*_user(config))


def _scram(
    mechanism: scram_credentials.Mechanism, config: MechanismConfig, dependencies: SaslDependencies
) -> SaslClient:
    return ScramClients(mechanism, *_user(config), dependencies.random)


def _oauthbearer(config: MechanismConfig, dependencies: SaslDependencies) -> SaslClient:
    # imported late: only a broker with OAUTHBEARER needs cryptography and an HTTP client
    from odradek.broker.security.sasl_oauth import broker_token

    return broker_token(config, dependencies)


def _gssapi(config: MechanismConfig, dependencies: SaslDependencies) -> SaslClient:
    return GssapiClients(kerberos_login(config).initiate)


CLIENTS: Final[Mapping[str, Callable[[MechanismConfig, SaslDependencies], SaslClient]]] = {
    plain.MECHANISM: _plain,
    oauthbearer.MECHANISM: _oauthbearer,
    **{each.name: partial(_scram, each) for each in scram_credentials.MECHANISMS.values()},
    gssapi.MECHANISM: _gssapi,
}
"""A function for each mechanism. Raises ConfigError."""


def _user(config: MechanismConfig) -> tuple[str, str]:
    options = config.jaas_options() or {}
    for name in ("username", "password"):
        if not options.get(name):
            raise ConfigError(f"{config.property_name('sasl.jaas.config')}: the option {name} is missing")
    return options["username"], options["password"]


def client_connector(config: BrokerConfig, listener: str, dependencies: SaslDependencies) -> SaslConnector:
    """How this broker connects to a SASL listener of other brokers. Raises ConfigError."""
    mechanism = config["sasl.mechanism.inter.broker.protocol"]
    if mechanism not in CLIENTS:
        raise ConfigError(
            f"Invalid value {mechanism} for configuration sasl.mechanism.inter.broker.protocol; "
            f"allowed: {', '.join(CLIENTS)}"
        )
    try:
        client = CLIENTS[mechanism](MechanismConfig(config, listener, mechanism, dependencies.jaas_file), dependencies)
    except ConfigError as error:
        client = MissingCredentials(error.message)
    return SaslConnector(mechanism, client, dependencies.clock, dependencies.random)
