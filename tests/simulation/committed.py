"""The batches of a partition and which of them are committed: the history that compaction must not contradict (C1).

Every batch that a leader appended is stored whole, with the batch before it. A compacted log therefore stands for one
line of batches, from its last one back to the first, and each missing record must be one that compaction may remove.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from odradek.protocol.batch import Header, Record, build, records
from tests.simulation.verdict import COMMIT

VALUE: Final = "value"
"""The header of a tombstone that has the value its producer chose."""


@dataclass(frozen=True, slots=True, eq=False)
class WrittenBatch:
    """A batch as its leader wrote it. `content` has its records by offset, including the one of a marker."""

    header: Header
    before: WrittenBatch | None
    content: dict[int, Record]

    @property
    def first(self) -> int:
        return self.header.base_offset

    @property
    def last(self) -> int:
        return self.header.last_offset

    def line(self, until: WrittenBatch | None = None) -> list[WrittenBatch] | None:
        """The batches that lead to this one, oldest first, from behind `until`; None where that is not among them."""
        found: list[WrittenBatch] = []
        each: WrittenBatch | None = self
        while each is not until:
            if each is None or (until is not None and each.first <= until.first):
                return None
            found.append(each)
            each = each.before
        found.reverse()
        return found


def records_of(data: bytes) -> dict[int, Record]:
    """The records of a batch, by offset."""
    return {each.offset: each for each in records(data, 0)}


def value_of(record: Record) -> bytes:
    """The value that the producer of a record chose; a tombstone carries it in a header."""
    if record.value is not None:
        return record.value
    return next(value or b"" for name, value in record.headers if name == VALUE)


@dataclass(slots=True, eq=False)
class Transaction:
    """A transaction in one partition: its data and, once it has ended, the offset of its marker and its outcome."""

    producer_id: int
    offsets: list[int] = field(default_factory=list)
    marker: int = -1
    commits: bool | None = None


@dataclass(slots=True)
class ProducerEnd:
    """The producer state that a log must have of a producer when it has everything up to `offset`; the sequence is -1
    where none is stored.
    """

    epoch: int
    last_sequence: int
    offset: int


class Committed:
    """The committed part of one partition's history without compaction."""

    def __init__(self) -> None:
        self.batches: list[WrittenBatch] = []
        self.records: dict[int, Record] = {}
        self.by_key: dict[bytes, list[int]] = {}
        self.latest: dict[bytes, int] = {}
        """The offset of the last record of a key that every consumer may read."""
        self.transaction_of: dict[int, Transaction] = {}
        self.markers: dict[int, Transaction] = {}
        self.producers: dict[int, ProducerEnd] = {}
        self._open: dict[int, Transaction] = {}

    @property
    def end(self) -> int:
        """The offset behind the last batch."""
        return self.batches[-1].last + 1 if self.batches else 0

    def take(self, batch: WrittenBatch) -> None:
        """The next batch is committed."""
        self.batches.append(batch)
        header = batch.header
        if header.is_control:
            self._end(batch)
        else:
            self._take_data(batch)
        if header.producer_id >= 0:
            before = self.producers.get(header.producer_id)
            known = before.last_sequence if before is not None and before.epoch == header.producer_epoch else -1
            sequence = known if header.is_control else header.last_sequence
            self.producers[header.producer_id] = ProducerEnd(header.producer_epoch, sequence, batch.last)

    def _take_data(self, batch: WrittenBatch) -> None:
        header = batch.header
        for offset, record in batch.content.items():
            key = record.key or b""
            self.records[offset] = record
            self.by_key.setdefault(key, []).append(offset)
            if header.is_transactional:
                transaction = self._open.setdefault(header.producer_id, Transaction(header.producer_id))
                transaction.offsets.append(offset)
                self.transaction_of[offset] = transaction
            else:
                self._is_latest(key, offset)

    def _end(self, batch: WrittenBatch) -> None:
        producer_id = batch.header.producer_id
        transaction = self._open.pop(producer_id, None) or Transaction(producer_id)
        (marker,) = batch.content.values()
        transaction.marker, transaction.commits = batch.last, int.from_bytes((marker.key or b"")[2:4], "big") == COMMIT
        self.markers[batch.last] = transaction
        if transaction.commits:
            for offset in transaction.offsets:
                self._is_latest(self.records[offset].key or b"", offset)

    def _is_latest(self, key: bytes, offset: int) -> None:
        self.latest[key] = max(offset, self.latest.get(key, -1))

    def is_aborted(self, offset: int) -> bool:
        """Whether a record was written in a transaction that has been aborted."""
        transaction = self.transaction_of.get(offset)
        return transaction is not None and transaction.commits is False

    def is_open(self, offset: int) -> bool:
        """Whether a record was written in a transaction that has not ended."""
        transaction = self.transaction_of.get(offset)
        return transaction is not None and transaction.commits is None

    def covered_by(self, tombstone: int) -> Iterator[int]:
        """The offsets of the values that a tombstone deletes."""
        for offset in self.by_key[self.records[tombstone].key or b""]:
            if offset >= tombstone:
                return
            if self.records[offset].value is not None and not self.is_aborted(offset):
                yield offset

    def fold(self, end: int) -> dict[bytes, bytes]:
        """The map of keys to values of a consumer of committed records that has read everything below `end`."""
        found: dict[bytes, bytes] = {}
        for offset, record in self.records.items():
            transaction = self.transaction_of.get(offset)
            if offset >= end or (transaction is not None and not transaction.commits):
                continue
            key = record.key or b""
            if record.value is None:
                found.pop(key, None)
            else:
                found[key] = record.value
        return found

    def whole(self) -> bytes:
        """The history as one log of batches, with values in place of tombstones: for `verdict`."""
        return b"".join(map(_with_values, self.batches))


def _with_values(batch: WrittenBatch) -> bytes:
    header = batch.header
    content = batch.content.values()
    if not header.is_control:
        content = [each._replace(value=value_of(each), headers=()) for each in batch.content.values()]  # type: ignore[assignment]
    return bytes(
        build(
            list(content),
            base_offset=header.base_offset,
            leader_epoch=header.leader_epoch,
            producer_id=header.producer_id,
            producer_epoch=header.producer_epoch,
            base_sequence=header.base_sequence,
            transactional=header.is_transactional,
            control=header.is_control,
        )
    )
