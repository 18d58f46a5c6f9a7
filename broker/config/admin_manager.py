"""Config admin manager: validates and writes changes of configurations (Kafka: ConfigAdminManager, ZkAdminManager).

Any broker changes a topic's properties and those of all brokers, but only the broker itself its own. A valid change is
written to the metadata store, and takes effect when its notification arrives (`changes.py`), on this broker as on the
others. Kafka answers when it has written; here the client gets the answer only when this broker has also applied the
change, and so reads what it wrote. Log levels belong to one broker and are not in the metadata store.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from enum import IntEnum
from typing import Final, NamedTuple, Protocol

from odradek.broker.config.broker_config import BrokerConfig
from odradek.broker.config.changes import BROKERS, TOPICS, WrittenChange, change_config, read_config
from odradek.broker.config.definitions import BROKER_PROPERTIES
from odradek.broker.config.dynamic import DYNAMIC_ONLY, check_change, check_dynamic
from odradek.broker.config.loggers import check_level, check_reset, set_level
from odradek.broker.config.password_encoder import from_stored, to_stored
from odradek.broker.config.policies import ALTER_CONFIG, AlterConfigRequest, load_policy
from odradek.broker.config.topic_config import check_topic
from odradek.broker.config.topic_definitions import TOPIC_PROPERTIES
from odradek.broker.config.types import ConfigError, ConfigKey, Type, show_value, whole_number
from odradek.broker.metadata.cache import MetadataCache
from odradek.broker.registry import znodes
from odradek.broker.registry.interface import BadArgumentsError, Registry, RegistryError
from odradek.broker.runtime.turns import keep
from odradek.protocol.errors import ErrorCode, KafkaError

log = logging.getLogger(__name__)

TOPIC: Final = 2
BROKER: Final = 4
LOGGER: Final = 8
CLIENT_METRICS: Final = 16


class Operation(IntEnum):
    """The operation on one property, with its code in the protocol (AlterConfigOp.OpType)."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


NAMES_IN_AN_ERROR: Final = 100
"""The message of an error has to fit its field."""


class AlterConfigOp(NamedTuple):
    """The requested change of one property; `operation` is the code from the request."""

    name: str
    operation: int
    value: str | None


Properties = Mapping[str, str]
Edit = Callable[[Properties], dict[str, str]]
Check = Callable[[Properties], object]


class Reconfigurable(Protocol):
    """A part of the broker that rejects some changes of its configuration (Kafka: BrokerReconfigurable)."""

    def validate(self, config: BrokerConfig, names: Iterable[str]) -> None:
        """Raise ConfigError where the part cannot change to this configuration; `names` are its dynamic properties."""
        ...

    def reload_changed_files(self) -> None:
        """Read files again that have changed under the name that is configured already."""
        ...


class ConfigWriter:
    """Changes the configurations of topics and brokers."""

    def __init__(
        self,
        config: BrokerConfig,
        metadata_cache: MetadataCache,
        registry: Callable[[], Registry],
        apply: Callable[[WrittenChange], Awaitable[None]],
        listeners: Reconfigurable,
    ) -> None:
        """`registry()` returns the current session; `apply` applies a written change on this broker.

        Raises ConfigError for a policy class that does not exist.
        """
        self._config = config
        self._metadata_cache = metadata_cache
        self._registry = registry
        self._apply = apply
        self._listeners = listeners
        self._judge = load_policy(config, ALTER_CONFIG)

    async def replace(
        self,
        kind: int,
        name: str,
        wanted: Sequence[tuple[str, str | None]],
        *,
        validate_only: bool,
        is_allowed: bool = True,
    ) -> None:
        """Replace all properties of a resource (AlterConfigs).

        `is_allowed` is whether the client may alter it. As in Kafka, some errors of the request come before that one:
        those of its form, and all that concern the properties of brokers.
        Raises KafkaError with INVALID_REQUEST, INVALID_CONFIG, UNKNOWN_TOPIC_OR_PARTITION or the code of a resource
        that the client may not alter, and RegistryError.
        """
        _check_form((each for each, _ in wanted), (each for each, value in wanted if value is None))
        properties = {each: value for each, value in wanted if value is not None}
        await self._change(
            kind, name, lambda known: dict(properties), validate_only=validate_only, is_allowed=is_allowed
        )

    async def alter(
        self, kind: int, name: str, changes: Sequence[AlterConfigOp], *, validate_only: bool, is_allowed: bool = True
    ) -> None:
        """Change single properties of a resource (IncrementalAlterConfigs, KIP-339). Raises as `replace` does."""
        _check_form(
            (each.name for each in changes),
            (each.name for each in changes if each.value is None and each.operation != Operation.DELETE),
        )
        if kind == LOGGER:
            _require(is_allowed, kind)
            self._alter_loggers(name, changes, validate_only=validate_only)
            return
        if kind == TOPIC:
            _require(is_allowed, kind)
        if kind == TOPIC and name in (".", ".."):  # not a valid path; other names are unknown topics
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"Invalid path for the topic {name!r}")
        rows = TOPIC_PROPERTIES if kind == TOPIC else {**BROKER_PROPERTIES, **DYNAMIC_ONLY}
        await self._change(
            kind, name, lambda known: _edited(known, changes, rows), validate_only=validate_only, is_allowed=is_allowed
        )

    async def _change(self, kind: int, name: str, edit: Edit, *, validate_only: bool, is_allowed: bool) -> None:
        if kind == TOPIC:
            _require(is_allowed, kind)
            if name and name not in self._metadata_cache.topics:
                edit({})  # errors of the changes themselves come first, as in Kafka
            entity, check = self._topic(name)
        elif kind == BROKER:
            entity, check = await self._broker(name)
        else:
            # Kafka in ZooKeeper mode has neither groups nor client metrics as resources; KRaft introduced those.
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown resource type {kind}")

        def checked(known: Properties) -> dict[str, str]:
            properties = edit(from_stored(self._config, known) if kind == BROKER else known)
            check(properties)
            self._judge(AlterConfigRequest(kind, name, properties))
            return to_stored(self._config, properties) if kind == BROKER and not validate_only else properties

        if validate_only or not is_allowed:
            checked(await read_config(self._registry(), entity))
            _require(is_allowed, kind)
            return
        if kind == BROKER and name:
            self._listeners.reload_changed_files()
        try:
            change = await change_config(self._registry(), entity, checked)
        except BadArgumentsError as error:
            message = f"the configuration of {entity} is larger than a node of the registry"
            raise KafkaError(ErrorCode.INVALID_CONFIG, message) from error
        try:
            await self._apply(change)
        except RegistryError as error:
            log.warning(
                "delaying config change until the metadata store is connected entity=%s error=%s", entity, error
            )

    # ---- loggers

    def _alter_loggers(self, name: str, changes: Sequence[AlterConfigOp], *, validate_only: bool) -> None:
        """Raises KafkaError: INVALID_REQUEST, INVALID_CONFIG."""
        number = whole_number(Type.INT, name)
        if number is None:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Node id must be an integer, but it is: {name}")
        if number != self._config.broker_id:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"Unexpected node id. Expected {self._config.broker_id}, but received {number}",
            )
        for logger, operation, level in changes:
            if operation == Operation.SET:
                check_level(logger, level or "")
            elif operation == Operation.DELETE:
                check_reset(logger)
            elif operation in (Operation.APPEND, Operation.SUBTRACT):
                what = Operation(operation).name
                raise KafkaError(
                    ErrorCode.INVALID_REQUEST, f"{what} operation is not allowed for the BROKER_LOGGER resource"
                )
            else:
                raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "")  # no message, like Kafka
        if not validate_only:
            for logger, operation, level in changes:
                set_level(logger, level if operation == Operation.SET else None)
                log.info("log level changed logger=%s level=%s", logger, level)

    # ---- topics

    def _topic(self, name: str) -> tuple[str, Check]:
        """The path of a topic's properties, and their validation. Raises KafkaError."""
        if not name:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "the default configuration of topics is that of the brokers")
        if name not in self._metadata_cache.topics:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")
        return f"{TOPICS}/{name}", lambda properties: check_topic(self._config, properties)

    # ---- brokers

    async def _broker(self, name: str) -> tuple[str, Check]:
        """The path of the properties of this broker, or without a name of all brokers, and their validation.

        Raises KafkaError, RegistryError.
        """
        broker_id = self._config.broker_id
        if name and whole_number(Type.INT, name) != broker_id:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, f"Unexpected broker id, expected {broker_id}, but received {name}"
            )
        entity, other = f"{BROKERS}/{broker_id}", f"{BROKERS}/{znodes.DEFAULT_ENTITY}"
        if not name:
            entity, other = other, entity
        others = from_stored(self._config, await read_config(self._registry(), other))
        return entity, lambda properties: self._check_broker(properties, others, own=bool(name))

    def _check_broker(self, properties: Properties, others: Properties, *, own: bool) -> None:
        """Raises KafkaError with INVALID_REQUEST: for a broker's properties Kafka has no other code."""
        try:
            check_dynamic(properties, own=own)
            changed = self._config.with_dynamic(*((others, properties) if own else (properties, others)))
            check_change(self._config, changed)
            self._listeners.validate(changed, properties)
        except ConfigError as error:
            raise KafkaError(ErrorCode.INVALID_REQUEST, error.message) from error


def _require(is_allowed: bool, kind: int) -> None:
    """Raises KafkaError with the code of a resource that the client may not alter."""
    if not is_allowed:
        code = ErrorCode.TOPIC_AUTHORIZATION_FAILED if kind == TOPIC else ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        raise KafkaError(code)


def _check_form(names: Iterable[str], without_value: Iterable[str]) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"the property {name} is named twice")
        seen.add(name)
    if refused := [*without_value]:
        shown = ", ".join(refused[:NAMES_IN_AN_ERROR])
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Null value not supported for : {shown}")


def _edited(known: Properties, changes: Sequence[AlterConfigOp], rows: Mapping[str, ConfigKey]) -> dict[str, str]:
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
    return keep(properties)


def _items(text: str) -> list[str]:
    return text.split(",") if text else []
