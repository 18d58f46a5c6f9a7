"""Compaction: rewrites segments so that they keep the last record of each key (Kafka: Cleaner; KIP-58, KIP-534).

A pass reads the segments of a log, from the first one up to the first that must not be cleaned, twice:

1. The first walk puts the keys of the dirty part and their latest offsets into a map (`protocol/offset_map.py`). Where
   the map is full the pass ends before the batch that does not fit, if possible at an offset where no transaction is
   open; the next pass continues there. Aborted data does not enter the map.
2. The second walk writes every batch up to that offset again, with the records that remain. A tombstone remains until
   the delete horizon of its batch has passed, and so does the marker of a transaction of which no data is left; the
   first pass that could drop them sets the horizon (KIP-534). A later pass removes them, provided that every replica
   has compacted the offsets that they cover (`compacted_everywhere`, see docs/compaction.md).

Offsets and sequences never change. A batch that loses all its records remains as a bare header only where Kafka's
cleaner keeps one: where it has the last sequence of an active producer (or its last epoch, in a marker), and where it
is the last batch of the part that can be cleaned. Otherwise the batches no longer show where a segment ended or an
epoch began; the compaction checkpoint of the log stores both (compaction_checkpoint.py).

All of this runs in a worker process on files that no thread or process changes any more. It writes `BASE.log.cleaned`
and its indexes beside the log, makes them durable and changes no other file; `swap.py` puts them in place.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from odradek.protocol.batch import (
    CODEC_MASK,
    CONTROL,
    DELETE_HORIZON,
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAX_DECOMPRESSED,
    NO_TIMESTAMP,
    Header,
    read_header,
    sealed,
)
from odradek.protocol.chain import FAULTS
from odradek.protocol.compression import compress, decompress
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.offset_map import APPEND_TIME, ENTRY_BYTES, FORCE_HORIZON, HAS_HORIZON, SET_HORIZON, OffsetMap
from odradek.storage.config import LogConfig
from odradek.storage.disk import Buffer, Disk, Folder, OsDisk
from odradek.storage.file_records import checked_batches
from odradek.storage.index import MAX_RELATIVE_OFFSET, AbortedTransaction
from odradek.storage.markers import read_marker
from odradek.storage.seen_transactions import SeenTransactions
from odradek.storage.segment import Segment

CLEANED_SUFFIX: Final = ".cleaned"
NOT_KNOWN: Final = -1
_PAUSE_SECONDS: Final = 0.05


class SourceSegment(NamedTuple):
    """A segment to be cleaned; `next_base` is the base offset of the next segment."""

    base_offset: int
    size: int
    next_base: int


@dataclass(frozen=True, slots=True)
class CleanRequest:
    """One pass over one log.

    `sources` are all segments below the first that must not be cleaned; the part from `first_dirty` on has never been.
    `remembered` maps each active producer to its epoch and the last offset of its last batch, -1 where the log has only
    a marker of it (UnifiedLog.lastRecordsOfActiveProducers). `replicated` covers those of them whose last batch is not
    below the high watermark: the last offset of the last batch that is below, -1 where the log does not have it.
    `map_bytes` is the share of log.cleaner.dedupe.buffer.size, `written_at_once` that of log.cleaner.io.buffer.size.
    The result carries `generation` back unchanged.
    """

    path: str
    config: LogConfig
    sources: tuple[SourceSegment, ...]
    first_dirty: int
    now_ms: int
    hash_key: bytes
    compacted_everywhere: int = -1
    remembered: dict[int, tuple[int, int]] = field(default_factory=dict)
    replicated: dict[int, int] = field(default_factory=dict)
    aborted: tuple[AbortedTransaction, ...] = ()
    map_bytes: int = 128 << 20
    load_factor: float = 0.9
    bytes_per_second: float = float("inf")
    written_at_once: int = 1 << 20
    generation: int = 0


class CleanedGroup(NamedTuple):
    """A finished compacted segment beside the log, and the segments (base offsets) that it replaces.

    `end_offset` is the base offset of the segment behind them; the last batch may end below.
    """

    base_offset: int
    end_offset: int
    size: int
    replaces: tuple[int, ...]


class CleanStats(NamedTuple):
    """Metrics of a pass: bytes and records before and after, keys in the map, and its fill ratio (0 to 1)."""

    bytes_read: int = 0
    bytes_before: int = 0
    bytes_after: int = 0
    records_before: int = 0
    records_after: int = 0
    keys: int = 0
    utilization: float = 0.0


class Cleaned(NamedTuple):
    """The result of a pass. Everything below `cleaned_to` has been compacted once `groups` are in place."""

    groups: tuple[CleanedGroup, ...]
    cleaned_to: int
    generation: int
    stats: CleanStats


class CleanedFolder(Folder):
    """A log's folder in which every name ends in `.cleaned`."""

    __slots__ = ()

    def __truediv__(self, name: str) -> str:
        return f"{self.path}/{name}{CLEANED_SUFFIX}"


def clean_on_disk(request: CleanRequest) -> Cleaned:
    """`clean` on the disk of the operating system; a worker process calls this function."""
    return clean(OsDisk(), request)


def clean(disk: Disk, request: CleanRequest) -> Cleaned:
    """Carry out one pass.

    Raises KafkaError CORRUPT_MESSAGE where a batch cannot be read, OSError where the disk fails or a segment is gone;
    before that it removes the files that it has written.
    """
    folder = Folder(disk, request.path)
    throttle = _Throttle(request.bytes_per_second)
    dirty_map = _DirtyMap(folder, request, throttle)
    dirty_map.fill()
    rewriting = _Rewriting(folder, request, dirty_map, throttle)
    sizes = {entry.name: entry.size for entry in folder.list()}
    sources = [source for source in request.sources if source.base_offset < dirty_map.end_offset]
    try:
        groups = [rewriting.rewrite(group) for group in grouped(sources, request.config, sizes)]
    except BaseException:
        rewriting.discard()
        raise
    stats = rewriting.stats._replace(
        bytes_read=rewriting.stats.bytes_before + dirty_map.bytes_read,
        keys=len(dirty_map.offsets),
        utilization=len(dirty_map.offsets) / dirty_map.offsets.capacity,
    )
    return Cleaned(tuple(filter(None, groups)), dirty_map.end_offset, request.generation, stats)


def grouped(sources: list[SourceSegment], config: LogConfig, sizes: dict[str, int]) -> list[list[SourceSegment]]:
    """Adjacent segments that together are no larger than one, in log and indexes; `sizes` are those of the files."""
    groups: list[list[SourceSegment]] = []
    total = index_bytes = time_index_bytes = 0
    for source in sources:
        index = sizes.get(f"{source.base_offset:020d}.index", 0)
        time_index = sizes.get(f"{source.base_offset:020d}.timeindex", 0)
        if (
            groups
            and total + source.size <= config.segment_bytes
            and index_bytes + index <= config.segment_index_bytes
            and time_index_bytes + time_index <= config.segment_index_bytes
            and (not source.size or source.next_base - 1 - groups[-1][0].base_offset <= MAX_RELATIVE_OFFSET)
        ):
            groups[-1].append(source)
        else:
            groups.append([source])
            total = index_bytes = time_index_bytes = 0
        total += source.size
        index_bytes += index
        time_index_bytes += time_index
    return groups


class _Throttle:
    """Limits reading and writing to `bytes_per_second` (log.cleaner.io.max.bytes.per.second)."""

    def __init__(self, bytes_per_second: float) -> None:
        self._rate = bytes_per_second
        self._due = time.monotonic()

    def spend(self, size: int) -> None:
        """Account for bytes that were read or written; sleep for as long as they should have taken."""
        if self._rate == float("inf") or self._rate <= 0:
            return
        now = time.monotonic()
        self._due = max(self._due, now - _PAUSE_SECONDS) + size / self._rate
        if self._due > now + _PAUSE_SECONDS:
            time.sleep(self._due - now)


def _batches(
    folder: Folder, config: LogConfig, source: SourceSegment, throttle: _Throttle
) -> Iterator[tuple[Buffer, int, int, Header]]:
    """(buffer, place in it, position, header) of every batch. Raises KafkaError CORRUPT_MESSAGE, OSError."""
    segment = Segment(folder, source.base_offset, source.size, config)
    segment.open_existing()
    end = 0
    try:
        for buffer, place, position, header in checked_batches(segment):
            end = position + header.size
            throttle.spend(header.size)
            yield buffer, place, position, header
    finally:
        segment.close()
    if end != source.size:
        raise KafkaError(
            ErrorCode.CORRUPT_MESSAGE,
            f"{folder / segment.name} at byte {end}: no sound batch, and {source.size - end} bytes are left",
        )


def _payload(buffer: Buffer, place: int, header: Header) -> tuple[Buffer, int, int]:
    """The records of a batch, decompressed, with their position and their end in the buffer. Raises KafkaError."""
    start, end = place + HEADER_SIZE, place + header.size
    if not header.attributes & CODEC_MASK or not header.record_count:
        return buffer, start, end
    payload = decompress(header.codec, memoryview(buffer)[start:end], MAX_DECOMPRESSED)
    return payload, 0, len(payload)


def _check(fault: int, index: int, header: Header) -> None:
    if fault:
        raise KafkaError(
            ErrorCode.CORRUPT_MESSAGE,
            f"record {index} of the batch at offset {header.base_offset} cannot be read: {FAULTS[fault]}",
        )


class _DirtyMap:
    """The first walk. Afterwards `offsets` maps each key to its latest offset below `end_offset`."""

    def __init__(self, folder: Folder, request: CleanRequest, throttle: _Throttle) -> None:
        self._folder, self._request, self._throttle = folder, request, throttle
        slots = max(2, request.map_bytes // ENTRY_BYTES)
        capacity = min(max(1, int(slots * request.load_factor)), slots - 1)
        self.offsets = OffsetMap(slots, capacity, request.hash_key)
        self.end_offset = request.first_dirty
        self.bytes_read = 0
        # The walk meets no marker below its start, and would count such a transaction as open.
        self._seen = SeenTransactions(each for each in request.aborted if each.last_offset >= request.first_dirty)
        self._under_way: set[int] = set()  # the producers with a transaction that is open at this point of the walk
        self._settled_end = request.first_dirty  # the last batch end at which no transaction was open

    def fill(self) -> None:
        """Read until everything is in the map or the map is full. Raises KafkaError, OSError."""
        for source in self._request.sources:
            if source.next_base <= self._request.first_dirty:
                continue
            if not self._fill_from(source):
                if self._settled_end > self._request.first_dirty:
                    self.end_offset = self._settled_end
                return
            self._ends_at(source.next_base)

    def _fill_from(self, source: SourceSegment) -> bool:
        """Add the keys of one segment; False where the map is full before its end."""
        first_dirty = self._request.first_dirty
        for buffer, place, _, header in _batches(self._folder, self._request.config, source, self._throttle):
            self.bytes_read += header.size
            if header.last_offset < first_dirty:
                continue
            if header.attributes & CONTROL:
                self._seen.marker(header, read_marker(buffer, place, header))
                self._under_way.discard(header.producer_id)
            else:
                if header.is_transactional and header.producer_id >= 0:  # no marker ends one without a producer
                    self._under_way.add(header.producer_id)
                if not self._seen.data(header) and not self._take(buffer, place, header):
                    return False
            self._ends_at(header.next_offset)
        return True

    def _take(self, buffer: Buffer, place: int, header: Header) -> bool:
        """Add a batch, whole or not at all; the first one even where it alone exceeds the limit of the map."""
        held = len(self.offsets)
        if held and held + header.record_count > self.offsets.capacity:
            return False
        payload, start, end = _payload(buffer, place, header)
        fault, index, _ = self.offsets.note(
            payload, start, end, header.record_count, header.base_offset, self._request.first_dirty
        )
        _check(fault, index, header)
        return True

    def _ends_at(self, offset: int) -> None:
        self.end_offset = offset
        if not self._under_way:
            self._settled_end = offset


class _Rewriting:
    """The second walk, group after group from the start of the log."""

    def __init__(self, folder: Folder, request: CleanRequest, dirty_map: _DirtyMap, throttle: _Throttle) -> None:
        self._folder, self._request, self._throttle = folder, request, throttle
        self._offsets = dirty_map.offsets
        self._latest = dirty_map.end_offset - 1
        self._seen = SeenTransactions(request.aborted)
        self._targets: list[_Target] = []
        self._upper_bound = request.sources[-1].next_base  # Kafka's upperBoundOffsetOfCleaningRound
        self.stats = CleanStats()

    def rewrite(self, group: list[SourceSegment]) -> CleanedGroup | None:
        """Write the remaining records of a group's segments; None where nothing is removed from its single segment.

        Raises KafkaError, OSError.
        """
        config, base_offset = self._request.config, group[0].base_offset
        target = _Target(self._folder, base_offset, config, self._throttle, self._request.written_at_once)
        self._targets.append(target)
        before = after = records_before = records_after = 0
        is_copy = len(group) == 1
        for source in group:
            for buffer, place, _, header in _batches(self._folder, config, source, self._throttle):
                whole = memoryview(buffer)[place : place + header.size]
                kept, count = self._filter(target, whole, header)
                is_copy &= kept is whole
                before += header.size
                records_before += header.record_count
                records_after += count
                if kept is not None:
                    after += len(kept)
                    target.add(kept)
        self.stats = self.stats._replace(
            bytes_before=self.stats.bytes_before + before,
            bytes_after=self.stats.bytes_after + after,
            records_before=self.stats.records_before + records_before,
            records_after=self.stats.records_after + records_after,
        )
        for source in group:
            if source.next_base > self._request.first_dirty:
                # Recovery attributes a gap to compaction where `cleaned_to` or the compaction checkpoint covers it.
                # Both may be written without a swap, so a loss of power must not leave a gap that looks the same.
                self._folder.sync_file(f"{source.base_offset:020d}.log")
        if is_copy:
            target.discard()
            return None
        target.finish(self._folder.modified_ms(f"{group[-1].base_offset:020d}.log"))
        return CleanedGroup(base_offset, group[-1].next_base, after, tuple(source.base_offset for source in group))

    def discard(self) -> None:
        """Remove the written files, as far as the disk allows it."""
        for target in self._targets:
            with contextlib.suppress(OSError):
                target.discard()

    def _filter(self, target: _Target, whole: memoryview, header: Header) -> tuple[Buffer | None, int]:
        """The bytes that replace a whole batch, None where nothing does, and how many records are left."""
        if header.attributes & CONTROL:
            goes, entry = self._seen.marker(header, read_marker(whole, 0, header))
            if entry is not None:
                target.aborted(entry)
            if header.last_offset > self._latest or not goes:
                return whole, header.record_count
            if header.record_count and not self._horizon_passed(header):
                return self._retained(whole, header, FORCE_HORIZON, latest=-1)
        else:
            goes = self._seen.data(header)
            if header.last_offset > self._latest:
                return whole, header.record_count
            if header.record_count and not goes:
                kept, count = self._retained(whole, header, SET_HORIZON, latest=self._latest)
                if kept is not None:
                    return kept, count
        if self._is_remembered(header) or header.next_offset == self._upper_bound:
            return (_bare(header) if header.record_count else whole), 0
        return None, 0

    def _horizon_passed(self, header: Header) -> bool:
        """Whether the delete horizon and the progress of the other replicas allow a marker to be removed."""
        horizon_ms = header.delete_horizon_ms
        if horizon_ms is None or horizon_ms > self._request.now_ms:
            return False
        return header.last_offset < self._request.compacted_everywhere

    def _retained(self, whole: memoryview, header: Header, flag: int, *, latest: int) -> tuple[Buffer | None, int]:
        """A batch with the records that remain, None where none remains, and their number."""
        request = self._request
        horizon_ms = header.delete_horizon_ms
        tombstones_below = 0
        if horizon_ms is not None:
            flag |= HAS_HORIZON
            if horizon_ms <= request.now_ms:
                tombstones_below = max(request.compacted_everywhere, 0)
        if header.is_log_append_time:
            flag |= APPEND_TIME
        payload, start, end = _payload(whole, 0, header)
        fault, index, _, kept, max_timestamp, _, base_timestamp, has_horizon, data = self._offsets.retain(
            payload,
            start,
            end,
            header.record_count,
            header.base_offset,
            header.base_timestamp,
            header.max_timestamp,
            flag,
            latest,
            tombstones_below,
            request.now_ms + request.config.delete_retention_ms,
        )
        _check(fault, index, header)
        if not kept:
            return None, 0
        if data is None:
            return whole, kept
        written = compress(header.codec, data)
        attributes = header.attributes & ~DELETE_HORIZON | (DELETE_HORIZON if has_horizon else 0)
        made = header._replace(
            attributes=attributes,
            batch_length=HEADER_SIZE - LOG_OVERHEAD + len(written),
            base_timestamp=base_timestamp,
            max_timestamp=max_timestamp,
            record_count=kept,
        )
        return sealed(made, written), kept

    def _is_remembered(self, header: Header) -> bool:
        """Whether the log would lose a producer, or its last sequence, without this batch.

        A last batch that may be truncated does not replace the one before: a replica that has the log up to the high
        watermark would not have the producer's last sequence, and would append a retry again.
        """
        producer = self._request.remembered.get(header.producer_id)
        if producer is None:
            return False
        epoch, last_offset = producer
        if header.attributes & CONTROL or last_offset < 0:
            return header.attributes & CONTROL != 0 and last_offset < 0 and header.producer_epoch == epoch
        replicated = self._request.replicated.get(header.producer_id, last_offset)
        return header.last_offset == last_offset or replicated in (header.last_offset, NOT_KNOWN)


def _bare(header: Header) -> bytearray:
    """The header of a batch that has lost all of its records (DefaultRecordBatch.writeEmptyHeader)."""
    return sealed(
        header._replace(
            attributes=header.attributes & ~(CODEC_MASK | DELETE_HORIZON),
            batch_length=HEADER_SIZE - LOG_OVERHEAD,
            base_timestamp=NO_TIMESTAMP,
            record_count=0,
        ),
        b"",
    )


class _Target:
    """The segment that receives the remaining records."""

    def __init__(
        self, folder: Folder, base_offset: int, config: LogConfig, throttle: _Throttle, written_at_once: int
    ) -> None:
        self._written_at_once = written_at_once
        self._folder = CleanedFolder(folder.disk, folder.path)
        self._segment = Segment.create(self._folder, base_offset, config, 0, 0)
        self._throttle = throttle
        self._waiting: list[bytes] = []
        self._waiting_bytes = 0

    def add(self, batch: Buffer) -> None:
        """Write a batch behind the others; `finish` writes it at the latest. Raises OSError."""
        self._waiting.append(bytes(batch))
        self._waiting_bytes += len(batch)
        if self._waiting_bytes >= self._written_at_once:
            self._write()

    def _write(self) -> None:
        segment = self._segment
        position = segment.size
        segment.write(b"".join(self._waiting))
        for batch in self._waiting:
            header = read_header(batch)
            segment.note(position, len(batch), header.last_offset, header.max_timestamp)
            position += len(batch)
        self._throttle.spend(self._waiting_bytes)
        self._waiting.clear()
        self._waiting_bytes = 0

    def aborted(self, entry: AbortedTransaction) -> None:
        """Keep an aborted transaction in the index. Raises OSError."""
        self._segment.aborted.append(entry)

    def finish(self, modified_ms: int) -> None:
        """Make everything durable, with the modification time of the replaced segments. Raises OSError."""
        if self._waiting:
            self._write()
        self._segment.seal()
        self._segment.file.sync()
        self._segment.sync_indexes()
        self._segment.close()
        self._folder.set_modified_ms(self._segment.name, modified_ms)

    def discard(self) -> None:
        """Remove the files: there was nothing to write. Raises OSError."""
        self._segment.close()
        for name in self._segment.file_names():
            self._folder.remove(name)
