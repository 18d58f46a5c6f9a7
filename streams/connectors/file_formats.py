"""Formats of the files and objects that a sink writes: JSON lines and Parquet.

Each file has records of one partition, with their topic, partition, offset, timestamp and headers. `row` encodes one
record, so that a record that cannot be encoded is found before it is among others.
"""

from __future__ import annotations

import base64
import io
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from odradek.streams.connectors.interface import SinkRecord
from odradek.streams.extras import extra_module


class FileFormat(ABC):
    """Encodes records as the content of a file."""

    suffix: str
    """The end of a file's name, with its dot."""

    @abstractmethod
    def row(self, record: SinkRecord) -> Any:
        """One record, encoded. Any exception means that the format cannot hold it."""

    @abstractmethod
    def content(self, rows: Sequence[Any]) -> bytes:
        """The content of a file with these rows; at least one."""

    @abstractmethod
    def last_offset(self, content: bytes) -> int:
        """The offset of the last record of a file. Raises ValueError."""


class JsonLinesFormat(FileFormat):
    """One JSON object a line. Bytes that are UTF-8 are texts; others are base64 in the field with the suffix _base64.

    {"topic": "orders", "partition": 0, "offset": 7, "timestamp": 1700000000000, "key": "a", "value": {"price": 1}}
    """

    suffix = ".jsonl"

    def row(self, record: SinkRecord) -> bytes:
        """See FileFormat."""
        fields: dict[str, Any] = {
            "topic": record.topic,
            "partition": record.partition,
            "offset": record.offset,
            "timestamp": record.timestamp,
            **_field("key", record.key),
            **_field("value", record.value),
        }
        if record.headers:
            fields["headers"] = [{"name": name, **_field("value", value)} for name, value in record.headers]
        return json.dumps(fields, ensure_ascii=False).encode() + b"\n"

    def content(self, rows: Sequence[Any]) -> bytes:
        """See FileFormat."""
        return b"".join(rows)

    def last_offset(self, content: bytes) -> int:
        """See FileFormat."""
        if not content.endswith(b"\n"):
            raise ValueError("the last line has no end")
        last = json.loads(content[content.rfind(b"\n", 0, -1) + 1 :])
        return int(last["offset"])


class ParquetFormat(FileFormat):
    """Columns topic, partition, offset, timestamp (ms, UTC), key, value and headers; keys and values are bytes. What is
    neither text nor bytes is JSON. Raises MissingExtraError without the extra `arrow`.
    """

    suffix = ".parquet"

    def __init__(self, compression: str = "zstd") -> None:
        """`compression` is one of Parquet's codecs."""
        self._arrow = extra_module("pyarrow", "arrow", "the format Parquet")
        self._parquet = extra_module("pyarrow.parquet", "arrow", "the format Parquet")
        self._compression = compression
        arrow = self._arrow
        header = arrow.struct([("name", arrow.string()), ("value", arrow.binary())])
        self._schema = arrow.schema(
            [
                ("topic", arrow.string()),
                ("partition", arrow.int32()),
                ("offset", arrow.int64()),
                ("timestamp", arrow.timestamp("ms", tz="UTC")),
                ("key", arrow.binary()),
                ("value", arrow.binary()),
                ("headers", arrow.list_(header)),
            ]
        )

    def row(self, record: SinkRecord) -> dict[str, Any]:
        """See FileFormat."""
        return {
            "topic": record.topic,
            "partition": record.partition,
            "offset": record.offset,
            "timestamp": record.timestamp,
            "key": _bytes(record.key),
            "value": _bytes(record.value),
            "headers": [{"name": name, "value": value} for name, value in record.headers or []],
        }

    def content(self, rows: Sequence[Any]) -> bytes:
        """See FileFormat."""
        table = self._arrow.Table.from_pylist(list(rows), schema=self._schema)
        file = io.BytesIO()
        self._parquet.write_table(table, file, compression=self._compression)
        return file.getvalue()

    def last_offset(self, content: bytes) -> int:
        """See FileFormat."""
        column = self._parquet.read_table(io.BytesIO(content), columns=["offset"])["offset"]
        return int(column[-1].as_py())


FORMATS: Final[Mapping[str, Callable[[], FileFormat]]] = {"jsonl": JsonLinesFormat, "parquet": ParquetFormat}


def file_format(given: str | FileFormat) -> FileFormat:
    """The format of a name: jsonl or parquet. Raises ValueError, MissingExtraError."""
    if isinstance(given, FileFormat):
        return given
    if given not in FORMATS:
        raise ValueError(f"format is {given!r}; expected one of {', '.join(FORMATS)}")
    return FORMATS[given]()


def _field(name: str, value: Any) -> dict[str, Any]:
    if isinstance(value, bytes):
        try:
            return {name: value.decode()}
        except UnicodeDecodeError:
            return {f"{name}_base64": base64.b64encode(value).decode()}
    return {name: value}


def _bytes(value: Any) -> bytes | None:
    if value is None or isinstance(value, bytes):
        return value
    return value.encode() if isinstance(value, str) else json.dumps(value, ensure_ascii=False).encode()
