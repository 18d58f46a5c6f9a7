"""One page of a list: the rows that a search selects, in an order, some of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

T = TypeVar("T")

PAGE_SIZE: Final = 50
LARGEST_PAGE: Final = 500


@dataclass(frozen=True, slots=True)
class Listing:
    """What to show of a list. Pages count from 1; `sort` is a column, descending after a minus sign."""

    search: str = ""
    page: int = 1
    size: int = PAGE_SIZE
    sort: str = ""


@dataclass(frozen=True, slots=True)
class ListPage(Generic[T]):
    """The rows of one page. `matching` counts all that the search selects, `total` all that exist."""

    rows: tuple[T, ...]
    matching: int
    total: int
    listing: Listing

    @property
    def pages(self) -> int:
        """How many pages there are, at least one."""
        return max(1, -(-self.matching // self.listing.size))

    @property
    def first(self) -> int:
        """The number of the first row, from 1; 0 without rows."""
        return (self.listing.page - 1) * self.listing.size + 1 if self.rows else 0

    @property
    def last(self) -> int:
        """The number of the last row."""
        return self.first + len(self.rows) - 1 if self.rows else 0


def page_of(
    items: Iterable[T],
    listing: Listing,
    name_of: Callable[[T], str],
    columns: Mapping[str, Callable[[T], Any]],
) -> ListPage[T]:
    """The page of the items whose name contains every word of the search, in any case.

    Without a known column the items keep their order. A page beyond the last one is the last one.
    """
    everything = list(items)
    words = listing.search.lower().split()
    found = [each for each in everything if all(word in name_of(each).lower() for word in words)]
    column = columns.get(listing.sort.removeprefix("-"))
    if column is not None:
        found.sort(key=column, reverse=listing.sort.startswith("-"))
    size = min(max(1, listing.size), LARGEST_PAGE)
    page = min(max(1, listing.page), max(1, -(-len(found) // size)))
    rows = tuple(found[(page - 1) * size : page * size])
    return ListPage(rows, len(found), len(everything), Listing(listing.search, page, size, listing.sort))
