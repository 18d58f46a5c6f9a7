"""The broker's configuration: values, layers, rules, refusals and descriptions."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.broker.config.broker_config import BrokerConfig
from odradek.broker.config.definitions import BROKER_PROPERTIES
from odradek.broker.config.types import (
    ConfigEntry,
    ConfigError,
    Password,
    Source,
    Synonym,
    Type,
    show_value,
)
from odradek.protocol.errors import ErrorCode

HOUR_MS = 3_600_000


def refusal(properties: dict[str, str]) -> str:
    with pytest.raises(ConfigError) as refused:
        BrokerConfig(properties)
    assert refused.value.code is ErrorCode.INVALID_CONFIG
    return refused.value.message


def entry(config: BrokerConfig, name: str) -> ConfigEntry:
    return next(found for found in config.describe_broker() if found.name == name)


# Reading


def test_defaults_are_those_of_kafka() -> None:
    config = BrokerConfig({})
    assert config["log.segment.bytes"] == 1 << 30
    assert config["num.partitions"] == 1
    assert config["auto.create.topics.enable"] is True
    assert config["log.cleanup.policy"] == ("delete",)
    assert config.log_dirs == (Path("/tmp/kafka-logs"),)
    assert config.retention_ms == config.roll_ms == 168 * HOUR_MS
    assert config.broker_id == -1
    with pytest.raises(KeyError):
        config["log.segment.byte"]


def test_the_command_line_overrides_the_file(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("broker.id=3\nnum.partitions = 4\nlog.dirs=/a, /b\n")
    config = BrokerConfig.load(file, ["num.partitions=5", "log.dirs=/c=d"])
    assert (config.broker_id, config["num.partitions"], config.log_dirs) == (3, 5, (Path("/c=d"),))


@pytest.mark.parametrize("override", ["num.partitions", "=3", ""])
def test_an_override_is_a_pair(override: str) -> None:
    with pytest.raises(ConfigError, match="key=value"):
        BrokerConfig.load(None, [override])


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("num.partitions", " 12 ", 12),
        ("num.partitions", "+7", 7),
        ("auto.create.topics.enable", "FALSE", False),
        ("log.cleanup.policy", "compact , delete", ("compact", "delete")),
        ("log.cleanup.policy", "", ()),
        ("log.cleaner.min.cleanable.ratio", ".25", 0.25),
        ("log.retention.bytes", "-9223372036854775808", -(2**63)),
        ("ssl.key.password", "secret", Password("secret")),
        ("group.consumer.migration.policy", "Upgrade", "Upgrade"),
        ("inter.broker.protocol.version", "3.0.1", "3.0.1"),
        ("inter.broker.protocol.version", "2.8-IV1", "2.8-IV1"),
        ("compression.gzip.level", "-1", -1),
    ],
)
def test_reads_values_of_every_type(name: str, text: str, value: object) -> None:
    assert BrokerConfig({name: text})[name] == value


@pytest.mark.parametrize(
    ("name", "text", "allowed"),
    [
        ("num.partitions", "0", "at least 1"),
        ("num.partitions", "two", "Not a number of type INT; allowed: [1,...]"),
        ("num.partitions", "1_000", "Not a number of type INT"),
        ("num.partitions", "1.0", "Not a number of type INT"),
        ("num.partitions", "9" * 5000, "Not a number of type INT"),
        ("num.partitions", "2147483648", "Not a number of type INT"),
        ("broker.id", "x", "[-2147483648,...,2147483647]"),
        ("offsets.topic.replication.factor", "32768", "Not a number of type SHORT"),
        ("log.retention.bytes", "9223372036854775808", "Not a number of type LONG"),
        ("log.cleaner.min.cleanable.ratio", "1.5", "no more than 1"),
        ("log.cleaner.min.cleanable.ratio", "half", "Not a number of type DOUBLE; allowed: [0,...,1]"),
        ("log.cleaner.min.cleanable.ratio", "nan", "Not a number of type DOUBLE"),
        ("auto.create.topics.enable", "yes", "either true or false"),
        ("log.cleanup.policy", "delete,purge", "one of: compact, delete"),
        ("compression.type", "lzo", "one of: uncompressed, zstd, lz4, snappy, gzip, producer"),
        ("compression.gzip.level", "0", "[1,...,9] or -1"),
        ("group.consumer.migration.policy", "up", "DISABLED, DOWNGRADE, UPGRADE, BIDIRECTIONAL"),
        ("log.message.format.version", "9.9", "not a valid version"),
        ("remote.log.storage.manager.class.name", "", "non-empty"),
        ("principal.builder.class", "", "a class needs a name"),
    ],
)
def test_a_wrong_value_is_refused_with_property_value_and_allowed_values(name: str, text: str, allowed: str) -> None:
    message = refusal({name: text})
    assert message.startswith(f"Invalid value {text} for configuration {name}: ")
    assert allowed in message


def test_a_secret_is_never_shown() -> None:
    config = BrokerConfig({"ssl.key.password": "s3cret"})
    assert "s3cret" not in f"{config['ssl.key.password']} {config['ssl.key.password']!r} {config.describe_broker()}"
    assert entry(config, "ssl.key.password").value is None
    assert config["ssl.key.password"].value == "s3cret"


@given(st.sampled_from(sorted(BROKER_PROPERTIES)), st.text(max_size=30) | st.integers().map(str) | st.floats().map(str))
def test_any_text_is_refused_or_gives_a_value_that_reads_back(name: str, text: str) -> None:
    try:
        config = BrokerConfig({name: text})
    except ConfigError:
        return
    shown = show_value(config[name])
    if BROKER_PROPERTIES[name].type is not Type.PASSWORD:
        assert shown is not None
        assert BrokerConfig({name: shown})[name] == config[name]


@pytest.mark.parametrize(
    ("number", "shown"),
    [("0.5", "0.5"), ("1e7", "1.0E7"), ("12345678901", "1.2345678901E10"), ("1e-5", "1.0E-5"), ("-0.00025", "-2.5E-4")],
)
def test_doubles_are_shown_as_java_shows_them(number: str, shown: str) -> None:
    config = BrokerConfig({"log.cleaner.io.max.bytes.per.second": number})
    assert entry(config, "log.cleaner.io.max.bytes.per.second").value == shown


# Settings that join properties


@pytest.mark.parametrize(
    ("properties", "retention_ms"),
    [
        ({"log.retention.hours": "2"}, 2 * HOUR_MS),
        ({"log.retention.hours": "2", "log.retention.minutes": "3"}, 180_000),
        ({"log.retention.hours": "2", "log.retention.minutes": "3", "log.retention.ms": "4"}, 4),
        ({"log.retention.ms": "-1"}, -1),
        ({"log.retention.hours": "-5"}, -1),
    ],
)
def test_the_finest_unit_of_retention_wins(properties: dict[str, str], retention_ms: int) -> None:
    assert BrokerConfig(properties).retention_ms == retention_ms


def test_other_durations_fall_back_too() -> None:
    config = BrokerConfig({"log.roll.hours": "1", "log.roll.jitter.hours": "2", "log.flush.scheduler.interval.ms": "3"})
    assert (config.roll_ms, config.roll_jitter_ms, config.flush_ms) == (HOUR_MS, 2 * HOUR_MS, 3)
    config = BrokerConfig({"log.roll.ms": "4", "log.roll.jitter.ms": "5", "log.flush.interval.ms": "6"})
    assert (config.roll_ms, config.roll_jitter_ms, config.flush_ms) == (4, 5, 6)


def test_node_id_and_broker_id_are_synonyms() -> None:
    assert BrokerConfig({"node.id": "4"}).broker_id == 4
    assert BrokerConfig({"broker.id": "4"})["node.id"] == 4
    assert "same value" in refusal({"node.id": "4", "broker.id": "5"})


@pytest.mark.parametrize("static", [{}, {"broker.id": "-1"}, {"node.id": "-1"}])
def test_a_generated_broker_id_may_be_above_the_reserved_ones(static: dict[str, str]) -> None:
    numbered = BrokerConfig({**static, "num.partitions": "3"}).with_broker_id(1001)
    assert (numbered.broker_id, numbered["node.id"], numbered["num.partitions"]) == (1001, 1001, 3)
    assert numbered.with_dynamic({"log.segment.bytes": "99"}, {}).broker_id == 1001


def test_limits_for_single_addresses() -> None:
    overrides = "127.0.0.1:5, ::1:6,127.0.0.2:0"
    limits = BrokerConfig({"max.connections.per.ip.overrides": overrides}).connections_per_address
    assert limits == {"127.0.0.1": 5, "::1": 6, "127.0.0.2": 0}


@pytest.mark.parametrize(
    ("properties", "words"),
    [
        ({"broker.id": "1001"}, ["broker.id", "1001", "1000"]),
        ({"broker.id": "-2"}, ["broker.id", "-1"]),
        ({"broker.id": "-1", "broker.id.generation.enable": "false"}, ["broker.id", "greater than or equal to 0"]),
        ({"log.dirs": " , "}, ["At least one log directory"]),
        ({"log.retention.ms": "0"}, ["log.retention.ms", "unlimited (-1)"]),
        ({"log.roll.ms": "0"}, ["log.roll.ms"]),
        ({"log.roll.jitter.ms": "-1"}, ["log.roll.jitter.ms"]),
        ({"log.cleaner.threads": "128"}, ["log.cleaner.dedupe.buffer.size"]),
        ({"log.cleaner.max.compaction.lag.ms": "1", "log.cleaner.min.compaction.lag.ms": "2"}, ["compaction.lag"]),
        ({"offsets.topic.compression.codec": "5"}, ["offsets.topic.compression.codec", "4 zstd"]),
        ({"offsets.commit.required.acks": "4"}, ["offsets.topic.replication.factor"]),
        ({"replica.fetch.wait.max.ms": "30001"}, ["replica.socket.timeout.ms"]),
        ({"replica.lag.time.max.ms": "499"}, ["replica.lag.time.max.ms"]),
        ({"queued.max.request.bytes": "1"}, ["socket.request.max.bytes"]),
        ({"max.connections.per.ip": "0"}, ["max.connections.per.ip.overrides"]),
        ({"max.connections.per.ip.overrides": "host:x"}, ["host", "whole number"]),
        ({"max.connections.per.ip.overrides": "host"}, ["key:value"]),
        ({"connections.max.idle.ms": "100"}, ["connection.failed.authentication.delay.ms=100"]),
        ({"group.consumer.session.timeout.ms": "1"}, ["group.consumer.min.session.timeout.ms=45000"]),
        ({"group.share.record.lock.duration.ms": "14999"}, ["group.share.min.record.lock.duration.ms=15000"]),
        ({"group.coordinator.rebalance.protocols": "consumer"}, ["classic"]),
    ],
)
def test_contradicting_properties_are_refused(properties: dict[str, str], words: list[str]) -> None:
    message = refusal(properties)
    assert [word for word in words if word not in message] == []


@pytest.mark.parametrize(
    "properties",
    [
        {"process.roles": "broker"},
        {"controller.listener.names": "CONTROLLER"},
        {"zookeeper.metadata.migration.enable": "true"},
        {"remote.log.storage.system.enable": "true"},
    ],
)
def test_properties_that_are_dangerous_to_ignore_are_refused(properties: dict[str, str]) -> None:
    ((name, value),) = properties.items()
    message = refusal(properties)
    assert name in message
    assert value in message


# Log lines of the start


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("log.segment.byte", "log.segment.bytes"),
        ("num.partition", "num.partitions"),
        ("retention.ms", "log.retention.ms"),
        ("max.message.bytes", "message.max.bytes"),
        ("segment.ms", "log.roll.ms"),
        ("xyzzy", None),
    ],
)
def test_an_unknown_property_is_listed_with_the_nearest_known_one(written: str, meant: str | None) -> None:
    assert BrokerConfig({written: "1", "num.partitions": "1"}).unknown() == {written: meant}


def test_properties_of_one_listener_and_of_plugins_are_known() -> None:
    open_ended = ["listener.name.internal.ssl.key.password", "config.providers", "rsm.config.bucket", "rlmm.config.x"]
    assert BrokerConfig(dict.fromkeys(open_ended, "x")).unknown() == {}


def test_a_property_without_effect_is_listed_when_it_differs() -> None:
    config = BrokerConfig({"num.io.threads": "8", "num.network.threads": "9", "num.partitions": "3"})
    assert config.without_effect() == ["num.network.threads"]


# Layers and descriptions


def test_the_nearest_layer_wins() -> None:
    static = BrokerConfig({"num.partitions": "9", "log.segment.bytes": "100", "log.retention.ms": "1"})
    changed = static.with_dynamic(
        {"log.segment.bytes": "200", "log.retention.ms": "2", "num.partitions": "7"}, {"log.segment.bytes": "300"}
    )
    assert (changed["log.segment.bytes"], changed.retention_ms) == (300, 2)
    assert changed["num.partitions"] == 9  # read-only: a change at run time does not affect it
    assert static["log.segment.bytes"] == 100
    assert entry(changed, "log.segment.bytes").synonyms == (
        Synonym("log.segment.bytes", "300", Source.DYNAMIC_BROKER_CONFIG),
        Synonym("log.segment.bytes", "200", Source.DYNAMIC_DEFAULT_BROKER_CONFIG),
        Synonym("log.segment.bytes", "100", Source.STATIC_BROKER_CONFIG),
        Synonym("log.segment.bytes", "1073741824", Source.DEFAULT_CONFIG),
    )
    described = {found.name: found for found in changed.describe_cluster_default()}
    assert set(described) == {"log.segment.bytes", "log.retention.ms"}
    assert described["log.segment.bytes"].source is Source.DYNAMIC_DEFAULT_BROKER_CONFIG


def test_a_description_has_the_fields_of_describe_configs() -> None:
    assert entry(BrokerConfig({"num.partitions": "3"}), "num.partitions") == ConfigEntry(
        name="num.partitions",
        value="3",
        source=Source.STATIC_BROKER_CONFIG,
        sensitive=False,
        read_only=True,
        type=Type.INT,
        documentation="Partitions of a topic that is created without a partition count.",
        synonyms=(
            Synonym("num.partitions", "3", Source.STATIC_BROKER_CONFIG),
            Synonym("num.partitions", "1", Source.DEFAULT_CONFIG),
        ),
    )


def test_synonyms_start_at_the_property_itself_as_in_kafka() -> None:
    config = BrokerConfig({"log.retention.hours": "5"})
    assert entry(config, "log.retention.ms").synonyms == ()
    assert entry(config, "log.retention.ms").source is Source.DEFAULT_CONFIG
    assert entry(config, "log.retention.hours").synonyms[0] == Synonym(
        "log.retention.hours", "5", Source.STATIC_BROKER_CONFIG
    )


def test_an_unknown_property_is_described_as_a_secret() -> None:
    found = entry(BrokerConfig({"my.password": "x"}), "my.password")
    assert (found.value, found.sensitive, found.read_only, found.type) == (None, True, True, Type.UNKNOWN)
    assert found.synonyms == (Synonym("my.password", None, Source.STATIC_BROKER_CONFIG),)


def test_internal_properties_are_described_only_when_set() -> None:
    name = "log.initial.task.delay.ms"
    assert name not in {found.name for found in BrokerConfig({}).describe_broker()}
    assert entry(BrokerConfig({name: "3"}), name).value == "3"


def test_a_description_has_the_limits_of_replication() -> None:
    name = "replica.alter.log.dirs.io.max.bytes.per.second"
    changed = BrokerConfig({}).with_dynamic({name: "2000"}, {name: "1000"})
    assert entry(changed, name) == ConfigEntry(
        name=name,
        value="1000",
        source=Source.DYNAMIC_BROKER_CONFIG,
        sensitive=False,
        read_only=True,  # as Kafka has it, although it can only be changed at run time
        type=Type.LONG,
        documentation=None,
        synonyms=(
            Synonym(name, "1000", Source.DYNAMIC_BROKER_CONFIG),
            Synonym(name, "2000", Source.DYNAMIC_DEFAULT_BROKER_CONFIG),
        ),
    )
    (described,) = changed.describe_cluster_default()
    assert (described.value, described.sensitive) == ("2000", False)
