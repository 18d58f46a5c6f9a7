"""Reasons for ignored configs: why a property of Kafka 3.9 has no effect, as a part of its documentation.

A reason applies to a property by its name, or to all properties with a prefix. Each property that is marked IGNORED in
the tables has one, and no other property has. Some accept no value but their default, because it would be dangerous to
ignore it (`rules`).
"""

from __future__ import annotations

from typing import Final

from odradek.broker.config.rules import REFUSED
from odradek.broker.config.types import ConfigKey

_LOOP: Final = "requests are served on one event loop"
_KRAFT: Final = "it belongs to KRaft, and Odradek keeps its metadata as ZooKeeper mode does"
_SHARE: Final = "share groups are in early access in Kafka 3.9, with KRaft only"
_CLASS_NAME: Final = "it names a class of Java, and no class is loaded"
_TOKEN_REFRESH: Final = "a token is replaced after 80 % of its life, when a connection needs it"
_TLS: Final = "it names a part of Java; OpenSSL does that work"
_JVM: Final = "Odradek has no metrics reporters in Java"
_TIERS: Final = "tiered storage is not implemented"
_WAITING: Final = "a delayed operation is removed as soon as it is complete"

_BY_NAME: Final[dict[str, str]] = {
    "early.start.listeners": "all listeners open together, when the authorizer has its ACLs",
    "principal.builder.class": "it names a class of Java; principals are those of DefaultKafkaPrincipalBuilder",
    "security.providers": "it names classes of Java",
    "sasl.client.callback.handler.class": _CLASS_NAME,
    "sasl.login.class": _CLASS_NAME,
    "sasl.login.callback.handler.class": _CLASS_NAME,
    "queued.max.requests": f"{_LOOP}, so that none waits for a thread; queued.max.request.bytes limits the memory",
    "num.network.threads": _LOOP,
    "num.io.threads": _LOOP,
    "background.threads": _LOOP,
    "log.message.format.version": "the newest format is used, as in Kafka since inter.broker.protocol.version 3.0",
    "message.format.version": "the newest format is used, as in Kafka since inter.broker.protocol.version 3.0",
    "log.dir.failure.timeout.ms": _KRAFT,
    "num.replica.alter.log.dirs.threads": "replicas move between directories without threads of their own",
    "alter.config.policy.kraft.compatibility.enable": "a policy gets the properties after the change",
    "fetch.purgatory.purge.interval.requests": _WAITING,
    "producer.purgatory.purge.interval.requests": _WAITING,
    "delete.records.purgatory.purge.interval.requests": _WAITING,
    "inter.broker.protocol.version": "brokers use the protocol versions of 3.9",
    "unclean.leader.election.interval.ms": _KRAFT,
    "group.coordinator.threads": _LOOP,
    "group.coordinator.append.linger.ms": "a coordinator's records are written at once",
    "group.coordinator.new.enable": "there is one coordinator, for both protocols",
    "group.consumer.min.session.timeout.ms": "it limits configurations of groups, which do not exist with ZooKeeper",
    "group.consumer.max.session.timeout.ms": "it limits configurations of groups, which do not exist with ZooKeeper",
    "group.consumer.min.heartbeat.interval.ms": "it limits configurations of groups, which do not exist with ZooKeeper",
    "group.consumer.max.heartbeat.interval.ms": "it limits configurations of groups, which do not exist with ZooKeeper",
    "auto.include.jmx.reporter": _JVM,
    "client.quota.callback.class": "it names a class of Java; quotas are those in the metadata store",
    "telemetry.max.bytes": "clients push metrics to KRaft clusters only",
    "zookeeper.max.in.flight.requests": "one connection takes all requests in order",
    "zookeeper.clientCnxnSocket": "it names a class of ZooKeeper's client in Java",
    "process.roles": _KRAFT,
    "controller.listener.names": _KRAFT,
    "sasl.mechanism.controller.protocol": _KRAFT,
    "initial.broker.registration.timeout.ms": _KRAFT,
    "broker.heartbeat.interval.ms": _KRAFT,
    "broker.session.timeout.ms": _KRAFT,
    "server.max.startup.time.ms": _KRAFT,
    "eligible.leader.replicas.enable": _KRAFT,
    "unstable.api.versions.enable": "versions that are unstable in Kafka 3.9 are not supported",
    "unstable.feature.versions.enable": _KRAFT,
    "log.local.retention.ms": _TIERS,
    "log.local.retention.bytes": _TIERS,
    "local.retention.ms": _TIERS,
    "local.retention.bytes": _TIERS,
}
_BY_BEGINNING: Final[dict[str, str]] = {
    "group.share.": _SHARE,
    "metric.": _JVM,
    "metrics.": _JVM,
    "kafka.metrics.": _JVM,
    "zookeeper.ssl.": "revocation of certificates is not checked",
    "zookeeper.metadata.migration.": "Odradek cannot migrate to KRaft",
    "controller.quorum.": _KRAFT,
    "metadata.": _KRAFT,
    "sasl.kerberos.": "the Kerberos library obtains tickets with the key table and replaces them",
    "sasl.login.refresh.": _TOKEN_REFRESH,
    "sasl.login.retry.": "a connection to another broker is tried again, and the token with it",
    "ssl.": _TLS,
    "remote.": _TIERS,
}


def without_effect(row: ConfigKey) -> str | None:
    """Why the property has no effect; None if it has one. Raises KeyError for an ignored property without a reason."""
    if row.effect:
        return None
    reason = _BY_NAME.get(row.name)
    if reason is None:
        reason = next((why for start, why in _BY_BEGINNING.items() if row.name.startswith(start)), None)
    if reason is None:
        raise KeyError(row.name)
    return reason


def documentation(row: ConfigKey) -> str:
    """The documentation of the property for DescribeConfigs and the configuration page."""
    reason = without_effect(row)
    if reason is None:
        return row.doc
    return f"{row.doc} {'Only its default is accepted' if row.name in REFUSED else 'Without effect'}: {reason}."


def named() -> tuple[str, ...]:
    """The properties with a reason of their own."""
    return tuple(_BY_NAME)


def beginnings() -> tuple[str, ...]:
    """The prefixes of properties that share a reason."""
    return tuple(_BY_BEGINNING)
