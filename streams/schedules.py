"""Schedules: the moments of a source of ticks, as intervals or as a cron expression.

A schedule is a set of moments that does not depend on when an application starts or which instance runs it, so that a
task that continues another one's work computes the same moments. Times are in ms since the epoch.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, tzinfo
from typing import Any, Final, Protocol
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from odradek.streams.errors import ArgumentError
from odradek.streams.extras import extra_module

EXTRA: Final = "cron"
_HOUR_MS: Final = 3_600_000
_SPANS_MS: Final = (_HOUR_MS, 24 * _HOUR_MS, 32 * 24 * _HOUR_MS, 366 * 24 * _HOUR_MS)
"""How far before a moment `CronSchedule.latest` searches first: few expressions have a moment in none of them."""


class Schedule(Protocol):
    """The moments of a source of ticks."""

    def after(self, time_ms: int) -> int | None:
        """The first moment later than `time_ms`; None where there is none any more."""

    def latest(self, after_ms: int, until_ms: int) -> int | None:
        """The last moment later than `after_ms` and not later than `until_ms`; None where there is none."""


class IntervalSchedule:
    """Every multiple of an interval since the epoch: `timedelta(minutes=5)` is at :00, :05, :10 of each hour in UTC."""

    def __init__(self, interval_ms: int) -> None:
        """Raises ArgumentError below 1 ms."""
        if interval_ms < 1:
            raise ArgumentError(f"the interval has to be 1 ms or more, not {interval_ms} ms")
        self._interval_ms = interval_ms

    def after(self, time_ms: int) -> int:
        """The first moment later than `time_ms`."""
        return (time_ms // self._interval_ms + 1) * self._interval_ms

    def latest(self, after_ms: int, until_ms: int) -> int | None:
        """The last moment in the span."""
        moment = until_ms // self._interval_ms * self._interval_ms
        return moment if moment > after_ms else None


class CronSchedule:
    """The moments of a cron expression of five fields, or of six that begin with seconds, in a time zone.

    Fields and daylight saving time are those of Debian's cron (package cronsim): a job at an hour that the clock skips
    runs after the gap, and one at an hour that the clock repeats runs once.
    """

    def __init__(self, expression: str, timezone: str | tzinfo) -> None:
        """Raises ArgumentError for an invalid expression or an unknown time zone, MissingExtraError without cronsim."""
        self._cronsim = extra_module("cronsim", EXTRA, "StreamsBuilder.cron")
        self._expression = expression
        try:
            self._zone = ZoneInfo(timezone) if isinstance(timezone, str) else timezone
        except (ZoneInfoNotFoundError, ValueError) as error:
            raise ArgumentError(f"{timezone!r} is no time zone; expected a name such as Europe/Berlin") from error
        try:
            self._moments(0)
        except (self._cronsim.CronSimError, AttributeError) as error:
            raise ArgumentError(
                f"{expression!r} is no cron expression: {error}; expected five fields such as '*/5 * * * *'"
            ) from error

    def after(self, time_ms: int) -> int | None:
        """The first moment later than `time_ms`; None where there is none within 50 years."""
        return next(self._moments(time_ms), None)

    def latest(self, after_ms: int, until_ms: int) -> int | None:
        """The last moment in the span."""
        for start_ms in (*(until_ms - span_ms for span_ms in _SPANS_MS), after_ms):
            found = None
            for moment in self._moments(max(start_ms, after_ms)):
                if moment > until_ms:
                    break
                found = moment
            if found is not None or start_ms <= after_ms:
                return found
        return None

    def _moments(self, after_ms: int) -> Iterator[int]:
        start = datetime.fromtimestamp(after_ms // 1000, UTC).astimezone(self._zone)
        return _later(self._cronsim.CronSim(self._expression, start), after_ms)


def _later(moments: Any, after_ms: int) -> Iterator[int]:
    """The moments later than `after_ms`, in ms: around a change of the clock the first ones may not be later."""
    for moment in moments:
        time_ms = round(moment.timestamp() * 1000)
        if time_ms > after_ms:
            after_ms = time_ms
            yield time_ms
