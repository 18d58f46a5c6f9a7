"""Waiting store: records of outer stream-stream joins that wait for partners (Kafka: ListValueStore, KAFKA-10847).

A key-value store that both sides of a join share. Key: timestamp (8 bytes), 1 for the left side or 0, key. Value: all
records that wait under this key, in the format of Kafka's list serializer, each with a first byte that repeats its side
(TimestampedKeyAndJoinSideSerializer, LeftOrRightValueSerializer). The changelog has the whole list every time.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, cast

from odradek.streams.context import TaskContext
from odradek.streams.nodes import default_serde
from odradek.streams.serdes import BYTES, Serde
from odradek.streams.stores.builders import StoreBuilder
from odradek.streams.stores.interface import ChangelogRecord, StateStore, StoreContext
from odradek.streams.stores.values import changelog_topic

_KEY: Final = struct.Struct(">qB")
_INT: Final = struct.Struct(">i")
_SIZED_ENTRIES: Final = 1
"""The first byte of a list whose entries have length prefixes."""
_LIST: Final = struct.Struct(">Bi")


@dataclass(frozen=True)
class WaitingStoreBuilder(StoreBuilder):
    """Describes the store; `value_serde` is that of the left side."""

    right_serde: Serde[Any] | None = None

    def build(self) -> StateStore:
        """A store of this description, not open yet."""
        return WaitingStore(self)


class WaitingStore(StateStore):
    """Values by timestamp, side and key; several under one key keep their order of arrival."""

    def __init__(self, spec: WaitingStoreBuilder) -> None:
        self.name = spec.name
        self.persistent = spec.persistent
        self._spec = spec
        plain = StoreBuilder(spec.name, "key-value", BYTES, BYTES, spec.persistent, logging=spec.logging)
        self._store: Any = replace(plain, log_config=spec.log_config, bytes_map=spec.bytes_map).build()

    @property
    def is_open(self) -> bool:
        return bool(self._store.is_open)

    def init(self, context: StoreContext) -> None:
        """Open the store. Serdes that were not given are the application's."""
        self._store.init(context)
        spec, task = self._spec, cast(TaskContext, context)
        topic = changelog_topic(context.application_id, spec.name)
        key = default_serde(spec.key_serde, "default.key.serde", task).for_topic(topic, True)
        left = default_serde(spec.value_serde, "default.value.serde", task).for_topic(topic, False)
        right = default_serde(spec.right_serde, "default.value.serde", task).for_topic(topic, False)
        self._write_key, self._read_key = key.serialize, key.deserialize
        self._write = {True: left.serialize, False: right.serialize}
        self._read = {True: left.deserialize, False: right.deserialize}

    def add(self, key: Any, timestamp: int, left: bool, value: Any) -> None:
        """Append a value to those of the same key, timestamp and side."""
        row = self._row(key, timestamp, left)
        entry = bytes([left]) + self._write[left](value)
        known = self._store.get(row)
        count = 1 if known is None else _INT.unpack_from(known, 1)[0] + 1
        before = b"" if known is None else known[_LIST.size :]
        self._store.put(row, b"".join((_LIST.pack(_SIZED_ENTRIES, count), before, _INT.pack(len(entry)), entry)))

    def found(self, key: Any, timestamp: int, left: bool) -> None:
        """Remove the entries of this key, timestamp and side, after they found a partner."""
        row = self._row(key, timestamp, left)
        if self._store.get(row) is not None:
            self._store.put(row, None)

    def remove(self, row: bytes) -> None:
        """Remove all entries under a key of rows()."""
        self._store.put(row, None)

    def rows(self) -> Iterator[tuple[bytes, Any, int, bool, Any]]:
        """All waiting entries, by timestamp, side (the right one first) and key: (row, key, timestamp, left, value)."""
        for row, entries in self._store.all():
            timestamp, left = _KEY.unpack_from(row)
            key = self._read_key(row[_KEY.size :])
            for entry in _entries(entries):
                yield row, key, timestamp, bool(left), self._read[entry[0] == 1](entry[1:])

    def _row(self, key: Any, timestamp: int, left: bool) -> bytes:
        return _KEY.pack(timestamp, left) + self._write_key(key)

    def restore(self, records: Sequence[ChangelogRecord]) -> None:
        self._store.restore(records)

    def flush(self) -> None:
        self._store.flush()

    def close(self) -> None:
        self._store.close()


def _entries(packed: bytes) -> Iterator[bytes]:
    count = _INT.unpack_from(packed, 1)[0]
    at = _LIST.size
    for _ in range(count):
        end = at + 4 + _INT.unpack_from(packed, at)[0]
        yield packed[at + 4 : end]
        at = end
