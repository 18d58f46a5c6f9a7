"""Frees the objects of a large request or response in parts.

Python frees an object, and all that only this object refers to, at once: 400,000 structures take some 50 ms. Where
another part of the broker keeps a structure or an array, it stays as it is.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any, Final

from odradek.protocol.classes import Struct

AT_ONCE: Final = 2000
"""Elements of arrays that are freed at once."""
_OWN_REFERENCES: Final = 2
"""References to an object that nothing else keeps: the variable, and the argument of getrefcount."""


def freeing(messages: list[Any]) -> Iterator[None]:
    """Free these messages, to which the caller keeps no other reference, part by part; the list is empty at the end."""
    while messages:
        item = messages.pop()
        if sys.getrefcount(item) > _OWN_REFERENCES:
            continue
        if isinstance(item, list):
            if len(item) > AT_ONCE:
                tail = item[-AT_ONCE:]
                del item[-AT_ONCE:]
                messages.append(item)
                item = tail
                del tail
            messages.extend(each for each in item if isinstance(each, Struct) and _arrays(each))
        else:
            for name in _arrays(item):
                messages.append(getattr(item, name))
                setattr(item, name, None)
        del item
        yield


def _arrays(struct: Any) -> list[str]:
    """The fields of a structure that are arrays with elements."""
    if not isinstance(struct, Struct):
        return []
    return [name for name in struct.ATTRIBUTES if isinstance(value := getattr(struct, name), list) and value]
