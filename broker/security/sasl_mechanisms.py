"""SASL mechanisms of a listener, from its properties (Kafka: SaslChannelBuilder, LoginManager).

`MECHANISMS` has a function for each mechanism that a listener can enable. The class names in JAAS configurations and in
callback handler properties are data: no class is loaded. A handler class that Odradek does not implement stops the
start, since it would check other credentials.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from odradek.broker.config.broker_config import BrokerConfig
from odradek.broker.config.types import ConfigError
from odradek.broker.security.jaas_file import SERVER_SECTION, JaasFile
from odradek.broker.security.sasl_dependencies import MechanismService, SaslDependencies
from odradek.broker.security.state import gssapi
from odradek.broker.security.state.gssapi import GssapiServer
from odradek.broker.security.state.jaas import JaasError, parse_module
from odradek.broker.security.state.sasl import SaslMechanism
from odradek.protocol.java_hash import string_hash
from odradek.protocol.sasl import oauthbearer, plain, scram_credentials
from odradek.protocol.sasl.exchange import SaslServer
from odradek.protocol.sasl.oauthbearer import OAuthBearerServer
from odradek.protocol.sasl.plain import PlainServer
from odradek.protocol.sasl.scram import ScramServer, TokenCredential

if TYPE_CHECKING:
    from odradek.broker.security.kerberos import KerberosLogin

NONCE_BITS: Final = 160
_JAAS: Final = "sasl.jaas.config"
_LOGIN_MODULES: Final = {
    plain.MECHANISM: "PlainLoginModule",
    oauthbearer.MECHANISM: "OAuthBearerLoginModule",
    **{each.name: "ScramLoginModule" for each in scram_credentials.MECHANISMS.values()},
    gssapi.MECHANISM: "Krb5LoginModule",
}
"""The classes whose options in a JAAS file are those of a mechanism."""
_HANDLER: Final = "sasl.server.callback.handler.class"


@dataclass(frozen=True, slots=True)
class MechanismConfig:
    """The properties of one mechanism of one listener: `listener.name.NAME.MECHANISM.` before `listener.name.NAME.`."""

    config: BrokerConfig
    listener: str
    mechanism: str
    jaas_file: JaasFile
    services: list[MechanismService] = field(default_factory=list)
    """A factory adds what the listener has to start and to close."""

    def __getitem__(self, name: str) -> Any:
        return self.config.of_listener(self.listener, name, self.mechanism)

    def property_name(self, name: str) -> str:
        """The full name of the property of this mechanism, for messages."""
        return f"listener.name.{self.listener.lower()}.{self.mechanism.lower()}.{name}"

    def jaas_options(self) -> Mapping[str, str] | None:
        """The options of the login module of this mechanism; None if none is configured. Raises ConfigError.

        The property counts before the JAAS file.
        """
        text = self.config.only_of_listener(self.listener, _JAAS, self.mechanism)
        if text is None:
            return self.jaas_file.server_options(self.listener, _LOGIN_MODULES[self.mechanism])
        try:
            return parse_module(text.value).options
        except JaasError as error:
            raise ConfigError(f"{self.property_name(_JAAS)}: {error}") from error

    def require_jaas_options(self) -> Mapping[str, str]:
        """As `jaas_options`, for a mechanism that cannot be without. Raises ConfigError."""
        options = self.jaas_options()
        if options is None:
            raise ConfigError(
                f"SASL/{self.mechanism} of listener {self.listener} needs {self.property_name(_JAAS)}, or the login "
                f"module {_LOGIN_MODULES[self.mechanism]} in section {SERVER_SECTION} of the JAAS file of KAFKA_OPTS"
            )
        return options

    def require_handler(self, *known: str) -> str | None:
        """The class name of the callback handler, which has to be one of `known`. Raises ConfigError."""
        name = self[_HANDLER]
        if name is not None and name not in known:
            raise ConfigError(
                f"{self.property_name(_HANDLER)}: {name} is not available; allowed: {', '.join(known) or 'none'}"
            )
        return None if name is None else str(name)


Factory = Callable[[MechanismConfig, SaslDependencies], Callable[[], SaslServer]]
"""Returns the function that creates the server of each exchange. Raises ConfigError."""


def _plain(config: MechanismConfig, dependencies: SaslDependencies) -> Callable[[], SaslServer]:
    config.require_handler("org.apache.kafka.common.security.plain.internals.PlainServerCallbackHandler")
    return partial(PlainServer, plain.password_check(config.require_jaas_options()))


def _scram(
    mechanism: scram_credentials.Mechanism, config: MechanismConfig, dependencies: SaslDependencies
) -> Callable[[], SaslServer]:
    config.require_handler("org.apache.kafka.common.security.scram.internals.ScramServerCallbackHandler")
    credential_of = partial(dependencies.credentials.find, mechanism.name)
    random, tokens = dependencies.random, dependencies.tokens

    def token_of(token_id: str) -> TokenCredential | None:
        return tokens.find(token_id, mechanism.name)

    return lambda: ScramServer(mechanism, f"{random.getrandbits(NONCE_BITS):x}", credential_of, token_of)


def _oauthbearer(config: MechanismConfig, dependencies: SaslDependencies) -> Callable[[], SaslServer]:
    # imported late: only a broker with OAUTHBEARER needs cryptography and an HTTP client
    from odradek.broker.security.sasl_oauth import token_validation

    validate = token_validation(config, dependencies)
    return lambda: OAuthBearerServer(validate)


def kerberos_login(config: MechanismConfig) -> KerberosLogin:
    """The Kerberos principal of this broker for its clients and for other brokers. Raises ConfigError."""
    # imported late: only a broker with Kerberos needs the package gssapi
    from odradek.broker.security.kerberos import KerberosLogin

    return KerberosLogin(config.require_jaas_options(), config["sasl.kerberos.service.name"])


def _gssapi(config: MechanismConfig, dependencies: SaslDependencies) -> Callable[[], SaslServer]:
    from odradek.broker.security.kerberos import user_mapper

    config.require_handler()
    login = kerberos_login(config)
    user_of = user_mapper(config["sasl.kerberos.principal.to.local.rules"], login.default_realm())
    return lambda: GssapiServer(login.accept(), user_of)


MECHANISMS: Final[Mapping[str, Factory]] = {
    plain.MECHANISM: _plain,
    oauthbearer.MECHANISM: _oauthbearer,
    **{each.name: partial(_scram, each) for each in scram_credentials.MECHANISMS.values()},
    gssapi.MECHANISM: _gssapi,
}
BLOCKING: Final = frozenset({gssapi.MECHANISM})
"""Mechanisms whose exchanges wait for files: the key table and the replay cache of Kerberos."""


def listener_mechanisms(
    config: BrokerConfig, listener: str, dependencies: SaslDependencies, services: list[MechanismService]
) -> Mapping[str, SaslMechanism]:
    """The enabled mechanisms of a listener, in the order of Kafka's responses. Raises ConfigError.

    Their services, which the listener has to start and to close, are added to `services`.
    """
    enabled = dict.fromkeys(config.of_listener(listener, "sasl.enabled.mechanisms"))
    if not enabled:
        raise ConfigError(f"listener {listener} has no SASL mechanism: see sasl.enabled.mechanisms")
    mechanisms = {}
    for name in sorted(enabled, key=_hash_order(len(enabled))):
        if name not in MECHANISMS:
            raise ConfigError(
                f"Invalid value {name} for configuration sasl.enabled.mechanisms of listener {listener}; "
                f"allowed: {', '.join(MECHANISMS)}"
            )
        properties = MechanismConfig(config, listener, name, dependencies.jaas_file, services)
        create = MECHANISMS[name](properties, dependencies)
        max_reauth_ms = int(properties["connections.max.reauth.ms"])
        mechanisms[name] = SaslMechanism(name, create, max_reauth_ms, blocks=name in BLOCKING)
    return mechanisms


def _hash_order(count: int) -> Callable[[str], int]:
    """The position of a string in a java.util.HashSet of that many."""
    buckets = 16
    while buckets < count / 0.75 + 1:
        buckets *= 2

    def bucket(text: str) -> int:
        code = string_hash(text)
        return (code ^ code >> 16) & (buckets - 1)

    return bucket
