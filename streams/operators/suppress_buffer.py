"""Suppress buffer: the store of suppress(), with changes in due order (Kafka: InMemoryTimeOrderedKeyValueChangeBuffer).

A key has one position in the order, that of the first of its changes; later changes take that position. The buffer is
in memory. It is logged at commits, a record for each key that has changed since; the producer sets its timestamp:

    key     the serialized key
    value   record context ‖ prior ‖ old ‖ new ‖ time(8), with the header v=3; null for a removed key

Record context: timestamp(8) ‖ offset(8) ‖ length(4) ‖ topic ‖ partition(4) ‖ headers; headers: count(4), then
length(4), key, length(4), value of each, where a length of -1 is null. The values have a length prefix, -1 for null; an
old value that equals the prior one has the length -2 and no content. The prior value is the one before the key entered
the buffer, which the table downstream still shows.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from sortedcontainers import SortedDict

from odradek.streams.errors import SerializationError, StreamsError
from odradek.streams.java_order import hash_set_order_of_bytes
from odradek.streams.records import NO_TIMESTAMP, Change, Headers, Stamped
from odradek.streams.serdes import Serde
from odradek.streams.stores.interface import ChangelogRecord, StateStore, StoreContext, not_open

_LONG: Final = struct.Struct(">q")
_INT: Final = struct.Struct(">i")
_NULL: Final = -1
_AS_PRIOR: Final = -2
VERSION_HEADER: Final[Headers] = [("v", b"\x03")]
NO_TIME: Final = 2**63 - 1


class Origin(NamedTuple):
    """The source record of a change (ProcessorRecordContext)."""

    timestamp: int
    offset: int
    topic: str
    partition: int
    headers: Headers

    def encode(self) -> bytes:
        """The serialization in the changelog."""
        topic = self.topic.encode()
        parts = [_LONG.pack(self.timestamp), _LONG.pack(self.offset), _sized(topic), _INT.pack(self.partition)]
        headers = self.headers or []
        parts.append(_INT.pack(len(headers)))
        for name, value in headers:
            parts += [_sized(name.encode()), _sized(value)]
        return b"".join(parts)

    def size(self) -> int:
        """Kafka's estimate of its size in memory, in bytes."""
        headers = sum(len(name.encode()) + len(value or b"") for name, value in self.headers or ())
        return 8 + 8 + len(self.topic) + 4 + headers


class Buffered(NamedTuple):
    """The buffered entry of a key; values are serialized."""

    prior: bytes | None
    old: bytes | None
    new: bytes | None
    origin: Origin

    def encode(self, time: int) -> bytes:
        """The serialization in the changelog."""
        old = _INT.pack(_AS_PRIOR) if self.old is not None and self.old == self.prior else _sized(self.old)
        return b"".join([self.origin.encode(), _sized(self.prior), old, _sized(self.new), _LONG.pack(time)])

    def size(self) -> int:
        """Kafka's estimate of its size in memory, in bytes."""
        old = 0 if self.old is None or self.old == self.prior else len(self.old)
        return len(self.prior or b"") + old + len(self.new or b"") + self.origin.size()


class Eviction(NamedTuple):
    """An entry that leaves the buffer."""

    key: Any
    change: Change
    origin: Origin


def _sized(data: bytes | None) -> bytes:
    return _INT.pack(_NULL) if data is None else _INT.pack(len(data)) + data


class _BufferReader:
    """Parses a value of the changelog."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def number(self, packing: struct.Struct) -> int:
        (found,) = packing.unpack_from(self._data, self._at)
        self._at += packing.size
        return int(found)

    def sized(self, same: bytes | None = None) -> bytes | None:
        length = self.number(_INT)
        if length == _NULL:
            return None
        if length == _AS_PRIOR:
            return same
        if not 0 <= length <= len(self._data) - self._at:
            raise struct.error(f"a length of {length}, with {len(self._data) - self._at} bytes left")
        self._at += length
        return self._data[self._at - length : self._at]

    def buffered(self) -> tuple[Buffered, int]:
        timestamp, offset = self.number(_LONG), self.number(_LONG)
        topic, partition = (self.sized() or b"").decode(), self.number(_INT)
        headers = [((self.sized() or b"").decode(), self.sized()) for _ in range(max(0, self.number(_INT)))]
        prior = self.sized()
        old = self.sized(prior)
        new = self.sized()
        origin = Origin(timestamp, offset, topic, partition, headers or None)
        return Buffered(prior, old, new, origin), self.number(_LONG)


@dataclass(frozen=True)
class SuppressBufferBuilder:
    """Builds the buffer of each task. Its changelog has the configs of a key-value store's."""

    name: str
    key_serde: Serde[Any] | None
    value_serde: Serde[Any] | None
    logging: bool = True
    log_config: Mapping[str, str] = field(default_factory=dict)
    kind: str = "key-value"
    retention_ms: int = 0
    history_retention_ms: int = 0

    def build(self) -> SuppressBuffer:
        """A buffer that is not open yet."""
        return SuppressBuffer(self)


class SuppressBuffer(StateStore):
    """One task's buffer."""

    persistent = False

    def __init__(self, builder: SuppressBufferBuilder) -> None:
        self.name = builder.name
        self._builder = builder
        self._context: StoreContext | None = None
        self._order: SortedDict[tuple[int, bytes], Buffered] = SortedDict()
        self._places: dict[bytes, tuple[int, bytes]] = {}
        self._changed: dict[bytes, None] = {}
        self.size_bytes = 0
        """Kafka's estimate of the content's size."""

    def init(self, context: StoreContext) -> None:
        self._context = context
        key = self._builder.key_serde or context.config.get("default.key.serde")
        value = self._builder.value_serde or context.config.get("default.value.serde")
        if not isinstance(key, Serde) or not isinstance(value, Serde):
            raise StreamsError(f"store {self.name}: specify serdes, or set defaults in the configuration")
        self._key, self._value = key, value

    @property
    def is_open(self) -> bool:
        return self._context is not None

    def close(self) -> None:
        self._context = None
        self._order.clear()
        self._places.clear()
        self._changed.clear()
        self.size_bytes = 0

    def flush(self) -> None:
        """No effect: the buffer is in memory only."""

    def flush_cache(self) -> None:
        """Log every key that has changed."""
        context = self._context
        if context is None:
            raise not_open(self.name)
        for key in hash_set_order_of_bytes(self._changed):
            place = self._places.get(key)
            if place is None:
                context.log(self.name, key, None, NO_TIMESTAMP)
            else:
                context.log(self.name, key, self._order[place].encode(place[0]), NO_TIMESTAMP, VERSION_HEADER)
        self._changed.clear()

    def restore(self, records: Sequence[ChangelogRecord]) -> None:
        for key, value, _, _ in records:
            if value is None:
                self._remove(key)
                continue
            try:
                buffered, time = _BufferReader(value).buffered()
            except (struct.error, UnicodeDecodeError) as error:
                raise SerializationError(f"store {self.name}: its changelog has an invalid record: {error}") from error
            self._put(time, key, buffered)

    # ---- called by the operator

    def put(self, time: int, key: Any, change: Change, origin: Origin) -> None:
        """Buffer a change. Raises SerializationError."""
        try:
            key_bytes = self._key.serialize(key)
            old = None if change.old is None else self._value.serialize(change.old)
            new = None if change.new is None else self._value.serialize(change.new)
        except Exception as error:
            raise SerializationError(
                f"store {self.name}: the serdes {self._key} and {self._value} cannot take a key of type "
                f"{type(key).__name__} with values of type {type(change.new).__name__}: {error}"
            ) from error
        place = self._places.get(key_bytes)
        prior = old if place is None else self._order[place].prior
        self._put(time, key_bytes, Buffered(prior, old, new, origin))
        self._changed[key_bytes] = None

    def evict_while(self, holds: Callable[[], bool], emit: Callable[[Eviction], None]) -> None:
        """Emit and remove the entries that are due first, while `holds()` is true and the buffer is not empty."""
        order = self._order
        while order and holds():
            place, buffered = order.peekitem(0)
            read = self._value.deserialize
            old = None if buffered.old is None else read(buffered.old)
            new = None if buffered.new is None else read(buffered.new)
            emit(Eviction(self._key.deserialize(place[1]), Change(new, old), buffered.origin))
            self._remove(place[1])
            self._changed[place[1]] = None

    def prior_value(self, key: Any) -> tuple[Stamped | None] | None:
        """The row that the table downstream shows for a buffered key, in a tuple; None for a key that is not
        buffered.
        """
        place = self._places.get(self._key.serialize(key))
        if place is None:
            return None
        prior = self._order[place].prior
        return ((None if prior is None else (self._value.deserialize(prior), -1)),)

    def __len__(self) -> int:
        return len(self._order)

    @property
    def earliest(self) -> int:
        """The time of the first entry; the largest timestamp of an empty buffer."""
        return int(self._order.peekitem(0)[0][0]) if self._order else NO_TIME

    # ---- internals

    def _put(self, time: int, key: bytes, buffered: Buffered) -> None:
        place = self._places.get(key)
        if place is None:
            place = self._places[key] = (time, key)
        else:
            self.size_bytes -= 8 + len(key) + self._order[place].size()
        self._order[place] = buffered
        self.size_bytes += 8 + len(key) + buffered.size()

    def _remove(self, key: bytes) -> None:
        place = self._places.pop(key, None)
        if place is not None:
            self.size_bytes -= 8 + len(key) + self._order.pop(place).size()
