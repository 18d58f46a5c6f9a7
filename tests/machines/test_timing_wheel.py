"""The timing wheel expires each operation once, at the first moment from its deadline on."""

from __future__ import annotations

import logging
import random

import pytest

from odradek.broker.runtime.timing_wheel import LEAST_BUCKETS, Bucket, TimingWheel
from tests.machines.group_harness import VirtualTime


class Operation:
    """Notes when it expires."""

    def __init__(self, time: VirtualTime, expired: list[tuple[Operation, int]]) -> None:
        self._time = time
        self._expired = expired

    def expire(self) -> None:
        self._expired.append((self, self._time.monotonic_ms()))


class Fails(Operation):
    def expire(self) -> None:
        raise RuntimeError("broken")


class Continues(Operation):
    """Begins again, with a deadline that has passed already."""

    wheel: TimingWheel

    def expire(self) -> None:
        super().expire()
        if len(self._expired) < 3:
            self.wheel.add(self, self._time.monotonic_ms() - 5)


@pytest.fixture
def time() -> VirtualTime:
    return VirtualTime()


@pytest.fixture
def wheel(time: VirtualTime) -> TimingWheel:
    return TimingWheel(time, time)


def test_operations_expire_as_with_a_timer_each(time: VirtualTime, wheel: TimingWheel) -> None:
    """Random deadlines, of which some are cancelled or passed: the same as those of a sorted list."""
    rng = random.Random(24)
    expired: list[tuple[Operation, int]] = []
    known: dict[Operation, tuple[int, Bucket]] = {}
    for _ in range(2000):
        now_ms = time.monotonic_ms()
        action = rng.random()
        if action < 0.6:
            operation, deadline_ms = Operation(time, expired), now_ms + rng.choice((-3, 0, 1, 7, 50, 50, 3000))
            known[operation] = deadline_ms, wheel.add(operation, deadline_ms)
        elif action < 0.8 and known:
            operation = rng.choice(list(known))
            del known.pop(operation)[1][operation]
        else:
            time.advance(rng.choice((0, 1, 9)))
            now_ms = time.monotonic_ms()
            due = {operation for operation, (deadline_ms, _) in known.items() if deadline_ms <= now_ms}
            assert {operation for operation, _ in expired} == due
            for operation, at_ms in expired:
                assert at_ms >= known.pop(operation)[0]
            expired.clear()
        assert len(wheel) == len(known)
        assert time.waiting <= 1
    time.advance(3000)
    assert (len(expired), len(wheel), time.waiting) == (len(known), 0, 0)


def test_long_deadlines_that_are_cancelled_leave_nothing_behind(time: VirtualTime, wheel: TimingWheel) -> None:
    for number in range(5000):
        operation = Operation(time, [])
        del wheel.add(operation, 86_400_000 + number)[operation]
    assert len(wheel._buckets) == len(wheel._deadlines) <= LEAST_BUCKETS


def test_an_operation_that_fails_does_not_keep_the_others_from_expiring(
    time: VirtualTime, wheel: TimingWheel, caplog: pytest.LogCaptureFixture
) -> None:
    expired: list[tuple[Operation, int]] = []
    for kind, deadline_ms in ((Fails, 5), (Operation, 5), (Operation, 9)):
        wheel.add(kind(time, expired), deadline_ms)
    with caplog.at_level(logging.ERROR):
        time.advance(10)
    assert [at_ms for _, at_ms in expired] == [5, 9]
    assert caplog.messages == ["delayed operation failed operation=Fails"]


def test_an_operation_may_begin_again_when_it_expires(time: VirtualTime, wheel: TimingWheel) -> None:
    expired: list[tuple[Operation, int]] = []
    operation = Continues(time, expired)
    operation.wheel = wheel
    wheel.add(operation, 5)
    time.advance(5)
    assert [at_ms for _, at_ms in expired] == [5, 5, 5]
    assert (len(wheel), time.waiting) == (0, 0)
