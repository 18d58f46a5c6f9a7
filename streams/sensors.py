"""Sensors of the user: metrics that a processor records itself (Kafka: StreamsMetrics, StreamsMetricsImpl, Sensor).

    self.sensor = context.metrics().add_latency_rate_total_sensor("geo", "lookup", "resolve", RecordingLevel.INFO)
    ...
    self.sensor.record(elapsed_ms)

All threads of a client share its sensors; they are among KafkaStreams.metrics() and on its page. An application without
sensors of its own does not pay for them: nothing here is called for a record.
"""

from __future__ import annotations

import enum
import threading
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from odradek.streams.errors import StreamsError
from odradek.streams.java_names import JavaNames
from odradek.streams.metrics import MetricName
from odradek.streams.stats import (
    DEFAULT_SAMPLES,
    DEFAULT_WINDOW_MS,
    Avg,
    CumulativeCount,
    Max,
    MeasurableStat,
    Rate,
    SampleWindows,
    WindowedCount,
)

if TYPE_CHECKING:
    from odradek.streams.metrics import Metrics


class RecordingLevel(enum.IntEnum):
    """The level of a sensor; it records where `metrics.recording.level` is this level or a higher one."""

    INFO = 0
    DEBUG = 1
    TRACE = 2


class Sensor(JavaNames):
    """Records values, and computes the metrics that were added to it (Kafka: Sensor). Any thread may call it."""

    def __init__(self, owner: StreamsMetrics, name: str, level: RecordingLevel, parents: tuple[Sensor, ...]) -> None:
        """`StreamsMetrics.add_sensor` creates it. A value is recorded for `parents`, too."""
        self.name = name
        self.level = level
        self.parents = parents
        self.should_record = level <= owner.level
        """Whether `metrics.recording.level` includes the level of this sensor."""
        self._owner = owner
        self._lock = threading.Lock()
        self._stats: dict[MetricName, MeasurableStat] = {}

    def add(self, metric: MetricName, stat: MeasurableStat) -> bool:
        """Measure `stat` under this name. Returns whether the sensor is still registered. Raises StreamsError where
        another sensor has a metric of this name.
        """
        with self._owner.lock:
            if not self._owner.has(self):
                return False
            if metric not in self._stats:
                self._owner.register(metric, self)
                with self._lock:
                    self._stats[metric] = stat
            return True

    @property
    def has_metrics(self) -> bool:
        """Whether a metric was added."""
        return bool(self._stats)

    def record(self, value: float = 1.0, time_ms: int | None = None) -> None:
        """Record a value, by default at the present time. No effect where the level of the sensor is not recorded."""
        if not self.should_record:
            return
        now_ms = self._owner.clock() if time_ms is None else time_ms
        with self._lock:
            for stat in self._stats.values():
                stat.record(self._owner.windows, value, now_ms)
        for parent in self.parents:
            parent.record(value, now_ms)

    def measure(self, now_ms: int) -> Metrics:
        """The metrics of this sensor at a time."""
        with self._lock:
            return {metric: stat.measure(self._owner.windows, now_ms) for metric, stat in self._stats.items()}


class StreamsMetrics(JavaNames):
    """The sensors of one client or driver. Any thread may call its methods."""

    def __init__(self, config: Mapping[str, Any], clock: Callable[[], int] | None = None) -> None:
        """`clock` returns the wall-clock time in ms."""
        self.level = RecordingLevel[config.get("metrics.recording.level", "INFO")]
        self.windows = SampleWindows(
            config.get("metrics.num.samples", DEFAULT_SAMPLES),
            config.get("metrics.sample.window.ms", DEFAULT_WINDOW_MS),
        )
        self.clock = clock or (lambda: time.time_ns() // 1_000_000)
        self.lock = threading.RLock()
        self._sensors: dict[str, Sensor] = {}
        self._children: dict[Sensor, list[Sensor]] = {}
        self._metrics: dict[MetricName, Sensor] = {}

    def add_latency_rate_total_sensor(
        self,
        scope_name: str,
        entity_name: str,
        operation_name: str,
        recording_level: RecordingLevel,
        tags: Mapping[str, str] | None = None,
    ) -> Sensor:
        """A sensor of an operation's latency, with `…-latency-avg`, `…-latency-max`, `…-rate` and `…-total` in the
        group `stream-<scope>-metrics`, tagged with the current thread, `<scope>-id` and `tags`.
        """
        sensor, group, all_tags = self._of_operation(scope_name, entity_name, operation_name, recording_level, tags)
        sensor.add(MetricName(group, f"{operation_name}-latency-avg", all_tags), Avg())
        sensor.add(MetricName(group, f"{operation_name}-latency-max", all_tags), Max())
        return sensor

    def add_rate_total_sensor(
        self,
        scope_name: str,
        entity_name: str,
        operation_name: str,
        recording_level: RecordingLevel,
        tags: Mapping[str, str] | None = None,
    ) -> Sensor:
        """The same without the latencies."""
        return self._of_operation(scope_name, entity_name, operation_name, recording_level, tags)[0]

    def add_sensor(self, name: str, recording_level: RecordingLevel, *parents: Sensor) -> Sensor:
        """The sensor of this name; a new one has no metrics until `Sensor.add`."""
        with self.lock:
            found = self._sensors.get(name)
            if found is None:
                found = self._sensors[name] = Sensor(self, name, recording_level, parents)
                for parent in parents:
                    self._children.setdefault(parent, []).append(found)
            return found

    def remove_sensor(self, sensor: Sensor) -> None:
        """Remove a sensor, its metrics, and the sensors whose parent it is."""
        with self.lock:
            if not self.has(sensor):
                return
            del self._sensors[sensor.name]
            self._metrics = {metric: owner for metric, owner in self._metrics.items() if owner is not sensor}
            for child in [*self._children.get(sensor, ())]:
                self.remove_sensor(child)
            self._children.pop(sensor, None)
            for parent in sensor.parents:
                self._children[parent].remove(sensor)

    def metrics(self) -> Metrics:
        """The metrics of these sensors, by group, name and tags."""
        with self.lock:
            sensors = list(self._sensors.values())
        now_ms = self.clock()
        return {metric: value for sensor in sensors for metric, value in sensor.measure(now_ms).items()}

    # ---- called by sensors, under `lock`

    def has(self, sensor: Sensor) -> bool:
        """Whether a sensor has not been removed."""
        return self._sensors.get(sensor.name) is sensor

    def register(self, metric: MetricName, sensor: Sensor) -> None:
        """Reserve the name of a metric. Raises StreamsError where another sensor has it."""
        if metric in self._metrics:
            raise StreamsError(f"A metric named '{metric}' already exists, can't register another one.")
        self._metrics[metric] = sensor

    def _of_operation(
        self, scope: str, entity: str, operation: str, level: RecordingLevel, tags: Mapping[str, str] | None
    ) -> tuple[Sensor, str, tuple[tuple[str, str], ...]]:
        thread = threading.current_thread().name
        group = f"stream-{scope}-metrics"
        all_tags = tuple(sorted({"thread-id": thread, f"{scope}-id": entity, **(tags or {})}.items()))
        with self.lock:
            sensor = self.add_sensor(f"external.{thread}.entity.{entity}.sensor.{operation}", level)
            sensor.add(MetricName(group, f"{operation}-rate", all_tags), Rate(WindowedCount()))
            sensor.add(MetricName(group, f"{operation}-total", all_tags), CumulativeCount())
        return sensor, group, all_tags
