"""The frame handler in C: equal to the function behind it on any frame, without leaks."""

from __future__ import annotations

import gc
import logging
import random
import sys
from typing import Any

import pytest

from odradek.broker.network.dispatcher import Call, Dispatcher, Route
from odradek.broker.network.large_requests import SMALL_FRAME_BYTES
from odradek.protocol import frames
from odradek.protocol import messages as m
from odradek.protocol.frames import Calls, frame_handler
from odradek.protocol.framing import request_header
from tests.broker.frame_differences import (
    FAILS,
    NO_SOCKET,
    RAISES,
    REPLIES,
    REPLIES_FAILED,
    REPLIES_UNWRITABLE,
    UNWRITABLE,
    WAITS,
    HeartbeatHandler,
    RecordingConnection,
    Side,
    compare,
)

pytest.importorskip("odradek.protocol._frames", reason="no C compiler when Odradek was installed")


def heartbeat(generation: int, version: int = 4) -> bytes:
    request = m.HeartbeatRequest(group_id="g", generation_id=generation, member_id="m")
    return request_header(request.API_KEY, version, 7, "client") + request.encode(version)


def test_any_frame_has_the_same_effects_in_c_and_in_python(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.CRITICAL):
        assert not compare(random.Random(41), 1500)


def test_a_usual_frame_never_reaches_the_function_behind_the_extension(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[bytes] = []
    behind = Dispatcher.frame_in_python

    def watched(self: Dispatcher, connection: Any, frame: memoryview) -> None:
        seen.append(bytes(frame))
        behind(self, connection, frame)

    monkeypatch.setattr(Dispatcher, "frame_in_python", watched)
    side = Side(in_c=True)
    state = {"corked": True, "owed": 0, "writing": False, "most": NO_SOCKET}
    for generation in (0, 0, WAITS, REPLIES, FAILS):
        side.outcome(heartbeat(generation), **state)
    assert len(seen) == 1  # the first one of a version creates its route
    for rare in (heartbeat(0)[:-3], heartbeat(0, 3) + bytes(SMALL_FRAME_BYTES)):
        side.outcome(rare, **state)
    assert len(seen) == 3


def test_a_usual_later_response_is_not_encoded_in_python(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[m.HeartbeatResponse] = []
    monkeypatch.setattr(Call, "_reply_in_python", lambda _, response: seen.append(response))
    side = Side(in_c=True)
    state = {"corked": True, "owed": 0, "writing": False, "most": NO_SOCKET}
    for generation in (REPLIES, REPLIES, REPLIES_FAILED, REPLIES_UNWRITABLE):
        side.outcome(heartbeat(generation), **state)
    assert [response.throttle_time_ms for response in seen] == [2**40]


def test_a_handler_that_raises_closes_the_connection_and_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    side = Side(in_c=True)
    state = {"corked": True, "owed": 0, "writing": False, "most": NO_SOCKET}
    side.outcome(heartbeat(0), **state)
    events, queued, _, _, _ = side.outcome(heartbeat(RAISES), **state)
    assert events == ["close"]
    assert queued == []
    assert caplog.messages == ["request failed api=Heartbeat version=4 client_id='client'"]
    assert caplog.records[0].exc_info is not None
    assert "RuntimeError: broken" in caplog.text


def test_an_interrupt_in_a_handler_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    side = Side(in_c=True)
    state = {"corked": True, "owed": 0, "writing": False, "most": NO_SOCKET}
    monkeypatch.setattr(HeartbeatHandler, "handle", lambda *_: sys.exit(3))
    for _ in range(2):  # through the function behind it, and in C
        with pytest.raises(SystemExit):
            Side.outcome(side, heartbeat(0), **state)


def test_frames_leave_no_objects_behind() -> None:
    logging.disable()
    try:
        side, connection = Side(in_c=True), RecordingConnection(corked=True, owed=0, writing=False, most=NO_SOCKET)
        kinds = [
            memoryview(heartbeat(each)) for each in (0, WAITS, REPLIES, RAISES, UNWRITABLE, FAILS, REPLIES_UNWRITABLE)
        ]

        def blocks() -> int:
            for _ in range(50):
                for frame in kinds:
                    side.frame(connection, frame)
            connection.events.clear()
            connection._out.parts.clear()
            side._heartbeats.calls.clear()
            gc.collect()
            return sys.getallocatedblocks()

        for _ in range(20):  # fills what keeps the last thousand durations
            blocks()
        assert abs(blocks() - blocks()) < 50
    finally:
        logging.disable(logging.NOTSET)


def test_calls_and_classes_that_do_not_fit_are_refused() -> None:
    side = Side(in_c=True)
    for arguments in ((), (None,), (None, None, None)):
        with pytest.raises(TypeError):
            side.frame(*arguments)
        with pytest.raises(TypeError):
            side.frame.reply(*arguments)  # type: ignore[attr-defined]
    calls = Calls(lambda: 0, side.frame, print, print)
    with pytest.raises(AttributeError):
        frame_handler({}, Call, Call, Route, largest=10, calls=calls)
    with pytest.raises(TypeError):
        frame_handler({}, Route, 3, Route, largest=10, calls=calls)  # type: ignore[arg-type]
    assert frames.in_python({}, Route, Call, Route, largest=10, calls=calls) is side.frame
