"""Serdes of windowed keys (Kafka: TimeWindowedSerializer, SessionWindowedSerializer)."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, Final

from odradek.streams.records import Window, Windowed
from odradek.streams.serdes.formats import Serde

LATEST: Final = 2**63 - 1
_START: Final = struct.Struct(">q")
_END_START: Final = struct.Struct(">qq")


class WindowedSerde(Serde[Windowed]):
    """Windowed keys; `inner` is the serde of the bare key, whose bytes decide the partition."""

    __slots__ = ("inner",)

    def __init__(
        self, inner: Serde[Any], serialize: Callable[[Windowed], bytes], deserialize: Callable[[bytes], Windowed]
    ) -> None:
        super().__init__(serialize, deserialize, name=f"windowed {inner.name}", immutable=inner.immutable)
        self.inner = inner


def windowed_serde(inner: Serde[Any], size_ms: int | None = None) -> WindowedSerde:
    """Keys in time windows on topics: key, then the start of the window (8 bytes) (TimeWindowedSerializer).

    The bytes do not contain the end: reading needs `size_ms`; without it windows end at the largest timestamp, as in
    Java.
    """
    write, read = inner.serialize, inner.deserialize

    def serialize(windowed: Windowed) -> bytes:
        return write(windowed.key) + _START.pack(windowed.window.start)

    def deserialize(data: bytes) -> Windowed:
        (start,) = _START.unpack_from(data, len(data) - 8)
        end = LATEST if size_ms is None else min(start + size_ms, LATEST)
        return Windowed(read(data[:-8]), Window(start, end))

    return WindowedSerde(inner, serialize, deserialize)


def session_windowed_serde(inner: Serde[Any]) -> WindowedSerde:
    """Keys in sessions on topics and in stores: key, end (8 bytes), start (8 bytes) (SessionWindowedSerializer)."""
    write, read = inner.serialize, inner.deserialize

    def serialize(windowed: Windowed) -> bytes:
        return write(windowed.key) + _END_START.pack(windowed.window.end, windowed.window.start)

    def deserialize(data: bytes) -> Windowed:
        end, start = _END_START.unpack_from(data, len(data) - 16)
        return Windowed(read(data[:-16]), Window(start, end))

    return WindowedSerde(inner, serialize, deserialize)
