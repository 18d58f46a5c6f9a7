"""Protobuf messages of a schema that is only known at run time, from and to Protobuf's JSON.

A message is within its file at a path of indexes, which are in the wire format between the schema id and the data.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from typing import Any, Final

from odradek.records.schemas.errors import MisfitError, SchemaError, SchemaOptionError

_MAIN: Final = "schema.proto"
_PACKAGES: Final[Mapping[str, str]] = {"google/": "", "confluent/": "confluent_kafka.schema_registry."}
"""Files that every schema can import without a reference, and the packages with their generated modules."""


class ProtobufCodec:
    """Encodes messages of one type, and decodes those of every type of a schema."""

    format: Final = "Protobuf"

    def __init__(self, text: str, references: Mapping[str, str], message: str | None = None) -> None:
        """`message` is the full name of the type to encode; None for the first of the file. Raises SchemaError."""
        from google.protobuf import descriptor_pool

        self.is_text = False
        self._pool = descriptor_pool.DescriptorPool()
        self._added: set[str] = set()
        files: dict[str, Any] = {}
        for name, each in references.items():
            files[name] = _descriptor(name, each, files)
        files[_MAIN] = main = _descriptor(_MAIN, text, files)
        self._add(main, files)
        self._file: Any = self._pool.FindFileByName(_MAIN)
        self._message, self.indexes = self._found(message)

    def _add(self, file: Any, files: Mapping[str, Any]) -> None:
        """Add a file to the pool, behind those that it imports. Raises SchemaError."""
        if file.name in self._added:
            return
        self._added.add(file.name)
        for name in file.dependency:
            self._add(files[name] if name in files else _bundled(name), files)
        self._pool.Add(file)

    def _found(self, name: str | None) -> tuple[Any, list[int]]:
        """The class of a message, and its indexes."""
        types = dict(_types(list(self._file.message_types_by_name.values()), []))
        if not types:
            raise SchemaError("the Protobuf schema has no message")
        chosen = next(iter(types)) if name is None else name
        if chosen not in types:
            raise SchemaOptionError(f"the schema has no message {chosen}; it has {', '.join(types)}")
        descriptor, indexes = types[chosen]
        return _class(descriptor), indexes

    def encode(self, value: Any, path: str) -> bytes:
        """Raises MisfitError. `path` is the name of the whole value."""
        from google.protobuf import json_format

        try:
            message = json_format.ParseDict(value, self._message())
        except (json_format.ParseError, TypeError, AttributeError) as error:
            reason = " ".join(str(error).split()) or f"not an object of {self._message.DESCRIPTOR.full_name}"
            raise MisfitError(path, reason) from error
        return bytes(message.SerializeToString())

    def decode(self, data: bytes, indexes: Sequence[int]) -> Any:
        """The message at `indexes` in Protobuf's JSON, with fields that have their default. Raises MisfitError."""
        from google.protobuf import json_format
        from google.protobuf.message import DecodeError

        try:
            message = _class(self._type(indexes)).FromString(data)
        except DecodeError as error:
            raise MisfitError("the data", str(error)) from error
        try:
            return json_format.MessageToDict(
                message, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
            )
        except (json_format.Error, TypeError, ValueError) as error:  # TypeError: an Any of a type that is not there
            raise MisfitError("the data", " ".join(str(error).split())) from error

    def name_of(self, indexes: Sequence[int]) -> str:
        """The full name of the type at `indexes`. Raises MisfitError."""
        return str(self._type(indexes).full_name)

    def _type(self, indexes: Sequence[int]) -> Any:
        types: Sequence[Any] = list(self._file.message_types_by_name.values())
        try:
            for index in indexes:
                found = types[index]
                types = found.nested_types
        except IndexError as error:
            raise MisfitError("the data", f"the schema has no message at the indexes {list(indexes)}") from error
        return found


def _class(descriptor: Any) -> Any:
    from google.protobuf import message_factory

    return message_factory.GetMessageClass(descriptor)


def _types(descriptors: Sequence[Any], above: list[int]) -> list[tuple[str, tuple[Any, list[int]]]]:
    """Full names of messages with their indexes, those within others after them."""
    found: list[tuple[str, tuple[Any, list[int]]]] = []
    for index, each in enumerate(descriptors):
        if not each.GetOptions().map_entry:
            indexes = [*above, index]
            found += [(each.full_name, (each, indexes)), *_types(each.nested_types, indexes)]
    return found


def _bundled(name: str) -> Any:
    """The descriptor of a file that comes with a package. Raises SchemaError."""
    from google.protobuf import descriptor_pb2

    package = next((package for prefix, package in _PACKAGES.items() if name.startswith(prefix)), None)
    if package is None:
        raise SchemaError(f"the schema imports {name}, to which it has no reference")
    try:
        module = importlib.import_module(f"{package}{name.removesuffix('.proto').replace('/', '.')}_pb2")
    except ImportError as error:
        raise SchemaError(f"the schema imports {name}, which no installed package has") from error
    file = descriptor_pb2.FileDescriptorProto()
    module.DESCRIPTOR.CopyToProto(file)
    return file


def _descriptor(name: str, text: str, files: Mapping[str, Any]) -> Any:
    """The descriptor of a file from a registry, under this name. Raises SchemaError."""
    # Imported late, as the packages of Protobuf: only commands with such a schema need them.
    from odradek.streams.extras import MissingExtraError
    from odradek.streams.serdes.protobuf_schemas import ProtobufSchemaError, descriptor_of

    try:
        return descriptor_of(name, text, files)
    except (ProtobufSchemaError, MissingExtraError) as error:
        raise SchemaError(str(error)) from error
