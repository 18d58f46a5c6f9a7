"""Compares the frame handler in C with the function behind it, on valid and on corrupted frames.

The test compares a few thousand frames. A campaign of any length, on a build with sanitizers, is a part of

    make sanitize ARGS="--rounds 1000 --seed 7"
"""

from __future__ import annotations

import argparse
import logging
import random
from collections import deque
from pathlib import Path
from typing import Any, Final

from odradek.broker.metrics.broker_metrics import ApiMetrics
from odradek.broker.network.dispatcher import Call, Dispatcher
from odradek.protocol import frames
from odradek.protocol import messages as m
from odradek.protocol.errors import ErrorCode
from odradek.protocol.framing import request_header
from odradek.protocol.net import Connection
from odradek.protocol.outbox import Outbox
from tests.protocol.codec_differences import load
from tests.protocol.corrupted import spoiled

WAITS, SILENT, REPLIES, RAISES, UNWRITABLE, FAILS, LATE, REPLIES_FAILED, REPLIES_UNWRITABLE = range(1, 10)
"""What the handler does: the generation of a Heartbeat request."""
NO_SOCKET, BLOCKED, BROKEN = range(-3, 0)
MOST: Final = (NO_SOCKET, BLOCKED, BROKEN, 0, 5, 1 << 20, 1 << 20, 1 << 20)
LONG_MESSAGE: Final = "x" * 40_000
CLIENT_IDS: Final = (None, "", "client", "größe", "x" * 300)


class Clock:
    """A clock that only the handlers move."""

    def __init__(self) -> None:
        self.ns = 1000

    def now_ns(self) -> int:
        return self.ns


class HeartbeatHandler:
    """Does what the generation of the request selects."""

    KEY = m.HeartbeatRequest.API_KEY
    VERSIONS = (0, 4)

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.calls: list[tuple[Any, ...]] = []

    def handle(self, call: Call, request: m.HeartbeatRequest) -> Any:
        self._clock.ns += 17
        self.calls.append((call.version, call.correlation_id, call.client_id, call.started_ns, call.answer, request))
        generation = request.generation_id
        if generation == RAISES:
            raise RuntimeError("broken")
        if generation == SILENT:
            call.no_reply = True
        if generation == REPLIES:
            call.reply(m.HeartbeatResponse(throttle_time_ms=3))
        if generation == REPLIES_FAILED:
            call.local_ns = 3
            call.reply(m.HeartbeatResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID))
        if generation == REPLIES_UNWRITABLE:
            call.reply(m.HeartbeatResponse(throttle_time_ms=2**40))
        if generation == UNWRITABLE:
            return m.HeartbeatResponse(throttle_time_ms=2**40)
        if generation == LATE:
            call.local_ns = 5
        if generation in (WAITS, SILENT, REPLIES, REPLIES_FAILED, REPLIES_UNWRITABLE):
            return None
        return m.HeartbeatResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS if generation == FAILS else 0)


class FindCoordinatorHandler:
    """Its responses have a message, and one is too long for its field."""

    KEY = m.FindCoordinatorRequest.API_KEY
    VERSIONS = (0, 3)

    def handle(self, call: Call, request: m.FindCoordinatorRequest) -> Any:
        call.from_follower = request.key == "follower"
        message = LONG_MESSAGE if request.key in ("long", "long, later") else "none"
        response = m.FindCoordinatorResponse(error_code=15, error_message=message, host="h", port=7)
        if request.key == "long, later":
            call.reply(response)
            return None
        return response


class RecordingSocket:
    """Takes so many bytes of each response, and none from the broken one."""

    def __init__(self, wire: bytearray, most: int) -> None:
        self._wire = wire
        self._most = most

    def send(self, data: bytearray) -> int:
        if self._most < 0:
            raise BlockingIOError if self._most == BLOCKED else ConnectionResetError
        self._wire += data[: self._most]
        return min(len(data), self._most)


class RecordingConnection(Connection):
    """A connection with a socket that takes `most` bytes at once: keeps what happens to it."""

    __slots__ = ("events", "wire")

    def __init__(self, *, corked: bool, owed: int, writing: bool, most: int) -> None:  # without that of a real one
        self.events: list[Any] = []
        self.wire = bytearray()
        self.owed = deque([object()] * owed)  # type: ignore[list-item]
        self._out = Outbox()
        self._corked = corked
        self._writing = writing
        self.closed = False
        self.socket = RecordingSocket(self.wire, most) if most != NO_SOCKET else None  # type: ignore[assignment]

    def send(self, exchange: Any, parts: Any) -> None:
        if self._writing or self.owed:
            self.events.append(("send", exchange.correlation_id, list(map(bytes, parts))))
        elif self._corked:
            self._out.parts.extend(parts)
        else:
            self.wire += b"".join(parts)

    def answer(self, exchange: Any, parts: Any) -> None:
        exchange.answer = parts

    def expect(self, exchange: Any) -> None:
        self.events.append(("expect", exchange.correlation_id))

    def refuse(self, kind: str, text: str) -> None:
        self.events.append((kind, text))

    def close(self, *, flush: bool = False) -> None:
        self.events.append("close")

    @property
    def queued(self) -> list[bytes]:
        return list(map(bytes, self._out.parts))  # type: ignore[arg-type]  # no part is a range of a file


class Side:
    """A dispatcher, whose function `frame` or the one behind it handles the frames."""

    def __init__(self, *, in_c: bool) -> None:
        self._clock = Clock()
        self._heartbeats = HeartbeatHandler(self._clock)
        self._metrics = ApiMetrics(self._clock.now_ns)
        dispatcher = Dispatcher([self._heartbeats, FindCoordinatorHandler()], self._metrics)
        self.frame = dispatcher.frame if in_c else dispatcher.frame_in_python
        if not in_c:
            dispatcher._reply = frames.not_in_c

    def outcome(self, frame: bytes, **state: Any) -> Any:
        """Everything that a frame changes."""
        self._clock.ns = 1000
        self._heartbeats.calls.clear()
        connection = RecordingConnection(**state)
        self.frame(connection, memoryview(b"----" + frame)[4:])
        counts = [(each.name, each.count, each.versions, each.errors, each.durations()[-2:]) for each in self._metrics]
        return connection.events, connection.queued, bytes(connection.wire), repr(self._heartbeats.calls), counts


def frame_of(rng: random.Random) -> bytes:
    """A request of either handler, in any version and one that is not supported."""
    if rng.randint(0, 3):
        version = rng.randint(0, 5)
        body = m.HeartbeatRequest(group_id="g", generation_id=rng.randint(0, REPLIES_UNWRITABLE + 1), member_id="m")
        key, data = m.HeartbeatRequest.API_KEY, body.encode(min(version, 4))
    else:
        version = rng.randint(0, 4)
        key = m.FindCoordinatorRequest.API_KEY
        found = m.FindCoordinatorRequest(key=rng.choice(("long", "long, later", "follower", "group")))
        data = found.encode(min(version, 3))
    return request_header(key, version, rng.randint(-(2**31), 2**31 - 1), rng.choice(CLIENT_IDS)) + data


def compare(rng: random.Random, count: int) -> list[str]:
    """Pass `count` frames to both; returns the differences."""
    ours, theirs = Side(in_c=True), Side(in_c=False)
    differences = []
    for _ in range(count):
        frame = frame_of(rng)
        if rng.randint(0, 2) == 0:
            frame = bytes(spoiled(frame, rng))
        state = {
            "corked": rng.random() < 0.5,
            "owed": rng.randint(0, 4) // 4,
            "writing": rng.random() < 0.1,
            "most": rng.choice(MOST),
        }
        found, expected = ours.outcome(frame, **state), theirs.outcome(frame, **state)
        if found != expected:
            differences.append(f"{frame.hex()} {state}: {found} {expected}")
    return differences


def main() -> None:
    """Run a campaign. Raises SystemExit with the differences."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=10, help="of a thousand frames each")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--library", type=Path, help="the folder of another build of the extensions")
    arguments, _ = parser.parse_known_args()
    if arguments.library is not None:
        load(arguments.library, "_frames", frames)
    logging.disable()
    rng = random.Random(arguments.seed)
    for number in range(arguments.rounds):
        if differences := compare(rng, 1000):
            raise SystemExit("\n".join(differences[:10]))
        print(f"{1000 * (number + 1)} frames without a difference", flush=True)


if __name__ == "__main__":
    main()
