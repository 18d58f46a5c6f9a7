"""What the console keeps of a cluster: the latest sample, rates, lags and the timeline, all of bounded size.

A rate is the growth of a log's end between two samples, so it counts records that were written, in any cluster. One
thread adds samples; any thread may read.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from odradek.console.request_metrics import BrokerMetrics
from odradek.console.sample import ClusterSample
from odradek.console.series import Series
from odradek.console.timeline import Timeline, changes_between

T = TypeVar("T")

KEPT_SAMPLES: Final = 360
"""Of the cluster and of each group."""
KEPT_TOPIC_SAMPLES: Final = 120
"""Of each topic: there are more of them."""


@dataclass(frozen=True, slots=True)
class DiskUsage:
    """What the replicas of a cluster take on disk. Bytes."""

    by_topic: Mapping[str, int] = field(default_factory=dict)
    """All replicas of a topic."""
    by_broker: Mapping[int, int] = field(default_factory=dict)
    offline: tuple[str, ...] = ()
    """Log directories that have failed, in words."""


class ClusterHistory:
    """The latest sample of a cluster, and how it came to it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sample: ClusterSample | None = None
        self._error: str | None = None
        self._topic_rates: dict[str, Series] = {}
        self._group_lags: dict[str, Series] = {}
        self.records = Series(KEPT_SAMPLES)
        """Records a second that are written to the topics of users."""
        self.timeline = Timeline()
        self._disk = DiskUsage()
        self._derived: dict[str, Any] = {}
        self.metrics: Mapping[str, BrokerMetrics] = {}
        """The metrics page of brokers, by its address."""

    @property
    def sample(self) -> ClusterSample | None:
        """The latest sample; None before the first."""
        return self._sample

    @property
    def error(self) -> str | None:
        """Why the newest attempt to take a sample failed; None after one that did not."""
        return self._error

    def add(self, sample: ClusterSample) -> None:
        """Keep a sample, and what differs from the one before it."""
        with self._lock:
            before, self._sample, self._error = self._sample, sample, None
            self._derived = {}
            for group in sample.groups.values():
                if group.lag is not None:
                    self._series(self._group_lags, group.group_id, KEPT_SAMPLES).add(sample.taken_s, group.lag)
            if before is None:
                return
            self._add_rates(before, sample)
            self.timeline.extend(changes_between(before, sample))
            self._forget(sample)
            self._derived = {}  # without those that a reader made of the sample before its rates were added

    @property
    def disk(self) -> DiskUsage:
        """What replicas take on disk; empty before it is read."""
        return self._disk

    @disk.setter
    def disk(self, usage: DiskUsage) -> None:
        self._disk = usage
        self._derived = {}

    def derived(self, name: str, make: Callable[[], T]) -> T:
        """What `make` returns, made once for each sample: it walks through all partitions."""
        kept = self._derived
        if name not in kept:
            kept[name] = make()
        found: T = kept[name]
        return found

    def fail(self, error: str) -> None:
        """Note that the cluster could not be read."""
        self._error = error

    def rate_of(self, topic: str) -> float | None:
        """Records a second that are written to a topic; None before its second sample."""
        series = self._topic_rates.get(topic)
        return None if series is None else series.last

    def rates_of(self, topic: str) -> Series | None:
        """The rates of a topic over time."""
        return self._topic_rates.get(topic)

    def lags_of(self, group_id: str) -> Series | None:
        """The lag of a group over time, in records."""
        return self._group_lags.get(group_id)

    def _add_rates(self, before: ClusterSample, sample: ClusterSample) -> None:
        seconds = sample.taken_s - before.taken_s
        if seconds <= 0:
            return
        written: dict[str, int] = {}
        for place, end in sample.ends.items():
            old = before.ends.get(place)
            # A log that an election without in-sync replicas has truncated ends earlier than before.
            grown = 0 if old is None else max(0, end - old)
            written[place[0]] = written.get(place[0], 0) + grown
        total = 0
        for topic, count in written.items():
            self._series(self._topic_rates, topic, KEPT_TOPIC_SAMPLES).add(sample.taken_s, count / seconds)
            if not sample.by_name[topic].internal:
                total += count
        self.records.add(sample.taken_s, total / seconds)

    def _forget(self, sample: ClusterSample) -> None:
        """Remove the series of topics and groups that are gone."""
        for topic in self._topic_rates.keys() - sample.by_name.keys():
            del self._topic_rates[topic]
        if not sample.problems:
            for group_id in self._group_lags.keys() - sample.groups.keys():
                del self._group_lags[group_id]

    @staticmethod
    def _series(kept: dict[str, Series], name: str, limit: int) -> Series:
        if name not in kept:
            kept[name] = Series(limit)
        return kept[name]
