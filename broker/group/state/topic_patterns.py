"""Subscriptions by regular expression, with the syntax of RE2.

Kafka's coordinator matches with RE2/J, whose time is linear in the length of the name for every expression. With
Python's own `re`, a client could block the broker with an expression that backtracks. An expression matches a topic if
it matches the whole name.
"""

from __future__ import annotations

from collections.abc import Iterable

import re2

from odradek.protocol.errors import ErrorCode, KafkaError

_OPTIONS = re2.Options()
_OPTIONS.log_errors = False


def check_pattern(pattern: str) -> None:
    """Raises KafkaError(INVALID_REGULAR_EXPRESSION)."""
    _compile(pattern)


def matching(pattern: str, names: Iterable[str]) -> tuple[str, ...]:
    """The names that match as a whole, ascending; none for an invalid expression."""
    try:
        compiled = _compile(pattern)
    except KafkaError:
        return ()
    return tuple(sorted(name for name in names if compiled.fullmatch(name)))


def _compile(pattern: str) -> re2._Regexp[str]:
    try:
        return re2.compile(pattern, options=_OPTIONS)
    except re2.error as error:
        detail = error.args[0] if error.args else error
        text = detail.decode(errors="replace") if isinstance(detail, bytes) else str(detail)
        raise KafkaError(
            ErrorCode.INVALID_REGULAR_EXPRESSION,
            f"SubscribedTopicRegex `{pattern}` is not a valid regular expression: {text}.",
        ) from None
