"""Subscriptions by regular expression, with the syntax of RE2.

Kafka's coordinator matches with RE2/J, whose time is linear in the length of the name for every expression. With
Python's own `re`, a client could block the broker with an expression that backtracks. An expression matches a topic if
it matches the whole name.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any

from odradek.broker.group.state.interruptible import in_order
from odradek.broker.runtime.state.effects import Each
from odradek.protocol.errors import ErrorCode, KafkaError


def check_pattern(pattern: str) -> None:
    """Raises KafkaError(INVALID_REGULAR_EXPRESSION)."""
    _compile(pattern)


def matching(pattern: str, names: Iterable[str], each: Each) -> tuple[str, ...]:
    """The names that match as a whole, ascending; none for an invalid expression. `each` may interrupt."""
    try:
        compiled = _compile(pattern)
    except KafkaError:
        return ()
    # The match of a text has offsets in characters, which the binding computes in Python: bytes take half of the time.
    return tuple(in_order([name for name in each(names) if compiled.fullmatch(name.encode())], str, each))


@cache
def _options() -> Any:
    import re2

    options = re2.Options()
    options.log_errors = False  # errors of clients do not belong on the broker's standard error
    return options


def _compile(pattern: str) -> Any:
    import re2  # imported late: few groups have an expression, and the library takes 3 MB

    try:
        return re2.compile(pattern, options=_options())
    except re2.error as error:
        detail = error.args[0] if error.args else error
        text = detail.decode(errors="replace") if isinstance(detail, bytes) else str(detail)
        raise KafkaError(
            ErrorCode.INVALID_REGULAR_EXPRESSION,
            f"SubscribedTopicRegex `{pattern}` is not a valid regular expression: {text}.",
        ) from None
