"""Fields of values: a key or an attribute, a path of several, or a function."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from odradek.streams.errors import ArgumentError
from odradek.streams.functions import place_of_call

Field = str | Callable[[Any], Any] | None
"""The name of a key of a dict or of an attribute, a path such as "customer.age", or a function of the value; None for
the value itself.
"""
Reader = Callable[[Any], Any]


def reader_of(field: Field, user: str) -> Reader | None:
    """The function that reads a field of a value; None for the value itself.

    It returns None for a key that a dict does not have, and for every field of None. It raises AttributeError for an
    object without the attribute: the objects of a class have the same attributes, so the name is wrong.

    Raises ArgumentError, with `user` as the operator in its message, for what is no field.
    """
    if field is None:
        return None
    if isinstance(field, str):
        parts = field.split(".")
        if all(parts):
            return _of_one(field) if len(parts) == 1 else _of_path(tuple(parts))
    elif callable(field):
        return field
    raise ArgumentError(
        f"{user} at {place_of_call()}: the field is {field!r}; expected the name of a key or an attribute, a path such "
        "as 'customer.age', or a function of the value"
    )


def is_null(item: Any) -> bool:
    """Whether aggregations ignore a value: None, or NaN of floats and Decimals."""
    return item is None or (item != item) is True  # only NaN differs from itself


def _of_one(name: str) -> Reader:
    def read(value: Any) -> Any:
        if isinstance(value, Mapping):
            return value.get(name)
        return None if value is None else getattr(value, name)

    return read


def _of_path(names: tuple[str, ...]) -> Reader:
    readers = [_of_one(name) for name in names]

    def read(value: Any) -> Any:
        for each in readers:
            value = each(value)
        return value

    return read
