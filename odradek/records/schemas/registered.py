"""A schema registry over Confluent's REST API, by the client of confluent-kafka.

Schemas never change under their id, so each is requested once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, TypeVar

from odradek.records.schemas.errors import (
    SchemaError,
    SchemaNotFoundError,
    SchemaOptionError,
    SchemaRegistryDeniedError,
    SchemaRegistryUnreachableError,
)

T = TypeVar("T")

AVRO: Final = "AVRO"
JSON: Final = "JSON"
PROTOBUF: Final = "PROTOBUF"
KINDS: Final = (AVRO, JSON, PROTOBUF)
SERIALIZED: Final = "serialized"
"""The format in which Confluent's registry returns a Protobuf schema as a descriptor; others ignore it."""
PREFIX: Final = "schema.registry."
_UNPREFIXED: Final = ("basic.auth.user.info", "bearer.auth.")
"""Properties that Java's serializers have without the prefix, too."""
_SOURCE: Final = "basic.auth.credentials.source"
_NUMBERS: Final = ("timeout", "max.retries", "retries.wait.ms", "retries.max.wait.ms")
_DEFAULTS: Final[Mapping[str, Any]] = {"timeout": 10.0, "max.retries": 2, "retries.wait.ms": 200}
"""The client's own defaults let a command wait for seconds where nothing listens."""


class RegisteredSchema(NamedTuple):
    """A schema of the registry, with the schemas to which it refers, by the names in it; those come first."""

    schema_id: int
    kind: str
    """One of `KINDS`."""
    text: str
    references: Mapping[str, str]
    has_rules: bool
    """Whether the schema has rules that a serializer is to execute, such as the encryption of fields."""


def client_config(
    properties: Mapping[str, str], url: str | None = None, defaults: Mapping[str, Any] = _DEFAULTS
) -> dict[str, Any] | None:
    """The configuration of the client from the properties of a connection; None without a registry. `url` comes before
    that of the properties, and `defaults` are for what they leave out.

    `schema.registry.url` and other properties of the client with this prefix, and Java's `basic.auth.user.info` and
    `bearer.auth.…`. Raises SchemaOptionError.
    """
    config: dict[str, Any] = dict(defaults)
    for name, value in properties.items():
        short = name.removeprefix(PREFIX)
        if short == _SOURCE:
            if value not in ("USER_INFO", "URL"):
                raise SchemaOptionError(f"{name}: {value!r} is not supported; allowed: USER_INFO, URL")
        elif name != short or name.startswith(_UNPREFIXED):
            config[short] = _number(name, value) if short in _NUMBERS else value
    if url is not None:
        config["url"] = url
    return config if "url" in config else None


def _number(name: str, value: str) -> float:
    try:
        return float(value)
    except ValueError as error:
        raise SchemaOptionError(f"{name}: {value!r} is not a number") from error


class RegisteredSchemas:
    """The schemas of a registry."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        """`config` are properties of confluent-kafka's SchemaRegistryClient. Raises SchemaOptionError, ImportError."""
        # Imported late: only commands with a registry need it.
        from odradek.streams.serdes.schema_registry import SchemaRegistry

        self.url = _without_user(str(config["url"]))
        registry = SchemaRegistry(config)
        try:
            self._client = registry.client()
        except (ValueError, TypeError, OSError) as error:
            raise SchemaOptionError(f"the properties of the schema registry: {error}") from error
        self.close = registry.close
        self._by_id: dict[int, RegisteredSchema] = {}

    def by_id(self, schema_id: int) -> RegisteredSchema:
        """The schema of an id. Raises SchemaError."""
        if schema_id not in self._by_id:
            schema = self._ask(f"schema id {schema_id}", lambda: self._client.get_schema(schema_id, fmt=SERIALIZED))
            self._by_id[schema_id] = self._registered(schema_id, schema)
        return self._by_id[schema_id]

    def by_subject(self, subject: str, version: int | None = None) -> RegisteredSchema:
        """A version of a subject, or its latest one. Raises SchemaError."""
        found = self._version(subject, version)
        return self._registered(found.schema_id, found.schema)

    def register(self, subject: str, kind: str, text: str) -> RegisteredSchema:
        """The schema with its id, which the registry gives it unless it has one. Raises SchemaError."""
        from confluent_kafka.schema_registry import Schema

        schema = Schema(text, kind)
        schema_id = self._ask(f"subject {subject}", lambda: self._client.register_schema(subject, schema))
        return RegisteredSchema(schema_id, kind, text, {}, has_rules=False)

    def _registered(self, schema_id: int, schema: Any) -> RegisteredSchema:
        kind = schema.schema_type or AVRO
        if kind not in KINDS:
            raise SchemaError(f"schema id {schema_id} is of type {kind}; supported: {', '.join(KINDS)}")
        references: dict[str, str] = {}
        self._refer(schema, references)
        return RegisteredSchema(schema_id, kind, schema.schema_str, references, schema.rule_set is not None)

    def _refer(self, schema: Any, found: dict[str, str]) -> None:
        for each in schema.references or ():
            if each.name not in found:
                other = self._version(each.subject, each.version).schema
                self._refer(other, found)
                found[each.name] = other.schema_str

    def _version(self, subject: str, version: int | None) -> Any:
        if version is None:
            return self._ask(f"subject {subject}", lambda: self._client.get_latest_version(subject, SERIALIZED))
        about = f"version {version} of subject {subject}"
        return self._ask(about, lambda: self._client.get_version(subject, version, True, SERIALIZED))

    def _ask(self, about: str, request: Callable[[], T]) -> T:
        from confluent_kafka.schema_registry.error import SchemaRegistryError

        try:
            return request()
        except SchemaRegistryError as error:
            raise self._error(about, error) from error
        except Exception as error:
            if isinstance(error, OSError) or type(error).__module__.partition(".")[0] in ("httpx", "httpx2"):
                raise SchemaRegistryUnreachableError(
                    f"the schema registry at {self.url} does not answer: {error}"
                ) from error
            if isinstance(error, (ValueError, TypeError, LookupError, AttributeError)):  # from the client's parsing
                raise SchemaError(f"{self.url} is not a schema registry: its answer has no schema") from error
            raise

    def _error(self, about: str, error: Any) -> SchemaError:
        status, text = error.http_status_code, f"{about}: {error.error_message} (HTTP {error.http_status_code})"
        if status == 404:
            return SchemaNotFoundError(f"{about} is not in the schema registry at {self.url}")
        return SchemaRegistryDeniedError(text) if status in (401, 403) else SchemaError(text)


def _without_user(url: str) -> str:
    scheme, separator, rest = url.partition("://")
    return f"{scheme}{separator}{rest.rpartition('@')[2]}"
