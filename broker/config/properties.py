"""Reads a Java .properties file, the format of Kafka's server.properties (java.util.Properties.load).

Lines end at LF, CR or CRLF; a line that ends in an odd number of backslashes continues in the next, whose leading
blanks are removed. `#` and `!` begin a comment. A key ends at the first unescaped `=`, `:` or blank. The escapes are
\\t, \\n, \\r, \\f and \\uXXXX; a backslash before any other character is removed. Bytes are ISO 8859-1. For a repeated
key, the last value is used.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from odradek.broker.config.types import ConfigError

_BLANKS: Final = " \t\f"
_ESCAPES: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def parse_properties(content: bytes) -> dict[str, str]:
    """The properties in `content`, in file order. Raises ConfigError for a broken \\u escape."""
    properties = {}
    for line in _logical_lines(content.decode("latin-1")):
        key_end = _key_end(line)
        value_start = key_end
        while value_start < len(line) and line[value_start] in _BLANKS:
            value_start += 1
        if value_start < len(line) and line[value_start] in "=:":
            value_start += 1
        properties[_unescape(line[:key_end])] = _unescape(line[value_start:].lstrip(_BLANKS))
    return properties


def _logical_lines(text: str) -> Iterator[str]:
    """Lines with their continuations joined, without blank lines and comments."""
    naturals = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    if not naturals[-1]:
        naturals.pop()
    pending = ""
    continued = False
    for natural in naturals:
        line = natural.lstrip(_BLANKS)
        if not pending and (not line or line[0] in "#!"):
            continued = False
            continue
        continued = (len(line) - len(line.rstrip("\\"))) % 2 == 1
        pending += line[:-1] if continued else line
        if not continued:
            yield pending
            pending = ""
    if continued or pending:
        yield pending


def _key_end(line: str) -> int:
    position = 0
    while position < len(line) and line[position] not in "=: \t\f":
        position += 2 if line[position] == "\\" else 1
    return min(position, len(line))


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    pieces = []
    position = 0
    while (slash := text.find("\\", position)) >= 0:
        pieces.append(text[position:slash])
        escape = text[slash + 1 : slash + 2]
        position = slash + 2
        if escape == "u":
            pieces.append(_code_unit(text[position : position + 4]))
            position += 4
        else:
            pieces.append(_ESCAPES.get(escape, escape))
    pieces.append(text[position:])
    # Java escapes a character beyond the 16-bit plane as two surrogates; together they are one character here.
    return "".join(pieces).encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _code_unit(digits: str) -> str:
    if len(digits) != 4 or any(digit not in "0123456789abcdefABCDEF" for digit in digits):
        raise ConfigError(f"Malformed \\uxxxx encoding in the properties file: \\u{digits}")
    return chr(int(digits, 16))
