"""Approximate numbers of distinct values: HyperLogLog, by the sketches of Apache DataSketches (Kafka has none).

The state of a key stays small however many values it has: up to 2^precision bytes, fewer for few values. The relative
standard error is about 1.04 / sqrt(2^precision), 1.6 % at the precision of 12; counts of up to some hundreds are
usually exact. Two values are the same where Python's `==` is true: 1, 1.0, True and Decimal("1.00") are one.
"""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction
from typing import Any, Final

from odradek.streams.aggregations.aggregation import Aggregation
from odradek.streams.aggregations.fields import Field
from odradek.streams.aggregations.state import encode_canonically
from odradek.streams.errors import ArgumentError
from odradek.streams.extras import extra_module
from odradek.streams.functions import place_of_call

EXTRA: Final = "sketches"
LEAST_PRECISION: Final = 7
MOST_PRECISION: Final = 21
_INT64: Final = range(-(2**63), 2**63)


def count_distinct(field: Field = None, precision: int = 12) -> Aggregation[int]:
    """About how many distinct values a field has. `precision` is the binary logarithm of the number of registers.

    A state keeps the precision with which it began. Raises ArgumentError, and MissingExtraError without the extra
    `sketches`.
    """
    return _CountDistinct(field, precision)


class _CountDistinct(Aggregation[int]):
    """The state is a sketch as DataSketches serializes it, which is the same in all of its languages."""

    state_is_result = False
    cannot_subtract = (
        "a sketch does not contain which of its values came from one row alone: aggregate a stream, or collect() the "
        "values and map them"
    )

    def __init__(self, field: Field, precision: int) -> None:
        super().__init__("count_distinct", field)
        if not isinstance(precision, int) or not LEAST_PRECISION <= precision <= MOST_PRECISION:
            raise ArgumentError(
                f"count_distinct() at {place_of_call()}: precision is {precision!r}; expected an int from "
                f"{LEAST_PRECISION} to {MOST_PRECISION}"
            )
        self._precision = precision
        self._library: Any = extra_module("datasketches", EXTRA, "count_distinct()")

    def add(self, item: Any, state: Any) -> bytes:
        sketch = self._library.hll_sketch(self._precision) if state is None else self._sketch(state)
        sketch.update(datum_of(item))
        return bytes(sketch.serialize_compact())

    def merge(self, one: Any, other: Any) -> bytes:
        sketches = self._sketch(one), self._sketch(other)
        union = self._library.hll_union(max(sketch.lg_config_k for sketch in sketches))
        for sketch in sketches:
            union.update(sketch)
        return bytes(union.get_result(self._library.tgt_hll_type.HLL_8).serialize_compact())

    def result(self, state: Any) -> int:
        return 0 if state is None else round(self._sketch(state).get_estimate())

    def _sketch(self, state: bytes) -> Any:
        return self._library.hll_sketch.deserialize(state)


def datum_of(item: Any) -> int | str:
    """What a sketch hashes for a value: the same for equal values, and stable, since sketches outlive the program.

    Texts are themselves, whole numbers ints, other numbers "\\0" and their fraction; the rest is "\\0" and the hex of
    its canonical CBOR. Raises cbor2's error for a type without CBOR.
    """
    if isinstance(item, str):
        return item
    if isinstance(item, int | Fraction) or (isinstance(item, float | Decimal) and _is_finite(item)):
        exact = Fraction(item)
        if exact.denominator == 1 and exact.numerator in _INT64:
            return exact.numerator
        return f"\0{exact}"
    return f"\0{encode_canonically(item).hex()}"


def _is_finite(number: float | Decimal) -> bool:
    return number.is_finite() if isinstance(number, Decimal) else math.isfinite(number)
