"""Builds the message classes: one slotted class for a message in all its versions, and one for each structure in it.

A class is built from its definition at the first access. Constructors are compiled for the first object, `encode` and
`decode` for the first use of each version.

Defaults are Kafka's, except for one kind of field: a tagged structure that cannot be null is None while it is absent,
where Kafka has a structure full of defaults. The encoders write neither.
"""

from __future__ import annotations

from collections.abc import Callable, Sized
from functools import cache
from typing import Any, ClassVar, Final, Generic, NamedTuple, Self, TypeVar

from odradek.protocol import constructors, programs
from odradek.protocol.compile import compile_function, literal
from odradek.protocol.decoding import Decoder, MeteredDecoder
from odradek.protocol.encoded import EncodedArray, EncodedElement
from odradek.protocol.encoding import Each, Encoder, SlicedEncoder, sliced_encoder
from odradek.protocol.errors import ProtocolError
from odradek.protocol.grammar import NEVER, Field, StructSpec
from odradek.protocol.grammar import MessageSpec as Definition
from odradek.protocol.primitives import Bytes

C = TypeVar("C")
V = TypeVar("V")
ErrorsReporter = Callable[[Any, Callable[[int], None]], None]
"""Calls its second argument with every error code in a message but NONE, on all levels."""

SlicedErrorsReporter = Callable[[Any, Callable[[int], None], Each], None]
"""The same with a third argument, which passes on the items of its loops."""

NEW: Final = object()
"""The default in the signature of a constructor for a list or structure that is made anew for each object."""


class Source(NamedTuple):
    """What a class was built from: its message, its own fields, and the classes of all structures of the message."""

    message: Definition
    struct: StructSpec
    classes: dict[str, type]

    def codecs(self, version: int) -> programs.MessageCodecs:
        """The codecs of a version."""
        return programs.codecs(self.message, self.struct, version, self.classes)

    def sliced_encoder(self, version: int) -> SlicedEncoder:
        """The encoder of a version whose loops can be interrupted."""
        return sliced_encoder(self.message, self.struct, version, self.classes)


class _Late(Generic[V]):
    """A class attribute that is made for a class at its first use: most classes never use most of them."""

    def __init__(self, make: Callable[[Any], V]) -> None:
        self._make = make

    def __set_name__(self, _: type, name: str) -> None:
        self._name = name

    def __get__(self, _: object, cls: type) -> V:
        made = self._make(cls)
        setattr(cls, self._name, made)
        return made


class Struct:
    """A group of fields; also the base of every message. Equal when of one class and equal in all fields.

    `unknown_tagged_fields` holds (tag, bytes) of tagged fields that the definition does not have; None for none.
    """

    __slots__ = ("unknown_tagged_fields",)

    ATTRIBUTES: ClassVar[tuple[str, ...]] = ()
    """The names of the fields, in the order of the definition."""

    unknown_tagged_fields: list[tuple[int, bytes]] | None

    SOURCE: ClassVar[Source]

    CODECS: ClassVar[_Late[Codecs[programs.MessageCodecs]]] = _Late(
        lambda cls: Codecs(cls, cls.SOURCE.codecs, _unwritable)
    )
    ENCODERS: ClassVar[_Late[Codecs[Encoder]]] = _Late(
        lambda cls: Codecs(cls, lambda version: cls.CODECS[version].encode, _unwritable)
    )
    SLICED_ENCODERS: ClassVar[_Late[Codecs[SlicedEncoder]]] = _Late(
        lambda cls: Codecs(cls, cls.SOURCE.sliced_encoder, _unwritable)
    )
    """Encoders whose loops can be interrupted, for large responses."""

    @classmethod
    def errors_reporter(cls) -> ErrorsReporter:
        """Responses and their structures: the function that finds the error codes of such an object, compiled once."""
        return _errors_reporter(cls, sliced=False)  # type: ignore[arg-type]  # objects have no hash, classes do

    @classmethod
    def sliced_errors_reporter(cls) -> SlicedErrorsReporter:
        """The same with loops that can be interrupted, for large responses."""
        return _errors_reporter(cls, sliced=True)  # type: ignore[arg-type]  # likewise

    def encode(self, version: int, head: bytes = b"") -> bytes:
        """The bytes of the message, or of the structure as part of its message, behind those of `head`. `version` is
        the message's.

        Raises ValueError with the name of the field that the version cannot carry.
        """
        return b"".join(self.ENCODERS[version](self, bytearray(head)))  # type: ignore[arg-type]

    def encoded(self, version: int) -> EncodedElement:
        """A structure of a response for an `EncodedArray` of that version. Raises ValueError as `encode` does."""
        codes: list[int] = []
        type(self).errors_reporter()(self, codes.append)
        return EncodedElement(self.encode(version), tuple(codes))

    def encoded_sliced(self, version: int, each: Each) -> EncodedElement:
        """The same with loops that can be interrupted."""
        codes: list[int] = []
        type(self).sliced_errors_reporter()(self, codes.append, each)
        parts = self.SLICED_ENCODERS[version](self, bytearray(), each)
        return EncodedElement(b"".join(parts), tuple(codes))  # type: ignore[arg-type]

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        names = (*self.ATTRIBUTES, "unknown_tagged_fields")
        return all(getattr(self, name) == getattr(other, name) for name in names)

    __hash__ = None  # type: ignore[assignment]  # fields change

    def __repr__(self) -> str:
        fields = [f"{name}={_shown(getattr(self, name))}" for name in self.ATTRIBUTES]
        if self.unknown_tagged_fields:
            fields.append(f"unknown_tagged_fields={self.unknown_tagged_fields!r}")
        return f"{type(self).__qualname__}({', '.join(fields)})"


class Codecs(dict[int, C], Generic[C]):
    """The compiled codecs of a message by version; a version is compiled at its first use."""

    def __init__(self, cls: type[Struct], compiled: Callable[[int], C], refuse: Callable[[str, str], Exception]):
        super().__init__()
        self._definition = cls.SOURCE.message
        self._compiled = compiled
        self._refuse = refuse

    def __missing__(self, version: int) -> C:
        if version not in self._definition.versions:
            reason = f"there is no version {version}, only {self._definition.versions}"
            raise self._refuse(self._definition.name, reason)
        codec = self[version] = self._compiled(version)
        return codec


class BaseMessage(Struct):
    """The methods of all messages. `version` is that of the message, not of its header."""

    __slots__ = ()

    MIN_VERSION: ClassVar[int]
    MAX_VERSION: ClassVar[int]
    FIRST_FLEXIBLE: ClassVar[int]
    """The first version in the flexible encoding (KIP-482), NEVER where there is none."""

    DECODERS: ClassVar[_Late[Codecs[Decoder]]] = _Late(
        lambda cls: Codecs(cls, lambda version: cls.CODECS[version].decode, _unreadable)
    )
    METERED_DECODERS: ClassVar[_Late[Codecs[MeteredDecoder]]] = _Late(
        lambda cls: Codecs(cls, lambda version: cls.CODECS[version].decode_metered, _unreadable)
    )
    """The decoders of requests that may be large."""

    @classmethod
    def decode(cls, buffer: Bytes, version: int, offset: int = 0) -> Self:
        """Read a message that begins at byte `offset`; bytes behind it are ignored. Raises ProtocolError.

        Fields of type records are views into `buffer`; everything else is copied.
        """
        message: Self = cls.DECODERS[version](buffer, offset)[0]
        return message

    @classmethod
    def decode_prefix(cls, buffer: Bytes, version: int, offset: int = 0) -> tuple[Self, int]:
        """As `decode`; also returns the position after the message."""
        return cls.DECODERS[version](buffer, offset)

    def encode_parts(self, version: int, prefix: Bytes = b"") -> list[Sized]:
        """`prefix` and the bytes of the message, as a list of parts that contains the caller's record objects.

        Records may be any object whose length is its size in bytes. Raises ValueError as `encode` does.
        """
        return self.ENCODERS[version](self, bytearray(prefix))


def build(definition: Definition, module: str) -> type[BaseMessage]:
    """The class of a message, with its structures as attributes; `module` is the value of its `__module__`."""
    classes: dict[str, type] = {}
    attributes: dict[str, Any] = {
        "MIN_VERSION": definition.versions.first,
        "MAX_VERSION": definition.versions.last,
        "FIRST_FLEXIBLE": definition.flexible.first if definition.flexible else NEVER,
        "SOURCE": Source(definition, definition.root, classes),
        "__module__": module,
    }
    if definition.key is not None:
        attributes["API_KEY"] = definition.key
    for struct in definition.structs.values():
        place: dict[str, Any] = {"__module__": module, "__qualname__": f"{definition.name}.{struct.name}"}
        place["SOURCE"] = Source(definition, struct, classes)
        attributes[struct.name] = classes[struct.name] = _class(struct, Struct, place, classes)
    message = classes[definition.name] = _class(definition.root, BaseMessage, attributes, classes)
    return message


@cache
def _errors_reporter(cls: type[Any], *, sliced: bool) -> Callable[..., None]:
    """Compiled, because it runs for every response: it reads only the fields that can contain an error code."""
    definition, root, _ = cls.SOURCE

    def lines(struct: StructSpec, value: str, indent: str) -> list[str]:
        found = []
        for field in struct.fields:
            member = f"{value}.{field.attribute}"
            if field.attribute == "error_code" and not field.is_array:
                found += [f"{indent}if {member}:", f"{indent}    report({member})"]
            elif field.is_struct:
                inner = lines(definition.structs[field.type], "x" + value, "    ")
                array = f"each({member} or ())" if sliced else f"{member} or ()"
                each = f"for x{value} in {array}:" if field.is_array else f"if (x{value} := {member}) is not None:"
                below = [each, *inner] if inner else []
                if field.preencoded and inner:
                    below = [
                        f"if {member}.__class__ is EncodedArray:",
                        f"    for code in {f'each({member}.error_codes)' if sliced else f'{member}.error_codes'}:",
                        "        report(code)",
                        "else:",
                        *("    " + line for line in below),
                    ]
                found += [indent + line for line in below]
        return found

    body = lines(root, "message", "    ") or ["    return"]
    parameters = "message, report, each" if sliced else "message, report"
    source = "\n".join([f"def report_errors({parameters}):", *body]) + "\n"
    filename = f"<odradek {'sliced ' * sliced}errors of {root.name}>"
    return compile_function(source, "report_errors", filename, {"EncodedArray": EncodedArray})


def _unreadable(name: str, reason: str) -> ProtocolError:
    return ProtocolError(name, 0, reason)


def _unwritable(name: str, reason: str) -> ValueError:
    return ValueError(f"{name}: {reason}")


def _class(struct: StructSpec, base: type, attributes: dict[str, Any], classes: dict[str, type]) -> type[Any]:
    names = tuple(field.attribute for field in struct.fields)
    cls = type(struct.name, (base,), {"__slots__": names, "ATTRIBUTES": names, **attributes})

    def compile_and_construct(self: Any, **fields: Any) -> None:
        """Replace this method by the real constructor, which is compiled when the first object is made."""
        constructor = _constructor(struct, cls.__qualname__, classes)
        cls.__init__ = constructor  # type: ignore[misc]
        defaults = ((field.attribute, *programs.initial(field, classes)) for field in struct.fields)
        constructors.install(cls, (*defaults, ("unknown_tagged_fields", programs.SHARED, None)))
        constructor(self, **fields)

    cls.__init__ = compile_and_construct  # type: ignore[misc]
    return cls


def _constructor(struct: StructSpec, qualified: str, classes: dict[str, type]) -> Callable[..., None]:
    """Compile the constructor: keyword arguments only, each with its default."""
    parameters = [f"{field.attribute}={_parameter(field)}" for field in struct.fields]
    lines = [f"def __init__(self, *, {', '.join([*parameters, 'unknown_tagged_fields=None'])}):"]
    for field in struct.fields:
        name, made = field.attribute, literal(field)
        value = f"{made} if {name} is NEW else {name}" if _parameter(field) == "NEW" else name
        lines.append(f"    self.{name} = {value}")
    lines.append("    self.unknown_tagged_fields = unknown_tagged_fields")
    filename = f"<odradek constructor of {qualified}>"
    return compile_function("\n".join(lines) + "\n", "__init__", filename, {**classes, "NEW": NEW})


def _parameter(field: Field) -> str:
    made = literal(field)
    return "NEW" if made == "[]" or made.endswith("()") else made


def _shown(value: object) -> str:
    return f"<{len(value)} bytes>" if isinstance(value, memoryview) else repr(value)
