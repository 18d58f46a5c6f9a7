"""Rates over samples and token buckets, the arithmetic of quotas (Kafka: SampledStat, Rate, SimpleRate, TokenBucket,
QuotaUtils).

A statistic keeps a number of samples, each of one window, and one more that overlaps the beginning of the measured
time. Times are milliseconds of any clock that does not run backwards; a value is measured in its unit for each second.
"""

from __future__ import annotations

import math
from typing import Final, NamedTuple

UNLIMITED: Final = math.inf
"""The bound of an entity without a quota."""
MS_PER_SECOND: Final = 1000


class QuotaConfig(NamedTuple):
    """How long values count: `samples` windows of `window_ms` (quota.window.num, quota.window.size.seconds)."""

    samples: int = 11
    window_ms: int = 1000

    @property
    def whole_ms(self) -> int:
        """The time after which no value counts any more."""
        return self.samples * self.window_ms


class Samples:
    """The sums and counts of recorded values, a sample for each window (Kafka: SampledStat)."""

    __slots__ = ("_config", "_counts", "_current", "_lasts_ms", "_starts_ms", "_values")

    def __init__(self, config: QuotaConfig) -> None:
        self._config = config
        self._current = 0
        self._values: list[float] = []
        self._counts: list[int] = []
        self._starts_ms: list[int] = []
        self._lasts_ms: list[int] = []

    def record(self, value: float, now_ms: int) -> None:
        """Add a value to the current sample; a negative one takes back an earlier one."""
        if not self._values:
            self._add(now_ms)
        current = self._current
        if now_ms - self._starts_ms[current] >= self._config.window_ms:
            current = self._current = (current + 1) % (self._config.samples + 1)
            if current >= len(self._values):
                self._add(now_ms)
            else:
                self._reset(current, now_ms)
        self._values[current] += value
        self._counts[current] += 1
        self._lasts_ms[current] = now_ms

    def total(self, now_ms: int) -> float:
        """The sum of the values that count at `now_ms`."""
        self._purge(now_ms)
        return sum(self._values)

    def average(self, now_ms: int) -> float:
        """The average of the values that count at `now_ms`; not a number where there are none (Kafka: Avg)."""
        total, count = self.total(now_ms), sum(self._counts)
        return total / count if count else math.nan

    def is_idle(self, now_ms: int) -> bool:
        """Whether no value counts any more."""
        return all(now_ms - last >= self._config.whole_ms for last in self._lasts_ms)

    def elapsed_ms(self, now_ms: int) -> int:
        """The time since the start of the oldest sample that counts."""
        self._purge(now_ms)
        if not self._starts_ms:
            self._add(now_ms)
        return now_ms - min(self._starts_ms)

    def _add(self, now_ms: int) -> None:
        self._values.append(0.0)
        self._counts.append(0)
        self._starts_ms.append(now_ms)
        self._lasts_ms.append(now_ms)

    def _reset(self, index: int, now_ms: int) -> None:
        self._values[index] = 0.0
        self._counts[index] = 0
        self._starts_ms[index] = self._lasts_ms[index] = now_ms

    def _purge(self, now_ms: int) -> None:
        expired_ms = now_ms - self._config.whole_ms
        for index, last_ms in enumerate(self._lasts_ms):
            if last_ms <= expired_ms:
                self._reset(index, now_ms)


class Rate(Samples):
    """Values for each second; windows that are still missing count as empty ones (Kafka: Rate)."""

    __slots__ = ()

    def window_ms(self, now_ms: int) -> int:
        """The time over which the rate is measured."""
        elapsed_ms, config = self.elapsed_ms(now_ms), self._config
        missing = config.samples - 1 - elapsed_ms // config.window_ms
        if missing > 0:
            elapsed_ms += missing * config.window_ms
        return max(elapsed_ms, 1)

    def measure(self, now_ms: int) -> float:
        """The rate at `now_ms`."""
        total = self.total(now_ms)
        return total * MS_PER_SECOND / self.window_ms(now_ms)

    def throttle_ms(self, bound: float, now_ms: int) -> int:
        """How long the sender has to wait until its rate is `bound`; 0 if it is not above it (Kafka: QuotaUtils)."""
        value = self.measure(now_ms)
        if value <= bound:
            return 0
        if bound <= 0:
            return self._config.whole_ms
        return round_half_up((value - bound) / bound * self.window_ms(now_ms))


class SimpleRate(Rate):
    """Values for each second of the time in which there were any (Kafka: SimpleRate)."""

    __slots__ = ()

    def window_ms(self, now_ms: int) -> int:
        return max(self.elapsed_ms(now_ms), self._config.window_ms)


class TokenBucket:
    """Tokens that each mutation takes and that time brings back, up to those of all windows (Kafka: TokenBucket)."""

    __slots__ = ("_config", "_tokens", "_updated_ms")

    def __init__(self, config: QuotaConfig) -> None:
        """The bucket is full at its first use."""
        self._config = config
        self._tokens = 0.0
        self._updated_ms = -UNLIMITED

    def record(self, value: float, bound: float, now_ms: int) -> None:
        """Take tokens; `bound` is the number of tokens that each second brings."""
        if bound != UNLIMITED:
            self._tokens = min(self._burst(bound), self.measure(bound, now_ms) - value)

    def measure(self, bound: float, now_ms: int) -> float:
        """The tokens at `now_ms`; below 0 where more were taken than there were."""
        if bound == UNLIMITED:
            return UNLIMITED
        brought = bound * (now_ms - self._updated_ms) / MS_PER_SECOND if bound else 0.0
        self._tokens = min(self._burst(bound), self._tokens + brought)
        self._updated_ms = now_ms
        return self._tokens

    def throttle_ms(self, bound: float, now_ms: int) -> int:
        """How long it takes until the bucket is not below 0 any more (Kafka: ControllerMutationQuotaManager)."""
        tokens = self.measure(bound, now_ms)
        if tokens >= 0:
            return 0
        return round_half_up(-tokens / bound * MS_PER_SECOND) if bound > 0 else self._config.whole_ms

    def is_idle(self, now_ms: int) -> bool:
        """Whether the bucket is as a new one would be."""
        return now_ms - self._updated_ms >= self._config.whole_ms and self._tokens >= 0

    def _burst(self, bound: float) -> float:
        return self._config.samples * self._config.window_ms * bound / MS_PER_SECOND


def round_half_up(value: float) -> int:
    """The nearest whole number, as Java's Math.round has it."""
    return math.floor(value + 0.5)
