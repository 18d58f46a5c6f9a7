"""One consumed record, and its forms: kcat's format strings, and a JSON object that `odradek produce` reads again."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

_ESCAPES: Final = {"n": "\n", "t": "\t", "r": "\r", "0": "\0", "\\": "\\"}
_TOKEN: Final = re.compile(rb"%(.)|\\x([0-9a-fA-F]{2})|\\(.)", re.DOTALL)


class Decoded(NamedTuple):
    """A key or value that has a schema in a registry, as JSON has it; bytes only where the schema is of bytes."""

    schema_id: int
    value: Any
    schema: str = ""
    """The format and the name of the type: `Avro shop.Order`."""
    size: int = 0
    """Of the encoded form, in bytes."""

    def text(self) -> bytes:
        """A text or bytes as they are, anything else as JSON."""
        if isinstance(self.value, bytes):
            return self.value
        text = self.value if isinstance(self.value, str) else json.dumps(self.value, ensure_ascii=False)
        return text.encode()


class ConsumedRecord(NamedTuple):
    """A record. The timestamp is in milliseconds, -1 without one.

    Where `decoded_key` or `decoded_value` is given, `key` or `value` is its text. `failures` are the parts, `key` or
    `value`, that have the id of a schema and could not be decoded, each with the reason.
    """

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    decoded_key: Decoded | None = None
    decoded_value: Decoded | None = None
    failures: tuple[tuple[str, str], ...] = ()


class FormatError(ValueError):
    """A format string with an unknown token."""


def _size(data: bytes | None) -> bytes:
    return b"-1" if data is None else str(len(data)).encode()


def _headers_text(record: ConsumedRecord) -> bytes:
    return b",".join(name.encode() + b"=" + (b"NULL" if value is None else value) for name, value in record.headers)


TOKENS: Final[Mapping[bytes, Callable[[ConsumedRecord], bytes]]] = {
    b"s": lambda record: record.value or b"",
    b"S": lambda record: _size(record.value),
    b"R": lambda record: (-1 if record.value is None else len(record.value)).to_bytes(4, "big", signed=True),
    b"k": lambda record: record.key or b"",
    b"K": lambda record: _size(record.key),
    b"T": lambda record: str(record.timestamp).encode(),
    b"h": _headers_text,
    b"t": lambda record: record.topic.encode(),
    b"p": lambda record: str(record.partition).encode(),
    b"o": lambda record: str(record.offset).encode(),
    b"%": lambda record: b"%",
}
"""The tokens of kcat's -f after the percent sign."""


def formatter(text: str) -> Callable[[ConsumedRecord], bytes]:
    """A function that writes a record in a format of kcat's -f: `%t %p %o: %s\\n`. Raises FormatError."""
    parts: list[bytes | Callable[[ConsumedRecord], bytes]] = []
    source, end = text.encode(), 0
    for token in _TOKEN.finditer(source):
        parts.append(source[end : token.start()])
        end = token.end()
        if token[1] is not None:
            if token[1] not in TOKENS:
                allowed = " ".join("%" + each.decode() for each in TOKENS)
                raise FormatError(f"%{token[1].decode(errors='replace')} is not a token; allowed: {allowed}")
            parts.append(TOKENS[token[1]])
        elif token[2] is not None:
            parts.append(bytes([int(token[2], 16)]))
        else:
            letter = token[3].decode(errors="replace")
            if letter not in _ESCAPES:
                raise FormatError(f"\\{letter} is not an escape; allowed: \\n \\t \\r \\0 \\\\ \\xNN")
            parts.append(_ESCAPES[letter].encode())
    parts.append(source[end:])
    return lambda record: b"".join(part if isinstance(part, bytes) else part(record) for part in parts)


def as_json(record: ConsumedRecord) -> dict[str, Any]:
    """The record as an object: texts as they are, other bytes as {"base64": …}, decoded keys and values as JSON, with
    the id of their schema.
    """
    found = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp if record.timestamp >= 0 else None,
        "key": _part(record.key, record.decoded_key),
        "value": _part(record.value, record.decoded_value),
        "headers": [{"name": name, "value": _text(value)} for name, value in record.headers],
    }
    if record.decoded_key is not None:
        found["key_schema_id"] = record.decoded_key.schema_id
    if record.decoded_value is not None:
        found["value_schema_id"] = record.decoded_value.schema_id
    return found


def json_line(record: ConsumedRecord) -> bytes:
    """The record as one line of JSON."""
    return json.dumps(as_json(record), ensure_ascii=False).encode() + b"\n"


def json_value(record: ConsumedRecord) -> Any:
    """The value as JSON; the text where it is none, and None for a tombstone."""
    if record.value is None:
        return None
    if record.decoded_value is not None:
        return _part(record.value, record.decoded_value)
    try:
        return json.loads(record.value)
    except ValueError:
        return _text(record.value)


def _part(data: bytes | None, decoded: Decoded | None) -> Any:
    return _text(data) if decoded is None or isinstance(decoded.value, bytes) else decoded.value


def _text(data: bytes | None) -> Any:
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}
