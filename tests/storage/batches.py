"""Batches for the tests of the log, as a producer or a leader would send them."""

from __future__ import annotations

from pathlib import Path

from odradek.protocol.batch import Header, Record, build, headers
from odradek.storage.config import MAX_INT64, LogConfig
from odradek.storage.disk import Disk, Folder, OsDisk
from odradek.storage.log import Log
from odradek.storage.recovery import LoadRequest

TOPIC_ID = bytes(range(16))
NOW_MS = 1_700_000_000_000


def batch(
    count: int = 1,
    *,
    size: int = 10,
    timestamp_ms: int = NOW_MS,
    codec: int = 0,
    producer: tuple[int, int, int] = (-1, -1, -1),
    transactional: bool = False,
    base_offset: int = 0,
    leader_epoch: int = -1,
) -> memoryview:
    """`count` records with values of `size` bytes and timestamps 1 ms apart; `producer` is id, epoch, sequence."""
    producer_id, producer_epoch, base_sequence = producer
    records = [
        Record(base_offset + number, timestamp_ms + number, b"key-%d" % number, bytes([65 + number % 26]) * size)
        for number in range(count)
    ]
    return memoryview(
        build(
            records,
            base_offset=base_offset,
            codec=codec,
            leader_epoch=leader_epoch,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=base_sequence,
            transactional=transactional,
        )
    )


def open_log(
    path: Path | str,
    config: LogConfig | None = None,
    *,
    disk: Disk | None = None,
    clean: bool = True,
    start_offset: int = 0,
    recovery_point: int = 0,
    cleaned_to: int = -1,
    high_watermark: int = MAX_INT64,
    gaps_are_losses: bool = True,
    now_ms: int = NOW_MS,
) -> Log:
    """The log in the directory `path`, which is created where missing."""
    disk = disk or OsDisk()
    disk.make_directory(str(path))
    request = LoadRequest(
        config=config or LogConfig(),
        clean=clean,
        start_offset=start_offset,
        recovery_point=recovery_point,
        cleaned_to=cleaned_to,
        high_watermark=high_watermark,
        gaps_are_losses=gaps_are_losses,
        now_ms=now_ms,
    )
    return Log.open(Folder(disk, str(path)), ("topic", 0), TOPIC_ID, request)


def all_bytes(log: Log) -> bytes:
    """All batches that the log serves."""
    parts = []
    offset = log.start_offset
    while offset < log.end_offset:
        part = log.read(offset, 1 << 30)
        data = bytes(part.records if isinstance(part.records, bytes) else part.records.read())
        if not data:
            break
        parts.append(data)
        for _, header in headers(data):
            offset = header.next_offset
    return b"".join(parts)


def all_headers(log: Log) -> list[Header]:
    """The header of every batch that the log serves."""
    return [header for _, header in headers(all_bytes(log))]


def files(path: Path | str, *, but: tuple[str, ...] = ()) -> dict[str, bytes]:
    """Name and content of every file in a directory, without those that end in `but`."""
    return {
        file.name: file.read_bytes()
        for file in sorted(Path(path).iterdir())
        if file.is_file() and not file.name.endswith(but)
    }
