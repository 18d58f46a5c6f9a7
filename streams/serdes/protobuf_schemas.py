"""Protobuf schemas of a registry as descriptors.

Confluent's registry returns a schema as a serialized FileDescriptorProto in base64, which its client for Python asks
for; others, Apicurio's among them, return the text of the .proto file. That text is compiled by protoc, of the package
grpcio-tools.
"""

from __future__ import annotations

import base64
import binascii
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from odradek.streams.errors import SerializationError
from odradek.streams.extras import extra_module

KIND: Final = "PROTOBUF"
EXTRA: Final = "protoc"


class ProtobufSchemaError(SerializationError):
    """A text that is not a Protobuf schema; the message has protoc's reason."""


def descriptor_of(name: str, text: str, files: Mapping[str, Any]) -> Any:
    """The FileDescriptorProto of a schema as a registry returns it, under this name of a file.

    `files` are the descriptors that it can import, by their names. Raises ProtobufSchemaError, MissingExtraError.
    """
    from google.protobuf import descriptor_pb2
    from google.protobuf.message import DecodeError

    try:
        file = descriptor_pb2.FileDescriptorProto.FromString(base64.b64decode(text, validate=True))
    except (binascii.Error, ValueError, DecodeError):
        file = _compiled(name, text, files)
    file.name = name
    return file


def _compiled(name: str, text: str, files: Mapping[str, Any]) -> Any:
    """The descriptor of the text of a file, by protoc."""
    from google.protobuf import descriptor_pb2

    grpc_tools = extra_module("grpc_tools", EXTRA, "a Protobuf schema that is text")
    with tempfile.TemporaryDirectory() as folder:
        source, output, known = Path(folder) / name, Path(folder) / ".compiled", Path(folder) / ".known"
        source.parent.mkdir(parents=True, exist_ok=True)
        source.write_text(text, encoding="utf-8")
        known.write_bytes(descriptor_pb2.FileDescriptorSet(file=list(files.values())).SerializeToString())
        include = Path(grpc_tools.__path__[0]) / "_proto"
        command = [sys.executable, "-P", "-m", "grpc_tools.protoc", f"-I{folder}", f"-I{include}"]
        command += [f"--descriptor_set_in={known}"] * bool(files) + [f"--descriptor_set_out={output}", name]
        # A process of its own: protoc prints its errors where no caller can read them.
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            lines = [line.removeprefix(f"{folder}/") for line in done.stderr.splitlines()]
            reasons = [line for line in lines if line.startswith(f"{name}:")]  # without warnings and libraries' lines
            raise ProtobufSchemaError(f"not a Protobuf schema: {' '.join(reasons or lines) or 'protoc fails'}")
        return descriptor_pb2.FileDescriptorSet.FromString(output.read_bytes()).file[0]


class DescriptorClient:
    """A SchemaRegistryClient whose Protobuf schemas are descriptors, as confluent-kafka's serializers read them. Each
    text is compiled once.
    """

    def __init__(self, client: Any) -> None:
        self._client = client
        self._known: dict[Any, Any] = {}
        """Schemas by those that the registry returns."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def get_schema(self, *arguments: Any, **named: Any) -> Any:
        """As the client's, with a descriptor. Raises what `descriptor_of` raises."""
        return self._with_descriptor(self._client.get_schema(*arguments, **named))

    def get_schema_by_guid(self, *arguments: Any, **named: Any) -> Any:
        """As the client's, with a descriptor."""
        return self._with_descriptor(self._client.get_schema_by_guid(*arguments, **named))

    def get_version(self, *arguments: Any, **named: Any) -> Any:
        """As the client's, with a descriptor."""
        return self._registered(self._client.get_version(*arguments, **named))

    def get_latest_version(self, *arguments: Any, **named: Any) -> Any:
        """As the client's, with a descriptor."""
        return self._registered(self._client.get_latest_version(*arguments, **named))

    def get_latest_with_metadata(self, *arguments: Any, **named: Any) -> Any:
        """As the client's, with a descriptor."""
        return self._registered(self._client.get_latest_with_metadata(*arguments, **named))

    def _registered(self, found: Any) -> Any:
        schema = self._with_descriptor(found.schema)
        if schema is found.schema:
            return found
        return type(found)(
            subject=found.subject, version=found.version, schema_id=found.schema_id, guid=found.guid, schema=schema
        )

    def _with_descriptor(self, schema: Any) -> Any:
        if schema.schema_type != KIND or schema.schema_str is None:
            return schema
        if schema not in self._known:
            files: dict[str, Any] = {}
            self._refer(schema, files)
            text = base64.b64encode(descriptor_of("schema.proto", schema.schema_str, files).SerializeToString())
            self._known[schema] = type(schema)(
                schema_str=text.decode(),
                schema_type=KIND,
                references=schema.references,
                metadata=schema.metadata,
                rule_set=schema.rule_set,
            )
        return self._known[schema]

    def _refer(self, schema: Any, files: dict[str, Any]) -> None:
        """Put the files to which a schema refers into `files`, those that they import first."""
        for each in schema.references or ():
            if each.name not in files:
                other = self._client.get_version(each.subject, each.version, True, "serialized").schema
                self._refer(other, files)
                files[each.name] = descriptor_of(each.name, other.schema_str, files)
