"""Serdes with a schema registry: Avro, JSON Schema and Protobuf in the wire format of Confluent's serializers.

A key or value is a zero byte, the id of its schema in the registry (4 bytes, big-endian) and the encoded data; Protobuf
has the indexes of its message within the schema between the two. Java's KafkaAvroSerializer, KafkaJsonSchemaSerializer
and KafkaProtobufSerializer write the same. The subject of a schema is `<topic>-key` or `<topic>-value`
(TopicNameStrategy); stores register theirs under the names of their changelog topics, as Java's do.

The client and the serializers are those of confluent-kafka; this module binds them to the topics of a topology.
"""

from __future__ import annotations

import datetime
import decimal
import uuid
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

from odradek.streams.errors import SerializationError
from odradek.streams.extras import extra_module
from odradek.streams.serdes.formats import Serde
from odradek.streams.serdes.protobuf_schemas import DescriptorClient
from odradek.streams.serdes.typed import conversion

T = TypeVar("T")

EXTRA: Final = "schema-registry"
AVRO_TYPES: Final = (bytes, datetime.datetime, datetime.date, datetime.time, decimal.Decimal, uuid.UUID)
"""Values of Avro's logical types, which its encoder takes as they are."""

Codec = Callable[[Any, Any], Any]
"""A serializer or deserializer of confluent-kafka: of data and a SerializationContext."""


class SchemaRegistry:
    """A schema registry, and the serdes with schemas in it. The first serialized record opens the connection."""

    def __init__(self, config: str | Mapping[str, Any]) -> None:
        """`config` is a URL or the properties of confluent-kafka's SchemaRegistryClient (`url`, `basic.auth.user.info`,
        `ssl.ca.location`, …). A URL `mock://name` is a registry in this object, for tests.
        """
        self._config = {"url": config} if isinstance(config, str) else dict(config)
        self._client: Any = None

    def client(self) -> Any:
        """The SchemaRegistryClient, made at the first call. Raises MissingExtraError."""
        if self._client is None:
            module = extra_module("confluent_kafka.schema_registry", EXTRA, "SchemaRegistry")
            self._client = module.SchemaRegistryClient.new_client(self._config)
        return self._client

    def close(self) -> None:
        """Close the connections of the client. Serdes that are bound to topics cannot be used afterwards."""
        if self._client is not None:
            self._client.__exit__(None, None, None)
            self._client = None

    def avro(
        self,
        schema: str,
        kind: type[T] | None = None,
        *,
        config: Mapping[str, Any] | None = None,
        immutable: bool = False,
    ) -> Serde[T]:
        """Avro. Values are dictionaries, or of the class `kind` where that is given.

        `schema` is the text of the schema of both writer and reader. `config` are properties of the serializer, such as
        `auto.register.schemas` and `use.latest.version`. Raises MissingExtraError.
        """
        module = _serializers("avro")
        convert = conversion(kind, keep=AVRO_TYPES) if kind is not None else None

        def write() -> Codec:
            to_dict = None if convert is None else lambda value, context: convert.to_builtins(value)
            made: Codec = module.AvroSerializer(self.client(), schema, to_dict, _settings(config))
            return made

        def read() -> Codec:
            from_dict = None if convert is None else lambda data, context: convert.from_builtins(data)
            made: Codec = module.AvroDeserializer(self.client(), schema, from_dict)
            return made

        return RegistrySerde("avro", write, read, immutable)

    def json_schema(
        self,
        kind: type[T] | None = None,
        schema: str | None = None,
        *,
        config: Mapping[str, Any] | None = None,
        immutable: bool = False,
    ) -> Serde[T]:
        """JSON with a JSON Schema. Values are of the class `kind`, or dictionaries where that is None.

        Without `schema` the schema is made from the class. Raises MissingExtraError, and ValueError without either.
        """
        module = _serializers("json_schema")
        if kind is None and schema is None:
            raise ValueError("json_schema() needs a class or the text of a schema")
        convert = conversion(kind) if kind is not None else None
        text = schema if convert is None or schema is not None else convert.json_schema()

        def write() -> Codec:
            to_dict = None if convert is None else lambda value, context: convert.to_builtins(value)
            made: Codec = module.JSONSerializer(text, self.client(), to_dict, _settings(config))
            return made

        def read() -> Codec:
            from_dict = None if convert is None else lambda data, context: convert.from_builtins(data)
            made: Codec = module.JSONDeserializer(text, from_dict, self.client())
            return made

        return RegistrySerde("json schema", write, read, immutable)

    def protobuf(
        self, message: type[T], *, config: Mapping[str, Any] | None = None, immutable: bool = False
    ) -> Serde[T]:
        """Protobuf. Values are messages of the generated class `message`. Raises MissingExtraError.

        A registry that returns schemas as text requires protoc: the extra `protoc`.
        """
        module = _serializers("protobuf")

        def write() -> Codec:
            made: Codec = module.ProtobufSerializer(
                message, DescriptorClient(self.client()), {"use.deprecated.format": False, **_settings(config)}
            )
            return made

        def read() -> Codec:
            made: Codec = module.ProtobufDeserializer(
                message, {"use.deprecated.format": False}, DescriptorClient(self.client())
            )
            return made

        return RegistrySerde("protobuf", write, read, immutable)


class RegistrySerde(Serde[Any]):
    """A serde whose schemas have the topic in their subject: `for_topic` binds it to one."""

    __slots__ = ("_read", "_write")

    def __init__(self, name: str, write: Callable[[], Codec], read: Callable[[], Codec], immutable: bool) -> None:
        """`write` and `read` make the serializer and the deserializer of one topic."""
        super().__init__(_unbound, _unbound, name=name, immutable=immutable)
        self._write = write
        self._read = read

    def for_topic(self, topic: str, is_key: bool) -> Serde[Any]:
        """The serde of the keys or values of one topic. No request is sent before the first record."""
        module = extra_module("confluent_kafka.serialization", EXTRA, f"the {self.name} serde")
        field = module.MessageField.KEY if is_key else module.MessageField.VALUE
        context = module.SerializationContext(topic, field)
        write, read = self._write(), self._read()
        return Serde(
            lambda value: write(value, context),
            lambda data: read(data, context),
            name=f"{self.name} of {topic}",
            immutable=self.immutable,
        )


def _serializers(format_name: str) -> Any:
    return extra_module(f"confluent_kafka.schema_registry.{format_name}", EXTRA, f"SchemaRegistry.{format_name}()")


def _settings(config: Mapping[str, Any] | None) -> dict[str, Any]:
    """The properties of a serializer. Subjects are by topic; later releases of the client have another default."""
    module = extra_module("confluent_kafka.schema_registry", EXTRA, "SchemaRegistry")
    return {"subject.name.strategy": module.topic_subject_name_strategy, **(config or {})}


def _unbound(data: Any) -> Any:
    raise SerializationError("a serde of a schema registry needs a topic: call for_topic(topic, is_key) first")
