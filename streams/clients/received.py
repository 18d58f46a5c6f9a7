"""Received records: those of one partition in a Fetch response, as messages (Kafka: CompletedFetch).

Batches are checked and decompressed one at a time, when their first record is taken. Control batches, the records of
aborted transactions (KIP-98) and those before the requested offset are skipped. There are two implementations, in C
(`_received.c`), and here; this text is the specification, and a test compares both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final

from odradek.protocol.batch import CODEC_MASK, HEADER_SIZE, MAX_DECOMPRESSED, Header, crc_ok, read_header
from odradek.protocol.compression import Buffer, decompress
from odradek.protocol.errors import ProtocolError
from odradek.protocol.records import Chain, Record, read_records

Row = tuple[Any, int, int, list[tuple[str, bytes | None]] | None, Any, Any]
"""A record, its offset, timestamp, headers, key and value; both are bytes, or texts."""
Inflate = Callable[[int, Buffer], Buffer]
"""Decompresses a payload with the codec of this number. Raises KafkaError."""
CREATE_TIME: Final = 1
LOG_APPEND_TIME: Final = 2


class ReceivedRecordInPython:
    """A record, with the methods of confluent-kafka's Message."""

    __slots__ = ("_partition", "_record", "_timestamp_type", "_topic")

    def __init__(self, record: Record, topic: str, partition: int, timestamp_type: int) -> None:
        self._record, self._topic, self._partition, self._timestamp_type = record, topic, partition, timestamp_type

    def key(self) -> bytes | None:
        """The key, or None."""
        return self._record.key

    def value(self) -> bytes | None:
        """The value, or None."""
        return self._record.value

    def headers(self) -> list[tuple[str, bytes | None]] | None:
        """Names and values, or None."""
        return list(self._record.headers) or None

    def topic(self) -> str:
        """The topic."""
        return self._topic

    def partition(self) -> int:
        """The partition."""
        return self._partition

    def offset(self) -> int:
        """The offset."""
        return self._record.offset

    def timestamp(self) -> tuple[int, int]:
        """The type of the timestamp, and the timestamp in ms."""
        return self._timestamp_type, self._record.timestamp_ms

    def error(self) -> None:
        """None: this is a record."""
        return

    @staticmethod
    def rows(records: list[ReceivedRecordInPython], key_text: bool, value_text: bool, /) -> Iterable[Row]:
        """The parts of each record in turn. Texts are those of Java's decoder, which replaces what is no UTF-8."""
        for each in records:
            key, value = each.key(), each.value()
            yield (
                each,
                each.offset(),
                each.timestamp()[1],
                each.headers(),
                key.decode("utf-8", "replace") if key_text and key is not None else key,
                value.decode("utf-8", "replace") if value_text and value is not None else value,
            )


class ReceivedRecordsInPython:
    """The records of one partition in a response."""

    def __init__(
        self,
        data: Buffer,
        topic: str,
        partition: int,
        start: int,
        aborted: Sequence[tuple[int, int]],
        inflate: Inflate,
        /,
    ) -> None:
        """`data` are batches of magic 2, of which the last may be incomplete, `start` is the offset that was
        requested, `aborted` are first offsets and producer ids of aborted transactions, ascending.
        """
        self._data = memoryview(data)
        self._topic, self._partition, self._start = topic, partition, start
        self._aborted = list(aborted)
        self._aborting: list[int] = []
        self._inflate = inflate
        self._at = 0
        self._records: Iterator[Record] = iter(())
        self._last_offset = self._timestamp_type = -1
        self._begun = False
        self.position = start
        """The offset of the next record."""
        self.next_offset = start
        """The offset behind all batches."""
        self.leader_epoch = -1
        """That of the last batch, or -1."""
        at = 0
        while header := self._header(at):
            self.next_offset = max(start, header.next_offset)
            self.leader_epoch = header.leader_epoch
            at += header.size

    def take(self, most: int, /) -> list[ReceivedRecordInPython]:
        """The next records, so many at the most; an empty list behind the last. Raises ValueError for a malformed
        batch, KafkaError for one that cannot be decompressed.
        """
        found: list[ReceivedRecordInPython] = []
        while len(found) < most:
            if not self._begun and not self._begin_batch():
                break
            try:
                record = next(self._records, None)
            except ProtocolError as error:
                raise ValueError(f"a record is malformed: {error}") from None
            if record is None:
                self._begun = False
                self.position = max(self.position, self._last_offset + 1)
            elif record.offset >= self.position:
                found.append(ReceivedRecordInPython(record, self._topic, self._partition, self._timestamp_type))
                self.position = record.offset + 1
        return found

    def _header(self, at: int) -> Header | None:
        """The header of a whole batch, or None."""
        if len(self._data) - at < HEADER_SIZE:
            return None
        header = read_header(self._data, at)
        return header if HEADER_SIZE <= header.size <= len(self._data) - at else None

    def _begin_batch(self) -> bool:
        while header := self._header(self._at):
            at = self._at
            if header.magic != 2 or not crc_ok(self._data, at, header):
                raise ValueError(f"batch at offset {header.base_offset}: its magic or its checksum is wrong")
            self._at += header.size
            self._last_offset = header.last_offset
            if self._is_aborted(header) or header.is_control or header.last_offset < self._start:
                self.position = max(self.position, header.next_offset)
                continue
            payload: Buffer = self._data[at + HEADER_SIZE : self._at]
            if header.attributes & CODEC_MASK:
                payload = self._inflate(header.codec, payload)
            append_time = header.max_timestamp if header.is_log_append_time else None
            self._timestamp_type = CREATE_TIME if append_time is None else LOG_APPEND_TIME
            self._records = read_records(
                Chain(
                    payload,
                    0,
                    len(payload),
                    header.record_count,
                    header.base_offset,
                    header.base_timestamp,
                    append_time,
                )
            )
            self._begun = True
            return True
        self.position = max(self.position, self.next_offset)
        return False

    def _is_aborted(self, header: Header) -> bool:
        while self._aborted and self._aborted[0][0] <= header.last_offset:
            self._aborting.append(self._aborted.pop(0)[1])
        if not (header.is_transactional or header.is_control) or header.producer_id not in self._aborting:
            return False
        if header.is_control:  # a marker ends the transaction of its producer
            self._aborting.remove(header.producer_id)
        return True


def inflate(codec: int, payload: Buffer) -> Buffer:
    """The decompressed payload of a batch. Raises KafkaError."""
    return decompress(codec, payload, MAX_DECOMPRESSED)


ReceivedRecords: Any = ReceivedRecordsInPython
ReceivedRecord: Any = ReceivedRecordInPython
try:
    from odradek.streams.clients import _received

    ReceivedRecords, ReceivedRecord = _received.ReceivedRecords, _received.ReceivedRecord
except (ImportError, AttributeError):  # installed without a compiler, or built from older sources
    pass
