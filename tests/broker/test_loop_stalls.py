"""The histogram of the event loop's stalls."""

from __future__ import annotations

import asyncio

import pytest

from odradek.broker.metrics import loop_stalls
from odradek.broker.metrics.loop_stalls import BOUNDS_S, LoopStalls
from tests.support.eventually import eventually_async


async def test_the_time_by_which_a_timer_is_late_is_counted_in_its_bucket(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop_stalls, "INTERVAL_S", 0.0)
    delays_s = [0.0, 0.015, 0.3, 60.0]
    readings: list[float] = []
    now_s = 0.0
    for delay_s in delays_s:  # one reading when the timer is set, one when it has run
        readings += [now_s, now_s + delay_s]
        now_s += delay_s
    left = iter(readings)
    last_ns = int(now_s * 1e9)
    stalls = LoopStalls(lambda: int(next(left, last_ns / 1e9) * 1e9))
    stalls.start()
    await eventually_async(lambda: sum(stalls.counts), lambda count: count >= len(delays_s), "all are measured")
    stalls.stop()
    assert stalls.counts[1:] == [int(any(_bucket(delay_s) == n for delay_s in delays_s)) for n in range(1, 11)]
    assert stalls.sum_s == pytest.approx(sum(delays_s))
    counted = list(stalls.counts)
    await asyncio.sleep(0)
    assert stalls.counts == counted


def _bucket(delay_s: float) -> int:
    return next((number for number, bound in enumerate(BOUNDS_S) if delay_s <= bound), len(BOUNDS_S))
