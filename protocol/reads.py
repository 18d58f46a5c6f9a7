"""Reads in C: the usual read of a connection, one whole request, with few Python calls.

`install` puts two functions of the extension in front of `get_buffer` and `buffer_updated` of the connection class.
They do what these methods do for a read that is one request and nothing else, of less than COUNTED_BYTES, where the
connection has no incomplete request, is not paused, and has its turn. They call the method in Python for every other
read, and have changed nothing by then.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

Methods = tuple[Callable[[Any, int], memoryview], Callable[[Any, int], None]]
"""`get_buffer` and `buffer_updated` as functions."""


class ReadLimits(NamedTuple):
    """The limits of `read_turn`."""

    first_frames: int
    first_frames_ns: int
    counted_bytes: int


def in_c(connection: Any, turn: type, outbox: type, limits: ReadLimits) -> Methods:
    """Replace the two methods of the class `connection`; returns those in Python. `turn` and `outbox` are classes of
    its objects, whose slots the extension reads and writes. Raises TypeError or AttributeError where a class lacks one.
    """
    methods = connection.get_buffer, connection.buffer_updated
    connection.get_buffer, connection.buffer_updated = _reads.methods(connection, turn, outbox, *methods, *limits)
    return methods


def in_python(connection: Any, turn: type, outbox: type, limits: ReadLimits) -> Methods:
    """The function of an installation without the extension: leaves the methods as they are."""
    return connection.get_buffer, connection.buffer_updated


try:
    from odradek.protocol import _reads

    _reads.methods  # noqa: B018  # absent where the extension was built from other sources
    install = in_c
except (ImportError, AttributeError):  # installed without a compiler, or built from older sources
    install = in_python
