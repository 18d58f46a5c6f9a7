"""Configs of a topic or a broker: values, sources, documentation, and changes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from odradek.admin import configs
from odradek.admin.client import AdminClient
from odradek.admin.configs import ConfigChange, ConfigOperation, ConfigTarget, DescribedConfig, ResourceKind
from odradek.console.paging import Listing, ListPage, page_of
from odradek.protocol.errors import KafkaError

SOURCES: Final[Mapping[str, str]] = {
    "DYNAMIC_TOPIC_CONFIG": "this topic",
    "DYNAMIC_BROKER_CONFIG": "this broker, dynamic",
    "DYNAMIC_DEFAULT_BROKER_CONFIG": "all brokers, dynamic",
    "STATIC_BROKER_CONFIG": "server.properties",
    "DEFAULT_CONFIG": "default",
    "DYNAMIC_GROUP_CONFIG": "this group",
}
"""Where a value comes from, for a reader."""
OWN: Final = frozenset({"DYNAMIC_TOPIC_CONFIG", "DYNAMIC_BROKER_CONFIG", "DYNAMIC_GROUP_CONFIG"})
"""Sources of values that were set for the object itself, and can be unset."""
SORTS: Final[Mapping[str, Callable[[DescribedConfig], str]]] = {
    "name": lambda row: row.name,
    "source": lambda row: row.source,
}


def described_configs(client: AdminClient, kind: ResourceKind, name: str) -> list[DescribedConfig]:
    """Every config of an object, by name, with synonyms and documentation. Raises KafkaError."""
    target = ConfigTarget(kind, name)
    found = configs.describe_configs(client, [target], synonyms=True, documentation=True)[target]
    if isinstance(found, KafkaError):
        raise found
    return sorted(found, key=lambda each: each.name)


def configs_page(entries: list[DescribedConfig], listing: Listing, *, changed: bool) -> ListPage[DescribedConfig]:
    """A page of configs: all, or with `changed` those that differ from the default."""
    shown = [each for each in entries if not changed or each.source != configs.DEFAULT]
    return page_of(shown, listing, lambda row: row.name, SORTS)


def change_config(client: AdminClient, kind: ResourceKind, name: str, config: str, value: str | None) -> None:
    """Set a config, or with None unset it. Raises KafkaError."""
    operation = ConfigOperation.DELETE if value is None else ConfigOperation.SET
    target = ConfigTarget(kind, name)
    result = configs.alter_configs(client, {target: [ConfigChange(config, operation, value)]})[target]
    if isinstance(result, KafkaError):
        raise result
