"""Recorded metrics: plain numbers that a running application increments once a batch, never once a record.

`RecordedStat` is Kafka's sensor with a rate, a total, an average and a maximum: the total is of all time, the rest of
the last 30 to 60 seconds (SampledStat: two samples of 30 s, metrics.num.samples and metrics.sample.window.ms).
`Counter` makes a rate of a total that is kept elsewhere and sampled. `metrics.py` gives them names.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from odradek.protocol.topic_partition import TopicPartition

if TYPE_CHECKING:
    from odradek.streams.metered import NodeMeters

WINDOW_S: Final = 30.0
Clock = Callable[[], float]


class RecordedStat:
    """Events with an amount each, such as a duration."""

    __slots__ = ("_before", "_clock", "_count", "_events", "_max", "_start", "_sum", "total")

    def __init__(self, clock: Clock = time.monotonic) -> None:
        self.total = 0
        """The sum of all counts so far."""
        self._clock = clock
        self._start = clock()
        self._before: tuple[float, int, int, float, float] | None = None
        self._count = self._events = 0
        self._sum, self._max = 0.0, -math.inf

    def record(self, amount: float, count: int = 1) -> None:
        """`count` events took `amount` each."""
        now = self._clock()
        if now - self._start >= WINDOW_S:
            self._turn(now)
        self.total += count
        self._count += count
        self._events += 1
        self._sum += amount
        if amount > self._max:
            self._max = amount

    def _turn(self, now: float) -> None:
        """Begin a new sample; a sample that is older than two windows expires."""
        fresh = now - self._start < 2 * WINDOW_S
        self._before = (self._start, self._count, self._events, self._sum, self._max) if fresh else None
        self._start = now
        self._count = self._events = 0
        self._sum, self._max = 0.0, -math.inf

    def _window(self) -> tuple[float, int, int, float, float]:
        """Minimum seconds, counts, events, sum and maximum of the samples that have not expired."""
        now = self._clock()
        if now - self._start >= WINDOW_S:
            self._turn(now)
        mine = (self._start, self._count, self._events, self._sum, self._max)
        before = self._before
        if before is None or now - before[0] >= 2 * WINDOW_S:
            start, *rest = mine
        else:
            start = before[0]
            rest = [before[1] + mine[1], before[2] + mine[2], before[3] + mine[3], max(before[4], mine[4])]
        count, events, total, most = rest
        return max(now - start, WINDOW_S), int(count), int(events), total, most

    @property
    def rate(self) -> float:
        """Counts per second."""
        seconds, count, *_ = self._window()
        return count / seconds

    @property
    def average(self) -> float:
        """The average amount; NaN without events, as in Kafka."""
        _, _, events, total, _ = self._window()
        return total / events if events else math.nan

    @property
    def maximum(self) -> float:
        """The maximum amount; NaN without events."""
        _, _, events, _, most = self._window()
        return most if events else math.nan


class Counter:
    """The rate of a total that is sampled."""

    __slots__ = ("_stat", "total")

    def __init__(self, clock: Clock = time.monotonic) -> None:
        self.total = 0
        self._stat = RecordedStat(clock)

    def observe(self, total: int) -> None:
        """Sample the total. It never falls; where it does, counting has begun anew."""
        grown = total - self.total if total >= self.total else total
        self.total = total
        if grown:
            self._stat.record(0.0, grown)

    @property
    def rate(self) -> float:
        """Per second."""
        return self._stat.rate


@dataclass(slots=True)
class CallMetrics:
    """The metrics of an asynchronous node."""

    latency: RecordedStat = field(default_factory=RecordedStat)
    """The duration of each call in ms, from its start on the event loop to its end."""
    timeouts: int = 0
    """Calls without a result in time."""


@dataclass(slots=True)
class TaskMetrics:
    """The metrics of a task. Latencies in ns."""

    process: RecordedStat = field(default_factory=RecordedStat)
    """A count for each record; the amount is the average of its batch."""
    punctuate: RecordedStat = field(default_factory=RecordedStat)
    stores: dict[str, dict[str, RecordedStat]] = field(default_factory=dict)
    """Operations by store and by their names; only where `metrics.recording.level` is DEBUG."""
    nodes: NodeMeters | None = None
    """Only where `metrics.recording.level` is DEBUG."""
    dropped: Counter = field(default_factory=Counter)
    sources: dict[tuple[str, str], Counter] = field(default_factory=dict)
    """Consumed records, by source node and topic."""
    hit_ratios: dict[str, RecordedStat] = field(default_factory=dict)
    """The hit rate of each cached store's reads, sampled."""

    def observe(self, context: Any, taken: Mapping[tuple[str, str], int]) -> None:
        """Sample the totals that are kept elsewhere, often enough for accurate rates."""
        self.dropped.observe(context.dropped)
        for source, total in taken.items():
            self.sources.setdefault(source, Counter()).observe(total)
        if self.nodes is not None:
            for meter in self.nodes.nodes.values():
                meter.rate.observe(meter.records)
        for store, stats in self.stores.items():
            cache = context.cache.caches.get(f"{context.task_id}-{store}")
            reads = stats.get("get") or stats.get("fetch")
            if cache is not None and reads is not None and reads.total:
                ratio = max(0.0, 1.0 - cache.misses / reads.total)
                self.hit_ratios.setdefault(store, RecordedStat()).record(ratio)


@dataclass(slots=True)
class ThreadMetrics:
    """The metrics of a stream thread. Latencies in ms; the amounts of `…_records` are numbers of records."""

    process: RecordedStat = field(default_factory=RecordedStat)
    poll: RecordedStat = field(default_factory=RecordedStat)
    commit: RecordedStat = field(default_factory=RecordedStat)
    punctuate: RecordedStat = field(default_factory=RecordedStat)
    poll_records: RecordedStat = field(default_factory=RecordedStat)
    process_records: RecordedStat = field(default_factory=RecordedStat)
    created: RecordedStat = field(default_factory=RecordedStat)
    closed: RecordedStat = field(default_factory=RecordedStat)
    started_ms: int = 0
    records_lag: Mapping[TopicPartition, int] = field(default_factory=dict)
    """Records between the position of the consumer and the end of each partition, sampled every second."""
