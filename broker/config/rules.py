"""Rules for several broker properties, and refusals of unsupported settings (Kafka: KafkaConfigValidator).

The first part follows Kafka's `KafkaConfigValidator` and `KafkaConfig.validateValues`. The second refuses settings that
are dangerous to ignore: a broker must not listen on other addresses than its file contains, a listener with encryption
must not open in clear text, and a broker with an authorizer must not allow every request.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from odradek.broker.config.listeners import require_distinct_ports
from odradek.broker.config.removed import refusal
from odradek.broker.config.types import ConfigError, show_value

if TYPE_CHECKING:
    from odradek.broker.config.broker_config import BrokerConfig

_MIB: Final = 1 << 20
_LAST_CODEC: Final = 4  # zstd
_BOUNDED: Final = (
    "group.consumer.{}session.timeout.ms",
    "group.consumer.{}heartbeat.interval.ms",
    "group.share.{}session.timeout.ms",
    "group.share.{}heartbeat.interval.ms",
    "group.share.{}record.lock.duration.ms",
)


def check_rules(config: BrokerConfig) -> None:
    """Raise ConfigError at the first rule that `config` breaks."""
    for rule in _RULES:
        rule(config)


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise ConfigError(message)


def _ids(config: BrokerConfig) -> None:
    _require(config["node.id"] == config["broker.id"], "You must set `node.id` to the same value as `broker.id`.")
    if config["broker.id.generation.enable"]:
        _require(
            -1 <= config.broker_id <= config["reserved.broker.max.id"],
            f"Invalid value {config.broker_id} for configuration broker.id: broker.id must be greater than or equal to "
            f"-1 and not greater than reserved.broker.max.id, which is {config['reserved.broker.max.id']}",
        )
    else:
        _require(
            config.broker_id >= 0,
            f"Invalid value {config.broker_id} for configuration broker.id: broker.id must be greater than or equal to "
            "0 while broker.id.generation.enable is false",
        )


def _logs(config: BrokerConfig) -> None:
    _require(config.roll_ms >= 1, "log.roll.ms must be greater than or equal to 1")
    _require(config.roll_jitter_ms >= 0, "log.roll.jitter.ms must be greater than or equal to 0")
    _require(config.retention_ms != 0, "log.retention.ms must be unlimited (-1) or, greater than or equal to 1")
    _require(bool(config.log_dirs), "At least one log directory must be defined via log.dirs or log.dir.")
    _require(
        config["log.cleaner.dedupe.buffer.size"] > config["log.cleaner.threads"] * _MIB,
        "log.cleaner.dedupe.buffer.size must be at least 1MB per cleaner thread.",
    )
    shortest, longest = "log.cleaner.min.compaction.lag.ms", "log.cleaner.max.compaction.lag.ms"
    _require(config[shortest] <= config[longest], f"{shortest} must not be greater than {longest}")
    codec = config["offsets.topic.compression.codec"]
    _require(
        0 <= codec <= _LAST_CODEC,
        f"Invalid value {codec} for configuration offsets.topic.compression.codec: Unknown compression type id; "
        "allowed: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd",
    )


def _replication(config: BrokerConfig) -> None:
    wait = config["replica.fetch.wait.max.ms"]
    _require(
        wait <= config["replica.socket.timeout.ms"],
        "replica.socket.timeout.ms should always be at least replica.fetch.wait.max.ms to prevent unnecessary socket "
        "timeouts",
    )
    _require(
        wait <= config["replica.lag.time.max.ms"],
        "replica.fetch.wait.max.ms should always be less than or equal to replica.lag.time.max.ms to prevent frequent "
        "changes in ISR",
    )
    _require(
        -1 <= config["offsets.commit.required.acks"] <= config["offsets.topic.replication.factor"],
        "offsets.commit.required.acks must be greater or equal -1 and less or equal to "
        "offsets.topic.replication.factor",
    )


def _addresses(config: BrokerConfig) -> None:
    """Refuse an address in a property that Kafka 3.9 does not read, so that the broker listens on no other address."""
    _require(not (removed := refusal(config.static)), removed)
    if "listeners" in config.static:
        return
    misspelt = next((name for name, nearest in config.unknown(cutoff=0.8).items() if nearest == "listeners"), None)
    _require(
        misspelt is None,
        f"unknown property {misspelt}; did you mean listeners? Without listeners the broker would listen on "
        f"{config['listeners']}, which is every interface",
    )


def _listeners(config: BrokerConfig) -> None:
    require_distinct_ports(config.listeners, config["listeners"])
    names = [endpoint.listener for endpoint in config.listeners]
    advertised = [endpoint.listener for endpoint in config.advertised_listeners]
    options = f"The valid options based on currently configured listeners are {','.join(advertised)}"
    _require(bool(advertised), "There must be at least one advertised listener.")
    _require(
        config.inter_broker_listener in advertised,
        f"inter.broker.listener.name must be a listener name defined in advertised.listeners, but is "
        f"{config.inter_broker_listener}. {options}",
    )
    _require(
        set(advertised) <= set(names),
        "advertised.listeners listener names must be equal to or a subset of the ones defined in listeners. "
        f"Found {','.join(advertised)}. The valid options based on the current configuration are {','.join(names)}",
    )
    _require(
        all(endpoint.host != "0.0.0.0" for endpoint in config.advertised_listeners),
        "advertised.listeners cannot use the nonroutable meta-address 0.0.0.0. Use a routable IP address.",
    )
    for name in filter(None, map(str.strip, (config["early.start.listeners"] or "").split(","))):
        _require(
            name.upper() in names,
            f"early.start.listeners contains listener {name}, but this is not contained in listeners",
        )
    if (control := config["control.plane.listener.name"]) is not None:
        _require(
            control.upper() in advertised,
            f"control.plane.listener.name must be a listener name defined in advertised.listeners. {options}",
        )
        _require(
            control.upper() != config.inter_broker_listener,
            "control.plane.listener.name, when defined, should have a different value from the inter broker listener "
            f"name. Currently they both have the value {control}",
        )


def _connections(config: BrokerConfig) -> None:
    queued = config["queued.max.request.bytes"]
    _require(
        queued <= 0 or queued >= config["socket.request.max.bytes"],
        "queued.max.request.bytes must be larger or equal to socket.request.max.bytes",
    )
    limits = config.connections_per_address
    _require(
        config["max.connections.per.ip"] > 0 or bool(limits),
        "max.connections.per.ip can be set to zero only if max.connections.per.ip.overrides property is set.",
    )
    delay, idle = config["connection.failed.authentication.delay.ms"], config["connections.max.idle.ms"]
    _require(
        idle < 0 or delay < idle,
        f"connection.failed.authentication.delay.ms={delay} should always be less than connections.max.idle.ms={idle} "
        "to prevent failed authentication responses from timing out",
    )


def _sasl(config: BrokerConfig) -> None:
    listener = config.inter_broker_listener
    protocols = {each.listener: each.security_protocol for each in config.listeners}
    if protocols.get(listener, "").startswith("SASL_"):
        mechanism = config["sasl.mechanism.inter.broker.protocol"]
        _require(
            mechanism in config.of_listener(listener, "sasl.enabled.mechanisms"),
            "sasl.mechanism.inter.broker.protocol must be included in sasl.enabled.mechanisms when SASL is used for "
            "inter-broker communication",
        )


def _bounded(config: BrokerConfig) -> None:
    """Each of these settings has a minimum and a maximum beside it, which limit the configurations of groups."""
    for pattern in _BOUNDED:
        name, least, greatest = pattern.format(""), pattern.format("min."), pattern.format("max.")
        for smaller, larger in ((least, greatest), (least, name), (name, greatest)):
            _require(
                config[smaller] <= config[larger],
                f"{larger}={config[larger]} must be greater than or equal to {smaller}={config[smaller]}",
            )


def _groups(config: BrokerConfig) -> None:
    _require(
        "classic" in config["group.coordinator.rebalance.protocols"],
        "group.coordinator.rebalance.protocols must hold classic: Disabling the 'classic' protocol is not supported.",
    )


def _what_is_not_there(config: BrokerConfig) -> None:
    for name, (harmless, instead) in REFUSED.items():
        if config[name] not in harmless:
            raise ConfigError(f"Invalid value {show_value(config[name])} for configuration {name}: {instead}")


REFUSED: Final[dict[str, tuple[tuple[object, ...], str]]] = {
    "process.roles": (((),), "Odradek keeps its metadata as ZooKeeper mode does; leave process.roles out"),
    "controller.listener.names": ((None, ""), "it must be empty when not running in KRaft mode"),
    "zookeeper.metadata.migration.enable": ((False,), "Odradek cannot migrate to KRaft; allowed: false"),
    "zookeeper.ssl.crl.enable": ((False,), "revocation lists are not consulted; allowed: false"),
    "zookeeper.ssl.ocsp.enable": ((False,), "the revocation service is not consulted; allowed: false"),
    "remote.log.storage.system.enable": ((False,), "tiered storage is not implemented; allowed: false"),
}
"""Properties that are dangerous to ignore -> their harmless values, and the message for others."""

_RULES: Final[tuple[Callable[[BrokerConfig], None], ...]] = (
    _ids,
    _what_is_not_there,
    _logs,
    _replication,
    _addresses,
    _listeners,
    _connections,
    _sasl,
    _bounded,
    _groups,
)
