"""The bytes of a file on the simulated disk: written pages, and their state on the medium."""

from __future__ import annotations

import errno
import os
from collections import deque
from collections.abc import Callable
from typing import Final

from odradek.storage.disk import Buffer

Choose = Callable[[int], int]
"""A number from 0 to the argument, both included; 0 always keeps the fewest unsynced writes."""

_SECTOR: Final = 512
_SIZES_REMEMBERED: Final = 64


class Content:
    """`data` is the content that processes read. A page that was changed since the last sync has its old bytes kept
    beside it.
    """

    PAGE: Final = 4096

    def __init__(self, data: bytes | bytearray = b"") -> None:
        self.data = bytearray(data)
        self.modified_ms = 0
        self.unreadable: set[int] = set()
        self._old: dict[int, bytes] = {}
        """The medium's bytes for a page that was changed and not synced; in the order of the changes."""
        self._lost: dict[int, bytes] = {}
        """The same for pages that a failed sync marked clean: no sync writes them any more."""
        self._sizes: deque[int] = deque([len(data)], maxlen=_SIZES_REMEMBERED)
        """Sizes since the last sync, that of the medium first; it may come to have any of them."""

    @property
    def durable_size(self) -> int:
        """The size in bytes that is sure to survive."""
        return self._sizes[0]

    # ---- as a file

    def read(self, size: int, position: int) -> bytes:
        """Raises OSError where a page cannot be read."""
        if self.unreadable:
            wanted = range(position // self.PAGE, -(-min(position + size, len(self.data)) // self.PAGE))
            if not self.unreadable.isdisjoint(wanted):
                raise OSError(errno.EIO, os.strerror(errno.EIO))
        return bytes(self.data[position : position + size])

    def write(self, data: Buffer, position: int) -> None:
        """Bytes between the old end and `position` read as zeros."""
        end = position + len(data)
        if end == position:
            return
        for page in range(position // self.PAGE, -(-end // self.PAGE)):
            self._touch(page)
        if position > len(self.data):
            self.data.extend(bytes(position - len(self.data)))
        self.data[position:end] = data
        self._resized()

    def truncate(self, size: int) -> None:
        """Truncate, or extend with zeros."""
        for page in range(size // self.PAGE, -(-len(self.data) // self.PAGE)):
            self._touch(page)
        del self.data[size:]
        self.data.extend(bytes(size - len(self.data)))
        self._resized()

    def sync(self) -> None:
        """Write every page that is not clean to the medium."""
        self._old.clear()
        self._sizes.clear()
        self._sizes.append(len(self.data))

    def fail_sync(self) -> None:
        """Mark the pages clean that the medium did not accept."""
        self._lost.update(self._old)
        self._old.clear()

    def flip(self, bit: int) -> None:
        """Flip one bit, on the medium too."""
        self.data[bit // 8] ^= 1 << bit % 8
        page, place = divmod(bit // 8, self.PAGE)
        for pages in (self._old, self._lost):
            if place < len(pages.get(page, b"")):
                changed = bytearray(pages[page])
                changed[place] ^= 1 << bit % 8
                pages[page] = bytes(changed)

    def _touch(self, page: int) -> None:
        self.unreadable.discard(page)
        if page not in self._old:
            start = page * self.PAGE
            self._old[page] = (
                self._lost.pop(page) if page in self._lost else bytes(self.data[start : start + self.PAGE])
            )

    def _resized(self) -> None:
        size = len(self.data)
        if size != self._sizes[-1]:
            if len(self._sizes) == _SIZES_REMEMBERED:
                del self._sizes[1]
            self._sizes.append(size)

    # ---- as a medium

    def settled(self, choose: Choose, *, any_order: bool) -> Content:
        """The content after a loss of power; where not in any order, then in the order of the changes, the size
        last.
        """
        size = self._sizes[choose(len(self._sizes) - 1)]
        pages = {page: self._page(old, page, 0) for page, old in self._lost.items()}
        changed = [page for page in self._old if page * self.PAGE < len(self.data)]
        pages |= {page: self._page(old, page, 0) for page, old in self._old.items() if page not in changed}
        if any_order:
            pages |= {page: self._page(self._old[page], page, _written(choose)) for page in changed}
        else:
            kept = choose(len(changed))
            for number, page in enumerate(changed[kept:]):
                written = 0 if number else _written(choose)
                pages[page] = self._page(self._old[page], page, written)
                if size > self.durable_size:
                    size = max(self.durable_size, min(size, page * self.PAGE + written * _SECTOR))
        data = self.data[:size]
        data.extend(bytes(size - len(data)))
        for page, content in pages.items():
            start = page * self.PAGE
            if start < size:
                data[start : start + self.PAGE] = content[: size - start]
        found = Content(data)
        found.modified_ms, found.unreadable = self.modified_ms, set(self.unreadable)
        return found

    def _page(self, old: bytes, page: int, sectors: int) -> bytes:
        """A page with this many new sectors."""
        cut, start = sectors * _SECTOR, page * self.PAGE
        new = bytes(self.data[start : start + cut]).ljust(cut, b"\0")
        return (new + old[cut:]).ljust(self.PAGE, b"\0")

    def copy(self) -> Content:
        """An independent copy."""
        other = Content(self.data)
        other.modified_ms, other.unreadable = self.modified_ms, set(self.unreadable)
        other._old, other._lost, other._sizes = dict(self._old), dict(self._lost), self._sizes.copy()
        return other


def _written(choose: Choose) -> int:
    """How many sectors of a page were written: none, all, or some where it tore."""
    most = Content.PAGE // _SECTOR
    match choose(2):
        case 0:
            return 0
        case 1:
            return choose(most)
    return most
