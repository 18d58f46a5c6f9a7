"""Jute: the encoding of ZooKeeper's log, its snapshots and its wire protocol.

Numbers are big-endian and fixed; a buffer or string is an int32 length and the bytes, and a length of -1 means null.
"""

from __future__ import annotations

import struct
from typing import Final

_INT: Final = struct.Struct(">i")
_LONG: Final = struct.Struct(">q")


class JuteError(ValueError):
    """The bytes are malformed; the message states what is wrong and at which position."""


class JuteWriter:
    """Builds one run of bytes."""

    __slots__ = ("_bytes",)

    def __init__(self) -> None:
        self._bytes = bytearray()

    def put_int(self, value: int) -> None:
        """A signed 32-bit number."""
        self._bytes += _INT.pack(value)

    def put_long(self, value: int) -> None:
        """A signed 64-bit number."""
        self._bytes += _LONG.pack(value)

    def put_bool(self, value: bool) -> None:
        """One byte, 0 or 1."""
        self._bytes.append(value)

    def put_buffer(self, value: bytes | None) -> None:
        """A length and bytes."""
        if value is None:
            self.put_int(-1)
        else:
            self.put_int(len(value))
            self._bytes += value

    def put_string(self, value: str | None) -> None:
        """A length and UTF-8."""
        self.put_buffer(None if value is None else value.encode())

    def put_struct(self, layout: struct.Struct, *values: int) -> None:
        """Several numbers at once."""
        self._bytes += layout.pack(*values)

    def to_bytes(self) -> bytes:
        """The bytes that were put so far."""
        return bytes(self._bytes)


class JuteReader:
    """Takes values off the front of a buffer. Every method raises JuteError where the buffer ends too early."""

    __slots__ = ("_buffer", "position")

    def __init__(self, buffer: bytes | memoryview, position: int = 0) -> None:
        self._buffer = memoryview(buffer)
        self.position = position

    def remaining(self) -> int:
        """How many bytes are left."""
        return len(self._buffer) - self.position

    def take(self, size: int) -> memoryview:
        """The next `size` bytes."""
        if size < 0 or size > self.remaining():
            raise JuteError(f"{size} bytes expected at {self.position}, found {self.remaining()}")
        start = self.position
        self.position += size
        return self._buffer[start : self.position]

    def take_struct(self, layout: struct.Struct) -> tuple[int, ...]:
        """Several numbers at once."""
        return layout.unpack(self.take(layout.size))

    def take_int(self) -> int:
        """A signed 32-bit number."""
        value: int = _INT.unpack(self.take(_INT.size))[0]
        return value

    def take_long(self) -> int:
        """A signed 64-bit number."""
        value: int = _LONG.unpack(self.take(_LONG.size))[0]
        return value

    def take_bool(self) -> bool:
        """One byte, 0 or not."""
        return self.take(1)[0] != 0

    def take_buffer(self) -> bytes | None:
        """A length and bytes."""
        size = self.take_int()
        return None if size == -1 else bytes(self.take(size))

    def take_string(self) -> str:
        """A length and UTF-8; null counts as wrong."""
        at = self.position
        if self.take_int() == -1:
            raise JuteError(f"null in place of a string at {at}")
        self.position = at
        return self.take_text()

    def take_text(self) -> str:
        """A length and UTF-8; null counts as empty."""
        at = self.position
        try:
            return (self.take_buffer() or b"").decode()
        except UnicodeDecodeError as error:
            raise JuteError(f"a string at {at} is not UTF-8") from error

    def take_count(self, least_size: int) -> int:
        """The length of a vector whose elements have at least `least_size` bytes; null counts as 0."""
        at = self.position
        count = self.take_int()
        if count > self.remaining() // least_size:
            raise JuteError(f"a vector of {count} elements at {at}, found {self.remaining()} bytes")
        return max(count, 0)
