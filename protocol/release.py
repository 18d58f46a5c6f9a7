"""Returns the memory of large requests, and of responses that cannot be sent, to the system in parts.

The system needs a quarter of a microsecond to a microsecond for each page of 4 KiB that it gets back. So the requests
and responses of a crowd of connections that end together would hold the event loop for as long as 100 milliseconds.
"""

from __future__ import annotations

import mmap
from collections import deque
from collections.abc import Callable, Iterable
from typing import Final

PART_BYTES: Final = 1 << 20
Memory = bytes | bytearray | memoryview | mmap.mmap


def shortened(memory: mmap.mmap) -> int:
    """Return the last PART_BYTES of memory of the system to it; returns how many bytes are left.

    None are left where the bytes are in use, so that their last user frees them, or on a system without mremap.
    """
    size = len(memory) - PART_BYTES
    if size <= 0:
        return 0
    try:
        memory.resize(size)
    except (BufferError, SystemError):
        return 0
    return size


class MemoryRelease:
    """Memory that is not in use any more and waits for its release."""

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting: deque[tuple[Memory, Callable[[int], None]]] = deque()

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def add(self, memory: Iterable[Memory], hold: Callable[[int], None]) -> None:
        """Release the memory later, the caller keeps no reference to it; `hold` then counts its bytes as released."""
        self._waiting.extend((each, hold) for each in memory)

    def release(self, most_bytes: int) -> int:
        """Release about so many bytes; returns how many."""
        released = 0
        while self._waiting and released < most_bytes:
            memory, hold = self._waiting[0]
            size = len(memory)
            left = shortened(memory) if isinstance(memory, mmap.mmap) else 0
            if not left:
                self._waiting.popleft()
            del memory
            hold(left - size)
            released += size - left
        return released
