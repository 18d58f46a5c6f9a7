"""Bounds for Avro schemas, and for data of recursive ones: fastavro's C code has none.

A registry and a topic are data of others. Without bounds a few bytes make millions of values (an array of nulls, a
record of records without fields), and deep nesting ends the process: C functions that call themselves overflow the
stack. What no bound of a schema can exclude, a value of a recursive type that is nested too deeply, is found by a walk
over the data before fastavro reads them.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from typing import Any, Final

from odradek.records.schemas.errors import MisfitError, SchemaError

MOST_CHARACTERS: Final = 1024 * 1024
"""Of a schema with its references."""
MOST_LEVELS: Final = 300
"""Of JSON; a record in a record takes three."""
MOST_DEPTH: Final = 100
"""Of values in values."""
VALUES_PER_BYTE: Final = 64
"""Values that a record makes of each byte that it takes at least."""
_PASSES: Final = 100
_SIZES: Final[Mapping[str, int]] = {"null": 0, "float": 4, "double": 8}
"""The least bytes of types; every other one takes at least one."""
_RECORDS: Final = ("record", "error")
_TOO_DEEP: Final = f"it is nested deeper than {MOST_DEPTH} levels"


def parsed_json(texts: Mapping[str, str]) -> dict[str, Any]:
    """The schemas of texts, by name. Raises SchemaError where they are too large, ValueError where one is no JSON."""
    size = sum(map(len, texts.values()))
    if size > MOST_CHARACTERS:
        raise SchemaError(f"the schema and its references have {size:,} characters; allowed: {MOST_CHARACTERS:,}")
    found = {}
    for name, text in texts.items():
        try:
            found[name] = json.loads(text)
        except RecursionError:
            raise SchemaError(_levels(name)) from None
        if _is_deep(found[name]):
            raise SchemaError(_levels(name))
    return found


def _levels(name: str) -> str:
    return f"the schema {name} has more than {MOST_LEVELS} levels of JSON"


def _is_deep(value: Any) -> bool:
    level = [value]
    for _ in range(MOST_LEVELS):
        level = [
            inner
            for each in level
            if isinstance(each, (dict, list))
            for inner in (each.values() if isinstance(each, dict) else each)
        ]
        if not level:
            return False
    return True


def named_types(schema: Any) -> dict[str, Any]:
    """The named types of a schema of fastavro, each by its full name; they are defined where they are first used."""
    found: dict[str, Any] = {}
    left = [schema]
    while left:
        each = left.pop()
        if isinstance(each, list):
            left += each
        elif isinstance(each, dict):
            if "name" in each:
                found.setdefault(each["name"], each)
            left += [each[part] for part in ("items", "values") if part in each]
            left += [field["type"] for field in each.get("fields", ())]
            left += [each["type"]] if isinstance(each["type"], (dict, list)) else []
    return found


class SchemaBounds:
    """What a schema of fastavro allows its data."""

    def __init__(self, schema: Any, names: Mapping[str, Any]) -> None:
        """`names` are its named types. Raises SchemaError for a schema of which a few bytes cost too much."""
        self._names = names
        self._least = self._least_bytes()
        self._counted: dict[str, tuple[int, int]] = {}
        self._open: set[str] = set()
        self.is_recursive = False
        """Whether a type contains itself, so that data can be nested to any depth."""
        if math.isinf(self._bytes(schema)):
            raise SchemaError("each value of a record contains another one of it, without an end")
        self._count(schema, 0)

    def check(self, schema: Any, data: bytes) -> None:
        """Raises MisfitError for data of a recursive schema that are nested too deeply, or end too early."""
        _Walk(self._names, data).skip(schema, 0, 0)

    def _definition(self, schema: Any) -> Any:
        """The type of a name, and the named type that stands at its definition."""
        return self._names.get(schema, schema) if isinstance(schema, str) else schema

    def _least_bytes(self) -> dict[str, float]:
        records = {name: each for name, each in self._names.items() if each["type"] in _RECORDS}
        self._least = dict.fromkeys(records, math.inf)
        for _ in range(_PASSES):
            before = dict(self._least)
            for name in reversed(records):  # what a record contains is often defined after it
                self._least[name] = sum(self._bytes(field["type"]) for field in records[name]["fields"])
            if self._least == before:
                break
        return self._least

    def _bytes(self, schema: Any) -> float:
        """The least bytes of a value."""
        if isinstance(schema, list):
            return 1 + min(map(self._bytes, schema), default=0)
        schema = self._definition(schema)
        if isinstance(schema, str):
            return _SIZES.get(schema, 1)
        kind = schema["type"]
        if kind in _RECORDS:
            return self._least[schema["name"]]
        if kind == "fixed":
            return int(schema["size"])
        return self._bytes(kind) if isinstance(kind, (dict, list)) else _SIZES.get(kind, 1)

    def _count(self, schema: Any, depth: int) -> tuple[int, int]:
        """The values that a value has without those of arrays and maps, and its depth. Raises SchemaError."""
        if depth > MOST_DEPTH:
            raise SchemaError(_TOO_DEEP)
        if isinstance(schema, list):
            return self._of_parts(schema, depth)
        schema = self._definition(schema)
        if isinstance(schema, str):
            return 1, 1
        kind = schema["type"]
        if kind in _RECORDS:
            return self._of_record(schema, depth)
        if kind in ("array", "map"):
            items = schema["items" if kind == "array" else "values"]
            _, below = self._count(items, depth + 1)
            if kind == "array" and not self._bytes(items):
                raise SchemaError("a few bytes name any number of items of an array whose items take no bytes")
            return 1, _checked(below + 1)
        return self._count(kind, depth + 1) if isinstance(kind, (dict, list)) else (1, 1)

    def _of_record(self, schema: Any, depth: int) -> tuple[int, int]:
        name = schema["name"]
        if name in self._open:
            self.is_recursive = True
            return 1, 1
        if name not in self._counted:
            self._open.add(name)
            values, below = self._of_parts((field["type"] for field in schema["fields"]), depth)
            self._open.discard(name)
            allowed = VALUES_PER_BYTE * max(1, self._least[name])
            if values > allowed:
                raise SchemaError(f"a record {name} of {self._least[name]:g} bytes has more than {allowed:g} values")
            self._counted[name] = values, below
        return self._counted[name]

    def _of_parts(self, schemas: Iterable[Any], depth: int) -> tuple[int, int]:
        counted = [self._count(each, depth + 1) for each in schemas]
        return 1 + sum(values for values, _ in counted), _checked(1 + max((below for _, below in counted), default=0))


def _checked(depth: int) -> int:
    if depth > MOST_DEPTH:
        raise SchemaError(_TOO_DEEP)
    return depth


class _Walk:
    """A walk over the binary form of a value, which makes none of it."""

    def __init__(self, names: Mapping[str, Any], data: bytes) -> None:
        self._names = names
        self._data = data

    def skip(self, schema: Any, at: int, depth: int) -> int:
        """The position after a value that begins at one. Raises MisfitError."""
        if depth > MOST_DEPTH:
            raise MisfitError("the data", _TOO_DEEP)
        if isinstance(schema, list):
            branch, at = self._number(at)
            if not 0 <= branch < len(schema):
                raise MisfitError("the data", f"they name branch {branch} of a union of {len(schema)}")
            return self.skip(schema[branch], at, depth + 1)
        if isinstance(schema, str):
            schema = self._names.get(schema, {"type": schema})
        kind = schema["type"]
        if kind in _RECORDS:
            for field in schema["fields"]:
                at = self.skip(field["type"], at, depth + 1)
            return at
        if kind in ("array", "map"):
            return self._skip_blocks(schema, at, depth)
        return self.skip(kind, at, depth + 1) if isinstance(kind, (dict, list)) else self._skip_plain(schema, at)

    def _skip_blocks(self, schema: Any, at: int, depth: int) -> int:
        while True:
            count, at = self._number(at)
            if not count:
                return at
            if count < 0:  # then the bytes of the block follow
                _, at = self._number(at)
            for _ in range(abs(count)):
                if schema["type"] == "map":
                    at = self._skip_bytes(at)
                at = self.skip(schema["items" if schema["type"] == "array" else "values"], at, depth + 1)

    def _skip_plain(self, schema: Any, at: int) -> int:
        kind = schema["type"]
        if kind in ("bytes", "string"):
            return self._skip_bytes(at)
        if kind in ("int", "long", "enum"):
            return self._number(at)[1]
        return self._checked(at + (int(schema["size"]) if kind == "fixed" else _SIZES.get(kind, 1)))

    def _skip_bytes(self, at: int) -> int:
        size, at = self._number(at)
        if size < 0:
            raise MisfitError("the data", f"they have a text of {size} bytes")
        return self._checked(at + size)

    def _number(self, at: int) -> tuple[int, int]:
        """A number with a zigzag, and the position after it."""
        value = shift = 0
        while True:
            byte = self._data[self._checked(at + 1) - 1]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return (value >> 1) ^ -(value & 1), at
            if shift > 63:
                raise MisfitError("the data", "they have a number of more than ten bytes")

    def _checked(self, at: int) -> int:
        if at > len(self._data):
            raise MisfitError("the data", "they end too early")
        return at
