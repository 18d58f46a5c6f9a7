"""The send queue: what arrives, and in how many system calls."""

from __future__ import annotations

import os
import random
import socket
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.protocol.outbox import JOINED_BYTES, READ_BYTES, Outbox

SIZES = st.one_of(st.integers(0, 300), st.integers(READ_BYTES - 2, READ_BYTES + 2), st.just(3 * READ_BYTES))
CONTENT = random.Random(1).randbytes(4 * READ_BYTES)


class Range:
    """A range of a file, as an answer contains it."""

    def __init__(self, descriptor: int, position: int, size: int) -> None:
        self.position = position
        self._descriptor = descriptor
        self._size = size

    def __len__(self) -> int:
        return self._size

    def fileno(self) -> int:
        """The descriptor."""
        return self._descriptor


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """The descriptor of a file with CONTENT."""
    path = Path(tmp_path_factory.mktemp("outbox")) / "file"
    path.write_bytes(CONTENT)
    descriptor = os.open(path, os.O_RDONLY)
    yield descriptor
    os.close(descriptor)


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the calls that read or send a file."""
    calls: list[str] = []

    def count(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *given: calls.append(name) or call(*given)

    for name in ("pread", "sendfile"):
        monkeypatch.setattr(os, name, count(name, getattr(os, name)))
    return calls


class Sender:
    """A socket that counts what is sent at once."""

    def __init__(self, inner: socket.socket) -> None:
        self._inner = inner
        self.sizes: list[int] = []

    def fileno(self) -> int:
        """The descriptor."""
        return self._inner.fileno()

    def send(self, data: Any, flags: int) -> int:
        """The socket's."""
        sent = self._inner.send(data, flags)
        self.sizes.append(sent)
        return sent


@settings(max_examples=60)
@given(
    parts=st.lists(st.tuples(st.booleans(), SIZES), min_size=1, max_size=12),
    room=st.sampled_from((4_096, 200_000)),
    most=st.sampled_from((1_000, 50_000, sys.maxsize)),
)
def test_all_parts_arrive_in_order_however_little_the_socket_takes(
    file: int, parts: list[tuple[bool, int]], room: int, most: int
) -> None:
    outbox, expected, arrived = Outbox(), bytearray(), bytearray()
    for number, (from_file, size) in enumerate(parts):
        outbox.parts.append(Range(file, number, size) if from_file else CONTENT[number : number + size])
        expected += CONTENT[number : number + size]
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, room)
        ours.setblocking(False)
        has_files = any(from_file for from_file, _ in parts)
        while outbox.parts:
            before = sum(map(len, outbox.parts))
            sent = outbox.flush(ours, most)
            assert sent == before - sum(map(len, outbox.parts))
            assert sent <= most + JOINED_BYTES + max(size for _, size in parts) * has_files
            arrived += theirs.recv(1 << 20) if sent else b""
        ours.shutdown(socket.SHUT_WR)
        while data := theirs.recv(1 << 20):
            arrived += data
    assert arrived == expected
    assert not outbox.parts


@pytest.mark.parametrize(
    ("size", "calls", "sends"),
    [(READ_BYTES, ["pread"], [4 + READ_BYTES + 4]), (READ_BYTES + 1, ["sendfile"], [4, 4])],
)
def test_a_small_range_leaves_with_the_bytes_around_it(
    file: int, counted: list[str], size: int, calls: list[str], sends: list[int]
) -> None:
    outbox = Outbox()
    outbox.parts.extend([b"head", Range(file, 0, size), b"tail"])
    ours, theirs = socket.socketpair()
    with ours, theirs:
        sender = Sender(ours)
        assert outbox.flush(sender) == 8 + size  # type: ignore[arg-type]
        assert not outbox.parts
        arrived = theirs.recv(size + 8, socket.MSG_WAITALL)
    assert arrived == b"head" + CONTENT[:size] + b"tail"
    assert (counted, sender.sizes) == (calls, sends)


def test_small_ranges_are_read_as_far_as_one_call_sends(file: int, counted: list[str]) -> None:
    """A client that does not read must not make the broker read all that waits for it."""
    outbox = Outbox()
    outbox.parts.extend(Range(file, 0, READ_BYTES) for _ in range(100))
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)
        ours.setblocking(False)
        outbox.flush(ours)
    assert outbox.parts
    assert len(counted) <= 2 * JOINED_BYTES // READ_BYTES
    assert outbox.memory_bytes <= JOINED_BYTES


def test_the_bytes_before_a_truncated_range_are_sent(file: int) -> None:
    outbox = Outbox()
    outbox.parts.extend([b"whole answer", Range(file, len(CONTENT) - 10, 20), b"tail"])
    ours, theirs = socket.socketpair()
    with ours, theirs:
        with pytest.raises(OSError, match="the log was truncated under a fetch"):
            outbox.flush(ours)
        assert theirs.recv(100) == b"whole answer"
