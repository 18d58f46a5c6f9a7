"""Without a file descriptor only the request fails: no log and no directory goes offline, nothing is lost."""

from __future__ import annotations

import errno
import os
import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from odradek.protocol.errors import ErrorCode
from odradek.storage.config import LogConfig
from odradek.storage.descriptors import EXHAUSTED, RESERVE, NoDescriptor, limit_and_left, momentary
from odradek.storage.directory import Directory, DirectoryRequest
from odradek.storage.log import Log
from tests.storage.batches import NOW_MS, TOPIC_ID, all_bytes, batch, open_log
from tests.storage.disks import MemoryDisk

PATH = "/data/topic-0"
CONFIG = LogConfig(segment_bytes=600, index_interval_bytes=100, file_delete_delay_ms=0)
OPENERS = ("open", "open_existing", "read", "replace", "list", "sync_directory", "remove_directory")


class ShortDisk(MemoryDisk):
    """A disk whose calls that open a file fail from call `first` on, `count` of them."""

    def __init__(self) -> None:
        super().__init__()
        self.calls, self.first, self.count, self.code = 0, -1, 0, errno.EMFILE

    def is_short(self) -> bool:
        self.calls += 1
        return self.first >= 0 and self.first < self.calls <= self.first + self.count


def _failing(name: str) -> Callable[..., Any]:
    def call(self: ShortDisk, path: str, *arguments: Any, **named: Any) -> Any:
        if self.is_short() and (self.count == 1 or path.endswith(".log")):  # the reserve covers a lasting shortage
            raise OSError(self.code, os.strerror(self.code), path)
        return getattr(MemoryDisk, name)(self, path, *arguments, **named)

    return call


for _name in OPENERS:
    # As in OsDisk: files that are open for a moment use the reserve; files that stay open do not.
    setattr(ShortDisk, _name, _failing(_name) if _name.startswith("open") else momentary(_failing(_name)))


def steps(log: Log) -> list[Callable[[], object]]:
    """The steps in the life of a log; each may fail and be repeated."""

    def append(number: int) -> Callable[[], object]:
        data = bytes(batch(2, size=30, producer=(1, 0, number * 2)))
        return lambda: log.append(memoryview(bytearray(data)), leader_epoch=number // 5, now_ms=NOW_MS)

    return [
        *(append(number) for number in range(7)),
        lambda: log.flush(now_ms=NOW_MS),
        *(append(number) for number in range(7, 12)),
        lambda: log.read(3, 1000),
        lambda: log.search.offset_for_timestamp(NOW_MS + 1, log.start_offset),
        lambda: log.truncate_to(20, now_ms=NOW_MS),
        append(10),
        lambda: log.advance_start_offset(10, high_watermark=20),
        lambda: log.delete_old_segments(high_watermark=20, now_ms=NOW_MS),
        lambda: log.purge(NOW_MS),
        lambda: log.roll(NOW_MS),
        append(11),
    ]


def live(disk: ShortDisk, *, cold: bool, first: int = -1, count: int = 0) -> tuple[Log, int]:
    """A whole life in which the opening calls from `first` on fail; failed steps are repeated with descriptors.

    Returns the log and the number of failures.
    """
    log = open_log(PATH, CONFIG, disk=disk)
    refused: list[NoDescriptor] = []
    disk.calls = 0
    disk.first, disk.count = first, count
    for step in steps(log):
        if cold:  # as after a start: no segment's file is open
            log.close_files()
        try:
            step()
        except NoDescriptor as error:
            refused.append(error)
            disk.count = 0
            step()
        assert log.failure is None
    disk.count = 0
    assert all(each.code is ErrorCode.KAFKA_STORAGE_ERROR and "ulimit -n" in each.message for each in refused)
    return log, len(refused)


@pytest.mark.parametrize("code", sorted(EXHAUSTED), ids=lambda code: errno.errorcode[code])
@pytest.mark.parametrize("cold", [False, True], ids=["open", "cold"])
@pytest.mark.parametrize("count", [1, 10**6], ids=["once", "lasting"])
def test_any_failing_open_fails_alone_and_succeeds_later(cold: bool, code: int, count: int) -> None:
    disk = ShortDisk()
    wanted = all_bytes(live(disk, cold=cold)[0])
    failures = 0
    for first in range(disk.calls):
        disk = ShortDisk()
        disk.code = code
        log, failed = live(disk, cold=cold, first=first, count=count)
        failures += failed
        assert all_bytes(log) == wanted, first
        log.close_files()
        survivor = open_log(PATH, CONFIG, disk=disk, clean=False, start_offset=10)
        assert all_bytes(survivor) == wanted, first
        assert survivor.damaged_at is None
    assert failures > 0


@contextmanager
def short_of_descriptors() -> Iterator[None]:
    """This process has no descriptor left except those of the reserve."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    taken: list[int] = []
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, 256), hard))
    try:
        RESERVE.fill()
        try:
            while True:
                taken.append(os.open(os.devnull, os.O_RDONLY))
        except OSError as error:
            assert error.errno == errno.EMFILE  # noqa: PT017 - the loop ends no other way
        yield
    finally:
        for each in taken:
            os.close(each)
        RESERVE.release()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_directory_without_descriptors_stays_online_and_uses_its_reserve(tmp_path: Path) -> None:
    path = str(tmp_path / "data")
    directory = Directory.open(path, DirectoryRequest(0, "cluster", NOW_MS))
    log = directory.create_log(("there", 0), TOPIC_ID, CONFIG, now_ms=NOW_MS)
    log.append(batch(2, size=200), leader_epoch=0, now_ms=NOW_MS)
    with short_of_descriptors():
        assert limit_and_left()[1] == 0
        for attempt in (
            lambda: directory.create_log(("new", 0), TOPIC_ID, CONFIG, now_ms=NOW_MS),
            lambda: log.append(batch(2, size=200), leader_epoch=0, now_ms=NOW_MS),  # rolls
        ):
            with pytest.raises(NoDescriptor) as refused:
                attempt()
            assert "Too many open files" in refused.value.message
        assert not os.path.exists(f"{path}/new-0")
        log.begin_epoch(4)
        log.flush(now_ms=NOW_MS)
        directory.checkpoints.write_recovery_points()
        assert log.read(0, 100).records
        assert (directory.failure, log.failure) == (None, None)
    directory.create_log(("new", 0), TOPIC_ID, CONFIG, now_ms=NOW_MS)
    assert log.append(batch(2, size=200), leader_epoch=4, now_ms=NOW_MS).first_offset == 2
    directory.close(now_ms=NOW_MS)
    assert Directory.open(path, DirectoryRequest(0, "cluster", NOW_MS)).was_clean


def test_a_truncation_that_reads_before_it_truncates_forgets_the_batch_across_its_offset() -> None:
    log = open_log(PATH, CONFIG, disk=MemoryDisk())
    for number in range(3):
        log.append(batch(3, producer=(1, 0, number * 3)), leader_epoch=0, now_ms=NOW_MS)
    assert log.truncate_to(7, now_ms=NOW_MS)
    producer = log.producers.get(1)
    assert producer is not None
    assert (producer.last_sequence, log.producers.end_offset) == (5, log.end_offset)
