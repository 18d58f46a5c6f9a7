"""The C functions release the interpreter during long walks: other threads run meanwhile.

The interval after which a thread has to pass the interpreter on is longer than the tests. So another thread that waits
for it runs only if the function releases it.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator

import pytest

from odradek.protocol.batch import Record
from odradek.protocol.records import write_records
from tests.broker.message_sets import message

COUNT = 60_000
CALLS = 300
"""Calls after which the other thread must have run. Each takes some milliseconds, and a machine with other load may
start the thread only in a later one."""
SWITCH_S = 3600.0


@pytest.fixture
def no_switches() -> Iterator[None]:
    interval_s = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_S)
    yield
    sys.setswitchinterval(interval_s)


def releases(call: Callable[[], object]) -> bool:
    """Whether another thread runs during one of the calls."""
    begin, ran = threading.Lock(), list[bool]()
    begin.acquire()

    def other() -> None:
        with begin:
            ran.append(True)

    thread = threading.Thread(target=other)
    thread.start()
    begin.release()  # no call from here to the end of the loop waits for anything
    for _ in range(CALLS):
        call()
        if ran:
            break
    was_released = bool(ran)
    thread.join()
    return was_released


def payload() -> bytes:
    return bytes(write_records([Record(offset, 5, None, b"", []) for offset in range(COUNT)], 0, 0))


def scan() -> Callable[[], object]:
    module = pytest.importorskip("odradek.protocol._chain", reason="no C compiler when Odradek was installed")
    data = payload()
    return lambda: module.scan(data, 0, len(data), COUNT, 0, 0, 0, 0)


def survey() -> Callable[[], object]:
    module = pytest.importorskip("odradek.protocol._legacy", reason="no C compiler when Odradek was installed")
    data = message() * COUNT
    return lambda: module.survey(data, 1 << 20)


def up_convert() -> Callable[[], object]:
    module = pytest.importorskip("odradek.protocol._legacy", reason="no C compiler when Odradek was installed")
    data = message() * COUNT
    return lambda: module.up_convert(data, 1, 0, 0, 0, 1 << 60)


def down_convert() -> Callable[[], object]:
    module = pytest.importorskip("odradek.protocol._legacy", reason="no C compiler when Odradek was installed")
    data = payload()
    return lambda: module.down_convert(data, 0, len(data), COUNT, 1, 0, 0, 0, 0, 1 << 30)


@pytest.mark.usefixtures("no_switches")
@pytest.mark.parametrize("make", [scan, survey, up_convert, down_convert])
def test_a_long_walk_in_c_releases_the_interpreter(make: Callable[[], Callable[[], object]]) -> None:
    assert releases(make())


@pytest.mark.usefixtures("no_switches")
def test_a_call_that_keeps_the_interpreter_is_noticed() -> None:
    data = bytearray(1 << 20)
    assert not releases(lambda: data.count(b"x"))
