"""Requests with one thing wrong in their bytes, made from the definitions: every length, count and null of every field.

A request with something in each of its fields is written byte by byte, and for each field again with that field
malformed: a length or a count that is negative, too large or absurd, a null where none is allowed, text that is no
UTF-8, or an end in the middle of it. Numbers and names are such that a request that a broker accepts all the same does
no harm.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Final

from odradek.protocol.grammar import NUMBERS, Field, MessageSpec, StructSpec
from odradek.protocol.primitives import uvarint
from tests.comparison.requests import definition

SAMPLES: Final[dict[str, bytes]] = {"string": b"sample", "bytes": b"\0\1", "records": b"\0\0\0"}
NAMES: Final = {
    # A topic that exists, because old versions would create one.
    ("MetadataRequest", -1): b"writes",
    # See the intended differences of version 0.
    ("OffsetCommitRequest", 0): b"late-0",
}
"""Names in place of the sample, by message and version (-1 for any)."""
SAFE_IDS: Final = {"BrokerId": 77, "ControllerId": 77, "GenerationId": 1}
"""Ids that no broker or member has."""

NULL, MINUS_TWO, LOWEST, BEYOND, ABSURD, NOT_UTF8, CUT = (
    *("null", "length -2", "the lowest length", "a length beyond the end", "an absurd length"),
    *("not UTF-8", "the end in the middle"),
)
DEFECTS: Final = (NULL, MINUS_TWO, LOWEST, BEYOND, ABSURD, NOT_UTF8, CUT)


class _End(Exception):  # noqa: N818 - no error: the request is as long as it is meant to be
    """The request ends here."""


class Writer:
    """Writes one request, with at most one defect."""

    def __init__(self, message: MessageSpec, version: int, spoiled: str | None = None, defect: str = "") -> None:
        self._message = message
        self._version = version
        self._flexible = version in message.flexible
        self._spoiled = spoiled
        self._defect = defect
        self.paths: list[str] = []
        self.out = bytearray()

    def write(self) -> bytes:
        """The body of the request."""
        with suppress(_End):
            self._struct(self._message.root, "")
        return bytes(self.out)

    def _struct(self, fields: StructSpec, path: str) -> None:
        tagged = []
        for field in fields.fields:
            if self._version not in field.versions:
                continue
            if field.tag is not None and self._flexible:
                tagged.append(field)
                continue
            self._field(field, f"{path}{field.name}")
        if self._flexible:
            self._tags(tagged, path)

    def _tags(self, fields: list[Field], path: str) -> None:
        self.out += uvarint(len(fields) + 1)
        for field in sorted(fields, key=lambda each: each.tag or 0):
            kept, self.out = self.out, bytearray()
            try:
                self._field(field, f"{path}{field.name}")
            finally:
                kept += uvarint(field.tag or 0) + uvarint(len(self.out)) + self.out
                self.out = kept
        self.out += uvarint(9999) + uvarint(2) + b"??"  # an unknown field

    def _field(self, field: Field, path: str) -> None:
        self.paths.append(path)
        spoiled = self._spoiled == path
        if field.is_array:
            self._length(field, 1, 4, spoiled)
            self._value(field, f"{path}[].", spoiled)
        else:
            self._value(field, f"{path}.", spoiled)

    def _value(self, field: Field, path: str, spoiled: bool) -> None:
        if field.is_struct:
            self._struct(self._message.structs[field.type], path)
        elif field.type in NUMBERS:
            number: Any = SAFE_IDS.get(field.name, 0)
            if field.type == "bool":
                number = False
            elif field.type == "uuid":
                number = bytes(range(16))
            data = struct.pack(">" + NUMBERS[field.type], number)
            if spoiled and not field.is_array and self._defect == CUT:
                self.out += data[: len(data) // 2]
                raise _End
            self.out += data
        else:
            data = SAMPLES[field.type]
            if field.type == "string":
                data = NAMES.get((self._message.name, self._version), NAMES.get((self._message.name, -1), data))
            spoiled = spoiled and not field.is_array
            if spoiled and self._defect == NOT_UTF8 and field.type == "string":
                data = b"\xff\xfe\xff\xfe\xff\xfe"
            self._length(field, len(data), 2 if field.type == "string" else 4, spoiled)
            if spoiled and self._defect == CUT:
                self.out += data[:1]
                raise _End
            self.out += data

    def _length(self, field: Field, length: int, size: int, spoiled: bool) -> None:
        if spoiled:
            wide = size == 4
            length = {
                NULL: -1,
                MINUS_TWO: -2,
                LOWEST: -(2**31) if wide else -(2**15),
                BEYOND: 30_000,
                ABSURD: 2**31 - 2 if wide else 2**15 - 1,
            }.get(self._defect, length)
        if not self._flexible or field.inflexible:
            self.out += struct.pack(">i" if size == 4 else ">h", length)
        else:
            self.out += _uvarint(length + 1)


def _uvarint(value: int) -> bytes:
    """A varint of 32 bits, also of a number that has a sign."""
    value &= 0xFFFFFFFF
    out = bytearray()
    while value > 127:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def sound(api: str, version: int) -> bytes:
    """A request with a value in every field, unknown tagged fields included."""
    return Writer(definition(f"{api}Request"), version).write()


def shapes(api: str, low: int, high: int) -> list[int]:
    """The versions to test: the oldest, the newest, and those on both sides of the flexible encoding."""
    flexible = definition(f"{api}Request").flexible
    return [each for each in range(low, high + 1) if each in (low, high, flexible.first - 1, flexible.first)]


def spoiled(api: str, version: int) -> Iterator[tuple[str, bytes]]:
    """Every request with one defect, as (the defect, body)."""
    message = definition(f"{api}Request")
    whole = Writer(message, version)
    body = whole.write()
    for path in whole.paths:
        for defect in DEFECTS:
            made = Writer(message, version, path, defect).write()
            if made != body:
                yield f"{path}: {defect}", made
    for missing in (1, 2, len(body) // 2):
        if 0 < missing <= len(body):
            yield f"{missing} bytes are missing", body[:-missing]
    yield "bytes behind the end", body + b"more"
    if body:
        yield "no body", b""
