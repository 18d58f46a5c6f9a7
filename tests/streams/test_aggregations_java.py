"""Aggregations by name beside Java's aggregate(): the same names, records, changelogs and drops, to the byte."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.streams.dsl.builder import StreamsBuilder
from odradek.streams.dsl.options import Consumed, Grouped, Materialized, Produced
from odradek.streams.serdes import LONG, STRING
from odradek.streams.windows import SessionWindows, SlidingWindows, TimeWindows
from tests.streams.oracle.implementations import Piped, records, same

pytestmark = pytest.mark.jvm

NUMBERS: Final = Consumed(STRING, LONG)
COMBINED: Final[dict[str, Callable[[int, int], int]]] = {
    "sum": lambda one, other: one + other,
    "min": min,
    "max": max,
}
WINDOWS: Final[list[Any]] = [
    None,
    TimeWindows.of_size_and_grace(20, 5).advance_by(7),
    SlidingWindows.of_time_difference_and_grace(15, 40),
    SessionWindows.of_inactivity_gap_and_grace(10, 15),
]


def nothing() -> None:
    return None


def aggregated(builder: Any, grouped: Any, windows: Any, name: str, materialized: Any) -> Any:
    """The aggregation by its name here; in Java aggregate() with functions that ignore nulls."""
    if isinstance(builder, StreamsBuilder):
        return getattr(grouped, name)(materialized=materialized)
    combine = COMBINED[name]

    def add(key: str, value: int | None, state: int | None) -> int | None:
        if value is None:
            return state
        return value if state is None else combine(state, value)

    if isinstance(windows, SessionWindows):
        return grouped.aggregate(nothing, add, lambda key, one, other: add(key, other, one), materialized)
    return grouped.aggregate(nothing, add, materialized)


def by_windows(windows: Any, caching: bool) -> Callable[[Any], None]:
    def build(builder: Any) -> None:
        grouped = builder.stream("in", NUMBERS).group_by(lambda key, value: key, Grouped(STRING, LONG))
        windowed = grouped if windows is None else grouped.windowed_by(windows)
        for name in COMBINED:
            materialized = Materialized(name, STRING, LONG, caching=caching)
            table = aggregated(builder, windowed, windows, name, materialized)
            table.to_stream(lambda key, value: str(key)).to(f"{name}-out", Produced(STRING, LONG))

    return build


@pytest.mark.parametrize("caching", [True, False], ids=["cached", "uncached"])
@pytest.mark.parametrize("windows", WINDOWS, ids=str)
def test_sums_and_extremes(java: Any, windows: Any, caching: bool) -> None:
    build = by_windows(windows, caching)

    @settings(max_examples=5, deadline=None)
    @given(records("in", values=st.integers(-5, 5)))
    def run(steps: list[Piped]) -> None:
        same(build, steps, {"default.dsl.store": "in_memory"})

    run()


@settings(max_examples=6, deadline=None)
@given(records("in", values=st.integers(-5, 5)))
def test_sums_of_tables(java: Any, steps: list[Piped]) -> None:
    """Rows that leave a group are subtracted."""

    def build(builder: Any) -> None:
        grouped = builder.table("in", NUMBERS).group_by(
            lambda key, value: ("odd" if value % 2 else "even", value), Grouped(STRING, LONG)
        )
        stored = Materialized("sums", STRING, LONG)
        if isinstance(builder, StreamsBuilder):
            table = grouped.sum(materialized=stored)
        else:
            table = grouped.aggregate(
                lambda: 0, lambda key, value, total: total + value, lambda key, value, total: total - value, stored
            )
        table.to_stream().to("sums-out", Produced(STRING, LONG))

    same(build, steps)
