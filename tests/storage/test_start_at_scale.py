"""A start over many logs reads each of them a few times, for any size of the logs. Counted in calls, not in seconds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from random import Random

import pytest

from odradek.storage.config import LogConfig
from odradek.storage.directory import Directory, DirectoryRequest
from odradek.storage.disk import Buffer, Entry, File, OsDisk
from tests.storage.batches import NOW_MS, TOPIC_ID, batch

LOGS = 40
BATCHES = 60
CONFIG = LogConfig(segment_bytes=1 << 20)


class CountingFile:
    """A file whose reads and writes are counted."""

    def __init__(self, file: File, calls: Counter[str]) -> None:
        self._file, self._calls = file, calls

    def fileno(self) -> int:
        return self._file.fileno()

    def read(self, size: int, position: int) -> bytes:
        self._calls["pread"] += 1
        return self._file.read(size, position)

    def write(self, data: Buffer, position: int) -> None:
        self._calls["write"] += 1
        self._file.write(data, position)

    def write_parts(self, parts: Sequence[Buffer], position: int) -> None:
        self._calls["write"] += 1
        self._file.write_parts(parts, position)

    def truncate(self, size: int) -> None:
        self._calls["write"] += 1
        self._file.truncate(size)

    def sync(self) -> None:
        self._calls["sync"] += 1
        self._file.sync()

    def close(self) -> None:
        self._file.close()


class CountingDisk(OsDisk):
    """The real disk, whose calls are counted."""

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()

    def open(self, path: str) -> File:
        self.calls["open"] += 1
        return CountingFile(super().open(path), self.calls)

    def read(self, path: str) -> bytes:
        self.calls["read"] += 1
        return super().read(path)

    def replace(self, path: str, data: Buffer, *, sync: bool) -> None:
        self.calls["write"] += 1
        self.calls["sync"] += sync
        super().replace(path, data, sync=sync)

    def list(self, path: str) -> list[Entry]:
        self.calls["list"] += 1
        return super().list(path)

    def rename(self, old: str, new: str) -> None:
        self.calls["write"] += 1
        super().rename(old, new)

    def sync_directory(self, path: str) -> None:
        self.calls["sync"] += 1
        super().sync_directory(path)


def request() -> DirectoryRequest:
    return DirectoryRequest(1, "c", NOW_MS, config_for=lambda topic: CONFIG, random=Random(1))


@pytest.fixture
def path(tmp_path: Path) -> str:
    """Many logs after a clean stop, of one producer each, and with an epoch that has no batches yet."""
    directory = Directory.open(str(tmp_path), request())
    for partition in range(LOGS):
        log = directory.create_log(("x", partition), TOPIC_ID, CONFIG, now_ms=NOW_MS)
        for number in range(BATCHES):
            log.append(batch(1, size=16_000, producer=(partition, 0, number)), leader_epoch=3, now_ms=NOW_MS)
        log.begin_epoch(4)
    directory.close(now_ms=NOW_MS)
    return str(tmp_path)


def test_a_start_after_a_clean_stop_reads_a_little_of_each_log_and_waits_for_no_disk(path: str) -> None:
    disk = CountingDisk()
    directory = Directory.open(path, request(), disk)
    assert [log.end_offset for log in directory.logs.values()] == [BATCHES] * LOGS
    assert all(len(log.producers.get(number).batches) == 5 for (_, number), log in directory.logs.items())  # type: ignore[union-attr]
    each = {name: calls / LOGS for name, calls in disk.calls.items()}
    assert each["list"] < 1.5
    assert each["read"] < 6  # metadata, epochs, snapshot, two indexes
    assert each["open"] <= 1
    assert each["pread"] < 12  # the tail, and batches enough to recognize a retry of the producer
    assert disk.calls["sync"] <= 6, "of the directory, not of the logs"
    assert disk.calls["write"] <= 4
    directory.close(now_ms=NOW_MS)


def test_becoming_leader_waits_for_no_disk_either(path: str) -> None:
    disk = CountingDisk()
    directory = Directory.open(path, request(), disk)
    disk.calls.clear()
    for log in directory.logs.values():
        log.begin_epoch(5)
    assert disk.calls == {"write": LOGS, "sync": 0}
    log.append(batch(1), leader_epoch=5, now_ms=NOW_MS)
    log.flush(now_ms=NOW_MS)
    assert disk.calls["sync"] >= 2, "with the records the epoch is durable"
    directory.close(now_ms=NOW_MS)
