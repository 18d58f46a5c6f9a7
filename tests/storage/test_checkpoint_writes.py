"""Checkpoints that threads write: their order, truncated and deleted logs meanwhile, failures, and the end."""

from __future__ import annotations

import errno
import threading
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.protocol.errors import KafkaError
from odradek.storage.checkpoints import HIGH_WATERMARKS, RECOVERY_POINTS, decode_offsets
from odradek.storage.config import LogConfig
from odradek.storage.directory import Directory, DirectoryRequest
from odradek.storage.disk import Buffer, OsDisk
from odradek.storage.offset_checkpoints import CheckpointWrite
from tests.storage.batches import NOW_MS, TOPIC_ID, batch
from tests.storage.disks import MemoryDisk

NAME = ("t", 0)


class Failing(OsDisk):
    """A disk on which checkpoints fail."""

    error = 0

    def replace(self, path: str, data: Buffer, *, sync: bool) -> None:
        if self.error and path.endswith("-checkpoint"):
            raise OSError(self.error, "planted")
        super().replace(path, data, sync=sync)


def opened(path: object, disk: OsDisk | MemoryDisk | None = None) -> Directory:
    request = DirectoryRequest(broker_id=7, cluster_id="c1", now_ms=NOW_MS, random=Random(1))
    directory = Directory.open(str(path), request, disk)
    log = directory.create_log(NAME, TOPIC_ID, LogConfig(), now_ms=NOW_MS)
    for _ in range(3):
        log.append(batch(2), leader_epoch=0, now_ms=NOW_MS)
    log.flush(now_ms=NOW_MS)
    return directory


def begun(directory: Directory) -> CheckpointWrite:
    """A write of the recovery points, which has begun."""
    parts = directory.checkpoints.begin_recovery_points()
    try:
        while True:
            next(parts)
    except StopIteration as end:
        write: CheckpointWrite = end.value
        return write


@given(st.permutations(range(4)), st.permutations(range(4)))
def test_the_newest_write_remains_in_whatever_order_threads_run(runs: list[int], ends: list[int]) -> None:
    disk = MemoryDisk()
    directory = opened("/data", disk)
    writes = [directory.checkpoints.begin(HIGH_WATERMARKS, {NAME: number}) for number in range(4)]
    for number in runs:
        writes[number].run()
        assert decode_offsets(disk.read(f"/data/{HIGH_WATERMARKS}")) == {NAME: max(runs[: runs.index(number) + 1])}
    for number in ends:
        directory.finish_checkpoint(writes[number], None)
    assert directory.checkpoints.offsets(HIGH_WATERMARKS) == directory.high_watermarks == {NAME: 3}


def test_a_log_that_is_truncated_meanwhile_has_no_entry_about_the_removed_records(tmp_path: Path) -> None:
    directory = opened(tmp_path)
    write = begun(directory)
    directory.logs[NAME].truncate_to(2, now_ms=NOW_MS)
    assert decode_offsets((tmp_path / RECOVERY_POINTS).read_bytes()) == {NAME: 2}
    write.run()
    directory.finish_checkpoint(write, None)
    assert decode_offsets((tmp_path / RECOVERY_POINTS).read_bytes()) == {NAME: 2}
    assert directory.checkpoints.offsets(RECOVERY_POINTS) == {NAME: 2}
    directory.close(now_ms=NOW_MS)


def test_a_log_that_is_created_anew_meanwhile_has_no_entry_of_the_former_log(tmp_path: Path) -> None:
    directory = opened(tmp_path)
    writes = [begun(directory), directory.checkpoints.begin(HIGH_WATERMARKS, {NAME: 6})]
    directory.delete_log(NAME, now_ms=NOW_MS)
    directory.create_log(NAME, TOPIC_ID, LogConfig(), now_ms=NOW_MS)
    for write in writes:
        write.run()
        directory.finish_checkpoint(write, None)
        assert decode_offsets((tmp_path / write.name).read_bytes()) == {}
    assert directory.high_watermarks == {}
    directory.close(now_ms=NOW_MS)


def test_a_thread_writes_nothing_after_the_end(tmp_path: Path) -> None:
    directory = opened(tmp_path)
    late = directory.checkpoints.begin(HIGH_WATERMARKS, {NAME: 5})
    directory.close(now_ms=NOW_MS)
    late.run()
    directory.finish_checkpoint(late, OSError(errno.EIO, "planted"))
    assert not (tmp_path / HIGH_WATERMARKS).exists()
    assert directory.failure is None


def test_the_end_waits_for_a_thread_that_writes(tmp_path: Path) -> None:
    writing, gate, threads = threading.Event(), threading.Event(), []

    class Gated(OsDisk):
        def replace(self, path: str, data: Buffer, *, sync: bool) -> None:
            if path.endswith(HIGH_WATERMARKS):
                writing.set()
                assert gate.wait(20)
            super().replace(path, data, sync=sync)

    directory = opened(tmp_path, Gated())
    write = directory.checkpoints.begin(HIGH_WATERMARKS, {NAME: 5})
    threads += [threading.Thread(target=write.run), threading.Thread(target=directory.release)]
    threads[0].start()
    assert writing.wait(20)
    threads[1].start()
    assert threads[1].is_alive()
    gate.set()
    for thread in threads:
        thread.join(20)
    assert decode_offsets((tmp_path / HIGH_WATERMARKS).read_bytes()) == {NAME: 5}


@pytest.mark.parametrize(("error", "is_offline"), [(errno.EIO, True), (errno.ENOSPC, False)])
def test_a_disk_that_fails_in_a_thread(tmp_path: Path, error: int, is_offline: bool) -> None:
    disk = Failing()
    directory = opened(tmp_path, disk)
    directory.write_high_watermarks({NAME: 4})
    write = directory.checkpoints.begin(HIGH_WATERMARKS, {NAME: 5})
    disk.error = error
    with pytest.raises(OSError, match="planted") as failed:
        write.run()
    with pytest.raises(KafkaError):
        directory.finish_checkpoint(write, failed.value)
    assert (directory.failure is not None) == is_offline
    assert directory.high_watermarks == directory.checkpoints.offsets(HIGH_WATERMARKS) == {NAME: 4}
    directory.release()
