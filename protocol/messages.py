"""The message classes of the Kafka protocol, by name: `messages.FetchRequest`, `messages.OffsetCommitKey` and so on.

The definition texts beside this module list the messages. Importing the module reads none of them; the first use of any
name reads all of them (a few milliseconds, once), and the first use of a message parses its own text only. No file is
opened after that: a broker without a free file descriptor must still be able to parse a request.
`messages.pyi` is the stub for type checkers and editors, written by `python -m odradek.protocol.stubs`.
"""

from __future__ import annotations

import sys
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple

from odradek.protocol.grammar import HEADING, NEVER, Versions, parse

FOLDER: Final = Path(__file__).with_name("definitions")


class Api(NamedTuple):
    """An API: its name as Kafka prints it, its key, the versions that can be read, the first flexible one or NEVER."""

    name: str
    key: int
    min: int
    max: int
    first_flexible: int


def texts() -> dict[str, Path]:
    """The name of every message, with the text that defines it."""
    return _headings()[0]


def request_class(api_key: int) -> type[Any]:
    """The request class of an API. Raises KeyError for a key that has no definition."""
    message: type[Any] = getattr(sys.modules[__name__], _headings()[1][api_key].name + "Request")
    return message


def response_class(api_key: int) -> type[Any]:
    """The response class of an API. Raises KeyError for a key that has no definition."""
    message: type[Any] = getattr(sys.modules[__name__], _headings()[1][api_key].name + "Response")
    return message


@cache
def _text(path: Path) -> str:
    with open(path, encoding="utf-8") as file:  # sooner than Path.read_text, for as many files as there are APIs
        return file.read()


@cache
def _headings() -> tuple[dict[str, Path], dict[int, Api]]:
    names: dict[str, Path] = {}
    found: dict[int, Api] = {}
    for path in sorted(FOLDER.glob("*.txt")):
        for heading in HEADING.finditer(_text(path)):
            name = heading["name"]
            names[name] = path
            if heading["kind"] == "request":
                versions, key = Versions.parse(heading["versions"]), int(heading["key"])
                flexible = Versions.parse(heading["flexible"] or "none")
                first_flexible = flexible.first if flexible else NEVER
                found[key] = Api(name.removesuffix("Request"), key, versions.first, versions.last, first_flexible)
    return names, dict(sorted(found.items()))


def __getattr__(name: str) -> Any:
    if name == "APIS":
        globals()[name] = _headings()[1]  # every API by key
    elif not name.startswith("_") and name in texts():
        from odradek.protocol.classes import build  # the compiler is loaded with the first message, not with the names

        path = texts()[name]
        for definition in parse(_text(path), path.name).values():
            globals()[definition.name] = build(definition, __name__)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return globals()[name]


def __dir__() -> list[str]:
    return sorted({*globals(), *texts(), "APIS"})
