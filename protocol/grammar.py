"""Parses the definition texts of messages into fields.

A definition text describes the wire format of one API, or one family of records, in every version, in a form that is
made for people. The JSON files under `common/message` in Kafka's own jars state the same facts; a test compares the
two. The language:

    # A comment runs to the end of the line.
    request ExampleRequest key 99 versions 0-7 flexible 5+
        TimeoutMs    int32                   = 60000
        GroupId      string?     2+          = null
        Topics       [Topic]?1+              ignorable
            Name     string
            Ids      [int32]     3-6
        Rack         string?     5+          tag 0
        struct Shared
            Id       uuid

- A heading opens a message: `request`, `response`, `record` (bytes that Kafka keeps in a topic or inside another
  message) or `header`; then the name, the API key where there is one, the versions, and the first version of the
  flexible encoding (KIP-482).
- A field is a name and a type, then the versions that carry it (default: all), then in any order `= DEFAULT`,
  `tag N`, `ignorable` (a value may be dropped silently where the version cannot carry it), `inflexible` (the old
  encoding even in flexible versions) and `preencoded` (an array of structures that a writer may also give as bytes:
  see `encoded`; it does not change the wire format).
- `?` after a type means that null is a value, `?1+` that it is one from version 1 on. `[type]` is an array.
- The fields of a structure stand below the first field that has its type, or below `struct NAME` when several have it.
- Four spaces to a level. Names are Kafka's; the attribute in Python is the same name in snake case.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Final, Literal, NamedTuple

OPEN_END: Final = 32767  # "3+" ends at the highest version that an int16 can name
NEVER: Final = OPEN_END + 1  # the first flexible version of messages without one
NUMBERS: Final = {
    "int8": "b",
    "int16": "h",
    "uint16": "H",
    "int32": "i",
    "uint32": "I",
    "int64": "q",
    "float64": "d",
    "bool": "?",
    "uuid": "16s",
}
"""Types of a fixed size, with their `struct` formats."""

VARIABLE: Final = frozenset({"string", "bytes", "records"})

Kind = Literal["request", "response", "record", "header"]
Default = bool | int | float | str | bytes | None


class DefinitionError(ValueError):
    """A definition text that breaks the rules of the language; names the line."""


@dataclass(frozen=True, slots=True)
class Versions:
    """A range of versions, both ends included; empty when `last` is below `first`."""

    first: int
    last: int

    def __contains__(self, version: int) -> bool:
        return self.first <= version <= self.last

    def __and__(self, other: Versions) -> Versions:
        return Versions(max(self.first, other.first), min(self.last, other.last))

    def __bool__(self) -> bool:
        return self.first <= self.last

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.first, self.last + 1))

    def __str__(self) -> str:
        if not self:
            return "none"
        if self.last == OPEN_END:
            return f"{self.first}+"
        return str(self.first) if self.first == self.last else f"{self.first}-{self.last}"

    @staticmethod
    @cache  # a few texts occur in all messages
    def parse(text: str) -> Versions:
        """Read `3`, `3+`, `3-5` or `none`. Raises ValueError."""
        if text == "none":
            return NO_VERSIONS
        if text.endswith("+"):
            return Versions(int(text[:-1]), OPEN_END)
        first, _, last = text.partition("-")
        return Versions(int(first), int(last or first))


NO_VERSIONS: Final = Versions(0, -1)
ALL_VERSIONS: Final = Versions(0, OPEN_END)


class Field(NamedTuple):
    """One field of a structure.

    `attribute` is the name in Python: Kafka's in snake case. `type` is the name of a number type, `string`, `bytes`,
    `records`, or of a structure; for an array, that of its elements. `default` is None for null and for values that are
    made anew for each object (arrays, structures).
    """

    name: str
    attribute: str
    type: str
    is_array: bool
    versions: Versions
    nullable: Versions
    default: Default
    default_is_null: bool
    tag: int | None
    ignorable: bool
    inflexible: bool
    preencoded: bool

    @property
    def is_struct(self) -> bool:
        """Whether the value (or each element) is a structure."""
        return self.type not in NUMBERS and self.type not in VARIABLE

    @property
    def absent_is_none(self) -> bool:
        """Whether None stands for an absent structure: tagged, and null is not a value of its own."""
        return self.is_struct and not self.is_array and self.tag is not None and not self.nullable


class StructSpec(NamedTuple):
    """A named group of fields, in the order of the wire."""

    name: str
    fields: tuple[Field, ...]


class MessageSpec(NamedTuple):
    """A message with the structures inside it, keyed by name. `key` is the API key, None for records and headers."""

    kind: Kind
    root: StructSpec
    key: int | None
    versions: Versions
    flexible: Versions
    structs: dict[str, StructSpec]

    @property
    def name(self) -> str:
        return self.root.name


@cache  # most names occur in many messages
def snake_case(name: str) -> str:
    """The Python name of a field: `HighWatermark` becomes `high_watermark`, `ISR` becomes `isr`."""
    name = re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", name)
    return re.sub(r"([A-Z])([A-Z][a-z])", r"\1_\2", name).lower()


HEADING: Final = re.compile(
    r"^(?P<kind>request|response|record|header) +(?P<name>\w+)(?: +key +(?P<key>\d+))?"
    r" +versions +(?P<versions>\S+)(?: +flexible +(?P<flexible>\S+))?[ \t]*(?:#.*)?$",
    re.MULTILINE,
)
FIELD: Final = re.compile(
    r"^(?P<name>\w+) +(?P<open>\[)?(?P<type>\w+)(?(open)\])(?P<nullable>\?(?:\d+(?:\+|-\d+)?)?)?"
    r"(?: +(?P<versions>\d+(?:\+|-\d+)?))?(?P<marks>(?: +(?:ignorable|inflexible|preencoded|tag +\d+|= *\S+))*)$"
)
MARK: Final = re.compile(r"ignorable|inflexible|preencoded|tag +(?P<tag>\d+)|= *(?P<default>\S+)")


def parse(text: str, source: str = "<definition>") -> dict[str, MessageSpec]:
    """Read a definition text into its messages, keyed by name. Raises DefinitionError, which names `source`."""
    messages: dict[str, MessageSpec] = {}
    block: _Block | None = None
    for number, raw in enumerate(text.splitlines(), 1):
        line = raw.partition("#")[0].rstrip()
        if not line:
            continue
        try:
            if not line.startswith(" "):
                if block is not None:
                    messages[block.name] = block.message()
                block = _Block(line)
            elif block is None:
                raise ValueError("a field before the first heading")
            else:
                block.add(line)
        except ValueError as error:
            raise DefinitionError(f"{source}, line {number}: {error}") from error
    if block is not None:
        try:
            messages[block.name] = block.message()
        except ValueError as error:
            raise DefinitionError(f"{source}: {error}") from error
    return messages


class _Open:
    """A structure whose fields are being read."""

    __slots__ = ("fields", "name")

    def __init__(self, name: str) -> None:
        self.name = name
        self.fields: list[Field] = []


class _Block:
    """One message while its lines are read."""

    def __init__(self, heading: str) -> None:
        match = HEADING.match(heading)
        if match is None:
            raise ValueError(f"not a heading: {heading!r}")
        self.name: str = match["name"]
        self._heading = match
        self._open: list[_Open] = [_Open(self.name)]  # one for each level of indentation
        self._structs: dict[str, _Open] = {self.name: self._open[0]}

    def add(self, line: str) -> None:
        """Read one line below the heading."""
        text = line.lstrip(" ")
        level, odd = divmod(len(line) - len(text), 4)
        if odd or level > len(self._open):
            raise ValueError(f"indented by {len(line) - len(text)} spaces, expected a multiple of 4 under its parent")
        if text.startswith("struct "):
            self._open = [self._open[0], self._new(text.removeprefix("struct ").strip())]
            return
        del self._open[level:]
        declared = _field(text)
        parent = self._open[-1]
        if any(known.attribute == declared.attribute for known in parent.fields):
            raise ValueError(f"{parent.name} has two fields {declared.name}")
        parent.fields.append(declared)
        if declared.is_struct:
            # Where the type is declared elsewhere, no line comes below this one and the entry stays unused.
            self._open.append(self._structs.get(declared.type) or self._new(declared.type))

    def message(self) -> MessageSpec:
        """The message, once all its lines are read."""
        for struct in self._structs.values():
            if not struct.fields and struct.name != self.name:
                raise ValueError(f"{self.name}: structure {struct.name} has no fields")
        structs = {opened.name: StructSpec(opened.name, tuple(opened.fields)) for opened in self._structs.values()}
        kind: Kind = self._heading["kind"]  # type: ignore[assignment]  # the pattern admits nothing else
        return MessageSpec(
            kind=kind,
            root=structs.pop(self.name),
            key=int(self._heading["key"]) if self._heading["key"] else None,
            versions=Versions.parse(self._heading["versions"]),
            flexible=Versions.parse(self._heading["flexible"] or "none"),
            structs=structs,
        )

    def _new(self, name: str) -> _Open:
        struct = self._structs.setdefault(name, _Open(name))
        if struct.fields:
            raise ValueError(f"structure {name} is declared twice")
        return struct


def _field(text: str) -> Field:
    match = FIELD.match(text)
    if match is None:
        raise ValueError(f"not a field: {text!r}")
    tag: int | None = None
    default_text: str | None = None
    marks = set()
    for mark in MARK.finditer(match["marks"]) if match["marks"] else ():
        marks.add(mark[0])
        tag = int(mark["tag"]) if mark["tag"] else tag
        default_text = mark["default"] or default_text
    versions = Versions.parse(match["versions"]) if match["versions"] else ALL_VERSIONS
    nullable = NO_VERSIONS
    if match["nullable"]:
        nullable = Versions.parse(match["nullable"][1:]) & versions if match["nullable"] != "?" else versions
    is_array = match["open"] is not None
    if "preencoded" in marks and (not is_array or match["type"] in VARIABLE | NUMBERS.keys()):
        raise ValueError("only an array of structures can be preencoded")
    return Field(
        name=match["name"],
        attribute=snake_case(match["name"]),
        type=match["type"],
        is_array=is_array,
        versions=versions,
        nullable=nullable,
        default=_default(match["type"], is_array, default_text),
        default_is_null=default_text == "null",
        tag=tag,
        ignorable="ignorable" in marks,
        inflexible="inflexible" in marks,
        preencoded="preencoded" in marks,
    )


def _default(type_name: str, is_array: bool, text: str | None) -> Default:
    """The default in Python: that of the text, or Kafka's default of the type."""
    if text == "null" or is_array or (type_name not in NUMBERS and type_name not in VARIABLE):
        if text not in (None, "null"):
            raise ValueError(f"the default of an array or structure can only be null, not {text}")
        return None
    if type_name == "bool":
        return text == "true"
    if type_name == "float64":
        return float(text or 0)
    if type_name == "uuid":
        return bytes(16)
    if type_name == "string":
        return text or ""
    if type_name in VARIABLE:
        return b"" if type_name == "bytes" else None
    return int(text or 0)
