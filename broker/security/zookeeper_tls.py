"""TLS to ZooKeeper: the `zookeeper.ssl.*` properties (Kafka: KafkaServer.zkClientConfigFromKafkaConfig; ZooKeeper:
ClientX509Util).

The defaults are those of ZooKeeper's own client: where no type is set, the extension of a file determines its type;
the password of a PEM key store is that of its key; only TLS 1.2 is used.
"""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Any, Final

from odradek.broker.config.broker_config import BrokerConfig
from odradek.broker.config.types import ConfigError
from odradek.broker.security.tls import TlsError, client_context
from odradek.broker.security.tls_settings import PEM, tls_settings

_SAME: Final = {
    "ssl.keystore.location": "zookeeper.ssl.keystore.location",
    "ssl.truststore.location": "zookeeper.ssl.truststore.location",
    "ssl.cipher.suites": "zookeeper.ssl.cipher.suites",
    "ssl.endpoint.identification.algorithm": "zookeeper.ssl.endpoint.identification.algorithm",
}
_TYPES: Final = {".jks": "JKS", ".pem": PEM, ".p12": "PKCS12", ".pfx": "PKCS12"}


def zookeeper_context(config: BrokerConfig) -> ssl.SSLContext:
    """The context of connections to ZooKeeper. Raises ConfigError."""
    try:
        return client_context(tls_settings(lambda name: _value(config, name)))
    except TlsError as error:
        raise ConfigError(f"zookeeper.ssl.client.enable=true: {error} (with the prefix zookeeper.)") from error


def _value(config: BrokerConfig, name: str) -> Any:
    """The value for one of a listener's names of properties; ZooKeeper's have other rules for some."""
    match name:
        case "ssl.keystore.type":
            return _key_store_type(config)
        case "ssl.truststore.type":
            return _trust_store_type(config)
        case "ssl.key.password":
            return config["zookeeper.ssl.keystore.password"] if _key_store_type(config) == PEM else None
        case "ssl.keystore.password":
            return config["zookeeper.ssl.keystore.password"] if _key_store_type(config) != PEM else None
        case "ssl.truststore.password":
            return config["zookeeper.ssl.truststore.password"] if _trust_store_type(config) != PEM else None
        case "ssl.enabled.protocols":
            return config["zookeeper.ssl.enabled.protocols"] or (config["zookeeper.ssl.protocol"],)
    return config[_SAME[name]] if name in _SAME else None


def _key_store_type(config: BrokerConfig) -> str:
    return _type(config["zookeeper.ssl.keystore.type"], config["zookeeper.ssl.keystore.location"])


def _trust_store_type(config: BrokerConfig) -> str:
    return _type(config["zookeeper.ssl.truststore.type"], config["zookeeper.ssl.truststore.location"])


def _type(configured: str | None, location: str | None) -> str:
    return configured.upper() if configured is not None else _TYPES.get(Path(location or "").suffix, "JKS")
