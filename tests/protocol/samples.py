"""Makes message objects with all kinds of values in all their fields, for one message in one version."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection
from functools import cache
from typing import Any, Literal

from odradek.protocol import messages
from odradek.protocol.compile import Shape
from odradek.protocol.grammar import Field, MessageSpec, StructSpec, parse

Value = Callable[[random.Random], Any]
Special = Callable[[str, Field], Value | None]
"""From the name of a structure and a field of it: how to make values other than the usual ones."""

INTEGERS = {
    "int8": (-(2**7), 2**7 - 1),
    "int16": (-(2**15), 2**15 - 1),
    "uint16": (0, 2**16 - 1),
    "int32": (-(2**31), 2**31 - 1),
    "int64": (-(2**63), 2**63 - 1),
}
STRINGS = ("", "a", "perf-topic", "größe", "\N{SNOWMAN}", "\N{DROMEDARY CAMEL}", "x" * 127, "y" * 300)


@cache
def definitions() -> dict[str, MessageSpec]:
    """Every message of Odradek, by name."""
    paths = sorted(set(messages.texts().values()))
    return {name: found for path in paths for name, found in parse(path.read_text(encoding="utf-8")).items()}


def every_version() -> list[tuple[str, int]]:
    """Every message with every version that it has."""
    return [(name, version) for name, message in definitions().items() for version in message.versions]


def usual(struct: str, field: Field) -> Value | None:
    """The usual values for every field."""
    return None


Nulls = Literal["none", "some", "all"]
"""How many of the values that may be null are null. With "none" and "all", every tagged field is set."""


def sample(
    name: str,
    version: int,
    rng: random.Random,
    *,
    special: Special = usual,
    unknown_tags: bool = True,
    nulls: Nulls = "some",
    without: Collection[str] = (),
) -> Any:
    """An object of the message `name` with values for the fields that `version` carries.

    Tagged fields whose name is in `without` keep their defaults.
    """
    return _Maker(Shape(definitions()[name], version), rng, special, unknown_tags, nulls, without).root()


class _Maker:
    def __init__(
        self,
        shape: Shape,
        rng: random.Random,
        special: Special,
        unknown_tags: bool,
        nulls: Nulls,
        without: Collection[str],
    ) -> None:
        self._message = shape.message
        self._shape = shape
        self._rng = rng
        self._special = special
        self._unknown_tags = unknown_tags
        self._nulls = nulls
        self._without = without
        self._class = getattr(messages, shape.message.name)

    def root(self) -> Any:
        return self._class(**self._fields(self._message.root))

    def _fields(self, struct: StructSpec) -> dict[str, Any]:
        made: dict[str, Any] = {}
        for field in self._shape.present(struct):
            made[field.attribute] = self._value(struct, field)
        for field in self._shape.tagged(struct):
            if field.name not in self._without and (self._nulls != "some" or self._rng.randint(0, 1)):
                made[field.attribute] = self._value(struct, field)
        skipped = self._message.name.endswith("Request")  # on decoding, so it would not be equal
        if self._shape.flexible and self._unknown_tags and not skipped and self._rng.randint(0, 3) == 0:
            made["unknown_tagged_fields"] = [(200, b""), (70000, self._rng.randbytes(self._rng.randint(0, 200)))]
        return made

    def _value(self, struct: StructSpec, field: Field) -> Any:
        if self._shape.is_nullable(field) and self._is_null():
            return None
        if field.is_array:
            size = self._rng.choice((0, 1, 2) if field.is_struct else (0, 1, 2, 130))
            return [self._single(struct, field) for _ in range(size)]
        value = self._single(struct, field)
        # A structure that equals its defaults is encoded as no tag at all, and decoded as None.
        return None if field.absent_is_none and value == type(value)() else value

    def _is_null(self) -> bool:
        return self._nulls == "all" or (self._nulls == "some" and self._rng.randint(0, 3) == 0)

    def _single(self, struct: StructSpec, field: Field) -> Any:
        rng, make = self._rng, self._special(struct.name, field)
        if make is not None:
            return make(rng)
        if field.is_struct:
            inner = self._message.structs[field.type]
            return getattr(self._class, field.type)(**self._fields(inner))
        if field.type in INTEGERS:
            low, high = INTEGERS[field.type]
            return rng.choice((0, 1, low, high, rng.randint(low, high), rng.randint(max(low, -3), 200 % (high + 1))))
        if field.type == "bool":
            return rng.randint(0, 1) == 1
        if field.type == "float64":
            return rng.choice((0.0, -1.5, 1e300, rng.random()))
        if field.type == "uuid":
            return rng.choice((bytes(16), rng.randbytes(16)))
        if field.type == "string":
            return rng.choice(STRINGS)
        data = rng.randbytes(rng.choice((0, 1, 126, 127, 128, 20000 if field.type == "records" else 200)))
        return memoryview(data) if field.type == "records" else data
