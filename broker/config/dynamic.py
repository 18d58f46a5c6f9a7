"""Dynamic broker configuration: which properties can change at run time, and by how much (Kafka: DynamicBrokerConfig).

Read-only properties never change; those of keys and certificates change only for a single listener, with its prefix;
per-broker properties only for one broker, not for all at once. Every other change must be a valid value of the
property, and no further from the effective value than one change allows.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from odradek.broker.config.definitions import BROKER_PROPERTIES
from odradek.broker.config.types import LONG_MAX, ConfigError, ConfigKey, Range, Type, Update, read_value

if TYPE_CHECKING:
    from odradek.broker.config.broker_config import BrokerConfig

DYNAMIC_ONLY: Final = {
    name: ConfigKey(name, Type.LONG, LONG_MAX, Range(0), Update.CLUSTER_WIDE, True, doc)
    for name, doc in (
        ("leader.replication.throttled.rate", "Bytes a second that throttled replicas get from this broker."),
        ("follower.replication.throttled.rate", "Bytes a second that throttled replicas fetch to this broker."),
        ("replica.alter.log.dirs.io.max.bytes.per.second", "Bytes a second between data directories of this broker."),
    )
}
"""Broker properties that cannot be set in a file (Kafka's DynamicConfig)."""

_OF_ONE_LISTENER: Final = re.compile(r"listener\.name\.[^.]*\.(.*)")
_ABOVE_ZERO: Final = ("max.connections", "max.connection.creation.rate")
_THREADS_OF_LISTENERS: Final = "num.network.threads"
_FOR_LISTENERS_OF_ALL: Final = (*_ABOVE_ZERO, _THREADS_OF_LISTENERS)
_WITH_PREFIX_ONLY: Final = frozenset(
    {
        "ssl.keystore.type",
        "ssl.keystore.location",
        "ssl.keystore.password",
        "ssl.keystore.key",
        "ssl.keystore.certificate.chain",
        "ssl.key.password",
        "ssl.truststore.type",
        "ssl.truststore.location",
        "ssl.truststore.password",
        "ssl.truststore.certificates",
    }
)
_BY_A_FACTOR_OF_TWO: Final = (
    "num.io.threads",
    "num.replica.fetchers",
    "num.recovery.threads.per.data.dir",
    "background.threads",
    "log.cleaner.threads",
)


def only_dynamic(layer: Mapping[str, str]) -> dict[str, str]:
    """The dynamic properties of a layer, which in the metadata store may contain read-only names, too."""
    return {
        name: text
        for name, text in layer.items()
        if (row := BROKER_PROPERTIES.get(name)) is None or row.update is not Update.READ_ONLY
    }


def check_dynamic(properties: Mapping[str, str], *, own: bool) -> None:
    """Validate dynamic properties of one broker (`own`) or of all. Raises ConfigError."""
    rows = {name: row for name in properties if (row := BROKER_PROPERTIES.get(name)) is not None}
    _refuse(
        [name for name, row in rows.items() if row.update is Update.READ_ONLY],
        "Cannot update these configs dynamically",
    )
    _refuse(
        [name for name in properties if name in _WITH_PREFIX_ONLY],
        "These security configs can be dynamically updated only per-listener using the listener prefix",
    )
    for name, text in properties.items():
        limits = DYNAMIC_ONLY.get(name, BROKER_PROPERTIES.get(base_name(name)))
        if limits is not None:
            read_value(limits, text)
    if not own:
        _refuse(
            [name for name in properties if _is_per_broker(name)],
            "Cannot update these configs at default cluster level, broker id must be specified",
        )


def check_change(old: BrokerConfig, new: BrokerConfig) -> None:
    """Raise ConfigError where a dynamic change exceeds the limit of one change."""
    for name in _BY_A_FACTOR_OF_TWO:
        _check_threads(name, old[name], new[name])
    stay = {each.listener for each in new.listeners}
    for each in old.listeners:
        if each.listener in stay:
            _check_listener(each.listener, old, new)
    for unit, whole in (("ms", new.retention_ms), ("bytes", new["log.retention.bytes"])):
        local = new[f"log.local.retention.{unit}"]
        _require(
            whole == -1 or local == -2 or 0 <= local <= whole,
            f"Value {local} for log.local.retention.{unit} must not be more than that of log.retention.{unit}, {whole}",
        )
    protocols = {each.listener: each.security_protocol for each in old.listeners}
    for each in new.listeners:
        _require(
            protocols.get(each.listener, each.security_protocol) == each.security_protocol,
            f"Security protocol cannot be updated for existing listener {each.listener}",
        )


def _check_threads(name: str, before: int, after: int) -> None:
    if after == before:
        return
    failed = f"Dynamic thread count update validation failed for {name}={after}"
    _require(after > 0, f"{failed}: value should be at least 1")
    _require(after >= before // 2, f"{failed}: value should be at least half the current value {before}")
    _require(after <= before * 2, f"{failed}: value should not be greater than double the current value {before}")


def _check_listener(listener: str, old: BrokerConfig, new: BrokerConfig) -> None:
    """Check the effective values of one listener, its own or the broker's (SocketServer's ListenerConnectionQuota)."""
    limits = {name: new.of_listener(listener, name) for name in _ABOVE_ZERO}
    if limits != {name: old.of_listener(listener, name) for name in _ABOVE_ZERO}:
        for name, limit in limits.items():
            _require(limit > 0, f"Invalid {name} {limit}: it must be above 0")
    threads = _THREADS_OF_LISTENERS
    _check_threads(threads, old.of_listener(listener, threads), new.of_listener(listener, threads))


def secrets(properties: Mapping[str, str]) -> list[str]:
    """The names of secret properties, with a listener's prefix or without."""
    rows = {name: BROKER_PROPERTIES.get(base_name(name)) for name in properties}
    return [name for name, row in rows.items() if row is not None and row.sensitive]


def base_name(name: str) -> str:
    """The property name without the prefix of a listener, or of a SASL mechanism of a listener.

    As in "listener.name.inside.ssl.keystore.type" and "listener.name.inside.scram-sha-256.sasl.jaas.config".
    """
    found = _OF_ONE_LISTENER.fullmatch(name)
    if found is None:
        return name
    base = found[1]
    of_mechanism = base.partition(".")[2]
    return of_mechanism if base not in BROKER_PROPERTIES and of_mechanism in BROKER_PROPERTIES else base


def _is_per_broker(name: str) -> bool:
    base = base_name(name)
    if base != name:
        return base not in _FOR_LISTENERS_OF_ALL
    row = BROKER_PROPERTIES.get(name)
    return row is not None and row.update is Update.PER_BROKER


def _refuse(names: list[str], why: str) -> None:
    if names:
        raise ConfigError(f"{why}: {', '.join(names)}")


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise ConfigError(message)
