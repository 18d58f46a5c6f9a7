"""The compaction checkpoint: its entries for segments and epochs, when they count, and which gaps they do not
excuse.
"""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from odradek.protocol.batch import HEADER_SIZE, LOG_OVERHEAD, Record, build, read_header, sealed
from odradek.storage.compaction import clean
from odradek.storage.compaction_checkpoint import COMPACTION_CHECKPOINT, CompactedSegment, CompactionCheckpoint
from odradek.storage.config import LogConfig
from odradek.storage.disk import Folder, OsDisk
from odradek.storage.log import Log
from odradek.storage.segments import LogSegments
from odradek.storage.swap import note
from tests.storage.batches import NOW_MS, all_headers, batch, open_log
from tests.storage.compaction_pass import a_pass

CONFIG = LogConfig(cleanup_policy=("compact",), segment_bytes=200, index_interval_bytes=100, delete_retention_ms=0)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "topic-0"


def at(path: Path) -> CompactionCheckpoint:
    return CompactionCheckpoint(Folder(OsDisk(), str(path)))


def compact(log: Log, now_ms: int = NOW_MS) -> None:
    request = a_pass(log, now_ms)
    assert request is not None
    assert log.swap_in(clean(OsDisk(), request), now_ms=now_ms)


def append(log: Log, key: bytes, epoch: int) -> int:
    data = build([Record(0, NOW_MS, key, b"value" * 5)])
    return log.append(data, leader_epoch=epoch, now_ms=NOW_MS).first_offset


def with_gaps(path: Path) -> Log:
    """A compacted log: a segment for each pair of offsets up to 9, leaders from 0, 3 and 5 on, and one key except for
    1.

    Of the compacted part offsets 1 and 9 are left, so no batch shows where the last two epochs begin.
    """
    log = open_log(path, replace(CONFIG, segment_bytes=1000))
    for offset in range(10):
        assert append(log, b"x" if offset == 1 else b"k", (offset >= 3) + (offset >= 5)) == offset
        if offset % 2:
            log.roll(NOW_MS)
    log.config = CONFIG
    compact(log)
    assert [header.base_offset for header in all_headers(log)] == [1, 9]
    assert log.epochs.entries() == EPOCHS
    return log


EPOCHS = [(0, 0), (1, 3), (2, 5)]


def abandoned(log: Log) -> Path:
    """The folder of a log whose process was killed; segments that compaction replaced are gone from it."""
    log.purge(NOW_MS + log.config.file_delete_delay_ms)
    log.close_files()
    return Path(log.directory)


# -- the file ----------------------------------------------------------------------------------------------------------


def test_written_entries_are_read(tmp_path: Path) -> None:
    checkpoint = at(tmp_path)
    checkpoint.add_segments([], [CompactedSegment(0, 10, 300), CompactedSegment(10, 20, 0)], [(0, 0), (7, 15)])
    assert (tmp_path / COMPACTION_CHECKPOINT).read_bytes() == (
        b"0\n4\nsegment 0 10 300\nsegment 10 20 0\nepoch 0 0\nepoch 7 15\n"
    )
    again = at(tmp_path)
    assert (again.end_of(0, 300), again.end_of(10, 0), again.epochs) == (10, 20, [(0, 0), (7, 15)])
    assert (again.end_of(0, 299), again.end_of(5, 300)) == (None, None), "it has no entry for another file"


def test_before_a_swap_it_has_the_old_segment_and_the_new_one(tmp_path: Path) -> None:
    checkpoint = at(tmp_path)
    checkpoint.add_segments([(0, 900)], [CompactedSegment(0, 10, 300), CompactedSegment(10, 20, 50)], [])
    checkpoint.add_segments([(0, 300), (20, 800)], [CompactedSegment(0, 20, 100)], [])
    again = at(tmp_path)
    assert (again.end_of(0, 300), again.end_of(0, 100), again.end_of(10, 50)) == (10, 20, None)


def test_a_truncation_keeps_only_entries_that_end_below_it(tmp_path: Path) -> None:
    checkpoint = at(tmp_path)
    checkpoint.add_segments([], [CompactedSegment(0, 10, 300), CompactedSegment(10, 20, 50)], [(0, 0)])
    checkpoint.truncate(20)
    assert at(tmp_path).end_of(10, 50) == 20
    checkpoint.truncate(19)
    again = at(tmp_path)
    assert (again.end_of(0, 300), again.end_of(10, 50), again.epochs) == (10, None, [(0, 0)])


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"1\n0\n",
        b"0\n2\nepoch 0 0\n",
        b"0\n1\nepoch 0\n",
        b"0\n1\nsegment 0 1\n",
        b"0\n1\nepoch 0 x\n",
        b"0\n1\nother 0 0\n",
        b"\xff\n0\n",
        bytes(60),
    ],
)
def test_an_unreadable_file_counts_as_none(tmp_path: Path, data: bytes) -> None:
    (tmp_path / COMPACTION_CHECKPOINT).write_bytes(data)
    checkpoint = at(tmp_path)
    assert (checkpoint.end_of(0, 0), checkpoint.epochs) == (None, [])


# -- its purpose -------------------------------------------------------------------------------------------------------


def test_a_gap_made_by_compaction_is_no_loss_even_without_a_cleaner_checkpoint(path: Path) -> None:
    log = with_gaps(path)
    append(log, b"k", 2)
    end = log.end_offset
    abandoned(log)
    log = open_log(path, CONFIG, clean=False, cleaned_to=-1)
    assert (log.end_offset, log.damaged_at) == (end, None)
    assert [header.base_offset for header in all_headers(log)] == [1, 9, 10]
    assert log.epochs.entries() == EPOCHS


def test_without_the_checkpoint_the_same_gap_is_a_loss(path: Path) -> None:
    folder = abandoned(with_gaps(path))
    (folder / COMPACTION_CHECKPOINT).unlink()
    (folder / "leader-epoch-checkpoint").unlink()
    log = open_log(path, CONFIG, clean=False, cleaned_to=-1)
    assert log.end_offset < 10
    assert log.epochs.entries() != EPOCHS


def test_a_compacted_segment_that_has_lost_its_end_is_not_excused(path: Path) -> None:
    log = with_gaps(path)
    first = log.segments[0]
    assert [header.base_offset for _, header in first.headers()] == [1]
    folder = abandoned(log)
    (folder / first.name).write_bytes(b"")
    log = open_log(path, CONFIG, clean=False, cleaned_to=-1)
    assert log.end_offset == 0


def test_a_segment_that_was_written_later_is_not_excused(path: Path) -> None:
    """Behind the compacted part a gap is a loss as ever."""
    log = with_gaps(path)
    for _ in range(2):
        append(log, b"k", 2)
    rolled = log.segments[-1]
    log.roll(NOW_MS)
    append(log, b"k", 2)
    positions = [position for position, _ in rolled.headers()]
    folder = abandoned(log)
    file = folder / rolled.name
    file.write_bytes(file.read_bytes()[: positions[1]])
    log = open_log(path, CONFIG, clean=False, cleaned_to=10)
    assert log.end_offset == 11


def test_a_truncated_log_forgets_the_compaction_above_the_truncation(path: Path) -> None:
    log = with_gaps(path)
    assert at(path).end_of(log.segments[-2].base_offset, log.segments[-2].size) == 10
    base, size = log.segments[-2].base_offset, log.segments[-2].size
    log.truncate_to(9, now_ms=NOW_MS)
    assert at(path).end_of(base, size) is None
    log.truncate_fully(20, now_ms=NOW_MS)
    assert b"segment" not in (path / COMPACTION_CHECKPOINT).read_bytes()


def test_a_damaged_log_forgets_the_compaction_behind_the_damage(path: Path) -> None:
    log = with_gaps(path)
    last = log.segments[-2]
    folder = abandoned(log)
    data = bytearray((folder / last.name).read_bytes())
    data[-1] ^= 1
    (folder / last.name).write_bytes(data)
    log = open_log(path, CONFIG, clean=False, cleaned_to=-1)
    assert log.end_offset < 10
    assert at(path).end_of(last.base_offset, last.size) is None


def test_an_interrupted_swap_replaces_all_segments_that_it_was_made_from(path: Path, tmp_path: Path) -> None:
    """The last of the old segments has no batches left in the new one, which ends far below it."""
    log = open_log(path, replace(CONFIG, segment_bytes=1000))
    for key in (b"x", b"k", b"k", b"k"):
        append(log, key, 0)
        log.roll(NOW_MS)
    append(log, b"k", 0)
    log.roll(NOW_MS)
    append(log, b"k", 0)
    request = a_pass(log, NOW_MS)
    assert request is not None
    request = replace(request, sources=request.sources[:4])
    cleaned = clean(OsDisk(), replace(request, map_bytes=1 << 16))
    (group,) = cleaned.groups
    note(at(path), LogSegments(log.segments), cleaned.groups, log.epochs.entries())
    log.close_files()
    for file in list(path.glob("*.cleaned")):
        file.rename(file.with_suffix(".swap"))
    log = open_log(path, CONFIG, clean=False)
    assert [segment.base_offset for segment in log.segments] == [0, 4, 5]
    assert log.segments[0].size == group.size
    assert (log.end_offset, log.damaged_at) == (6, None)


def test_a_follower_begins_epochs_where_its_leader_did_and_stores_them(path: Path, tmp_path: Path) -> None:
    leader = with_gaps(tmp_path / "leader")
    follower = open_log(path, CONFIG)
    while follower.end_offset < leader.end_offset:
        part = leader.read(follower.end_offset, 1).records
        assert not isinstance(part, bytes)
        epochs = leader.epochs.starting_from(follower.end_offset, 1000)
        follower.append_replicated(part.read(), now_ms=NOW_MS, epochs=epochs)
    assert follower.epochs.entries() == EPOCHS
    follower.close_files()
    (path / "leader-epoch-checkpoint").write_bytes(b"")  # the state in which a loss of power leaves an unsynced file
    follower = open_log(path, CONFIG, clean=False)
    assert follower.epochs.entries() == EPOCHS


def test_epochs_of_another_lineage_are_not_taken_over(path: Path) -> None:
    """An entry from before a truncation of the log, which then continued with an epoch that has no entry."""
    at(path_made(path)).set_epochs([(0, 0), (1, 4)])
    log = open_log(path, CONFIG)
    log.append_replicated(bytes(batch(2, base_offset=0, leader_epoch=0)), now_ms=NOW_MS)
    log.append_replicated(bytes(batch(2, base_offset=6, leader_epoch=2)), now_ms=NOW_MS)
    log.close_files()
    (path / "leader-epoch-checkpoint").unlink()
    log = open_log(path, CONFIG, clean=False)
    assert log.epochs.entries() == [(0, 0), (2, 6)]


def path_made(path: Path) -> Path:
    path.mkdir(exist_ok=True)
    return path


# -- directories of earlier versions -----------------------------------------------------------------------------------


def test_a_log_with_the_empty_batches_of_earlier_versions_opens_and_loses_them(path: Path, tmp_path: Path) -> None:
    """Earlier versions kept a header without a producer for the last batch of a segment, and for the first of an
    epoch.
    """
    log = open_log(path, CONFIG)
    for offset in range(6):
        append(log, b"k", offset // 2)
        log.roll(NOW_MS)
    names = [segment.name for segment in log.segments[:5]]
    log.close(now_ms=NOW_MS)
    for name in names:
        header = read_header((path / name).read_bytes())
        made = header._replace(attributes=0, batch_length=HEADER_SIZE - LOG_OVERHEAD, base_timestamp=-1, record_count=0)
        (path / name).write_bytes(sealed(made, b""))
        for suffix in (".index", ".timeindex"):
            (path / name).with_suffix(suffix).unlink()
    shutil.copytree(path, tmp_path / "again")
    for clean_stop in (True, False):
        log = open_log(path if clean_stop else tmp_path / "again", CONFIG, clean=clean_stop)
        assert [header.record_count for header in all_headers(log)] == [0] * 5 + [1]
        assert (log.end_offset, log.epochs.entries()) == (6, [(0, 0), (1, 2), (2, 4)])
        append(log, b"k", 2)
        log.roll(NOW_MS)
        compact(log)
        assert [(header.base_offset, header.record_count) for header in all_headers(log)] == [(6, 1)]
        assert log.epochs.entries() == [(0, 0), (1, 2), (2, 4)]
        abandoned(log)
        log = open_log(log.directory, CONFIG, clean=False, cleaned_to=-1)
        assert (log.end_offset, log.epochs.entries()) == (7, [(0, 0), (1, 2), (2, 4)])
        log.close_files()
