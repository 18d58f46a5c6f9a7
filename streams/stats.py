"""Stats of sensors: what is measured of the recorded values (Kafka: org.apache.kafka.common.metrics.stats).

    Avg, Max, Min, WindowedSum, WindowedCount    of the samples of the last metrics.num.samples windows
    Rate                                         such a sum for each second of these windows
    CumulativeSum, CumulativeCount, Value        of all time

A sample lasts `metrics.sample.window.ms`. Times are in ms of the wall clock. A stat belongs to one sensor, which calls
it under a lock.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Final, NamedTuple

DEFAULT_SAMPLES: Final = 2
DEFAULT_WINDOW_MS: Final = 30_000


class SampleWindows(NamedTuple):
    """How many samples a stat keeps, and how long each lasts (MetricConfig)."""

    samples: int = DEFAULT_SAMPLES
    window_ms: int = DEFAULT_WINDOW_MS


class MeasurableStat(ABC):
    """One number that is computed from recorded values."""

    @abstractmethod
    def record(self, windows: SampleWindows, value: float, now_ms: int) -> None:
        """Add a value."""

    @abstractmethod
    def measure(self, windows: SampleWindows, now_ms: int) -> float:
        """The number at this time."""


class _Sample:
    """The values of one window."""

    __slots__ = ("events", "last_ms", "start_ms", "value")

    def __init__(self, initial: float, now_ms: int) -> None:
        self.clear(initial, now_ms)

    def clear(self, initial: float, now_ms: int) -> None:
        """Begin anew at this time."""
        self.value, self.events = initial, 0
        self.start_ms = self.last_ms = now_ms


class SampledStat(MeasurableStat):
    """A stat of the last windows. Samples form a ring with one more sample than windows, for those that overlap."""

    initial = 0.0

    def __init__(self) -> None:
        self._ring: list[_Sample] = []
        self._current = 0

    def record(self, windows: SampleWindows, value: float, now_ms: int) -> None:
        """Add a value to the current sample, or to a new one where that is complete."""
        sample = self._at(now_ms)
        if now_ms - sample.start_ms >= windows.window_ms:
            self._current = (self._current + 1) % (windows.samples + 1)
            if self._current == len(self._ring):
                self._ring.append(_Sample(self.initial, now_ms))
            sample = self._ring[self._current]
            sample.clear(self.initial, now_ms)
        sample.value = self._added(sample.value, value)
        sample.events += 1
        sample.last_ms = now_ms

    def measure(self, windows: SampleWindows, now_ms: int) -> float:
        """The number of all samples with an event within the windows."""
        self.expire(windows, now_ms)
        return self._combined(self._ring)

    def expire(self, windows: SampleWindows, now_ms: int) -> None:
        """Clear the samples whose last event is older than all windows."""
        for sample in self._ring:
            if now_ms - sample.last_ms >= windows.samples * windows.window_ms:
                sample.clear(self.initial, now_ms)

    def oldest_ms(self, now_ms: int) -> int:
        """When the earliest sample began."""
        self._at(now_ms)
        return min(sample.start_ms for sample in self._ring)

    def _at(self, now_ms: int) -> _Sample:
        if not self._ring:
            self._ring.append(_Sample(self.initial, now_ms))
        return self._ring[self._current]

    @abstractmethod
    def _added(self, before: float, value: float) -> float:
        """The value of a sample after one more event."""

    @abstractmethod
    def _combined(self, samples: list[_Sample]) -> float:
        """The number of several samples."""


class WindowedSum(SampledStat):
    """The sum of the values."""

    def _added(self, before: float, value: float) -> float:
        return before + value

    def _combined(self, samples: list[_Sample]) -> float:
        return math.fsum(sample.value for sample in samples)


class WindowedCount(WindowedSum):
    """The number of values."""

    def _added(self, before: float, value: float) -> float:
        return before + 1.0


class Avg(WindowedSum):
    """The average of the values; NaN without any."""

    def _combined(self, samples: list[_Sample]) -> float:
        events = sum(sample.events for sample in samples)
        return super()._combined(samples) / events if events else math.nan


class Max(SampledStat):
    """The maximum of the values; NaN without any."""

    initial = -math.inf

    def _added(self, before: float, value: float) -> float:
        return max(before, value)

    def _combined(self, samples: list[_Sample]) -> float:
        return max((sample.value for sample in samples if sample.events), default=math.nan)


class Min(SampledStat):
    """The minimum of the values; NaN without any."""

    initial = math.inf

    def _added(self, before: float, value: float) -> float:
        return min(before, value)

    def _combined(self, samples: list[_Sample]) -> float:
        return min((sample.value for sample in samples if sample.events), default=math.nan)


class Rate(MeasurableStat):
    """A sum for each second; Rate(WindowedCount()) is events per second."""

    def __init__(self, stat: SampledStat | None = None) -> None:
        """`stat` is the sum of the values where it is omitted."""
        self._stat = WindowedSum() if stat is None else stat

    def record(self, windows: SampleWindows, value: float, now_ms: int) -> None:
        """Add a value."""
        self._stat.record(windows, value, now_ms)

    def measure(self, windows: SampleWindows, now_ms: int) -> float:
        """The sum, divided by the time since the oldest sample began: at least all windows but one are counted."""
        total = self._stat.measure(windows, now_ms)
        elapsed_ms = now_ms - self._stat.oldest_ms(now_ms)
        missing = windows.samples - 1 - elapsed_ms // windows.window_ms
        elapsed_ms += max(0, missing) * windows.window_ms
        return total / (max(elapsed_ms, 1) / 1000)


class CumulativeSum(MeasurableStat):
    """The sum of all values so far."""

    def __init__(self, initial: float = 0.0) -> None:
        self._total = initial

    def record(self, windows: SampleWindows, value: float, now_ms: int) -> None:
        """Add a value."""
        self._total += value

    def measure(self, windows: SampleWindows, now_ms: int) -> float:
        """The sum."""
        return self._total


class CumulativeCount(CumulativeSum):
    """The number of all values so far."""

    def record(self, windows: SampleWindows, value: float, now_ms: int) -> None:
        """Count a value."""
        self._total += 1.0


class Value(CumulativeSum):
    """The last value."""

    def record(self, windows: SampleWindows, value: float, now_ms: int) -> None:
        """Replace the value."""
        self._total = value
