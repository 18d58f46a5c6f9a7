"""The receive buffer of a connection to another broker: frames in it, and large frames in memory of their own."""

from __future__ import annotations

from mmap import mmap
from typing import Any, Final
from unittest.mock import Mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.protocol import dial

OWN_BUFFER_BYTES: Final = 1 << 20


@pytest.fixture(autouse=True, scope="module")
def small_limit() -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dial, "OWN_BUFFER_BYTES", OWN_BUFFER_BYTES)
        yield


class Received:
    """A connection, and the frames that it passed on."""

    def __init__(self) -> None:
        self.frames: list[memoryview] = []
        self.copies: list[bytes] = []
        self.channel = dial.TcpChannel(self._on_frame, Mock(), 1 << 30)
        self.channel.connection_made(Mock(get_extra_info=Mock(return_value=None)))

    def _on_frame(self, frame: memoryview) -> None:
        self.frames.append(frame)
        self.copies.append(bytes(frame))

    def receive(self, data: bytes, most: int) -> None:
        """Receive bytes, no more than `most` with one read."""
        while data:
            room = self.channel.get_buffer(-1)
            count = min(len(room), len(data), most)
            room[:count] = data[:count]
            data = data[count:]
            self.channel.buffer_updated(count)


@given(
    sizes=st.lists(st.sampled_from([0, 3, 70_000, OWN_BUFFER_BYTES + 1, 2 * OWN_BUFFER_BYTES]), min_size=1, max_size=5),
    most=st.sampled_from([50_000, 300_000, 1 << 30]),
)
def test_every_frame_arrives_and_large_ones_stay_as_they_are(sizes: list[int], most: int) -> None:
    received = Received()
    frames = [bytes([number + 1]) * size for number, size in enumerate(sizes)]
    received.receive(b"".join(dial.SIZE.pack(len(frame)) + frame for frame in frames), most)
    assert received.copies == frames
    for frame, kept in zip(frames, received.frames, strict=True):
        if isinstance(kept.obj, mmap):
            assert kept == frame
        else:
            assert len(frame) <= OWN_BUFFER_BYTES


def test_the_memory_of_a_large_frame_is_not_kept() -> None:
    received = Received()
    frame = bytes(2 * OWN_BUFFER_BYTES)
    received.receive(dial.SIZE.pack(len(frame)) + frame, len(frame))
    (kept,) = received.frames
    assert isinstance(kept.obj, mmap)
    assert not isinstance(received.channel.get_buffer(-1).obj, mmap)
