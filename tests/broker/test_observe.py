"""The log stays readable for any bytes of peers: it has a few reports of one kind at once, and a sum of the rest."""

from __future__ import annotations

import pytest

from odradek.broker.metrics.refusals import AT_ONCE, INTERVAL_MS, RateLimitedReport
from odradek.broker.runtime.timers import Clock


class Watch(Clock):
    def __init__(self) -> None:
        self.ms = 5

    def now_ms(self) -> int:
        return self.ms

    def monotonic_ms(self) -> int:
        return self.ms

    def monotonic_ns(self) -> int:
        return self.ms * 1_000_000


def test_a_few_reports_at_once_then_a_sum_with_the_next_of_the_kind(caplog: pytest.LogCaptureFixture) -> None:
    watch = Watch()
    report = RateLimitedReport(watch)
    for number in range(AT_ONCE + 3):
        report("one", f"one {number}")
    report("other", "another kind has its own share")
    assert caplog.messages == [
        *(f"request or connection rejected reason=one {number}" for number in range(AT_ONCE)),
        "request or connection rejected reason=another kind has its own share",
    ]
    caplog.clear()
    watch.ms += INTERVAL_MS
    report("one", "later")
    assert caplog.messages == [
        "suppressed repeated rejections count=3",
        "request or connection rejected reason=later",
    ]
    assert [getattr(entry, "kind", None) for entry in caplog.records] == ["one", "one"]


def test_suppressed_reports_are_summed_without_a_further_one(caplog: pytest.LogCaptureFixture) -> None:
    watch = Watch()
    report = RateLimitedReport(watch)
    for number in range(AT_ONCE + 2):
        report("one", f"{number}")
    caplog.clear()
    report.sum_up()
    assert caplog.messages == []  # the interval is not over
    watch.ms += INTERVAL_MS
    report.sum_up()
    report.sum_up()
    assert caplog.messages == ["suppressed repeated rejections count=2"]
