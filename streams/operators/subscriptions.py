"""Messages of foreign-key joins on their two internal topics, and the keys of their store (KIP-213).

A subscription goes from a row of the left table to the partition of its foreign key, and requests the value there; a
response carries it back. Both carry the hash of the left value. Formats, big-endian:

    subscription   version 1 (bit 7: no hash), instruction, hash (16), primary key, partition of the primary key (4)
                   version 0 has no partition                                    (SubscriptionWrapperSerde, KIP-775)
    response       version 0 (bit 7: no hash), hash (16), value of the right table, if any
                                                                                 (SubscriptionResponseWrapperSerde)
    stored key     length of the foreign key (4), foreign key, primary key       (CombinedKeySchema)
"""

from __future__ import annotations

import struct
from typing import Any, Final, NamedTuple

from odradek.streams.errors import StreamsError
from odradek.streams.serdes import Serde

DELETE_KEY_NO_PROPAGATE: Final = 0
"""Delete the subscription, send no response."""
DELETE_KEY_AND_PROPAGATE: Final = 1
"""Delete the subscription, respond that there is no value."""
PROPAGATE_NULL_IF_NO_FK_VAL_AVAILABLE: Final = 2
"""Subscribe, respond in any case."""
PROPAGATE_ONLY_IF_FK_VAL_AVAILABLE: Final = 3
"""Subscribe, respond if there is a value."""

_NO_HASH: Final = 0x80
_HASH_BYTES: Final = 16
_INT: Final = struct.Struct(">i")


class SubscriptionWrapper(NamedTuple):
    """A row of the left table that waits for the value of its foreign key; `hash` is None where the row is deleted."""

    hash: bytes | None
    instruction: int
    primary_key: Any
    version: int
    primary_partition: int | None


class SubscriptionResponseWrapper(NamedTuple):
    """The right table's value for one row of the left; `primary_partition` is not written."""

    hash: bytes | None
    value: Any
    primary_partition: int | None = None


class CombinedKey(NamedTuple):
    """A foreign key with the primary key of its subscriber."""

    foreign_key: Any
    primary_key: Any


def subscription_serde(primary_key: Serde[Any]) -> Serde[SubscriptionWrapper]:
    """The format of subscriptions for tables with such keys. A subscription read in version 0 is stored in version 0.

    Kafka intends to write version 0 for instances of 3.3 and before (upgrade.from), and does not in 3.9.2.
    """
    write_key, read_key = primary_key.serialize, primary_key.deserialize

    def serialize(subscription: SubscriptionWrapper) -> bytes:
        digest, instruction, key, version, partition = subscription
        head = bytes((version | (_NO_HASH if digest is None else 0), instruction))
        tail = _INT.pack(partition) if version else b""
        return b"".join((head, digest or b"", write_key(key), tail))

    def deserialize(data: bytes) -> SubscriptionWrapper:
        version, digest, at = _head(data, 2)
        if version > 1:
            raise StreamsError("SubscriptionWrapper is of an incompatible version.")
        if data[1] > PROPAGATE_ONLY_IF_FK_VAL_AVAILABLE:
            raise StreamsError(f"Unknown instruction byte value = {data[1]}")
        end = len(data) - 4 if version else len(data)
        partition = _INT.unpack_from(data, end)[0] if version else None
        return SubscriptionWrapper(digest, data[1], read_key(data[at:end]), version, partition)

    return Serde(serialize, deserialize, name=f"subscription of {primary_key.name}", immutable=primary_key.immutable)


def response_serde(value: Serde[Any]) -> Serde[SubscriptionResponseWrapper]:
    """The format of responses with such values."""
    write_value, read_value = value.serialize, value.deserialize

    def serialize(response: SubscriptionResponseWrapper) -> bytes:
        digest, found, _ = response
        head = bytes((_NO_HASH if digest is None else 0,))
        return b"".join((head, digest or b"", b"" if found is None else write_value(found)))

    def deserialize(data: bytes) -> SubscriptionResponseWrapper:
        version, digest, at = _head(data, 1)
        if version > 0:
            raise StreamsError("SubscriptionResponseWrapper is of an incompatible version.")
        return SubscriptionResponseWrapper(digest, read_value(data[at:]) if len(data) > at else None)

    return Serde(serialize, deserialize, name=f"response of {value.name}", immutable=value.immutable)


def _head(data: bytes, at: int) -> tuple[int, bytes | None, int]:
    """Version, hash, and the offset of the rest; `at` is the offset of the hash."""
    if data[0] & _NO_HASH:
        return data[0] & 0x7F, None, at
    return data[0], bytes(data[at : at + _HASH_BYTES]), at + _HASH_BYTES


class CombinedKeys:
    """The stored keys of foreign and primary keys: all of one foreign key are adjacent."""

    def __init__(self, foreign_key: Serde[Any], primary_key: Serde[Any]) -> None:
        self._write_foreign = foreign_key.serialize
        self._write_primary, self._read_primary = primary_key.serialize, primary_key.deserialize

    def prefix(self, foreign_key: Any) -> bytes:
        """The common prefix of all stored keys of this foreign key."""
        written = self._write_foreign(foreign_key)
        return _INT.pack(len(written)) + written

    def stored(self, foreign_key: Any, primary_key: Any) -> bytes:
        """The stored key of both."""
        return self.prefix(foreign_key) + self._write_primary(primary_key)

    def primary_key(self, stored: bytes) -> Any:
        """The primary key of a stored key."""
        return self._read_primary(stored[4 + _INT.unpack_from(stored)[0] :])
