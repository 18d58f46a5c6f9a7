"""Cells of tables on a terminal, and pages of rows: names and records are data, and no character of them controls it.

A table shows at most LARGEST_PAGE rows of what a search selects: a terminal redraws all of them at each sample.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple, TypeVar

from rich.text import Text

from odradek.console.paging import LARGEST_PAGE, Listing, ListPage, page_of

T = TypeVar("T")
Cells = tuple[Text, ...]
WRONG: Final = "bold red"
_REPLACEMENT: Final = "\ufffd"
_TAB: Final = "    "


class PaneRows(NamedTuple):
    """The rows that a table shows, by a key that names the object, and how many there are."""

    rows: Mapping[str, Cells]
    matching: int
    total: int


NO_ROWS: Final = PaneRows({}, 0, 0)


def safe(value: object, style: str = "") -> Text:
    """A text as a cell. Names of groups and clients may have any character: none of them controls the terminal."""
    return Text("".join(letter if letter.isprintable() else _REPLACEMENT for letter in str(value)), style)


def safe_lines(value: str, style: str = "") -> Text:
    """A text of several lines, as safe as a cell."""
    return Text("\n").join(safe(line.removesuffix("\r"), style) for line in value.replace("\t", _TAB).split("\n"))


def number(value: float | None, style: str = "") -> Text:
    """A number at the right of its cell; `-` for none."""
    shown = "-" if value is None else f"{value:,.1f}" if isinstance(value, float) else f"{value:,}"
    return Text(shown, style, justify="right")


def problems(value: int) -> Text:
    """A number that should be zero."""
    return number(value, WRONG if value else "")


def right(value: str, style: str = "") -> Text:
    """A text of this program, at the right of its cell."""
    return Text(value, style, justify="right")


def clock(time_s: float) -> str:
    """The local time of day."""
    return time.strftime("%H:%M:%S", time.localtime(time_s))


def duration(seconds: float) -> str:
    """A duration for a reader: 12 s, 5 min, 3 h."""
    for unit, size in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:,.0f} {unit}"
    return f"{max(0.0, seconds):,.0f} s"


def listing_of(search: str, sort: str = "") -> Listing:
    """What a table shows of a list: the first page, as large as it can be."""
    return Listing(search, 1, LARGEST_PAGE, sort)


def shown(page: ListPage[T], key: Callable[[T], str], cells: Callable[[T], Cells]) -> PaneRows:
    """The rows of a page of a list."""
    return PaneRows({key(each): cells(each) for each in page.rows}, page.matching, page.total)


def selected(
    items: Iterable[T],
    listing: Listing,
    key: Callable[[T], str],
    cells: Callable[[T], Cells],
    columns: Mapping[str, Callable[[T], Any]] | None = None,
) -> PaneRows:
    """The rows of the items whose key has every word of the search."""
    return shown(page_of(items, listing, key, columns or {}), key, cells)
