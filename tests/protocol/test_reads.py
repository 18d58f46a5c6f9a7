"""The usual read in C: equal to the methods in Python for any read, without leaks."""

from __future__ import annotations

import gc
import random
import sys
from typing import Any

import pytest

from odradek.protocol import net, reads
from odradek.protocol.net import Connection
from odradek.protocol.outbox import Outbox
from odradek.protocol.read_turn import ReadTurn
from tests.protocol.read_differences import ReadingConnection, compare, outcome, turn_of

_reads: Any = pytest.importorskip("odradek.protocol._reads", reason="no C compiler when Odradek was installed")
USUAL = b"\0\0\0\5other"
STATE = {"_corked": False, "_paused": False, "_writing": False, "closed": False, "last_active_s": 1.0}


def connection(data: bytes = USUAL) -> ReadingConnection:
    return ReadingConnection(data, turn_of(ReadTurn, 1, 0, 0, False), b"", STATE)


def test_any_read_has_the_same_effects_in_c_and_in_python() -> None:
    assert not compare(random.Random(43), 3000)


def test_a_usual_read_never_reaches_the_method_in_python() -> None:
    def unexpected(*_: object) -> Any:
        raise AssertionError

    try:
        methods = _reads.methods(Connection, ReadTurn, Outbox, unexpected, unexpected, *net.LIMITS)
        *_, events, _, _ = outcome(methods, connection(), len(USUAL))
        assert events == [(b"other", True, False, 6.0)]
        with pytest.raises(AssertionError):
            outcome(methods, connection(), len(USUAL) - 1)
    finally:
        _reads.methods(Connection, ReadTurn, Outbox, *net.IN_PYTHON, *net.LIMITS)


def test_reads_leave_no_objects_behind() -> None:
    ours = Connection.get_buffer, Connection.buffer_updated
    frames = [connection(b"\0\0\0\5" + kind + b"1234") for kind in (b"o", b"r", b"q", b"e")]

    def blocks() -> int:
        for _ in range(50):
            for each in frames:
                outcome(ours, each, len(USUAL))
                each.events.clear()
                each._turn._first = 0
        gc.collect()
        return sys.getallocatedblocks()

    blocks()
    assert abs(blocks() - blocks()) < 20


def test_an_object_without_its_slots_is_left_to_python() -> None:
    broken = connection()
    del broken._out
    with pytest.raises(AttributeError, match="_out"):
        broken.buffer_updated(len(USUAL))


def test_classes_and_numbers_that_do_not_fit_are_refused() -> None:
    with pytest.raises(TypeError):
        Connection.buffer_updated(None, 3)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        connection().buffer_updated("3")  # type: ignore[arg-type]
    for classes in ((int, ReadTurn, Outbox), (Connection, int, Outbox), (Connection, ReadTurn, int)):
        with pytest.raises((TypeError, AttributeError)):
            _reads.methods(*classes, *net.IN_PYTHON, *net.LIMITS)
    assert reads.in_python(Connection, ReadTurn, Outbox, net.LIMITS) == (
        Connection.get_buffer,
        Connection.buffer_updated,
    )
