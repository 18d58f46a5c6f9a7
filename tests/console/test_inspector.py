"""The log inspector reads a data directory as it is on disk."""

from __future__ import annotations

from pathlib import Path

import pytest

from odradek.console.log_inspector import MOST_BATCHES, LogInspector
from odradek.console.paging import Listing
from odradek.protocol.batch import Codec, Record, build, stamp
from odradek.storage.checkpoints import (
    CLEANER_OFFSETS,
    HIGH_WATERMARKS,
    LEADER_EPOCHS,
    encode_epochs,
    encode_offsets,
)


def batch(base_offset: int, count: int = 1, codec: Codec = Codec.NONE) -> bytes:
    data = bytearray(build([Record(number, 1000 + number, b"k", b"v" * 50) for number in range(count)], codec=codec))
    stamp(data, 0, base_offset, 3)
    return bytes(data)


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    log = tmp_path / "orders-0"
    log.mkdir()
    (log / f"{0:020d}.log").write_bytes(batch(0, 2) + batch(2, 3, Codec.LZ4))
    (log / f"{5:020d}.log").write_bytes(b"".join(batch(5 + number) for number in range(MOST_BATCHES + 5)))
    (log / LEADER_EPOCHS).write_bytes(encode_epochs([(1, 0), (3, 2)]))
    (tmp_path / HIGH_WATERMARKS).write_bytes(encode_offsets({("orders", 0): 7}))
    (tmp_path / CLEANER_OFFSETS).write_bytes(encode_offsets({("orders", 0): 5}))
    (tmp_path / "returns-eu-12").mkdir()
    (tmp_path / "orders-1.0123456789abcdef-delete").mkdir()
    (tmp_path / "lost+found").mkdir()
    return tmp_path


def test_the_logs_of_a_directory_are_listed_without_deleted_ones(data_dir: Path) -> None:
    page = LogInspector([data_dir]).logs(Listing())
    assert [(row.folder, row.topic, row.partition, row.segments) for row in page.rows] == [
        ("orders-0", "orders", 0, 2),
        ("returns-eu-12", "returns-eu", 12, 0),
    ]
    assert [row.folder for row in LogInspector([data_dir]).logs(Listing(sort="size")).rows][-1] == "orders-0"
    assert page.rows[0].size_bytes == sum(each.stat().st_size for each in (data_dir / "orders-0").glob("*.log"))


def test_a_log_has_segments_epochs_and_checkpoints(data_dir: Path) -> None:
    detail = LogInspector([data_dir]).detail(0, "orders-0")
    assert [each.base_offset for each in detail.segments] == [0, 5]
    assert detail.epochs == ((1, 0), (3, 2))
    assert detail.checkpoints["high watermark"] == 7
    assert detail.checkpoints["recovery point"] is None
    assert detail.checkpoints["compacted to"] == 5
    assert detail.clean_bytes == detail.segments[0].size_bytes
    assert detail.producers == ()
    assert detail.problems == ()


def test_batches_come_in_pages_and_show_their_headers(data_dir: Path) -> None:
    inspector = LogInspector([data_dir])
    first = inspector.batches(0, "orders-0", 0)
    assert [(each.header.base_offset, each.header.last_offset, each.codec) for each in first.batches] == [
        (0, 1, "none"),
        (2, 4, "lz4"),
    ]
    assert all(each.is_sound for each in first.batches)
    assert first.next_position is None
    long = inspector.batches(0, "orders-0", 5)
    assert len(long.batches) == MOST_BATCHES
    assert long.next_position is not None
    rest = inspector.batches(0, "orders-0", 5, long.next_position)
    assert [each.header.base_offset for each in rest.batches] == [5 + MOST_BATCHES + number for number in range(5)]
    assert rest.next_position is None


def test_a_flipped_bit_and_a_damaged_end_are_shown(data_dir: Path) -> None:
    log = data_dir / "orders-0" / f"{0:020d}.log"
    data = bytearray(log.read_bytes())
    data[80] ^= 1
    log.write_bytes(bytes(data) + bytes(70))
    page = LogInspector([data_dir]).batches(0, "orders-0", 0)
    assert [each.is_sound for each in page.batches] == [False, True]
    assert "magic 0" in page.damage


def test_an_index_that_cannot_be_read_is_a_problem_and_the_rest_is_shown(data_dir: Path) -> None:
    (data_dir / "orders-0" / f"{0:020d}.txnindex").write_bytes(b"123")
    inspector = LogInspector([data_dir])
    assert inspector.indexes(0, "orders-0", 0).problems
    detail = inspector.detail(0, "orders-0")
    assert [each.aborted for each in detail.segments] == [None, 0]
    assert detail.problems


@pytest.mark.parametrize("name", ["../orders-0", "orders-9", "", ".", "orders-1.0123456789abcdef-delete"])
def test_only_logs_of_the_directory_can_be_named(data_dir: Path, name: str) -> None:
    inspector = LogInspector([data_dir / "orders-0" / "..", data_dir])
    with pytest.raises(KeyError):
        inspector.detail(1, name)
    with pytest.raises(KeyError):
        inspector.batches(2, "orders-0", 0)
