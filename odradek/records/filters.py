"""Which consumed records are shown: by key, by header, and by an expression over the record (CEL).

The expression is Google's Common Expression Language, evaluated by `cel-python` (extra `cel`). It has `value` (JSON, or
text), `key`, `headers`, `topic`, `partition`, `offset` and `timestamp`:

    value.amount > 100.0 && headers.source == "shop"
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from odradek.records.consumed import ConsumedRecord, json_value
from odradek.regular_expressions import PatternError, search_of

Filter = Callable[[ConsumedRecord], bool]


class FilterError(ValueError):
    """An expression that cannot be used; the message states why."""


def key_filter(pattern: str) -> Filter:
    """Records whose key contains a match of a regular expression of RE2. Raises FilterError.

    RE2 takes time in proportion to the key; with Python's `re` a pattern like `(a+)+$` could hold the process.
    """
    search = _search(pattern)
    return lambda record: record.key is not None and search(record.key) is not None


def text_filter(text: str) -> Filter:
    """Records with a text in the key or the value, in any case."""
    if text.isascii():  # several times as fast as RE2
        wanted = text.lower().encode()
        return lambda record: wanted in (record.key or b"").lower() or wanted in (record.value or b"").lower()
    search = _search(text, literal=True, case_sensitive=False)
    return lambda record: search(record.key or b"") is not None or search(record.value or b"") is not None


def _search(pattern: str, *, literal: bool = False, case_sensitive: bool = True) -> Callable[[bytes], object]:
    """RE2's search for a pattern in UTF-8. Raises FilterError."""
    try:
        return search_of(pattern, literal=literal, case_sensitive=case_sensitive)
    except PatternError as error:
        raise FilterError(str(error)) from error


def header_filter(text: str) -> Filter:
    """Records with a header: NAME, or NAME=VALUE."""
    name, equals, value = text.partition("=")
    wanted = value.encode()
    return lambda record: any(each == name and (not equals or content == wanted) for each, content in record.headers)


def expression_filter(text: str) -> Filter:
    """Records for which a CEL expression is true; one that fails for a record (a field is missing) is false for it.

    Raises FilterError.
    """
    try:
        import celpy
    except ImportError as error:
        raise FilterError("--where needs the package cel-python: the extra `cel`") from error
    environment = celpy.Environment()
    try:
        program = environment.program(environment.compile(text))
    except celpy.CELParseError as error:
        raise FilterError(f"{text!r} is not a CEL expression: {error}") from error

    # A conversion takes as long as the evaluation.
    fields = {name: field_of for name, field_of in _FIELDS.items() if name in text}

    def matches(record: ConsumedRecord) -> bool:
        activation = {name: celpy.json_to_cel(field_of(record)) for name, field_of in fields.items()}
        try:
            return bool(program.evaluate(activation))
        except celpy.CELEvalError:
            return False

    return matches


_FIELDS: Final[Mapping[str, Callable[[ConsumedRecord], Any]]] = {
    "value": json_value,
    "key": lambda record: _text(record.key),
    "headers": lambda record: {name: _text(value) for name, value in record.headers},
    "topic": lambda record: record.topic,
    "partition": lambda record: record.partition,
    "offset": lambda record: record.offset,
    "timestamp": lambda record: record.timestamp,
}


def all_of(filters: Iterable[Filter]) -> Filter:
    """Records that every filter accepts."""
    every = list(filters)
    if len(every) == 1:
        return every[0]  # without a generator for each of many records
    return lambda record: all(each(record) for each in every)


def _text(data: bytes | None) -> str | None:
    return None if data is None else data.decode(errors="replace")
