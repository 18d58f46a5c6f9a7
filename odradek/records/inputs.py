"""Records from lines, JSON lines and CSV, for `odradek produce`."""

from __future__ import annotations

import base64
import csv
import json
from collections.abc import Iterable, Iterator, Sequence
from typing import IO, Any, NamedTuple


class InputRecord(NamedTuple):
    """A record to write; None leaves a part to the options of the command, or to the broker."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    partition: int | None = None
    timestamp: int | None = None


class InputError(ValueError):
    """A line that is no record; the message has its number."""


def from_lines(file: IO[bytes], key_separator: str | None) -> Iterator[InputRecord]:
    """A record for each line. With a separator, what is before it is the key. Raises InputError."""
    separator = None if key_separator is None else key_separator.encode()
    for number, line in enumerate(file, 1):
        text = line.rstrip(b"\n").removesuffix(b"\r")
        if separator is None:
            yield InputRecord(None, text)
            continue
        key, found, value = text.partition(separator)
        if not found:
            raise InputError(f"line {number} has no key separator {key_separator!r}")
        yield InputRecord(key, value)


def from_json_lines(file: IO[bytes]) -> Iterator[InputRecord]:
    """A record for each line, an object with `value`, `key`, `headers`, `partition`, `timestamp`: what `odradek consume
    --output json` prints. A value or key that is no text is written as JSON. Raises InputError.
    """
    for number, line in enumerate(file, 1):
        if not line.strip():
            continue
        try:
            document = json.loads(line)
        except ValueError as error:
            raise InputError(f"line {number} is not JSON: {error}") from error
        if not isinstance(document, dict) or "value" not in document:
            raise InputError(f"line {number} is not an object with `value`")
        yield InputRecord(
            _bytes(document.get("key")),
            _bytes(document["value"]),
            tuple(_headers(document.get("headers"), number)),
            document.get("partition"),
            document.get("timestamp"),
        )


def from_csv(file: Iterable[str], key_column: str | None) -> Iterator[InputRecord]:
    """A record for each row, its value an object of the columns that the first row names. Raises InputError."""
    rows = csv.DictReader(file)
    if key_column is not None and key_column not in (rows.fieldnames or ()):
        raise InputError(f"there is no column {key_column!r}; the first line has {', '.join(rows.fieldnames or ())}")
    for row in rows:
        key = None if key_column is None else str(row[key_column]).encode()
        yield InputRecord(key, json.dumps(row, ensure_ascii=False).encode())


def _headers(headers: Any, number: int) -> Iterator[tuple[str, bytes | None]]:
    pairs: Sequence[Any] = list(headers.items()) if isinstance(headers, dict) else headers or ()
    for each in pairs:
        name, value = (each.get("name"), each.get("value")) if isinstance(each, dict) else each
        if not isinstance(name, str):
            raise InputError(f"line {number} has a header without a name")
        yield name, _bytes(value)


def _bytes(value: Any) -> bytes | None:
    if value is None:
        return None
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, dict) and value.keys() == {"base64"}:
        return base64.b64decode(value["base64"])
    return json.dumps(value, ensure_ascii=False).encode()
