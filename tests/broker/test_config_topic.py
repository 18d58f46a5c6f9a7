"""A topic's configuration over its broker's."""

from __future__ import annotations

import pytest

from odradek.broker.config.broker_config import BrokerConfig
from odradek.broker.config.topic_config import (
    check_topic,
    check_topic_value,
    describe_topic,
    effective_values,
    topic_values,
)
from odradek.broker.config.topic_definitions import TOPIC_PROPERTIES
from odradek.broker.config.types import ConfigEntry, ConfigError, Source, Synonym, Type

BROKER = BrokerConfig({})


def described(broker: BrokerConfig, overrides: dict[str, str], name: str) -> ConfigEntry:
    return next(entry for entry in describe_topic(broker, overrides) if entry.name == name)


def test_without_overrides_a_topic_has_kafkas_defaults() -> None:
    assert topic_values(BROKER, {}) == {name: row.default for name, row in TOPIC_PROPERTIES.items()}


def test_defaults_come_from_the_broker_under_its_own_names() -> None:
    broker = BrokerConfig(
        {
            "log.retention.minutes": "2",
            "log.roll.hours": "3",
            "log.roll.jitter.hours": "1",
            "log.flush.scheduler.interval.ms": "9",
            "message.max.bytes": "77",
            "log.cleanup.policy": "compact",
            "min.insync.replicas": "2",
        }
    )
    values = topic_values(broker, {"min.insync.replicas": "1"})
    assert (values["retention.ms"], values["segment.ms"], values["segment.jitter.ms"]) == (
        120_000,
        10_800_000,
        3_600_000,
    )
    assert (values["flush.ms"], values["max.message.bytes"], values["cleanup.policy"]) == (9, 77, ("compact",))
    assert values["min.insync.replicas"] == 1


@pytest.mark.parametrize(
    ("overrides", "before_ms", "after_ms"),
    [
        ({}, 5, 5),
        ({"message.timestamp.difference.max.ms": "7"}, 5, 5),
        ({"message.timestamp.after.max.ms": "9"}, 5, 9),
        ({"message.timestamp.before.max.ms": str(2**63 - 1), "message.timestamp.difference.max.ms": "7"}, 7, 5),
    ],
)
def test_the_older_limit_on_a_records_time_applies_where_a_newer_one_is_unset(
    overrides: dict[str, str], before_ms: int, after_ms: int
) -> None:
    broker = BrokerConfig({"log.message.timestamp.difference.max.ms": "5"})
    values = effective_values(broker, overrides)
    assert (values["message.timestamp.before.max.ms"], values["message.timestamp.after.max.ms"]) == (
        before_ms,
        after_ms,
    )


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"nope": "1"}, "Unknown topic config name: nope"),
        ({"retention.ms": None}, "Null value not supported for topic configs: retention.ms"),
        ({"retention.ms": "-2"}, "Invalid value -2 for configuration retention.ms: Value must be at least -1"),
        ({"segment.bytes": "13"}, "Invalid value 13 for configuration segment.bytes: Value must be at least 14"),
        (
            {"preallocate": ""},
            "Invalid value  for configuration preallocate: Expected value to be either true or false",
        ),
        ({"cleanup.policy": "compact,x"}, "String must be one of: compact, delete"),
        (
            {"min.compaction.lag.ms": "2", "max.compaction.lag.ms": "1"},
            "min.compaction.lag.ms (2) > max.compaction.lag",
        ),
        ({"remote.storage.enable": "true"}, "Tiered Storage functionality is disabled"),
        ({"remote.log.copy.disable": "true"}, "`remote.log.copy.disable`"),
        ({"leader.replication.throttled.replicas": "0:1,2"}, "[partitionId]:[brokerId]"),
    ],
)
def test_refuses_the_values_that_kafka_refuses(overrides: dict[str, str | None], message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        check_topic(BROKER, overrides)
    assert message in refused.value.message


def test_keeps_the_text_of_valid_values() -> None:
    overrides: dict[str, str | None] = {"cleanup.policy": "compact , delete", "retention.ms": " 5 "}
    assert check_topic(BROKER, overrides) == overrides


@pytest.mark.parametrize("replicas", ["*", "", "0:1", "0:1,1:2"])
def test_throttled_replicas(replicas: str) -> None:
    assert isinstance(check_topic_value("follower.replication.throttled.replicas", replicas), tuple)


def test_one_value_can_be_checked_alone() -> None:
    assert check_topic_value("retention.ms", "7") == 7
    with pytest.raises(ConfigError, match="Unknown topic config name"):
        check_topic_value("log.retention.ms", "7")


# The output of `kafka-configs --describe --all` and ConfigHelper of 3.9.2 for the same settings


def test_an_override_is_described_over_its_synonyms() -> None:
    broker = BrokerConfig({"log.retention.ms": "-7", "log.retention.minutes": "4"})
    assert described(broker, {"retention.ms": " 9 "}, "retention.ms") == ConfigEntry(
        name="retention.ms",
        value="9",
        source=Source.DYNAMIC_TOPIC_CONFIG,
        sensitive=False,
        read_only=False,
        type=Type.LONG,
        documentation="Age at which a segment is deleted; -1 keeps it for ever.",
        synonyms=(
            Synonym("retention.ms", "9", Source.DYNAMIC_TOPIC_CONFIG),
            Synonym("log.retention.ms", "-7", Source.STATIC_BROKER_CONFIG),
            Synonym("log.retention.minutes", "4", Source.STATIC_BROKER_CONFIG),
            Synonym("log.retention.hours", "168", Source.DEFAULT_CONFIG),
        ),
    )


def test_a_default_of_the_broker_is_described_with_the_broker_as_source() -> None:
    found = described(BrokerConfig({"log.segment.bytes": "99"}), {}, "segment.bytes")
    assert (found.value, found.source) == ("99", Source.STATIC_BROKER_CONFIG)


def test_a_default_in_a_coarser_unit_applies_but_is_not_named() -> None:
    found = described(BrokerConfig({"log.retention.hours": "5"}), {}, "retention.ms")
    assert (found.value, found.source, found.synonyms) == ("18000000", Source.DEFAULT_CONFIG, ())


def test_every_topic_property_is_described() -> None:
    assert [entry.name for entry in describe_topic(BROKER, {})] == list(TOPIC_PROPERTIES)
