"""Frees the objects and the memory of a large request in parts.

Python frees an object, and all that only this object refers to, at once: 400,000 structures take some 50 ms. Where
another part of the broker keeps an object, it stays as it is.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sized
from itertools import islice
from mmap import mmap
from typing import Any, Final

from odradek.broker.runtime.collector import exempt
from odradek.protocol.classes import Struct
from odradek.protocol.release import shortened

AT_ONCE: Final = 500
"""Elements of containers that are freed at once."""
SMALL: Final = 16
"""Elements of a container that is freed with the container that it is in."""
_OWN_REFERENCES: Final = 2
"""References to an object that nothing else keeps: the variable, and the argument of getrefcount."""


class Kept:
    """The large objects of one request, which stay until the works of the request have ended.

    A function that returns frees its objects at once, and cannot be interrupted in that. These have another reference.
    """

    __slots__ = ("_objects", "_works")

    def __init__(self) -> None:
        self._objects: list[Any] = []
        self._works = 1

    def add(self, item: Any) -> None:
        """Keep a message, a list, a dict, a set or a tuple, or memory of the system."""
        self._objects.append(item)
        if isinstance(item, Sized) and not isinstance(item, mmap):
            exempt(item)

    def share(self) -> Kept:
        """The same for one more work, which releases it, too."""
        self._works += 1
        return self

    def release(self) -> list[Any]:
        """A work has ended; returns the objects for `freeing`, none before the last work has ended."""
        self._works -= 1
        if self._works:
            return []
        objects, self._objects = self._objects, []
        return objects


def freeing(objects: list[Any]) -> Iterator[None]:
    """Free these messages, containers and memory, to which the caller keeps no other reference, part by part; the list
    is empty at the end.
    """
    while objects:
        item = objects.pop()
        if sys.getrefcount(item) > _OWN_REFERENCES:
            continue
        if isinstance(item, Struct):
            for name in _arrays(item):
                objects.append(getattr(item, name))
                setattr(item, name, None)
        elif isinstance(item, mmap):
            if shortened(item):
                objects.append(item)
        elif isinstance(item, tuple):
            objects.append(list(item))
        else:
            part = _part_of(item)
            if item:
                objects.append(item)
            objects.extend(each for each in part if _is_large(each))
            del part
        del item
        yield


def _part_of(container: Any) -> Iterable[Any]:
    """Remove up to AT_ONCE elements; returns those that may be large."""
    if isinstance(container, list):
        part = list(islice(reversed(container), AT_ONCE))
        del container[-AT_ONCE:]
        return part
    if isinstance(container, dict):
        return [container.popitem()[1] for _ in range(min(AT_ONCE, len(container)))]
    return [container.pop() for _ in range(min(AT_ONCE, len(container)))]


def _is_large(item: Any) -> bool:
    """Whether an element is freed in parts of its own."""
    if isinstance(item, Struct):
        return bool(_arrays(item))
    return isinstance(item, (list, dict, set, tuple)) and len(item) > SMALL


def _arrays(struct: Struct) -> list[str]:
    """The fields of a structure that are arrays with elements; one that was not decoded to its end lacks some."""
    return [name for name in struct.ATTRIBUTES if isinstance(value := getattr(struct, name, None), list) and value]
