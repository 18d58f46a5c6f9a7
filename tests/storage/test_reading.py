"""A partition's directory read by the library: filters, a broker beside it, damage."""

from __future__ import annotations

import os
import stat
import threading
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.protocol.batch import Record, build, control_batch
from odradek.protocol.compression import Codec
from odradek.storage.config import AppendOrigin, LogConfig
from odradek.storage.log import Log
from odradek.storage.reading import DamagedLog, Partition
from tests.storage.batches import NOW_MS, all_headers, batch, files, open_log

SMALL = LogConfig(segment_bytes=2000, index_interval_bytes=300)


def fill(log: Log, count: int) -> None:
    for number in range(count):
        log.append(
            batch(1 + number % 4, size=60, timestamp_ms=NOW_MS + 100 * log.end_offset, codec=Codec(number % 5)),
            leader_epoch=0,
            now_ms=NOW_MS,
        )


def offsets(partition: Partition, *bounds: int) -> list[int]:
    return [record.offset for record in partition.records(*bounds)]


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Partition, list[Record]]:
    """A log of many segments and all its records."""
    path = tmp_path_factory.mktemp("logs") / "topic-0"
    log = open_log(path, SMALL)
    fill(log, 80)
    log.close(now_ms=NOW_MS)
    partition = Partition(str(path))
    assert len(partition.segments()) > 4
    return partition, list(partition.records())


def test_all_records_are_read_in_order(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0", SMALL)
    fill(log, 80)
    partition = Partition(str(tmp_path / "t-0"))
    assert [found.header for found in partition.batches()] == all_headers(log)
    assert offsets(partition) == list(range(log.end_offset))
    first = next(partition.records())
    assert first == Record(0, NOW_MS, b"key-0", b"A" * 60)
    log.close(now_ms=NOW_MS)


@given(
    start=st.integers(-5, 250),
    length=st.none() | st.integers(0, 250),
    from_ms=st.none() | st.integers(-100, 25_000),
    to_ms=st.none() | st.integers(-100, 25_000),
)
def test_filters_by_offset_and_time(
    closed: tuple[Partition, list[Record]], start: int, length: int | None, from_ms: int | None, to_ms: int | None
) -> None:
    partition, every = closed
    end = None if length is None else start + length
    earliest = None if from_ms is None else NOW_MS + from_ms
    latest = None if to_ms is None else NOW_MS + to_ms
    assert list(partition.records(start, end, from_ms=earliest, to_ms=latest)) == [
        record
        for record in every
        if start <= record.offset
        and (end is None or record.offset < end)
        and (earliest is None or record.timestamp_ms >= earliest)
        and (latest is None or record.timestamp_ms < latest)
    ]


def test_markers_are_read_only_on_request(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0", SMALL)
    fill(log, 1)
    marker = control_batch(commit=True, coordinator_epoch=0, producer_id=1, producer_epoch=0, timestamp_ms=NOW_MS)
    log.append(marker, leader_epoch=0, now_ms=NOW_MS, origin=AppendOrigin.COORDINATOR)
    fill(log, 1)
    partition = Partition(str(tmp_path / "t-0"))
    assert offsets(partition) == [0, 2]
    assert [record.offset for record in partition.records(control=True)] == [0, 1, 2]
    log.close(now_ms=NOW_MS)


def test_nothing_is_written_even_in_a_read_only_directory(tmp_path: Path) -> None:
    path = tmp_path / "t-0"
    log = open_log(path, SMALL)
    fill(log, 40)
    log.close(now_ms=NOW_MS)
    for index in (*path.glob("*.index"), *path.glob("*.timeindex")):
        index.unlink()
    before = files(path)
    times = {name: os.stat(path / name).st_mtime_ns for name in before}
    for name in before:
        os.chmod(path / name, stat.S_IRUSR)
    os.chmod(path, stat.S_IRUSR | stat.S_IXUSR)
    try:
        assert offsets(Partition(str(path)), 30) == list(range(30, log.end_offset))
    finally:
        os.chmod(path, stat.S_IRWXU)
    assert files(path) == before
    assert {name: os.stat(path / name).st_mtime_ns for name in before} == times


# -- beside a broker ---------------------------------------------------------------------------------------------------


def test_records_appended_and_rolled_meanwhile_are_read(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0", SMALL)
    fill(log, 5)
    found = []
    for record in Partition(str(tmp_path / "t-0")).records():
        found.append(record.offset)
        if log.end_offset < 300:
            fill(log, 3)
    segments = len(Partition(str(tmp_path / "t-0")).segments())
    assert segments > 5
    assert found == list(range(found[-1] + 1))
    assert found[-1] > 250
    log.close(now_ms=NOW_MS)


def test_a_writer_at_full_speed_is_followed_to_the_end(tmp_path: Path) -> None:
    """Reads again and again from its last offset, while a thread appends and rolls."""
    log = open_log(tmp_path / "t-0", LogConfig(segment_bytes=20_000, index_interval_bytes=500))

    def write() -> None:
        for _ in range(60):
            fill(log, 20)

    writer = threading.Thread(target=write)
    partition = Partition(str(tmp_path / "t-0"))
    found: list[int] = []
    writer.start()
    try:
        while writer.is_alive():
            found += offsets(partition, len(found))
    finally:
        writer.join()
    found += offsets(partition, len(found))
    assert found == list(range(log.end_offset))
    assert len(partition.segments()) > 3
    log.close(now_ms=NOW_MS)


def test_segments_that_are_removed_are_read_to_their_end_or_left_out(tmp_path: Path) -> None:
    path = tmp_path / "t-0"
    log = open_log(path, SMALL)
    fill(log, 80)
    log.close(now_ms=NOW_MS)
    partition = Partition(str(path))
    bases = partition.segments()
    reading = partition.records()
    found = [next(reading).offset]
    for base in bases[:3]:
        (path / f"{base:020d}.log").rename(path / f"{base:020d}.log.deleted")
        (path / f"{base:020d}.log.deleted").unlink()
    found += [record.offset for record in reading]
    assert found == [*range(bases[1]), *range(bases[3], log.end_offset)]


def test_a_segment_that_another_one_replaces_is_read_from_the_next_offset_on(tmp_path: Path) -> None:
    """Compaction puts the records of two segments into the first one; the reader has finished the old first one."""
    path = tmp_path / "t-0"
    log = open_log(path, SMALL)
    fill(log, 30)
    log.close(now_ms=NOW_MS)
    partition = Partition(str(path))
    first, second, third = partition.segments()[:3]
    reading = partition.batches()
    found = []
    while not found or found[-1] < second - 1:
        found.append(next(reading).header.last_offset)
    names = [path / f"{base:020d}.log" for base in (first, second)]
    cleaned = path / "cleaned"
    cleaned.write_bytes(names[0].read_bytes() + names[1].read_bytes())
    cleaned.rename(names[0])
    names[1].unlink()
    found += [batch.header.last_offset for batch in reading]
    assert found == [header.last_offset for header in (b.header for b in partition.batches())]
    assert any(second <= offset < third for offset in found)


@pytest.mark.parametrize("tail", ["cut", "zeros", "half written"])
def test_a_torn_tail_ends_the_reading(tmp_path: Path, tail: str) -> None:
    whole, torn = bytes(batch(2)), bytearray(batch(2, base_offset=2))
    tails = {"cut": bytes(torn[:-1]), "zeros": bytes(5000), "half written": bytes(torn[:70] + bytes(len(torn) - 70))}
    (tmp_path / f"{0:020d}.log").write_bytes(whole + tails[tail])
    assert offsets(Partition(str(tmp_path))) == [0, 1]
    assert offsets(Partition(str(tmp_path)), 2) == []


def test_a_writer_of_single_bytes_is_never_an_error(tmp_path: Path) -> None:
    data = bytes(batch(2)) + bytes(batch(2, base_offset=2, codec=Codec.GZIP))
    path = tmp_path / f"{0:020d}.log"
    for size in range(len(data) + 1):
        path.write_bytes(data[:size])
        expected = 4 if size == len(data) else 2 if size >= len(batch(2)) else 0
        assert offsets(Partition(str(tmp_path))) == list(range(expected))


# -- damage ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("damage", ["flipped", "cut"])
def test_damage_in_the_middle_of_a_log_is_named(tmp_path: Path, damage: str) -> None:
    first, second = bytes(batch(2)), bytearray(batch(2, base_offset=2))
    if damage == "flipped":
        second[80] ^= 1
    else:
        del second[-1]
    (tmp_path / f"{0:020d}.log").write_bytes(first + second)
    (tmp_path / f"{4:020d}.log").write_bytes(batch(2, base_offset=4))
    partition = Partition(str(tmp_path))
    reading = partition.records()
    assert [next(reading).offset, next(reading).offset] == [0, 1]
    with pytest.raises(DamagedLog) as caught:
        next(reading)
    assert (caught.value.path, caught.value.position) == (str(tmp_path / f"{0:020d}.log"), len(first))
    assert offsets(partition, 4) == [4, 5]


@pytest.mark.parametrize("content", [b"\xff" * 24, b"\x00\x00\x00\x05\x00\x00\x00\x07", b"odd"])
def test_a_wrong_index_costs_nothing_but_time(closed: tuple[Partition, list[Record]], content: bytes) -> None:
    partition, every = closed
    index = Path(partition.path) / f"{0:020d}.index"
    before = index.read_bytes()
    index.write_bytes(content)
    try:
        assert list(partition.records(6)) == every[6:]
    finally:
        index.write_bytes(before)


def test_an_index_avoids_reading_the_bytes_before(tmp_path: Path) -> None:
    """The bytes before the indexed position are invalid here, and no read reaches them."""
    path = tmp_path / "t-0"
    log = open_log(path, LogConfig(index_interval_bytes=1000))
    fill(log, 100)
    log.close(now_ms=NOW_MS)
    data = bytearray((path / f"{0:020d}.log").read_bytes())
    data[16] = 9
    (path / f"{0:020d}.log").write_bytes(data)
    assert offsets(Partition(str(path)), 200) == list(range(200, log.end_offset))
    assert offsets(Partition(str(path))) == []


@pytest.mark.memory
def test_memory_does_not_grow_with_the_log(tmp_path: Path) -> None:
    block = b"".join(
        bytes(build([Record(number, NOW_MS, b"k", bytes(50_000))], base_offset=number)) for number in range(600)
    )
    (tmp_path / f"{0:020d}.log").write_bytes(block)
    partition = Partition(str(tmp_path))
    assert next(partition.records()).offset == 0
    tracemalloc.start()
    try:
        assert sum(1 for _ in partition.records()) == 600
        assert tracemalloc.get_traced_memory()[1] < 2_000_000 < len(block)
    finally:
        tracemalloc.stop()


def test_a_missing_directory_is_an_error_at_once(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        Partition(str(tmp_path / "t-0"))
