"""Rate-limited log lines for rejected requests and connections."""

from __future__ import annotations

import logging

from odradek.broker.runtime.timers import Clock

log = logging.getLogger(__name__)

INTERVAL_MS = 10_000
AT_ONCE = 5


class RateLimitedReport:
    """Log lines of several kinds: a few at once, then a limited number in ten seconds; the rest is counted.

    A peer can make a broker reject requests thousands of times a second; the log must stay readable. The number of
    suppressed lines is logged with the next line of that kind, or by `sum_up`.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._kinds: dict[str, tuple[int, int, int]] = {}  # kind -> (window start in ms, reported, left out)

    def __call__(self, kind: str, text: str) -> None:
        """Log `text`, or count it. There are few kinds, and no kind depends on what a peer sent."""
        now_ms = self._clock.monotonic_ms()
        start_ms, reported, left_out = self._kinds.get(kind, (now_ms, 0, 0))
        if now_ms - start_ms >= INTERVAL_MS:
            _log_suppressed(kind, left_out)
            start_ms, reported, left_out = now_ms, 0, 0
        if reported < AT_ONCE:
            log.warning("request or connection rejected reason=%s", text, extra={"kind": kind})
            reported += 1
        else:
            left_out += 1
        self._kinds[kind] = (start_ms, reported, left_out)

    def sum_up(self) -> None:
        """Log how many lines were suppressed in intervals that have ended, and reset their counts."""
        now_ms = self._clock.monotonic_ms()
        for kind, (start_ms, _, left_out) in list(self._kinds.items()):
            if now_ms - start_ms >= INTERVAL_MS:
                _log_suppressed(kind, left_out)
                del self._kinds[kind]


def _log_suppressed(kind: str, count: int) -> None:
    if count:
        log.warning("suppressed repeated rejections count=%d", count, extra={"kind": kind})
