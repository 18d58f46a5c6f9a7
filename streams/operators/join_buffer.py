"""Join buffer: stream records that wait for the grace period before they join a versioned table (KIP-923).

A store in time order (RocksDBTimeOrderedKeyValueBuffer). Key: 0, timestamp (8 bytes), key, a sequence number for equal
timestamps (4). Value: the record's context (timestamp, offset, topic, partition, headers), two lengths of -1 for values
that a buffer of tables would have, and the value with its length; in the changelog followed by eight zero bytes.
Records restored from a changelog continue to wait.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, cast

from odradek.streams.context import TaskContext
from odradek.streams.nodes import default_serde
from odradek.streams.records import NO_TIMESTAMP, Headers
from odradek.streams.serdes import BYTES
from odradek.streams.stores.builders import StoreBuilder
from odradek.streams.stores.interface import ChangelogRecord, StateStore, StoreContext

_TIME_FIRST: Final = 0
_KEY: Final = struct.Struct(">Bq")
_INT: Final = struct.Struct(">i")
_TIMES: Final = struct.Struct(">qq")
_NULL: Final = _INT.pack(-1)
_PADDING: Final = bytes(8)


@dataclass(frozen=True)
class JoinBufferBuilder(StoreBuilder):
    """Describes the buffer of one join; `retention_ms` is the grace period."""

    def build(self) -> StateStore:
        """A buffer of this description, not open yet."""
        return JoinBuffer(self)


class Waiting(NamedTuple):
    """A record that is due. `context`: timestamp, headers, topic, partition, offset."""

    row: bytes
    key: Any
    value: Any
    context: tuple[int, Headers, str | None, int, int]


class JoinBuffer(StateStore):
    """Records by timestamp, each until the stream time of the buffer is past it by the grace period."""

    def __init__(self, spec: JoinBufferBuilder) -> None:
        self.name = spec.name
        self.persistent = spec.persistent
        self._spec = spec
        self._grace_ms = spec.retention_ms
        self._stream_time = NO_TIMESTAMP
        self._number = 0
        self._rows: Any = StoreBuilder(spec.name, "key-value", BYTES, BYTES, spec.persistent, logging=False).build()

    @property
    def is_open(self) -> bool:
        return bool(self._rows.is_open)

    def init(self, context: StoreContext) -> None:
        """Open the buffer. Serdes that were not given are the application's."""
        self._rows.init(_Unlogged(context))
        self._context = cast(TaskContext, context)
        spec = self._spec
        key = default_serde(spec.key_serde, "default.key.serde", self._context)
        value = default_serde(spec.value_serde, "default.value.serde", self._context)
        self._write_key, self._read_key = key.serialize, key.deserialize
        self._write_value, self._read_value = value.serialize, value.deserialize

    def put(self, key: Any, value: Any, timestamp: int) -> bool:
        """Buffer the current record. False where it is due already. Raises ValueError for a null key."""
        if key is None:
            raise ValueError("key cannot be null")
        if self._stream_time - self._grace_ms > timestamp:
            return False
        self._number = self._number + 1 & 0x7FFFFFFF
        row = _KEY.pack(_TIME_FIRST, timestamp) + self._write_key(key) + _INT.pack(self._number)
        written = self._write_value(value)
        entry = b"".join((_pack_context(self._context), _NULL, _NULL, _INT.pack(len(written)), written))
        if timestamp > self._stream_time:
            self._stream_time = timestamp
        self._rows.put(row, entry)
        self._log(row, entry + _PADDING)
        return True

    def due(self) -> Iterator[Waiting]:
        """The due records, the earliest first. They stay until they are removed."""
        latest = self._stream_time - self._grace_ms
        if latest < 0:
            return
        for row, entry in self._rows.range(None, _KEY.pack(_TIME_FIRST, latest + 1)):
            context, at = _unpack_context(entry)
            length = _INT.unpack_from(entry, at + 8)[0]
            value = self._read_value(entry[at + 12 : at + 12 + length])
            yield Waiting(row, self._read_key(row[_KEY.size : -4]), value, context)

    def remove(self, waiting: Waiting) -> None:
        """Remove a record."""
        self._rows.put(waiting.row, None)
        self._log(waiting.row, None)

    def _log(self, row: bytes, entry: bytes | None) -> None:
        # Java passes no timestamp here, and its producer sets wall-clock time
        self._context.log(self.name, row, entry, self._context.system_time_ms())

    def restore(self, records: Sequence[ChangelogRecord]) -> None:
        self._rows.restore(records)
        for row, *_ in records:
            _, timestamp = _KEY.unpack_from(row)
            self._stream_time = max(self._stream_time, timestamp)
            self._number = max(self._number, _INT.unpack_from(row, len(row) - 4)[0])

    def flush(self) -> None:
        self._rows.flush()

    def close(self) -> None:
        self._rows.close()


class _Unlogged:
    """The task's context for the inner store, whose writes the buffer logs in another format."""

    def __init__(self, context: StoreContext) -> None:
        self._context = context

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)

    def log(self, *entry: Any) -> None:
        """No effect: the buffer logs changes."""


def _pack_context(context: TaskContext) -> bytes:
    """The context of the current record (ProcessorRecordContext.serialize)."""
    topic = (context.topic or "").encode()
    parts = [_TIMES.pack(context.timestamp, context.offset), _INT.pack(len(topic)), topic]
    headers = context.headers or ()
    parts += (_INT.pack(context.partition), _INT.pack(len(headers)))
    for name, value in headers:
        written = name.encode()
        parts += (_INT.pack(len(written)), written)
        parts += (_NULL,) if value is None else (_INT.pack(len(value)), value)
    return b"".join(parts)


def _unpack_context(data: bytes) -> tuple[tuple[int, Headers, str | None, int, int], int]:
    """Timestamp, headers, topic, partition, offset; and where the rest begins."""
    timestamp, offset = _TIMES.unpack_from(data)
    topic, at = _sized(data, _TIMES.size)
    partition, count = struct.unpack_from(">ii", data, at)
    at += 8
    headers: list[tuple[str, bytes | None]] = []
    for _ in range(count):
        name, at = _sized(data, at)
        value, at = _sized(data, at)
        headers.append(((name or b"").decode(), value))
    return (timestamp, headers or None, (topic or b"").decode() or None, partition, offset), at


def _sized(data: bytes, at: int) -> tuple[bytes | None, int]:
    length = _INT.unpack_from(data, at)[0]
    at += 4
    return (None, at) if length < 0 else (bytes(data[at : at + length]), at + length)
