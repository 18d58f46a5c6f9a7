"""The connectors of files by examples: fencing, formats, truncated files, CSV, wrong lines."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest

from odradek.streams.connectors.errors import ConnectError, FencedError, RetriableError
from odradek.streams.connectors.file_formats import JsonLinesFormat, ParquetFormat
from odradek.streams.connectors.file_sink import FileSink
from odradek.streams.connectors.file_source import FileSource
from odradek.streams.connectors.interface import SinkRecord
from tests.streams.connectors.memory import log_of
from tests.streams.connectors.stored import offsets_in_folder

PLACE = ("orders", 0)
RECORDS = log_of(PLACE, [0, 2, 5, 6], lambda offset: b"x")


def read(source: FileSource, most: int = 100) -> list[Any]:
    return [each.value for each in source.poll(most, 0)]


def opened(folder: Path, offset: dict[str, Any] | None = None, **options: Any) -> FileSource:
    source = FileSource(folder, "t", **options)
    (partition,) = source.partitions()
    source.open(partition, offset)
    return source


def test_a_process_whose_partition_moved_is_fenced(tmp_path: Path) -> None:
    late, owner = FileSink(tmp_path), FileSink(tmp_path)
    late.open("group", [PLACE])
    assert owner.open("group", [PLACE]) == {}
    owner.put(RECORDS[:3])
    owner.flush()
    late.put(RECORDS[:1])
    with pytest.raises(FencedError, match="another process has taken over"):
        late.flush()
    assert late.open("group", [PLACE]) == {PLACE: 6}
    late.put(RECORDS[3:])
    late.flush()
    assert offsets_in_folder(tmp_path) == {PLACE: [0, 2, 5, 6]}
    assert owner.open("group", [PLACE]) == {PLACE: 7}


def test_a_full_disk_is_retried_and_leaves_no_part_of_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sink = FileSink(tmp_path)
    sink.open("group", [PLACE])
    sink.put(RECORDS)

    def fail(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fail)
        with pytest.raises(RetriableError, match="No space left"):
            sink.flush()
    assert not [each for each in tmp_path.rglob("*") if each.is_file()]
    sink.flush()
    assert offsets_in_folder(tmp_path) == {PLACE: [0, 2, 5, 6]}


def test_files_of_another_format_or_origin_are_not_continued(tmp_path: Path) -> None:
    sink = FileSink(tmp_path)
    sink.open("group", [PLACE])
    sink.put(RECORDS)
    sink.flush()
    with pytest.raises(ConnectError, match=r"\.jsonl, which is no \*\.parquet"):
        FileSink(tmp_path, format="parquet").open("group", [PLACE])
    (file,) = tmp_path.rglob("*.jsonl")
    file.write_text('{"offset": 1')
    with pytest.raises(ConnectError, match="cannot read the last offset of"):
        sink.open("group", [PLACE])
    with pytest.raises(ValueError, match="format is 'xml'; expected one of jsonl, parquet"):
        FileSink(tmp_path, format="xml")
    with pytest.raises(ValueError, match="roll_records is 0"):
        FileSink(tmp_path, roll_records=0)


def test_json_lines_hold_any_record() -> None:
    row = JsonLinesFormat().row(SinkRecord("t", 1, 2, b"\xff", {"a": "ä"}, 3, [("h", b"v"), ("null", None)]))
    assert json.loads(row) == {
        "topic": "t",
        "partition": 1,
        "offset": 2,
        "timestamp": 3,
        "key_base64": "/w==",
        "value": {"a": "ä"},
        "headers": [{"name": "h", "value": "v"}, {"name": "null", "value": None}],
    }
    with pytest.raises(TypeError):
        JsonLinesFormat().row(SinkRecord("t", 1, 2, None, object(), 3))


def test_parquet_has_the_records_as_columns(tmp_path: Path) -> None:
    format = ParquetFormat()
    records = [SinkRecord("t", 1, 2, None, b"\xff", 1_000, [("h", None)]), SinkRecord("t", 1, 4, "k", {"a": 1}, 2_000)]
    (tmp_path / "file").write_bytes(content := format.content([format.row(each) for each in records]))
    rows = pyarrow.parquet.read_table(tmp_path / "file").to_pylist()
    assert [(row["offset"], row["key"], row["value"], row["headers"]) for row in rows] == [
        (2, None, b"\xff", [{"name": "h", "value": None}]),
        (4, b"k", b'{"a": 1}', []),
    ]
    assert rows[1]["timestamp"].timestamp() == 2
    assert format.last_offset(content) == 4


def test_lines_may_end_with_a_carriage_return_and_be_longer_than_a_block(tmp_path: Path) -> None:
    long = "x" * 600_000
    (tmp_path / "a").write_bytes(f"one\r\n{long}\ntwo\x85\u2028\nno end".encode())
    source = opened(tmp_path)
    assert read(source, 1) == ["one"]
    assert read(source) == [long, "two\x85\u2028"]
    assert read(source) == []
    source.close()


def test_a_truncated_file_is_read_from_its_beginning_and_a_removed_one_waits(tmp_path: Path) -> None:
    file = tmp_path / "a"
    file.write_text("first\nsecond\n")
    source = opened(tmp_path)
    assert read(source) == ["first", "second"]
    file.write_text("new\n")
    assert read(source) == ["new"]
    file.unlink()
    source.close()
    source.open({"file": "a"}, {"position": 4})
    assert read(source) == []
    file.write_text("new\nmore\n")
    assert read(source) == ["more"]
    source.close()


def test_csv_rows_have_the_names_of_the_header_also_after_a_restart(tmp_path: Path) -> None:
    (tmp_path / "a").write_text('id,item\n1,"a, b"\n2,c\n')
    source = opened(tmp_path, format="csv", key=lambda row: row["id"])
    (first,) = source.poll(1, 0)
    assert (first.key, first.value) == ("1", {"id": "1", "item": "a, b"})
    source.close()
    source = opened(tmp_path, dict(first.source_offset), format="csv")
    assert read(source) == [{"id": "2", "item": "c"}]
    source.close()


@pytest.mark.parametrize(
    ("content", "options", "message"),
    [
        (b"{\n", {"format": "json"}, "the line of a that ends at position 2 cannot be read"),
        (b'{"a": 1}\n', {"format": "json", "key": "id"}, "KeyError"),
        (b"a,b\n1\n", {"format": "csv"}, "1 values, but the header has 2 names"),
        (b"\xff\n", {}, "not UTF-8"),
    ],
)
def test_wrong_lines_are_errors(tmp_path: Path, content: bytes, options: dict[str, Any], message: str) -> None:
    (tmp_path / "a").write_bytes(content)
    source = opened(tmp_path, **options)
    with pytest.raises(ConnectError, match=message):
        source.poll(10, 0)
    source.close()
    with pytest.raises(ValueError, match="format is 'xml'"):
        FileSource(tmp_path, "t", format="xml")
