"""Generated records for demos and loads: `{id:uuid,amount:float(1,100)}`.

| type | value |
|---|---|
| `uuid` | a random UUID |
| `seq` | 0, 1, 2, … |
| `int(a,b)`, `float(a,b)` | a number from a to b |
| `bool` | true or false |
| `choice(a,b,…)` | one of the texts |
| `text(n)` | n random letters |
| `now` | milliseconds since the epoch |

A field can also be an object: `{user:{id:int(1,9)},at:now}`. The field `key` of the outermost object becomes the key of
the record, if there is one, and is not in its value.
"""

from __future__ import annotations

import json
import re
import string
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from random import Random
from typing import Any, Final

from odradek.records.inputs import InputRecord

KEY: Final = "key"
_TOKEN: Final = re.compile(r"\s*(?:(?P<name>[A-Za-z_][\w.-]*)|(?P<text>[^{}():,\s]+)|(?P<sign>[{}():,]))")
Make = Callable[[Random, int], Any]
"""Makes a value from the random numbers and the number of the record."""


class GeneratorError(ValueError):
    """A description that cannot be read; the message states what is allowed."""


def _numbers(arguments: list[str], count: int, kind: str) -> list[float]:
    try:
        found = [float(each) for each in arguments]
    except ValueError as error:
        raise GeneratorError(f"{kind}: {error}") from error
    if len(found) != count:
        raise GeneratorError(f"{kind} takes {count} numbers, as {kind}({','.join('19'[:count])})")
    return found


def _int(arguments: list[str]) -> Make:
    low, high = _numbers(arguments, 2, "int")
    return lambda random, number: random.randint(int(low), int(high))


def _float(arguments: list[str]) -> Make:
    low, high = _numbers(arguments, 2, "float")
    return lambda random, number: round(random.uniform(low, high), 2)


def _choice(arguments: list[str]) -> Make:
    if not arguments:
        raise GeneratorError("choice takes texts, as choice(a,b)")
    return lambda random, number: random.choice(arguments)


def _text(arguments: list[str]) -> Make:
    (length,) = _numbers(arguments, 1, "text")
    return lambda random, number: "".join(random.choices(string.ascii_lowercase, k=int(length)))


TYPES: Final[Mapping[str, Callable[[list[str]], Make]]] = {
    "uuid": lambda arguments: lambda random, number: str(uuid.UUID(int=random.getrandbits(128), version=4)),
    "seq": lambda arguments: lambda random, number: number,
    "int": _int,
    "float": _float,
    "bool": lambda arguments: lambda random, number: random.random() < 0.5,
    "choice": _choice,
    "text": _text,
    "now": lambda arguments: lambda random, number: time.time_ns() // 1_000_000,
}
"""The types of fields."""


def generated(description: str, random: Random) -> Iterator[InputRecord]:
    """Records without end. Raises GeneratorError at once for a description that cannot be read."""
    reader = _Reader(description)
    make = reader.object()
    reader.end()
    return _records(make, random)


def _records(make: Make, random: Random) -> Iterator[InputRecord]:
    number = 0
    while True:
        value = make(random, number)
        key = value.pop(KEY, None)
        yield InputRecord(None if key is None else str(key).encode(), json.dumps(value).encode())
        number += 1


class _Reader:
    """Reads a description from left to right."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._position = 0

    def object(self) -> Make:
        """`{name:type,…}`."""
        self._expect("{")
        fields: dict[str, Make] = {}
        while True:
            name = self._next()
            self._expect(":")
            fields[name] = self._value()
            if self._next() == ",":
                continue
            if self._text[self._position - 1] != "}":
                raise self._error("`,` or `}`")
            return lambda random, number: {name: make(random, number) for name, make in fields.items()}

    def end(self) -> None:
        """Raises GeneratorError unless all is read."""
        if self._text[self._position :].strip():
            raise self._error("the end")

    def _value(self) -> Make:
        if self._peek() == "{":
            return self.object()
        kind = self._next()
        if kind not in TYPES:
            raise GeneratorError(f"{kind!r} is not a type; allowed: {', '.join(TYPES)}")
        arguments: list[str] = []
        if self._peek() == "(":
            self._expect("(")
            while self._peek() != ")":
                arguments.append(self._next())
                if self._peek() == ",":
                    self._expect(",")
            self._expect(")")
        return TYPES[kind](arguments)

    def _peek(self) -> str:
        before = self._position
        token = self._next()
        self._position = before
        return token

    def _next(self) -> str:
        found = _TOKEN.match(self._text, self._position)
        if found is None:
            raise self._error("more")
        self._position = found.end()
        return found[0].strip()

    def _expect(self, sign: str) -> None:
        if self._next() != sign:
            raise self._error(f"`{sign}`")

    def _error(self, expected: str) -> GeneratorError:
        read = self._text[: self._position]
        return GeneratorError(
            f"the description {self._text!r} lacks {expected} after {read!r}; see {{id:uuid,n:int(1,9)}}"
        )
