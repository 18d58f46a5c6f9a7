"""The serde and the formats of Kafka's own serializers, one constant each (Kafka: Serdes, WrappingNullableSerde)."""

from __future__ import annotations

import json
import struct
import uuid
from collections.abc import Callable, Mapping
from typing import Any, Final, Generic, TypeVar

from odradek.streams.errors import SerializationError

T = TypeVar("T")


class Serde(Generic[T]):
    """A serializer and its deserializer."""

    __slots__ = ("deserialize", "immutable", "name", "serialize")

    def __init__(
        self,
        serialize: Callable[[T], bytes],
        deserialize: Callable[[bytes], T],
        *,
        name: str = "",
        immutable: bool = False,
    ) -> None:
        """Both functions may raise any exception; the runtime adds where it happened."""
        self.serialize = serialize
        self.deserialize = deserialize
        self.name = name or getattr(serialize, "__qualname__", "serde")
        self.immutable = immutable

    def for_topic(self, topic: str, is_key: bool) -> Serde[T]:
        """The serde for one topic: itself. A serde that depends on the topic (a schema registry's) overrides this."""
        return self

    def configured(self, config: Mapping[str, Any]) -> Serde[T]:
        """The serde for an application: itself. A serde that uses an application's default overrides this."""
        return self

    def __repr__(self) -> str:
        return f"<serde {self.name}>"


class DerivedSerde(Serde[Any]):
    """A serde around another, which is the application's default where it is not given (WrappingNullableSerde)."""

    __slots__ = ("_inner", "_make", "_setting")

    def __init__(
        self, inner: Serde[Any] | None, setting: str, make: Callable[[Serde[Any], Mapping[str, Any]], Serde[Any]]
    ) -> None:
        """`setting` is the property with the default; `make` gets the inner serde and the configuration."""
        super().__init__(_nothing, _nothing, name="derived")
        self._inner = inner
        self._setting = setting
        self._make = make

    def configured(self, config: Mapping[str, Any]) -> Serde[Any]:
        """The serde itself. Raises SerializationError where the inner serde is not given and there is no default."""
        inner = self._inner if self._inner is not None else config.get(self._setting)
        if inner is None:
            raise SerializationError(f"Please specify a serde, or set one through the configuration {self._setting}")
        return self._make(inner.configured(config), config)


def fixed(layout: str, name: str) -> Serde[Any]:
    """Numbers in the big-endian `layout` of the struct module."""
    packing = struct.Struct(">" + layout)
    pack, unpack, size = packing.pack, packing.unpack, packing.size

    def deserialize(data: bytes) -> Any:
        if len(data) != size:
            raise SerializationError(f"Size of data received by {name} deserializer is {len(data)}, not {size}")
        return unpack(data)[0]

    return Serde(pack, deserialize, name=name, immutable=True)


def _from_utf8(data: bytes) -> str:
    return data.decode("utf-8", "replace")  # Java's decoder replaces, too


def strict_deserializer(deserialize: Callable[[bytes], Any]) -> Callable[[bytes], Any]:
    """A faster function with the same results as `deserialize`, if there is one: of bytes that are not UTF-8 it raises
    UnicodeDecodeError, and the caller calls `deserialize`. Otherwise `deserialize` itself.
    """
    return bytes.decode if deserialize is _from_utf8 else deserialize


def reads_text(deserialize: Callable[[bytes], Any]) -> bool:
    """Whether a deserializer is that of STRING: a client may return texts in place of bytes for it."""
    return deserialize is _from_utf8


def _same(value: bytes) -> bytes:
    if type(value) is not bytes:
        raise SerializationError(f"expected bytes, not {type(value).__name__}")
    return value


def _to_json(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def _from_uuid_text(data: bytes) -> uuid.UUID:
    return uuid.UUID(data.decode())


def _nothing(value: Any) -> Any:
    raise SerializationError("a void key or value can only be null")


STRING: Final[Serde[str]] = Serde(str.encode, _from_utf8, name="string", immutable=True)
LONG: Final[Serde[int]] = fixed("q", "long")
INTEGER: Final[Serde[int]] = fixed("i", "integer")
SHORT: Final[Serde[int]] = fixed("h", "short")
DOUBLE: Final[Serde[float]] = fixed("d", "double")
FLOAT: Final[Serde[float]] = fixed("f", "float")
BOOLEAN: Final[Serde[bool]] = fixed("?", "boolean")
BYTES: Final[Serde[bytes]] = Serde(_same, _same, name="bytes", immutable=True)
UUID: Final[Serde[uuid.UUID]] = Serde(lambda value: str(value).encode(), _from_uuid_text, name="uuid", immutable=True)
VOID: Final[Serde[None]] = Serde(_nothing, _nothing, name="void", immutable=True)
JSON: Final[Serde[Any]] = Serde(_to_json, json.loads, name="json")
