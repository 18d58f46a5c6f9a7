"""Topic configuration: a topic's own properties over the broker's defaults (Kafka: LogConfig).

`overrides` are always the texts of the topic's own properties, as in the metadata store. The rules are those of Kafka's
`LogConfig.validate`, the sources and synonyms those of `ConfigHelper.createTopicConfigEntry`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from odradek.broker.config.broker_config import BrokerConfig
from odradek.broker.config.ignored import documentation
from odradek.broker.config.topic_definitions import BROKER_DEFAULTS, TOPIC_PROPERTIES
from odradek.broker.config.types import (
    LONG_MAX,
    ConfigEntry,
    ConfigError,
    Source,
    Synonym,
    Value,
    read_value,
    show_value,
)
from odradek.broker.runtime.turns import each as items_of
from odradek.broker.runtime.turns import keep

_TIMESTAMP_LIMITS: Final = ("message.timestamp.before.max.ms", "message.timestamp.after.max.ms")


def topic_values(broker: BrokerConfig, overrides: Mapping[str, str]) -> dict[str, Value]:
    """Every topic property -> its typed value: the topic's own, otherwise the broker's, otherwise the default.

    Raises ConfigError for an invalid value; unknown names are ignored.
    """
    values: dict[str, Value] = {}
    for name, row in TOPIC_PROPERTIES.items():
        if name in overrides:
            values[name] = read_value(row, overrides[name])
        elif name in BROKER_DEFAULTS:
            values[name] = _broker_value(broker, name)
        else:
            values[name] = row.default
    return values


def effective_values(broker: BrokerConfig, overrides: Mapping[str, str]) -> dict[str, Value]:
    """`topic_values` as a log applies them. Raises ConfigError as `topic_values` does.

    Since KIP-937 there are two limits on a record's timestamp; where one of them is unset, the older limit applies.
    """
    values = topic_values(broker, overrides)
    for name in _TIMESTAMP_LIMITS:
        if values[name] == LONG_MAX:
            values[name] = values["message.timestamp.difference.max.ms"]
    return values


def check_topic_value(name: str, text: str) -> Value:
    """The value of `text` for topic property `name`. Raises ConfigError with Kafka's messages."""
    row = TOPIC_PROPERTIES.get(name)
    if row is None:
        raise ConfigError(f"Unknown topic config name: {name}")
    return read_value(row, text)


def check_topic(broker: BrokerConfig, overrides: Mapping[str, str | None]) -> dict[str, str]:
    """`overrides` without nulls, after the validation of the properties of a new or changed topic.

    Raises ConfigError for an unknown name, a missing or invalid value, and values that conflict.
    """
    if missing := [name for name, text in items_of(overrides.items()) if text is None]:
        raise ConfigError(f"Null value not supported for topic configs: {','.join(missing)}")
    kept = keep({name: text for name, text in items_of(overrides.items()) if text is not None})
    for name in items_of(kept):
        if name not in TOPIC_PROPERTIES:
            raise ConfigError(f"Unknown topic config name: {name}")
    values = topic_values(broker, kept)
    shortest, longest = values["min.compaction.lag.ms"], values["max.compaction.lag.ms"]
    if isinstance(shortest, int) and isinstance(longest, int) and shortest > longest:
        raise ConfigError(
            f"conflict topic config setting min.compaction.lag.ms ({shortest}) > max.compaction.lag.ms ({longest})"
        )
    if values["remote.log.delete.on.disable"] or values["remote.log.copy.disable"]:
        raise ConfigError(
            "It is invalid to set `remote.log.delete.on.disable` or `remote.log.copy.disable` under Zookeeper's mode."
        )
    if values["remote.storage.enable"] and not broker["remote.log.storage.system.enable"]:
        raise ConfigError(
            "Tiered Storage functionality is disabled in the broker. "
            "Topic cannot be configured with remote log storage."
        )
    return kept


def describe_topic(broker: BrokerConfig, overrides: Mapping[str, str]) -> list[ConfigEntry]:
    """Every topic property as DescribeConfigs returns it, and CreateTopics from version 5 on."""
    entries = []
    for name, value in topic_values(broker, overrides).items():
        row = TOPIC_PROPERTIES[name]
        shown = show_value(value)
        synonyms = broker.synonyms(BROKER_DEFAULTS[name]) if name in BROKER_DEFAULTS else ()
        if name in overrides:
            synonyms = (Synonym(name, shown, Source.DYNAMIC_TOPIC_CONFIG), *synonyms)
        source = synonyms[0].source if synonyms else Source.DEFAULT_CONFIG
        entries.append(ConfigEntry(name, shown, source, row.sensitive, False, row.type, documentation(row), synonyms))
    return entries


def _broker_value(broker: BrokerConfig, name: str) -> Value:
    match name:
        case "segment.ms":
            return broker.roll_ms
        case "segment.jitter.ms":
            return broker.roll_jitter_ms
        case "retention.ms":
            return broker.retention_ms
        case "flush.ms":
            return broker.flush_ms
    value: Value = broker[BROKER_DEFAULTS[name]]
    if name in _TIMESTAMP_LIMITS and value == LONG_MAX:
        value = broker["log.message.timestamp.difference.max.ms"]
    return value
