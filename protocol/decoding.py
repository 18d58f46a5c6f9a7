"""Compiles the decoder of one message in one version. See `compile` for the reasons.

A decoder returns the object and the position after it, or raises ProtocolError. It allocates nothing for a length
before it has checked that as many bytes are there: it compares each length with the rest of the buffer, and each count
with the size of that many smallest elements.

A run of fixed-size fields includes the length of the next variable one (`unpack_hiB` reads an int16, an int32 and
the first byte of a varint), so that a typical structure costs one `struct` call for each of its variable fields.

Two leniencies are Kafka's: any negative length is null where null is a value (before the flexible encoding), and text
that is not UTF-8 is read with U+FFFD for the unreadable bytes. The decoder then reads the message once more, with
"replace" for "strict", so that other messages do not pay for it.

A request that may be large is read by a second form of the decoder, which charges a `Meter` for the objects of each
array before it makes them, and lets the meter provide the arrays and interrupt the loops over their elements.

Tagged fields that the definition does not have are skipped in requests. An object of each would take thirty times the
memory of its two bytes on the wire, before the client has even authenticated (CVE-2026-111115). In responses and
records, which come from brokers, they are kept.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import Any, Final, Protocol

from odradek.protocol.compile import FunctionSource, Namespace, Shape, Spot, literal, struct_of
from odradek.protocol.errors import ProtocolError
from odradek.protocol.grammar import NUMBERS, Field, MessageSpec, StructSpec
from odradek.protocol.primitives import (
    MAX_STRING,
    Bytes,
    MalformedError,
    bad_count,
    bad_length,
    read_long_length,
    read_long_uvarint,
    read_uvarint,
)

Decoder = Callable[[Bytes, int], tuple[Any, int]]
"""Reads one object at a position; returns it and the position after it. Raises ProtocolError."""


MeteredDecoder = Callable[[Bytes, int, "Meter"], tuple[Any, int]]
"""A decoder that charges a meter. Raises ProtocolError, and what the meter raises."""

NUMBER_BYTES: Final = 16
LIST_SLOT_BYTES: Final = 8
TEXT_BYTES: Final = 56
LIST_BYTES: Final = 72
OBJECT_BYTES: Final = 40
"""What the parts of a message take in memory, about, beside the bytes of their texts."""
ELEMENT_BYTES: Final = 216
"""The least that a structure or text of an array is charged, with what a handler makes of it: sets, dicts and answers.
A set or dict of more than 310,000 names would take 20 milliseconds to grow at once."""
PARTITION_NUMBERS: Final = frozenset({"partitions", "partition_indexes"})
"""Arrays of numbers of which handlers make sets, dicts and answers, too: a request with many of them is charged
ELEMENT_BYTES for each. Arrays of broker ids are not among them."""
TAG_BYTES: Final = 8
"""A tagged field that is skipped takes no memory; it is charged for its time."""


class Meter(Protocol):
    """Bounds the work of a decoder."""

    @property
    def at_once(self) -> int:
        """The memory in bytes that a decoder may take and then charge with one call, without the other methods."""
        ...

    def begin(self, message: Any, copied: int) -> None:
        """Receive the message before its fields are decoded; its encoded form, of so many bytes, is copied before."""
        ...

    def source(self, buffer: Bytes, pos: int) -> tuple[Any, int]:
        """The bytes of the message as an object whose parts are bytes, and the position in it."""
        ...

    def charge(self, size: int) -> None:
        """Count bytes of memory that are taken next; raises an exception of its own beyond a limit."""
        ...

    def each(self, items: Iterable[int]) -> Iterable[int]:
        """The items; a loop over them may be interrupted."""
        ...

    def array(self) -> list[Any]:
        """An empty array of a message."""
        ...

    def partitions(self, count: int) -> None:
        """Count numbers of partitions, of which an array follows: beside their memory what handlers make of them."""
        ...

    def numbers(self, format_: str, count: int, buffer: Bytes, pos: int) -> list[Any]:
        """An array of numbers in a `struct` format. Raises struct.error."""
        ...


def decoder(message: MessageSpec, version: int, classes: Mapping[str, type]) -> Decoder:
    """Compile the decoder of `message` in `version`; `classes` are those of the message and its structures."""
    return _DecoderWriter(Shape(message, version), classes).compile()


def metered_decoder(message: MessageSpec, version: int, classes: Mapping[str, type]) -> MeteredDecoder:
    """Compile the decoder that charges a meter."""
    return _DecoderWriter(Shape(message, version), classes, metered=True).compile()


def misread(error: Exception, spots: Mapping[int, tuple[Spot, ...]]) -> ProtocolError:
    """The ProtocolError for an exception inside a compiled decoder, derived from the line that raised it."""
    traceback = error.__traceback__
    assert isinstance(traceback, TracebackType)
    local = traceback.tb_frame.f_locals
    pos: int = local["pos"]
    left = local["size"] - pos
    on_line = spots[traceback.tb_lineno]
    spot = on_line[0]
    if isinstance(error, MalformedError):
        reason = str(error)
    else:
        for candidate in on_line:
            spot = candidate
            width = struct.calcsize(">" + spot.format)
            if width > left:
                break
            pos, left = pos + width, left - width
        reason = f"the bytes end here: {max(left, 0)} left"
    return ProtocolError(spot.path.format_map(local), pos, reason)


class _DecoderWriter:
    """Writes the source. `depth` numbers the local variables of nested structures: o0, o1, ..."""

    def __init__(self, shape: Shape, classes: Mapping[str, type], *, metered: bool = False) -> None:
        self._shape = shape
        self._metered = metered
        self._source = FunctionSource()
        self._run: list[tuple[str, str, Spot]] = []  # fixed-size reads, collected for one call
        self._views = shape.holds_records()
        self._keeps_unknown = not shape.message.name.endswith("Request")
        self._namespace: Namespace = {
            **classes,
            "new": object.__new__,
            "unpack_from": struct.unpack_from,
            "misread": misread,
            "bad_length": bad_length,
            "bad_count": bad_count,
            "MalformedError": MalformedError,
            "read_uvarint": read_uvarint,
            "read_long_uvarint": read_long_uvarint,
            "read_long_length": read_long_length,
            "ERRORS": (MalformedError, struct.error, IndexError),
        }

    def compile(self) -> Callable[..., tuple[Any, int]]:
        message, source = self._shape.message, self._source
        meter = "meter, " if self._metered else ""
        source.line(f'def decode(buffer, pos, {meter}errors="strict"):')
        source.indent()
        if self._metered:
            source.line("charge, each, array = meter.charge, meter.each, meter.array")
            source.line(f"o0 = new({message.name})")
            source.line(f"meter.begin(o0, {0 if self._views else 'len(buffer) - pos'})")
        if self._views:  # records stay views into the caller's buffer
            source.line("if type(buffer) is not memoryview:")
            source.line("    buffer = memoryview(buffer)")
        elif self._metered:  # a copy of 20 MB would hold the loop for ten milliseconds
            source.line("buffer, pos = meter.source(buffer, pos)")
        else:  # reading bytes is faster than reading a view, by more than this copy costs
            source.line("if type(buffer) is not bytes:")
            source.line("    buffer = bytes(buffer)")
        source.line("size, start = len(buffer), pos")
        source.line("try:")
        source.indent()
        if not self._metered:
            source.line(f"o0 = new({message.name})")
        self._struct(message.root, 0, message.name)
        self._flush()
        source.line("return o0, pos")
        source.dedent()
        source.line("except ERRORS as error:")
        source.line("    raise misread(error, SPOTS) from None")
        source.line("except UnicodeDecodeError:")
        source.line(f'    return decode(buffer, start, {meter}"replace")')
        filename = f"<odradek {'metered ' * self._metered}decoder of {message.name} v{self._shape.version}>"
        return source.compile("decode", filename, self._namespace)

    # -- structures

    def _struct(self, struct_: StructSpec, depth: int, path: str) -> None:
        """Read the fields of a structure into the object o<depth>."""
        shape = self._shape
        for field in (*shape.absent(struct_), *shape.tagged(struct_)):
            self._source.line(f"o{depth}.{field.attribute} = {literal(field)}")
        self._source.line(f"o{depth}.unknown_tagged_fields = None")
        for field in shape.present(struct_):
            self._field(field, depth, f"{path}.{field.attribute}")
        if shape.flexible:
            self._tags(struct_, depth, path)

    def _tags(self, struct_: StructSpec, depth: int, path: str) -> None:
        """Read the tagged fields of a structure; mostly there are none."""
        source, d = self._source, depth
        spot = Spot(f"{path}.tags", "B")
        self._read("B", f"tags{d}", spot)
        self._flush()
        source.line(f"if tags{d}:")
        source.indent()
        self._long_varint(f"tags{d}", spot)
        source.line(f"if tags{d} * 2 > size - pos:")
        source.line(f"    raise bad_count(tags{d}, 2, size - pos)", spot)
        if self._metered:
            source.line(f"charge(tags{d} * {TAG_BYTES})")
        source.line(f"for _ in {self._range(f'tags{d}')}:")
        source.indent()
        source.line(f"tag{d}, pos = read_uvarint(buffer, pos)", spot)
        source.line("n, pos = read_uvarint(buffer, pos)", spot)
        source.line(f"stop{d} = pos + n")
        source.line(f"if stop{d} > size:")
        source.line("    raise bad_length(n, size - pos)", spot)
        word = "if"
        for field in self._shape.tagged(struct_):
            source.line(f"{word} tag{d} == {field.tag}:")
            source.indent()
            self._field(field, depth, f"{path}.{field.attribute}")
            self._flush()
            source.line(f"if pos != stop{d}:")
            text = f'f"its value ends {{pos - stop{d}:+}} bytes from the end that the size of the tagged field gives"'
            source.line(f"    raise MalformedError({text})", Spot(f"{path}.{field.attribute}"))
            source.dedent()
            word = "elif"
        if word == "elif":
            source.line("else:")
            source.indent()
        if self._keeps_unknown:
            source.line(f"if o{d}.unknown_tagged_fields is None:")
            source.line(f"    o{d}.unknown_tagged_fields = []")
            source.line(f"o{d}.unknown_tagged_fields.append((tag{d}, bytes(buffer[pos:stop{d}])))")
        source.line(f"pos = stop{d}")
        source.dedent(3 if word == "elif" else 2)

    # -- fields

    def _field(self, field: Field, depth: int, path: str) -> None:
        target = f"o{depth}.{field.attribute}"
        if field.is_array:
            self._array(field, target, depth, path)
        elif field.is_struct:
            self._inner(field, target, depth, path)
        elif field.type in NUMBERS:
            self._read(NUMBERS[field.type], target, Spot(path, NUMBERS[field.type]))
        else:
            self._sized(field, target, path)

    def _inner(self, field: Field, target: str, depth: int, path: str) -> None:
        """Read a structure that is a field; where it may be null, a marker stands before it.

        The marker is an int8, -1 for null, but among the tagged fields a varint, 0 for null (KIP-893).
        """
        source = self._source
        nullable = self._shape.is_nullable(field)
        if nullable and self._shape.is_tagged(field):
            source.line("n, pos = read_uvarint(buffer, pos)", Spot(path))
            source.line("if n == 0:")
        elif nullable:
            self._read("b", "n", Spot(path, "b"))
            self._flush()
            source.line("if n < 0:")
        if nullable:
            source.line(f"    {target} = None")
            source.line("else:")
            source.indent()
        source.line(f"{target} = o{depth + 1} = new({field.type})")
        self._struct(self._shape.message.structs[field.type], depth + 1, path)
        if nullable:
            self._flush()
            source.dedent()

    def _sized(self, field: Field, target: str, path: str, add: bool = False) -> None:
        """Read a string, bytes or records: a length, then as many bytes. `add` appends to the array `target`."""
        source = self._source
        spot = self._length(field, path)
        compact, nullable = self._shape.is_compact(field), self._shape.is_nullable(field)
        if compact and field.type == "string":
            self._long_varint("n", spot, limit=MAX_STRING + 1, nullable=nullable)
        elif compact:
            self._long_varint("n", spot, nullable=nullable)
        if compact:
            source.line("n -= 1")
        store = f"{target}.append(%s)" if add else f"{target} = %s"
        if nullable:
            source.line("if n < 0:")
            source.line("    " + store % "None")
            source.line("else:")
            source.indent()
        source.line("end = pos + n")
        source.line("if not pos <= end <= size:")
        source.line("    raise bad_length(n, size - pos)", spot)
        value = "buffer[pos:end]"
        if field.type == "string":
            value = f'str({value}, "utf-8", errors)' if self._views else f'{value}.decode("utf-8", errors)'
        elif field.type == "bytes" and self._views:
            value = f"bytes({value})"
        source.line(store % value, spot)
        source.line("pos = end")
        if nullable:
            source.dedent()

    def _array(self, field: Field, target: str, depth: int, path: str) -> None:
        source, shape = self._source, self._shape
        spot = self._length(field, path, array=True)
        nullable = shape.is_nullable(field)
        if shape.is_compact(field):
            self._long_varint("n", spot, nullable=nullable)
            source.line("n -= 1")
        if nullable:
            source.line("if n < 0:")
            source.line(f"    {target} = None")
            source.line("else:")
            source.indent()
        smallest = shape.smallest(field)
        times = f"n * {smallest}" if smallest > 1 else "n"
        source.line(f"if not 0 <= {times} <= size - pos:")
        source.line(f"    raise bad_count(n, {smallest}, size - pos)", spot)
        if self._metered:
            source.line(f"charge(n * {element_bytes(self._shape, field)})")
            if field.type == "int32" and field.attribute in PARTITION_NUMBERS:
                source.line("meter.partitions(n)")
        if field.type in NUMBERS and field.type != "uuid" and self._metered:
            source.line(f'{target} = meter.numbers("{NUMBERS[field.type]}", n, buffer, pos)', spot)
            source.line(f"pos += {times}")
        elif field.type in NUMBERS and field.type != "uuid":
            source.line(f'{target} = list(unpack_from(f">{{n}}{NUMBERS[field.type]}", buffer, pos))', spot)
            source.line(f"pos += {times}")
        else:
            self._elements(field, target, depth + 1, path)
        if nullable:
            source.dedent()

    def _elements(self, field: Field, target: str, depth: int, path: str) -> None:
        source = self._source
        source.line(f"a{depth} = {target} = {'array()' if self._metered else '[]'}")
        source.line(f"for i{depth} in {self._range('n')}:")
        source.indent()
        path = f"{path}[{{i{depth}}}]"
        if field.is_struct:
            source.line(f"o{depth} = new({field.type})")
            source.line(f"a{depth}.append(o{depth})")
            self._struct(self._shape.message.structs[field.type], depth, path)
            self._flush()
        elif field.type == "uuid":
            source.line(f"a{depth}.append(bytes(buffer[pos : pos + 16]))", Spot(path))
            source.line("pos += 16")
        else:
            self._sized(field, f"a{depth}", path, add=True)
        source.dedent()

    def _range(self, count: str) -> str:
        return f"each(range({count}))" if self._metered else f"range({count})"

    # -- runs of fixed-size reads

    def _length(self, field: Field, path: str, array: bool = False) -> Spot:
        """Read the length or count of a field into n; of a varint, its first byte."""
        if self._shape.is_compact(field):
            format_ = "B"
        else:
            format_ = "h" if field.type == "string" and not array else "i"
        spot = Spot(path, format_)
        self._read(format_, "n", spot)
        self._flush()
        return spot

    def _long_varint(self, name: str, spot: Spot, limit: int | None = None, nullable: bool = False) -> None:
        """Read the rest of a varint whose first byte is in the variable `name`."""
        read = "read_long_length" if nullable else "read_long_uvarint"
        source = self._source
        source.line(f"if {name} > 127:")
        source.line(f"    {name}, pos = {read}(buffer, pos, {name})", spot)
        if limit is not None:
            source.line(f"    if {name} > {limit}:")
            text = f'f"a string of {{{name} - 1}} bytes; {limit - 1} is the most"'
            source.line(f"        raise MalformedError({text})", spot)

    def _read(self, format_: str, target: str, spot: Spot) -> None:
        self._run.append((format_, target, spot))

    def _flush(self) -> None:
        """Write the collected reads as one line."""
        run, self._run = self._run, []
        if not run:
            return
        formats = "".join(format_ for format_, _, _ in run)
        targets = ", ".join(target for _, target, _ in run)
        spots = tuple(spot for _, _, spot in run)
        if formats == "B":
            self._source.line(f"{targets} = buffer[pos]", *spots)
        else:
            packed = struct_of(formats)
            name = "unpack_" + formats.replace("?", "o")
            self._namespace[name] = packed.unpack_from
            self._source.line(f"{targets}{',' if len(run) == 1 else ''} = {name}(buffer, pos)", *spots)
        self._source.line(f"pos += {struct_of(formats).size}")


def element_bytes(shape: Shape, field: Field) -> int:
    """The memory that an element of the array `field` takes, about."""
    size = LIST_SLOT_BYTES + (_struct_bytes(shape, field.type) if field.is_struct else _value_bytes(field))
    return size if field.type in NUMBERS and field.type != "uuid" else max(size, ELEMENT_BYTES)


def _struct_bytes(shape: Shape, name: str) -> int:
    """The memory of a structure; of its arrays only the empty list, because their elements are charged later."""
    fields = shape.message.structs[name].fields
    size = OBJECT_BYTES + 8 * len(fields)
    for field in fields:
        if field.is_array:
            size += LIST_BYTES
        elif not shape.has(field) or shape.is_tagged(field):
            continue
        else:
            size += _struct_bytes(shape, field.type) if field.is_struct else _value_bytes(field)
    return size


def _value_bytes(field: Field) -> int:
    return NUMBER_BYTES if field.type in NUMBERS and field.type != "uuid" else TEXT_BYTES
