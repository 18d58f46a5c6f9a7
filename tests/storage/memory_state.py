"""The state of an object in memory, with all that it refers to, as a value that can be compared and hashed."""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Hashable, Iterator
from typing import Any

_PLAIN = (int, float, str, bytes, type(None))


def state_of(thing: object, left_out: tuple[type, ...] = ()) -> Hashable:
    """The state of `thing`: equal for two objects that only their identities distinguish.

    Code (functions, methods, classes) and objects of the types `left_out` count by their type alone.
    """
    return _state(thing, left_out, {})


def _state(thing: object, left_out: tuple[type, ...], met: dict[int, int]) -> Hashable:
    if isinstance(thing, _PLAIN):
        return thing
    if isinstance(thing, (bytearray, memoryview)):
        return bytes(thing)
    if id(thing) in met:
        return "met", met[id(thing)]
    met[id(thing)] = len(met)
    if isinstance(thing, array):
        return tuple(thing)
    if isinstance(thing, dict):
        return "dict", tuple((_state(key, left_out, met), _state(each, left_out, met)) for key, each in thing.items())
    if isinstance(thing, (list, tuple, deque)):
        return type(thing).__name__, tuple(_state(each, left_out, met) for each in thing)
    if isinstance(thing, (set, frozenset)):
        return "set", frozenset(_state(each, left_out, met) for each in thing)
    kind = type(thing)
    if isinstance(thing, left_out) or callable(thing):
        return kind.__qualname__
    return kind.__qualname__, tuple((name, _state(each, left_out, met)) for name, each in _attributes(thing))


def _attributes(thing: Any) -> Iterator[tuple[str, Any]]:
    """The attributes of an object, in the order of its classes' slots and of their first assignments."""
    for base in type(thing).__mro__:
        slots = base.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if name not in ("__dict__", "__weakref__") and hasattr(thing, name):
                yield name, getattr(thing, name)
    yield from getattr(thing, "__dict__", {}).items()
