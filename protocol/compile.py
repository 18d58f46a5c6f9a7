"""Compiles specialized Python source that a person can read.

`decoding` and `encoding` write, for one message in one version, the function that a careful programmer would write by
hand: at run time no loop over field descriptions is left, neighboring fields of a fixed size are one `struct` call,
and structures inside structures are plain nested loops. The source is registered with `linecache`, so a debugger steps
through it and a traceback shows its lines.

A compiled function does not track its position. When it fails, the failed line determines the field
(`FunctionSource.compile` returns that table), and the function's local variables determine the element and the byte.
"""

from __future__ import annotations

import linecache
import struct
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from odradek.protocol.grammar import NUMBERS, Field, MessageSpec, StructSpec

Namespace = dict[str, Any]


class Spot(NamedTuple):
    """A field on a line of compiled source.

    `path` may hold `{i1}` and the like, to be filled with the local variables of the function. `format` is the
    `struct` format of the field, or empty. `value` is the local object and the attribute that a writer reads.
    """

    path: str
    format: str = ""
    value: tuple[str, str] | None = None


class FunctionSource:
    """The lines of a function that is being written, with the fields of each line."""

    def __init__(self, *first: str) -> None:
        self._lines: list[str] = list(first)
        self._spots: dict[int, tuple[Spot, ...]] = {}
        self._indent = 0

    def line(self, text: str, *spots: Spot) -> None:
        """Add a line at the current indentation."""
        self._lines.append("    " * self._indent + text)
        if spots:
            self._spots[len(self._lines)] = spots

    def indent(self, levels: int = 1) -> None:
        """Indent the following lines."""
        self._indent += levels

    def dedent(self, levels: int = 1) -> None:
        """Undo `indent`."""
        self._indent -= levels

    def compile(self, function: str, filename: str, namespace: Namespace) -> Callable[..., Any]:
        """Compile the lines and return the function of that name. `SPOTS` in its globals is the table of fields."""
        namespace["SPOTS"] = self._spots
        return compile_function("\n".join(self._lines) + "\n", function, filename, namespace)


def compile_function(text: str, function: str, filename: str, namespace: Namespace) -> Callable[..., Any]:
    """Compile `text` under `filename`, make it visible to debuggers, and return the function that it defines."""
    exec(compile(text, filename, "exec"), namespace)
    linecache.cache[filename] = (len(text), None, text.splitlines(keepends=True), filename)
    compiled: Callable[..., Any] = namespace[function]
    return compiled


class Shape:
    """The layout of a message in one version."""

    def __init__(self, message: MessageSpec, version: int) -> None:
        self.message = message
        self.version = version
        self.flexible = version in message.flexible

    def present(self, struct_: StructSpec) -> list[Field]:
        """The untagged fields of a structure in this version, in the order of the wire."""
        return [field for field in struct_.fields if self.has(field) and not self.is_tagged(field)]

    def tagged(self, struct_: StructSpec) -> list[Field]:
        """The tagged fields of a structure in this version, lowest tag first."""
        fields = [field for field in struct_.fields if self.has(field) and self.is_tagged(field)]
        return sorted(fields, key=lambda field: field.tag or 0)

    def absent(self, struct_: StructSpec) -> list[Field]:
        """The fields of a structure that this version does not carry."""
        return [field for field in struct_.fields if not self.has(field)]

    def has(self, field: Field) -> bool:
        """Whether this version carries the field."""
        return self.version in field.versions

    def is_tagged(self, field: Field) -> bool:
        """Whether the field is written among the tagged fields."""
        return field.tag is not None

    def is_compact(self, field: Field) -> bool:
        """Whether the length of the field is a varint."""
        return self.flexible and not field.inflexible

    def is_nullable(self, field: Field) -> bool:
        """Whether null is a value of the field in this version."""
        return self.version in field.nullable

    def holds_records(self) -> bool:
        """Whether a field of the message has record batches."""
        structs = (self.message.root, *self.message.structs.values())
        return any(field.type == "records" for struct_ in structs for field in struct_.fields)

    def smallest(self, field: Field) -> int:
        """The fewest bytes that an element of the array `field` takes, at least 1; a check of the count needs it."""
        if field.is_struct:
            return max(1, self._smallest_struct(self.message.structs[field.type]))
        return self._smallest_value(field)

    def _smallest_struct(self, struct_: StructSpec) -> int:
        return self.flexible + sum(self._smallest_field(field) for field in self.present(struct_))

    def _smallest_field(self, field: Field) -> int:
        if field.is_array:
            return 1 if self.is_compact(field) else 4
        if field.is_struct:
            return 1 if self.is_nullable(field) else self._smallest_struct(self.message.structs[field.type])
        return self._smallest_value(field)

    def _smallest_value(self, field: Field) -> int:
        if field.type in NUMBERS:
            return struct.calcsize(">" + NUMBERS[field.type])
        if self.is_compact(field):
            return 1
        return 2 if field.type == "string" else 4


_STRUCTS: Final[dict[str, struct.Struct]] = {}


def struct_of(format_: str) -> struct.Struct:
    """The big-endian `struct.Struct` of a format, one for all messages."""
    if format_ not in _STRUCTS:
        _STRUCTS[format_] = struct.Struct(">" + format_)
    return _STRUCTS[format_]


def literal(field: Field) -> str:
    """The source of the default of a field: a literal, or the expression that makes a new object."""
    if field.is_array:
        return "None" if field.default_is_null else "[]"
    if field.is_struct:
        return "None" if field.default_is_null or field.absent_is_none else f"{field.type}()"
    return repr(field.default)
