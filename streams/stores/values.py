"""Codec of values: the forms that a store keeps and logs.

A value is serialized once, when it is put: its bytes go to the changelog and to RocksDB, and their length counts in the
cache. Memory keeps the value itself if it is immutable, its bytes otherwise, as Java does.

Of a timestamped value `(value, timestamp)` the local store holds timestamp (8 bytes, big-endian), then the value
(KIP-258); the changelog has the value, and the timestamp is the record's.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final

from odradek.streams.errors import StreamsError
from odradek.streams.serdes import LONG as INT64
from odradek.streams.stores.interface import ChangelogRecord, StoreContext, foreign, unreadable

if TYPE_CHECKING:
    from odradek.streams.serdes import Serde
    from odradek.streams.stores.builders import StoreBuilder

LONG: Final = struct.Struct(">q")
_pack: Final = LONG.pack
_unpack: Final = LONG.unpack_from


class ValueCodec:
    """The codec of one store. A cell is the form in memory: the value, or bytes, or `(bytes, timestamp)`."""

    __slots__ = ("deserialize", "encode", "immutable", "serialize", "stamped", "store")

    def __init__(self, store: str, serde: Serde[Any], stamped: bool) -> None:
        self.store = store
        self.stamped = stamped
        self.serialize = serde.serialize
        self.deserialize = serde.deserialize
        self.immutable = serde.immutable
        self.encode = self._make_encode()

    @property
    def holds_counts(self) -> bool:
        """Whether values are integers of 8 bytes with timestamps, as those of `LruEntries.count`."""
        return self.stamped and self.immutable and self.serialize == INT64.serialize

    def _make_encode(self) -> Callable[[Any], tuple[Any, bytes | None]]:
        """encode(): cell and bytes of a value. It raises StoreSerializationError."""
        store, serialize, stamped, immutable = self.store, self.serialize, self.stamped, self.immutable

        def encode(value: Any) -> tuple[Any, bytes | None]:
            if value is None:
                return None, None
            bare = value[0] if stamped else value
            if bare is None:
                return None, None  # ValueAndTimestamp.make has no null value either
            try:
                raw = serialize(bare)
            except Exception as error:
                raise unreadable(store, "value", bare, error) from error
            if immutable:
                return value, raw
            return ((raw, value[1]) if stamped else raw), raw

        return encode

    def bytes_of(self, bare: Any) -> bytes:
        """A bare value's bytes. Raises StoreSerializationError."""
        try:
            return self.serialize(bare)
        except Exception as error:
            raise unreadable(self.store, "value", bare, error) from error

    def decode(self, cell: Any) -> Any:
        """The value of a cell. Raises StoreSerializationError."""
        if cell is None or self.immutable:
            return cell
        try:
            return (self.deserialize(cell[0]), cell[1]) if self.stamped else self.deserialize(cell)
        except Exception as error:
            raise foreign(self.store, error) from error

    def stored(self, cell: Any, raw: bytes | None) -> bytes | None:
        """The form in RocksDB, from cell and bytes."""
        return _pack(cell[1]) + raw if self.stamped and raw is not None else raw

    def decode_stored(self, data: bytes | None) -> Any:
        """The value of the form in RocksDB. Raises StoreSerializationError."""
        if data is None:
            return None
        try:
            return (self.deserialize(data[8:]), _unpack(data)[0]) if self.stamped else self.deserialize(data)
        except Exception as error:
            raise foreign(self.store, error) from error

    def cell_of_stored(self, data: bytes) -> tuple[Any, bytes]:
        """Cell and bytes of the form in RocksDB. Raises StoreSerializationError."""
        try:
            if self.stamped:
                raw, timestamp = data[8:], _unpack(data)[0]
                return (self.deserialize(raw) if self.immutable else raw, timestamp), raw
            return (self.deserialize(data) if self.immutable else data), data
        except Exception as error:
            raise foreign(self.store, error) from error

    def restored_rows(self, records: Iterable[ChangelogRecord], as_bytes: bool) -> list[tuple[bytes, Any]]:
        """The rows of changelog records in the form of RocksDB (`as_bytes`) or of memory."""
        if not as_bytes:
            restored = self._restored_cell
            return [(key, restored(raw, timestamp)) for key, raw, timestamp, _ in records]
        if not self.stamped:
            return [(key, raw) for key, raw, _, _ in records]
        return [(key, None if raw is None else _pack(timestamp) + raw) for key, raw, timestamp, _ in records]

    def _restored_cell(self, raw: bytes | None, timestamp: int) -> Any:
        if raw is None:
            return None
        kept = self.deserialize(raw) if self.immutable else raw
        return (kept, timestamp) if self.stamped else kept

    def bare(self, value: Any) -> Any:
        """A value without its timestamp."""
        return value[0] if self.stamped and value is not None else value


def serde_for(spec: StoreBuilder, context: StoreContext, is_key: bool) -> Serde[Any]:
    """The serde of keys or values: the store's own, or the application's default. Raises StreamsError."""
    serde = spec.key_serde if is_key else spec.value_serde
    if serde is None:
        setting = "default.key.serde" if is_key else "default.value.serde"
        serde = context.config.get(setting)
        if serde is None:
            raise StreamsError(
                f"store {spec.name}: specify a {'key' if is_key else 'value'} serde, or set one through {setting}"
            )
    return serde.configured(context.config).for_topic(changelog_topic(context.application_id, spec.name), is_key)


def changelog_topic(application_id: str, store: str) -> str:
    """The name of a store's changelog topic."""
    return f"{application_id}-{store}-changelog"


def key_bytes(store: str, serialize: Callable[[Any], bytes], key: Any) -> bytes:
    """A key's bytes. Raises StoreSerializationError, for null too."""
    if key is None:
        raise unreadable(store, "key", key, ValueError("null"))
    try:
        return serialize(key)
    except Exception as error:
        raise unreadable(store, "key", key, error) from error
