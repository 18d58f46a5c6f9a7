"""What the broker says of itself in its log."""

from __future__ import annotations

import logging

from odradek.broker.runtime.timers import Clock

log = logging.getLogger(__name__)

INTERVAL_MS = 10_000
AT_ONCE = 5


class RateLimitedReport:
    """Reports of one kind, a few at once and then at most so many in ten seconds; the rest is counted.

    A peer can make a broker refuse something thousands of times a second; the log must stay readable. The number of
    those left out is said with the next report of that kind, or by `sum_up`.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._kinds: dict[str, tuple[int, int, int]] = {}  # kind -> (window start in ms, reported, left out)

    def __call__(self, kind: str, text: str) -> None:
        """Say `text`, or count it. There are few kinds, and none is made of what a peer sent."""
        now_ms = self._clock.monotonic_ms()
        start_ms, reported, left_out = self._kinds.get(kind, (now_ms, 0, 0))
        if now_ms - start_ms >= INTERVAL_MS:
            _say_left_out(kind, left_out)
            start_ms, reported, left_out = now_ms, 0, 0
        if reported < AT_ONCE:
            log.warning("%s", text, extra={"kind": kind})
            reported += 1
        else:
            left_out += 1
        self._kinds[kind] = (start_ms, reported, left_out)

    def sum_up(self) -> None:
        """Say what was left out of intervals that are over, and forget them."""
        now_ms = self._clock.monotonic_ms()
        for kind, (start_ms, _, left_out) in list(self._kinds.items()):
            if now_ms - start_ms >= INTERVAL_MS:
                _say_left_out(kind, left_out)
                del self._kinds[kind]


def _say_left_out(kind: str, count: int) -> None:
    if count:
        log.warning("%d more of this kind were left out", count, extra={"kind": kind})
