"""What sinks of files and of objects have stored: the offsets of each partition, in the order of the files."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from pathlib import Path

import pyarrow.parquet

from odradek.protocol.topic_partition import TopicPartition
from odradek.streams.connectors.file_formats import FileFormat, JsonLinesFormat


def offsets_in_folder(folder: Path, format: FileFormat | None = None) -> dict[TopicPartition, list[int]]:
    """Those of a FileSink's files; the test fails for a file that is none of them."""
    # A process writes a temporary file, and one that was killed leaves it, until the partition is opened again.
    files = [path for path in folder.rglob("*") if path.is_file() and not path.name.startswith(".tmp-")]
    contents = {str(path.relative_to(folder)): path.read_bytes() for path in files}
    return offsets_of_objects(contents, "", format)


def offsets_of_objects(
    contents: Mapping[str, bytes], prefix: str, format: FileFormat | None = None
) -> dict[TopicPartition, list[int]]:
    """Those of objects by their names."""
    found: dict[TopicPartition, list[int]] = {}
    used = format or JsonLinesFormat()
    for name in sorted(contents):
        topic, _, file = name.removeprefix(prefix).split("/")
        _, partition, first = file.removesuffix(used.suffix).split("+")
        offsets = _offsets(contents[name], used)
        assert offsets[0] == int(first), name
        assert offsets[-1] == used.last_offset(contents[name]), name
        found.setdefault((topic, int(partition)), []).extend(offsets)
    return found


def _offsets(content: bytes, format: FileFormat) -> list[int]:
    if isinstance(format, JsonLinesFormat):
        return [json.loads(line)["offset"] for line in content.splitlines()]
    table = pyarrow.parquet.read_table(io.BytesIO(content), columns=["offset"])
    return [int(each) for each in table["offset"].to_pylist()]
