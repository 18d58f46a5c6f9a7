"""Serdes of lists (Kafka: ListSerializer, KIP-466)."""

from __future__ import annotations

import struct
from typing import Final, TypeVar

from odradek.streams.errors import SerializationError
from odradek.streams.serdes.formats import Serde

T = TypeVar("T")

_INT: Final = struct.Struct(">i")
_FIXED: Final = {"short": 2, "integer": 4, "float": 4, "long": 8, "double": 8, "uuid": 36}
"""The serdes whose size the format of lists leaves out (ListSerializer)."""


def list_serde(inner: Serde[T]) -> Serde[list[T | None]]:
    """Lists of the values of `inner`; an element may be None (Kafka: ListSerde, KIP-466).

    Values of one size: 0, how many are null and their indexes (4 bytes each), how many values there are, the values
    without the nulls. Others: 1, how many values there are, the size of each (-1: null) and its bytes.
    """
    write, read, size = inner.serialize, inner.deserialize, _FIXED.get(inner.name)
    number, number_at = _INT.pack, _INT.unpack_from

    def serialize(values: list[T | None]) -> bytes:
        items = [None if value is None else write(value) for value in values]
        count = number(len(items))
        if size is None:
            sized = (number(-1) if item is None else number(len(item)) + item for item in items)
            return b"\x01" + count + b"".join(sized)
        nulls = [index for index, item in enumerate(items) if item is None]
        indexes = b"".join(map(number, (len(nulls), *nulls)))
        return b"\x00" + indexes + count + b"".join(item for item in items if item is not None)

    def deserialize(data: bytes) -> list[T | None]:
        at, nulls = 1, frozenset[int]()
        if data[0] == 0:
            nulls = frozenset(each for (each,) in _INT.iter_unpack(data[5 : 5 + 4 * number_at(data, 1)[0]]))
            at = 5 + 4 * len(nulls)
        (count,) = number_at(data, at)
        at += 4
        found: list[T | None] = []
        for index in range(count):
            length = -1 if index in nulls else size
            if data[0] != 0:
                (length,) = number_at(data, at)
                at += 4
            if length is None:
                raise SerializationError(f"the values of this list have one size, and {inner.name} has none")
            found.append(None if length < 0 else read(data[at : at + length]))
            at += max(length, 0)
        return found

    return Serde(serialize, deserialize, name=f"list of {inner.name}")
