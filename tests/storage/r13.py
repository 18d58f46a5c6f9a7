"""R13: the state that a recovered log must have, for any end of the process that wrote it.

Its batches are a run of the written ones, each valid, and at least all that were on stable storage; no truncated batch
is back. Every file beside them agrees with the batches, as a rebuild from nothing but the batches shows. A log whose
first segments were deleted may have producers and aborted transactions that began below its start, which a rebuild
cannot have.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from odradek.protocol.batch import Header, crc_ok, headers
from odradek.storage.disk import Disk, Folder
from odradek.storage.log import Log
from odradek.storage.producers import decode_snapshot
from odradek.storage.recovery import LoadRequest
from odradek.storage.segment import Segment
from tests.storage.disks import MemoryDisk


class Written(NamedTuple):
    """A batch as its bytes."""

    data: bytes
    header: Header


def batches_of(log: Log) -> list[Written]:
    """Every batch in the files of a log, also below its start. Raises AssertionError where one is invalid."""
    found: list[Written] = []
    for segment in log.segments:
        found += batches_in(segment)
    return found


def batches_in(segment: Segment) -> list[Written]:
    """Every batch of one segment. Raises AssertionError where one is invalid."""
    data = segment.file.read(segment.size, 0)
    found = []
    end = 0
    for position, header in headers(data):
        batch = data[position : position + header.size]
        assert len(batch) == header.size and crc_ok(batch, 0, header), f"{segment.name} at {position} is not valid"  # noqa: PT018
        found.append(Written(batch, header))
        end = position + header.size
    assert end == segment.size, f"{segment.name} has {segment.size - end} bytes behind its last batch"
    return found


def check_r13(log: Log, written: Sequence[Written], synced: int, *, start: int = 0) -> None:
    """Whether a recovered log is one that a loss of power may leave of `written`. Raises AssertionError.

    `written` is the log before, from below its start if need be; all of it below the offset `synced` and from `start`
    on was on stable storage.
    """
    check_run(batches_of(log), written, synced, start=start)
    check_files(log, start=start)


def check_run(found: Sequence[Written], written: Sequence[Written], synced: int, *, start: int = 0) -> None:
    """Whether `found` is a run of `written`, and has all of it between `start` and `synced`. Raises AssertionError."""
    needed = [each.data for each in written if each.header.next_offset <= synced and each.header.next_offset > start]
    have, all_written = [each.data for each in found], [each.data for each in written]
    if not have:
        assert not needed, f"no batch is left; offsets {start} to {synced} were synced"
        return
    first = found[0].header.base_offset
    place = next((n for n, each in enumerate(written) if each.header.base_offset == first), None)
    assert place is not None, f"the log begins at {first}, where no batch was written"
    expected = all_written[place : place + len(have)]
    for number, (here, there) in enumerate(zip(have, expected, strict=False)):
        offset = found[number].header.base_offset
        assert here == there, f"the batch at {offset} does not follow the batch before it"
    assert len(have) == len(expected), f"{len(have) - len(expected)} batches more than were written"
    if needed:
        assert set(needed) <= set(have), (
            f"offsets {start} to {synced} were synced, and of them there is {first} to {found[-1].header.next_offset}"
        )


def check_files(log: Log, *, start: int = 0) -> None:
    """Whether epochs and indexes agree with the batches. Raises AssertionError.

    The epochs may lack those below `start`, where the log once began before its start was recorded.
    """
    epochs: list[tuple[int, int]] = []
    end = None
    for segment in log.segments:
        batches = batches_in(segment)
        check_indexes(segment, batches)
        for _, header in batches:
            assert end is None or header.base_offset >= end, f"offset {header.base_offset} comes twice"
            end = header.next_offset
            if not epochs or header.leader_epoch > epochs[-1][0]:
                epochs.append((header.leader_epoch, header.base_offset))
    begun = [entry for entry in log.epochs.entries() if entry[1] < log.end_offset]
    first = max(log.start_offset, min(start, begun[0][1]) if begun else 0)
    epochs = _from(first, [entry for entry in epochs if entry[1] < log.end_offset])
    assert begun == epochs, f"the epochs are {begun}, those of the batches {epochs}"


def check_compacted_files(log: Log) -> None:
    """As `check_files`, for a log from which compaction may have removed batches: also the first ones of an epoch.

    Raises AssertionError.
    """
    end = None
    for segment in log.segments:
        batches = batches_in(segment)
        check_indexes(segment, batches)
        for _, header in batches:
            assert end is None or header.base_offset >= end, f"offset {header.base_offset} comes twice"
            end = header.next_offset
            epoch = log.epochs.epoch_at(header.base_offset)
            assert epoch == header.leader_epoch, f"{header.base_offset} is of {header.leader_epoch}, not of {epoch}"


def _from(offset: int, epochs: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Epochs without those below an offset."""
    while len(epochs) > 1 and epochs[1][1] <= offset:
        del epochs[0]
    if epochs and epochs[0][1] < offset:
        epochs[0] = (epochs[0][0], offset)
    return epochs


def check_indexes(segment: Segment, batches: list[Written]) -> None:
    positions: dict[int, int] = {}
    latest: dict[int, int] = {}
    position, timestamp = 0, -1
    for data, header in batches:
        positions[header.last_offset] = position
        position += len(data)
        timestamp = max(timestamp, header.max_timestamp)
        latest[header.last_offset] = timestamp
    for offset, place in segment.offset_index.entries():
        assert positions.get(offset) == place, f"{segment.name}: its index has {offset} at {place}"
    reached = 0
    for stamp, offset in segment.time_index.entries():
        at = min((last for last in latest if last >= offset), default=None)
        assert at is not None and latest[at] == stamp, f"{segment.name}: its time index has {stamp} at {offset}"  # noqa: PT018
        reached = stamp
    assert segment.max_timestamp == max(timestamp, -1) >= reached or not batches
    for entry in segment.aborted.entries():
        marker = next((each for _, each in batches if each.base_offset == entry.last_offset), None)
        assert marker is not None and marker.is_control, f"{segment.name}: no marker stands at {entry.last_offset}"  # noqa: PT018
        assert marker.producer_id == entry.producer_id


def check_rebuild(disk: Disk, path: str, request: LoadRequest) -> None:
    """Whether a log that was closed has the files that are built from its batches alone. Raises AssertionError.

    For a log that was never truncated: a truncation leaves the entries of an index at other distances.
    """
    files = _files(disk, path)
    bare = MemoryDisk()
    bare.make_directory(path)
    for name, data in files.items():
        if name.endswith(".log"):
            bare.replace(f"{path}/{name}", data, sync=True)
    request = replace(request, clean=False, recovery_point=0)
    Log.open(Folder(bare, path), ("topic", 0), bytes(16), request).close(now_ms=request.now_ms)
    rebuilt = _files(bare, path)
    whole = request.start_offset == 0
    for name, data in files.items():
        if name.endswith((".index", ".timeindex")) or (whole and name.endswith(".txnindex")):
            assert rebuilt.get(name, b"") == data, f"{name} is not what a rebuild makes"
        elif name.endswith(".snapshot"):
            # Only those of segments and of the end are rebuilt; every one has to be readable.
            assert name in rebuilt or not whole, f"{name} belongs to no segment"
            _check_snapshot(name, data, rebuilt.get(name), whole=whole)


def _check_snapshot(name: str, data: bytes, rebuilt: bytes | None, *, whole: bool) -> None:
    ours, theirs = _producers(data), {} if rebuilt is None else _producers(rebuilt)
    if whole:
        assert ours == theirs, f"{name} is not what a rebuild makes: {ours}, {theirs}"
    for producer_id, state in theirs.items():
        assert ours.get(producer_id, ())[:2] == state[:2], f"{name} has {ours.get(producer_id)} in place of {state}"


def _producers(snapshot: bytes) -> dict[int, tuple[int, ...]]:
    return {
        each.producer_id: (each.epoch, each.last_sequence, each.coordinator_epoch, each.transaction_start)
        for each in decode_snapshot(snapshot)
    }


def _files(disk: Disk, path: str) -> dict[str, bytes]:
    return {entry.name: disk.read(f"{path}/{entry.name}") for entry in disk.list(path) if not entry.is_directory}
