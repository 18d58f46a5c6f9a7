"""Compiles the encoder of one message in one version. See `compile` for the reasons.

The rules are those of Kafka's generated classes. A field that the version does not carry is dropped when it is
ignorable or holds its default, and is an error otherwise. A tagged field is written only when it differs from its
default. Unknown tagged fields are written unchanged.

Records are not copied: the encoder closes the buffer that it fills, puts the object itself into the list of parts, and
continues with a new buffer.

The value of an array that the definition marks as `preencoded` may be the bytes of its elements (`encoded`), which are
only joined then. A structure alone is encoded as in its message.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping, Sized
from typing import Any, Final

from odradek.protocol.compile import FunctionSource, Namespace, Shape, Spot, literal, struct_of
from odradek.protocol.encoded import EncodedArray
from odradek.protocol.grammar import NUMBERS, Field, MessageSpec, StructSpec
from odradek.protocol.primitives import BYTE, MAX_STRING, uvarint, write_tags

Encoder = Callable[[Any, bytearray], list[Sized]]
"""Appends an object to a buffer and returns the parts of the whole, that buffer first. Raises ValueError."""


Each = Callable[[Iterable[Any]], Iterable[Any]]
"""Returns the items of an array; the loop over them may be interrupted."""

SlicedEncoder = Callable[[Any, bytearray, Each], list[Sized]]
"""An encoder whose loops over arrays can be interrupted."""
PART_BYTES: Final = 1 << 20
"""The size from which a part of a sliced response is followed by another one: a buffer is copied while it grows."""


def encoder(message: MessageSpec, struct_: StructSpec, version: int, classes: Mapping[str, type]) -> Encoder:
    """Compile the encoder of `struct_`, the root of `message` or a structure inside it, in `version`.

    `classes` are those of the message and its structures.
    """
    return _EncoderWriter(Shape(message, version), classes).compile(struct_)


def sliced_encoder(
    message: MessageSpec, struct_: StructSpec, version: int, classes: Mapping[str, type]
) -> SlicedEncoder:
    """Compile the encoder of `struct_` whose loops can be interrupted, for large responses."""
    return _EncoderWriter(Shape(message, version), classes, sliced=True).compile(struct_)


def miswritten(error: Exception, spots: Mapping[int, tuple[Spot, ...]]) -> ValueError:
    """The ValueError for an exception inside a compiled encoder, derived from the line that raised it."""
    traceback = error.__traceback__
    assert traceback is not None
    on_line = spots.get(traceback.tb_lineno, ())
    if not on_line:
        return ValueError(str(error))
    spot = on_line[0]
    for candidate in on_line:
        if candidate.value is None:
            continue
        name, attribute = candidate.value
        try:
            struct.pack(">" + candidate.format, getattr(traceback.tb_frame.f_locals[name], attribute))
        except (struct.error, AttributeError):
            spot = candidate
            break
    return ValueError(f"{spot.path}: {error}")


class _EncoderWriter:
    """Writes the source. `depth` numbers the local variables of nested structures: o0, o1, ..."""

    def __init__(self, shape: Shape, classes: Mapping[str, type], *, sliced: bool = False) -> None:
        self._shape = shape
        self._sliced = sliced
        self._in_tag = False  # its size is written before it, so it is one part
        self._source = FunctionSource()
        self._run: list[tuple[str, str, Spot]] = []  # fixed-size values, collected for one call
        self._namespace: Namespace = {
            **classes,
            "pack": struct.pack,
            "BYTE": BYTE,
            "uvarint": uvarint,
            "write_tags": write_tags,
            "miswritten": miswritten,
            "EncodedArray": EncodedArray,
            "ERRORS": (struct.error, AttributeError, TypeError, UnicodeEncodeError),
        }

    def compile(self, struct_: StructSpec) -> Callable[..., list[Sized]]:
        message, source = self._shape.message, self._source
        name = message.name if struct_ is message.root else f"{message.name}.{struct_.name}"
        source.line("def encode(o0, out, each):" if self._sliced else "def encode(o0, out):")
        source.indent()
        source.line("parts = []")
        source.line("try:")
        source.indent()
        self._struct(struct_, 0, name)
        self._flush()
        source.dedent()
        source.line("except ERRORS as error:")
        source.line("    raise miswritten(error, SPOTS) from error")
        source.line("parts.append(out)")
        source.line("return parts")
        filename = f"<odradek {'sliced ' * self._sliced}encoder of {name} v{self._shape.version}>"
        return source.compile("encode", filename, self._namespace)

    # -- structures

    def _struct(self, struct_: StructSpec, depth: int, path: str) -> None:
        """Write the fields of the object o<depth>."""
        shape, source = self._shape, self._source
        for field in shape.absent(struct_):
            if not field.ignorable:
                spot = f"{path}.{field.attribute}"
                source.line(f"if {self._is_set(field, f'o{depth}.{field.attribute}')}:")
                source.line(f'    raise ValueError("{spot}: version {shape.version} has no place for it")')
        if not shape.flexible:
            source.line(f"if o{depth}.unknown_tagged_fields:", Spot(path))
            source.line(f'    raise ValueError("{path}: version {shape.version} has no place for tagged fields")')
        for field in shape.present(struct_):
            self._field(field, depth, f"{path}.{field.attribute}")
        if shape.flexible:
            self._tags(struct_, depth, path)

    def _is_set(self, field: Field, value: str) -> str:
        """The source of the test whether a value differs from the default of its field."""
        if field.default_is_null:
            return f"{value} is not None"
        if field.is_array:
            return f"{value} is None or len({value})" if field.nullable else value
        if field.is_struct:
            name = f"default_{field.type}"
            if name not in self._namespace:
                self._namespace[name] = self._namespace[field.type]()
            return f"{value} is not None and {value} != {name}" if field.absent_is_none else f"{value} != {name}"
        return value if literal(field) in ("0", "False") else f"{value} != {literal(field)}"

    def _tags(self, struct_: StructSpec, depth: int, path: str) -> None:
        """Write the tagged fields of a structure; mostly there are none."""
        source, d = self._source, depth
        tagged = self._shape.tagged(struct_)
        waiting, self._run = self._run, []
        tags = f"o{d}.unknown_tagged_fields"
        if tagged:
            tags = f"tags{d}"
            source.line(f"{tags} = o{d}.unknown_tagged_fields")
        for field in tagged:
            source.line(f"if {self._is_set(field, f'o{d}.{field.attribute}')}:", Spot(f"{path}.{field.attribute}"))
            source.indent()
            source.line(f"out{d} = out")
            source.line("out = bytearray()")
            outside, self._in_tag = self._in_tag, True
            self._field(field, depth, f"{path}.{field.attribute}")
            self._in_tag = outside
            self._flush()
            source.line(f"{tags} = [*({tags} or ()), ({field.tag}, out)]")
            source.line(f"out = out{d}")
            source.dedent()
        source.line(f"if {tags}:")
        source.indent()
        self._run = list(waiting)
        self._flush()
        source.line(f"write_tags(out, {tags})", Spot(path))
        source.dedent()
        source.line("else:")
        source.indent()
        self._run = waiting
        self._write("B", "0", Spot(path))
        self._flush()
        source.dedent()

    # -- fields

    def _field(self, field: Field, depth: int, path: str) -> None:
        owner, attribute = f"o{depth}", field.attribute
        if field.is_array:
            self._array(field, f"{owner}.{attribute}", depth, path)
        elif field.is_struct:
            self._inner(field, f"{owner}.{attribute}", depth, path)
        elif field.type == "uuid":
            self._uuid(f"{owner}.{attribute}", path)
        elif field.type in NUMBERS:
            spot = Spot(path, NUMBERS[field.type], (owner, attribute))
            self._write(NUMBERS[field.type], f"{owner}.{attribute}", spot)
        else:
            self._sized(field, f"{owner}.{attribute}", path)

    def _inner(self, field: Field, value: str, depth: int, path: str) -> None:
        """Write a structure that is a field; where it may be null, a marker stands before it (see `decoding`)."""
        source, inner = self._source, f"o{depth + 1}"
        nullable = self._shape.is_nullable(field)
        if nullable:
            self._flush()
        source.line(f"{inner} = {value}", Spot(path))
        if nullable:
            source.line(f"if {inner} is None:")
            source.line(f"    out += {self._null_marker(field)!r}")
            source.line("else:")
            source.indent()
            self._write("b", "1", Spot(path))
        self._struct(self._shape.message.structs[field.type], depth + 1, path)
        if nullable:
            self._flush()
            source.dedent()

    def _null_marker(self, field: Field) -> bytes:
        return b"\x00" if self._shape.is_tagged(field) else b"\xff"

    def _uuid(self, value: str, path: str) -> None:
        """Write an id; `struct` alone would silently pad or truncate one of another length."""
        self._source.line(f"if len({value}) != 16:", Spot(path))
        self._source.line(f'    raise ValueError("{path}: an id has 16 bytes")')
        self._write("16s", value, Spot(path))

    def _sized(self, field: Field, value: str, path: str) -> None:
        """Write a string, bytes or records: a length, then as many bytes."""
        source, spot = self._source, Spot(path)
        nullable, text = self._shape.is_nullable(field), field.type == "string"
        compact = self._shape.is_compact(field)
        one_more = " + 1" if compact else ""
        if nullable:
            source.line(f"data = {value}", spot)
            source.line("if data is None:")
            source.line('    data = b""')
            source.line(f"    n = {0 if compact else -1}")
            source.line("else:")
            source.indent()
            if text:
                source.line("data = data.encode()", spot)
            source.line(f"n = len(data){one_more}", spot)
            source.dedent()
        else:
            source.line(f"data = {value}.encode()" if text else f"data = {value}", spot)
            source.line(f"n = len(data){one_more}", spot)
        if text:
            most = MAX_STRING + compact
            source.line(f"if n > {most}:")
            length = f"{{n{' - 1' if compact else ''}}}"
            source.line(f'    raise ValueError(f"{path}: a string of {length} bytes; {MAX_STRING} is the most")')
        self._length("h" if text else "i", compact, spot)
        if field.type == "records":
            source.line("if len(data):")
            source.line("    parts.append(out)")
            source.line("    parts.append(data)")
            source.line("    out = bytearray()")
        else:
            source.line("out += data", spot)

    def _array(self, field: Field, value: str, depth: int, path: str) -> None:
        source, spot, d = self._source, Spot(path), depth + 1
        nullable, compact = self._shape.is_nullable(field), self._shape.is_compact(field)
        one_more = " + 1" if compact else ""
        source.line(f"a{d} = {value}", spot)
        if nullable:
            source.line(f"if a{d} is None:")
            source.line(f"    n = {0 if compact else -1}")
            source.line(f"    a{d} = ()")
            source.line("else:")
            source.line(f"    n = len(a{d}){one_more}", spot)
        else:
            source.line(f"n = len(a{d}){one_more}", spot)
        self._length("i", compact, spot)
        if field.type in NUMBERS and field.type != "uuid":
            source.line(f'out += pack(f">{{len(a{d})}}{NUMBERS[field.type]}", *a{d})', spot)
            return
        if field.preencoded:
            source.line(f"if a{d}.__class__ is EncodedArray:")
            source.indent()
            source.line(f"if a{d}.version != {self._shape.version}:")
            source.line(f'    raise ValueError(f"{path}: encoded for version {{a{d}.version}}")')
            source.line(f'out += b"".join(a{d})', spot)
            source.line(f"a{d} = ()")
            source.dedent()
        source.line(f"for o{d} in each(a{d}):" if self._sliced else f"for o{d} in a{d}:", spot)
        source.indent()
        if field.is_struct:
            self._struct(self._shape.message.structs[field.type], d, path + "[]")
        elif field.type == "uuid":
            self._uuid(f"o{d}", path + "[]")
        else:
            self._sized(field, f"o{d}", path + "[]")
        self._flush()
        if self._sliced and not self._in_tag:
            source.line(f"if len(out) > {PART_BYTES}:")
            source.line("    parts.append(out)")
            source.line("    out = bytearray()")
        source.dedent()

    # -- runs of fixed-size writes

    def _length(self, format_: str, compact: bool, spot: Spot) -> None:
        """Write the collected values and the length n, in one call where n is a varint of one byte."""
        if not compact:
            self._write(format_, "n", spot)
            self._flush()
            return
        waiting = self._run
        if not waiting:
            self._source.line("out += BYTE[n] if n < 128 else uvarint(n)", spot)
            return
        self._source.line("if n < 128:")
        self._source.indent()
        self._run = [*waiting, ("B", "n", spot)]
        self._flush()
        self._source.dedent()
        self._source.line("else:")
        self._source.indent()
        self._run = waiting
        self._flush()
        self._source.line("out += uvarint(n)", spot)
        self._source.dedent()

    def _write(self, format_: str, value: str, spot: Spot) -> None:
        self._run.append((format_, value, spot))

    def _flush(self) -> None:
        """Write the collected values as one line."""
        run, self._run = self._run, []
        if not run:
            return
        formats = "".join(format_ for format_, _, _ in run)
        values = [value for _, value, _ in run]
        if formats == "B" and values == ["0"]:
            self._source.line('out += b"\\0"')
            return
        name = "pack_" + formats.replace("?", "o")
        self._namespace[name] = struct_of(formats).pack
        self._source.line(f"out += {name}({', '.join(values)})", *(spot for _, _, spot in run))
