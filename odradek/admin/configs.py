"""Configs of topics, brokers, broker loggers, groups and client metrics (Kafka: Admin.describeConfigs,
incrementalAlterConfigs).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum
from typing import Final, NamedTuple

from odradek.admin.client import AdminClient, outcome
from odradek.protocol import messages as m
from odradek.protocol.errors import KafkaError


class ResourceKind(IntEnum):
    """Types of resources with configs (Kafka: ConfigResource.Type)."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class ConfigOperation(IntEnum):
    """What happens to a config (Kafka: AlterConfigOp.OpType)."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


SOURCES: Final[Mapping[int, str]] = {
    0: "UNKNOWN",
    1: "DYNAMIC_TOPIC_CONFIG",
    2: "DYNAMIC_BROKER_CONFIG",
    3: "DYNAMIC_DEFAULT_BROKER_CONFIG",
    4: "STATIC_BROKER_CONFIG",
    5: "DEFAULT_CONFIG",
    6: "DYNAMIC_BROKER_LOGGER_CONFIG",
    7: "DYNAMIC_CLIENT_METRICS_CONFIG",
    8: "DYNAMIC_GROUP_CONFIG",
}
"""Where a value comes from (Kafka: DescribeConfigsResponse.ConfigSource)."""
DEFAULT: Final = "DEFAULT_CONFIG"
_TYPES: Final = ("UNKNOWN", "BOOLEAN", "STRING", "INT", "SHORT", "LONG", "DOUBLE", "LIST", "CLASS", "PASSWORD")
CLUSTER_DEFAULT: Final = ""
"""The name of the resource with the default of all brokers."""


class ConfigTarget(NamedTuple):
    """A resource with configs."""

    kind: ResourceKind
    name: str


class ConfigSynonym(NamedTuple):
    """A config from which a value would come if those before it were unset."""

    name: str
    value: str | None
    source: str


class DescribedConfig(NamedTuple):
    """One config with its value; a sensitive one is None."""

    name: str
    value: str | None
    source: str
    read_only: bool
    sensitive: bool
    type: str
    synonyms: tuple[ConfigSynonym, ...]
    documentation: str | None


class ConfigChange(NamedTuple):
    """A change of one config."""

    name: str
    operation: ConfigOperation
    value: str | None = None


def describe_configs(
    client: AdminClient,
    targets: Iterable[ConfigTarget],
    names: Sequence[str] | None = None,
    *,
    synonyms: bool = False,
    documentation: bool = False,
) -> dict[ConfigTarget, list[DescribedConfig] | KafkaError]:
    """The configs of resources, all or those of `names`."""
    request = m.DescribeConfigsRequest

    def attempt(pending: list[ConfigTarget]) -> dict[ConfigTarget, list[DescribedConfig] | KafkaError]:
        results: dict[ConfigTarget, list[DescribedConfig] | KafkaError] = {}
        for broker_id, group in _by_broker(pending).items():
            wanted = [
                request.DescribeConfigsResource(
                    resource_type=each.kind,
                    resource_name=each.name,
                    configuration_keys=None if names is None else list(names),
                )
                for each in group
            ]
            asked = request(resources=wanted, include_synonyms=synonyms, include_documentation=documentation)
            answer = client.any_broker(asked) if broker_id is None else client.broker(broker_id, asked)
            for each in answer.results:
                target = ConfigTarget(ResourceKind(each.resource_type), each.resource_name)
                entries = [_entry(config) for config in each.configs]
                results[target] = outcome(entries, each.error_code, each.error_message)
        return results

    return client.each(targets, attempt)


def alter_configs(
    client: AdminClient, changes: Mapping[ConfigTarget, Sequence[ConfigChange]], *, validate_only: bool = False
) -> dict[ConfigTarget, KafkaError | None]:
    """Change single configs of resources; the others stay."""
    request = m.IncrementalAlterConfigsRequest

    def attempt(pending: list[ConfigTarget]) -> dict[ConfigTarget, KafkaError | None]:
        results: dict[ConfigTarget, KafkaError | None] = {}
        for broker_id, group in _by_broker(pending).items():
            resources = [
                request.AlterConfigsResource(
                    resource_type=each.kind,
                    resource_name=each.name,
                    configs=[
                        request.AlterableConfig(name=change.name, config_operation=change.operation, value=change.value)
                        for change in changes[each]
                    ],
                )
                for each in group
            ]
            asked = request(resources=resources, validate_only=validate_only)
            answer = client.any_broker(asked) if broker_id is None else client.broker(broker_id, asked)
            for each in answer.responses:
                target = ConfigTarget(ResourceKind(each.resource_type), each.resource_name)
                results[target] = outcome(None, each.error_code, each.error_message)
        return results

    return client.each(changes, attempt)


def _by_broker(targets: Iterable[ConfigTarget]) -> dict[int | None, list[ConfigTarget]]:
    """The resources by the broker that has to get the request; None for any."""
    groups: dict[int | None, list[ConfigTarget]] = {}
    for each in targets:
        own = each.kind in (ResourceKind.BROKER, ResourceKind.BROKER_LOGGER) and each.name != CLUSTER_DEFAULT
        groups.setdefault(int(each.name) if own else None, []).append(each)
    return groups


def _entry(config: m.DescribeConfigsResponse.DescribeConfigsResourceResult) -> DescribedConfig:
    return DescribedConfig(
        config.name,
        config.value,
        SOURCES.get(config.config_source, str(config.config_source)),
        config.read_only,
        config.is_sensitive,
        _TYPES[config.config_type] if 0 <= config.config_type < len(_TYPES) else _TYPES[0],
        tuple(ConfigSynonym(each.name, each.value, SOURCES.get(each.source, "UNKNOWN")) for each in config.synonyms),
        config.documentation,
    )
