"""Java's regular expressions and replacements, as far as rules for names use them (java.util.regex.Pattern, Matcher).

A pattern is translated to Python's `re`, construct by construct. A construct that `re` does not have, or that means
something else there, is rejected, so that a broker does not start with a rule that maps names differently than Kafka.

A pattern that could take exponential time is rejected, too, which Java does not do: a group must not repeat if its
contents match in several ways, as those of `(a+)+` or `(a|ab)*` do.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Final

_LINE_ENDS: Final = r"\n\r\u0085\u2028\u2029"
_DOT: Final = f"[^{_LINE_ENDS}]"
_END: Final = r"(?:\Z|(?=\r\n\Z)|(?<!\r)(?=\n\Z)|(?=[\r\u0085\u2028\u2029]\Z))"
_CONTROLS: Final = {"t": r"\t", "n": r"\n", "r": r"\r", "f": r"\f", "a": r"\x07", "e": r"\x1b"}
_CLASSES: Final = frozenset("dDsSwW")
_GROUPS: Final = ("?:", "?=", "?!", "?<=", "?<!", "?>", "?i:")
_QUANTIFIER: Final = re.compile(r"[*+?]|\{[0-9]+(?:,[0-9]*)?\}")
_HEXADECIMAL: Final = frozenset("0123456789abcdefABCDEF")
_NAME: Final = re.compile(r"\?<([A-Za-z][A-Za-z0-9]*)>")


class JavaRegexError(ValueError):
    """A pattern or a replacement that Java rejects, or that has no translation."""


def compile_java(pattern: str) -> re.Pattern[str]:
    """The translated pattern. Raises JavaRegexError."""
    try:
        return re.compile(_Translation(pattern).text(), re.ASCII)
    except (re.error, OverflowError, RecursionError) as error:
        raise JavaRegexError(f"Invalid regular expression {pattern!r}: {error}") from error


class _Group:
    """What a group contains, as far as its repetition depends on it."""

    def __init__(self) -> None:
        self._ambiguous = False
        self._begins: list[str | None] = [None]
        """The literal character at the begin of each alternative; None for another begin."""
        self._at_begin = True

    def add(self, literal: str | None) -> None:
        """Another construct."""
        if self._at_begin:
            self._begins[-1] = literal.lower() if literal is not None else None
        self._at_begin = False

    def add_alternative(self) -> None:
        self._begins.append(None)
        self._at_begin = True

    def add_choice(self) -> None:
        """A construct that matches different lengths."""
        self._ambiguous = True

    @property
    def is_ambiguous(self) -> bool:
        """Whether one text may match in several ways; alternatives with different first characters cannot."""
        begins = self._begins
        return self._ambiguous or (len(begins) > 1 and (None in begins or len(set(begins)) < len(begins)))


class _Repetitions:
    """Finds repetitions that take exponential time."""

    def __init__(self) -> None:
        self._open = [_Group()]
        self._closed: _Group | None = None
        """The group that has just ended."""
        self._quantified = False

    def add(self, literal: str | None = None) -> None:
        self._closed, self._quantified = None, False
        self._open[-1].add(literal)

    def begin_group(self) -> None:
        self.add()
        self._open.append(_Group())

    def add_alternative(self) -> None:
        self._closed, self._quantified = None, False
        self._open[-1].add_alternative()

    def end_group(self) -> None:
        self._quantified = False
        if len(self._open) > 1:  # otherwise the pattern is invalid, which its compilation finds
            self._closed = self._open.pop()
            if self._closed.is_ambiguous:
                self._open[-1].add_choice()

    def allows(self, quantifier: str) -> bool:
        """Whether this quantifier may follow."""
        if self._quantified:  # it makes the quantifier before it lazy or possessive
            return True
        self._quantified = True
        least, comma, most = quantifier.strip("{}").partition(",")
        repeats = quantifier != "?" and (least, comma) not in {("1", ""), ("0", "")} and most not in {"0", "1"}
        if repeats and self._closed is not None and self._closed.is_ambiguous:
            return False
        if comma or not least.isdecimal():
            self._open[-1].add_choice()
        return True


class _Translation:
    """Reads a pattern of Java from left to right."""

    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self._at = 0
        self._repetitions = _Repetitions()

    def text(self) -> str:
        return "".join(self._parts())

    def _parts(self) -> Iterator[str]:
        if self._pattern.startswith("(?i)"):
            self._at = 4
            yield "(?i)"
        while self._at < len(self._pattern):
            yield self._part()

    def _fail(self, what: str) -> JavaRegexError:
        return JavaRegexError(f"{what} at {self._at} of the regular expression {self._pattern!r} is not supported")

    def _next(self) -> str:
        if self._at == len(self._pattern):
            raise self._fail("the end")
        self._at += 1
        return self._pattern[self._at - 1]

    def _part(self) -> str:
        """One construct."""
        quantifier = _QUANTIFIER.match(self._pattern, self._at)
        if quantifier is not None:
            if not self._repetitions.allows(quantifier[0]):
                raise self._fail("the repetition, which takes exponential time,")
            self._at = quantifier.end()
            return quantifier[0]
        return self._item()

    def _item(self) -> str:
        """One construct that is no quantifier."""
        repetitions = self._repetitions
        match self._next():
            case "(":
                repetitions.begin_group()
                return self._group()
            case ")":
                repetitions.end_group()
                return ")"
            case "|":
                repetitions.add_alternative()
                return "|"
            case "^":
                return "^"
            case "\\":
                repetitions.add()
                return self._escape()
            case "[":
                repetitions.add()
                return self._character_class()
            case ".":
                repetitions.add()
                return _DOT
            case "$":
                return _END
            case "{":
                raise self._fail("a brace")
            case character:
                repetitions.add(character)
                return re.escape(character)

    def _escape(self) -> str:
        """The construct behind a backslash, outside of a class."""
        character = self._next()
        match character:
            case "Q":
                literal, end, _ = self._pattern[self._at :].partition("\\E")
                self._at += len(literal) + len(end)
                return "".join(map(re.escape, literal))
            case "k":
                name = re.compile(r"<([A-Za-z][A-Za-z0-9]*)>").match(self._pattern, self._at)
                if name is None:
                    raise self._fail("a reference")
                self._at = name.end()
                return f"(?P={name[1]})"
            case "Z":
                return _END
            case "z":
                return r"\Z"
            case "A" | "b" | "B":
                return f"\\{character}"
        if character in "123456789":
            if self._pattern[self._at : self._at + 1].isdecimal():
                raise self._fail("a reference of two digits")
            return f"(?:\\{character})"
        return self._escaped_character(character)

    def _escaped_character(self, character: str) -> str:
        """An escape that has the same meaning within a class."""
        if character in _CLASSES:
            return f"\\{character}"
        if character in _CONTROLS:
            return _CONTROLS[character]
        if character in "xu":
            length = 2 if character == "x" else 4
            digits = self._pattern[self._at : self._at + length]
            if len(digits) != length or not set(digits) <= _HEXADECIMAL:
                raise self._fail("a hexadecimal escape")
            self._at += length
            return re.escape(chr(int(digits, 16)))
        if character.isascii() and character.isalnum():
            raise self._fail(f"\\{character}")
        return re.escape(character)

    def _group(self) -> str:
        name = _NAME.match(self._pattern, self._at)
        if name is not None:
            self._at = name.end()
            return f"(?P<{name[1]}>"
        for kind in _GROUPS:
            if self._pattern.startswith(kind, self._at):
                self._at += len(kind)
                return f"({kind}"
        if self._pattern.startswith("?", self._at):
            raise self._fail("a group of this kind")
        return "("

    def _character_class(self) -> str:
        """A class without unions and intersections."""
        negated = self._pattern.startswith("^", self._at)
        self._at += negated
        parts: list[str] = []
        while (character := self._next()) != "]" or not parts:
            if character in "[]" or self._pattern.startswith("&&", self._at - 1):
                raise self._fail("a union or intersection of classes")
            if character == "\\":
                parts.append(self._escaped_character(self._next()))
            elif character == "-" and parts and self._pattern[self._at : self._at + 1] != "]":
                parts.append("-")
            else:
                parts.append(re.escape(character))
        return f"[{'^' if negated else ''}{''.join(parts)}]"


def find_all(pattern: re.Pattern[str], text: str) -> Iterator[re.Match[str]]:
    """Matches as Matcher.find returns them: a search behind an empty match begins one character later.

    Python's finditer begins at the same place again, for a match that is not empty.
    """
    at = 0
    while at <= len(text) and (found := pattern.search(text, at)) is not None:
        yield found
        at = found.end() + (found.start() == found.end())


Replacement = Callable[["re.Match[str]"], str]


def parse_replacement(text: str, pattern: re.Pattern[str]) -> Replacement:
    """The replacement of Matcher.replaceAll: $1, ${name}, and a backslash before a literal. Raises JavaRegexError."""
    parts: list[str | int] = []
    at = 0
    while at < len(text):
        if text[at] == "\\":
            if at + 1 == len(text):
                raise JavaRegexError(f"the replacement {text!r} ends with a backslash")
            parts.append(text[at + 1])
            at += 2
        elif text[at] == "$":
            group, at = _reference(text, at + 1, pattern)
            parts.append(group)
        else:
            parts.append(text[at])
            at += 1

    def expand(found: re.Match[str]) -> str:
        return "".join(part if isinstance(part, str) else found[part] or "" for part in parts)

    return expand


def replace(pattern: re.Pattern[str], replacement: Replacement, text: str, *, every: bool = True) -> str:
    """The text after Matcher.replaceAll or replaceFirst."""
    parts, copied = [], 0
    for found in find_all(pattern, text):
        parts += [text[copied : found.start()], replacement(found)]
        copied = found.end()
        if not every:
            break
    return "".join([*parts, text[copied:]])


def _reference(text: str, at: int, pattern: re.Pattern[str]) -> tuple[int, int]:
    """A group, and the place behind it: as many digits as still name a group."""
    if text.startswith("{", at):
        name, brace, _ = text[at + 1 :].partition("}")
        if not brace or name not in pattern.groupindex:
            raise JavaRegexError(f"the replacement {text!r} names a group that does not exist")
        return pattern.groupindex[name], at + len(name) + 2
    end = at + 1
    if not _is_digit(text[at:end]) or int(text[at]) > pattern.groups:
        raise JavaRegexError(f"the replacement {text!r} has a reference without a group")
    while _is_digit(text[end : end + 1]) and int(text[at : end + 1]) <= pattern.groups:
        end += 1
    return int(text[at:end]), end


def _is_digit(text: str) -> bool:
    return len(text) == 1 and text in "0123456789"
