"""Keys and values in Confluent's wire format: a zero byte, the id of a schema, for Protobuf the indexes of a message,
and the data. Reads those of any schema of a registry, and writes those of one.
"""

from __future__ import annotations

import io
import json
import re
from pathlib import Path
from typing import Any, Final

from odradek.records.consumed import ConsumedRecord, Decoded
from odradek.records.schemas.avro import AvroCodec
from odradek.records.schemas.errors import MisfitError, SchemaError, SchemaOptionError
from odradek.records.schemas.json_schema import JsonCodec
from odradek.records.schemas.protobuf import ProtobufCodec
from odradek.records.schemas.registered import AVRO, JSON, PROTOBUF, RegisteredSchema, RegisteredSchemas

Codec = AvroCodec | JsonCodec | ProtobufCodec
MAGIC: Final = 0
HEADER_BYTES: Final = 5
SUFFIXES: Final = {".avsc": AVRO, ".avro": AVRO, ".json": JSON, ".proto": PROTOBUF}
"""Types of schemas by the suffix of their file."""
_SUBJECT: Final = re.compile(r"(?P<subject>.+?)(?::(?P<version>\d+|latest))?")


def codec_of(schema: RegisteredSchema, message: str | None = None) -> Codec:
    """What encodes and decodes the values of a schema; `message` is a type of a Protobuf schema. Raises SchemaError."""
    if schema.kind == PROTOBUF:
        return ProtobufCodec(schema.text, schema.references, message)
    if message is not None:
        raise SchemaOptionError(f"#{message} is for Protobuf; the schema is of type {schema.kind}")
    make = AvroCodec if schema.kind == AVRO else JsonCodec
    return make(schema.text, schema.references)


class SchemaReader:
    """Decodes the keys and values of records by the schema ids in them."""

    def __init__(self, schemas: RegisteredSchemas, *, keys: bool = True, values: bool = True) -> None:
        self._schemas = schemas
        self._keys, self._values = keys, values
        self._codecs: dict[int, Codec] = {}

    def read(self, record: ConsumedRecord) -> ConsumedRecord:
        """The record with its key and value as text, where they are in the wire format. Raises SchemaError."""
        key = self._decoded(record, "key", record.key) if self._keys else None
        value = self._decoded(record, "value", record.value) if self._values else None
        return record._replace(
            key=record.key if key is None else key.text(),
            value=record.value if value is None else value.text(),
            decoded_key=key,
            decoded_value=value,
        )

    def _decoded(self, record: ConsumedRecord, part: str, data: bytes | None) -> Decoded | None:
        schema_id = schema_id_of(data)
        if data is None or schema_id is None:
            return None
        place = f"{part} of {record.topic}-{record.partition} at offset {record.offset}"
        try:
            if schema_id not in self._codecs:
                self._codecs[schema_id] = codec_of(self._schemas.by_id(schema_id))
            return decoded(schema_id, self._codecs[schema_id], data)
        except MisfitError as error:
            raise error.at(f"{place} with schema id {schema_id}") from error
        except SchemaError as error:
            raise error.at(place) from error


def schema_id_of(data: bytes | None) -> int | None:
    """The schema id of a key or value; None where it is not in the wire format."""
    if data is None or len(data) < HEADER_BYTES or data[0] != MAGIC:
        return None
    return int.from_bytes(data[1:HEADER_BYTES])


def decoded(schema_id: int, codec: Codec, data: bytes) -> Decoded:
    """The value of a key or value in the wire format, by the codec of its schema. Raises MisfitError."""
    value, name = _decode(codec, data)
    return Decoded(schema_id, value, f"{codec.format} {name}".rstrip(), len(data))


def _decode(codec: Codec, data: bytes) -> tuple[Any, str]:
    """The value, and the name of its type."""
    if not isinstance(codec, ProtobufCodec):
        return codec.decode(data[HEADER_BYTES:]), codec.name
    from confluent_kafka.schema_registry.serde import SchemaId
    from confluent_kafka.serialization import SerializationError

    header = SchemaId(PROTOBUF)
    try:
        rest = header.from_bytes(io.BytesIO(data)).read()
    except (SerializationError, EOFError) as error:
        raise MisfitError("the data", f"no indexes of a message: {error}") from error
    indexes = header.message_indexes or [0]
    return codec.decode(rest, indexes), codec.name_of(indexes)


class SchemaWriter:
    """Encodes the keys or the values of records with one schema."""

    def __init__(self, schema: RegisteredSchema, part: str, message: str | None = None) -> None:
        """`part` is `key` or `value`. Raises SchemaError."""
        from confluent_kafka.schema_registry.serde import SchemaId

        if schema.has_rules:
            raise SchemaError(f"schema id {schema.schema_id} has rules for serializers; odradek does not execute rules")
        self._part, self.schema_id = part, schema.schema_id
        self._codec = codec_of(schema, message)
        indexes = self._codec.indexes if isinstance(self._codec, ProtobufCodec) else None
        self._header = SchemaId(schema.kind, schema.schema_id, message_indexes=indexes).id_to_bytes()

    def write(self, text: bytes | None) -> bytes | None:
        """The encoded form of JSON, or of text as it is for a schema of type string; None stays None.

        Raises MisfitError.
        """
        if text is None:
            return None
        if self._codec.is_text:
            value = text.decode(errors="replace")
        else:
            try:
                value = json.loads(text)
            except ValueError as error:
                raise MisfitError(self._part, f"not JSON: {error}") from error
        return self._header + self._codec.encode(value, self._part)


def writer_of(schemas: RegisteredSchemas, reference: str, topic: str, part: str) -> SchemaWriter:
    """The writer of an option: a schema id, SUBJECT, SUBJECT:VERSION, or @FILE, which is registered under the subject
    `<topic>-<part>` (TopicNameStrategy); each with #MESSAGE for a type of a Protobuf schema. Raises SchemaError.
    """
    where, _, message = reference.partition("#")
    if where.startswith("@"):
        schema = _registered(schemas, Path(where[1:]), f"{topic}-{part}")
    elif where.isdigit():
        schema = schemas.by_id(int(where))
    else:
        found = _SUBJECT.fullmatch(where)
        if found is None:
            raise SchemaOptionError(f"{reference!r} is none of ID, SUBJECT, SUBJECT:VERSION and @FILE")
        version = found["version"]
        schema = schemas.by_subject(found["subject"], None if version in (None, "latest") else int(version))
    return SchemaWriter(schema, part, message or None)


def _registered(schemas: RegisteredSchemas, path: Path, subject: str) -> RegisteredSchema:
    if path.suffix not in SUFFIXES:
        raise SchemaOptionError(f"{path}: the suffix of a schema is one of {', '.join(SUFFIXES)}")
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise SchemaOptionError(f"cannot read {path}: {error}") from error
    codec_of(RegisteredSchema(0, SUFFIXES[path.suffix], text, {}, has_rules=False))  # an error before it is registered
    return schemas.register(subject, SUFFIXES[path.suffix], text)
