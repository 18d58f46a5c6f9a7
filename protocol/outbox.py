"""The send queue of a connection: bytes and ranges of files, in order, written straight to the socket.

Small answers that wait together leave in one system call, and small ranges of files with them: a read costs less than
two more calls. A larger range leaves through sendfile and never enters this process. What the socket does not take
stays in the queue. This is the plain half of `net.Connection`; an encrypted connection writes through its transport.
"""

from __future__ import annotations

import errno
import os
import socket
import sys
from collections import deque
from collections.abc import Iterable
from typing import Final, Protocol

from odradek.protocol.release import Memory

JOINED_BYTES: Final = 64 * 1024
READ_BYTES: Final = 16 * 1024
"""The largest range of a file that is read in place of sent through sendfile."""
FILE_CHUNK_BYTES: Final = 128 * 1024
MSG_MORE: Final[int] = getattr(socket, "MSG_MORE", 0)


class TransferableRecords(Protocol):
    """A range of an open file that an answer can contain in place of bytes."""

    position: int

    def __len__(self) -> int: ...

    def fileno(self) -> int: ...


Part = bytes | bytearray | memoryview | TransferableRecords
"""One piece of an answer."""

BYTES: Final = (bytes, bytearray, memoryview)


def memory_bytes(parts: Iterable[Part]) -> int:
    """Bytes of an answer, or of a queue, that are in memory; ranges of files take none and do not count."""
    return sum(len(part) for part in parts if isinstance(part, BYTES))


def in_memory(parts: Iterable[Part]) -> list[Memory]:
    """The parts that are bytes in memory."""
    return [part for part in parts if isinstance(part, BYTES)]


class Outbox:
    """The queue of one connection."""

    __slots__ = ("parts",)

    def __init__(self) -> None:
        self.parts: deque[Part] = deque()

    @property
    def memory_bytes(self) -> int:
        """Bytes that wait in memory."""
        return memory_bytes(self.parts)

    def clear(self) -> list[Memory]:
        """Drop everything at the end of the connection; returns what the caller has to release."""
        unused = in_memory(self.parts)
        self.parts.clear()
        return unused

    def flush(self, sock: socket.socket, most_bytes: int = sys.maxsize) -> int:
        """Send as much as the socket takes, `most_bytes` or a little more (JOINED_BYTES); returns how many bytes.

        A range of a file is sent as far as the socket takes it: that costs a tenth of bytes in memory, and parts of it
        cost more than all of it at once. Raises OSError when the peer is gone.
        """
        parts = self.parts
        sent = 0
        while parts and sent < most_bytes:
            data = parts[0]
            try:
                if len(parts) == 1 and type(data) is bytearray and len(data) <= most_bytes - sent:  # the usual case
                    count = sock.send(data)
                    if count < len(data):
                        parts[0] = memoryview(data)[count:]
                    else:
                        parts.popleft()
                    return sent + count
                if _is_sent_as_file(data):
                    count, is_short = self._send_file(sock)
                else:
                    count, is_short = self._send_bytes(sock, most_bytes - sent)
            except (BlockingIOError, InterruptedError):
                break
            sent += count
            if is_short:
                break
        return sent

    def _send_bytes(self, sock: socket.socket, most_bytes: int) -> tuple[int, bool]:
        """Send bytes at the head of the queue with one system call; returns how many, and whether that was less."""
        parts = self.parts
        data = parts[0]
        more = 0
        if len(parts) > 1 or not isinstance(data, BYTES):
            data, more = self._gather()
        count = size = len(data)
        if size > most_bytes + JOINED_BYTES:
            count = most_bytes
            sent = sock.send(memoryview(data)[:count])
        else:
            sent = sock.send(data, more)
        if sent == size:
            parts.popleft()
        else:
            parts[0] = memoryview(data)[sent:]
        return sent, sent < count

    def _gather(self) -> tuple[bytes | bytearray | memoryview, int]:
        """Join small parts at the head into one; returns it, with MSG_MORE when a file follows.

        The first bytes of a file then share a packet with the head of its answer. Raises OSError for a small range at
        the head that cannot be read; the bytes before such a range are sent first.
        """
        parts = self.parts
        small: list[bytes | bytearray | memoryview] = []
        size = 0
        while parts and size < JOINED_BYTES:
            part, length = parts[0], len(parts[0])
            if small and size + length > JOINED_BYTES:
                break
            if not isinstance(part, BYTES):
                if length > READ_BYTES:
                    break
                try:
                    part = _read(part, length)
                except OSError:
                    if small:
                        break
                    raise
            small.append(part)
            size += length
            parts.popleft()
        joined = small[0] if len(small) == 1 else b"".join(small)
        follows_file = bool(parts) and _is_sent_as_file(parts[0])
        parts.appendleft(joined)
        return joined, MSG_MORE if follows_file else 0

    def _send_file(self, sock: socket.socket) -> tuple[int, bool]:
        """The same for the range of a file at the head of the queue."""
        part: TransferableRecords = self.parts[0]  # type: ignore[assignment]
        count = len(part)
        sent = os.sendfile(sock.fileno(), part.fileno(), part.position, count) if count else 0
        if count and not sent:
            raise truncated()
        self.advance(sent)
        return sent, sent < count

    def advance(self, sent: int) -> None:
        """Remove the first `sent` bytes of the range at the head."""
        part: TransferableRecords = self.parts.popleft()  # type: ignore[assignment]
        if sent < len(part):
            self.parts.appendleft(_Rest(part, sent))

    def next_chunk(self) -> bytes | bytearray | memoryview:
        """Take bytes off the queue for a transport: the part at the head, or a chunk of its file. Raises OSError."""
        part = self.parts[0]
        if isinstance(part, BYTES):
            self.parts.popleft()
            return part
        chunk = os.pread(part.fileno(), min(len(part), FILE_CHUNK_BYTES), part.position)
        if not chunk and len(part):
            raise truncated()
        self.advance(len(chunk))
        return chunk


def _is_sent_as_file(part: Part) -> bool:
    return not isinstance(part, BYTES) and len(part) > READ_BYTES


def _read(part: TransferableRecords, length: int) -> bytes:
    data = os.pread(part.fileno(), length, part.position)
    if len(data) < length:
        raise truncated()
    return data


def truncated() -> OSError:
    """The error for a file that ended before its range did: a truncation came first, and the answer's size was sent."""
    return OSError(errno.EPIPE, "the log was truncated under a fetch")


class _Rest:
    """The rest of a range of a file."""

    __slots__ = ("_length", "_part", "position")

    def __init__(self, part: TransferableRecords, sent: int) -> None:
        self._part = part
        self._length = len(part) - sent
        self.position = part.position + sent

    def __len__(self) -> int:
        return self._length

    def fileno(self) -> int:
        return self._part.fileno()
