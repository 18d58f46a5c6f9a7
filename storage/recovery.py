"""Loads a log from its folder and recovers it after an unclean stop (Kafka: LogLoader).

After a clean stop loading reads only sizes, the small files and the tail of the last segment, and the headers above the
high watermark (`_unsettle_transactions`). Otherwise it reads every segment from the recovery point on batch by batch:
the log ends at the first batch with a wrong length, checksum or order. The rest goes to the quarantine of the data
directory (`quarantine.py`), whether it is a torn write or whole batches behind damage. Recovery rebuilds the indexes,
snapshots and leader epochs of these segments from the batches, so that the files are the same as those of a log that
was written without interruption.

Everything below the recovery point is on stable storage and was valid when it was written, so in the segment that
contains the recovery point only the headers of the batches below are read, for the indexes.

A segment begins where the one before it ends. A gap between two of them has one of two causes: a loss of power took the
end of a segment, and recovery truncates the log there; or compaction removed the last batches of a segment. The log's
compaction checkpoint lists the segments that Odradek has compacted. Apache Kafka has no such file. A segment that its
cleaner has compacted is known from the cleaner's checkpoint or, where that did not have the compaction yet, from the
source of the compacted segment, which lies beside it as `.log.deleted`. Such files are therefore not removed here but
listed in `LoadedLog.leftovers`, to be removed when `LoadedLog.cleaned_to` is in the checkpoint.
"""

from __future__ import annotations

import logging
import re
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from odradek.protocol.batch import CONTROL, HEADER_SIZE, LOG_OVERHEAD, Header, read_header
from odradek.protocol.errors import ErrorCode, KafkaError, ProtocolError
from odradek.storage.checkpoints import LEADER_EPOCHS, CorruptFile
from odradek.storage.compaction_checkpoint import COMPACTION_CHECKPOINT, CompactionCheckpoint
from odradek.storage.config import MAX_INT64, LogConfig
from odradek.storage.disk import TEMPORARY_SUFFIX, Buffer, Entry, Folder, OsDisk
from odradek.storage.epochs import LeaderEpochs
from odradek.storage.file_records import checked_batches, next_offset, read_batch
from odradek.storage.index import (
    MAX_RELATIVE_OFFSET,
    OFFSET_ENTRY_SIZE,
    TIME_ENTRY_SIZE,
    TRANSACTION_ENTRY_SIZE,
)
from odradek.storage.producers import SNAPSHOT_SUFFIX, ProducerState
from odradek.storage.quarantine import Quarantine
from odradek.storage.segment import DELETED_SUFFIX, LOG_SUFFIX, Segment

_log = logging.getLogger(__name__)

_NAME: Final = re.compile(r"(\d{20})(\.log|\.index|\.timeindex|\.txnindex|\.snapshot)(\.deleted|\.cleaned|\.swap)?")
_ENTRY_SIZES: Final = {".index": OFFSET_ENTRY_SIZE, ".timeindex": TIME_ENTRY_SIZE, ".txnindex": TRANSACTION_ENTRY_SIZE}
_SWAP_SUFFIX: Final = ".swap"
_RECALLED_FIRST: Final = 128 << 10
_RECALLED_BYTES: Final = 1 << 20
"""The range in which recovery searches for the batches that a snapshot of the producers omits: enough for a dozen
producers with five batches of 16 KiB in flight, and no more headers than are read in a millisecond or two. Mostly there
is one producer, and the first piece is enough."""


@dataclass(slots=True)
class LoadedLog:
    """The parts of a log as they are on disk after loading, and the repairs that loading made.

    `cleaned_to` is that of the request, or higher where loading found a compaction that no checkpoint has, or -1 where
    the log ends below it. `leftovers` are files of segments that were removed before; they can be deleted once
    `cleaned_to` is in the checkpoint.
    """

    segments: list[Segment]
    epochs: LeaderEpochs
    producers: ProducerState
    compaction: CompactionCheckpoint
    quarantine: Quarantine
    start_offset: int
    end_offset: int
    recovery_point: int
    cleaned_to: int = -1
    truncated_bytes: int = 0
    damaged_at: str | None = None  # where apparently whole batches follow a broken one: damage, not a torn tail
    leftovers: list[str] = field(default_factory=list)
    remembered_epochs: tuple[list[tuple[int, int]], ...] = ()  # from the checkpoints (LeaderEpochs.note)


class Recovered(NamedTuple):
    """The result of a recovery in another process (see LoadedLog); the files are as after a clean stop."""

    recovery_point: int
    cleaned_to: int
    truncated_bytes: int
    damaged_at: str | None


def no_jitter(config: LogConfig) -> int:
    """No jitter: all segments have the same maximum age."""
    return 0


def do_nothing() -> None:
    """No action on a truncation."""


@dataclass(slots=True)
class LoadRequest:
    """The input of loading; the first two offsets are those of the checkpoint files, 0 where they have no entry.

    `cleaned_to` is from the cleaner's checkpoint: everything below has been compacted, -1 where it has no entry.
    `high_watermark` is the checkpointed one: transactions whose markers are below it are replicated.
    `gaps_are_losses` is False where the cleaner's checkpoint is missing, so that compaction cannot be excluded.
    `recovered` is the result of the recovery in another process, if there was one. `jitter_ms` is by how much a segment
    ends earlier, and `on_cut` is called when the log was truncated below its entries in the checkpoints.
    """

    config: LogConfig
    clean: bool = True
    start_offset: int = 0
    recovery_point: int = 0
    cleaned_to: int = -1
    high_watermark: int = MAX_INT64
    gaps_are_losses: bool = True
    now_ms: int = 0
    jitter_ms: Callable[[LogConfig], int] = no_jitter
    on_cut: Callable[[], None] = do_nothing
    recovered: Recovered | None = None

    @property
    def trusts_files(self) -> bool:
        """Whether the files are taken for those of a clean stop."""
        return self.clean or self.recovered is not None


def load(folder: Folder, request: LoadRequest) -> LoadedLog:
    """Load the log in `folder`, which may be empty.

    Raises OSError, and KafkaError UNSUPPORTED_FOR_MESSAGE_FORMAT where the log holds messages of magic 0 or 1.
    """
    entries = folder.list()
    compaction = CompactionCheckpoint(folder, exists=any(each.name == COMPACTION_CHECKPOINT for each in entries))
    files, leftovers = _sweep(folder, entries, compaction)
    segments, doubtful = _open_segments(folder, files, request)
    most = request.config.max_producer_ids
    producers = ProducerState(folder, [base for base, suffix in files if suffix == SNAPSHOT_SUFFIX], most)
    epochs = _open_epochs(folder)
    epochs_before = epochs.entries()
    if not epochs_before:
        for segment in segments:
            _note_epochs(segment, epochs, compaction.epochs)
    quarantine = Quarantine(folder, request.now_ms)
    loaded = LoadedLog(
        segments, epochs, producers, compaction, quarantine, request.start_offset, 0, request.recovery_point
    )
    loaded.remembered_epochs = epochs_before, compaction.epochs
    loaded.cleaned_to, loaded.leftovers = request.cleaned_to, leftovers
    if not request.trusts_files:
        base = _floor(segments, request.recovery_point)
        doubtful.update(segment.base_offset for segment in segments if segment.base_offset >= base)
        epochs.truncate_end(base)
    _recover(folder, loaded, doubtful, request)
    try:
        _settle_ends(folder, loaded, request)
    except KafkaError as error:
        # The stop was marked clean, yet the last segment ends in a broken batch.
        _log.warning("last segment is damaged after a clean shutdown path=%s error=%s", folder.path, error)
        doubtful = {segments[-1].base_offset}
        _recover(folder, loaded, doubtful, request)
        _settle_ends(folder, loaded, request)
    changed = epochs.entries() != epochs_before
    # An epoch without batches, which every leader begins, may stay on disk: each batch of another epoch saves the file.
    changed |= epochs.truncate_end(loaded.end_offset) and not request.trusts_files
    changed |= epochs.truncate_start(loaded.start_offset)
    if changed:
        epochs.save(sync=False)
    compaction.truncate(loaded.end_offset)
    _settle_producers(loaded, rebuilt=bool(doubtful))
    _unsettle_transactions(folder, loaded, max(request.high_watermark, loaded.cleaned_to))
    if doubtful or not request.trusts_files:
        # A truncation, made now or by a process that was killed since, is durable before new bytes are written there.
        loaded.segments[-1].file.sync()
        vouched = _floor(loaded.segments, loaded.recovery_point)
        for segment in loaded.segments:
            if segment.base_offset in doubtful and segment.base_offset < vouched:
                segment.sync_indexes()  # the next recovery does not read it
        folder.sync()
    return loaded


def recover(folder: Folder, request: LoadRequest) -> Recovered:
    """Recover the log in `folder` and close its files, which are then those of a clean stop. Raises as `load`."""
    loaded = load(folder, request)
    for segment in loaded.segments:
        segment.close()
    return Recovered(loaded.recovery_point, loaded.cleaned_to, loaded.truncated_bytes, loaded.damaged_at)


def bytes_to_recover(folder: Folder, request: LoadRequest) -> int:
    """The maximum number of bytes that an unclean load reads: from the segment on that holds the recovery point."""
    found = [(_NAME.fullmatch(entry.name), entry.size) for entry in folder.list() if not entry.is_directory]
    sizes = {int(match[1]): size for match, size in found if match and match[2] == LOG_SUFFIX and match[3] is None}
    first = max((base for base in sizes if base <= request.recovery_point), default=0)
    return sum(size for base, size in sizes.items() if base >= first)


def recover_folders(requests: list[tuple[str, LoadRequest]]) -> list[Recovered | KafkaError | OSError]:
    """Recover the logs at these paths, in a worker process; their requests come without the two functions.

    An exception of a log's recovery is returned in the place of its outcome.
    """
    disk = OsDisk()
    outcomes: list[Recovered | KafkaError | OSError] = []
    for path, request in requests:
        try:
            outcomes.append(recover(Folder(disk, path), request))
        except (KafkaError, OSError) as error:
            outcomes.append(error)
    return outcomes


# -- files -------------------------------------------------------------------------------------------------------------


def _sweep(
    folder: Folder, entries: list[Entry], compaction: CompactionCheckpoint
) -> tuple[dict[tuple[int, str], Entry], list[str]]:
    """Finish or undo an interrupted swap; returns (base offset, suffix) -> file, and the names of deleted files."""
    files: dict[tuple[int, str], Entry] = {}
    leftovers: list[str] = []
    swapped: dict[int, list[str]] = {}
    cleaned: list[int] = []
    for entry in entries:
        match = None if entry.is_directory else _NAME.fullmatch(entry.name)
        if match is None:
            if entry.name.endswith(TEMPORARY_SUFFIX):
                folder.remove(entry.name)  # of a file that was being replaced
            continue
        base, suffix, state = int(match[1]), match[2], match[3]
        if state is None:
            files[base, suffix] = entry
        elif state == _SWAP_SUFFIX:
            swapped.setdefault(base, []).append(entry.name)
        elif state == DELETED_SUFFIX:
            leftovers.append(entry.name)
        else:
            cleaned.append(base)
            folder.remove(entry.name)
    if swapped:
        _finish_swap(folder, files, swapped, min(cleaned, default=None), compaction)
        return _sweep(folder, folder.list(), compaction)
    for base, suffix in list(files):
        if suffix in _ENTRY_SIZES and (base, LOG_SUFFIX) not in files:
            folder.remove(files.pop((base, suffix)).name)
    return files, leftovers


def _finish_swap(
    folder: Folder,
    files: dict[tuple[int, str], Entry],
    swapped: dict[int, list[str]],
    first_cleaned: int | None,
    compaction: CompactionCheckpoint,
) -> None:
    """Put compacted segments in the place of their sources, which may be gone already.

    A segment beyond the first one that was still being written belongs to a swap that never began, and is dropped.
    """
    for base, names in swapped.items():
        log_name = f"{base:020d}{LOG_SUFFIX}{_SWAP_SUFFIX}"
        if log_name not in names or (first_cleaned is not None and base >= first_cleaned):
            for name in names:
                folder.remove(name)
            continue
        end = _end_of_swapped(folder, log_name, base, compaction)
        for (old, suffix), entry in files.items():
            if base <= old < end and suffix != SNAPSHOT_SUFFIX:
                folder.rename(entry.name, entry.name + DELETED_SUFFIX)
        folder.sync()  # from here on the deleted file proves that the segment is a compacted one
        for name in sorted(names, key=lambda name: name == log_name):
            folder.rename(name, name.removesuffix(_SWAP_SUFFIX))
        folder.sync()


def _end_of_swapped(folder: Folder, log_name: str, base: int, compaction: CompactionCheckpoint) -> int:
    """The end of the segments that a compacted one replaces: from the checkpoint or, for Kafka's, from the batches."""
    end = base + 1
    file = folder.open(log_name)
    position = 0
    while len(head := file.read(HEADER_SIZE, position)) == HEADER_SIZE:
        header = read_header(head)
        if header.size < HEADER_SIZE:
            break
        end = header.next_offset
        position += header.size
    return max(end, compaction.end_of(base, position) or 0)


def _open_segments(
    folder: Folder, files: dict[tuple[int, str], Entry], request: LoadRequest
) -> tuple[list[Segment], set[int]]:
    """The segments, oldest first, and the bases of those whose index files are missing or cut off."""
    segments: list[Segment] = []
    doubtful: set[int] = set()
    for base, suffix in sorted(files):
        if suffix != LOG_SUFFIX:
            continue
        segment = Segment(folder, base, files[base, suffix].size, request.config)
        segment.created_ms = request.now_ms
        segment.jitter_ms = request.jitter_ms(request.config)
        segments.append(segment)
        for index, entry_size in _ENTRY_SIZES.items():
            entry = files.get((base, index))
            if (entry is None and index != ".txnindex") or (entry is not None and entry.size % entry_size):
                if request.trusts_files:
                    _log.warning("rebuilding the indexes of a segment path=%s missing=%s", folder / segment.name, index)
                doubtful.add(base)
    return segments, doubtful


def _open_epochs(folder: Folder) -> LeaderEpochs:
    try:
        return LeaderEpochs(folder)
    except CorruptFile as error:
        _log.warning("rebuilding leader epochs from the log path=%s error=%s", folder / LEADER_EPOCHS, error)
        folder.remove(LEADER_EPOCHS)
        return LeaderEpochs(folder)


def _note_epochs(segment: Segment, epochs: LeaderEpochs, remembered: list[tuple[int, int]]) -> None:
    try:
        for _, header in segment.headers():
            epochs.note(header.leader_epoch, header.base_offset, (remembered,))
    except KafkaError:
        return  # a torn tail, which recovery truncates


def _floor(segments: Iterable[Segment], offset: int) -> int:
    """The base of the segment that holds `offset`."""
    return max((segment.base_offset for segment in segments if segment.base_offset <= offset), default=0)


# -- recovery ----------------------------------------------------------------------------------------------------------


def _recover(folder: Folder, loaded: LoadedLog, doubtful: set[int], request: LoadRequest) -> None:
    """Recover the doubtful segments, and truncate the log where one of them ends in a broken batch."""
    segments, producers = loaded.segments, loaded.producers
    sound_below = 0 if request.clean else request.recovery_point
    state_is_here = False
    for number, segment in enumerate(segments):
        if segment.base_offset not in doubtful:
            state_is_here = False
            continue
        if not state_is_here:
            rebuild_producers(producers, segments[:number], request.start_offset, segment.base_offset)
        producers.end_offset = segment.base_offset
        producers.snapshot()
        size = segment.size
        behind = segments[number + 1 :]
        below = behind[0].base_offset if behind else None
        damaged = _recover_segment(segment, loaded, below, sound_below)
        state_is_here = True
        if segment.size < size and producers.end_offset == below:
            # The log was truncated there and continued in the next segment; only the truncation was not durable.
            _log.warning(
                "repeating an earlier truncation path=%s bytes=%d quarantine=%s",
                folder / segment.name,
                size - segment.size,
                loaded.quarantine.path,
            )
            continue
        if segment.size < size or _breaks_off(segment, behind, loaded, request):
            loaded.truncated_bytes += size - segment.size + sum(later.size for later in behind)
            where = f"{folder / segment.name} at byte {segment.size}"
            for later in behind:
                _remove_behind(folder, later, loaded.quarantine, where)
            if damaged or any(later.size for later in behind):
                loaded.damaged_at = where
                text, level = "truncating a damaged log at=%r bytes=%d quarantine=%s", logging.ERROR
            else:
                text, level = "truncating a torn write at=%r bytes=%d quarantine=%s", logging.WARNING
            _log.log(level, text, where, loaded.truncated_bytes, loaded.quarantine.path)
            del segments[number + 1 :]
            producers.keep_snapshots(offset for offset in producers.snapshots if offset <= producers.end_offset)
            return


def _remove_behind(folder: Folder, segment: Segment, quarantine: Quarantine, where: str) -> None:
    """Remove a segment behind the end of the log; one with batches goes to the quarantine."""
    if segment.size:
        quarantine.keep_segment(segment, f"the log ends before this segment: {where}")
        return
    segment.close()
    for name in segment.file_names():
        folder.remove(name)


def _breaks_off(segment: Segment, behind: list[Segment], loaded: LoadedLog, request: LoadRequest) -> bool:
    """Whether whole batches are missing between `segment`, which has just been recovered, and the one behind it.

    A loss of power can take the end of a segment that was not synced yet and leave the bytes of the next one. A
    clean stop loses nothing, and compaction leaves gaps of its own.
    """
    if request.clean or not behind or behind[0].base_offset <= loaded.producers.end_offset:
        return False
    end = loaded.compaction.end_of(segment.base_offset, segment.size)
    if end is not None and end >= behind[0].base_offset:
        return False
    if segment.base_offset < loaded.cleaned_to or (request.config.compacts and not request.gaps_are_losses):
        return False
    if segment.name + DELETED_SUFFIX in loaded.leftovers:
        # A compaction proceeds from the start of the log to its end, so it has finished everything below.
        loaded.cleaned_to = behind[0].base_offset
        return False
    return True


def _recover_segment(segment: Segment, loaded: LoadedLog, below: int | None, sound_below: int) -> bool:
    """Read every batch below the offset where the next segment begins, rebuild the indexes, and truncate the file at
    the first invalid batch.

    Returns whether a whole batch follows the invalid one.
    """
    producers, epochs = loaded.producers, loaded.epochs
    # For a segment that the next recovery does not read, the files are written anew beside the old ones.
    segment.reset_indexes(in_place=below is None or below > sound_below)
    next_offset = segment.base_offset
    valid_bytes = 0
    reason = "no whole batch with a valid checksum begins here"
    for buffer, place, position, header in _batches(segment, sound_below):
        last_offset = header.base_offset + header.last_offset_delta
        if below is not None and header.base_offset >= below:
            reason = f"a batch of offset {header.base_offset}, and the next segment begins at offset {below}"
            break
        if header.base_offset < next_offset or last_offset - segment.base_offset > MAX_RELATIVE_OFFSET:
            reason = f"a batch of offsets {header.base_offset} to {last_offset}, where offset {next_offset} follows"
            break
        try:
            aborted = producers.replay(buffer, place, header)
        except ProtocolError as error:
            _log.warning("invalid batch segment=%s position=%d error=%s", segment.name, position, error)
            reason = str(error)
            break
        segment.note(position, LOG_OVERHEAD + header.batch_length, last_offset, header.max_timestamp)
        if aborted is not None:
            segment.aborted.append(aborted)
        epochs.note(header.leader_epoch, header.base_offset, loaded.remembered_epochs)
        valid_bytes = position + LOG_OVERHEAD + header.batch_length
        next_offset = last_offset + 1
    if not valid_bytes:
        _refuse_old_format(segment)
    damaged = _continues_behind(segment, valid_bytes)
    if valid_bytes < segment.size:
        loaded.quarantine.keep_tail(segment, valid_bytes, reason)
        segment.undo_write(valid_bytes)
    segment.seal()
    return damaged


def _batches(segment: Segment, sound_below: int) -> Iterator[tuple[Buffer, int, int, Header]]:
    """`checked_batches` of a segment, but only the headers of batches that end at `sound_below` or before.

    For these the buffer is empty, unless they contain markers.
    """
    position = 0
    if segment.base_offset < sound_below:
        with suppress(KafkaError):  # an invalid header among them is found by the check of the whole batch
            for position, header in segment.headers():
                end = position + header.size
                if header.next_offset > sound_below or header.last_offset_delta < 0 or end > segment.size:
                    break
                yield read_batch(segment, position, header) if header.attributes & CONTROL else b"", 0, position, header
                position = end
    yield from checked_batches(segment, position)


def _continues_behind(segment: Segment, position: int) -> bool:
    """Whether a valid batch follows the broken one at `position`, if the length of that one is plausible."""
    head = segment.file.read(HEADER_SIZE, position)
    if len(head) < HEADER_SIZE or (size := read_header(head).size) < HEADER_SIZE:
        return False
    return next(checked_batches(segment, position + size), None) is not None


def _refuse_old_format(segment: Segment) -> None:
    """Raise instead of truncating where the segment has whole messages of magic 0 or 1, which Odradek cannot read."""
    head = segment.file.read(18, 0)
    if len(head) < 18 or head[16] > 1:
        return
    size = int.from_bytes(head[8:12], "big")
    if not 14 <= size <= segment.size - LOG_OVERHEAD:
        return
    message = segment.file.read(size, LOG_OVERHEAD)
    if zlib.crc32(message[4:]) == int.from_bytes(message[:4], "big"):
        raise KafkaError(
            ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
            f"{segment.name} holds messages of magic {head[16]}, which Kafka wrote before 0.11; only 2 can be read",
        )


# -- ends --------------------------------------------------------------------------------------------------------------


def _settle_ends(folder: Folder, loaded: LoadedLog, request: LoadRequest) -> None:
    """Determine the ends of the log.

    Kafka deletes all segments of a log that ends below its start offset in the checkpoint, and continues at that
    offset. Here such an entry is rejected: the batches stay, and the log starts at its first one. A log without any
    batch starts at the checkpoint.
    """
    segments = loaded.segments
    start_offset = request.start_offset
    if segments:
        active = segments[-1]
        loaded.end_offset = max(next_offset(active), active.base_offset)
        if loaded.end_offset < start_offset:
            start_offset = _start_of_short_log(folder, loaded, start_offset)
    if not segments:
        jitter_ms = request.jitter_ms(request.config)
        segments.append(Segment.create(folder, start_offset, request.config, request.now_ms, jitter_ms))
        loaded.end_offset = start_offset
    loaded.start_offset = max(start_offset, segments[0].base_offset)
    segments[-1].activate(loaded.end_offset)
    if request.recovered is not None:
        loaded.recovery_point, loaded.cleaned_to, loaded.truncated_bytes, loaded.damaged_at = request.recovered
    if request.clean or loaded.recovery_point > loaded.end_offset:
        loaded.recovery_point = loaded.end_offset
    if loaded.cleaned_to > loaded.end_offset:
        loaded.cleaned_to = -1  # it covers records that are gone, and others take their offsets (KAFKA-3330)


def _start_of_short_log(folder: Folder, loaded: LoadedLog, start_offset: int) -> int:
    """The start offset of a log that ends below the one in the checkpoint; removes its segments if all are empty."""
    if any(segment.size for segment in loaded.segments):
        _log.error(
            "rejecting a log start offset beyond the end of the log path=%s start_offset=%d end_offset=%d",
            folder.path,
            start_offset,
            loaded.end_offset,
        )
        return 0
    for segment in loaded.segments:
        segment.close()
        for name in segment.file_names():
            folder.remove(name)
    loaded.segments.clear()
    loaded.epochs.clear()
    loaded.producers.clear(start_offset)
    return start_offset


def _settle_producers(loaded: LoadedLog, *, rebuilt: bool) -> None:
    """Advance the producers to the log's end, and drop the snapshots of removed segments except for the newest one."""
    producers, segments = loaded.producers, loaded.segments
    bases = {segment.base_offset for segment in segments}
    newest = producers.snapshots[-1:]
    producers.keep_snapshots({*newest, *(offset for offset in producers.snapshots if offset in bases)})
    rebuild_producers(producers, segments, loaded.start_offset, loaded.end_offset)
    if rebuilt:
        producers.snapshot()


def _unsettle_transactions(folder: Folder, loaded: LoadedLog, high_watermark: int) -> None:
    """Find the transactions whose markers are in the log, but not below the high watermark: they are not stable yet.

    A snapshot of the producers has only the transactions that are open at its own offset. So where a marker is above
    the high watermark, the log is replayed from a snapshot below. Where the log cannot be read, nothing of it is stable
    before all of it is replicated. A log none of whose producers has a marker is not read at all. Raises OSError.
    """
    start, end, producers = loaded.start_offset, loaded.end_offset, loaded.producers
    if all(producer.coordinator_epoch < 0 for producer in producers.active()):
        return
    try:
        if not _has_marker_in(loaded.segments, max(high_watermark, start), end):
            return
        replayed = ProducerState(folder, [offset for offset in producers.snapshots if start < offset <= high_watermark])
        rebuild_producers(replayed, loaded.segments, start, end)
    except KafkaError as error:
        _log.warning(
            "cannot read transactions above the high watermark high_watermark=%d error=%s",
            high_watermark,
            error.message,
        )
        producers.unsettle({start: end - 1})
        return
    replayed.on_high_watermark(high_watermark)
    producers.unsettle(replayed.unreplicated)


def _has_marker_in(segments: list[Segment], first_offset: int, end_offset: int) -> bool:
    if first_offset >= end_offset:
        return False
    ends = [*(segment.base_offset for segment in segments[1:]), end_offset]
    return any(
        header.attributes & CONTROL and header.base_offset >= first_offset
        for segment, end in zip(segments, ends, strict=True)
        if end > first_offset
        for _, header in segment.headers(segment.offset_index.lookup(first_offset)[1])
    )


def rebuild_producers(producers: ProducerState, segments: list[Segment], start_offset: int, end_offset: int) -> None:
    """The producers of the log before `end_offset`: from the newest snapshot and the batches behind it.

    Raises OSError, KafkaError CORRUPT_MESSAGE.
    """
    producers.load(start_offset, end_offset)
    if len(producers) and not producers.recall(_headers_before(producers.end_offset, segments, _RECALLED_FIRST)):
        producers.recall(_headers_before(producers.end_offset, segments, _RECALLED_BYTES))
    for number, segment in enumerate(segments):
        behind = segments[number + 1].base_offset if number + 1 < len(segments) else end_offset
        if behind <= producers.end_offset or segment.base_offset >= end_offset:
            continue
        for position, header in segment.headers(segment.offset_index.lookup(producers.end_offset)[1]):
            if header.next_offset > end_offset:  # also one that reaches across, which a truncation removes whole
                break
            if header.base_offset >= producers.end_offset and header.producer_id >= 0:
                batch = read_batch(segment, position, header) if header.attributes & CONTROL else b""
                producers.replay(batch, 0, header)
    producers.end_offset = end_offset


def _headers_before(offset: int, segments: list[Segment], wanted: int) -> Iterator[Header]:
    """The batches below `offset` within about the last `wanted` bytes there."""
    parts: list[tuple[Segment, int]] = []
    for segment in reversed(segments):
        if segment.base_offset >= offset:
            continue
        index = segment.offset_index
        position = index.lookup(offset)[1]
        entry = index.first_from_position(position - wanted) if position > wanted else None
        parts.append((segment, 0 if entry is None else index.lookup(entry)[1]))
        wanted -= segment.size
        if wanted <= 0:
            break
    for segment, first in reversed(parts):
        for _, header in segment.headers(first):
            if header.base_offset >= offset:
                return
            yield header
