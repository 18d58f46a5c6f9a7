"""Metrics of an application, under Kafka Streams' names (KIP-444; Kafka: StreamsMetricsImpl, 3.9).

    streams.metrics()[MetricName.of("stream-thread-metrics", "process-rate", thread_id=...)]

Metrics are pulled: the runtime increments plain counters once a batch (`recorded_metrics.py`), and names, rates and
averages are computed on request, as are the sizes of stores. Groups, names and tags are Kafka's; so are the metrics of
each `metrics.recording.level`, with one exception: at DEBUG every node has `process-total`, `process-rate` and
`process-latency-avg`, of its own work without that of the nodes behind it; in Kafka only sources have the first two. Of
the clients' metrics there is the consumer's `records-lag`. Kafka's other metrics are absent, since each record would
pay for them: end-to-end latencies, bytes, produced records, and RocksDB's own statistics.

Latencies of threads are in ms, those of tasks, nodes and stores in ns. Where Kafka measures each record, the average of
a batch stands for all of its records. Unreadable records count as consumed.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from odradek import __version__
from odradek.streams.metered import LEVELS
from odradek.streams.recorded_metrics import RecordedStat, TaskMetrics, ThreadMetrics
from odradek.streams.stores.sizes import StoreSize

if TYPE_CHECKING:
    from odradek.streams.driver import TopologyTestDriver
    from odradek.streams.node_calls import NodeCalls
    from odradek.streams.running.thread import StreamThread
    from odradek.streams.runtime import KafkaStreams
    from odradek.streams.task import Task
    from odradek.streams.topology import Topology

Tags = tuple[tuple[str, str], ...]
Value = float | int | str
CLIENT: Final = "stream-metrics"
THREAD: Final = "stream-thread-metrics"
TASK: Final = "stream-task-metrics"
NODE: Final = "stream-processor-node-metrics"
STATE: Final = "stream-state-metrics"
CACHE: Final = "stream-record-cache-metrics"
TOPIC: Final = "stream-topic-metrics"
FETCH: Final = "consumer-fetch-manager-metrics"
"""A group of the consumer of each thread, in the domain kafka.consumer."""
_OPEN_ENDED: Final = frozenset({"all", "range", "prefix-scan", "fetch"})
"""Operations whose latency Kafka measures until their rows are read: they have rates only."""


class MetricName(NamedTuple):
    """A metric; tags are sorted by their names."""

    group: str
    name: str
    tags: Tags

    @classmethod
    def of(cls, group: str, name: str, **tags: object) -> MetricName:
        """Creates a name; underscores in the names of tags become hyphens: thread_id="..."."""
        return cls(group, name, tuple(sorted((tag.replace("_", "-"), str(value)) for tag, value in tags.items())))


Metrics = dict[MetricName, Value]


class _Group:
    """Metrics of one group with the same tags."""

    def __init__(self, into: Metrics, group: str, tags: Mapping[str, object]) -> None:
        self._into = into
        self._group = group
        self._tags: Tags = tuple(sorted((name, str(value)) for name, value in tags.items()))

    def value(self, name: str, value: Value) -> None:
        """Add one number, or a text."""
        self._into[MetricName(self._group, name, self._tags)] = value

    def counted(self, name: str, stat: Any) -> None:
        """Add total and rate."""
        self.value(f"{name}-total", stat.total)
        self.value(f"{name}-rate", stat.rate)

    def amounts(self, name: str, stat: RecordedStat, *, least: bool = False) -> None:
        """Add average and maximum."""
        self.value(f"{name}-avg", stat.average)
        self.value(f"{name}-max", stat.maximum)


def client_metrics(streams: KafkaStreams) -> Metrics:
    """The current metrics of a client (KafkaStreams.metrics). Any thread may call it."""
    found: Metrics = {}
    client = _Group(found, CLIENT, {"client-id": streams.client_id})
    client.value("version", __version__)
    client.value("application-id", streams.config["application.id"])
    client.value("topology-description", streams.topology.describe())
    client.value("state", streams.state.name)
    client.value("alive-stream-threads", sum(each.state.name != "DEAD" for each in streams.stream_threads))
    client.value("failed-stream-threads", streams.failed_threads)
    detailed = streams.config["metrics.recording.level"] in LEVELS
    for thread in streams.stream_threads:
        _thread(found, thread, detailed)
    where = {"thread-id": f"{streams.client_id}-GlobalStreamThread", "task-id": "-1_-1"}
    for name, store in dict(streams.global_state.stores if streams.global_state is not None else {}).items():
        _sizes(_Group(found, STATE, {**where, f"{scope(streams.topology.global_stores[name])}-state-id": name}), store)
    return found


def driver_metrics(driver: TopologyTestDriver, task: Task | None, thread: str) -> Metrics:
    """The current metrics of a driver; `thread` is the name of the thread that runs it."""
    found: Metrics = {}
    if task is not None:
        detailed = driver.config["metrics.recording.level"] in LEVELS
        observe(task)
        _task(found, thread, task, driver.topology, detailed)
    return found


def observe(task: Task) -> None:
    """Sample the totals of a task, about every second: rates derive from the samples."""
    task.metrics.observe(task.context, task.partition_group.consumed())


def _thread(found: Metrics, thread: StreamThread, detailed: bool) -> None:
    metrics: ThreadMetrics = thread.metrics
    group = _Group(found, THREAD, {"thread-id": thread.name})
    for name in ("process", "poll", "commit", "punctuate"):
        stat: RecordedStat = getattr(metrics, name)
        group.counted(name, stat)
        group.amounts(f"{name}-latency", stat)
    group.amounts("poll-records", metrics.poll_records)
    group.amounts("process-records", metrics.process_records)
    group.counted("task-created", metrics.created)
    group.counted("task-closed", metrics.closed)
    group.value("thread-start-time", metrics.started_ms)
    for (topic, partition), lag in metrics.records_lag.items():
        tags = {"client-id": f"{thread.name}-consumer", "topic": topic.replace(".", "_"), "partition": partition}
        _Group(found, FETCH, tags).value("records-lag", lag)
    tasks = thread.tasks
    if tasks is None:
        return
    running = list(tasks.tasks.values())
    for each in running:
        if each.task is not None:
            _task(found, thread.name, each.task, tasks.topology, detailed)
        if each.state.changelogs:
            restoring = _Group(found, TASK, {"thread-id": thread.name, "task-id": each.state.task_id})
            restoring.value("restore-remaining-records-total", tasks.left_to_restore(each.state.task_id))
            restoring.value("restore-total", each.state.restored.total)
            restoring.value("restore-rate", each.state.restored.rate)


def _task(found: Metrics, thread: str, task: Task, topology: Topology, detailed: bool) -> None:
    metrics: TaskMetrics = task.metrics
    where: dict[str, object] = {"thread-id": thread, "task-id": task.task_id}
    group = _Group(found, TASK, where)
    group.counted("dropped-records", metrics.dropped)
    for (node, topic), counter in list(metrics.sources.items()):
        consumed = _Group(found, TOPIC, {**where, "processor-node-id": node, "topic": topic})
        consumed.value("records-consumed-total", counter.total)
    for name, store in task.stores.items():
        _sizes(_Group(found, STATE, {**where, f"{scope(topology.stores[name])}-state-id": name}), store)
    for calls in task.calls.nodes if task.calls is not None else ():
        _calls(_Group(found, NODE, {**where, "processor-node-id": calls.name}), calls)
    if not detailed:
        return
    group.counted("process", metrics.process)
    group.amounts("process-latency", metrics.process)
    group.counted("punctuate", metrics.punctuate)
    group.amounts("punctuate-latency", metrics.punctuate)
    group.value("active-buffer-count", task.partition_group.buffered())
    for node, meter in metrics.nodes.nodes.items() if metrics.nodes is not None else ():
        at_node = _Group(found, NODE, {**where, "processor-node-id": node})
        at_node.counted("process", meter.rate)
        at_node.value("process-latency-avg", meter.nanoseconds / meter.records if meter.records else math.nan)
    for name, stats in metrics.stores.items():
        _store(_Group(found, STATE, {**where, f"{scope(topology.stores[name])}-state-id": name}), stats)
    for name, ratio in list(metrics.hit_ratios.items()):
        cached = _Group(found, CACHE, {**where, "record-cache-id": name})
        cached.amounts("hit-ratio", ratio)


def _sizes(group: _Group, store: Any) -> None:
    """The size of a store, where it is measured: read from the store at each request (KIP-607, KIP-1250)."""
    measure = getattr(store, "store_size", None)  # a store may be a class of the user's own
    size: StoreSize | None = None if measure is None else measure()
    if size is None:
        return
    if size.sst_bytes is None:
        group.value("num-keys", size.keys)
        return
    group.value("estimate-num-keys", size.keys)
    group.value("total-sst-files-size", size.sst_bytes)
    group.value("cur-size-all-mem-tables", size.memtable_bytes or 0)


def _calls(group: _Group, calls: NodeCalls) -> None:
    """The metrics of an asynchronous node, which Kafka does not have. Latencies in ms."""
    group.value("calls-in-flight", len(calls.pending))
    group.counted("call", calls.metrics.latency)
    group.amounts("call-latency", calls.metrics.latency)
    group.value("call-timeouts-total", calls.metrics.timeouts)


def _store(group: _Group, stats: Mapping[str, RecordedStat]) -> None:
    for name, stat in stats.items():
        group.value(f"{name}-rate", stat.rate)
        if name not in _OPEN_ENDED:
            group.amounts(f"{name}-latency", stat)


def scope(builder: Any) -> str:
    """Kafka's name for the kind of a store, in the name of its tag (metricsScope of the suppliers)."""
    kind = getattr(builder, "kind", "key-value")
    if getattr(builder, "max_entries", 0):
        return "in-memory-lru"
    place = "rocksdb" if getattr(builder, "persistent", True) else "in-memory"
    return f"{place}-{kind}" if kind in ("window", "session") else place


# ---- Prometheus


def flat(metrics: Mapping[MetricName, Value]) -> Iterator[tuple[str, Mapping[str, str], float]]:
    """Name, labels and value of every number, with the names of Prometheus' JMX exporter without rules.

    The bean `kafka.streams:type=stream-thread-metrics,thread-id=x` with the attribute `process-rate` becomes
    `kafka_streams_stream_thread_metrics_process_rate{thread_id="x"}`; the exporter leaves out texts, too.
    """
    for metric, value in metrics.items():
        if not isinstance(value, str) and not math.isnan(value):
            labels = {tag.replace("-", "_"): text for tag, text in metric.tags}
            domain = "kafka_consumer" if metric.group == FETCH else "kafka_streams"
            yield f"{domain}_{metric.group}_{metric.name}".replace("-", "_"), labels, float(value)


def names(metrics: Iterable[MetricName]) -> set[tuple[str, str, tuple[str, ...]]]:
    """Group, name and the names of the tags: the parts that do not depend on the application."""
    return {(each.group, each.name, tuple(tag for tag, _ in each.tags)) for each in metrics}
