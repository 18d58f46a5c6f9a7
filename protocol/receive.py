"""Receives the incomplete request of one connection in a buffer of its own (Kafka: NetworkReceive).

Whole requests never come here: the connection handles them in the listener's receive buffer. The buffer of an
incomplete request grows with the bytes that have arrived, so a request that announces 100 MB takes no more memory than
it has sent. The backlog holds requests that arrived while the connection did not accept any.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Final

read_size: Final = struct.Struct(">i").unpack_from
FIRST_FRAME_BUFFER_BYTES: Final = 256 * 1024


class NetworkReceive:
    """The bytes of one connection that wait for more, or for their turn.

    `buffer` has the incomplete request with its size: `have` bytes of `need`. It is empty where there is none.
    """

    __slots__ = ("_backlog", "_hold", "buffer", "have", "need")

    def __init__(self, hold: Callable[[int], None]) -> None:
        """`hold` counts bytes that are held in memory; a negative number releases them."""
        self._hold = hold
        self._backlog: bytes = b""
        self.buffer = bytearray()
        self.have = 0
        self.need = 0

    def begin(self, part: memoryview) -> None:
        """Keep the beginning of a request."""
        have = len(part)
        need = 4 + read_size(part)[0] if have >= 4 else 4
        buffer = bytearray(max(have, min(need, FIRST_FRAME_BUFFER_BYTES)))
        buffer[:have] = part
        self.buffer, self.have, self.need = buffer, have, need
        self._hold(len(buffer))

    def room(self) -> memoryview:
        """The part of the buffer that the next bytes are read into; a full buffer becomes larger first."""
        if self.have == len(self.buffer):
            self._grow(self.buffer)
        return memoryview(self.buffer)[self.have :]

    def _grow(self, buffer: bytearray) -> None:
        """Double the received bytes, up to the end of the request."""
        size = min(self.need, max(FIRST_FRAME_BUFFER_BYTES, 2 * len(buffer)))
        larger = bytearray(size)
        larger[: self.have] = memoryview(buffer)[: self.have]
        self.buffer = larger
        self._hold(size - len(buffer))

    def take(self) -> bytearray:
        """Return the buffer of the complete request, whose bytes the caller releases."""
        buffer, self.buffer = self.buffer, bytearray()
        return buffer

    def keep_backlog(self, view: memoryview) -> None:
        """Keep a copy of bytes until the connection accepts requests again."""
        self._backlog = bytes(view)
        self._hold(len(view))

    def take_backlog(self) -> bytes:
        """Return the kept bytes, and release them."""
        backlog, self._backlog = self._backlog, b""
        if backlog:
            self._hold(-len(backlog))
        return backlog

    def clear(self) -> int:
        """Drop everything at the end of the connection; returns how many bytes the caller has to release."""
        held = len(self.buffer) + len(self._backlog)
        self.buffer = bytearray()
        self._backlog = b""
        return held
