"""Logs that worker processes recover are as if one process had recovered them, also where a worker dies over them."""

from __future__ import annotations

import logging
import shutil
import zlib
from pathlib import Path
from random import Random

import pytest

from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.storage import parallel_recovery, worker
from odradek.storage.checkpoints import CLEAN_SHUTDOWN, CLEANER_OFFSETS, RECOVERY_POINTS, encode_offsets
from odradek.storage.config import LogConfig
from odradek.storage.directories import open_all
from odradek.storage.directory import Directory, DirectoryRequest
from odradek.storage.disk import OsDisk
from odradek.storage.offset_checkpoints import OffsetCheckpoints
from tests.storage import worker_tasks
from tests.storage.batches import NOW_MS, TOPIC_ID, all_bytes, batch, files
from tests.storage.disks import MemoryDisk

ROOT = Path(__file__).resolve().parents[2]
CONFIG = LogConfig(segment_bytes=4000, index_interval_bytes=300, segment_jitter_ms=1000)
LOGS = 7


def request(**options: object) -> DirectoryRequest:
    given = {
        "broker_id": 1,
        "cluster_id": "c",
        "now_ms": NOW_MS,
        "random": Random(1),
        "config_for": lambda topic: CONFIG,
    }
    return DirectoryRequest(**(given | options))  # type: ignore[arg-type]


@pytest.fixture
def killed(tmp_path: Path) -> Path:
    """A directory as a killed broker leaves it: some logs have torn tails, one has damage in the middle, one a gap."""
    path = tmp_path / "killed"
    directory = Directory.open(str(path), request())
    for partition in range(LOGS):
        log = directory.create_log(("x", partition), TOPIC_ID, CONFIG, now_ms=NOW_MS)
        for number in range(20 + 5 * partition):
            log.append(batch(2, size=200, producer=(partition, 0, number * 2)), leader_epoch=number // 9, now_ms=NOW_MS)
        if partition % 2:
            flush = log.start_flush(rolled_only=True)
            flush.run()
            log.finish_flush(flush, None, now_ms=NOW_MS)
    directory.checkpoints.write_recovery_points()
    directory.close(now_ms=NOW_MS, clean=False)
    for name in ("x-0", "x-1", "x-2"):
        last = max((path / name).glob("*.log"))
        last.write_bytes(last.read_bytes() + b"torn")
    first = min((path / "x-4").glob("*.log"))
    first.write_bytes(first.read_bytes()[:700] + b"broken" + first.read_bytes()[706:])
    second = sorted((path / "x-6").glob("*.log"))[1]
    second.write_bytes(second.read_bytes()[: second.stat().st_size // 2])
    return path


@pytest.fixture
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes for the smallest of logs, one or two at a time; they accept the functions of the tests, too."""
    monkeypatch.setattr(parallel_recovery, "_WORTH_A_PROCESS", 1)
    monkeypatch.setattr(parallel_recovery, "_PORTION_BYTES", 10_000)
    monkeypatch.setattr(worker, "_CALLABLE", ("odradek.storage.", "tests.storage."))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))


def state(directory: Directory) -> dict[object, object]:
    """The state of each log, except for the paths in messages."""
    return {
        name: (
            *(log.start_offset, log.end_offset, log.recovery_point, log.cleaned_to, log.epochs.entries()),
            *(log.damaged_at and log.damaged_at.partition("/x-")[2], all_bytes(log)),
            [(each.producer_id, each.epoch, each.last_sequence) for each in log.producers.active()],
        )
        for name, log in directory.logs.items()
    }


def contents(path: Path) -> dict[str, dict[str, bytes]]:
    """The files of every log."""
    return {each.name: files(each) for each in sorted(path.iterdir()) if each.is_dir()}


@pytest.mark.slow
@pytest.mark.parametrize("processes", [None, 1, 3])
def test_processes_leave_the_files_that_one_process_leaves(
    killed: Path, tmp_path: Path, eager: None, processes: int | None, caplog: pytest.LogCaptureFixture
) -> None:
    reference = tmp_path / "reference"
    shutil.copytree(killed, reference)
    expected = Directory.open(str(reference), request(), OneProcessDisk())
    with caplog.at_level(logging.INFO, "odradek.storage"):
        recovered = Directory.open(str(killed), request(recovery_processes=processes))
    assert f"recovered logs logs={LOGS} total_logs={LOGS} size=0.0 GiB total_size=0.0 GiB" in caplog.text
    assert "truncating a torn write at=" in caplog.text
    assert recovered.logs["x", 4].damaged_at is not None
    assert recovered.logs["x", 6].damaged_at is not None
    assert 0 < recovered.logs["x", 3].recovery_point < recovered.logs["x", 3].end_offset
    assert state(recovered) == state(expected)
    assert contents(killed) == contents(reference)
    for directory in (recovered, expected):
        for log in directory.logs.values():
            log.append(batch(1), leader_epoch=9, now_ms=NOW_MS)
    assert state(recovered) == state(expected)
    for directory in (recovered, expected):
        directory.close(now_ms=NOW_MS)


class OneProcessDisk(OsDisk):
    """The real disk; `eager` makes an exception of it."""


@pytest.fixture(autouse=True)
def _keep_to_one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    everywhere = Directory.unclean

    def unclean(directory: Directory) -> list[parallel_recovery.Unclean]:
        return [] if isinstance(directory._folder.disk, OneProcessDisk) else everywhere(directory)

    monkeypatch.setattr(Directory, "unclean", unclean)


def test_logs_of_several_directories_are_recovered_together(killed: Path, tmp_path: Path, eager: None) -> None:
    other = tmp_path / "other"
    shutil.copytree(killed, other)
    for log in other.glob("x-*"):
        log.rename(other / log.name.replace("x", "y"))
    (other / RECOVERY_POINTS).unlink()
    directories = open_all([str(killed), str(other)], request(recovery_processes=1))
    assert [len(directory.logs) for directory in directories] == [LOGS, LOGS]
    ends = [[log.end_offset for _, log in sorted(directory.logs.items())] for directory in directories]
    assert ends[0] == ends[1]
    assert all(log.recovery_point == 0 for log in directories[1].logs.values())
    for directory in directories:
        directory.close(now_ms=NOW_MS)


@pytest.mark.slow
def test_logs_whose_process_dies_are_recovered_nevertheless(
    killed: Path, tmp_path: Path, eager: None, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    reference = tmp_path / "reference"
    shutil.copytree(killed, reference)
    expected = Directory.open(str(reference), request(), OneProcessDisk())
    monkeypatch.setattr(parallel_recovery, "recover_folders", worker_tasks.die_over_some)
    recovered = Directory.open(str(killed), request())
    assert "recovering logs without a worker process logs=" in caplog.text
    assert "error=the worker process ended (status -9)" in caplog.text
    assert state(recovered) == state(expected)
    for directory in (recovered, expected):
        directory.close(now_ms=NOW_MS)
    assert contents(killed) == contents(reference)


@pytest.mark.slow
def test_opening_raises_the_exception_of_one_log(killed: Path, eager: None) -> None:
    body = bytes([0, 0]) + (-1).to_bytes(4, "big", signed=True) + (3).to_bytes(4, "big") + b"old"
    message = zlib.crc32(body).to_bytes(4, "big") + body
    for segment in (killed / "x-5").glob("*"):
        segment.unlink()
    old = (0).to_bytes(8, "big") + len(message).to_bytes(4, "big") + message
    (killed / "x-5" / f"{0:020d}.log").write_bytes(old)
    with pytest.raises(KafkaError) as refused:
        Directory.open(str(killed), request())
    assert refused.value.code is ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT
    assert (killed / "x-5" / f"{0:020d}.log").read_bytes() == old
    shutil.rmtree(killed / "x-5")
    Directory.open(str(killed), request()).close(now_ms=NOW_MS)


def test_little_work_a_clean_stop_and_a_simulated_disk_need_no_process(
    killed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parallel_recovery, "WorkerProcess", None)  # a use would raise
    directory = Directory.open(str(killed), request())
    directory.close(now_ms=NOW_MS)
    monkeypatch.setattr(parallel_recovery, "_WORTH_A_PROCESS", 1)
    assert (killed / CLEAN_SHUTDOWN).exists()
    Directory.open(str(killed), request()).close(now_ms=NOW_MS)
    disk = MemoryDisk()
    directory = Directory.open("/data", request(), disk)
    log = directory.create_log(("x", 0), TOPIC_ID, CONFIG, now_ms=NOW_MS)
    log.append(batch(2), leader_epoch=0, now_ms=NOW_MS)
    disk.kill()
    assert Directory.open("/data", request(), disk).logs["x", 0].end_offset == 2


def test_a_compaction_found_by_a_process_is_recorded_before_its_old_file_is_removed(
    tmp_path: Path, eager: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = LogConfig(segment_bytes=4000, cleanup_policy=("compact",))
    directory = Directory.open(str(tmp_path), request(config_for=lambda topic: config))
    log = directory.create_log(("x", 0), TOPIC_ID, config, now_ms=NOW_MS)
    for _ in range(60):
        log.append(batch(2, size=200), leader_epoch=0, now_ms=NOW_MS)
    first, second = log.segments[:2]
    end, behind = log.end_offset, second.base_offset
    positions = [position for position, _ in first.headers()]
    directory.close(now_ms=NOW_MS, clean=False)
    folder = tmp_path / "x-0"
    shutil.copy(folder / first.name, folder / f"{first.name}.deleted")
    (folder / first.name).write_bytes((folder / first.name).read_bytes()[: positions[-2]])
    seen: list[bool] = []
    write = OffsetCheckpoints.write_cleaner_offsets
    monkeypatch.setattr(
        OffsetCheckpoints,
        "write_cleaner_offsets",
        lambda each: (seen.append((folder / f"{first.name}.deleted").exists()), write(each))[1],
    )
    directory = Directory.open(str(tmp_path), request(config_for=lambda topic: config))
    log = directory.logs["x", 0]
    assert (log.end_offset, log.cleaned_to, log.damaged_at) == (end, behind, None)
    assert seen == [True]
    assert (tmp_path / CLEANER_OFFSETS).read_bytes() == encode_offsets({("x", 0): behind})
    assert directory.cleaner_offsets == {("x", 0): behind}
    log.purge(NOW_MS)
    assert not (folder / f"{first.name}.deleted").exists()
    directory.close(now_ms=NOW_MS)


def test_portions() -> None:
    def sizes(*each: int) -> list[list[int]]:
        logs = [parallel_recovery.Unclean("", None, size) for size in each]  # type: ignore[arg-type]
        return [[log.size for log in portion] for portion in parallel_recovery._portions(logs)]

    mib = 1 << 20
    assert sizes() == []
    assert sizes(90 * mib, 31 * mib, 2 * mib, mib) == [[90 * mib], [31 * mib, 2 * mib], [mib]]
    assert [len(portion) for portion in sizes(*[1] * 250)] == [100, 100, 50]
    assert worker.available_cores() >= 1
