"""After any failing call to the disk a log stays consistent: it continues without the write, or it goes offline."""

from __future__ import annotations

import errno
from contextlib import suppress

import pytest

from odradek.protocol.batch import control_batch, headers
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.storage.config import AppendOrigin, LogConfig
from odradek.storage.directory import Directory, DirectoryRequest
from odradek.storage.log import Log
from odradek.storage.producers import WAIVED
from tests.storage.batches import NOW_MS, TOPIC_ID, all_bytes, batch, open_log
from tests.storage.disks import MemoryDisk, keep_nothing

PATH = "/data/topic-0"
CONFIG = LogConfig(segment_bytes=600, index_interval_bytes=100)


def life_of_a_log(log: Log, acknowledged: list[bytes]) -> None:
    """Appends over several segments, a flush, a truncation and the deletion of the first segments."""
    for number in range(12):
        appended = log.append(batch(2, size=30, producer=(1, 0, number * 2)), leader_epoch=number // 5, now_ms=NOW_MS)
        acknowledged.append(bytes(log.read(appended.first_offset, 1).records.read()))  # type: ignore[union-attr]
        if number == 6:
            log.flush(now_ms=NOW_MS)
    del acknowledged[10:]
    log.truncate_to(20, now_ms=NOW_MS)
    log.append(batch(2, size=30, producer=(1, 0, 20)), leader_epoch=3, now_ms=NOW_MS)
    log.advance_start_offset(10, high_watermark=20)
    log.delete_old_segments(high_watermark=20, now_ms=NOW_MS)
    log.purge(NOW_MS + 60_000)
    log.close(now_ms=NOW_MS)


def calls_in_a_life() -> int:
    disk = MemoryDisk()
    log = open_log(PATH, CONFIG, disk=disk)
    disk.plan.calls = 0
    life_of_a_log(log, [])
    return disk.plan.calls


CALLS = calls_in_a_life()


@pytest.mark.parametrize("lasting", [False, True], ids=["once", "lasting"])
@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC], ids=["EIO", "ENOSPC"])
def test_acknowledged_records_survive_any_failing_call(code: int, lasting: bool) -> None:
    for call in range(CALLS):
        try:
            acknowledged_records_survive(call, code, lasting)
        except BaseException as error:
            error.add_note(f"where call {call} fails")
            raise


def acknowledged_records_survive(call: int, code: int, lasting: bool) -> None:
    disk = MemoryDisk()
    log = open_log(PATH, CONFIG, disk=disk)
    disk.plan.at, disk.plan.code, disk.plan.lasting = call, code, lasting
    disk.plan.calls = 0
    acknowledged: list[bytes] = []
    with pytest.raises(KafkaError) as refused:
        life_of_a_log(log, acknowledged)
    assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    disk.plan.at = -1
    if log.failure is None:
        assert code == errno.ENOSPC
        log.append(batch(1), leader_epoch=9, now_ms=NOW_MS)
        log.close(now_ms=NOW_MS)
    else:
        for call_again in (
            lambda: log.append(batch(1), leader_epoch=9, now_ms=NOW_MS),
            lambda: log.read(log.start_offset, 100),
            lambda: log.start_flush(),
            lambda: log.truncate_to(0, now_ms=NOW_MS),
        ):
            with pytest.raises(KafkaError) as refused:
                call_again()
            assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
        log.close(now_ms=NOW_MS)
    survivor = open_log(PATH, CONFIG, disk=disk, clean=False, start_offset=log.start_offset)
    data = all_bytes(survivor)
    begun_behind = [each for each in acknowledged if next(headers(each))[1].base_offset >= survivor.start_offset]
    # A truncation that failed half way removes no more than it was to remove.
    assert data.startswith(b"".join(begun_behind[: 10 - survivor.start_offset // 2]))


def test_a_full_disk_refuses_the_write_and_the_log_continues() -> None:
    disk = MemoryDisk()
    log = open_log(PATH, disk=disk)
    log.append(batch(2), leader_epoch=0, now_ms=NOW_MS)
    before = all_bytes(log)
    disk.plan.at, disk.plan.code = disk.plan.calls, errno.ENOSPC
    with pytest.raises(KafkaError) as refused:
        log.append(batch(2, producer=(1, 0, 0)), leader_epoch=0, now_ms=NOW_MS)
    assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert (log.failure, log.end_offset, all_bytes(log)) == (None, 2, before)
    assert disk.files[f"{PATH}/{0:020d}.log"].data == before
    assert log.producers.get(1) is None
    assert not log.append(batch(2, producer=(1, 0, 0)), leader_epoch=0, now_ms=NOW_MS).duplicate


@pytest.mark.parametrize("snapshots", [False, True])
def test_a_new_segment_without_room_refuses_the_write_and_the_log_continues(snapshots: bool) -> None:
    """Wherever the lack of room ends: in the same segment, if the next batch fits there, nothing may be cut later."""
    producer = (1, 0, 0) if snapshots else (-1, -1, -1)
    call, refused = 0, True
    while refused:
        disk = MemoryDisk()
        log = open_log(PATH, CONFIG, disk=disk)
        first = log.append(batch(2, size=200, producer=producer), leader_epoch=0, now_ms=NOW_MS)
        assert first.last_offset == 1
        disk.sync_directory(PATH)  # as a new log is created
        disk.sync_directory("/data")
        disk.plan.at, disk.plan.code, disk.plan.lasting = disk.plan.calls + call, errno.ENOSPC, True
        try:
            log.append(batch(2, size=100), leader_epoch=0, now_ms=NOW_MS)
            refused = False
        except KafkaError:
            pass
        disk.plan.recover()
        if log.failure is None:
            size = 5 if call % 2 else 200  # a small one fits the old segment
            log.append(batch(1, size=size), leader_epoch=0, now_ms=NOW_MS)
            log.flush(now_ms=NOW_MS)
            content, end = all_bytes(log), log.end_offset
            assert end == (3 if refused else 5)
            disk.lose_power(keep_nothing)
            again = open_log(PATH, CONFIG, disk=disk, clean=False, recovery_point=log.recovery_point)
            assert (all_bytes(again), again.end_offset) == (content, end)
        call += 1
    assert call > 4


def test_a_failed_fsync_is_never_repeated() -> None:
    disk = MemoryDisk()
    log = open_log(PATH, disk=disk)
    log.append(batch(2), leader_epoch=0, now_ms=NOW_MS)
    disk.plan.at = disk.plan.calls
    with pytest.raises(KafkaError):
        log.flush(now_ms=NOW_MS)
    assert log.recovery_point == 0
    assert log.failure is not None
    with pytest.raises(KafkaError):
        log.flush(now_ms=NOW_MS)


def test_an_unreadable_page_takes_the_log_offline() -> None:
    disk = MemoryDisk()
    log = open_log(PATH, disk=disk)
    for _ in range(200):
        log.append(batch(2, size=50), leader_epoch=0, now_ms=NOW_MS)
    log.close(now_ms=NOW_MS)
    log = open_log(PATH, disk=disk)
    disk.spoil(f"{PATH}/{0:020d}.log", 9000)

    def read_all() -> None:
        for offset in range(0, 400, 2):
            log.read(offset, 1)

    with pytest.raises(KafkaError) as refused:
        read_all()
    assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert log.failure is not None


def test_a_false_success_after_a_failed_sync_loses_no_acknowledged_record() -> None:
    """After a failed fsync the next one succeeds and has written nothing, so the log must not call it."""
    disk = MemoryDisk()
    config = LogConfig(flush_messages=1)
    log = open_log(PATH, config, disk=disk)
    disk.sync_directory("/data")
    disk.sync_directory(PATH)
    acknowledged = 0
    for number in range(10):
        if number == 7:
            disk.plan.fail_next_sync()
        with suppress(KafkaError):
            log.append(batch(2), leader_epoch=0, now_ms=NOW_MS)
            log.flush(now_ms=NOW_MS)
            acknowledged = log.end_offset
    assert acknowledged == 14
    log.close(now_ms=NOW_MS)
    disk.lose_power(keep_nothing)
    survivor = open_log(PATH, config, disk=disk, clean=False)
    assert survivor.end_offset == acknowledged


def test_a_directory_with_a_failed_log_leaves_no_clean_mark() -> None:
    disk = MemoryDisk()
    request = DirectoryRequest(broker_id=0, cluster_id="cluster", now_ms=NOW_MS)
    directory = Directory.open("/data", request, disk)
    broken = directory.create_log(("broken", 0), TOPIC_ID, LogConfig(), now_ms=NOW_MS)
    sound = directory.create_log(("sound", 0), TOPIC_ID, LogConfig(), now_ms=NOW_MS)
    sound.append(batch(3), leader_epoch=0, now_ms=NOW_MS)
    broken.append(batch(1), leader_epoch=0, now_ms=NOW_MS)
    disk.plan.at = disk.plan.calls
    with pytest.raises(KafkaError):
        broken.append(batch(1), leader_epoch=0, now_ms=NOW_MS)
    directory.close(now_ms=NOW_MS)
    assert "/data/.kafka_cleanshutdown" not in disk.files
    directory = Directory.open("/data", request, disk)
    assert not directory.was_clean
    assert [log.end_offset for log in directory.logs.values()] == [1, 3]


def test_nothing_but_one_module_touches_files() -> None:
    import ast
    from pathlib import Path

    import odradek.storage

    for module in Path(odradek.storage.__file__).parent.glob("*.py"):
        # A reader beside a broker writes nothing, a worker process has pipes but no files, the reserve has /dev/null.
        if module.name in ("descriptors.py", "disk.py", "read_files.py", "worker.py"):
            continue
        for node in ast.walk(ast.parse(module.read_text())):
            if isinstance(node, ast.Import):
                names = {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                names = {str(node.module).partition(".")[0]}
            else:
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                    assert node.func.id != "open", f"{module.name}:{node.lineno} opens a file by itself"
                continue
            if module.name == "compaction.py":
                names -= {"time"}  # it runs in a worker process, under the throttle
            assert not names & {"os", "io", "shutil", "pathlib", "fcntl", "mmap", "tempfile", "time", "asyncio"}, module


def test_the_indexes_of_a_segment_that_was_rolled_during_a_flush_are_durable_after_it() -> None:
    disk = MemoryDisk()
    log = open_log("/data/topic-0", disk=disk)
    disk.sync_directory("/data")
    transactional = batch(producer=(1, 0, 0), transactional=True)
    log.append(transactional, leader_epoch=0, now_ms=NOW_MS, verification=WAIVED)
    marker = control_batch(commit=False, coordinator_epoch=0, producer_id=1, producer_epoch=0, timestamp_ms=NOW_MS)
    log.append(marker, leader_epoch=0, now_ms=NOW_MS, origin=AppendOrigin.COORDINATOR)
    flush = log.start_flush()
    log.roll(NOW_MS)
    flush.run()
    log.finish_flush(flush, None, now_ms=NOW_MS)
    assert log.recovery_point == log.active.base_offset == 2
    disk.lose_power(keep_nothing)
    again = open_log("/data/topic-0", disk=disk, clean=False, recovery_point=2)
    assert again.search.aborted_transactions(0, 2) == [(1, 0)]
