"""Why a property that Kafka 3.9 has changes nothing here, in a few words for its documentation.

A reason holds for a property by its name, or for all whose names begin alike. Each property that is marked IGNORED in
the tables has one, and none that works. Some may not even be set to something else: it would be dangerous to go on as
if they were not there (`config_rules`).
"""

from __future__ import annotations

from typing import Final

from odradek.broker.config.rules import REFUSED
from odradek.broker.config.types import Property

_LOOP: Final = "requests are served on one event loop"
_KRAFT: Final = "it belongs to KRaft, and Odradek keeps its metadata as ZooKeeper mode does"
_SHARE: Final = "share groups are an early access of KRaft's in Kafka 3.9"
_SASL: Final = "SASL is not there yet"
_TLS: Final = "TLS is not there yet"
_QUOTAS: Final = "quotas are not kept to yet"
_JVM: Final = "metrics have no reporters in Java here"
_TIERS: Final = "tiered storage is not there yet"
_WAITING: Final = "what waits is dropped as soon as it is answered"

_BY_NAME: Final[dict[str, str]] = {
    "early.start.listeners": "all listeners open together, for there is no authorizer to wait for yet",
    "connections.max.reauth.ms": _SASL,
    "connection.failed.authentication.delay.ms": _SASL,
    "principal.builder.class": "every connection is User:ANONYMOUS until there is TLS or SASL",
    "security.providers": "it names classes of Java",
    "authorizer.class.name": "authorizers are not there yet",
    "queued.max.requests": f"{_LOOP}, so that none waits for a thread; queued.max.request.bytes bounds what is held",
    "num.network.threads": _LOOP,
    "num.io.threads": _LOOP,
    "background.threads": _LOOP,
    "log.message.format.version": "the newest format is kept, as Kafka does since inter.broker.protocol.version 3.0",
    "message.format.version": "the newest format is kept, as Kafka does since inter.broker.protocol.version 3.0",
    "log.dir.failure.timeout.ms": _KRAFT,
    "num.replica.alter.log.dirs.threads": "replicas move between directories without threads of their own",
    "alter.config.policy.kraft.compatibility.enable": "a policy sees the properties as they will be",
    "fetch.purgatory.purge.interval.requests": _WAITING,
    "producer.purgatory.purge.interval.requests": _WAITING,
    "delete.records.purgatory.purge.interval.requests": _WAITING,
    "inter.broker.protocol.version": "brokers speak to each other as those of 3.9 do",
    "unclean.leader.election.interval.ms": _KRAFT,
    "group.coordinator.threads": _LOOP,
    "group.coordinator.append.linger.ms": "a coordinator's records are written at once",
    "group.coordinator.new.enable": "there is one coordinator, for both protocols",
    "group.consumer.min.session.timeout.ms": "it bounds what a group may ask for, which no group can with ZooKeeper",
    "group.consumer.max.session.timeout.ms": "it bounds what a group may ask for, which no group can with ZooKeeper",
    "group.consumer.min.heartbeat.interval.ms": "it bounds what a group may ask for, which no group can with ZooKeeper",
    "group.consumer.max.heartbeat.interval.ms": "it bounds what a group may ask for, which no group can with ZooKeeper",
    "auto.include.jmx.reporter": _JVM,
    "client.quota.callback.class": _QUOTAS,
    "telemetry.max.bytes": "clients push metrics to KRaft clusters only",
    "zookeeper.set.acl": "access lists in ZooKeeper are not there yet",
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
    "unstable.api.versions.enable": "no version that Kafka 3.9 has not finished is on offer",
    "unstable.feature.versions.enable": _KRAFT,
    "log.local.retention.ms": _TIERS,
    "log.local.retention.bytes": _TIERS,
    "local.retention.ms": _TIERS,
    "local.retention.bytes": _TIERS,
    "leader.replication.throttled.replicas": _QUOTAS,
    "follower.replication.throttled.replicas": _QUOTAS,
    "leader.replication.throttled.rate": _QUOTAS,
    "follower.replication.throttled.rate": _QUOTAS,
    "replica.alter.log.dirs.io.max.bytes.per.second": _QUOTAS,
}
_BY_BEGINNING: Final[dict[str, str]] = {
    "group.share.": _SHARE,
    "quota.window.": _QUOTAS,
    "replication.quota.window.": _QUOTAS,
    "alter.log.dirs.replication.quota.window.": _QUOTAS,
    "controller.quota.window.": _QUOTAS,
    "metric.": _JVM,
    "metrics.": _JVM,
    "kafka.metrics.": _JVM,
    "zookeeper.ssl.": "TLS towards ZooKeeper is not there yet",
    "zookeeper.metadata.migration.": "Odradek takes no part in the move to KRaft",
    "controller.quorum.": _KRAFT,
    "metadata.": _KRAFT,
    "sasl.": _SASL,
    "delegation.token.": _SASL,
    "password.encoder.": "secrets are not kept in the registry",
    "ssl.": _TLS,
    "remote.": _TIERS,
}


def without_effect(row: Property) -> str | None:
    """Why setting the property changes nothing; None where it does. Raises KeyError where nobody has said why."""
    if row.effect:
        return None
    reason = _BY_NAME.get(row.name)
    if reason is None:
        reason = next((why for start, why in _BY_BEGINNING.items() if row.name.startswith(start)), None)
    if reason is None:
        raise KeyError(row.name)
    return reason


def documentation(row: Property) -> str:
    """What DescribeConfigs and the documentation say of the property."""
    reason = without_effect(row)
    if reason is None:
        return row.doc
    return f"{row.doc} {'Only its default is accepted' if row.name in REFUSED else 'Without effect'}: {reason}."


def named() -> tuple[str, ...]:
    """The properties that have a reason by their own name."""
    return tuple(_BY_NAME)


def beginnings() -> tuple[str, ...]:
    """What the names begin with that have a reason together."""
    return tuple(_BY_BEGINNING)
