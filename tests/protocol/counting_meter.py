"""A meter that counts what a decoder charges."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Any

from odradek.protocol.primitives import Bytes


class CountingMeter:
    """Counts what a decoder charges and interrupts; refuses beyond `limit`."""

    at_once = 0

    def __init__(self, limit: int = 1 << 40) -> None:
        self.charged = 0
        self.items = 0
        self.arrays = 0
        self._limit = limit

    def begin(self, message: Any, copied: int) -> None:
        self.message, self.copied = message, copied

    def source(self, buffer: Bytes, pos: int) -> tuple[bytes, int]:
        return bytes(buffer), pos

    def charge(self, size: int) -> None:
        assert size >= 0
        self.charged += size
        if self.charged > self._limit:
            raise MemoryError

    def each(self, items: Iterable[int]) -> Iterable[int]:
        for item in items:
            self.items += 1
            yield item

    def array(self) -> list[Any]:
        self.arrays += 1
        return []

    def partitions(self, count: int) -> None:
        """Accept the number: the charge is that of the memory."""

    def numbers(self, format_: str, count: int, buffer: Bytes, pos: int) -> list[Any]:
        return list(struct.unpack_from(f">{count}{format_}", buffer, pos))
