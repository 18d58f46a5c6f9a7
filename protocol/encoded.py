"""Elements of an array as bytes: what goes out again and again is encoded once.

Where a definition says `preencoded`, the array of a message may be a list of structures or an `EncodedArray`, and the
bytes that go out are the same. The encoders of all other fields know nothing of this and pay nothing for it.

An element is encoded for one version, and only a message of that version takes it. The error codes inside come along,
for whoever counts those of a response sees no structure any more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from operator import itemgetter
from typing import Any, NamedTuple


class EncodedElement(NamedTuple):
    """A structure as it stands in a message. `error_codes` are those inside it, on all levels, but NONE."""

    data: bytes
    error_codes: tuple[int, ...] = ()


_DATA: Callable[[EncodedElement], bytes] = itemgetter(0)


class EncodedArray(list[Any]):
    """Stands in place of the list of structures of a field that is `preencoded`; holds the bytes of each element.

    A list of anything, for type checkers: it is only ever written to the wire, and nobody reads it as structures.
    """

    __slots__ = ("error_codes", "version")

    def __init__(self, elements: Iterable[EncodedElement], version: int) -> None:
        """`version` is that of the message for which all elements are encoded."""
        known = list(elements)
        super().__init__(map(_DATA, known))
        self.version = version
        self.error_codes = [code for each in known if each.error_codes for code in each.error_codes]
