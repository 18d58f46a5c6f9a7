"""Iteration over objects of which some are removed meanwhile, without keeping them until its end."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar

T = TypeVar("T")


def taking(items: list[T]) -> Iterator[T]:
    """The items, each of which leaves the list before the next. A list of logs that are deleted during a scheduled task
    would close the files of all of them at its end.
    """
    items.reverse()
    while items:
        yield items.pop()
