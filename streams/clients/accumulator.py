"""Record accumulator: collects produced records in batches of magic 2 (Kafka: RecordAccumulator, ProducerBatch).

Each partition has one open batch. A batch is full when the next record would make it larger than the limit. Records
with a key go to the partition of its murmur2 hash, others to one that changes with each full batch, as those of Java's
default partitioner (KIP-794 without its adaption to slow brokers). There are two implementations, in C
(`_accumulator.c`), and here; this text is the specification, and a test compares both.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from types import MethodType
from typing import Any, Final, NoReturn

from odradek.protocol.batch import HEADER_SIZE, LOG_OVERHEAD, MAGIC, sealed
from odradek.protocol.errors import ErrorCode
from odradek.protocol.records import Record, write_records_in_python
from odradek.streams.murmur2 import partition_of

RECORD_OVERHEAD: Final = 40
"""The longest lengths, deltas and attributes of a record."""
UNKNOWN_PARTITION: Final = -190
Refuse = Callable[[int, str, int], NoReturn]
"""Raises the exception of an error code, with a reason and the number that is wrong."""


class ProducerBatchInPython:
    """A batch of one partition; it has the length of its bytes."""

    def __init__(self, owner: AccumulatorInPython, topic: str, partition: int, timestamp: int) -> None:
        self.topic, self.partition, self.count = topic, partition, 0
        self.begun_s = time.monotonic()
        self.first_timestamp = self.max_timestamp = timestamp
        self._origins: list[Any] = []
        self._data = bytearray(HEADER_SIZE)
        self._owner = owner
        owner.bytes += HEADER_SIZE

    def add(self, record: Record, origin: Any, source: Any) -> None:
        """Add a record, whose offset is that in the batch."""
        payload = write_records_in_python([record], 0, self.first_timestamp)
        self._data += payload
        self._origins.append(origin if source is None else MethodType(origin, source))
        self._owner.bytes += len(payload)
        self._owner.records += 1
        self.count += 1
        self.max_timestamp = max(self.max_timestamp, record.timestamp_ms)

    def seal(self, producer_id: int, epoch: int, sequence: int, attributes: int) -> None:
        """Write the header."""
        header = header_of(self, len(self._data), producer_id, epoch, sequence, attributes)
        self._data[:HEADER_SIZE] = sealed(header, self._data[HEADER_SIZE:])[:HEADER_SIZE]

    def origins(self) -> list[Any]:
        """The callbacks of the records, or None for each."""
        return list(self._origins)

    def view(self) -> memoryview:
        """The bytes of the sealed batch."""
        return memoryview(self._data)

    def __len__(self) -> int:
        return len(self._data)

    def __del__(self) -> None:
        self._owner.bytes -= len(self._data)
        self._owner.records -= self.count


class AccumulatorInPython:
    """The batches of all partitions. Only one thread at a time calls its methods."""

    def __init__(
        self,
        batch_bytes: int,
        record_bytes: int,
        most_bytes: int,
        most_records: int,
        sticky: int,
        partitions_of: Callable[[str], int],
        refuse: Refuse,
        /,
    ) -> None:
        """`most_bytes` and `most_records` bound all batches that exist, `record_bytes` one record; `sticky` is a number
        that chooses the first partition without a key. `partitions_of` returns the partition count of a new topic.
        """
        self._batch_bytes, self._record_bytes = batch_bytes, record_bytes
        self._most_bytes, self._most_records = most_bytes, most_records
        self._sticky = sticky
        self._partitions_of, self._refuse = partitions_of, refuse
        self._counts: dict[str, int] = {}
        self._open: dict[tuple[str, int], ProducerBatchInPython] = {}
        self._full: list[ProducerBatchInPython] = []
        self.bytes = 0
        """The bytes of all batches that exist."""
        self.records = 0
        """The records of all batches that exist."""

    @property
    def full(self) -> int:
        """How many batches are full."""
        return len(self._full)

    def produce(
        self,
        topic: str,
        value: Any,
        key: Any,
        partition: int,
        origin: Any,
        source: Any,
        timestamp: int,
        headers: Any,
        /,
    ) -> None:
        """Write a record into the batch of its partition, as confluent-kafka's Producer has it: partition -1 for the
        partitioner, timestamp 0 for now. `origin` is the callback of the record; unless `source` is None, a function
        that has `source` as its first argument. Raises BufferError while the bounds are reached, TypeError, and what
        `refuse` and `partitions_of` raise.
        """
        if self.bytes >= self._most_bytes or self.records >= self._most_records:
            raise BufferError("Local: Queue full")
        timestamp = timestamp if timestamp > 0 else int(time.time() * 1000)
        count = self._counts.get(topic) or self._counts.setdefault(topic, self._partitions_of(topic))
        key, value = _bytes_of(key), _bytes_of(value)
        pairs = list(headers.items() if isinstance(headers, Mapping) else headers or ())
        record = Record(0, timestamp, key, value, [(name, _bytes_of(content)) for name, content in pairs])
        bare = write_records_in_python([Record(0, 0, None, None, record.headers)], 0, 0)
        most = len(key or b"") + len(value or b"") + (len(bare) - _BARE if pairs else 1) + RECORD_OVERHEAD
        if most > self._record_bytes:
            self._refuse(ErrorCode.MESSAGE_TOO_LARGE, "the record is larger than message.max.bytes", most)
        if partition < 0:
            partition = self._sticky % count if key is None else partition_of(key, count)
        elif partition >= count:
            self._refuse(UNKNOWN_PARTITION, "the topic has no such partition", partition)
        place = (topic, partition)
        batch = self._open.get(place)
        if batch is not None and len(batch) + most > self._batch_bytes:
            self._finish(place)
            batch = None
        if batch is None:
            batch = self._open[place] = ProducerBatchInPython(self, topic, partition, timestamp)
        batch.add(record._replace(offset=batch.count), origin, source)

    def due(self, begun_before: float, /) -> Sequence[ProducerBatchInPython]:
        """Take the full batches, and those that began before this monotonic time."""
        for place in [place for place, batch in self._open.items() if batch.begun_s <= begun_before]:
            self._finish(place)
        full, self._full = self._full, []
        return full

    def set_partitions(self, topic: str, partitions: int, /) -> None:
        """Set the partition count of a topic, which only grows."""
        self._counts[topic] = max(partitions, self._counts.get(topic, 0))

    def _finish(self, place: tuple[str, int]) -> None:
        self._full.append(self._open.pop(place))
        self._sticky += 1


_BARE: Final = len(write_records_in_python([Record(0, 0, None, None)], 0, 0)) - 1
"""The bytes of a record without key, value and headers, before its count of headers."""


def header_of(batch: Any, size: int, producer_id: int, epoch: int, sequence: int, attributes: int) -> tuple[int, ...]:
    """The header of a batch whose whole size is `size`, without its checksum."""
    return (
        0,
        size - LOG_OVERHEAD,
        -1,
        MAGIC,
        0,
        attributes,
        batch.count - 1,
        batch.first_timestamp,
        batch.max_timestamp,
        producer_id,
        epoch,
        sequence,
        batch.count,
    )


def _bytes_of(content: Any) -> bytes | None:
    if content is None or isinstance(content, bytes):
        return content
    return content.encode() if isinstance(content, str) else bytes(memoryview(content))


Accumulator: Any = AccumulatorInPython
checked_text: Callable[[Any], Any] = str.encode
"""For a text with a UTF-8 form: the text, of which `produce` writes that form, or these bytes. Raises what str.encode
raises.
"""
try:
    from odradek.streams.clients import _accumulator

    Accumulator = _accumulator.Accumulator
    checked_text = _accumulator.checked_text
except (ImportError, AttributeError):  # installed without a compiler, or built from older sources
    pass
