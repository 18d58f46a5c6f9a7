"""Garbage collector: examines every object of the broker once, while it is young.

CPython's collector finds reference cycles. It stops the event loop for as long as it examines objects, and by default
it examines old objects again: the million objects of one large request take it 80 ms, several times while the request
is handled. The broker frees its objects by reference counts and leaves no cycles behind
(`tests/broker/test_no_garbage.py`), so here the collector examines about YOUNG_OBJECTS at a time, those created since
the last time. What is alive then is exempt from later collections (`gc.freeze`, which takes no time).

So a cycle is freed if it becomes garbage while it is young. This is for objects that exceptions create.
"""

from __future__ import annotations

import gc
from collections.abc import Mapping
from typing import Any, Final

YOUNG_OBJECTS: Final = 10_000
"""Objects that exist more than at the last collection when the next one begins; it takes 1 to 2 ms."""


def collect_young_objects_only() -> None:
    """Exempt all present objects from collections, and later each object that survives one. For the whole process."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG_OBJECTS)
    if _exempt_survivors not in gc.callbacks:
        gc.callbacks.append(_exempt_survivors)


def _exempt_survivors(phase: str, _: Mapping[str, Any]) -> None:
    if phase == "stop":
        gc.freeze()
