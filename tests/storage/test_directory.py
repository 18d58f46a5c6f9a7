"""A data directory: lock, identity, logs across restarts, checkpoints, deletion."""

from __future__ import annotations

import shutil
import subprocess
import sys
import weakref
from pathlib import Path
from random import Random

import pytest

from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.topic_partition import TopicPartition
from odradek.storage import offset_checkpoints
from odradek.storage.checkpoints import HIGH_WATERMARKS, RECOVERY_POINTS, decode_offsets
from odradek.storage.config import LogConfig
from odradek.storage.directories import emptiest, open_all
from odradek.storage.directory import Directory, DirectoryRequest
from odradek.storage.directory_identity import read_identity
from odradek.storage.disk import OsDisk
from odradek.storage.log import Log
from odradek.storage.taking import taking
from tests.storage.batches import NOW_MS, TOPIC_ID, all_bytes, batch


def request(**options: object) -> DirectoryRequest:
    return DirectoryRequest(**({"broker_id": 7, "cluster_id": "c1", "now_ms": NOW_MS, "random": Random(1)} | options))  # type: ignore[arg-type]


def refusal(call: object) -> KafkaError:
    with pytest.raises(KafkaError) as refused:
        call()  # type: ignore[operator]
    return refused.value


def test_a_second_owner_is_refused_with_kafkas_error(tmp_path: Path) -> None:
    words = (
        f"Failed to acquire lock on file .lock in {tmp_path}. "
        "A Kafka instance in another process or thread is using this directory."
    )
    directory = Directory.open(str(tmp_path), request())
    assert refusal(lambda: Directory.open(str(tmp_path), request())).message == words
    program = (
        "from odradek.storage.directory import *\n"
        "try:\n"
        f"    Directory.open({str(tmp_path)!r}, DirectoryRequest(7, 'c1', 0))\n"
        "except KafkaError as error:\n"
        "    print(error.message)\n"
    )
    printed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert printed.stdout.strip() == words
    directory.close(now_ms=NOW_MS)
    Directory.open(str(tmp_path), request()).close(now_ms=NOW_MS)


def test_a_directory_belongs_to_one_broker_of_one_cluster(tmp_path: Path) -> None:
    path = str(tmp_path)
    assert refusal(lambda: Directory.open(path, request(cluster_id=None))).code is ErrorCode.INVALID_CONFIG
    Directory.open(path, request()).close(now_ms=NOW_MS)
    assert read_identity(OsDisk(), path) == {"version": "0", "broker.id": "7", "cluster.id": "c1"}
    assert refusal(lambda: Directory.open(path, request(cluster_id="c2"))).code is ErrorCode.INCONSISTENT_CLUSTER_ID
    assert refusal(lambda: Directory.open(path, request(broker_id=8))).code is ErrorCode.INVALID_CONFIG
    Directory.open(path, request(cluster_id=None)).close(now_ms=NOW_MS)
    meta = tmp_path / "meta.properties"
    meta.write_text(meta.read_text() + "directory.id=kept\n")
    before = meta.read_bytes()
    Directory.open(path, request()).close(now_ms=NOW_MS)
    assert meta.read_bytes() == before
    meta.write_text("version=1\nnode.id=7\ncluster.id=c1\n")
    assert "KRaft" in refusal(lambda: Directory.open(path, request())).message


@pytest.mark.parametrize("clean", [True, False])
def test_logs_are_opened_again(tmp_path: Path, clean: bool) -> None:
    path = str(tmp_path / "data")
    directory = Directory.open(path, request())
    assert not directory.was_clean
    for partition in range(3):
        log = directory.create_log(("a-b.c_d", partition), TOPIC_ID, LogConfig(), now_ms=NOW_MS)
        for _ in range(partition):
            log.append(batch(4), leader_epoch=partition, now_ms=NOW_MS)
    everything = {name: all_bytes(log) for name, log in directory.logs.items()}
    directory.logs["a-b.c_d", 2].advance_start_offset(3, high_watermark=8)
    directory.checkpoints.write_start_offsets()
    directory.checkpoints.write_recovery_points()
    directory.write_high_watermarks({("a-b.c_d", 1): 4, ("a-b.c_d", 2): 8})
    directory.close(now_ms=NOW_MS, clean=clean, broker_epoch=33)
    assert (tmp_path / "data" / ".kafka_cleanshutdown").exists() == clean
    directory = Directory.open(path, request(config_for=lambda topic: LogConfig(retention_ms=len(topic))))
    assert not (tmp_path / "data" / ".kafka_cleanshutdown").exists()
    assert (directory.was_clean, directory.last_broker_epoch) == (clean, 33 if clean else -1)
    assert {name: log.end_offset for name, log in directory.logs.items()} == {
        ("a-b.c_d", 0): 0,
        ("a-b.c_d", 1): 4,
        ("a-b.c_d", 2): 8,
    }
    assert all(log.topic_id == TOPIC_ID and log.config.retention_ms == 7 for log in directory.logs.values())
    assert directory.logs["a-b.c_d", 2].start_offset == 3
    assert directory.high_watermarks == {("a-b.c_d", 1): 4, ("a-b.c_d", 2): 8}
    for name, data in everything.items():
        assert all_bytes(directory.logs[name]) == data
    directory.close(now_ms=NOW_MS)


def test_checkpoints_name_every_log(tmp_path: Path) -> None:
    directory = Directory.open(str(tmp_path), request())
    for topic in ("x", "y"):
        log = directory.create_log((topic, 0), TOPIC_ID, LogConfig(), now_ms=NOW_MS)
        log.append(batch(5), leader_epoch=0, now_ms=NOW_MS)
    directory.logs["x", 0].flush(now_ms=NOW_MS)
    directory.logs["y", 0].advance_start_offset(2, high_watermark=5)
    directory.checkpoints.write_recovery_points()
    directory.checkpoints.write_start_offsets()
    recovery_points = decode_offsets((tmp_path / "recovery-point-offset-checkpoint").read_bytes())
    assert recovery_points == {("x", 0): 5, ("y", 0): 0}
    assert decode_offsets((tmp_path / "log-start-offset-checkpoint").read_bytes()) == {("y", 0): 2}
    directory.close(now_ms=NOW_MS)
    assert decode_offsets((tmp_path / "recovery-point-offset-checkpoint").read_bytes()) == {("x", 0): 5, ("y", 0): 5}


def test_an_unreadable_checkpoint_costs_time_and_no_records(tmp_path: Path) -> None:
    directory = Directory.open(str(tmp_path), request())
    log = directory.create_log(("x", 0), TOPIC_ID, LogConfig(), now_ms=NOW_MS)
    log.append(batch(5), leader_epoch=0, now_ms=NOW_MS)
    directory.close(now_ms=NOW_MS)
    for name in ("recovery-point", "log-start", "replication"):
        (tmp_path / f"{name}-offset-checkpoint").write_bytes(b"\x00garbage")
    directory = Directory.open(str(tmp_path), request())
    assert directory.logs["x", 0].end_offset == 5
    directory.close(now_ms=NOW_MS)


def noted(path: Path) -> dict[str, dict[tuple[str, int], int]]:
    """The entries of the checkpoints on disk, by the first word of their names."""
    files = ("recovery-point", "log-start", "cleaner", "replication")
    return {each: decode_offsets((path / f"{each}-offset-checkpoint").read_bytes()) for each in files}


def with_checkpoints(path: Path, *topics: str) -> Directory:
    """A directory whose checkpoints all have an entry for partition 0 of these topics."""
    directory = Directory.open(str(path), request())
    for topic in topics:
        log = directory.create_log((topic, 0), TOPIC_ID, LogConfig(), now_ms=NOW_MS)
        for _ in range(10):
            log.append(batch(2), leader_epoch=0, now_ms=NOW_MS)
        log.flush(now_ms=NOW_MS)
        log.advance_start_offset(5, high_watermark=20)
        log.cleaned_to = 16
    directory.checkpoints.write_recovery_points()
    directory.checkpoints.write_start_offsets()
    directory.checkpoints.write_cleaner_offsets()
    directory.write_high_watermarks({(topic, 0): 18 for topic in topics})
    return directory


def test_checkpoint_entries_do_not_survive_the_truncation_of_their_records(tmp_path: Path) -> None:
    """New records may take the offsets of truncated ones, and a crash may come before the next checkpoint."""
    directory = with_checkpoints(tmp_path, "x", "y")
    assert noted(tmp_path) == {
        "recovery-point": {("x", 0): 20, ("y", 0): 20},
        "log-start": {("x", 0): 5, ("y", 0): 5},
        "cleaner": {("x", 0): 16, ("y", 0): 16},
        "replication": {("x", 0): 18, ("y", 0): 18},
    }
    log = directory.logs["x", 0]
    log.truncate_to(18, now_ms=NOW_MS)
    assert noted(tmp_path)["recovery-point"] == {("x", 0): 18, ("y", 0): 20}
    before = {each: each.stat().st_mtime_ns for each in tmp_path.glob("*-checkpoint")}
    log.append(batch(2), leader_epoch=1, now_ms=NOW_MS)
    log.truncate_to(18, now_ms=NOW_MS)
    assert {each: each.stat().st_mtime_ns for each in before} == before, (
        "no checkpoint had an entry for what is gone now"
    )
    log.truncate_to(4, now_ms=NOW_MS)
    assert noted(tmp_path) == {
        "recovery-point": {("x", 0): 4, ("y", 0): 20},
        "log-start": {("x", 0): 4, ("y", 0): 5},
        "cleaner": {("x", 0): 4, ("y", 0): 16},
        "replication": {("x", 0): 18, ("y", 0): 18},
    }
    directory.logs["y", 0].truncate_fully(0, now_ms=NOW_MS)
    assert noted(tmp_path)["recovery-point"] == {("x", 0): 4, ("y", 0): 0}
    assert noted(tmp_path)["cleaner"] == {("x", 0): 4}
    directory.close(now_ms=NOW_MS)


def test_a_log_inherits_nothing_from_one_that_was_deleted(tmp_path: Path) -> None:
    directory = with_checkpoints(tmp_path, "x", "y", "z")
    for topic in ("x", "z"):
        directory.delete_log((topic, 0), now_ms=NOW_MS)
    log = directory.create_log(("x", 0), TOPIC_ID, LogConfig(), now_ms=NOW_MS)
    assert noted(tmp_path) == {
        "recovery-point": {("y", 0): 20},
        "log-start": {("y", 0): 5},
        "cleaner": {("y", 0): 16},
        "replication": {("y", 0): 18},
    }
    log.append(batch(2), leader_epoch=0, now_ms=NOW_MS)
    directory.close(now_ms=NOW_MS, clean=False)
    log = Directory.open(str(tmp_path), request()).logs["x", 0]
    assert (log.start_offset, log.end_offset) == (0, 2)


def test_an_empty_cleaner_checkpoint_means_that_nothing_was_cleaned(tmp_path: Path) -> None:
    """Kafka creates the file when it starts, and leaves it empty until it has cleaned something."""
    with_checkpoints(tmp_path, "x").close(now_ms=NOW_MS)
    (tmp_path / "cleaner-offset-checkpoint").write_bytes(b"")
    directory = Directory.open(str(tmp_path), request())
    assert directory.logs["x", 0].cleaned_to == -1
    assert directory.cleaner_offsets == {}
    directory.close(now_ms=NOW_MS)
    (tmp_path / "cleaner-offset-checkpoint").write_bytes(b"0\n1\nx 0 21\n")
    directory = Directory.open(str(tmp_path), request())
    assert directory.logs["x", 0].cleaned_to == -1, "the log ends below"
    assert (tmp_path / "cleaner-offset-checkpoint").read_bytes() == b"0\n0\n"
    directory.close(now_ms=NOW_MS)


def test_a_deleted_log_is_renamed_at_once_and_removed_later(tmp_path: Path) -> None:
    directory = Directory.open(str(tmp_path), request())
    long = "t" * 249
    for topic in ("x", long):
        log = directory.create_log((topic, 3), TOPIC_ID, LogConfig(file_delete_delay_ms=100), now_ms=NOW_MS)
        log.append(batch(5), leader_epoch=0, now_ms=NOW_MS)
        directory.delete_log((topic, 3), now_ms=NOW_MS)
        again = directory.create_log((topic, 3), bytes(16), LogConfig(), now_ms=NOW_MS)
        assert again.end_offset == 0
    deleted = sorted(each.name for each in tmp_path.glob("*-delete"))
    assert len(deleted) == 2
    assert all(len(name) <= 255 for name in deleted)
    assert len(deleted[1]) == len("x-3.") + 32 + len("-delete")
    assert directory.take_due(NOW_MS + 99) is None
    remove = directory.take_due(NOW_MS + 100)
    assert remove is not None
    remove()
    assert not list(tmp_path.glob("*-delete"))
    assert refusal(lambda: directory.delete_log(("y", 0), now_ms=NOW_MS)).code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert refusal(lambda: directory.create_log(("x", 3), TOPIC_ID, LogConfig(), now_ms=NOW_MS)).code is (
        ErrorCode.TOPIC_ALREADY_EXISTS
    )
    directory.close(now_ms=NOW_MS)


def test_interrupted_deletions_are_finished_and_stray_logs_kept(tmp_path: Path) -> None:
    directory = Directory.open(str(tmp_path), request())
    directory.create_log(("x", 0), TOPIC_ID, LogConfig(), now_ms=NOW_MS)
    directory.delete_log(("x", 0), now_ms=NOW_MS)
    directory.close(now_ms=NOW_MS)
    for name in ("y-0.0123456789abcdef0123456789abcdef-stray", "y-1.0123456789abcdef0123456789abcdef-future"):
        (tmp_path / name).mkdir()
    (tmp_path / "a file of somebody else").write_bytes(b"")
    directory = Directory.open(str(tmp_path), request())
    assert directory.logs == {}
    remove = directory.take_due(NOW_MS)
    assert remove is not None
    remove()
    assert sorted(each.name[-7:] for each in tmp_path.iterdir() if each.is_dir()) == ["-future", "f-stray"]
    directory.close(now_ms=NOW_MS)


def test_a_directory_that_is_no_log_is_refused(tmp_path: Path) -> None:
    Directory.open(str(tmp_path), request()).close(now_ms=NOW_MS)
    (tmp_path / "photos").mkdir()
    assert "TOPIC-PARTITION" in refusal(lambda: Directory.open(str(tmp_path), request())).message
    (tmp_path / "photos").rmdir()
    Directory.open(str(tmp_path), request()).close(now_ms=NOW_MS)


def test_a_topic_id_is_set_once(tmp_path: Path) -> None:
    directory = Directory.open(str(tmp_path), request())
    log = directory.create_log(("x", 0), bytes(16), LogConfig(), now_ms=NOW_MS)
    assert not (tmp_path / "x-0" / "partition.metadata").exists()
    directory.assign_topic_id(log, TOPIC_ID)
    directory.assign_topic_id(log, TOPIC_ID)
    assert refusal(lambda: directory.assign_topic_id(log, bytes([9] * 16))).code is ErrorCode.INCONSISTENT_TOPIC_ID
    directory.close(now_ms=NOW_MS)
    directory = Directory.open(str(tmp_path), request())
    assert directory.logs["x", 0].topic_id == TOPIC_ID
    directory.close(now_ms=NOW_MS)


def test_several_directories(tmp_path: Path) -> None:
    paths = [str(tmp_path / "one"), str(tmp_path / "two")]
    directories = open_all(paths, request())
    for partition in range(5):
        emptiest(directories).create_log(("x", partition), TOPIC_ID, LogConfig(), now_ms=NOW_MS)
    assert [len(directory.logs) for directory in directories] == [3, 2]
    directories[0].fail("gone")
    assert emptiest(directories) is directories[1]
    for directory in directories:
        directory.close(now_ms=NOW_MS)
    (tmp_path / "one" / "x-0").rename(tmp_path / "two" / "x-0")
    (tmp_path / "one" / "x-0").mkdir()
    assert "both have a log of x-0" in refusal(lambda: open_all(paths, request())).message
    shutil.rmtree(tmp_path / "one" / "x-0")
    for directory in open_all(paths, request()):
        directory.close(now_ms=NOW_MS)


def test_segments_roll_at_different_times_with_segment_jitter(tmp_path: Path) -> None:
    directory = Directory.open(str(tmp_path), request())
    config = LogConfig(segment_jitter_ms=1000)
    jitters = {
        directory.create_log(("x", partition), TOPIC_ID, config, now_ms=NOW_MS).segments[-1].jitter_ms
        for partition in range(8)
    }
    assert len(jitters) > 4
    assert all(0 <= jitter_ms < 1000 for jitter_ms in jitters)
    directory.close(now_ms=NOW_MS)


def test_a_checkpoint_in_parts_has_no_entry_that_is_too_high(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An entry that is too high would make a recovery trust records that were never flushed."""
    monkeypatch.setattr(offset_checkpoints, "LOGS_AT_ONCE", 1)
    directory = Directory.open(str(tmp_path), request())
    for partition in range(3):
        log = directory.create_log(("t", partition), TOPIC_ID, LogConfig(), now_ms=NOW_MS)
        log.append(batch(4), leader_epoch=0, now_ms=NOW_MS)
        log.flush(now_ms=NOW_MS)
    parts = directory.checkpoints.write_recovery_points_in_parts()
    next(parts)
    next(parts)
    directory.logs["t", 0].truncate_to(0, now_ms=NOW_MS)
    directory.delete_log(("t", 1), now_ms=NOW_MS)
    directory.create_log(("t", 1), TOPIC_ID, LogConfig(), now_ms=NOW_MS)
    assert len(list(parts)) == 1
    assert decode_offsets((tmp_path / RECOVERY_POINTS).read_bytes()) == {("t", 0): 0, ("t", 2): 4}
    directory.close(now_ms=NOW_MS)


def test_no_part_of_a_checkpoint_reads_all_logs_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With 10,000 logs the last part took 20 ms: it read the offsets of that moment."""
    monkeypatch.setattr(offset_checkpoints, "LOGS_AT_ONCE", 2)
    directory = Directory.open(str(tmp_path), request())
    for partition in range(9):
        directory.create_log(("t", partition), TOPIC_ID, LogConfig(), now_ms=NOW_MS)
    read: list[int] = []

    def offset_of(name: TopicPartition, _: Log) -> int:
        read[-1] += 1
        return name[1]

    parts = directory.checkpoints.write_in_parts(HIGH_WATERMARKS, offset_of)
    is_over = False
    while not is_over:
        read.append(0)
        is_over = next(parts, "end") == "end"
    assert read == [2, 2, 2, 2, 1, 0]
    assert directory.checkpoints.offsets(HIGH_WATERMARKS) == {("t", number): number for number in range(9)}
    directory.close(now_ms=NOW_MS)


def test_a_checkpoint_in_parts_does_not_replace_one_that_began_later(tmp_path: Path) -> None:
    """The log cleaner waits for a checkpoint of its own before it replaces segments: that one stays."""
    directory = Directory.open(str(tmp_path), request())
    directory.create_log(("t", 0), TOPIC_ID, LogConfig(), now_ms=NOW_MS)
    directory.create_log(("t", 1), TOPIC_ID, LogConfig(), now_ms=NOW_MS)
    offsets = [1, 2]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(offset_checkpoints, "LOGS_AT_ONCE", 1)
        parts = directory.checkpoints.write_in_parts(HIGH_WATERMARKS, lambda *_: offsets[0])
        next(parts)
        directory.checkpoints.write(HIGH_WATERMARKS, {("t", 0): offsets[1], ("t", 1): offsets[1]})
        list(parts)
    assert decode_offsets((tmp_path / HIGH_WATERMARKS).read_bytes()) == {("t", 0): 2, ("t", 1): 2}
    assert directory.checkpoints.offsets(HIGH_WATERMARKS) == {("t", 0): 2, ("t", 1): 2}
    directory.close(now_ms=NOW_MS)


def test_a_task_keeps_no_log_that_is_deleted_meanwhile() -> None:
    """A checkpoint in parts closed the files of 10,000 deleted logs at its end, in one part."""

    class Item:
        """A log."""

    items = [Item() for _ in range(3)]
    references = [weakref.ref(each) for each in items]
    taken = taking(items)
    left = []
    for _ in taken:
        left.append(sum(each() is not None for each in references))
        del _
    assert left == [3, 2, 1]
