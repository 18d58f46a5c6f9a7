"""Encoded elements of an array: encodes once the structures that many responses contain.

Where a definition has `preencoded`, the array of a message may be a list of structures or an `EncodedArray`; the
encoded bytes are the same. The encoders of all other fields are unaffected and have no extra cost.

An element is encoded for one version, and only a message of that version takes it. It carries its error codes, because
the code that counts the errors of a response gets no structure any more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from operator import itemgetter
from typing import Any, NamedTuple


class EncodedElement(NamedTuple):
    """An encoded structure of a message. `error_codes` are those inside it, on all levels, except NONE."""

    data: bytes
    error_codes: tuple[int, ...] = ()


_DATA: Callable[[EncodedElement], bytes] = itemgetter(0)


class EncodedArray(list[Any]):
    """Replaces the list of structures of a field that is `preencoded`; holds the bytes of each element.

    For type checkers it is a list of anything: encoders only write it to the wire, and no code reads its structures.
    """

    __slots__ = ("error_codes", "version")

    def __init__(self, elements: Iterable[EncodedElement], version: int) -> None:
        """`version` is that of the message for which all elements are encoded."""
        super().__init__()
        self.version = version
        self.error_codes: list[int] = []
        self.add(list(elements))

    def add(self, elements: list[EncodedElement]) -> None:
        """Add elements of the same version."""
        self.extend(map(_DATA, elements))
        self.error_codes += [code for each in elements if each.error_codes for code in each.error_codes]
