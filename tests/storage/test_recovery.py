"""After an unclean stop a log is a valid prefix of the written batches, and every file equals a rebuilt one."""

from __future__ import annotations

import logging
import shutil
import zlib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.protocol.batch import control_batch
from odradek.protocol.compression import Codec
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.storage.config import AppendOrigin, LogConfig
from odradek.storage.log import Log
from odradek.storage.producers import WAIVED
from tests.storage.batches import NOW_MS, all_bytes, all_headers, batch, files, open_log
from tests.storage.disks import MemoryDisk, keep_nothing

CONFIG = LogConfig(segment_bytes=3000, index_interval_bytes=300)


def fill(log: Log, count: int = 60) -> None:
    """Plain, idempotent and transactional batches of every codec, over several segments and epochs."""
    for number in range(count):
        options: dict[str, object] = {"size": 60, "timestamp_ms": NOW_MS + number * 7 % 50, "codec": Codec(number % 5)}
        producer = number % 3
        if producer:
            options |= {"producer": (producer, 0, number // 3 * 2), "transactional": producer == 2}
        verification = WAIVED if producer == 2 else None
        log.append(
            batch(2, **options),  # type: ignore[arg-type]
            leader_epoch=number // 25,
            now_ms=NOW_MS,
            verification=verification,
        )
        if number % 13 == 12:
            marker = control_batch(
                commit=number % 2 == 0,
                coordinator_epoch=1,
                producer_id=2,
                producer_epoch=0,
                timestamp_ms=NOW_MS + number,
            )
            log.append(marker, leader_epoch=number // 25, now_ms=NOW_MS, origin=AppendOrigin.COORDINATOR)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "topic-0"


def abandon(log: Log) -> None:
    """The files after a killed process: all bytes that were written to the system, and nothing more."""
    log.close_files()


def test_a_clean_stop_and_a_load_change_no_file(path: Path) -> None:
    log = open_log(path, CONFIG)
    fill(log)
    log.close(now_ms=NOW_MS)
    before = files(path)
    log = open_log(path, CONFIG)
    log.close(now_ms=NOW_MS)
    assert files(path) == before


def test_recovery_makes_the_files_that_a_clean_stop_leaves(path: Path, tmp_path: Path) -> None:
    log = open_log(path, CONFIG)
    fill(log)
    shutil.copytree(path, tmp_path / "killed")
    log.close(now_ms=NOW_MS)
    shutil.copytree(path, tmp_path / "bare")
    for name in files(tmp_path / "bare"):
        if not name.endswith(".log"):
            (tmp_path / "bare" / name).unlink()
    expected = files(path)
    assert any(name.endswith(".txnindex") and data for name, data in expected.items())
    for name in ("killed", "bare"):
        recovered = open_log(tmp_path / name, CONFIG, clean=False)
        assert (recovered.start_offset, recovered.end_offset) == (log.start_offset, log.end_offset)
        assert recovered.epochs.entries() == log.epochs.entries()
        for each in (log, recovered):
            each.producers.on_high_watermark(log.end_offset)
        assert recovered.first_unstable_offset == log.first_unstable_offset is not None
        recovered.close(now_ms=NOW_MS)
        assert files(tmp_path / name) == expected


def test_recovery_from_the_recovery_point_equals_recovery_from_the_start(path: Path, tmp_path: Path) -> None:
    log = open_log(path, CONFIG)
    fill(log, 40)
    flush = log.start_flush(rolled_only=True)
    flush.run()
    log.finish_flush(flush, None, now_ms=NOW_MS)
    recovery_point = log.recovery_point
    assert 0 < recovery_point < log.end_offset
    fill_more = batch(2, producer=(1, 0, 26))
    log.append(fill_more, leader_epoch=3, now_ms=NOW_MS)
    abandon(log)
    shutil.copytree(path, tmp_path / "whole")
    some = open_log(path, CONFIG, clean=False, recovery_point=recovery_point)
    whole = open_log(tmp_path / "whole", CONFIG, clean=False)
    assert some.recovery_point == recovery_point
    for each in (some, whole):
        each.close(now_ms=NOW_MS)
    assert files(path) == files(tmp_path / "whole")


def test_a_torn_tail_is_truncated_wherever_it_tears(path: Path, tmp_path: Path) -> None:
    log = open_log(path)
    for sequence in range(3):
        log.append(batch(2, size=5, producer=(1, 0, sequence * 2)), leader_epoch=sequence, now_ms=NOW_MS)
    kept = all_bytes(log)
    last = bytes(batch(3, size=5, producer=(1, 0, 6)))
    log.append(last, leader_epoch=9, now_ms=NOW_MS)
    abandon(log)
    whole = (path / f"{0:020d}.log").read_bytes()
    for size in range(len(last)):
        torn = tmp_path / f"torn-{size}"
        shutil.copytree(path, torn)
        (torn / f"{0:020d}.log").write_bytes(whole[: len(kept) + size])
        recovered = open_log(torn, clean=False)
        assert all_bytes(recovered) == kept
        assert (recovered.end_offset, recovered.damaged_at) == (6, None)
        assert recovered.epochs.entries() == [(0, 0), (1, 2), (2, 4)]
        producer = recovered.producers.get(1)
        assert producer is not None
        assert producer.last_sequence == 5
        assert recovered.append(bytes(last), leader_epoch=9, now_ms=NOW_MS).first_offset == 6
        abandon(recovered)


def test_a_truncation_that_did_not_survive_is_repeated(path: Path) -> None:
    """A follower truncated its log and continued in a new segment; a loss of power then brought the truncated part
    back.
    """
    log = open_log(path, LogConfig(segment_bytes=700))
    for _ in range(5):
        log.append(batch(2, size=10), leader_epoch=0, now_ms=NOW_MS)
    first = path / f"{0:020d}.log"
    log.truncate_to(8, now_ms=NOW_MS)
    log.begin_epoch(1)
    while log.active.base_offset == 0:
        log.append(batch(2, size=60), leader_epoch=1, now_ms=NOW_MS)
    kept, end, base = all_bytes(log), log.end_offset, log.active.base_offset
    abandon(log)
    with first.open("ab") as file:
        file.write(bytes(batch(2, size=10, base_offset=base, leader_epoch=0)))
    recovered = open_log(path, clean=False)
    assert (all_bytes(recovered), recovered.end_offset) == (kept, end)
    assert recovered.epochs.entries() == [(0, 0), (1, 8)]
    assert recovered.damaged_at is None
    abandon(recovered)


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 9), st.data())
def test_truncated_batches_never_fill_the_place_of_their_successors(cut: int, draw: st.DataObject) -> None:
    """A loss of power may keep a new segment and lose the batches that replaced truncated ones in the segment before
    it.
    """
    disk = MemoryDisk()
    log = open_log("/topic-0", LogConfig(segment_bytes=400), disk=disk)
    for number in range(5):
        log.append(batch(2, timestamp_ms=NOW_MS + number), leader_epoch=0, now_ms=NOW_MS)
    log.flush(now_ms=NOW_MS)
    log.truncate_to(cut, now_ms=NOW_MS)
    log.begin_epoch(1)
    while log.end_offset < 14:
        log.append(batch(2, timestamp_ms=NOW_MS + 1000), leader_epoch=1, now_ms=NOW_MS)
    whole = all_bytes(log)
    disk.lose_power(lambda most: draw.draw(st.integers(0, most)))
    recovered = open_log("/topic-0", LogConfig(segment_bytes=400), disk=disk, clean=False)
    assert whole.startswith(all_bytes(recovered))
    assert recovered.end_offset >= cut - 1  # a batch across the truncation offset went whole


def test_a_truncated_epoch_is_gone_for_good_with_the_next_flush() -> None:
    """Otherwise it would cover, after a loss of power, offsets that another leader wrote."""
    disk = MemoryDisk()
    config = LogConfig(segment_bytes=250)
    log = open_log("/topic-0", config, disk=disk)
    log.append(batch(2), leader_epoch=0, now_ms=NOW_MS)
    log.begin_epoch(5)
    log.truncate_to(log.end_offset, now_ms=NOW_MS)
    for offset in range(2, 20, 2):
        log.append_replicated(bytes(batch(2, base_offset=offset, leader_epoch=0)), now_ms=NOW_MS, leader_epoch=6)
    log.flush(now_ms=NOW_MS)
    assert log.active.base_offset > 2
    disk.lose_power(keep_nothing)  # unsynced files are as before
    recovered = open_log("/topic-0", config, disk=disk, clean=False, recovery_point=20)
    assert recovered.end_offset == 20
    assert recovered.epochs.entries() == [(0, 0)]


def test_a_tail_of_zeros_is_truncated(path: Path) -> None:
    log = open_log(path, LogConfig(preallocate=True, segment_bytes=4096))
    log.append(batch(2), leader_epoch=0, now_ms=NOW_MS)
    assert (path / f"{0:020d}.log").stat().st_size == 4096
    abandon(log)
    recovered = open_log(path, clean=False)
    assert recovered.end_offset == 2
    assert (path / f"{0:020d}.log").stat().st_size == recovered.size


def test_a_preallocated_segment_is_trimmed_on_closing(path: Path) -> None:
    log = open_log(path, LogConfig(preallocate=True, segment_bytes=4096))
    log.append(batch(2), leader_epoch=0, now_ms=NOW_MS)
    log.close(now_ms=NOW_MS)
    assert (path / f"{0:020d}.log").stat().st_size == log.size


def test_damage_in_the_middle_truncates_there_and_is_distinguished_from_a_torn_write(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log = open_log(path, CONFIG)
    fill(log)
    abandon(log)
    second = sorted(path.glob("*.log"))[1]
    data = bytearray(second.read_bytes())
    data[len(data) // 2] ^= 0xFF
    second.write_bytes(data)
    with caplog.at_level(logging.ERROR):
        recovered = open_log(path, CONFIG, clean=False)
    assert recovered.damaged_at is not None
    assert second.name in recovered.damaged_at
    assert caplog.records
    headers = all_headers(recovered)
    assert headers[-1].next_offset == recovered.end_offset < log.end_offset
    assert [segment.base_offset for segment in recovered.segments][-1] == int(second.stem)
    assert recovered.producers.snapshots[-1] <= recovered.end_offset
    assert not list(path.glob(f"{log.segments[2].base_offset:020d}.*"))


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize("harm", ["missing", "cut", "garbled"])
@pytest.mark.parametrize("number", [0, -1])
def test_a_damaged_index_is_rebuilt_even_after_a_clean_stop(path: Path, suffix: str, harm: str, number: int) -> None:
    log = open_log(path, CONFIG)
    fill(log)
    log.close(now_ms=NOW_MS)
    expected = files(path)
    victim = sorted(path.glob(f"*{suffix}"))[number]
    match harm:
        case "missing":
            victim.unlink()
        case "cut":
            victim.write_bytes(victim.read_bytes()[:-3])
        case "garbled":
            victim.write_bytes(victim.read_bytes()[::-1])
    log = open_log(path, CONFIG)
    everything = all_bytes(log)
    assert log.search.offset_for_timestamp(NOW_MS, log.start_offset) is not None
    log.append(batch(1), leader_epoch=3, now_ms=NOW_MS)
    log.truncate_to(log.end_offset - 1, now_ms=NOW_MS)
    log.close(now_ms=NOW_MS)
    found = files(path)
    assert found[victim.name] == expected[victim.name]
    assert everything == all_bytes(open_log(path, CONFIG))


def test_a_damaged_snapshot_is_replaced_by_the_one_before_it(path: Path) -> None:
    log = open_log(path, CONFIG)
    fill(log)
    log.close(now_ms=NOW_MS)
    snapshots = sorted(path.glob("*.snapshot"))
    data = bytearray(snapshots[-1].read_bytes())
    data[-1] ^= 1
    snapshots[-1].write_bytes(data)
    reloaded = open_log(path, CONFIG)
    for producer in log.producers.active():
        again = reloaded.producers.get(producer.producer_id)
        assert again is not None
        assert (again.epoch, again.last_sequence, again.transaction_start) == (
            producer.epoch,
            producer.last_sequence,
            producer.transaction_start,
        )


@pytest.mark.parametrize("content", [None, b"", b"0\n", b"1\n0\n", b"0\n7\n1 1\n", b"0\n1\nx y\n", b"\xff\xfe"])
@pytest.mark.parametrize("clean", [True, False])
def test_leader_epochs_are_rebuilt_from_the_batches(path: Path, content: bytes | None, clean: bool) -> None:
    log = open_log(path, CONFIG)
    fill(log)
    log.close(now_ms=NOW_MS)
    checkpoint = path / "leader-epoch-checkpoint"
    expected = checkpoint.read_bytes()
    checkpoint.unlink()
    if content is not None:
        checkpoint.write_bytes(content)
    reloaded = open_log(path, CONFIG, clean=clean)
    assert reloaded.epochs.entries() == log.epochs.entries()
    assert checkpoint.read_bytes() == expected


def test_a_false_clean_mark_is_detected(path: Path) -> None:
    log = open_log(path)
    log.append(batch(2), leader_epoch=0, now_ms=NOW_MS)
    log.close(now_ms=NOW_MS)
    segment = path / f"{0:020d}.log"
    segment.write_bytes(segment.read_bytes() + bytes(40))
    log = open_log(path)
    assert (log.end_offset, segment.stat().st_size) == (2, log.size)


def test_leftover_files_are_removed(path: Path) -> None:
    log = open_log(path, CONFIG)
    fill(log)
    log.close(now_ms=NOW_MS)
    expected = files(path)
    for name in (f"{0:020d}.log.deleted", f"{5:020d}.index.deleted", f"{0:020d}.log.cleaned", f"{7:020d}.index"):
        (path / name).write_bytes(b"left over")
    (path / f"{3:020d}.snapshot").write_bytes(b"left over")
    log = open_log(path, CONFIG)
    log.purge(NOW_MS)
    log.close(now_ms=NOW_MS)
    assert files(path) == expected


def test_an_interrupted_swap_is_finished(path: Path) -> None:
    log = open_log(path, CONFIG)
    fill(log)
    log.close(now_ms=NOW_MS)
    expected = files(path)
    first = f"{0:020d}"
    for suffix in (".log", ".index", ".timeindex"):
        (path / (first + suffix)).rename(path / f"{first}{suffix}.swap")
    (path / f"{1:020d}.log").write_bytes(b"an older segment that the swapped one was made from")
    log = open_log(path, CONFIG)
    assert (path / f"{1:020d}.log.deleted").exists()
    log.purge(NOW_MS)
    log.close(now_ms=NOW_MS)
    found = files(path)
    assert {name: data for name, data in found.items() if not name.endswith(".txnindex")} == {
        name: data for name, data in expected.items() if not name.endswith(".txnindex")
    }


def test_messages_of_old_formats_are_refused_and_not_truncated(path: Path) -> None:
    body = bytes([0, 0]) + (-1).to_bytes(4, "big", signed=True) + (3).to_bytes(4, "big") + b"old"
    message = zlib.crc32(body).to_bytes(4, "big") + body
    data = (0).to_bytes(8, "big") + len(message).to_bytes(4, "big") + message
    open_log(path).close(now_ms=NOW_MS)
    segment = path / f"{0:020d}.log"
    segment.write_bytes(data)
    with pytest.raises(KafkaError) as refused:
        open_log(path, clean=False)
    assert refused.value.code is ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT
    assert segment.read_bytes() == data


def test_a_log_that_ends_below_its_start_keeps_its_batches(path: Path) -> None:
    log = open_log(path)
    log.append(batch(5), leader_epoch=2, now_ms=NOW_MS)
    content = all_bytes(log)
    log.close(now_ms=NOW_MS)
    for clean in (False, True):
        log = open_log(path, start_offset=50, clean=clean)
        assert (log.start_offset, log.end_offset, all_bytes(log)) == (0, 5, content)
        assert log.epochs.entries() == [(2, 0)]
        log.close(now_ms=NOW_MS)


def test_a_log_without_a_batch_starts_where_the_checkpoint_states(path: Path) -> None:
    open_log(path).close(now_ms=NOW_MS)
    log = open_log(path, start_offset=50, clean=False)
    assert (log.start_offset, log.end_offset, log.size) == (50, 50, 0)
    assert log.append(batch(1), leader_epoch=3, now_ms=NOW_MS).first_offset == 50


def test_the_start_offset_holds_across_a_restart(path: Path) -> None:
    log = open_log(path)
    for epoch in range(4):
        log.append(batch(5), leader_epoch=epoch, now_ms=NOW_MS)
    log.advance_start_offset(12, high_watermark=20)
    assert log.epochs.entries() == [(2, 12), (3, 15)]
    log.close(now_ms=NOW_MS)
    log = open_log(path, start_offset=12)
    assert (log.start_offset, log.epochs.entries()) == (12, [(2, 12), (3, 15)])


def test_below_the_recovery_point_only_headers_are_read(path: Path, tmp_path: Path) -> None:
    log = open_log(path)
    for _ in range(20):
        log.append(batch(2, size=300), leader_epoch=0, now_ms=NOW_MS)
    whole = all_bytes(log)
    abandon(log)
    segment = path / f"{0:020d}.log"
    harmed = bytearray(segment.read_bytes())
    harmed[len(harmed) // 2 + 150] ^= 1  # among the records of a batch
    segment.write_bytes(harmed)
    shutil.copytree(path, tmp_path / "doubted")
    assert len(all_bytes(open_log(tmp_path / "doubted", clean=False))) < len(whole)
    log = open_log(path, clean=False, recovery_point=40)
    assert all_bytes(log) == bytes(harmed)
    assert (log.end_offset, log.recovery_point, log.damaged_at) == (40, 40, None)


@pytest.mark.parametrize("position", [16, 23, 8])  # of the magic, the last offset delta, the length
def test_damage_below_the_recovery_point_is_found(path: Path, position: int) -> None:
    log = open_log(path)
    sizes = []
    for _ in range(6):
        log.append(batch(2, size=300), leader_epoch=0, now_ms=NOW_MS)
        sizes.append(log.size)
    abandon(log)
    segment = path / f"{0:020d}.log"
    harmed = bytearray(segment.read_bytes())
    harmed[sizes[2] + position] ^= 0xC0
    segment.write_bytes(harmed)
    log = open_log(path, clean=False, recovery_point=12)
    assert (log.end_offset, log.size) == (6, sizes[2])


# -- gaps --------------------------------------------------------------------------------------------------------------

COMPACTED = LogConfig(segment_bytes=1500, index_interval_bytes=300, cleanup_policy=("compact",))


def with_a_gap(path: Path) -> tuple[int, int]:
    """A log of several segments, one of which has lost its last batches; its base offset, and that of the one
    behind.
    """
    log = open_log(path, COMPACTED)
    for _ in range(30):
        log.append(batch(2, size=100), leader_epoch=0, now_ms=NOW_MS)
    segments = log.segments
    abandon(log)
    positions = [position for position, _ in segments[1].headers()]
    shorter, behind = path / segments[1].name, segments[2].base_offset
    shorter.write_bytes(shorter.read_bytes()[: positions[-2]])
    return segments[1].base_offset, behind


def test_a_gap_is_a_loss(path: Path) -> None:
    base, behind = with_a_gap(path)
    log = open_log(path, COMPACTED, clean=False)
    assert base < log.end_offset < behind
    assert log.damaged_at is not None


def test_a_clean_stop_loses_nothing(path: Path) -> None:
    with_a_gap(path)
    for index in path.glob("*.index"):
        index.unlink()  # so the segments are read
    log = open_log(path, COMPACTED)
    assert (log.end_offset, log.damaged_at) == (60, None)


def test_the_cleaner_checkpoint_distinguishes_a_gap_of_compaction_from_a_loss(path: Path, tmp_path: Path) -> None:
    base, behind = with_a_gap(path)
    for cleaned_to, survives in ((base, False), (base + 1, True), (behind, True)):
        copy = tmp_path / f"cleaned-{cleaned_to}"
        shutil.copytree(path, copy)
        log = open_log(copy, COMPACTED, clean=False, cleaned_to=cleaned_to)
        assert (log.end_offset == 60) is survives
        assert log.cleaned_to == cleaned_to
        abandon(log)


def test_the_source_file_of_a_segment_distinguishes_it_too(path: Path, tmp_path: Path) -> None:
    base, behind = with_a_gap(path)
    witness = path / f"{base:020d}.log.deleted"
    witness.write_bytes(b"what it was made from")
    shutil.copytree(path, tmp_path / "other")
    for _ in range(2):  # it stays until its information is stored elsewhere
        log = open_log(path, COMPACTED, clean=False)
        assert (log.end_offset, log.cleaned_to, log.damaged_at) == (60, behind, None)
        abandon(log)
    log.purge(NOW_MS)
    assert not witness.exists()
    (tmp_path / "other" / witness.name).rename(tmp_path / "other" / f"{base + 2:020d}.log.deleted")
    log = open_log(tmp_path / "other", COMPACTED, clean=False)
    assert log.end_offset < behind, "a segment that was dropped for good is not read"


def test_without_the_cleaner_checkpoint_gaps_of_a_compacted_log_are_accepted(path: Path) -> None:
    with_a_gap(path)
    log = open_log(path, COMPACTED, clean=False, gaps_are_losses=False)
    assert (log.end_offset, log.damaged_at) == (60, None)


def test_truncated_batches_do_not_count_as_cleaned(path: Path) -> None:
    log = open_log(path, COMPACTED)
    for _ in range(10):
        log.append(batch(2, size=100), leader_epoch=0, now_ms=NOW_MS)
    abandon(log)
    for cleaned_to, expected in ((20, 20), (21, -1)):
        log = open_log(path, COMPACTED, clean=False, cleaned_to=cleaned_to)
        assert log.cleaned_to == expected
        abandon(log)


def test_a_new_segment_is_not_explained_by_an_old_file(path: Path) -> None:
    """A follower's log is truncated where a segment began, and continues with a segment that begins at the same
    offset.
    """
    log = open_log(path, CONFIG)
    while len(log.segments) < 3:
        log.append(batch(2, size=100), leader_epoch=0, now_ms=NOW_MS)
    base = log.active.base_offset
    log.truncate_to(base, now_ms=NOW_MS)
    log.truncate_to(base - 1, now_ms=NOW_MS)
    assert (path / f"{base:020d}.log.deleted").exists()
    log.append_replicated(bytes(batch(base - log.end_offset, base_offset=log.end_offset)), now_ms=NOW_MS)
    log.roll(NOW_MS)
    assert log.active.base_offset == base
    assert not (path / f"{base:020d}.log.deleted").exists()


@pytest.mark.slow
@settings(max_examples=150)
@given(data=st.data())
def test_compaction_and_a_loss_of_power(data: st.DataObject) -> None:
    """Synced records stay and the remaining log has no hole, wherever compaction removed the ends of segments
    before.
    """
    disk = MemoryDisk()
    log = open_log("/topic-0", COMPACTED, disk=disk)

    def write(batches: int) -> None:
        for _ in range(batches):
            log.append(batch(1, size=200), leader_epoch=0, now_ms=NOW_MS)

    def offsets() -> list[int]:
        return [header.base_offset for segment in log.segments for _, header in segment.headers()]

    write(data.draw(st.integers(10, 25), "batches before compaction"))
    log.flush(now_ms=NOW_MS)
    cleaned_to = log.active.base_offset
    for segment in log.segments[:-1]:
        kept = data.draw(st.integers(0, 5), f"batches kept at {segment.base_offset}")
        size = [*(position for position, _ in segment.headers()), segment.size][min(kept, 5)]
        segment.undo_write(size)
        segment.file.sync()
    is_noted = data.draw(st.booleans(), "the checkpoint was written")
    if not is_noted:
        for segment in log.segments[:-1]:
            disk.replace(f"/topic-0/{segment.name}.deleted", b"", sync=True)
    write(data.draw(st.integers(0, 15), "batches after it"))
    synced = log.end_offset if data.draw(st.booleans(), "flushed") else log.recovery_point
    if synced == log.end_offset:
        log.flush(now_ms=NOW_MS)
    write(data.draw(st.integers(0, 15), "batches that nobody waits for"))
    before = offsets()
    disk.lose_power(lambda most: data.draw(st.integers(0, most)))
    noted = cleaned_to if is_noted else -1
    log = open_log("/topic-0", COMPACTED, disk=disk, clean=False, cleaned_to=noted)
    after = offsets()
    assert after == before[: len(after)]
    assert log.end_offset >= synced
    assert noted <= log.cleaned_to <= cleaned_to
