"""One partition's log on one disk: append, read, truncate, roll, flush (Kafka: UnifiedLog and LocalLog).

A log is a list of segments; the last one takes the writes. It has no state about leaders, high watermarks or clients:
the partition decides, and the log carries out each call and returns its result. No method waits. Slow work runs
elsewhere: `start_flush` returns a task for a thread, whose result the caller passes to `finish_flush`, and segments are
removed and replaced in the same way (`folder_changes.py`).

A write that fails leaves the log as it was: the log truncates the written bytes. Where that is not possible, or where
the disk itself is in doubt (an I/O error, a failed fsync), the log goes offline, and every call fails with
KAFKA_STORAGE_ERROR. Without a file descriptor only the request fails (`descriptors.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NoReturn

from odradek.protocol.batch import CONTROL, HEADER_SIZE, MAX_DECOMPRESSED, TRANSACTIONAL, Buffer, Header, stamp
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.log_append import LogClasses, append_usual, prepare
from odradek.protocol.topic_partition import TopicPartition
from odradek.storage.checkpoints import LEADER_EPOCHS, CorruptFile
from odradek.storage.config import AppendOrigin, LogConfig
from odradek.storage.deletions import DelayedDeletions
from odradek.storage.descriptors import RESERVE
from odradek.storage.disk import Folder
from odradek.storage.epochs import LeaderEpochs
from odradek.storage.flush import Flush
from odradek.storage.folder_changes import FolderChange, FolderChanges
from odradek.storage.index import MAX_RELATIVE_OFFSET
from odradek.storage.log_search import NO_LIMIT, LogSearch
from odradek.storage.markers import EndTransactionMarker
from odradek.storage.producers import ProducerState, Verification
from odradek.storage.recent_batches import RecentBatches
from odradek.storage.recovery import LoadedLog, LoadRequest, load, rebuild_producers
from odradek.storage.roll import Roll, SegmentFull
from odradek.storage.segment import Segment
from odradek.storage.segments import LogSegments, LogSlice
from odradek.storage.staged import StagedBatch
from odradek.storage.validation import (
    BATCHES_SINCE,
    CLIENT,
    Appended,
    Prepared,
    Received,
    ReceivedRun,
    admit,
    marker_in,
    split_batches,
)

NO_TIMESTAMP: Final = -1
Epochs = Sequence[tuple[int, int]]
_new: Final = tuple.__new__


class Log(FolderChanges):
    """The log of one partition. Offsets are absolute, times are ms, sizes are bytes.

    `start_offset` is the first offset that is served, `end_offset` the next one to be written; everything below
    `recovery_point` is on stable storage, everything below `cleaned_to` is compacted (-1: nothing is). `generation`
    grows with each truncation. Only the log changes `epochs` and `producers`. `search` finds offsets and transactions.
    Methods raise KafkaError; KAFKA_STORAGE_ERROR means that a write had no room, or that the log is offline.
    """

    __slots__ = (
        "_jitter_ms",
        "_on_cut",
        "_touched",
        "damaged_at",
        "last_flush_ms",
        "recovery_point",
        "topic_id",
    )

    def __init__(
        self, folder: Folder, name: TopicPartition, topic_id: bytes, request: LoadRequest, loaded: LoadedLog
    ) -> None:
        """Made by `Log.open`."""
        self.topic, self.partition = name
        self.topic_id = topic_id
        self.config = request.config
        self.epochs = loaded.epochs
        self.producers = loaded.producers
        self.start_offset = loaded.start_offset
        self.end_offset = loaded.end_offset
        self.recovery_point = loaded.recovery_point
        self.damaged_at = loaded.damaged_at
        self.cleaned_to = loaded.cleaned_to
        self.generation = 0
        self.last_flush_ms = request.now_ms
        self.failure: str | None = None  # why it is offline
        self.folder = folder
        self.compaction_checkpoint = loaded.compaction
        self._jitter_ms: Callable[[LogConfig], int] = request.jitter_ms
        self._segments = LogSegments(loaded.segments)
        self.deletions = DelayedDeletions(folder)
        self.deletions.add(loaded.leftovers, request.now_ms)
        self._on_cut = request.on_cut
        self._touched = not request.clean
        self._rolls = self._rolls_synced = 0
        """How many segments were created since the log was opened, and how many of their names are durable."""
        self._change = self._rolling = None

    @property
    def search(self) -> LogSearch:
        """The searches of this log, for one call: an attribute would be a cycle of references."""
        return LogSearch(self._segments, self._disk)

    @classmethod
    def open(cls, folder: Folder, name: TopicPartition, topic_id: bytes, request: LoadRequest) -> Log:
        """Load the log of (topic, partition) in `folder`, or create one there. Raises OSError, KafkaError."""
        loaded = load(folder, request)
        return cls(folder, name, topic_id, request, loaded)

    # -- state ---------------------------------------------------------------------------------------------------------

    @property
    def directory(self) -> str:
        """The path of its folder."""
        return self.folder.path

    @property
    def size(self) -> int:
        """Bytes of all segments, without their indexes."""
        return self._segments.size

    @property
    def active(self) -> Segment:
        """The active segment; batches below its base offset no longer change."""
        return self._segments.active

    @property
    def segments(self) -> list[Segment]:
        """The segments, oldest first, as a copy."""
        return list(self._segments)

    @property
    def first_unstable_offset(self) -> int | None:
        """The first offset that the log does not return to a read-committed consumer yet, None where there is none."""
        offset = self.producers.first_unstable_offset
        return None if offset is None else max(offset, self.start_offset)

    # -- writing -------------------------------------------------------------------------------------------------------

    def append(
        self,
        batch: Buffer | Prepared | None,
        *,
        leader_epoch: int,
        now_ms: int,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        api_version: int = 9,
        verification: Verification | None = None,
        max_decompressed: int = MAX_DECOMPRESSED,
        may_roll: bool = True,
    ) -> Appended:
        """Write one batch as the leader of `leader_epoch`: validate it, assign its offsets, and write it with one call.

        A writable `batch` gets offset, epoch and, if the topic is configured so, time. `verification` is that of a
        transactional batch. Raises KafkaError, InvalidRecords, DecompressedTooLarge, and SegmentFull unless `may_roll`.
        """
        if self.failure is not None:
            self._refuse()
        try:
            usual = _append_usual(self, batch, leader_epoch, now_ms, origin, api_version, verification)
        except OSError as error:
            self._undo(self._segments.active, self._segments.active.size, error)
        if usual is not None:
            return usual
        config, sent = self.config, None if may_roll else _header_of(batch)
        view, header = admit(batch, config, origin, api_version, now_ms, max_decompressed)
        first_offset, max_timestamp, marker = self.end_offset, header.max_timestamp, None
        last_offset = first_offset + header.last_offset_delta
        if header.producer_id >= 0 or header.attributes & TRANSACTIONAL:
            marker = marker_in(view, 0, header) if header.attributes & CONTROL else None
            known = self.producers.check(header, origin, first_offset, marker, verification)
            if known is not None:
                first, last, time_ms = known.first_offset, known.last_offset, known.timestamp
                return Appended(first, last, time_ms, time_ms, self.start_offset, True)
        if leader_epoch != self.epochs.latest:
            self.begin_epoch(leader_epoch)
        segment = self._segments.active
        staged = batch.staged_in(self.folder) if type(batch) is Prepared else None
        if staged is not None or segment.should_roll(config, len(view), last_offset, max_timestamp, now_ms):
            if not may_roll and segment.size:
                _leave_as_sent(batch, sent)
            segment = self._roll(first_offset, now_ms)
        head = bytearray(view[:HEADER_SIZE]) if view.readonly else None
        stamp(view if head is None else head, 0, first_offset, leader_epoch)
        size = segment.size
        try:
            if staged is None:
                segment.append(view, last_offset, max_timestamp, head)
            else:
                segment.write(view, staged, head)
                segment.note(0, len(view), last_offset, max_timestamp)
        except OSError as error:
            self._undo(segment, size, error)
        self._touched, self.end_offset = True, last_offset + 1
        if header.producer_id >= 0:
            self._apply(segment, header, first_offset, marker)
        self.producers.end_offset = last_offset + 1
        stamped_ms = max_timestamp if config.stamps_append_time else NO_TIMESTAMP
        return _new(Appended, (first_offset, last_offset, max_timestamp, stamped_ms, self.start_offset, False))

    def append_replicated(
        self, data: Buffer | ReceivedRun, *, now_ms: int, leader_epoch: int = 2**31 - 1, epochs: Epochs = ()
    ) -> Appended | None:
        """Write a leader's batches unchanged, without a torn last batch. None where no batch is whole.

        Batches of later epochs than `leader_epoch`, the one that the data was fetched under, are left out too
        (KAFKA-18723). `epochs` has the leader's epochs that start in the data. An empty log may begin below its end,
        where the leader's first batch covers it. Raises KafkaError: OFFSET_OUT_OF_RANGE where the batches do not follow
        the log, CORRUPT_MESSAGE.
        """
        if self.failure is not None:
            self._refuse()
        staged = None
        if isinstance(data, ReceivedRun):
            batches, staged, data = data.batches, data.staged_in(self.folder), data.view
        else:
            batches = split_batches(data, leader_epoch)
        if not batches:
            return None
        first_offset = batches[0].header.base_offset
        last_offset = batches[-1].header.last_offset
        if first_offset < self.end_offset:
            if self.start_offset != self.end_offset or last_offset < self.end_offset:
                raise KafkaError(
                    ErrorCode.OFFSET_OUT_OF_RANGE,
                    f"the leader sent offsets {first_offset} to {last_offset}, where {self.end_offset} comes next",
                )
            self.truncate_fully(first_offset, now_ms=now_ms, start_offset=self.start_offset)
        view = memoryview(data)
        begin, active = 0, self._segments.active
        base_offset = self.end_offset if active.size else active.base_offset
        if len(view) > self.config.segment_bytes or last_offset - base_offset > MAX_RELATIVE_OFFSET:
            staged = None  # it takes more than one segment
        if staged is not None and active.size:
            self._roll(base_offset, now_ms)
        for number, (position, header, _) in enumerate(batches if staged is None else ()):
            size = position + header.size - batches[begin].position
            if self._segments.active.should_roll(self.config, size, header.last_offset, header.max_timestamp, now_ms):
                self._write_run(view, batches[begin:number], epochs)
                begin = number
                if self._segments.active.size:
                    # At the log's end, so that a gap between segments indicates a loss (see recovery), unless the batch
                    # is further away than the offsets of a segment reach.
                    self._roll(header.last_offset - MAX_RELATIVE_OFFSET, now_ms)
        self._write_run(view, batches[begin:], epochs, staged)
        max_timestamp = max(each.header.max_timestamp for each in batches)
        return Appended(first_offset, last_offset, max_timestamp, NO_TIMESTAMP, self.start_offset, False)

    def _write_run(
        self, view: memoryview, batches: list[Received], epochs: Epochs, staged: StagedBatch | None = None
    ) -> None:
        """Write batches that are adjacent in `view` into the active segment, or make the file of `staged` that of the
        segment.
        """
        if not batches:
            return
        for _, header, _ in batches:
            if header.leader_epoch > self.epochs.latest:
                self.settle_change()
                with self._disk("writing the leader epochs"):
                    self.epochs.follow(header.leader_epoch, header.base_offset, epochs, self.compaction_checkpoint)
        begin, last = batches[0].position, batches[-1]
        segment = self._segments.active
        size = segment.size
        try:
            segment.write(view[begin : last.position + last.header.size], staged)
        except OSError as error:
            self._undo(segment, size, error)
        self._touched = True
        self.end_offset = last.header.next_offset
        for position, header, marker in batches:
            segment.note(size + position - begin, header.size, header.last_offset, header.max_timestamp)
            if header.producer_id >= 0:
                self._apply(segment, header, header.base_offset, marker)
        self.producers.end_offset = self.end_offset

    def _apply(self, segment: Segment, header: Header, offset: int, marker: EndTransactionMarker | None) -> None:
        """Add a written batch to the producers, and a transaction that it aborted to the transaction index."""
        if not header.attributes & CONTROL:
            self.producers.apply(header, offset, header.max_timestamp)
        else:
            aborted = self.producers.apply_marker(header, offset, marker)
            if aborted is not None:
                with self._disk("writing the transaction index"):
                    segment.aborted.append(aborted)

    def begin_epoch(self, leader_epoch: int) -> None:
        """Record that a new leader's writes start at the end of the log (KIP-101)."""
        if self.failure is not None:
            self._refuse()
        if leader_epoch != self.epochs.latest:
            self.settle_change()
            with self._disk("writing the leader epochs"):
                self.epochs.assign(leader_epoch, self.end_offset)

    # -- segments ------------------------------------------------------------------------------------------------------

    def roll(self, now_ms: int) -> None:
        """Begin a new segment at the end of the log; an empty active one stays."""
        if self._segments.active.size:
            self._roll(self.end_offset, now_ms)

    def start_roll(self, now_ms: int) -> FolderChange | None:
        """Begin a new segment at the end of the log; None where the active one is empty. The caller runs the change, in
        a thread, then passes it to `finish_roll`. An append in between waits for it.
        """
        if self.failure is not None:
            self._refuse()
        if self._rolling is None and self._segments.active.size:
            self._begin_roll(self.end_offset, now_ms)
        return self._rolling

    def _roll(self, base_offset: int, now_ms: int) -> Segment:
        """A new active segment, with a snapshot of the producers for it; an empty active one stays."""
        self.settle_roll()
        base_offset = max(base_offset, self.end_offset)
        active = self._segments.active
        if active.size or active.base_offset != base_offset:
            self._begin_roll(base_offset, now_ms)
            self.settle_roll()
        return self._segments.active

    def _begin_roll(self, base_offset: int, now_ms: int) -> None:
        active = self._segments.active
        roll = Roll(active, self.folder, base_offset, self.config, now_ms, self._jitter_ms(self.config))
        roll.snapshot = self.producers.start_snapshot(base_offset)
        roll.syncs_indexes = self.recovery_point == base_offset
        active.is_full = True  # until the end of the roll each append comes to `_roll`
        self._rolling = FolderChange("rolling a segment", roll.run, lambda: self._rolled(roll))

    def _rolled(self, roll: Roll) -> None:
        """Make the new segment the active one.

        A loss of power may take its name, as it may take its bytes, until the next flush: that moves the recovery point
        into the segment. No older segment is removed before (`start_retention`).
        """
        base_offset = roll.segment.base_offset
        self.producers.end_offset = base_offset
        if roll.snapshot is not None:
            roll.snapshot.finish()
        self._segments.add(roll.segment)
        self._rolls += 1
        if self.recovery_point == base_offset and not roll.syncs_indexes:
            with self._disk("rolling a segment"):  # a flush ended during the roll
                roll.active.sync_indexes()

    def advance_start_offset(self, offset: int, *, high_watermark: int) -> bool:
        """Serve nothing below `offset` any more (DeleteRecords, or the leader's start offset); True on a change.

        Raises KafkaError OFFSET_OUT_OF_RANGE where that is beyond the high watermark.
        """
        if offset > high_watermark:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"the log cannot start at {offset}, beyond its high watermark {high_watermark}",
            )
        if offset <= self.start_offset:
            return False
        assert offset <= self.end_offset, (offset, self.end_offset)
        self.start_offset = offset
        self.epochs.truncate_start(offset)
        self.producers.on_start_offset(offset)
        return True

    # -- reading -------------------------------------------------------------------------------------------------------

    def read(self, offset: int, max_bytes: int, *, end_offset: int = NO_LIMIT, at_least_one: bool = True) -> LogSlice:
        """Batches from the one that holds `offset`, below `end_offset` (the end of the log without it).

        At most `max_bytes`, but with `at_least_one` the first batch is whole at any size. Raises KafkaError
        OFFSET_OUT_OF_RANGE where the log does not reach to `offset`.
        """
        if self.failure is not None:
            self._refuse()
        log_end = self.end_offset
        if not self.start_offset <= offset <= log_end:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"offset {offset} of {self.topic}-{self.partition}, which has {self.start_offset} to {log_end}",
            )
        limit = min(end_offset, log_end)
        if offset >= limit:
            return self._segments.nothing_at(offset)
        try:
            return self._segments.read(offset, limit, log_end, max_bytes, at_least_one=at_least_one)
        except (OSError, CorruptFile) as error:
            self._fail("reading", error)

    # -- truncating ----------------------------------------------------------------------------------------------------

    def truncate_to(self, offset: int, *, now_ms: int) -> bool:
        """Truncate everything at or above `offset`, as a follower does before it fetches; False where nothing is there.

        A batch that reaches across `offset` is removed whole. Epochs that start at the end or above are removed in any
        case. The truncation is durable when this returns: the bytes that replace the old ones may reach the disk in
        part, and after a loss of power the old records would fill the hole undetected.
        """
        if self.failure is not None:
            self._refuse()
        self.settle_changes()
        if offset >= self.end_offset:
            with self._disk("writing the leader epochs"):
                if self.epochs.truncate_end(self.end_offset):
                    self.epochs.save(sync=False)
            return False
        if offset < self._segments.first_offset:
            self.truncate_fully(offset, now_ms=now_ms)
            return True
        with self._disk("truncating"):  # files that stay open come first: without descriptors nothing is truncated
            kept = self._segments.reaching_to(offset)
            kept[-1].file  # noqa: B018  (opens it)
            producers = ProducerState(self.folder, self.producers.snapshots, self.config.max_producer_ids)
            rebuild_producers(producers, kept, min(self.start_offset, offset), offset)
        self._take_back(offset)
        dropped = self._segments.drop_above(offset)
        with self._disk("renaming deleted segments"):
            self.deletions.add_segments(dropped, self.producers, now_ms + self.config.file_delete_delay_ms)
        active = self._segments.active
        with self._disk("truncating"):
            if dropped:
                self.folder.sync()
            active.truncate(offset, now_ms)
            active.file.sync()
            if self.epochs.truncate_end(offset):
                self.epochs.save(sync=False)
            active.activate(offset)
            self.end_offset = offset
            known = self.producers
            known.take_over(producers)
            known.end_offset, known.last_snapshot, known.snapshots = (
                offset,
                producers.last_snapshot,
                producers.snapshots,
            )
        return True

    def _take_back(self, offset: int) -> None:
        """Before a truncation: a loss of power during it must not leave a hole below a recovery point."""
        self.generation += 1
        self._touched = True
        noted = max(self.recovery_point, self.start_offset, self.cleaned_to)
        self.start_offset = min(self.start_offset, offset)
        self.recovery_point = min(self.recovery_point, offset)
        if offset < self.cleaned_to:
            self.cleaned_to = offset if offset > self._segments.first_offset else -1
        if offset < noted:
            self._on_cut()
        with self._disk("writing the compaction checkpoint"):
            self.compaction_checkpoint.truncate(offset)

    def truncate_fully(self, offset: int, *, now_ms: int, start_offset: int | None = None) -> None:
        """Remove all records and continue at `offset`; `start_offset` is `offset` where not given."""
        if self.failure is not None:
            self._refuse()
        self.settle_changes()
        self._take_back(min(offset, self._segments.first_offset))
        with self._disk("renaming deleted segments"):
            self.deletions.add_segments(self._segments, self.producers, now_ms + self.config.file_delete_delay_ms)
        with self._disk("starting anew"), RESERVE.lent():
            segment = Segment.create(self.folder, offset, self.config, now_ms, self._jitter_ms(self.config))
            self.folder.sync()
            self._segments.reset([segment])
            self.epochs.clear()
            self.producers.clear(offset)
        self.end_offset = offset
        self.start_offset = offset if start_offset is None else start_offset

    # -- flushing ------------------------------------------------------------------------------------------------------

    def flush_due(self, now_ms: int) -> bool:
        """Whether `flush.messages` or `flush.ms` requires a flush now."""
        config = self.config
        if not config.flushes:
            return False
        unflushed = self.end_offset - self.recovery_point
        if unflushed <= 0:
            return False
        # A negative time is that of a clock that was set back: the time since the last flush is then unknown.
        return unflushed >= config.flush_messages or not 0 <= now_ms - self.last_flush_ms < config.flush_ms

    def start_flush(self, *, rolled_only: bool = False) -> Flush:
        """A flush of everything written so far; `rolled_only` leaves the active segment out, as after a roll.

        The caller runs `run`, in a thread if need be, then `finish_flush`; one flush serves every append before it.
        """
        if self.failure is not None:
            self._refuse()
        end_offset = self._segments.active.base_offset if rolled_only else self.end_offset
        flush = Flush(self.folder, end_offset, self.generation, self._rolls)
        with self._disk("flushing"):
            flush.add_segments(self._segments, self.recovery_point, rolled_only=rolled_only)
        if self._rolls > self._rolls_synced:
            flush.add_directory()
        if self.epochs.unsynced:
            # Below the recovery point recovery relies on this file: an epoch that was truncated must not come back.
            flush.add_file(LEADER_EPOCHS)
            self.epochs.unsynced = False
        flush.add_snapshots(each for each in self.producers.snapshots if self.recovery_point <= each <= end_offset)
        return flush

    def finish_flush(self, flush: Flush, error: OSError | None, *, now_ms: int) -> None:
        """Process the result of a flush. An error takes the log offline: the bytes that reached the disk are unknown.

        Raises KafkaError KAFKA_STORAGE_ERROR on `error`.
        """
        if error is not None:
            self.epochs.unsynced = True
            self._fail("flushing", error)
        self.last_flush_ms = now_ms
        if flush.still_counts(self.generation):
            with self._disk("flushing"):
                flush.settle(self._segments)
            self._rolls_synced = max(self._rolls_synced, flush.rolls)
            self.recovery_point = max(self.recovery_point, flush.end_offset)
            assert self.recovery_point <= self.end_offset, (self.recovery_point, self.end_offset)

    def flush(self, *, now_ms: int) -> None:
        """Flush in the calling thread; blocks until the disk has everything."""
        flush = self.start_flush()
        try:
            flush.run()
        except OSError as error:
            self.finish_flush(flush, error, now_ms=now_ms)
        self.finish_flush(flush, None, now_ms=now_ms)

    # -- the end -------------------------------------------------------------------------------------------------------

    def close(self, *, now_ms: int) -> None:
        """Flush, write indexes and producers, and close the files, so that the next load needs no recovery."""
        if self.failure is None:
            self.settle_changes()
        if self.failure is None and self._touched:
            with self._disk("closing"):
                self._segments.active.seal()
                self.flush(now_ms=now_ms)
                self._segments.active.sync_indexes()
                self.producers.snapshot(sync=True)
            self._touched = False
        self.close_files()

    def close_files(self) -> None:
        """Close the descriptors and write nothing, as after a failure."""
        for change in (self._change, self._rolling):
            if change is not None:
                change.cancel()
        for segment in self._segments:
            segment.close()

    def move(self, path: str) -> None:
        """Rename the log's directory; the log continues under the new name."""
        if self.failure is None:
            self.settle_changes()
        with self._disk("renaming the directory"):
            self.folder.disk.rename(self.folder.path, path)
            self.folder.path = path


CLASSES: Final = LogClasses(Log, LogSegments, Segment, LogConfig, LeaderEpochs, ProducerState, RecentBatches, Appended)
prepare(CLASSES)


def _append_usual(
    log: Log,
    batch: Buffer | Prepared | None,
    leader_epoch: int,
    now_ms: int,
    origin: AppendOrigin,
    api_version: int,
    verification: Verification | None,
) -> Appended | None:
    """The result of `Log.append` where one call in C can do its work (`log_append`), None for the others."""
    if type(batch) is memoryview:
        if origin is CLIENT and api_version >= BATCHES_SINCE and verification is None:
            return append_usual(log, batch, False, leader_epoch, now_ms)  # type: ignore[no-any-return]
    elif type(batch) is Prepared and batch.staged is None:
        return append_usual(log, batch.view, True, leader_epoch, now_ms)  # type: ignore[no-any-return]
    return None


def _header_of(batch: Buffer | Prepared | None) -> bytes | None:
    """The header of a batch that `admit` may change in place."""
    return bytes(batch[:HEADER_SIZE]) if type(batch) is memoryview and not batch.readonly else None


def _leave_as_sent(batch: Buffer | Prepared | None, header: bytes | None) -> NoReturn:
    """Undo what `admit` has changed, which it would not find in the batch when that comes again; raises SegmentFull."""
    if header is not None:
        assert type(batch) is memoryview
        batch[: len(header)] = header
    raise SegmentFull
