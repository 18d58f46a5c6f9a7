"""The priority queue returns equals in the order of java.util.PriorityQueue."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.streams.priority_queue import PriorityQueue


@pytest.mark.jvm
@given(st.lists(st.one_of(st.none(), st.integers(0, 4)), max_size=60))
@settings(max_examples=60)
def test_the_order_is_javas(java: Any, operations: list[int | None]) -> None:
    """Of every entry (its rank, its number), the rank decides; None takes the first out."""
    by_rank = java.find("java.util.Comparator").comparingInt(lambda entry: int(entry.charAt(0)))
    theirs = java.PriorityQueue(11, by_rank)
    ours: PriorityQueue[str] = PriorityQueue()
    for number, rank in enumerate(operations):
        if rank is None:
            taken = theirs.poll()
            assert ours.poll() == (None if taken is None else str(taken))
            continue
        theirs.add(f"{rank} {number}")
        ours.offer(rank, f"{rank} {number}")
        assert len(ours) == theirs.size()
    while (taken := theirs.poll()) is not None:
        assert ours.peek() == (int(str(taken)[0]), str(taken))
        assert ours.poll() == str(taken)
    assert ours.poll() is ours.peek() is None
