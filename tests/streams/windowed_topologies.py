"""Topologies with windowed aggregates, the same for Java and Odradek."""

from __future__ import annotations

from typing import Any

from odradek.streams.dsl.options import Consumed, Materialized
from odradek.streams.serdes import STRING
from odradek.streams.windows import SessionWindows

STRINGS = Consumed(STRING, STRING)


def joined(key: str, value: str | None, so_far: str) -> str:
    """An aggregate that shows the order in which it was made."""
    return so_far + "," + (value or "-")


def merged(key: str, one: str, other: str) -> str:
    return one + "|" + other


def aggregated(windowed: Any, windows: Any, materialized: Any = None) -> Any:
    """aggregate() with strings, which sessions also need a merger for."""
    printed = materialized or Materialized(value=STRING)
    if isinstance(windows, SessionWindows):
        return windowed.aggregate(lambda: "", joined, merged, printed)
    return windowed.aggregate(lambda: "", joined, printed)
