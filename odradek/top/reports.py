"""A report: one object in detail, as a text about it and tables. Each view is a function that reads a report."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from rich.text import Text
from textual.screen import Screen

from odradek.console.paging import Listing
from odradek.top.cells import PaneRows, safe

Rows = Callable[[Listing], PaneRows]
"""The rows for a search and an order. It may send requests: it is called in a thread."""
Open = Callable[[str], Screen[Any] | None]
"""The screen of the object that a row is about, by the key of the row; None where there is none."""


@dataclass(frozen=True, slots=True)
class ReportTable:
    """A table of a report. Its first order is the one at the start."""

    title: str
    columns: tuple[str, ...]
    rows: Rows
    open: Open | None = None
    sorts: tuple[str, ...] = ("",)
    is_costly: bool = False
    """Whether its rows are read only when it is opened, and when the user asks for it."""


@dataclass(frozen=True, slots=True)
class Report:
    """What a screen shows. `series` is drawn as a line."""

    about: Text
    tables: tuple[ReportTable, ...]
    series: Sequence[float] = ()


def facts(title: str, **values: object) -> Text:
    """A line about an object: its name, and facts with their values."""
    found = safe(title, "bold")
    for name, value in values.items():
        found.append(f"   {name.replace('_', ' ')} ", "dim").append_text(safe(value))
    return found
