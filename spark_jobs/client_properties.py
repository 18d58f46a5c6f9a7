"""Properties of Kafka's clients on the command line: KEY=VALUE, or @FILE for a file of them (Java: Properties.load).

A password belongs into a file: every user of the machine can read the arguments of a process.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import click

METAVAR: Final = "KEY=VALUE|@FILE"
_ESCAPES: Final = {"n": "\n", "t": "\t", "r": "\r", "f": "\f"}
_KEY: Final = re.compile(r"((?:\\.|[^\\=:\s])*)\s*[=:]?\s*(.*)", re.DOTALL)


def properties_of(context: click.Context, parameter: click.Parameter, values: Sequence[str]) -> dict[str, str]:
    """The properties of an option that may be repeated; a later value replaces an earlier one.

    Raises click.BadParameter, without the value of a property.
    """
    found: dict[str, str] = {}
    for value in values:
        if value.startswith("@"):
            try:
                found |= parse_properties(Path(value[1:]).read_text("utf-8"))
            except (OSError, ValueError) as error:
                raise click.BadParameter(f"{value[1:]} cannot be read: {error}", context, parameter) from None
        elif "=" not in value or value.startswith("="):
            raise click.BadParameter(f"{value!r} is not {METAVAR}", context, parameter)
        else:
            key, _, text = value.partition("=")
            found[key] = text
    return {key.removeprefix("kafka."): text for key, text in found.items()}


def parse_properties(text: str) -> dict[str, str]:
    """The properties of a file, as Java reads it: comments, continued lines, escapes. Raises ValueError."""
    found = {}
    for line in _logical_lines(text):
        match = _KEY.fullmatch(line)
        assert match is not None, "the pattern matches every line"
        key, value = (_unescaped(part) for part in match.groups())
        found[key] = value
    return found


def _logical_lines(text: str) -> Iterator[str]:
    """Lines without comments; a line that ends in a backslash is continued by the next one, if there is one."""
    held = ""
    for line in re.split(r"\r\n|\r|\n", text):
        stripped = line.lstrip(" \t\f")
        if not held and stripped.startswith(("#", "!")):
            continue
        held += stripped
        if (len(held) - len(held.rstrip("\\"))) % 2:
            held = held[:-1]
        elif held:
            yield held
            held = ""
    if held:
        yield held


def _unescaped(text: str) -> str:
    def replaced(match: re.Match[str]) -> str:
        code, character = match.groups()
        if character == "u":
            raise ValueError("\\u is followed by four hexadecimal digits")
        return chr(int(code, 16)) if code else _ESCAPES.get(character, character)

    return re.sub(r"\\(?:u([0-9a-fA-F]{4})|(.))", replaced, text, flags=re.DOTALL)
