"""Retries of what may pass, with pauses that double (Kafka Connect: RetryWithToleranceOperator)."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeVar

from odradek.streams.connectors.errors import ConnectError, RetriableError, StoppedError

log = logging.getLogger(__name__)

T = TypeVar("T")


class Retries:
    """Calls a method of a connector until it succeeds."""

    def __init__(
        self,
        timeout_ms: int,
        first_pause_ms: int,
        longest_pause_ms: int,
        clock: Callable[[], float],
        wait: Callable[[float], bool],
    ) -> None:
        """`clock` returns seconds; `wait` waits for so many, and returns whether the runner was stopped meanwhile."""
        self._timeout_s = timeout_ms / 1000
        self._first_pause_s = first_pause_ms / 1000
        self._longest_pause_s = longest_pause_ms / 1000
        self._clock = clock
        self._wait = wait

    def call(self, what: str, function: Callable[[], T]) -> T:
        """The result of `function`, which is called again after each RetriableError. `what` names it in messages.

        Raises ConnectError once the errors last for errors.retry.timeout, StoppedError where the runner is stopped, and
        every other exception of the function.
        """
        deadline = self._clock() + self._timeout_s
        pause_s = self._first_pause_s
        while True:
            try:
                return function()
            except RetriableError as error:
                left_s = deadline - self._clock()
                if left_s <= 0:
                    raise ConnectError(
                        f"{what} failed for {self._timeout_s:g} s (errors.retry.timeout): {error}"
                    ) from error
                log.warning("retrying connector call=%s pause_s=%.3f error=%s", what, pause_s, error)
                if self._wait(min(pause_s, left_s)):
                    raise StoppedError(f"stopped while {what} was being retried: {error}") from error
                pause_s = min(2 * pause_s, self._longest_pause_s)
