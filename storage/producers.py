"""The producers of a log: sequences, epochs and open transactions (KIP-98; Kafka: ProducerStateManager).

A producer numbers its records. The log accepts a batch only where its first number follows the last one of that
producer. For a batch that is among the last five of its producer, the log returns the offsets of the first write. It
rejects a producer whose epoch is no longer the latest. A transaction is open from its first batch to its marker, and
unstable until the high watermark has passed the marker as well; a read-committed consumer gets nothing at or above the
first unstable offset.

A transaction begins in a log only after its coordinator has confirmed that it contains the partition (KIP-890).
Otherwise a batch that was delayed until after the marker would leave the transaction open for ever. Before the leader
sends the request to the coordinator it stores a `Verification` here, and the batch that is written after the
coordinator's response must carry the same one. An end of the transaction meanwhile removes it (KAFKA-14884).

The state follows from the log. Snapshots (`OFFSET.snapshot`, the state before OFFSET) only shorten the replay: one is
written whenever a segment is rolled and on closing, and a log is loaded from the newest one and the batches behind it.
Kafka's format has room for the last batch of a producer only; the others are read from the log again.
"""

from __future__ import annotations

import struct
from bisect import insort
from collections import deque
from collections.abc import Iterable
from heapq import nsmallest
from typing import Final, NamedTuple

from odradek.protocol.batch import (
    CONTROL,
    MAX_SEQUENCE,
    NO_PRODUCER_EPOCH,
    NO_SEQUENCE,
    TRANSACTIONAL,
    Buffer,
    Header,
)
from odradek.protocol.checksum import crc32c
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.storage.checkpoints import CorruptFile
from odradek.storage.config import MOST_PRODUCERS, AppendOrigin
from odradek.storage.disk import Folder
from odradek.storage.index import AbortedTransaction
from odradek.storage.markers import EndTransactionMarker, read_marker

BATCHES_REMEMBERED: Final = 5
NO_OFFSET: Final = -1
SNAPSHOT_SUFFIX: Final = ".snapshot"

_SNAPSHOT_VERSION: Final = 1
_SNAPSHOT_HEAD: Final = struct.Struct(">hIi")
_SNAPSHOT_CHECKED_FROM: Final = 6
_SNAPSHOT_ENTRY: Final = struct.Struct(">qhiqiqiq")


class WrittenBatch(NamedTuple):
    """A written batch, with the fields that identify a retry of it."""

    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int

    @property
    def first_sequence(self) -> int:
        """The sequence of the first record; numbers wrap from 2^31-1 to 0."""
        return (self.last_sequence - self.offset_delta) & MAX_SEQUENCE

    @property
    def first_offset(self) -> int:
        """The offset of the first record."""
        return self.last_offset - self.offset_delta


class Verification:
    """A pending request to a coordinator to confirm that a transaction has this partition. Compared by identity."""

    __slots__ = ("asked_ms", "epoch", "epoch_per_transaction", "lowest_sequence")

    def __init__(self, epoch: int, lowest_sequence: int, epoch_per_transaction: bool, asked_ms: int) -> None:
        self.epoch = epoch
        self.lowest_sequence = lowest_sequence
        """The lowest of the sequences that wait for the coordinator; the log accepts no other as the first one."""
        self.epoch_per_transaction = epoch_per_transaction
        """Whether the producer uses a new epoch for each transaction (transactions version 2)."""
        self.asked_ms = asked_ms

    def is_of_next(self, marker_epoch: int) -> bool:
        """Whether it belongs to the transaction after the one that a marker of this epoch ends.

        A producer that has an epoch for each transaction begins the next one when it has received the decision, with
        the epoch that the markers have; the markers may arrive after its first batch.
        """
        return self.epoch_per_transaction and self.epoch >= marker_epoch

    def also(self, epoch: int, sequence: int) -> None:
        """Add a batch that waits for the coordinator."""
        if epoch > self.epoch:
            self.epoch, self.lowest_sequence = epoch, sequence
        elif epoch == self.epoch:
            self.lowest_sequence = min(self.lowest_sequence, sequence)


OPEN: Final = Verification(NO_PRODUCER_EPOCH, NO_SEQUENCE, False, 0)
"""The verification of a batch that continues an open transaction."""
WAIVED: Final = Verification(NO_PRODUCER_EPOCH, NO_SEQUENCE, False, 0)
"""The verification where transactions are not verified (transaction.partition.verification.enable=false)."""


class Producer:
    """One producer id: its epoch, its last batches and its open transaction."""

    __slots__ = ("batches", "coordinator_epoch", "epoch", "last_timestamp", "producer_id", "transaction_start")

    def __init__(self, producer_id: int, epoch: int = NO_PRODUCER_EPOCH) -> None:
        self.producer_id = producer_id
        self.epoch = epoch
        self.coordinator_epoch = -1
        self.last_timestamp = -1
        self.transaction_start = NO_OFFSET
        self.batches: deque[WrittenBatch] = deque(maxlen=BATCHES_REMEMBERED)

    @property
    def last_sequence(self) -> int:
        """The last sequence written at this epoch, -1 where there is none."""
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    def duplicate_of(self, header: Header) -> WrittenBatch | None:
        """The remembered batch with exactly the sequences of `header`, or None."""
        if header.producer_epoch == self.epoch:
            last_sequence = header.last_sequence
            for batch in self.batches:
                if batch.last_sequence == last_sequence and batch.first_sequence == header.base_sequence:
                    return batch
        return None

    def is_next(self, epoch: int, sequence: int) -> bool:
        """Whether a batch without a transaction that begins with `sequence` is the next one, as nearly every batch is;
        `ProducerState.check` allows it then.
        """
        batches = self.batches
        return (
            epoch == self.epoch and self.transaction_start < 0 and len(batches) > 0 and sequence == batches[-1][0] + 1
        )

    def append(self, last_sequence: int, last_offset: int, offset_delta: int, timestamp: int) -> None:
        """Add a written batch."""
        self.batches.append(WrittenBatch(last_sequence, last_offset, offset_delta, timestamp))
        self.last_timestamp = timestamp

    def advance(self, epoch: int) -> None:
        """Adopt an epoch; sequences of another epoch no longer count."""
        if epoch != self.epoch:
            self.batches.clear()
            self.epoch = epoch


class ProducerState:
    """All producers of one log up to `end_offset`.

    A leader calls `check` before it writes a batch, and `apply` with every batch that has been written.
    """

    __slots__ = (
        "_completed", "_folder", "_most", "_open", "_producers", "_trim_above", "_verifications", "end_offset",
        "last_snapshot", "snapshots",
    )  # fmt: skip

    def __init__(self, folder: Folder, snapshots: Iterable[int] = (), most: int = MOST_PRODUCERS) -> None:
        """`snapshots` are the offsets of the snapshot files in the folder; `most` is the limit of producers without
        an open transaction.
        """
        self._folder = folder
        self._most = self._trim_above = most
        self._producers: dict[int, Producer] = {}
        self._open: dict[int, int] = {}  # first offset -> producer id, ascending
        self._completed: dict[int, int] = {}  # first offset -> offset of the marker, not yet below the high watermark
        self._verifications: dict[int, Verification] = {}  # by producer id; does not follow from the log
        self.end_offset = 0
        self.last_snapshot = 0
        self.snapshots = sorted(snapshots)

    def __len__(self) -> int:
        return len(self._producers)

    def get(self, producer_id: int) -> Producer | None:
        """The producer, or None where the log does not have it."""
        return self._producers.get(producer_id)

    def active(self) -> list[Producer]:
        """Every producer of the log, for DescribeProducers."""
        return list(self._producers.values())

    @property
    def first_unstable_offset(self) -> int | None:
        """The start of the earliest transaction that is open, or whose marker the high watermark has not passed."""
        if self._completed:
            first = next(iter(self._completed))
            return min(first, next(iter(self._open), first))
        return next(iter(self._open)) if self._open else None

    @property
    def first_undecided_offset(self) -> int | None:
        """The start of the earliest open transaction, or None."""
        return next(iter(self._open), None)

    def on_high_watermark(self, high_watermark: int) -> None:
        """Mark the transactions whose markers are replicated as stable."""
        if self._completed:
            self._completed = {first: last for first, last in self._completed.items() if last >= high_watermark}

    @property
    def unreplicated(self) -> dict[int, int]:
        """First offset and marker of each transaction whose marker the high watermark has not passed."""
        return dict(self._completed)

    def unsettle(self, completed: dict[int, int]) -> None:
        """Mark transactions (first offset and marker) as unstable until the high watermark passes the marker."""
        self._completed = dict(sorted((self._completed | completed).items()))

    # -- before a write ------------------------------------------------------------------------------------------------

    def check(
        self,
        header: Header,
        origin: AppendOrigin,
        offset: int,
        marker: EndTransactionMarker | None,
        verification: Verification | None,
    ) -> WrittenBatch | None:
        """Check that a leader may write this batch at `offset`; returns None, or the written batch that it repeats.

        `verification` is that of a transactional batch; None where its request had no transactional id. Raises
        KafkaError: INVALID_PRODUCER_EPOCH, OUT_OF_ORDER_SEQUENCE_NUMBER, INVALID_TXN_STATE,
        TRANSACTION_COORDINATOR_FENCED, TRANSACTIONAL_ID_AUTHORIZATION_FAILED.
        """
        producer = self._producers.get(header.producer_id)
        if (
            producer is not None
            and marker is None
            and header.producer_epoch == producer.epoch
            and producer.batches
            and header.base_sequence == producer.batches[-1][0] + 1
            and (
                producer.transaction_start >= 0 and verification is not None
                if header.attributes & TRANSACTIONAL
                else producer.transaction_start < 0
            )
        ):
            return None  # the next batch of its producer, as nearly every batch is
        unverified = header.attributes & (TRANSACTIONAL | CONTROL) == TRANSACTIONAL
        if unverified and verification is None:
            code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
            raise KafkaError(code, "a transactional batch without a transactional id")
        if header.producer_id < 0:
            return None  # any negative id means that there is no producer, as in Kafka
        if origin is AppendOrigin.CLIENT and producer is not None:
            duplicate = producer.duplicate_of(header)
            if duplicate is not None:
                return duplicate
        if unverified:
            self._check_verified(header, offset, verification)
        _check_epoch(header, NO_PRODUCER_EPOCH if producer is None else producer.epoch, offset)
        if producer is None:
            if origin is AppendOrigin.CLIENT:
                self._check_first_sequence(header, offset)
            return None
        if marker is not None:
            _check_coordinator(producer, marker, offset)
            return None
        if origin is AppendOrigin.CLIENT:
            if not producer.batches:  # else the written batches define the sequence: a late batch may have verified
                self._check_first_sequence(header, offset)
            _check_sequence(producer, header, offset)
        if producer.transaction_start >= 0 and not header.attributes & TRANSACTIONAL:
            raise KafkaError(
                ErrorCode.INVALID_TXN_STATE,
                f"producer {header.producer_id} writes outside of a transaction at offset {offset}, "
                f"while its transaction from offset {producer.transaction_start} is open",
            )
        return None

    def in_transaction(self, producer_id: int, epoch: int) -> bool:
        """Whether the producer has a transaction open here, at this epoch."""
        producer = self._producers.get(producer_id)
        return producer is not None and producer.transaction_start >= 0 and producer.epoch == epoch

    def begin_verification(
        self, producer_id: int, epoch: int, sequence: int, epoch_per_transaction: bool, now_ms: int
    ) -> Verification:
        """The verification of a transactional batch: OPEN, or else that of the pending request to its coordinator.

        All waiting batches of a producer share one. Raises KafkaError INVALID_PRODUCER_EPOCH.
        """
        producer = self._producers.get(producer_id)
        if producer is not None and epoch < producer.epoch:
            raise KafkaError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"producer {producer_id} writes with epoch {epoch}, where epoch {producer.epoch} has been seen",
            )
        if self.in_transaction(producer_id, epoch):
            return OPEN
        verification = self._verifications.get(producer_id)
        if verification is None:
            verification = Verification(epoch, sequence, epoch_per_transaction, now_ms)
            self._verifications[producer_id] = verification
        else:
            verification.also(epoch, sequence)
        return verification

    def check_marker_epoch(self, producer_id: int, epoch: int) -> None:
        """The check that transactions version 2 adds (KIP-1228): a marker's epoch exceeds those of its transaction.

        One with the epoch of the last marker is a repetition where nothing has been written since (KAFKA-19999).
        Raises KafkaError INVALID_PRODUCER_EPOCH.
        """
        producer = self._producers.get(producer_id)
        if producer is not None and epoch <= producer.epoch:
            if epoch == producer.epoch and producer.transaction_start < 0:
                return
            raise KafkaError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"a marker of producer {producer_id} has epoch {epoch}, where epoch {producer.epoch} has been seen",
            )

    def _check_verified(self, header: Header, offset: int, verification: Verification | None) -> None:
        if self.in_transaction(header.producer_id, header.producer_epoch) or verification is WAIVED:
            return
        if verification is None or verification is not self._verifications.get(header.producer_id):
            raise KafkaError(
                ErrorCode.INVALID_TXN_STATE,
                f"producer {header.producer_id} writes at offset {offset} outside of a transaction that its "
                "coordinator has confirmed",
            )

    def _check_first_sequence(self, header: Header, offset: int) -> None:
        """Check that the batch that begins a transaction is the first of those that wait for its coordinator."""
        verification = self._verifications.get(header.producer_id)
        if verification is None:
            return
        first = header.base_sequence
        if first > verification.lowest_sequence:
            right = verification.lowest_sequence
        elif first and verification.epoch_per_transaction and self._has_written_nothing(header.producer_id):
            right = 0
        else:
            return
        raise KafkaError(
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
            f"producer {header.producer_id} sends sequence {first} for offset {offset}, where {right} comes first",
        )

    def _has_written_nothing(self, producer_id: int) -> bool:
        producer = self._producers.get(producer_id)
        return producer is None or not producer.batches

    # -- after a write -------------------------------------------------------------------------------------------------

    def apply(self, header: Header, first_offset: int, max_timestamp: int) -> None:
        """Add a data batch of a producer, written from `first_offset` on."""
        producer_id = header.producer_id
        producer = self._producers.get(producer_id)
        if producer is None:
            if len(self._producers) >= self._trim_above:
                self._trim()
            producer = self._producers[producer_id] = Producer(producer_id)
        if header.producer_epoch != producer.epoch:
            producer.advance(header.producer_epoch)
        delta, sequence = header.last_offset_delta, header.base_sequence
        if sequence != NO_SEQUENCE:
            sequence = (sequence + delta) & MAX_SEQUENCE
        producer.append(sequence, first_offset + delta, delta, max_timestamp)
        if header.attributes & TRANSACTIONAL:
            self._verifications.pop(producer_id, None)
            if producer.transaction_start < 0:
                producer.transaction_start = first_offset
                self._open[first_offset] = producer_id

    def apply_marker(
        self, header: Header, offset: int, marker: EndTransactionMarker | None
    ) -> AbortedTransaction | None:
        """Add a marker, written at `offset`; returns the transaction where it aborts one."""
        producer_id = header.producer_id
        producer = self._producers.setdefault(producer_id, Producer(producer_id))
        if marker is None:  # compaction removed the record and left the epoch in the header
            producer.advance(header.producer_epoch)
            producer.last_timestamp = header.max_timestamp
            return None
        first_offset = producer.transaction_start
        verification = self._verifications.get(producer_id)
        if verification is not None and not verification.is_of_next(header.producer_epoch):
            del self._verifications[producer_id]
        producer.advance(header.producer_epoch)
        producer.coordinator_epoch = marker.coordinator_epoch
        producer.last_timestamp = marker.timestamp
        producer.transaction_start = NO_OFFSET
        if first_offset < 0:
            return None
        self._open.pop(first_offset, None)
        last_stable = next(iter(self._open), offset + 1)
        self.unsettle({first_offset: offset})
        if marker.commits:
            return None
        return AbortedTransaction(producer_id, first_offset, offset, last_stable)

    def replay(self, buffer: Buffer, position: int, header: Header) -> AbortedTransaction | None:
        """Add a batch that is in the log already; one without a producer only moves the end."""
        aborted = None
        if header.producer_id >= 0:
            if not header.attributes & CONTROL:
                self.apply(header, header.base_offset, header.max_timestamp)
            else:
                aborted = self.apply_marker(header, header.base_offset, read_marker(buffer, position, header))
        self.end_offset = header.base_offset + header.last_offset_delta + 1
        return aborted

    def recall(self, headers: Iterable[Header]) -> bool:
        """Add the batches that a snapshot omits: of each producer all but the last (`headers` end before it).

        Without them a restarted leader counts a retry of several batches as a gap, and the producer, which then begins
        another epoch, writes them twice. Returns whether each producer now has all batches that the log remembers.
        """
        recalled: dict[int, deque[WrittenBatch]] = {}
        for header in headers:
            producer = self._producers.get(header.producer_id)
            if producer is not None and header.producer_epoch == producer.epoch and not header.attributes & CONTROL:
                batches = recalled.setdefault(header.producer_id, deque(maxlen=BATCHES_REMEMBERED))
                delta = header.last_offset_delta
                batches.append(
                    WrittenBatch(header.last_sequence, header.base_offset + delta, delta, header.max_timestamp)
                )
        for producer_id, batches in recalled.items():
            producer = self._producers[producer_id]
            if batches[-1].last_sequence == producer.last_sequence:
                producer.batches = batches
        return all(len(producer.batches) == BATCHES_REMEMBERED for producer in self._producers.values())

    # -- forgetting ----------------------------------------------------------------------------------------------------

    def expire(self, now_ms: int, expiration_ms: int) -> None:
        """Remove producers that wrote nothing for `expiration_ms` and have no transaction open."""
        for producer in self.active():
            if producer.transaction_start < 0 and now_ms - producer.last_timestamp >= expiration_ms:
                del self._producers[producer.producer_id]
        for producer_id, verification in list(self._verifications.items()):
            if now_ms - verification.asked_ms >= expiration_ms:
                del self._verifications[producer_id]

    def _trim(self) -> None:
        """Remove producers where there are too many, and a quarter more, so that the next ones come at no cost.

        A client can invent any number of producer ids, so the number of a log is limited (KIP-936 limits how fast they
        come). Those with an open transaction stay. The others leave in the order of their last batch, after those that
        a transaction coordinator has never confirmed: timestamps come from clients, offsets do not. A producer that
        continues afterwards is accepted as a new one, as after an expiration.
        """
        idle = [
            (producer.coordinator_epoch >= 0, producer.batches[-1].last_offset if producer.batches else -1, producer_id)
            for producer_id, producer in self._producers.items()
            if producer.transaction_start < 0 and producer_id not in self._verifications
        ]
        spare = self._most // 4
        for _, _, producer_id in nsmallest(len(self._producers) - self._most + spare + 1, idle):
            del self._producers[producer_id]
        self._trim_above = max(self._most, len(self._producers) + spare)

    def on_start_offset(self, start_offset: int) -> None:
        """Apply a new start offset of the log."""
        self.on_high_watermark(start_offset)
        self.end_offset = max(self.end_offset, start_offset)
        self.last_snapshot = self.snapshots[-1] if self.snapshots else start_offset

    def take_over(self, other: ProducerState) -> None:
        """Take over the state of another log with the same end, which is then discarded, and its verifications.

        `other` may lack transactions that ended with an unreplicated marker, because a snapshot has no ended
        transactions; those of this log remain.
        """
        completed = {first: last for first, last in self._completed.items() if last < other.end_offset}
        self._producers, self._open, self._completed = other._producers, other._open, other._completed
        self._verifications = other._verifications
        self.unsettle(completed)

    def clear(self, end_offset: int) -> None:
        """Remove all state, snapshots included; the log is empty from `end_offset` on. Raises OSError."""
        self.keep_snapshots(())
        self._forget()
        self.last_snapshot = 0
        self.end_offset = end_offset

    def _forget(self) -> None:
        for each in (self._producers, self._open, self._completed, self._verifications):
            each.clear()

    # -- snapshots -----------------------------------------------------------------------------------------------------

    def load(self, start_offset: int, end_offset: int) -> None:
        """Restart from the newest readable snapshot in (start_offset, end_offset]; all others there are removed.

        Afterwards the state reaches up to `end_offset`; the caller replays the batches behind. Raises
        OSError.
        """
        self.keep_snapshots([offset for offset in self.snapshots if start_offset < offset <= end_offset])
        self._forget()
        while self.snapshots:
            offset = self.snapshots[-1]
            data = self._folder.read(snapshot_name(offset)) or b""
            try:
                producers = decode_snapshot(data)
            except CorruptFile:
                self.keep_snapshots(self.snapshots[:-1])
                continue
            self._producers = {producer.producer_id: producer for producer in producers}
            started = [(each.transaction_start, each.producer_id) for each in producers if each.transaction_start >= 0]
            self._open = dict(sorted(started))
            if len(self._producers) > self._most:
                self._trim()
            self.end_offset = self.last_snapshot = offset
            return
        self.end_offset = self.last_snapshot = start_offset

    def snapshot(self, *, sync: bool = False) -> None:
        """Write the state at `end_offset` unless it has been written. Raises OSError."""
        snapshot = self.start_snapshot(self.end_offset)
        if snapshot is not None:
            snapshot.write(sync=sync)
            snapshot.finish()

    def start_snapshot(self, offset: int) -> ProducerSnapshot | None:
        """The state for a file of `offset`, at which the log ends; None where there is one already."""
        if offset <= self.last_snapshot:
            return None
        return ProducerSnapshot(self, self._folder, offset, encode_snapshot(self._producers.values()))

    def keep_snapshots(self, offsets: Iterable[int]) -> None:
        """Remove every snapshot but these. Raises OSError."""
        kept = sorted(offsets)
        for offset in set(self.snapshots).difference(kept):
            self._folder.remove(snapshot_name(offset))
        self.snapshots = kept


def _check_epoch(header: Header, epoch: int, offset: int) -> None:
    """Refuse a write with an earlier epoch than the last one that the producer had. Raises KafkaError."""
    if header.producer_epoch < epoch:
        raise KafkaError(
            ErrorCode.INVALID_PRODUCER_EPOCH,
            f"producer {header.producer_id} writes at offset {offset} with epoch {header.producer_epoch}, "
            f"where epoch {epoch} has been seen",
        )


def _check_coordinator(producer: Producer, marker: EndTransactionMarker, offset: int) -> None:
    if marker.coordinator_epoch < producer.coordinator_epoch:
        raise KafkaError(
            ErrorCode.TRANSACTION_COORDINATOR_FENCED,
            f"the marker of producer {producer.producer_id} at offset {offset} is from coordinator epoch "
            f"{marker.coordinator_epoch}, where {producer.coordinator_epoch} has been seen",
        )


def _check_sequence(producer: Producer, header: Header, offset: int) -> None:
    first, last = header.base_sequence, producer.last_sequence
    if header.producer_epoch != producer.epoch:
        if first == 0 or producer.epoch == NO_PRODUCER_EPOCH:
            return
        raise KafkaError(
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
            f"producer {header.producer_id} begins epoch {header.producer_epoch} at offset {offset} with {first}, "
            f"where sequence 0 is right (epoch {producer.epoch} was the last)",
        )
    if first == last + 1 or (first == 0 and last == MAX_SEQUENCE) or producer.epoch == NO_PRODUCER_EPOCH:
        return
    raise KafkaError(
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        f"producer {header.producer_id} sends sequence {first} for offset {offset}, where {last} was the last",
    )


class ProducerSnapshot:
    """A snapshot of the producers of a log that becomes a file."""

    __slots__ = ("_data", "_folder", "_offset", "_producers")

    def __init__(self, producers: ProducerState, folder: Folder, offset: int, data: bytes) -> None:
        self._producers = producers
        self._folder = folder
        self._offset = offset
        self._data = data

    def write(self, *, sync: bool) -> None:
        """Write the file, in any thread. Raises OSError."""
        self._folder.replace(snapshot_name(self._offset), self._data, sync=sync)

    def finish(self) -> None:
        """The producers have this file, and write no other one for the same offset."""
        known, offset = self._producers, self._offset
        known.last_snapshot = max(known.last_snapshot, offset)
        if offset not in known.snapshots:
            insort(known.snapshots, offset)


def snapshot_name(offset: int) -> str:
    """The file name of the snapshot with the state before `offset`."""
    return f"{offset:020d}{SNAPSHOT_SUFFIX}"


def encode_snapshot(producers: Iterable[Producer]) -> bytes:
    """Producers as a snapshot file."""
    entries = [
        _SNAPSHOT_ENTRY.pack(
            producer.producer_id,
            producer.epoch,
            producer.last_sequence,
            producer.batches[-1].last_offset if producer.batches else NO_OFFSET,
            producer.batches[-1].offset_delta if producer.batches else 0,
            producer.last_timestamp,
            producer.coordinator_epoch,
            producer.transaction_start,
        )
        for producer in producers
    ]
    data = bytearray(_SNAPSHOT_HEAD.pack(_SNAPSHOT_VERSION, 0, len(entries)) + b"".join(entries))
    crc = crc32c(memoryview(data)[_SNAPSHOT_CHECKED_FROM:])
    _SNAPSHOT_HEAD.pack_into(data, 0, _SNAPSHOT_VERSION, crc, len(entries))
    return bytes(data)


def decode_snapshot(data: bytes) -> list[Producer]:
    """The producers of a snapshot file, each with its last batch only. Raises CorruptFile."""
    if len(data) < _SNAPSHOT_HEAD.size:
        raise CorruptFile(f"a snapshot of {len(data)} bytes, where the head takes {_SNAPSHOT_HEAD.size}")
    version, crc, count = _SNAPSHOT_HEAD.unpack_from(data)
    if version != _SNAPSHOT_VERSION:
        raise CorruptFile(f"a snapshot of version {version}, where {_SNAPSHOT_VERSION} is read")
    if crc != crc32c(memoryview(data)[_SNAPSHOT_CHECKED_FROM:]):
        raise CorruptFile("the checksum of a snapshot does not hold")
    entries = memoryview(data)[_SNAPSHOT_HEAD.size :]
    if count < 0 or len(entries) != count * _SNAPSHOT_ENTRY.size:
        raise CorruptFile(f"a snapshot with {len(entries)} bytes of entries announces {count} entries")
    producers = []
    for producer_id, epoch, sequence, offset, delta, timestamp, coordinator, start in _SNAPSHOT_ENTRY.iter_unpack(
        entries
    ):
        producer = Producer(producer_id, epoch)
        producer.coordinator_epoch = coordinator
        producer.last_timestamp = timestamp
        producer.transaction_start = start
        if offset >= 0:
            producer.batches.append(WrittenBatch(sequence, offset, delta, timestamp))
        producers.append(producer)
    return producers
