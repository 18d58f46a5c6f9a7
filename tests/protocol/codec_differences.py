"""Compares the C codec engine with the generated functions, on valid and on corrupted messages and objects.

The tests run a few thousand comparisons. A campaign of any length, on a build with sanitizers:

    make sanitize ARGS="--rounds 1000 --seed 7"
"""

from __future__ import annotations

import argparse
import random
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import IntEnum
from functools import cache
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

from odradek.protocol import constructors, messages, programs
from odradek.protocol.classes import Struct
from odradek.protocol.errors import ProtocolError
from odradek.protocol.grammar import StructSpec
from tests.protocol.corrupted import spoiled
from tests.protocol.samples import definitions, every_version, sample

TAKES_NO_PART = object()
"""What the engine returns where it leaves the work to the generated functions."""


def classes_of(name: str) -> dict[str, type]:
    """The classes of a message and its structures."""
    message = getattr(messages, name)
    return {name: message} | {inner: getattr(message, inner) for inner in definitions()[name].structs}


@cache
def generated(name: str, version: int, struct_: str = "") -> programs.MessageCodecs:
    """The generated functions of a message, or of a structure inside it."""
    return programs.generated(definitions()[name], _spec(name, struct_), version, classes_of(name))


@cache
def engine(name: str, version: int, struct_: str = "") -> programs.MessageCodecs:
    """The same in C, returning TAKES_NO_PART in place of a call of a generated function."""

    def leave(*_arguments: Any) -> Any:
        return TAKES_NO_PART

    behind = programs.MessageCodecs(leave, leave, leave)
    spec = _spec(name, struct_)
    program = programs.program_of(definitions()[name], spec, version, classes_of(name), behind)
    return programs.MessageCodecs(program.decode, program.decode_metered, program.encode)


def _spec(name: str, struct_: str) -> StructSpec:
    message = definitions()[name]
    return message.structs[struct_] if struct_ else message.root


def is_same(left: Any, right: Any) -> bool:
    """Whether two values are equal in all parts and their types, views of the same object included."""
    if type(left) is not type(right):
        return False
    if isinstance(left, Struct):
        names = (*left.ATTRIBUTES, "unknown_tagged_fields")
        return all(is_same(getattr(left, name), getattr(right, name)) for name in names)
    if isinstance(left, list | tuple):
        return len(left) == len(right) and all(map(is_same, left, right))
    if isinstance(left, memoryview):
        return left.obj is right.obj and left == right
    if isinstance(left, float):
        return struct.pack("d", left) == struct.pack("d", right)
    return bool(left == right)


def outcome(call: Callable[[], Any]) -> Any:
    """The result of a call, or its exception as data."""
    try:
        return call()
    except ProtocolError as error:
        return ("malformed", error.field, error.position, error.reason)
    except (ValueError, TypeError, AttributeError, OverflowError, BufferError) as error:
        return (type(error), str(error))


@dataclass
class Counts:
    """How many comparisons there were, and in how many of them the engine did the work."""

    decoded: int = 0
    decoded_in_c: int = 0
    encoded: int = 0
    encoded_in_c: int = 0
    differences: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return (
            f"decoded {self.decoded_in_c} of {self.decoded}, encoded {self.encoded_in_c} of {self.encoded} in C, "
            f"{len(self.differences)} differences"
        )


def compare_decoding(name: str, version: int, data: bytes | bytearray | memoryview, pos: int, counts: Counts) -> Any:
    """Decode with both; returns the engine's object, or None."""
    found = engine(name, version).decode(data, pos)
    counts.decoded += 1
    if found is TAKES_NO_PART:
        return None
    counts.decoded_in_c += 1
    expected = outcome(lambda: generated(name, version).decode(data, pos))
    if not is_same(found, expected):
        counts.differences.append(f"{name} v{version} decode {bytes(data).hex()} at {pos}: {found} {expected}")
    return found[0]


def compare_encoding(name: str, version: int, message: Any, counts: Counts, struct_: str = "") -> None:
    """Encode with both, after the same first bytes."""
    ours, theirs = bytearray(b"head"), bytearray(b"head")
    found = engine(name, version, struct_).encode(message, ours)
    counts.encoded += 1
    if found is TAKES_NO_PART:
        if ours != b"head":
            counts.differences.append(f"{name} v{version} encode {message}: wrote {ours!r} and gave up")
        return
    counts.encoded_in_c += 1
    expected = outcome(lambda: generated(name, version, struct_).encode(message, theirs))
    if found[0] is not ours or not is_same(found, expected):
        counts.differences.append(f"{name} v{version} encode {message}: {found} {expected}")


class Number(IntEnum):
    """A number as handlers write it."""

    SEVEN = 7


class Text(str):
    """A text of a type of its own."""

    __slots__ = ()


ODD_VALUES: tuple[Any, ...] = (
    None, True, False, 0, -1, 7, Number.SEVEN, 2**7, 2**15, 2**16 - 1, 2**31, 2**32, -(2**63), 2**63, 1.5, float("nan"),
    "", "x" * 32767, "x" * 32768, "größe", "\udc80", Text("t"), b"", b"i" * 16, bytes(16), bytearray(b"i" * 16),
    memoryview(b"bytes"), memoryview(b"bytes")[::2], memoryview(struct.pack("2i", 1, 2)).cast("i"), [], (), [None],
    (1, 2), ["a"], range(3), {}, object(),
)  # fmt: skip


def with_odd_value(message: Any, rng: random.Random) -> None:
    """Replace a random field of a random structure, or an element of an array, by a value that may not fit."""
    while True:
        name = rng.choice((*message.ATTRIBUTES, "unknown_tagged_fields"))
        value = getattr(message, name)
        inner = [value] if isinstance(value, Struct) else []
        if isinstance(value, list):
            inner = [each for each in value if isinstance(each, Struct)]
            if value and rng.randint(0, 9) == 0:
                value[rng.randrange(len(value))] = rng.choice(ODD_VALUES)
                return
        if not inner or rng.randint(0, 1):
            break
        message = rng.choice(inner)
    if rng.randint(0, 20) == 0:
        delattr(message, name)
    else:
        setattr(message, name, rng.choice(ODD_VALUES))


def compare(name: str, version: int, rng: random.Random, counts: Counts, *, valid: bool, spoils: int) -> None:
    """Compare both on one sample: as it is, and with corrupted bytes and values."""
    message = sample(name, version, rng, unknown_tags=rng.randint(0, 3) == 0)
    data = message.encode(version)
    if valid:
        padded = b"before" + data + b"and what follows"
        for buffer in (padded, bytearray(padded), memoryview(padded)):
            compare_decoding(name, version, buffer, 6, counts)
        compare_encoding(name, version, message, counts)
    for _ in range(spoils):
        found = compare_decoding(name, version, spoiled(data, rng), 0, counts)
        if found is not None:
            with_odd_value(found, rng)
            compare_encoding(name, version, found, counts)


def load(folder: Path, name: str, user: ModuleType) -> None:
    """Use the extension of a build below a folder."""
    (library,) = folder.glob(f"odradek/protocol/{name}.*.so")
    spec = spec_from_file_location(f"odradek.protocol.{name}", library)
    assert spec is not None
    assert spec.loader is not None
    built = module_from_spec(spec)
    spec.loader.exec_module(built)
    setattr(user, name, built)


def main() -> None:
    """Run a campaign. Raises SystemExit with the differences."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=10, help="how often every message and version is compared")
    parser.add_argument("--spoils", type=int, default=50, help="corrupted copies of each sample")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--library", type=Path, help="the folder of another build of the extensions")
    arguments = parser.parse_args()
    if arguments.library is not None:
        load(arguments.library, "_codec", programs)
        load(arguments.library, "_constructors", constructors)
    rng, counts = random.Random(arguments.seed), Counts()
    for _ in range(arguments.rounds):
        for name, version in every_version():
            compare(name, version, rng, counts, valid=True, spoils=arguments.spoils)
        print(counts, flush=True)
        if counts.differences:
            raise SystemExit("\n".join(counts.differences[:10]))


if __name__ == "__main__":
    main()
