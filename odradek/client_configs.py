"""Configurations of clients for a secured broker: confluent-kafka, aiokafka, kafka-python and Java.

The names and types of the values are those of each client, so that the result is what its constructor takes.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

OAUTH: Final = "OAUTHBEARER"
TOKEN_LIFETIME_S: Final = 3600
_JAVA_MODULES: Final = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
    OAUTH: "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule",
}
_JAVA_OAUTH_HANDLER: Final = "org.apache.kafka.common.security.oauthbearer.secured.OAuthBearerLoginCallbackHandler"


@dataclass(frozen=True, slots=True)
class ClientLogin:
    """One user of a cluster: the addresses, and how to connect and authenticate."""

    bootstrap: str
    protocol: str
    """Kafka's security protocol."""
    user: str
    password: str = field(repr=False)
    authorities: Path
    """The certificates of the authorities that the brokers' certificates come from, as PEM."""
    keystore: Path | None
    """Private key and certificate of the user as PEM; None without client certificates."""
    mechanism: str | None
    """The SASL mechanism; None without SASL."""
    token: Callable[[], str] = field(repr=False)
    """Returns a token for each login with OAUTHBEARER."""
    token_url: str

    @property
    def has_tls(self) -> bool:
        """Whether the connection is encrypted."""
        return self.protocol.endswith("SSL")

    @property
    def has_password(self) -> bool:
        """Whether the user logs in with a password."""
        return self.mechanism not in (None, OAUTH)

    def ssl_context(self) -> ssl.SSLContext:
        """The context of a client in Python."""
        context = ssl.create_default_context(cafile=str(self.authorities))
        if self.keystore is not None:
            context.load_cert_chain(self.keystore)
        return context


def client_config(login: ClientLogin, client: str) -> dict[str, Any]:
    """The configuration for a client of `CLIENTS`. Raises ValueError for any other."""
    if client not in CLIENTS:
        raise ValueError(f"client {client!r}; allowed are {', '.join(CLIENTS)}")
    return CLIENTS[client](login)


def _librdkafka(login: ClientLogin) -> dict[str, Any]:
    config: dict[str, Any] = {"bootstrap.servers": login.bootstrap, "security.protocol": login.protocol}
    if login.has_tls:
        config["ssl.ca.location"] = str(login.authorities)
    if login.keystore is not None:
        config |= {"ssl.certificate.location": str(login.keystore), "ssl.key.location": str(login.keystore)}
    if login.mechanism is not None:
        config["sasl.mechanism"] = login.mechanism
    if login.has_password:
        config |= {"sasl.username": login.user, "sasl.password": login.password}
    elif login.mechanism == OAUTH:
        config["oauth_cb"] = lambda _: (login.token(), time.time() + TOKEN_LIFETIME_S)
    return config


def _python(login: ClientLogin) -> dict[str, Any]:
    config: dict[str, Any] = {"bootstrap_servers": login.bootstrap.split(","), "security_protocol": login.protocol}
    if login.has_tls:
        config["ssl_context"] = login.ssl_context()
    if login.mechanism is not None:
        config["sasl_mechanism"] = login.mechanism
    if login.has_password:
        config |= {"sasl_plain_username": login.user, "sasl_plain_password": login.password}
    return config


def _aiokafka(login: ClientLogin) -> dict[str, Any]:
    config = _python(login)
    if login.mechanism == OAUTH:
        from aiokafka.abc import AbstractTokenProvider

        class TokenProvider(AbstractTokenProvider):  # type: ignore[misc]
            async def token(self) -> str:
                return await asyncio.to_thread(login.token)

        config["sasl_oauth_token_provider"] = TokenProvider()
    return config


def _kafka_python(login: ClientLogin) -> dict[str, Any]:
    config = _python(login)
    if login.mechanism == OAUTH:
        try:
            from kafka.net.sasl.oauth import AbstractTokenProvider
        except ImportError:  # kafka-python before 3
            from kafka.sasl.oauth import AbstractTokenProvider

        class TokenProvider(AbstractTokenProvider):  # type: ignore[misc]
            def token(self) -> str:
                return login.token()

        config["sasl_oauth_token_provider"] = TokenProvider()
    return config


def _java(login: ClientLogin) -> dict[str, Any]:
    config = {"bootstrap.servers": login.bootstrap, "security.protocol": login.protocol}
    if login.has_tls:
        config |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(login.authorities)}
    if login.keystore is not None:
        config |= {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(login.keystore)}
    if login.mechanism is not None:
        config |= {"sasl.mechanism": login.mechanism, "sasl.jaas.config": _java_module(login)}
    if login.mechanism == OAUTH:
        config |= {
            "sasl.login.callback.handler.class": _JAVA_OAUTH_HANDLER,
            "sasl.oauthbearer.token.endpoint.url": login.token_url,
        }
    return dict(config)


def _java_module(login: ClientLogin) -> str:
    assert login.mechanism is not None
    user, password = (jaas_text(each) for each in (login.user, login.password))
    if login.mechanism == OAUTH:
        options = f"clientId={user} clientSecret={password}"
    else:
        options = f"username={user} password={password}"
    return f"{_JAVA_MODULES[login.mechanism]} required {options};"


def jaas_text(text: str) -> str:
    """A value of an option in a JAAS configuration, in quotes."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def properties_text(properties: dict[str, str]) -> str:
    """The lines of a properties file, in ASCII: Java reads ISO-8859-1, with other characters as escaped UTF-16."""
    return "".join(f"{name}={_escaped(value)}\n" for name, value in properties.items())


def _escaped(value: str) -> str:
    units = value.replace("\\", "\\\\").replace("\n", "\\n").encode("utf-16-be")
    codes = (int.from_bytes(units[at : at + 2], "big") for at in range(0, len(units), 2))
    return "".join(chr(code) if 0x20 <= code < 0x7F else f"\\u{code:04x}" for code in codes)


CLIENTS: Final[dict[str, Callable[[ClientLogin], dict[str, Any]]]] = {
    "confluent-kafka": _librdkafka,
    "aiokafka": _aiokafka,
    "kafka-python": _kafka_python,
    "java": _java,
}
"""The clients by the names of their packages."""
