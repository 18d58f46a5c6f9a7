"""Compares the methods of a connection in C with those in Python, on any read in any state of the connection.

The test compares a few thousand reads. A campaign of any length, on a build with sanitizers, is a part of

    make sanitize ARGS="--rounds 1000 --seed 7"
"""

from __future__ import annotations

import argparse
import random
import struct
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

from odradek.protocol import net, reads
from odradek.protocol.net import Connection
from odradek.protocol.outbox import Outbox
from odradek.protocol.read_turn import COUNTED_BYTES, FIRST_FRAMES, FIRST_FRAMES_NS, ReadTurn
from odradek.protocol.receive import NetworkReceive
from tests.protocol.codec_differences import load

MOST: Final = 1000
SLOTS: Final = ("_corked", "_paused", "_most", "last_active_s", "closed")
OF_TURN: Final = ("_first", "_first_ns", "reading", "is_full")


class Loop:
    """The clock of a loop, which each call moves."""

    def __init__(self) -> None:
        self.now_s = 5.0

    def time(self) -> float:
        self.now_s += 1.0
        return self.now_s


class Turn(ReadTurn):
    """Another class than the one of the extension, which leaves it to Python."""

    __slots__ = ()


class Requests:
    """A frame handler that records requests, and sometimes changes the connection or raises."""

    def __init__(self, events: list[Any]) -> None:
        self._events = events

    def __call__(self, connection: Connection, frame: memoryview) -> None:
        data = bytes(frame)
        self._events.append((data, connection._turn.reading, connection._corked, connection.last_active_s))
        match data[:1]:
            case b"q":
                connection._out.parts.append(b"queued")
            case b"w":
                connection._turn.waiting.append((connection, lambda: None))
            case b"p":
                connection._paused = connection._corked = True
            case b"c":
                connection.closed = True
            case b"r":
                raise RuntimeError("broken")
            case b"e":
                raise SystemExit


class ReadingConnection(Connection):
    """A connection without a socket: keeps what happens to it."""

    __slots__ = ("events",)

    def __init__(self, data: bytes, turn: ReadTurn, begun: bytes, state: dict[str, Any]) -> None:  # of no real one
        self.events: list[Any] = []
        self._listener = SimpleNamespace(  # type: ignore[assignment]
            limits=SimpleNamespace(frame_bytes=MOST),
            tls=None,
            hold=lambda count: None,
            little_view=memoryview(b"little"),
        )
        self._loop = Loop()  # type: ignore[assignment]
        self._view = memoryview(bytearray(data))
        self._on_frame = Requests(self.events)
        self._receive = NetworkReceive(self._listener.hold)
        self._incomplete = None
        if begun:
            self._incomplete = self._receive
            self._receive.begin(memoryview(begun))
        self._transport = Transport(self.events)  # type: ignore[assignment]
        self._is_left = self._waits_for_turn = False
        self._turn = turn
        self._out = Outbox()
        self._most = MOST
        for name, value in state.items():
            setattr(self, name, value)

    def _flush(self) -> None:
        self.events.append(("flush", list(self._out.parts)))
        self._out.parts.clear()

    def _check_memory(self, receive: Any) -> None:
        self.events.append("check memory")

    def refuse(self, kind: str, text: str) -> None:
        self.closed = True


class Transport:
    """Records that the reading stops."""

    def __init__(self, events: list[Any]) -> None:
        self._events = events

    def pause_reading(self) -> None:
        self._events.append("pause")


def turn_of(kind: type[ReadTurn], now_ns: int, first: int, began_ns: int, is_full: bool) -> ReadTurn:
    """A turn that has handled `first` requests, and is watched since `began_ns`, which is 0 before that."""
    turn = kind(lambda: now_ns)
    turn._is_ending = turn._is_scheduled = True  # so that it needs no loop
    turn._first, turn._first_ns, turn.is_full = first, began_ns, is_full
    return turn


def data_of(rng: random.Random) -> tuple[bytes, int]:
    """The receive buffer, and how many bytes of it were read: mostly one request."""
    body = rng.choice((b"", b"q", b"w", b"p", b"c", b"r", b"e", b"other")) + rng.randbytes(rng.choice((0, 1, 7, 300)))
    if rng.random() < 0.05:
        body = bytes(rng.choice((MOST - 1, MOST, MOST + 1, COUNTED_BYTES - 4, COUNTED_BYTES - 5)))
    size = len(body) if rng.random() < 0.8 else rng.choice((-1, len(body) - 1, len(body) + 1, 2**31 - 1, -(2**31)))
    data = struct.pack(">i", size) + body
    read = len(data) if rng.random() < 0.9 else rng.randint(1, len(data))
    return data + rng.randbytes(rng.choice((0, 4, 50))), read


def state_of(rng: random.Random) -> dict[str, Any]:
    """What the connection and its listener have done before."""
    return {
        "_corked": rng.random() < 0.1,
        "_paused": rng.random() < 0.1,
        "_writing": rng.random() < 0.1,
        "_most": rng.choice((MOST, MOST, 1 << 20, 1 << 40)),
        "closed": rng.random() < 0.1,
        "last_active_s": 1.0,
    }


def outcome(methods: reads.Methods, connection: ReadingConnection, count: int) -> Any:
    """Everything that a read of up to `count` bytes changes."""
    get_buffer, buffer_updated = methods
    room = get_buffer(connection, 1 << 16)
    try:
        result: Any = buffer_updated(connection, min(count, len(room)))
    except (RuntimeError, SystemExit) as error:
        result = type(error)
    turn, receive = connection._turn, connection._receive
    values = [getattr(connection, name) for name in SLOTS], [getattr(turn, name) for name in OF_TURN]
    kept = connection._incomplete is receive, receive.held_bytes, bytes(receive.take_backlog())
    return bytes(room), result, values, len(turn.waiting), connection.events, kept, list(connection._out.parts)


def compare(rng: random.Random, count: int) -> list[str]:
    """Pass `count` reads to both; returns the differences."""
    ours = Connection.get_buffer, Connection.buffer_updated
    differences = []
    for _ in range(count):
        (data, read), state = data_of(rng), state_of(rng)
        now_ns = 10**9
        turn = (
            rng.choice((ReadTurn, ReadTurn, ReadTurn, Turn)),
            now_ns,
            rng.choice((0, 1, FIRST_FRAMES - 1, FIRST_FRAMES, FIRST_FRAMES + 5)),
            rng.choice((0, now_ns, now_ns - FIRST_FRAMES_NS, now_ns - FIRST_FRAMES_NS - 1)),
            rng.random() < 0.1,
        )
        begun = b"\0\0" if rng.random() < 0.1 else b""
        found, expected = (
            outcome(methods, ReadingConnection(data, turn_of(*turn), begun, state), read)
            for methods in (ours, net.IN_PYTHON)
        )
        if found != expected:
            differences.append(f"{data[:read].hex()} {state} {turn}: {found} {expected}")
    return differences


def main() -> None:
    """Run a campaign. Raises SystemExit with the differences."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=10, help="of a thousand reads each")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--library", type=Path, help="the folder of another build of the extensions")
    arguments, _ = parser.parse_known_args()
    if arguments.library is not None:
        load(arguments.library, "_reads", reads)
        Connection.get_buffer, Connection.buffer_updated = net.IN_PYTHON  # type: ignore[assignment, method-assign]
        reads.in_c(Connection, ReadTurn, Outbox, net.LIMITS)
    rng = random.Random(arguments.seed)
    for number in range(arguments.rounds):
        if differences := compare(rng, 1000):
            raise SystemExit("\n".join(differences[:10]))
        print(f"{1000 * (number + 1)} reads without a difference", flush=True)


if __name__ == "__main__":
    main()
