"""Loops of a state machine that the shell may interrupt, so that it serves other clients in between."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Iterable
from typing import Any, Final, TypeVar

from odradek.broker.runtime.state.effects import Each

T = TypeVar("T")
SORTED_AT_ONCE: Final = 2000
"""Items that are sorted without an interruption: about a millisecond."""


def at_once(items: Iterable[T]) -> Iterable[T]:
    """The items: an `Each` that never interrupts."""
    return items


def in_order(items: Collection[T], key: Callable[[T], Any], each: Each) -> list[T]:
    """`sorted(items, key=key)`, for keys that differ."""
    if len(items) <= SORTED_AT_ONCE:
        return sorted(items, key=key)
    runs: list[list[tuple[Any, T]]] = [[]]
    for item in each(items):
        if len(runs[-1]) == SORTED_AT_ONCE:
            runs[-1].sort()
            runs.append([])
        runs[-1].append((key(item), item))
    runs[-1].sort()
    return [item for _, item in each(heapq.merge(*runs))]
