"""The security of connections from the properties of a client, by Java's or by librdkafka's names.

    security.protocol=SASL_SSL
    ssl.truststore.location=/etc/kafka/ca.pem
    ssl.truststore.type=PEM
    sasl.mechanism=SCRAM-SHA-512
    sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required username="a" password="b";

Java's stores of keys are read as a broker reads its own; a JAAS configuration becomes the properties that librdkafka
has for it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from odradek.protocol.client.errors import SecurityConfigError

if TYPE_CHECKING:
    import ssl

    from odradek.broker.security.tls import TlsSettings
    from odradek.protocol.client.security import ConnectionSecurity

BOOTSTRAP: Final = "bootstrap.servers"
REGISTRY_URL: Final = "schema.registry.url"
KEPT: Final = ("security.", "ssl.", "sasl.", "enable.ssl.", "schema.registry.", "basic.auth.", "bearer.auth.")
"""The beginnings of the properties of a client that a profile keeps: of its connections, and of its schema registry."""
SECRETS: Final = (
    "basic.auth.user.info",
    "bearer.auth.client.secret",
    "bearer.auth.token",
    "schema.registry.basic.auth.user.info",
    "schema.registry.bearer.auth.client.secret",
    "schema.registry.bearer.auth.token",
    "schema.registry.ssl.key.password",
    "sasl.password",
    "sasl.jaas.config",
    "sasl.oauthbearer.client.secret",
    "sasl.oauthbearer.client.credentials.client.secret",
    "ssl.key.password",
    "ssl.key.pem",
    "ssl.keystore.key",
    "ssl.keystore.password",
    "ssl.truststore.password",
)
"""The properties whose values are not shown."""
_USER_IN_URL: Final = re.compile(r"//[^/@\s]*@")
_OF_LIBRDKAFKA: Final = (
    "ssl.ca.",
    "ssl.certificate.",
    "ssl.key.location",
    "ssl.key.pem",
    "enable.ssl.certificate.verification",
)
"""Names that only librdkafka has; with one of them every ssl.* property has librdkafka's meaning."""
_PLAINTEXT: Final = "PLAINTEXT"
_JAAS: Final = "sasl.jaas.config"
_TOKEN_MODULE: Final = "OAuthBearerLoginModule"
_PASSWORD_MODULES: Final = ("PlainLoginModule", "ScramLoginModule")
_FROM_JAAS: Final[Mapping[str, str]] = {
    "clientId": "sasl.oauthbearer.client.id",
    "clientSecret": "sasl.oauthbearer.client.secret",
    "scope": "sasl.oauthbearer.scope",
    "username": "sasl.username",
    "password": "sasl.password",
    "tokenauth": "sasl.scram.tokenauth",
}
"""Options of Java's login modules, and the properties for them."""
_RENAMED: Final[Mapping[str, str]] = {
    "sasl.oauthbearer.client.credentials.client.id": "sasl.oauthbearer.client.id",
    "sasl.oauthbearer.client.credentials.client.secret": "sasl.oauthbearer.client.secret",
}
"""Properties of Java's clients from 4.1 on (KIP-1139), and librdkafka's names."""


def security_of_properties(properties: Mapping[str, Any]) -> ConnectionSecurity:
    """How to connect with these properties; others than those of security are ignored. Raises SecurityConfigError.

    All are texts, except for librdkafka's `oauth_cb`.
    """
    from odradek.protocol.client.security import PLAINTEXT, ConnectionSecurity

    protocol = properties.get("security.protocol", _PLAINTEXT).upper()
    if protocol == _PLAINTEXT:
        return PLAINTEXT
    translated = {_RENAMED.get(name, name): value for name, value in properties.items()}
    if protocol.startswith("SASL") and _JAAS in translated:
        translated |= _of_jaas(translated)
    if any(name.startswith(_OF_LIBRDKAFKA) for name in translated) or not protocol.endswith("SSL"):
        return ConnectionSecurity.of(_without(translated, "" if protocol.endswith("SSL") else "ssl."))
    login = None
    if protocol.startswith("SASL"):
        login = ConnectionSecurity.of(_without(translated, "ssl.") | {"security.protocol": "SASL_PLAINTEXT"}).login
    return ConnectionSecurity(_java_context(translated), login)


def librdkafka_properties(properties: Mapping[str, Any]) -> dict[str, Any]:
    """The same security by librdkafka's names; other properties are left out. Raises SecurityConfigError."""
    protocol = properties.get("security.protocol", _PLAINTEXT).upper()
    if protocol == _PLAINTEXT:
        return {}
    translated = {_RENAMED.get(name, name): value for name, value in properties.items()}
    if protocol.startswith("SASL") and _JAAS in translated:
        translated |= _of_jaas(translated)
    kept = {
        name: value for name, value in translated.items() if name.startswith(("sasl.", "security.protocol", "oauth_cb"))
    }
    kept = _without(kept, "")
    if kept.pop("sasl.scram.tokenauth", "false").lower() == "true":
        raise SecurityConfigError("librdkafka cannot log in with a delegation token; administration commands can")
    if not protocol.endswith("SSL"):
        return kept
    if any(name.startswith(_OF_LIBRDKAFKA) for name in translated):
        return kept | {name: value for name, value in translated.items() if name.startswith(("ssl.", "enable.ssl."))}
    return kept | _librdkafka_tls(_java_tls(translated))


def _librdkafka_tls(settings: TlsSettings) -> dict[str, str]:
    found = {} if settings.verifies_host else {"ssl.endpoint.identification.algorithm": "none"}
    if settings.trusted_pem is not None:
        found["ssl.ca.pem"] = settings.trusted_pem.decode("ascii")
    if settings.key_pem is not None:
        found["ssl.key.pem"] = settings.key_pem.decode("ascii")
        found["ssl.certificate.pem"] = settings.chain_pem.decode("ascii")
    return found


def read_properties(content: bytes) -> dict[str, str]:
    """The properties of a file in Java's format. Raises SecurityConfigError."""
    from odradek.broker.config.properties import parse_properties
    from odradek.broker.config.types import ConfigError

    try:
        return parse_properties(content)
    except ConfigError as error:
        raise SecurityConfigError(str(error)) from error


def shown_properties(properties: Mapping[str, str]) -> dict[str, str]:
    """The properties with secrets replaced, for a reader: whole values, and the user in a URL."""
    return {
        name: "(hidden)" if name in SECRETS else _USER_IN_URL.sub("//(hidden)@", value)
        for name, value in properties.items()
    }


_IGNORED: Final = (
    "sasl.jaas.config",
    "sasl.login.",
    "sasl.client.callback.handler.class",
    "sasl.kerberos.",
    "sasl.oauthbearer.expected.",
    "sasl.oauthbearer.jwks.",
    "sasl.oauthbearer.sub.",
    "sasl.oauthbearer.scope.claim.name",
    "sasl.oauthbearer.clock.",
)
"""Java's properties that are for brokers, or choose Java's classes."""


def _without(properties: Mapping[str, str], prefix: str) -> dict[str, Any]:
    dropped = (*_IGNORED, prefix) if prefix else _IGNORED
    return {name: value for name, value in properties.items() if not name.startswith(dropped)}


def _of_jaas(properties: Mapping[str, str]) -> dict[str, str]:
    from odradek.broker.security.state.jaas import JaasError, parse_module

    try:
        module = parse_module(properties[_JAAS])
    except JaasError as error:
        raise SecurityConfigError(f"{_JAAS}: {error}") from error
    name = module.name.rpartition(".")[2]
    if name not in (*_PASSWORD_MODULES, _TOKEN_MODULE):
        allowed = ", ".join((*_PASSWORD_MODULES, _TOKEN_MODULE))
        raise SecurityConfigError(f"{_JAAS}: the login module {module.name} is not supported; allowed: {allowed}")
    found = {_FROM_JAAS[option]: value for option, value in module.options.items() if option in _FROM_JAAS}
    if name == _TOKEN_MODULE:
        found["sasl.oauthbearer.method"] = "oidc"
    return found


def _java_context(properties: Mapping[str, str]) -> ssl.SSLContext:
    from odradek.broker.security.tls import TlsError, client_context

    try:
        return client_context(_java_tls(properties))
    except TlsError as error:
        raise SecurityConfigError(str(error)) from error


def _java_tls(properties: Mapping[str, str]) -> TlsSettings:
    from odradek.broker.config.definitions import BROKER_PROPERTIES
    from odradek.broker.config.types import ConfigError, read_value
    from odradek.broker.security.tls import TlsError
    from odradek.broker.security.tls_settings import tls_settings

    def value(name: str) -> Any:
        row, text = BROKER_PROPERTIES[name], properties.get(name)
        return row.default if text is None else read_value(row, text)

    try:
        return tls_settings(value)
    except (TlsError, ConfigError) as error:
        raise SecurityConfigError(str(error)) from error
