"""Metrics: their values, and that every name, group and tag of odradek.streams is one of Kafka Streams'."""

from __future__ import annotations

import math
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer

from odradek.broker_process import BrokerProcess
from odradek.streams.driver import TopologyTestDriver
from odradek.streams.dsl.builder import StreamsBuilder
from odradek.streams.dsl.options import Consumed, Grouped, Materialized, Produced
from odradek.streams.metered import NodeMeters
from odradek.streams.metrics import MetricName, Metrics, flat, names
from odradek.streams.metrics_page import serve_metrics
from odradek.streams.recorded_metrics import Counter, RecordedStat
from odradek.streams.running.record_reader import RecordReader
from odradek.streams.runtime import KafkaStreams, State
from odradek.streams.serdes import LONG, STRING
from odradek.streams.stores import builders
from odradek.streams.topology import Topology
from odradek.streams.windows import SessionWindows, TimeWindows
from tests.streams import counting
from tests.streams.counting import QUICK, all_of, await_counts, word_counts
from tests.streams.oracle.java import Java, remove, state_folder
from tests.support.eventually import eventually

DAY_MS = 24 * 3600 * 1000
NOT_IN_KAFKA_3_9 = {
    ("stream-state-metrics", "num-keys"),  # KIP-1250
    ("stream-processor-node-metrics", "process-latency-avg"),
}


class Clock:
    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


def test_a_stat_is_of_the_last_two_windows() -> None:
    clock = Clock()
    stat = RecordedStat(clock)
    assert (stat.total, stat.rate) == (0, 0.0)
    assert math.isnan(stat.average)
    assert math.isnan(stat.maximum)
    stat.record(4.0, 10)
    clock.now += 3
    stat.record(8.0, 50)
    assert (stat.total, stat.rate, stat.average, stat.maximum) == (60, 2.0, 6.0, 8.0), "a rate is of 30 s at least"
    clock.now += 37
    stat.record(1.0, 20)
    assert (stat.total, stat.rate, stat.average, stat.maximum) == (80, 2.0, 13 / 3, 8.0)
    clock.now += 31
    assert (stat.total, stat.rate, stat.average, stat.maximum) == (80, 20 / 31, 1.0, 1.0)
    clock.now += 61
    assert (stat.total, stat.rate) == (80, 0.0)
    assert math.isnan(stat.average)


def test_a_counter_s_rate_is_of_its_increments() -> None:
    clock = Clock()
    counter = Counter(clock)
    counter.observe(30)
    counter.observe(60)
    assert (counter.total, counter.rate) == (60, 2.0)
    counter.observe(15)
    assert (counter.total, counter.rate) == (15, 2.5)


def everything() -> Topology:
    """A store of each kind."""
    builder = StreamsBuilder()
    grouped = builder.stream("in", Consumed(STRING, STRING)).group_by_key(Grouped(STRING, STRING))
    grouped.count(Materialized("counts")).to_stream().to("out", Produced(STRING, LONG))
    grouped.count(Materialized("memory", store_type="in_memory"))
    for place in ("rocksDB", "in_memory"):
        grouped.windowed_by(TimeWindows.of_size_with_no_grace(10)).count(Materialized(f"w-{place}", store_type=place))
        sessions = grouped.windowed_by(SessionWindows.of_inactivity_gap_with_no_grace(5))
        sessions.count(Materialized(f"s-{place}", store_type=place))
    versioned = builders.versioned_key_value_store("versioned", DAY_MS, STRING, STRING)
    builder.table("table", Consumed(STRING, STRING), Materialized(store=versioned))
    return builder.build()


def java_names(java: Java) -> set[tuple[str, str, tuple[str, ...]]]:
    """Of a driver and of a client that was not started, for the same topology."""
    folder = state_folder()
    given = java.Properties()
    serde = "org.apache.kafka.common.serialization.Serdes$StringSerde"
    for name, value in {
        "application.id": "metrics",
        "bootstrap.servers": "localhost:9",
        "metrics.recording.level": "DEBUG",
        "state.dir": str(folder),
        "default.key.serde": serde,
        "default.value.serde": serde,
    }.items():
        given.put(name, value)
    builder, stores, ms = java.StreamsBuilder(), java.Stores, java.Duration.ofMillis
    grouped = builder.stream("in").groupByKey()
    as_ = getattr(java.Materialized, "as_")  # noqa: B009
    grouped.count(as_("counts")).toStream().to("out")
    grouped.count(as_(stores.inMemoryKeyValueStore("memory")))
    for window, session, place in (
        (stores.persistentWindowStore, stores.persistentSessionStore, "rocksDB"),
        (stores.inMemoryWindowStore, stores.inMemorySessionStore, "in_memory"),
    ):
        windows = grouped.windowedBy(java.TimeWindows.ofSizeWithNoGrace(ms(10)))
        windows.count(as_(window(f"w-{place}", ms(10), ms(10), False)))
        sessions = grouped.windowedBy(java.SessionWindows.ofInactivityGapWithNoGrace(ms(5)))
        sessions.count(as_(session(f"s-{place}", ms(5))))
    builder.table("table", as_(stores.persistentVersionedKeyValueStore("versioned", ms(DAY_MS))))
    topology = builder.build()
    found = set()
    driver = java.TopologyTestDriver(topology, given)
    client = java.KafkaStreams(topology, given)
    try:
        driver.createInputTopic("in", java.StringSerializer(), java.StringSerializer()).pipeInput("k", "v")
        for metrics in (driver.metrics(), client.metrics()):
            for name in metrics.keySet():
                tags = tuple(sorted(str(tag) for tag in name.tags().keySet()))
                found.add((str(name.group()), str(name.name()), tags))
    finally:
        driver.close()
        client.close()
        remove(folder)
    registry = "org.apache.kafka.clients.consumer.internals.FetchMetricsRegistry"
    lag = java.find(registry)(java.HashSet(["client-id"]), "consumer").partitionRecordsLag
    found.add((str(lag.group()), str(lag.name()), tuple(sorted(map(str, lag.tags())))))
    return found


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("metrics"), counting.BROKER) as running:
        yield running


def driven(topology: Topology, **config: Any) -> Metrics:
    with TopologyTestDriver(topology, {name.replace("_", "."): value for name, value in config.items()}) as driver:
        lines = driver.create_input_topic("in", STRING, STRING)
        for moment in (1, 2, 50, 1):
            lines.pipe_input("k", "v", timestamp=moment)
        driver.create_input_topic("table", STRING, STRING).pipe_input("k", "v", timestamp=1)
        return driver.metrics()


def one(metrics: Metrics, group: str, name: str, **tags: str) -> Any:
    """The only metric of these tags, others aside."""
    wanted = {tag.replace("_", "-"): value for tag, value in tags.items()}.items()
    found = [value for key, value in metrics.items() if key[:2] == (group, name) and wanted <= dict(key.tags).items()]
    assert len(found) == 1, f"{name}: {[key for key in metrics if key.group == group]}"
    return found[0]


@pytest.mark.jvm
def test_every_name_is_kafka_s(java: Java, broker: BrokerProcess, tmp_path: Path) -> None:
    counting.make_topics(broker.bootstrap, {"in": 1, "table": 1, "out": 1})
    config = {
        **QUICK,
        "application.id": "names",
        "bootstrap.servers": broker.bootstrap,
        "state.dir": str(tmp_path),
        "metrics.recording.level": "DEBUG",
    }
    with KafkaStreams(everything(), config) as streams:
        streams.wait_until(State.RUNNING, 30)
        running = eventually(streams.metrics, lambda metrics: any(key.name == "records-lag" for key in metrics))
    ours = names(running) | names(driven(everything(), metrics_recording_level="DEBUG"))
    groups = {group for group, _, _ in ours}
    assert groups == {
        f"stream-{each}"
        for each in (
            "metrics",
            "thread-metrics",
            "task-metrics",
            "processor-node-metrics",
            "state-metrics",
            "record-cache-metrics",
            "topic-metrics",
        )
    } | {"consumer-fetch-manager-metrics"}
    assert {(group, name) for group, name, _ in ours - java_names(java)} == NOT_IN_KAFKA_3_9


def test_a_driver_has_metrics() -> None:
    metrics = driven(everything(), metrics_recording_level="DEBUG")
    task = {"task_id": "0_0"}
    assert one(metrics, "stream-task-metrics", "process-total", **task) == 5
    assert one(metrics, "stream-task-metrics", "process-latency-avg", **task) > 0
    assert one(metrics, "stream-task-metrics", "dropped-records-total", **task) > 0, "one record was late"
    assert one(metrics, "stream-topic-metrics", "records-consumed-total", topic="in") == 4
    assert one(metrics, "stream-topic-metrics", "records-consumed-total", topic="table") == 1
    assert (
        one(metrics, "stream-processor-node-metrics", "process-total", processor_node_id="KSTREAM-SOURCE-0000000000")
        == 4
    )
    for node in ("KSTREAM-AGGREGATE-0000000001", "KTABLE-TOSTREAM-0000000002", "KSTREAM-SINK-0000000003"):
        assert one(metrics, "stream-processor-node-metrics", "process-total", processor_node_id=node) == 4, node
        assert one(metrics, "stream-processor-node-metrics", "process-latency-avg", processor_node_id=node) > 0, node
    for place, store in (("rocksdb", "counts"), ("in_memory", "memory"), ("rocksdb_window", "w-rocksDB")):
        size = one(metrics, "stream-state-metrics", "num-keys", **{f"{place}_state_id": store})
        assert size == (2 if "window" in place else 1), "a driver without state.dir has all stores in memory"
    assert one(metrics, "stream-state-metrics", "put-rate", rocksdb_state_id="counts") == pytest.approx(4 / 30)
    assert one(metrics, "stream-state-metrics", "get-rate", in_memory_state_id="memory") == pytest.approx(4 / 30)
    assert one(metrics, "stream-state-metrics", "put-latency-max", rocksdb_state_id="versioned") > 0
    assert one(metrics, "stream-record-cache-metrics", "hit-ratio-avg", record_cache_id="counts") == pytest.approx(
        3 / 4
    )


def test_detailed_metrics_need_the_recording_level() -> None:
    found = {(key.group, key.name) for key in driven(everything())}
    assert ("stream-task-metrics", "dropped-records-total") in found
    assert {name for group, name in found if group == "stream-state-metrics"} == {"num-keys"}
    assert not any(group in ("stream-processor-node-metrics", "stream-record-cache-metrics") for group, _ in found)
    assert ("stream-task-metrics", "process-total") not in found


@pytest.mark.slow
def test_an_application_has_metrics_and_serves_a_page(broker: BrokerProcess, tmp_path: Path) -> None:
    counting.make_topics(broker.bootstrap, {"words": 2, "counts": 2})
    config = {
        **QUICK,
        "session.timeout.ms": 30_000,
        "application.id": "page",
        "bootstrap.servers": broker.bootstrap,
        "state.dir": str(tmp_path),
    }
    with KafkaStreams(word_counts(), config) as streams, serve_metrics(streams, "127.0.0.1", 0) as port:
        counting.write_words(broker.bootstrap, ["a", "b", "a"] * 100)
        await_counts(broker.bootstrap, all_of({"a": 200, "b": 100}))
        thread = {"thread_id": f"{streams.client_id}-StreamThread-1"}

        def is_committed(metrics: Any) -> bool:
            done = [one(metrics, "stream-thread-metrics", name, **thread) for name in ("process-total", "commit-total")]
            lags = [value for key, value in metrics.items() if key.name == "records-lag"]  # sampled every second
            return done[0] == 600 and done[1] > 0 and lags == [0] * 4  # each word, and once more by its key

        metrics = eventually(streams.metrics, is_committed)  # counts are emitted before they are committed
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
            page = answer.read().decode()
    client = {"client_id": streams.client_id}
    assert one(metrics, "stream-metrics", "state", **client) == "RUNNING"
    assert one(metrics, "stream-metrics", "alive-stream-threads", **client) == 1
    assert one(metrics, "stream-metrics", "failed-stream-threads", **client) == 0
    assert one(metrics, "stream-metrics", "application-id", **client) == "page"
    assert one(metrics, "stream-metrics", "topology-description", **client) == streams.topology.describe()
    assert one(metrics, "stream-thread-metrics", "process-rate", **thread) == pytest.approx(20)
    assert one(metrics, "stream-thread-metrics", "process-latency-max", **thread) > 0
    assert one(metrics, "stream-thread-metrics", "task-created-total", **thread) == 4
    for name in ("poll-total", "commit-total", "commit-latency-avg", "poll-records-max", "thread-start-time"):
        assert one(metrics, "stream-thread-metrics", name, **thread) > 0, name
    restored = {key.tags: value for key, value in metrics.items() if key.name == "restore-remaining-records-total"}
    assert set(restored.values()) == {0}
    assert len(restored) == 2, "the tasks that have a store"
    assert f'kafka_streams_stream_thread_metrics_process_total{{thread_id="{thread["thread_id"]}"}} 600.0' in page
    assert "topology_description" not in page


@pytest.mark.slow
def test_the_lag_is_the_number_of_records_that_were_not_read(broker: BrokerProcess) -> None:
    counting.make_topics(broker.bootstrap, {"lagging": 3})
    written, empty, behind = (("lagging", partition) for partition in range(3))
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for _ in range(10):
        producer.produce("lagging", b"x", partition=written[1])
        producer.produce("lagging", b"x", partition=behind[1])
    assert producer.flush(30) == 0
    config = {"bootstrap.servers": broker.bootstrap, "group.id": "lagging", "enable.auto.commit": False}
    consumer = Consumer({**config, "auto.offset.reset": "error"})
    try:
        reader = RecordReader(consumer, 3, lambda topic: "earliest")
        reader.assign({written: 1, empty: None})
        assert eventually(lambda: reader.poll(0.1)).keys() == {written}
        assert eventually(reader.records_lag, lambda lags: len(lags) == 2) == {written: 6, empty: 0}
        reader.unassign([written])
        reader.assign({behind: 10})
        eventually(lambda: (reader.poll(0.01), reader.records_lag())[1], lambda lags: lags == {empty: 0, behind: 0})
    finally:
        consumer.close()


def test_names_for_prometheus_are_those_of_the_jmx_exporter() -> None:
    metrics: Metrics = {
        MetricName.of("stream-state-metrics", "put-rate", thread_id="t-1", rocksdb_state_id="a.b"): 1.5,
        MetricName.of("consumer-fetch-manager-metrics", "records-lag", client_id="c", topic="t", partition=0): 7,
        MetricName.of("stream-metrics", "state", client_id="c"): "RUNNING",
        MetricName.of("stream-task-metrics", "process-latency-avg", task_id="0_0"): math.nan,
    }
    assert list(flat(metrics)) == [
        ("kafka_streams_stream_state_metrics_put_rate", {"rocksdb_state_id": "a.b", "thread_id": "t-1"}, 1.5),
        (
            "kafka_consumer_consumer_fetch_manager_metrics_records_lag",
            {"client_id": "c", "partition": "0", "topic": "t"},
            7.0,
        ),
    ]


def test_stores_on_disk_have_rocksdb_s_estimates(tmp_path: Path) -> None:
    builder = StreamsBuilder()
    builder.stream("in", Consumed(STRING, STRING)).group_by_key(Grouped(STRING, STRING)).count("counts")
    with TopologyTestDriver(builder.build(), {"state.dir": str(tmp_path)}) as driver:
        for key in ("a", "b"):
            driver.create_input_topic("in", STRING, STRING).pipe_input(key, "v")
        metrics = driver.metrics()
        store = driver.get_state_store("counts")
    named = {"task_id": "0_0", "rocksdb_state_id": "counts"}
    assert one(metrics, "stream-state-metrics", "estimate-num-keys", **named) == 2
    sizes = [one(metrics, "stream-state-metrics", name, **named) for name in SIZES]
    assert sum(sizes) > 0
    assert store.store_size() is None, "the store is closed"


SIZES = ("total-sst-files-size", "cur-size-all-mem-tables")


def test_the_time_of_a_node_is_that_of_its_own_work() -> None:
    clock_ns = [0]
    meters = NodeMeters(lambda: clock_ns[0])

    def work(key: Any, value: Any, timestamp: int, headers: Any) -> None:
        clock_ns[0] += value

    leaf = meters.metered("leaf", work)

    def forward(key: Any, value: Any, timestamp: int, headers: Any) -> None:
        clock_ns[0] += 5
        leaf(key, value, timestamp, headers)
        leaf(key, value, timestamp, headers)
        if value == 7:
            raise ValueError("of the node")

    root = meters.metered("root", forward)
    root(None, 10, 0, None)
    with pytest.raises(ValueError, match="of the node"):
        root(None, 7, 0, None)
    assert {name: (each.records, each.nanoseconds) for name, each in meters.nodes.items()} == {
        "leaf": (4, 34),
        "root": (2, 10),
    }


@pytest.mark.slow
def test_global_stores_have_sizes(broker: BrokerProcess, tmp_path: Path) -> None:
    counting.make_topics(broker.bootstrap, {"everywhere": 2})
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for key in ("a", "b", "c"):
        producer.produce("everywhere", b"v", key)
    assert producer.flush(30) == 0
    builder = StreamsBuilder()
    builder.global_table("everywhere", Consumed(STRING, STRING), Materialized("all", store_type="in_memory"))
    config = {"application.id": "global", "bootstrap.servers": broker.bootstrap, "state.dir": str(tmp_path)}
    with KafkaStreams(builder.build(), {**QUICK, **config}) as streams:
        streams.wait_until(State.RUNNING, 30)
        assert one(streams.metrics(), "stream-state-metrics", "num-keys", in_memory_state_id="all") == 3
