"""Heartbeat: when a member sends the next one, and whether its stream thread still polls (Kafka: Heartbeat)."""

from __future__ import annotations

import time

from odradek.streams.group.group_protocol import MembershipConfig


class Heartbeat:
    """The timers of one member. The stream thread calls `poll`, the coordinator thread all other methods."""

    def __init__(self, config: MembershipConfig) -> None:
        self._interval_s = config.heartbeat_interval_ms / 1000
        self._max_poll_interval_s = config.max_poll_interval_ms / 1000
        self._last_poll = time.monotonic()
        self._next = 0.0

    def poll(self) -> None:
        """The stream thread has polled the group."""
        self._last_poll = time.monotonic()

    @property
    def poll_timeout_expired(self) -> bool:
        """Whether the stream thread has not polled for max.poll.interval.ms (KIP-62)."""
        return time.monotonic() - self._last_poll > self._max_poll_interval_s

    def reset(self) -> None:
        """The next heartbeat is due after the whole interval."""
        self._next = time.monotonic() + self._interval_s

    def retry(self, backoff_s: float) -> None:
        """The next heartbeat is due after a backoff, not after the whole interval."""
        self._next = time.monotonic() + backoff_s

    @property
    def time_to_next_s(self) -> float:
        """The time until the next heartbeat is due; not positive once it is."""
        return self._next - time.monotonic()
