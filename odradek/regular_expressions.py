"""Regular expressions of users, by RE2: each match takes linear time, so that no pattern makes a command hang."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class PatternError(ValueError):
    """A text that is no regular expression of RE2; the message contains the reason."""


def search_of(pattern: str, *, literal: bool = False, case_sensitive: bool = True) -> Callable[[bytes], object]:
    """What finds a pattern in bytes of UTF-8: None where they have no match. Raises PatternError."""
    found: Callable[[bytes], object] = _compiled(pattern, literal, case_sensitive).search
    return found


def fullmatch_of(pattern: str) -> Callable[[str], bool]:
    """Whether a pattern matches the whole of a text. Raises PatternError."""
    fullmatch = _compiled(pattern, False, True).fullmatch
    return lambda text: fullmatch(text.encode()) is not None


def _compiled(pattern: str, literal: bool, case_sensitive: bool) -> Any:
    import re2  # imported late: a command without a pattern starts without it

    options = re2.Options()
    options.log_errors = False
    options.literal = literal
    options.case_sensitive = case_sensitive
    try:
        return re2.compile(pattern.encode(), options)
    except re2.error as error:
        reason = error.args[0].decode(errors="replace")
        raise PatternError(f"{pattern!r} is not a regular expression of RE2: {reason}") from error
    except UnicodeEncodeError as error:
        raise PatternError(f"{pattern!r} is not a text of UTF-8") from error
