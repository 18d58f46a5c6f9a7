"""Changing configurations: what may be changed, and to what (Kafka's ConfigAdminManager and ZkAdminManager).

A topic's properties are changed by any broker, a broker's own only by that broker, those of all brokers by any. What
passes the rules is written to the registry, and takes effect when its notification comes back (`config_changes.py`), on
this broker as on the others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum
from typing import Final, NamedTuple

from odradek.broker.cluster_view import ClusterView
from odradek.broker.config import DYNAMIC_ONLY, BrokerConfig
from odradek.broker.config_changes import BROKERS, TOPICS, change_config, read_config
from odradek.broker.config_table import BROKER_PROPERTIES
from odradek.broker.config_types import ConfigError, Property, Type, Update, read_value, show_value
from odradek.broker.registry import znodes
from odradek.broker.registry.interface import BadArgumentsError, Registry
from odradek.broker.topic_config import check_topic
from odradek.broker.topic_table import TOPIC_PROPERTIES
from odradek.protocol.errors import ErrorCode, KafkaError

TOPIC: Final = 2
BROKER: Final = 4
FIXED_AT_START: Final = ("listeners", "advertised.listeners", "listener.security.protocol.map")
"""Properties that Kafka can change at run time and this broker cannot: its addresses are taken once."""
LISTENER_PREFIX: Final = "listener.name."


class Operation(IntEnum):
    """What to do with one property, numbered as on the wire (AlterConfigOp.OpType)."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class Change(NamedTuple):
    """A wish for one property; `operation` is what came over the wire."""

    name: str
    operation: int
    value: str | None


Properties = Mapping[str, str]
Edit = Callable[[Properties], dict[str, str]]
Check = Callable[[Properties], object]


class ConfigWriter:
    """Changes the configurations of topics and brokers."""

    def __init__(self, config: BrokerConfig, view: ClusterView, registry: Callable[[], Registry]) -> None:
        """`registry()` is the session of the moment."""
        self._config = config
        self._view = view
        self._registry = registry

    async def replace(
        self, kind: int, name: str, wanted: Sequence[tuple[str, str | None]], *, validate_only: bool
    ) -> None:
        """Give a resource exactly these properties (AlterConfigs).

        Raises KafkaError with INVALID_REQUEST, INVALID_CONFIG or UNKNOWN_TOPIC_OR_PARTITION, and RegistryError.
        """
        _check_form([each for each, _ in wanted], [each for each, value in wanted if value is None])
        properties = {each: value for each, value in wanted if value is not None}
        await self._change(kind, name, lambda known: dict(properties), validate_only=validate_only)

    async def alter(self, kind: int, name: str, changes: Sequence[Change], *, validate_only: bool) -> None:
        """Change single properties of a resource (IncrementalAlterConfigs, KIP-339). Raises as `replace` does."""
        _check_form(
            [each.name for each in changes],
            [each.name for each in changes if each.value is None and each.operation != Operation.DELETE],
        )
        rows = TOPIC_PROPERTIES if kind == TOPIC else {**BROKER_PROPERTIES, **DYNAMIC_ONLY}
        await self._change(kind, name, lambda known: _edited(known, changes, rows), validate_only=validate_only)

    async def _change(self, kind: int, name: str, edit: Edit, *, validate_only: bool) -> None:
        if kind == TOPIC:
            entity, check = self._topic(name)
        elif kind == BROKER:
            entity, check = await self._broker(name)
        else:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"resources of type {kind} have no configuration here")

        def checked(known: Properties) -> dict[str, str]:
            properties = edit(known)
            check(properties)
            return properties

        if validate_only:
            checked(await read_config(self._registry(), entity))
            return
        try:
            await change_config(self._registry(), entity, checked)
        except BadArgumentsError as error:
            message = f"the configuration of {entity} is larger than a node of the registry"
            raise KafkaError(ErrorCode.INVALID_CONFIG, message) from error

    # ---- topics

    def _topic(self, name: str) -> tuple[str, Check]:
        """Where a topic's properties stand, and their rules. Raises KafkaError."""
        if not name:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "the default configuration of topics is that of the brokers")
        if name not in self._view.topics:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")
        return f"{TOPICS}/{name}", lambda properties: check_topic(self._config, properties)

    # ---- brokers

    async def _broker(self, name: str) -> tuple[str, Check]:
        """Where the properties of this broker, or without a name those of all, stand, and their rules.

        Raises KafkaError, RegistryError.
        """
        broker_id = str(self._config.broker_id)
        if name not in ("", broker_id):
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, f"Unexpected broker id, expected {broker_id}, but received {name}"
            )
        entity, other = f"{BROKERS}/{broker_id}", f"{BROKERS}/{znodes.DEFAULT_ENTITY}"
        if not name:
            entity, other = other, entity
        others = await read_config(self._registry(), other)
        return entity, lambda properties: self._check_broker(properties, others, own=bool(name))

    def _check_broker(self, properties: Properties, others: Properties, *, own: bool) -> None:
        """Raises KafkaError with INVALID_REQUEST: for a broker's properties Kafka has no other code."""
        try:
            _check_dynamic(properties, own=own)
            self._config.with_dynamic(*((others, properties) if own else (properties, others)))
        except ConfigError as error:
            raise KafkaError(ErrorCode.INVALID_REQUEST, error.message) from error


def _check_form(names: list[str], without_value: list[str]) -> None:
    if len(set(names)) < len(names):
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"a property is named twice among {', '.join(names)}")
    if without_value:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Null value not supported for : {', '.join(without_value)}")


def _edited(known: Properties, changes: Sequence[Change], rows: Mapping[str, Property]) -> dict[str, str]:
    """The properties after the changes. Raises KafkaError."""
    properties = dict(known)
    for name, operation, value in changes:
        if operation == Operation.DELETE:
            properties.pop(name, None)
        elif operation == Operation.SET:
            properties[name] = value or ""
        elif operation in (Operation.APPEND, Operation.SUBTRACT):
            row = rows.get(name)
            if row is None or row.type is not Type.LIST:
                what = Operation(operation).name.lower()
                raise ConfigError(f"Config value {what} is not allowed for config key: {name}")
            text = properties.get(name)
            items = _items(text if text is not None else show_value(row.default) or "")
            given = _items(value or "")
            if operation == Operation.APPEND:
                items += [item for item in given if item not in items]
            else:
                for item in given:
                    if item in items:
                        items.remove(item)
            properties[name] = ",".join(items)
        else:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"there is no operation {operation} for property {name}")
    return properties


def _items(text: str) -> list[str]:
    return text.split(",") if text else []


def _check_dynamic(properties: Properties, *, own: bool) -> None:
    """Whether these may be set at run time, for one broker or for all. Raises ConfigError."""
    rows = {name: BROKER_PROPERTIES.get(_base_name(name)) for name in properties}
    fixed = [
        name
        for name, row in rows.items()
        if name in FIXED_AT_START or (row is not None and row.update is Update.READ_ONLY)
    ]
    if fixed:
        raise ConfigError(f"Cannot update these configs dynamically: {', '.join(fixed)}")
    secret = [name for name, row in rows.items() if row is not None and row.sensitive]
    if secret:
        raise ConfigError(f"secrets are not kept in the registry: {', '.join(secret)}")
    for name, row in rows.items():
        limits = DYNAMIC_ONLY.get(name, row)
        if limits is not None:
            read_value(limits, properties[name])
    if not own and (per_broker := [name for name, row in rows.items() if row and row.update is Update.PER_BROKER]):
        raise ConfigError(
            "Cannot update these configs at default cluster level, broker id must be specified: "
            f"{', '.join(per_broker)}"
        )


def _base_name(name: str) -> str:
    """The property behind one for a single listener, as in "listener.name.inside.ssl.keystore.type"."""
    if not name.startswith(LISTENER_PREFIX):
        return name
    return name.removeprefix(LISTENER_PREFIX).partition(".")[2]
