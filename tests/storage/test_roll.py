"""A segment that a thread creates: the log before, during and after it, and disks that fail meanwhile."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path

import pytest

from odradek.protocol.batch import read_header, stamp_log_append_time
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.storage.config import LogConfig
from odradek.storage.disk import OsDisk
from odradek.storage.folder_changes import FolderChange
from odradek.storage.log import Log
from odradek.storage.roll import SegmentFull
from tests.storage.batches import NOW_MS, all_bytes, batch, files, open_log
from tests.storage.disks import MemoryDisk, MemoryFile, keep_nothing

PATH = "/data/topic-0"
CONFIG = LogConfig(segment_bytes=600, index_interval_bytes=100)


def opened(disk: MemoryDisk) -> Log:
    """A log whose active segment takes no further batch of `append`."""
    log = open_log(PATH, CONFIG, disk=disk)
    disk.sync_directory("/data")
    for number in range(5):
        append(log, number)
    return log


def append(log: Log, number: int, *, may_roll: bool = True) -> int:
    data = batch(1, size=30, producer=(1, 0, number))
    return log.append(data, leader_epoch=0, now_ms=NOW_MS, may_roll=may_roll).first_offset


def started(log: Log) -> FolderChange:
    roll = log.start_roll(NOW_MS)
    assert roll is not None
    return roll


def bases(log: Log) -> list[int]:
    return [segment.base_offset for segment in log.segments]


def test_a_batch_that_may_not_roll_changes_nothing() -> None:
    disk = MemoryDisk()
    log = opened(disk)
    before, calls = all_bytes(log), disk.plan.calls
    with pytest.raises(SegmentFull):
        append(log, 5, may_roll=False)
    assert (bases(log), log.end_offset, all_bytes(log), disk.plan.calls) == ([0], 5, before, calls)
    assert append(log, 5) == 5
    assert bases(log) == [0, 5]


@pytest.mark.parametrize("time", ["CreateTime", "LogAppendTime"])
def test_a_batch_that_waits_for_its_segment_is_validated_as_the_client_sent_it(time: str) -> None:
    log = open_log(PATH, replace(CONFIG, message_timestamp_type=time), disk=MemoryDisk())
    append(log, 0)
    data = batch(1, size=30)
    if time == "CreateTime":
        stamp_log_append_time(data, 0, read_header(data), NOW_MS + 7)  # not the time of its record, which Kafka keeps
    assert log.start_roll(NOW_MS) is not None
    sent = bytes(data)
    with pytest.raises(SegmentFull):
        log.append(data, leader_epoch=0, now_ms=NOW_MS, may_roll=False)
    assert bytes(data) == sent
    other = open_log("/data/topic-1", log.config, disk=MemoryDisk())
    for target in (log, other):
        target.append(memoryview(bytearray(sent)), leader_epoch=0, now_ms=NOW_MS)
    assert all_bytes(log)[-len(sent) :][8:] == all_bytes(other)[8:]


def test_a_batch_that_fills_an_empty_segment_needs_no_roll(tmp_path: Path) -> None:
    log = open_log(tmp_path / "topic-0", replace(CONFIG, segment_ms=0))
    assert log.start_roll(NOW_MS) is None
    assert append(log, 0, may_roll=False) == 0
    assert log.start_roll(NOW_MS) is not None
    log.settle_roll()
    assert log.start_roll(NOW_MS) is None


def test_a_segment_of_a_thread_is_the_same_as_one_of_an_append(tmp_path: Path) -> None:
    logs = [open_log(tmp_path / name, CONFIG) for name in ("topic-0", "topic-1")]
    for number in range(8):
        for log in logs:
            try:
                append(log, number, may_roll=log is logs[0])
            except SegmentFull:
                roll = started(log)
                roll.run()
                log.finish_roll(roll)
                append(log, number, may_roll=False)
    assert [bases(log) for log in logs] == [[0, 5], [0, 5]]
    one, other = ({name: (path / name).read_bytes() for name in files(path)} for path in sorted(tmp_path.iterdir()))
    assert one == other
    assert "00000000000000000005.snapshot" in one


def test_an_append_during_a_roll_ends_it_and_is_in_the_new_segment() -> None:
    log = opened(MemoryDisk())
    roll = started(log)
    assert log.start_roll(NOW_MS) is roll
    with pytest.raises(SegmentFull):
        append(log, 5, may_roll=False)
    assert append(log, 5) == 5
    roll.run()
    log.finish_roll(roll)
    assert (bases(log), log.active.base_offset) == ([0, 5], 5)
    assert append(log, 6, may_roll=False) == 6


def test_a_roll_without_room_leaves_the_log_as_it_was_and_can_be_repeated() -> None:
    disk = MemoryDisk()
    log = opened(disk)
    for call in range(20):
        roll = started(log)
        disk.plan.at, disk.plan.code = disk.plan.calls + call, errno.ENOSPC
        roll.run()
        disk.plan.recover()
        if roll.error is None:
            break
        with pytest.raises(KafkaError) as error:
            log.finish_roll(roll)
        assert error.value.code is ErrorCode.KAFKA_STORAGE_ERROR
        if log.failure is not None:  # the names that were removed again may be back after a loss of power
            log = opened(disk := MemoryDisk())
            continue
        assert bases(log) == [0]
        assert {name for name in disk.files if name.endswith(".log")} == {f"{PATH}/{0:020d}.log"}
    assert call > 4
    log.finish_roll(roll)
    assert (bases(log), append(log, 5, may_roll=False)) == ([0, 5], 5)


@pytest.mark.parametrize("call", range(6))
def test_a_roll_on_a_failing_disk_takes_the_log_offline(call: int) -> None:
    disk = MemoryDisk()
    log = opened(disk)
    roll = started(log)
    disk.plan.at = disk.plan.calls + call
    roll.run()
    with pytest.raises(KafkaError, match="rolling a segment"):
        log.finish_roll(roll)
    assert log.failure is not None
    with pytest.raises(KafkaError):
        append(log, 5)
    log.close(now_ms=NOW_MS)


def test_the_indexes_are_durable_where_a_flush_ended_during_the_roll() -> None:
    disk = MemoryDisk()
    log = opened(disk)
    roll = started(log)
    log.flush(now_ms=NOW_MS)
    assert log.recovery_point == 5
    roll.run()
    log.finish_roll(roll)
    disk.lose_power(keep_nothing)
    index = disk.read(f"{PATH}/{0:020d}.index")
    assert len(index) == 8 * 4


@pytest.mark.parametrize("runs", [False, True], ids=["waits", "has run"])
def test_a_log_that_ends_during_a_roll_loads_with_all_records(runs: bool) -> None:
    disk = MemoryDisk()
    log = opened(disk)
    before = all_bytes(log)
    roll = started(log)
    if runs:
        roll.run()
    log.close(now_ms=NOW_MS)
    log.finish_roll(roll)
    again = open_log(PATH, CONFIG, disk=disk)
    assert (again.end_offset, all_bytes(again)) == (5, before)
    assert append(again, 5) == 5


def test_a_broker_that_ends_while_a_thread_rolls_loses_nothing() -> None:
    counted = MemoryDisk()
    log = opened(counted)
    before, begin = all_bytes(log), counted.plan.calls
    started(log).run()
    for call in range(counted.plan.calls - begin):
        disk = MemoryDisk()
        log = opened(disk)
        log.flush(now_ms=NOW_MS)
        disk.plan.at, disk.plan.lasting = disk.plan.calls + call, True
        started(log).run()
        disk.plan.recover()
        disk.kill()
        again = open_log(PATH, CONFIG, disk=disk, clean=False, recovery_point=5)
        assert (again.end_offset, all_bytes(again)) == (5, before), call
        assert append(again, 5) == 5


def test_a_truncation_during_a_roll_comes_after_it() -> None:
    log = opened(MemoryDisk())
    roll = started(log)
    assert log.truncate_to(3, now_ms=NOW_MS)
    roll.run()
    log.finish_roll(roll)
    assert (bases(log), log.end_offset) == ([0], 3)
    assert append(log, 3) == 3


def test_a_truncation_does_not_need_the_room_for_a_segment() -> None:
    disk = MemoryDisk()
    log = opened(disk)
    roll = started(log)
    disk.plan.fail_next(errno.ENOSPC)
    roll.run()
    assert roll.error is not None
    assert log.truncate_to(3, now_ms=NOW_MS)
    assert (bases(log), log.end_offset, append(log, 3, may_roll=False)) == ([0], 3, 3)


def test_a_file_that_a_thread_renames_during_a_listing_is_missing_from_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "kept").write_bytes(b"1234")
    (tmp_path / "gone.tmp").touch()
    scan = os.scandir

    def renamed(path: str) -> AbstractContextManager[Iterator[os.DirEntry[str]]]:
        names = list(scan(path))
        (tmp_path / "gone.tmp").unlink(missing_ok=True)
        return nullcontext(iter(names))

    monkeypatch.setattr(os, "scandir", renamed)
    assert OsDisk().list(str(tmp_path)) == [("kept", False, 4)]


@pytest.mark.parametrize("preallocate", [False, True])
def test_only_a_file_that_may_be_longer_than_its_segment_is_truncated(
    preallocate: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A truncation waits for a page that is being written, even to the size that the file has."""
    log = open_log(PATH, replace(CONFIG, preallocate=preallocate), disk=MemoryDisk())
    for number in range(5):
        append(log, number)
    size, sizes = log.active.size, []
    truncate = MemoryFile.truncate

    def noted(file: MemoryFile, size: int) -> None:
        sizes.append(size)
        truncate(file, size)

    monkeypatch.setattr(MemoryFile, "truncate", noted)
    log.roll(NOW_MS)
    assert (size in sizes) == preallocate
