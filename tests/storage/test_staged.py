"""Large batches that are written before their append: the log has them as if it had written them, and no file stays."""

from __future__ import annotations

import errno
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from odradek.protocol.batch import LOG_APPEND_TIME, crc_ok, headers, read_header
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.storage.config import LogConfig
from odradek.storage.disk import Folder, OsDisk
from odradek.storage.log import Log
from odradek.storage.staged import STAGED_BYTES
from odradek.storage.validation import Prepared, prepare
from tests.storage.batches import NOW_MS, all_bytes, batch, open_log
from tests.storage.disks import MemoryDisk

PATH = "/data/topic-0"


def staged(log: Log, data: memoryview) -> Prepared:
    prepared = Prepared(data, read_header(data))
    prepared.stage(log.folder)
    return prepared


def append(log: Log, batch: memoryview | Prepared) -> tuple[int, bool]:
    appended = log.append(batch, leader_epoch=0, now_ms=NOW_MS)
    return appended.first_offset, appended.duplicate


def temporary(path: Path) -> list[str]:
    return [each.name for each in path.iterdir() if each.name.endswith(".tmp")]


def test_only_a_large_batch_is_written_before_its_append(tmp_path: Path) -> None:
    log = open_log(tmp_path, LogConfig(max_message_bytes=2 * STAGED_BYTES))
    for size, is_large in ((STAGED_BYTES - 1000, False), (STAGED_BYTES + 1, True)):
        data = bytes(batch(size=size))
        prepared = prepare(data, log.config, 9, NOW_MS, STAGED_BYTES, log.folder)
        assert (prepared.staged is not None) is is_large
        assert len(temporary(tmp_path)) == is_large
        append(log, prepared)
        del prepared
        assert not temporary(tmp_path)
    assert [segment.base_offset for segment in log.segments] == [0, 1]
    assert [each.size for _, each in headers(all_bytes(log))] == [segment.size for segment in log.segments]


def test_the_file_of_a_duplicate_or_of_a_batch_that_is_not_appended_is_removed(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    first, again = (staged(log, batch(producer=(1, 0, 0))) for _ in range(2))
    refused, dropped = (staged(log, batch(producer=(1, 0, 5))) for _ in range(2))
    assert len(temporary(tmp_path)) == 4
    assert append(log, first) == (0, False)
    assert append(log, again) == (0, True)
    with pytest.raises(KafkaError) as raised:
        append(log, refused)
    assert raised.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    del first, again, refused, dropped, raised
    assert not temporary(tmp_path)
    assert append(log, batch(producer=(1, 0, 1))) == (1, False)
    assert [segment.base_offset for segment in log.segments] == [0]


def test_a_log_writes_a_batch_itself_that_was_written_for_another_folder(tmp_path: Path) -> None:
    log, moved = (open_log(tmp_path / name) for name in ("here", "there"))
    prepared = staged(log, batch())
    assert append(moved, prepared) == (0, False)
    assert all_bytes(moved) == bytes(prepared.view)
    del prepared
    assert not temporary(tmp_path / "here")


def test_a_load_removes_the_file_of_a_batch_that_was_not_appended(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    append(log, batch())
    kept = staged(log, batch())
    again = open_log(tmp_path, clean=False)
    assert again.end_offset == 1
    assert not temporary(tmp_path)
    del kept


def test_the_topic_sets_the_time_of_a_batch_that_is_written_already(tmp_path: Path) -> None:
    log = open_log(tmp_path, LogConfig(message_timestamp_type="LogAppendTime"))
    append(log, staged(log, batch(2, timestamp_ms=1)))
    data = all_bytes(log)
    header = read_header(data)
    assert (header.max_timestamp, header.attributes & LOG_APPEND_TIME) == (NOW_MS, LOG_APPEND_TIME)
    assert crc_ok(data, 0, header)


def test_without_room_only_the_request_fails() -> None:
    disk = MemoryDisk()
    disk.make_directory(PATH)
    log = open_log(PATH, disk=disk)
    disk.plan.fail_next(errno.ENOSPC)
    with pytest.raises(KafkaError) as raised:
        staged(log, batch())
    assert raised.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert append(log, staged(log, batch())) == (0, False)
    assert [name for name in disk.files if name.endswith(".tmp")] == []


@pytest.fixture
def quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def appended_with_a_failure(call: int, code: int) -> bool:
    """Append a large batch, with a failure of one call of the disk; returns whether the log has it."""
    disk = MemoryDisk()
    disk.make_directory(PATH)
    log = open_log(PATH, disk=disk)
    append(log, batch())
    prepared = staged(log, batch())
    disk.plan.at, disk.plan.code = disk.plan.calls + call, code
    error = None
    try:
        append(log, prepared)
    except KafkaError as raised:
        error = raised.code
    disk.plan.recover()
    assert error in (None, ErrorCode.KAFKA_STORAGE_ERROR)
    assert log.end_offset == (1 if error else 2)
    assert (log.failure is not None) == (error is not None and code == errno.EIO)
    assert open_log(PATH, disk=disk.fork(), clean=False).end_offset == log.end_offset
    if log.failure is None:
        assert append(log, batch()) == (log.end_offset - 1, False)
    return error is None


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
def test_a_failure_of_any_call_of_the_append_leaves_a_log_without_the_batch(quiet: None, code: int) -> None:
    calls = next(call for call in range(100) if appended_with_a_failure(call, code))
    assert calls > 3


def test_the_file_stays_in_a_folder_that_was_renamed(tmp_path: Path) -> None:
    (tmp_path / "before").mkdir()
    folder = Folder(OsDisk(), str(tmp_path / "before"))
    log = open_log(tmp_path / "before")
    prepared = staged(log, batch())
    log.move(str(tmp_path / "after"))
    assert append(log, prepared) == (0, False)
    assert not temporary(tmp_path / "after")
    assert folder.path != log.directory
