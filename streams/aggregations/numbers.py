"""Counts, sums, means, and the least and the greatest value.

Numbers stay what they are: ints are exact in any size, Decimals and Fractions stay exact, and floats are added as
floats, with their rounding errors. A sum of Decimals and floats together is a TypeError, as in Python.
"""

from __future__ import annotations

from typing import Any, TypeVar

from odradek.streams.aggregations.aggregation import Aggregation
from odradek.streams.aggregations.fields import Field
from odradek.streams.aggregations.state import STATE_OF_LISTS
from odradek.streams.serdes import Serde

R = TypeVar("R")


def count(field: Field = None) -> Aggregation[int]:
    """How many records there are; of a field, how many of its values are not null."""
    return _Count("count", field)


def sum(field: Field = None) -> Aggregation[Any]:
    """The sum of a field."""
    return _Sum("sum", field)


def mean(field: Field = None) -> Aggregation[Any]:
    """The mean of a field: its sum divided by the number of its values, so that of ints it is a float."""
    return _Mean("mean", field)


def min(field: Field = None) -> Aggregation[Any]:
    """The least value of a field: of numbers, texts, dates, or other values that `<` compares."""
    return _Least("min", field)


def max(field: Field = None) -> Aggregation[Any]:
    """The greatest value of a field."""
    return _Greatest("max", field)


class _Count(Aggregation[int]):
    """The state is the count. Without a field it counts records, also those without a value."""

    def aggregator(self, key: Any, value: Any, state: Any) -> Any:
        return self.add(value, state) if self._read is None else super().aggregator(key, value, state)

    def subtractor(self, key: Any, value: Any, state: Any) -> Any:
        return self.subtract(value, state) if self._read is None else super().subtractor(key, value, state)

    def add(self, item: Any, state: Any) -> int:
        return 1 if state is None else int(state) + 1

    def subtract(self, item: Any, state: Any) -> int:
        return int(state) - 1

    def merge(self, one: Any, other: Any) -> int:
        return int(one) + int(other)

    def result(self, state: Any) -> int:
        return state or 0


class _Sum(Aggregation[Any]):
    """The state is the sum."""

    def add(self, item: Any, state: Any) -> Any:
        return item if state is None else state + item

    def subtract(self, item: Any, state: Any) -> Any:
        return state - item

    def merge(self, one: Any, other: Any) -> Any:
        return one + other


class _Mean(Aggregation[Any]):
    """The state is [sum, number of values]."""

    state_is_result = False

    def add(self, item: Any, state: Any) -> list[Any]:
        return [item, 1] if state is None else [state[0] + item, state[1] + 1]

    def subtract(self, item: Any, state: Any) -> list[Any] | None:
        return [state[0] - item, state[1] - 1] if state[1] > 1 else None

    def merge(self, one: Any, other: Any) -> list[Any]:
        return [one[0] + other[0], one[1] + other[1]]

    def result(self, state: Any) -> Any:
        return None if state is None else state[0] / state[1]


class _Extreme(Aggregation[Any]):
    """The state is the value. Of whole values it has their serde, as those of reduce()."""

    serde = STATE_OF_LISTS
    cannot_subtract = (
        "when the row with the extreme value changes, the next one is unknown: aggregate a stream, or collect() the "
        "values and map them"
    )

    def serde_of(self, value: Serde[Any] | None) -> Serde[Any]:
        return self.serde if value is None or self._read is not None else value


class _Least(_Extreme):
    def add(self, item: Any, state: Any) -> Any:
        return item if state is None or item < state else state

    def merge(self, one: Any, other: Any) -> Any:
        return other if other < one else one


class _Greatest(_Extreme):
    def add(self, item: Any, state: Any) -> Any:
        return item if state is None or item > state else state

    def merge(self, one: Any, other: Any) -> Any:
        return other if other > one else one
