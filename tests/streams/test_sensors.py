"""Sensors of the user, compared with Java's: stats for any events, and the metrics of a processor in both drivers."""

from __future__ import annotations

import math
import urllib.request
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import jpype
import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.broker_process import BrokerProcess
from odradek.streams.driver import TopologyTestDriver
from odradek.streams.errors import StreamsError
from odradek.streams.metrics import MetricName
from odradek.streams.metrics_page import serve_metrics
from odradek.streams.processor import Processor, ProcessorContext
from odradek.streams.records import Record
from odradek.streams.runtime import KafkaStreams, State
from odradek.streams.sensors import RecordingLevel, StreamsMetrics
from odradek.streams.serdes import BYTES
from odradek.streams.stats import (
    Avg,
    CumulativeCount,
    CumulativeSum,
    Max,
    MeasurableStat,
    Min,
    Rate,
    SampleWindows,
    Value,
    WindowedCount,
    WindowedSum,
)
from odradek.streams.topology import Topology
from tests.streams import counting
from tests.streams.counting import QUICK
from tests.streams.oracle.java import Java
from tests.streams.oracle.java_driver import JavaDriver
from tests.streams.oracle.java_dsl import JavaTopology
from tests.support.eventually import eventually

STATS = "org.apache.kafka.common.metrics.stats."
NAMES = ("Avg", "Max", "Min", "WindowedSum", "WindowedCount", "Rate", "CumulativeSum", "CumulativeCount", "Value")


def stats() -> list[MeasurableStat]:
    """In the order of NAMES."""
    made: list[MeasurableStat] = [Avg(), Max(), Min(), WindowedSum(), WindowedCount(), Rate()]
    return [*made, CumulativeSum(), CumulativeCount(), Value()]


def same(ours: float, theirs: float) -> bool:
    return (math.isnan(ours) and math.isnan(theirs)) or math.isclose(ours, theirs, rel_tol=1e-9, abs_tol=1e-9)


EVENTS = st.lists(
    st.tuples(st.integers(0, 70), st.one_of(st.none(), st.floats(-1e6, 1e6, allow_nan=False))), max_size=30
)


@pytest.mark.slow
@given(EVENTS, st.integers(1, 4), st.integers(1, 40))
def test_stats_are_java_s_for_any_events(
    java: Java, events: list[tuple[int, float | None]], samples: int, window_ms: int
) -> None:
    """A pair is the time since the last event, and a value to record; None measures in between."""
    config = jpype.JClass("org.apache.kafka.common.metrics.MetricConfig")()
    config.samples(samples).timeWindow(window_ms, java.find("java.util.concurrent.TimeUnit").MILLISECONDS)
    windows, ours = SampleWindows(samples, window_ms), stats()
    theirs = [jpype.JClass(STATS + name)() for name in NAMES]
    now = 1_000_000
    for elapsed, value in [*events, (1, None)]:
        now += elapsed
        for name, mine, other in zip(NAMES, ours, theirs, strict=True):
            if value is not None:
                mine.record(windows, value, now)
                other.record(config, value, now)
            else:
                measured = mine.measure(windows, now), float(other.measure(config, now))
                assert same(*measured), (name, measured)


class Measuring(Processor[bytes, bytes, bytes, bytes]):
    """Records one value for each record with each kind of sensor."""

    def init(self, context: ProcessorContext[bytes, bytes]) -> None:
        """Add the sensors."""
        self.context = context
        metrics = context.metrics()
        self.sensors = [
            metrics.add_latency_rate_total_sensor("geo", "cities", "lookup", RecordingLevel.INFO),
            metrics.add_rate_total_sensor("geo", "cities", "miss", RecordingLevel.INFO, tags={"region": "north"}),
            metrics.add_latency_rate_total_sensor("geo", "cities", "detail", RecordingLevel.DEBUG),
        ]
        removed = metrics.add_rate_total_sensor("geo", "rivers", "lookup", RecordingLevel.INFO)
        metrics.remove_sensor(removed)

    def process(self, record: Record[bytes, bytes]) -> None:
        """The value has as many bytes as the latency has ms."""
        for sensor in self.sensors:
            sensor.record(float(len(record.value)))


def topology(made: Any) -> Any:
    made.add_source("source", "in", key=BYTES, value=BYTES)
    made.add_processor("measuring", Measuring, "source")
    return made


def _without_thread(tags: Iterable[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    return tuple(tag for tag in tags if tag[0] != "thread-id")


@pytest.mark.parametrize("level", ["INFO", "DEBUG"])
def test_the_metrics_of_a_processor_are_java_s(java: Java, level: str) -> None:
    values = [b"x" * length for length in (3, 9, 6)]
    config = {"metrics.recording.level": level}
    with TopologyTestDriver(topology(Topology()), config) as driver:
        topic = driver.create_input_topic("in", BYTES, BYTES)
        for value in values:
            topic.pipe_input(b"k", value, timestamp=0)
        found = {metric: value for metric, value in driver.metrics().items() if metric.group == "stream-geo-metrics"}
    threads = {dict(metric.tags)["thread-id"] for metric in found}
    ours = {(name, _without_thread(tags)): value for (_, name, tags), value in found.items()}
    theirs: dict[Any, float] = {}
    with JavaDriver(topology(JavaTopology()).build(), config) as java_driver:
        for value in values:
            java_driver.pipe("in", b"k", value, 0)
        for name, metric in java_driver.driver.metrics().items():
            if str(name.group()) == "stream-geo-metrics":
                tags = sorted((str(tag), str(text)) for tag, text in name.tags().items())
                theirs[str(name.name()), _without_thread(tags)] = float(metric.metricValue())
    assert len(ours) == 10
    assert threads == {"MainThread"}
    assert ours.keys() == theirs.keys()
    assert [key for key, value in ours.items() if not same(float(value), theirs[key])] == []


def test_a_sensor_records_for_its_parents_and_takes_its_children_along() -> None:
    now = [1_000]
    metrics = StreamsMetrics({}, lambda: now[0])
    parent = metrics.add_sensor("parent", RecordingLevel.INFO)
    child = metrics.add_sensor("child", RecordingLevel.INFO, parent)
    assert metrics.add_sensor("child", RecordingLevel.INFO) is child
    total, most = MetricName.of("own", "total"), MetricName.of("own", "max", of="child")
    assert not parent.has_metrics
    assert parent.add(total, CumulativeSum())
    assert child.add(most, Max())
    assert parent.has_metrics
    child.record(4.0)
    child.record(2.0)
    assert metrics.metrics() == {total: 6.0, most: 4.0}
    with pytest.raises(StreamsError, match="already exists, can't register another one"):
        child.add(total, Avg())
    now[0] += 3_600_000
    found = metrics.metrics()
    assert found[total] == 6.0
    assert isinstance(found[most], float)
    assert math.isnan(found[most]), "its samples have expired"
    metrics.remove_sensor(parent)
    assert metrics.metrics() == {}
    assert not child.add(most, Max()), "it was removed with its parent"


@pytest.mark.slow
def test_an_application_shows_the_sensors_of_its_threads_on_its_page(
    streams_broker: BrokerProcess, tmp_path: Path
) -> None:
    counting.make_topics(streams_broker.bootstrap, {"sensed": 2})
    made = Topology().add_source("source", "sensed", key=BYTES, value=BYTES)
    made.add_processor("measuring", Measuring, "source")
    config = {
        **QUICK,
        "session.timeout.ms": 30_000,
        "application.id": "sensing",
        "bootstrap.servers": streams_broker.bootstrap,
        "state.dir": str(tmp_path),
        "num.stream.threads": 2,
    }
    with KafkaStreams(made, config) as streams, serve_metrics(streams, "127.0.0.1", 0) as port:
        streams.wait_until(State.RUNNING, counting.TIMEOUT_S)  # each thread has one of the two tasks
        counting.write_words(streams_broker.bootstrap, ["abc", "de", "f", "gh", "ijkl"] * 10, "sensed")

        def totals() -> dict[str, float]:
            return {
                dict(metric.tags)["thread-id"]: float(value)
                for metric, value in streams.metrics().items()
                if (metric.group, metric.name) == ("stream-geo-metrics", "lookup-total")
            }

        found = eventually(totals, lambda found: len(found) == 2 and sum(found.values()) >= 50)
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
            page = answer.read().decode()
    assert found.keys() == {f"{streams.client_id}-StreamThread-{index}" for index in (1, 2)}
    for thread, total in found.items():
        assert f'kafka_streams_stream_geo_metrics_lookup_total{{geo_id="cities",thread_id="{thread}"}} {total}' in page
