"""Receives the incomplete request of one connection in a buffer of its own (Kafka: NetworkReceive).

Whole requests never come here: the connection handles them in the listener's receive buffer. The buffer of an
incomplete request grows with the bytes that have arrived, so a request that announces 100 MB takes no more memory than
it has sent. That of a large request is memory of the system itself, which grows without a copy, has no pages before
bytes are written there, and goes back to the system with the request. The backlog holds requests that arrived while the
connection did not accept any.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Callable
from typing import Final

from odradek.protocol.release import Memory

read_size: Final = struct.Struct(">i").unpack_from
FIRST_FRAME_BUFFER_BYTES: Final = 256 * 1024
LARGE_REQUEST_BYTES: Final = 256 * 1024
"""Larger requests are in memory of the system: for 1 MB that takes half the time of buffers that are cleared and
copied, for less the calls of the system take as long."""
READ_AT_ONCE_BYTES: Final = 256 * 1024
"""Bytes of a large request that one call of the system reads, about a tenth of a millisecond."""
Buffer = bytearray | mmap.mmap


class NetworkReceive:
    """The bytes of one connection that wait for more, or for their turn.

    `buffer` has the incomplete request with its size: `have` bytes of `need`. It is empty where there is none.
    """

    __slots__ = ("_backlog", "_hold", "buffer", "have", "need")

    def __init__(self, hold: Callable[[int], None]) -> None:
        """`hold` counts bytes that are held in memory; a negative number releases them."""
        self._hold = hold
        self._backlog: bytes = b""
        self.buffer: Buffer = bytearray()
        self.have = 0
        self.need = 0

    def begin(self, part: memoryview) -> None:
        """Keep the beginning of a request."""
        have = len(part)
        need = 4 + read_size(part)[0] if have >= 4 else 4
        buffer = _allocated(max(have, min(need, FIRST_FRAME_BUFFER_BYTES)), need)
        buffer[:have] = part
        self.buffer, self.have, self.need = buffer, have, need
        self._hold(len(buffer))

    @property
    def is_large(self) -> bool:
        """Whether the request takes over LARGE_REQUEST_BYTES."""
        return self.need > LARGE_REQUEST_BYTES

    def room(self, most_bytes: int = READ_AT_ONCE_BYTES) -> memoryview:
        """The part of the buffer that the next bytes are read into, `most_bytes` or less; a full buffer becomes larger
        first.
        """
        if self.have == len(self.buffer):
            self._grow(self.buffer)
        return memoryview(self.buffer)[self.have : self.have + most_bytes]

    def _grow(self, buffer: Buffer) -> None:
        """Double the received bytes, up to the end of the request."""
        before = len(buffer)
        size = min(self.need, max(FIRST_FRAME_BUFFER_BYTES, 2 * before))
        if not _resized(buffer, size):
            larger = _allocated(size, self.need)
            larger[: self.have] = memoryview(buffer)[: self.have]
            self.buffer = larger
        self._hold(size - before)

    def take(self) -> Buffer:
        """Return the buffer of the complete request, whose bytes the caller releases."""
        buffer, self.buffer = self.buffer, bytearray()
        return buffer

    def keep_backlog(self, view: memoryview) -> None:
        """Keep a copy of bytes, behind those that it has, until the connection accepts requests again."""
        self._backlog += bytes(view)
        self._hold(len(view))

    @property
    def has_backlog(self) -> bool:
        """Whether bytes are kept until the connection accepts requests again."""
        return bool(self._backlog)

    def take_backlog(self) -> bytes:
        """Return the kept bytes, and release them."""
        backlog, self._backlog = self._backlog, b""
        if backlog:
            self._hold(-len(backlog))
        return backlog

    @property
    def held_bytes(self) -> int:
        """The bytes that `hold` has counted and that are not released."""
        return len(self.buffer) + len(self._backlog)

    def clear(self) -> list[Memory]:
        """Drop everything at the end of the connection; returns what the caller has to release."""
        unused: list[Memory] = [each for each in (self.buffer, self._backlog) if each]
        self.buffer = bytearray()
        self._backlog = b""
        return unused


def _allocated(size: int, need: int) -> Buffer:
    """A buffer for the first bytes of a request of `need` bytes."""
    if need <= LARGE_REQUEST_BYTES:
        return bytearray(size)
    return mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)


def _resized(buffer: Buffer, size: int) -> bool:
    """Whether the buffer has grown without a copy: not where its bytes are in use, or on a system without mremap."""
    if isinstance(buffer, bytearray):
        return False
    try:
        buffer.resize(size)
    except (BufferError, SystemError):
        return False
    return True
