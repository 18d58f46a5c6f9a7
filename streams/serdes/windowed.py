"""Serdes of windowed keys (Kafka: TimeWindowedSerializer, SessionWindowedSerializer)."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Final

from odradek.streams.records import Window, Windowed
from odradek.streams.serdes.formats import Serde
from odradek.streams.type_variables import K

LATEST: Final = 2**63 - 1
_START: Final = struct.Struct(">q")
_END_START: Final = struct.Struct(">qq")


class WindowedSerde(Serde[Windowed[K]]):
    """Windowed keys; `inner` is the serde of the bare key, whose bytes decide the partition."""

    __slots__ = ("inner",)

    def __init__(
        self, inner: Serde[K], serialize: Callable[[Windowed[K]], bytes], deserialize: Callable[[bytes], Windowed[K]]
    ) -> None:
        super().__init__(serialize, deserialize, name=f"windowed {inner.name}", immutable=inner.immutable)
        self.inner = inner


def windowed_serde(inner: Serde[K], size_ms: int | None = None, *, changelog: bool = False) -> WindowedSerde[K]:
    """Keys in time windows on topics: key, then the start of the window (8 bytes) (TimeWindowedSerializer).

    With `changelog` it reads the keys of a window store's changelog, which have a sequence number (4 bytes) behind the
    start, and writes them with the number 0 (TimeWindowedSerde.forChangelog).

    The bytes do not contain the end: reading needs `size_ms`; without it windows end at the largest timestamp, as in
    Java.
    """
    write, read = inner.serialize, inner.deserialize
    tail = bytes(4) if changelog else b""
    behind = 8 + len(tail)

    def serialize(windowed: Windowed[K]) -> bytes:
        return write(windowed.key) + _START.pack(windowed.window.start) + tail

    def deserialize(data: bytes) -> Windowed[K]:
        (start,) = _START.unpack_from(data, len(data) - behind)
        end = LATEST if size_ms is None else min(start + size_ms, LATEST)
        return Windowed(read(data[:-behind]), Window(start, end))

    return WindowedSerde(inner, serialize, deserialize)


def session_windowed_serde(inner: Serde[K]) -> WindowedSerde[K]:
    """Keys in sessions on topics and in stores: key, end (8 bytes), start (8 bytes) (SessionWindowedSerializer)."""
    write, read = inner.serialize, inner.deserialize

    def serialize(windowed: Windowed[K]) -> bytes:
        return write(windowed.key) + _END_START.pack(windowed.window.end, windowed.window.start)

    def deserialize(data: bytes) -> Windowed[K]:
        end, start = _END_START.unpack_from(data, len(data) - 16)
        return Windowed(read(data[:-16]), Window(start, end))

    return WindowedSerde(inner, serialize, deserialize)
