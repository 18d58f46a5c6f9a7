"""Keys, values and headers as text for a reader: JSON with indentation, text, or the bytes in hexadecimal."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, replace
from typing import Final

from odradek.records.consumed import ConsumedRecord

SHORT: Final = 400
"""Characters of a value in a list."""
LONGEST: Final = 1024 * 1024
"""Characters of a value on its own page; the download has all of it."""
_HEX_BYTES: Final = 4096
_ROW: Final = 16


@dataclass(frozen=True, slots=True)
class ContentView:
    """A key or a value. `kind` is null, empty, JSON, text or binary."""

    kind: str
    text: str
    size: int
    """In bytes, as the record has it."""
    is_cut: bool = False
    schema: str = ""
    """The schema that decoded it: `Avro shop.Order, schema id 5`."""
    failure: str = ""
    """Why a schema did not decode it."""


@dataclass(frozen=True, slots=True)
class RecordView:
    """A record as text."""

    record: ConsumedRecord
    key: ContentView
    value: ContentView
    headers: tuple[tuple[str, ContentView], ...]
    time: str
    """In UTC, as 2026-01-31 12:00:00.000Z; empty without a timestamp."""


def record_view(record: ConsumedRecord, longest: int = SHORT, *, indented: bool = False) -> RecordView:
    """The record as text of at most `longest` characters for each part; JSON in one line, or indented."""
    return RecordView(
        record,
        _part("key", record, longest, indented),
        _part("value", record, longest, indented),
        tuple((name, content_view(value, longest, indented=indented)) for name, value in record.headers),
        time_text(record.timestamp),
    )


def _part(part: str, record: ConsumedRecord, longest: int, indented: bool) -> ContentView:
    data, decoded = (record.key, record.decoded_key) if part == "key" else (record.value, record.decoded_value)
    view = content_view(data, longest, indented=indented)
    if decoded is not None:
        schema = f"{decoded.schema}, schema id {decoded.schema_id}"
        return replace(view, size=decoded.size, schema=schema)
    return replace(view, failure=dict(record.failures).get(part, ""))


def content_view(data: bytes | None, longest: int = SHORT, *, indented: bool = True) -> ContentView:
    """Bytes as text of at most `longest` characters."""
    if data is None:
        return ContentView("null", "", 0)
    if not data:
        return ContentView("empty", "", 0)
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return _binary(data, longest)
    if text[0] in "{[" and len(data) <= LONGEST:
        try:
            shown = json.dumps(json.loads(text), indent=2 if indented else None, ensure_ascii=False)
        except (ValueError, RecursionError):
            pass
        else:
            return ContentView("JSON", shown[:longest], len(data), len(shown) > longest)
    if any(not each.isprintable() and each not in "\n\r\t" for each in text[:longest]):
        return _binary(data, longest)
    return ContentView("text", text[:longest], len(data), len(text) > longest)


def _binary(data: bytes, longest: int) -> ContentView:
    count = min(len(data), _HEX_BYTES, max(_ROW, longest // 4))
    return ContentView("binary", _hex(data[:count]), len(data), count < len(data))


def time_text(timestamp_ms: int) -> str:
    """Milliseconds since the epoch in UTC; empty for -1 and for a time that no calendar has."""
    if timestamp_ms < 0:
        return ""
    try:
        moment = time.gmtime(timestamp_ms // 1000)
    except (OverflowError, OSError, ValueError):
        return ""
    return f"{time.strftime('%Y-%m-%d %H:%M:%S', moment)}.{timestamp_ms % 1000:03}Z"


def _hex(data: bytes) -> str:
    lines = []
    for start in range(0, len(data), _ROW):
        row = data[start : start + _ROW]
        letters = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in row)
        lines.append(f"{start:08x}  {row.hex(' '):<{3 * _ROW}} {letters}")
    return "\n".join(lines)
