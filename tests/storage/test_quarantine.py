"""Recovery keeps in the quarantine what it removes from a log, with a report, and a rescue reads it."""

from __future__ import annotations

import errno
import json
import zlib
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest
from click.testing import CliRunner

from odradek.cli import main
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.storage import quarantine
from odradek.storage.checkpoints import START_OFFSETS, decode_offsets, encode_offsets
from odradek.storage.config import LogConfig
from odradek.storage.directory import Directory, DirectoryRequest
from odradek.storage.disk import OsDisk
from odradek.storage.log import Log
from odradek.storage.quarantine import QUARANTINE
from odradek.storage.reading import Batch, Partition
from odradek.storage.rescue import Unreadable, pieces
from tests.storage.batches import NOW_MS, TOPIC_ID, all_bytes, batch, open_log
from tests.storage.disks import MemoryDisk, at_random

CONFIG = LogConfig(segment_bytes=600)


def written(path: Path | str, disk: MemoryDisk | None = None, batches: int = 12) -> tuple[Log, bytes]:
    """A log of two records in each batch over several segments, abandoned as by a killed process; its bytes."""
    log = open_log(path, CONFIG, disk=disk)
    for _ in range(batches):
        log.append(batch(2, size=60), leader_epoch=0, now_ms=NOW_MS)
    content = all_bytes(log)
    log.close_files()
    return log, content


def damage(file: Path, position: int) -> None:
    content = bytearray(file.read_bytes())
    content[position] ^= 0xFF
    file.write_bytes(content)


def kept(directory: Path) -> bytes:
    """All bytes of batches in the quarantine, in the order of entries and files."""
    return b"".join(file.read_bytes() for file in sorted((directory / QUARANTINE).glob("*/*.log")))


def test_bytes_and_segments_behind_damage_are_kept_with_a_report(tmp_path: Path) -> None:
    log, content = written(tmp_path / "topic-0")
    names = [segment.name for segment in log.segments]
    assert len(names) >= 3
    damage(tmp_path / "topic-0" / names[1], 70)
    recovered = open_log(tmp_path / "topic-0", CONFIG, clean=False)
    remaining = all_bytes(recovered)
    assert content.startswith(remaining)
    (entry,) = (tmp_path / QUARANTINE).iterdir()
    assert entry.name == "topic-0.1"
    report = json.loads((entry / "report.json").read_bytes())
    assert report["log"] == str(tmp_path / "topic-0")
    assert report["bytes"] == len(content) - len(remaining) == len(kept(tmp_path))
    first = report["items"][0]
    assert (first["source"], first["position"]) == (str(tmp_path / "topic-0" / names[1]), 0)
    assert [item["file"] for item in report["items"][1:]] == names[2:]
    assert all(item["reason"] for item in report["items"])
    for name in names[2:]:
        assert not (tmp_path / "topic-0" / name).exists()


def test_bytes_cut_by_the_name_of_a_stray_segment_are_kept(tmp_path: Path) -> None:
    """A stray file with the name of a segment claims the offsets from there on."""
    log, content = written(tmp_path / "topic-0", batches=2)
    assert len(log.segments) == 1
    (tmp_path / "topic-0" / f"{2:020d}.log").write_bytes(b"")
    recovered = open_log(tmp_path / "topic-0", CONFIG, clean=False)
    assert recovered.end_offset == 2
    assert all_bytes(recovered) + kept(tmp_path) == content


def test_a_torn_write_is_kept_and_zeros_are_not(tmp_path: Path) -> None:
    log, _ = written(tmp_path / "topic-0", batches=2)
    segment = tmp_path / "topic-0" / log.segments[0].name
    whole = segment.read_bytes()
    segment.write_bytes(whole + bytes(500))
    open_log(tmp_path / "topic-0", CONFIG, clean=False).close_files()
    assert not (tmp_path / QUARANTINE).exists()
    segment.write_bytes(whole + whole[:100])
    open_log(tmp_path / "topic-0", CONFIG, clean=False).close_files()
    assert kept(tmp_path) == whole[:100]


def test_each_recovery_makes_an_entry_of_its_own(tmp_path: Path) -> None:
    for _ in range(2):
        log, _ = written(tmp_path / "topic-0", batches=2)
        damage(tmp_path / "topic-0" / log.segments[-1].name, log.segments[-1].size - 1)
        open_log(tmp_path / "topic-0", CONFIG, clean=False).close_files()
    assert sorted(entry.name for entry in (tmp_path / QUARANTINE).iterdir()) == ["topic-0.1", "topic-0.2"]


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
def test_no_byte_is_lost_where_any_call_of_the_quarantine_fails(code: int) -> None:
    disk = MemoryDisk()
    log, content = written("/data/topic-0", disk)
    disk.flip(f"/data/topic-0/{log.segments[1].name}", 70 * 8)
    damaged = [bytes(disk.files[f"/data/topic-0/{segment.name}"].data) for segment in log.segments]
    call, failed = 0, True
    while failed:
        copy = disk.fork()
        copy.plan.at, copy.plan.code, copy.plan.lasting = call, code, True
        with suppress(OSError):
            open_log("/data/topic-0", CONFIG, disk=copy, clean=False)
        failed = copy.plan.failed > 0
        copy.plan.recover()
        copy.kill()
        recovered = open_log("/data/topic-0", CONFIG, disk=copy, clean=False)
        assert content.startswith(all_bytes(recovered))
        assert _is_somewhere(damaged, copy)
        call += 1
    assert call > 10


@pytest.mark.parametrize("seed", range(40))
def test_no_byte_is_lost_with_a_loss_of_power_during_the_recovery(seed: int) -> None:
    random = Random(seed)
    disk = MemoryDisk()
    log, content = written("/data/topic-0", disk)
    disk.flip(f"/data/topic-0/{log.segments[1].name}", 70 * 8)
    for path in disk.files:
        disk.open(path).sync()
    disk.sync_directory("/data/topic-0")
    disk.sync_directory("/data")
    damaged = [bytes(disk.files[f"/data/topic-0/{segment.name}"].data) for segment in log.segments]
    disk.plan.at, disk.plan.lasting = disk.plan.calls + random.randrange(60), True
    with suppress(OSError):
        open_log("/data/topic-0", CONFIG, disk=disk, clean=False)
    disk.plan.recover()
    disk.lose_power(at_random(random))
    recovered = open_log("/data/topic-0", CONFIG, disk=disk, clean=False)
    assert content.startswith(all_bytes(recovered))
    assert _is_somewhere(damaged, disk)


def _is_somewhere(segments: list[bytes], disk: MemoryDisk) -> bool:
    """Whether each 23 bytes of the segments are in a file of the log or of the quarantine."""
    logs = [bytes(each.data) for path, each in disk.files.items() if path.endswith(".log")]
    return all(any(part[at : at + 23] in each for each in logs) for part in segments for at in range(0, len(part), 23))


def directory(path: Path, now_ms: int = NOW_MS) -> Directory:
    request = DirectoryRequest(1, "cluster", now_ms, config_for=lambda topic: CONFIG)
    return Directory.open(str(path), request, OsDisk())


def test_a_start_offset_beyond_the_end_of_the_log_is_rejected(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    opened = directory(tmp_path)
    log = opened.create_log(("topic", 0), TOPIC_ID, CONFIG, now_ms=NOW_MS)
    for _ in range(12):
        log.append(batch(2, size=60), leader_epoch=0, now_ms=NOW_MS)
    content = all_bytes(log)
    opened.close(now_ms=NOW_MS)
    (tmp_path / START_OFFSETS).write_bytes(encode_offsets({("topic", 0): 1_000_000}))
    opened = directory(tmp_path)
    log = opened.logs["topic", 0]
    assert (log.start_offset, log.end_offset, all_bytes(log)) == (0, 24, content)
    assert "rejecting a log start offset beyond the end of the log" in caplog.text
    # Else the records that are appended up to that offset would be hidden by the next start.
    assert decode_offsets((tmp_path / START_OFFSETS).read_bytes()) == {}
    opened.close(now_ms=NOW_MS)


def test_the_quarantine_is_bounded_and_keeps_recent_entries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(3):
        log, _ = written(tmp_path / "topic-0", batches=2)
        damage(tmp_path / "topic-0" / log.segments[-1].name, log.segments[-1].size - 1)
        open_log(tmp_path / "topic-0", CONFIG, clean=False, now_ms=NOW_MS + log.end_offset).close_files()
    sizes = [entry.size for entry in quarantine.entries(OsDisk(), str(tmp_path))]
    assert len(sizes) == 3
    monkeypatch.setattr(quarantine, "KEPT_BYTES", sizes[-1] + 1)
    opened = directory(tmp_path, NOW_MS + quarantine.KEPT_MS // 2)
    assert opened.quarantined_bytes == sum(sizes)
    opened.close(now_ms=NOW_MS)
    opened = directory(tmp_path, NOW_MS + quarantine.KEPT_MS * 2)
    assert opened.quarantined_bytes == sizes[-1]
    opened.close(now_ms=NOW_MS)
    assert [entry.name for entry in (tmp_path / QUARANTINE).iterdir()] == ["topic-0.3"]


def test_a_directory_without_room_for_the_quarantine_goes_offline_with_all_bytes(tmp_path: Path) -> None:
    disk = MemoryDisk()
    request = DirectoryRequest(1, "cluster", NOW_MS, config_for=lambda topic: CONFIG)
    opened = Directory.open("/data", request, disk)
    log = opened.create_log(("topic", 0), TOPIC_ID, CONFIG, now_ms=NOW_MS)
    log.append(batch(2, size=60), leader_epoch=0, now_ms=NOW_MS)
    name, size = f"/data/topic-0/{log.segments[0].name}", log.size
    disk.kill()
    disk.flip(name, 70 * 8)
    before = bytes(disk.files[name].data)
    begun = Directory.begin("/data", request, disk)
    disk.plan.fail_next(errno.ENOSPC, lasting=True)
    begun.load({})
    assert begun.failure is not None
    assert bytes(disk.files[name].data) == before
    assert len(before) == size


def test_pieces_finds_the_batches_behind_damage(tmp_path: Path) -> None:
    log = open_log(tmp_path / "topic-0")
    for _ in range(3):
        log.append(batch(2, size=60), leader_epoch=0, now_ms=NOW_MS)
    log.close_files()
    file = tmp_path / "topic-0" / log.segments[0].name
    size = file.stat().st_size // 3
    damage(file, size + 70)
    file.write_bytes(file.read_bytes() + b"\2" * 2_500_000 + bytes(batch(1, base_offset=99)))
    found = list(pieces(str(file)))
    batches = [each for each in found if isinstance(each, Batch)]
    assert [each.header.base_offset for each in batches] == [0, 4, 99]
    ranges = [(each.position, each.end) for each in found if isinstance(each, Unreadable)]
    assert ranges == [(size, 2 * size), (3 * size, 3 * size + 2_500_000)]


def test_rescue_lists_and_exports_what_is_readable(tmp_path: Path) -> None:
    log, _ = written(tmp_path / "data" / "topic-0")
    names = [segment.name for segment in log.segments]
    damage(tmp_path / "data" / "topic-0" / names[1], 70)
    open_log(tmp_path / "data" / "topic-0", CONFIG, clean=False).close_files()
    arguments = ["dump-log", "--rescue", "--files", str(tmp_path / "data" / QUARANTINE)]
    listed = CliRunner().invoke(main, arguments)
    assert listed.exit_code == 0, listed.output
    assert "unreadable, bytes 0 to " in listed.output
    assert "no whole batch with a valid checksum begins here" in listed.output
    exported = CliRunner().invoke(main, [*arguments, "--export", str(tmp_path / "out")])
    assert exported.output == listed.output
    (folder,) = (tmp_path / "out").iterdir()
    first_lost = log.segments[1].base_offset
    offsets = [record.offset for record in Partition(str(folder)).records()]
    assert offsets == list(range(first_lost + 2, log.end_offset))
    again = CliRunner().invoke(main, [*arguments, "--export", str(tmp_path / "out")])
    assert (again.exit_code, "is not empty" in again.output) == (1, True)


def test_an_unreadable_old_format_is_still_rejected_not_quarantined(tmp_path: Path) -> None:
    log, _ = written(tmp_path / "topic-0", batches=1)
    segment = tmp_path / "topic-0" / log.segments[0].name
    body = bytes([0, 0]) + (-1).to_bytes(4, "big", signed=True) + (3).to_bytes(4, "big") + b"old"
    message = zlib.crc32(body).to_bytes(4, "big") + body
    segment.write_bytes((0).to_bytes(8, "big") + len(message).to_bytes(4, "big") + message)
    with pytest.raises(KafkaError) as rejected:
        open_log(tmp_path / "topic-0", CONFIG, clean=False)
    assert rejected.value.code is ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT
    assert not (tmp_path / QUARANTINE).exists()
