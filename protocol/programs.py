"""Programs: the codecs of one message in one version, run by the C extension `_codec`.

A program is a table of the fields of the message, in the order in which the codecs handle them. One C function follows
it to decode, another to encode. Both return what the generated functions of `decoding` and `encoding` return; for
everything that is rare or wrong (malformed bytes, an unknown tag to write, an object of a type that the definition does
not have), they change nothing and call the generated function, which also makes the exact error. A test compares both
on every message and version. A generated function is compiled at its first call, so most never are.

An installation without a compiler runs the generated functions alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from odradek.protocol import decoding, encoding
from odradek.protocol.compile import Shape, literal
from odradek.protocol.decoding import Decoder, MeteredDecoder
from odradek.protocol.encoded import EncodedArray
from odradek.protocol.encoding import Encoder
from odradek.protocol.grammar import NUMBERS, DefinitionError, Field, MessageSpec, StructSpec

# `_codec_table.h` has the same numbers and letters.
SHARED: Final = 0
NEW_LIST: Final = 1
CALLED: Final = 2
"""How the value of a field that is absent, or tagged and not there, is made: one object for all, a new list, or a call
of the class."""

NO_TEST: Final = 0
TRUTH: Final = 1
NOT_EQUAL: Final = 2
NOT_NONE: Final = 3
NULL_OR_FULL: Final = 4
OTHER_STRUCT: Final = 5
"""The test whether a value differs from the default of its field."""

ARRAY: Final = 1
NULLABLE: Final = 2
COMPACT: Final = 4
PREENCODED: Final = 8

LETTERS: Final = {**NUMBERS, "uuid": "u", "string": "s", "bytes": "y", "records": "r"}
STRUCT: Final = "o"


class MessageCodecs(NamedTuple):
    """The codecs of one message in one version. The decoders are only those of whole messages."""

    decode: Decoder
    decode_metered: MeteredDecoder
    encode: Encoder


def generated(message: MessageSpec, struct_: StructSpec, version: int, classes: Mapping[str, type]) -> MessageCodecs:
    """The generated functions, each compiled at its first call."""
    return MessageCodecs(
        _lazy(lambda: decoding.decoder(message, version, classes)),
        _lazy(lambda: decoding.metered_decoder(message, version, classes)),
        _lazy(lambda: encoding.encoder(message, struct_, version, classes)),
    )


def in_c(message: MessageSpec, struct_: StructSpec, version: int, classes: Mapping[str, type]) -> MessageCodecs:
    """The codecs of the C extension, with the generated functions behind them."""
    behind = generated(message, struct_, version, classes)
    program = program_of(message, struct_, version, classes, behind)
    return MessageCodecs(program.decode, program.decode_metered, program.encode)


def program_of(
    message: MessageSpec, struct_: StructSpec, version: int, classes: Mapping[str, type], behind: MessageCodecs
) -> _codec.Program:
    """The program of `struct_`, the root of `message` or a structure inside it; it calls `behind` for what is rare."""
    shape = Shape(message, version)
    layout = _Tables(shape, classes).layout(struct_)
    return _codec.Program(layout, version, EncodedArray, not shape.holds_records(), *behind)


def _lazy(compiled: Callable[[], Callable[..., Any]]) -> Callable[..., Any]:
    function: Callable[..., Any] | None = None

    def call(*arguments: Any) -> Any:
        nonlocal function
        if function is None:
            function = compiled()
        return function(*arguments)

    return call


def initial(field: Field, classes: Mapping[str, type]) -> tuple[int, Any]:
    """How a field begins that is not read or given, with the object or class for it: see `compile.literal`."""
    made = literal(field)
    if made == "[]":
        return NEW_LIST, None
    if made.endswith("()"):
        return CALLED, classes[field.type]
    return SHARED, None if made == "None" else field.default


class _Tables:
    """Writes the table of a message as nested tuples."""

    def __init__(self, shape: Shape, classes: Mapping[str, type]) -> None:
        self._shape = shape
        self._classes = classes

    def layout(self, struct_: StructSpec) -> tuple[Any, ...]:
        """The fields of a structure: those that are absent in this version, tagged ones, and the others."""
        shape = self._shape
        absent, tagged, present = shape.absent(struct_), shape.tagged(struct_), shape.present(struct_)
        return (
            self._classes[struct_.name],
            "unknown_tagged_fields",
            shape.flexible,
            not shape.message.name.endswith("Request"),
            len(absent),
            len(tagged),
            (
                *(self._absent(field) for field in absent),
                *(self._carried(field) for field in (*tagged, *present)),
            ),
        )

    def _absent(self, field: Field) -> tuple[Any, ...]:
        starts_as, made = initial(field, self._classes)
        test, compared = (NO_TEST, None) if field.ignorable else self._test(field)
        return (field.attribute, "b", 0, starts_as, test, 0, 1, 0, made, compared, None)

    def _carried(self, field: Field) -> tuple[Any, ...]:
        shape = self._shape
        if field.tag is None:
            tag, starts_as, made, test, compared = 0, SHARED, None, NO_TEST, None
        elif field.type == "records":
            raise DefinitionError(f"{shape.message.name}: the tagged field {field.name} has records")
        else:
            tag, (starts_as, made), (test, compared) = field.tag, initial(field, self._classes), self._test(field)
        flags = (
            ARRAY * field.is_array
            | NULLABLE * shape.is_nullable(field)
            | COMPACT * shape.is_compact(field)
            | PREENCODED * field.preencoded
        )
        smallest = shape.smallest(field) if field.is_array else 1
        charged = decoding.element_bytes(shape, field) if field.is_array else 0
        inner = self.layout(shape.message.structs[field.type]) if field.is_struct else None
        letter = STRUCT if field.is_struct else LETTERS[field.type]
        return (field.attribute, letter, flags, starts_as, test, tag, smallest, charged, made, compared, inner)

    def _test(self, field: Field) -> tuple[int, Any]:
        """The test whether a field is set, with the object for it: as the encoders have it."""
        if field.default_is_null:
            return NOT_NONE, None
        if field.is_array:
            return NULL_OR_FULL if field.nullable else TRUTH, None
        if field.is_struct:
            return OTHER_STRUCT if field.absent_is_none else NOT_EQUAL, self._classes[field.type]()
        return (TRUTH, None) if literal(field) in ("0", "False") else (NOT_EQUAL, field.default)


try:
    from odradek.protocol import _codec

    _codec.Program  # noqa: B018  # absent where the extension was built from other sources
    codecs = in_c
except (ImportError, AttributeError):  # installed without a compiler, or built from older sources
    codecs = generated
