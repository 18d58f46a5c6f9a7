"""Responses from a blocking socket."""

from __future__ import annotations

import socket
from typing import Final

LARGEST_RESPONSE_BYTES: Final = 100 * 1024 * 1024
"""A larger size is that of another protocol."""
_PART_BYTES: Final = 1 << 20


def receive(connection: socket.socket, size: int, closed: str) -> bytes:
    """So many bytes. Raises OSError; ConnectionResetError with the message `closed` where the broker closes the
    connection before.
    """
    data = bytearray()
    while len(data) < size:
        part = connection.recv(min(size - len(data), _PART_BYTES))
        if not part:
            raise ConnectionResetError(closed)
        data += part
    return bytes(data)
