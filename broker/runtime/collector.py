"""Garbage collector: examines every object of the broker once, while it is young.

CPython's collector finds reference cycles. It stops the event loop for as long as it examines objects, and by default
it examines old objects again: the million objects of one large request take it 80 ms, several times while the request
is handled. The broker frees its objects by reference counts and leaves no cycles behind
(`tests/broker/test_no_garbage.py`), so here the collector examines about YOUNG_OBJECTS at a time, those created since
the last time. What is alive then is exempt from later collections (`gc.freeze`, which takes no time).

The collector counts an object that is freed against those that are created, however old it is. So while the objects of
one request are freed, those of another would accumulate: 80,000 young objects, which it examines in 17 ms. Therefore
`examine_young_objects` begins a collection at the end of each slice of a large request. Where retention and compaction
delete as many segments as producers fill, 58,000 young objects accumulated within a minute, which it examined in 31 to
41 ms. Therefore `YoungCollections` begins a collection every YOUNG_INTERVAL_S.

So a cycle is freed if it becomes garbage while it is young, as those that exceptions create. For older ones, which code
outside of the broker may leave (an authorizer, a client of the metadata store), `FullCollections` examines all objects
once there are twice as many: that holds the loop for about 100 ms a million objects, at most once an hour.
"""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import Mapping, Sized
from typing import Any, Final

log = logging.getLogger(__name__)

YOUNG_OBJECTS: Final = 10_000
"""Objects that exist more than at the last collection when the next one begins; it takes 1 to 2 ms."""
YOUNG_INTERVAL_S: Final = 1.0
"""How often `YoungCollections` begins one. With few young objects it takes 1 us."""
FULL_INTERVAL_S: Final = 3600.0
"""How often `FullCollections` counts the objects."""


def collect_young_objects_only() -> None:
    """Exempt all present objects from collections, and later each object that survives one. For the whole process."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG_OBJECTS)
    if _exempt_survivors not in gc.callbacks:
        gc.callbacks.append(_exempt_survivors)


def examine_young_objects() -> None:
    """Examine the objects created since the last collection, in a process that collects young objects only."""
    if _exempt_survivors in gc.callbacks:
        gc.collect(0)


def _exempt_survivors(phase: str, _: Mapping[str, Any]) -> None:
    if phase == "stop":
        gc.freeze()


def exempt(container: Sized) -> None:
    """Exempt all present objects if the container is large: a collection visits each of its elements, however old they
    are.
    """
    if len(container) > YOUNG_OBJECTS and _exempt_survivors in gc.callbacks:
        gc.freeze()


class YoungCollections:
    """Examines the objects that are young every YOUNG_INTERVAL_S, until `close`."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        """For a process that collects young objects only."""
        self._loop = loop
        self._timer = loop.call_later(YOUNG_INTERVAL_S, self._examine)

    def close(self) -> None:
        """Examine no more."""
        self._timer.cancel()

    def _examine(self) -> None:
        examine_young_objects()
        self._timer = self._loop.call_later(YOUNG_INTERVAL_S, self._examine)


class FullCollections:
    """Examines all objects for cycles when there are twice as many as after the last time, until `close`."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        """For a process that collects young objects only."""
        self._loop = loop
        self._least = 2 * gc.get_freeze_count()
        self._timer = loop.call_later(FULL_INTERVAL_S, self._count)

    def close(self) -> None:
        """Count and examine no more."""
        self._timer.cancel()

    def _count(self) -> None:
        if gc.get_freeze_count() >= self._least:
            gc.unfreeze()
            unreachable = gc.collect()
            gc.freeze()
            self._least = 2 * gc.get_freeze_count()
            log.info(
                "examined all objects for reference cycles unreachable=%d next_at_objects=%d", unreachable, self._least
            )
        self._timer = self._loop.call_later(FULL_INTERVAL_S, self._count)
