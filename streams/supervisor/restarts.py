"""Restart backoff: how long a failed process waits before its next start.

The delay doubles with each failure in a row, as Kafka's retry.backoff.ms and retry.backoff.max.ms (KIP-580), without
jitter. A process that has been running for the longest delay is healthy: its next failure is the first one again.
"""

from __future__ import annotations

from typing import Final

BACKOFF_MS: Final = 1_000
BACKOFF_MAX_MS: Final = 60_000
_MOST_DOUBLINGS: Final = 62


class RestartBackoff:
    """The delays of one process. It reads no clock: `now` is in seconds, on any monotonic scale."""

    def __init__(self, first_s: float, longest_s: float) -> None:
        """`first_s` is the delay after the first failure, `longest_s` the limit and the healthy time, in seconds.

        Raises ValueError unless 0 <= first_s <= longest_s.
        """
        if not 0 <= first_s <= longest_s:
            raise ValueError(f"the first delay ({first_s:g} s) has to be from 0 to the longest one ({longest_s:g} s)")
        self.failures = 0
        """Failures in a row."""
        self._first_s = first_s
        self._longest_s = longest_s
        self._running_since: float | None = None

    def running(self, now: float) -> None:
        """The process is running; calls after the first one of a start have no effect."""
        if self._running_since is None:
            self._running_since = now

    def failed(self, now: float) -> float:
        """The process has ended unexpectedly. Returns the seconds until its next start."""
        if self._running_since is not None and now - self._running_since >= self._longest_s:
            self.failures = 0
        self.failures += 1
        self._running_since = None
        return float(min(self._first_s * 2 ** min(self.failures - 1, _MOST_DOUBLINGS), self._longest_s))

    def reset(self) -> None:
        """The process is restarted on request: earlier failures do not count."""
        self.failures = 0
        self._running_since = None
