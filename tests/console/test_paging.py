"""Lists are searched, sorted and cut into pages."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from odradek.console.group_pages import groups_page
from odradek.console.history import ClusterHistory
from odradek.console.paging import Listing, page_of
from odradek.console.topic_pages import topics_page
from tests.console.samples import group, partition, sample, topic


@given(st.integers(0, 40), st.integers(-3, 9), st.integers(1, 12))
def test_the_pages_together_are_the_list(count: int, page: int, size: int) -> None:
    items = [f"t-{number:02}" for number in range(count)]
    first = page_of(items, Listing(size=size), str, {})
    rows = [row for n in range(1, first.pages + 1) for row in page_of(items, Listing(page=n, size=size), str, {}).rows]
    assert rows == items
    found = page_of(items, Listing(page=page, size=size), str, {})
    assert 1 <= found.listing.page <= found.pages
    assert len(found.rows) <= size
    if found.rows:
        assert items[found.first - 1 : found.last] == list(found.rows)


def test_a_search_takes_every_word_in_any_case() -> None:
    names = ["Orders-eu", "orders-us", "returns-eu"]
    found = page_of(names, Listing(search=" EU orders "), str, {})
    assert found.rows == ("Orders-eu",)
    assert (found.matching, found.total) == (1, 3)


def test_an_unknown_column_keeps_the_order_and_a_minus_reverses() -> None:
    assert page_of([2, 3, 1], Listing(sort="nonsense"), str, {}).rows == (2, 3, 1)
    assert page_of([2, 3, 1], Listing(sort="-n"), str, {"n": lambda each: each}).rows == (3, 2, 1)


def history() -> ClusterHistory:
    found = ClusterHistory()
    found.add(
        sample(
            0,
            topic("__consumer_offsets", internal=True),
            topic("orders", partition("orders", 0), partition("orders", 1, leader=2, isr=(2,))),
            topic("returns"),
            ends={("orders", 0): 3, ("orders", 1): 4},
            groups=[group("billing", lag=7), group("reports", state="Empty", members=0, lag=None)],
        )
    )
    return found


def test_topics_are_listed_without_internal_ones_unless_asked_for() -> None:
    page = topics_page(history(), Listing())
    assert [(row.name, row.partitions, row.under_replicated, row.records) for row in page.rows] == [
        ("orders", 2, 1, 7),
        ("returns", 1, 0, None),
    ]
    assert topics_page(history(), Listing(), internal=True).rows[0].name == "__consumer_offsets"
    assert [row.name for row in topics_page(history(), Listing(), health="under-replicated").rows] == ["orders"]
    assert [row.name for row in topics_page(history(), Listing(sort="-name")).rows] == ["returns", "orders"]


def test_groups_are_listed_by_state_and_sorted_by_lag() -> None:
    assert [row.group_id for row in groups_page(history(), Listing(sort="-lag")).rows] == ["billing", "reports"]
    assert [row.group_id for row in groups_page(history(), Listing(), state="Empty").rows] == ["reports"]
    assert groups_page(ClusterHistory(), Listing()).rows == ()
