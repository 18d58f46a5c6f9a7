"""The broker's metrics as a page for Prometheus (`odradek broker --metrics HOST:PORT`).

Names and labels are those that Prometheus' JMX exporter makes of Kafka's metrics with the rules that its own examples
and Strimzi use, so dashboards and alerts for a Kafka broker work for this one. What Kafka does not have begins with
`odradek_`. A separate thread writes the page from a snapshot that the event loop takes for it (`snapshot`).
"""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from prometheus_client import GC_COLLECTOR, PLATFORM_COLLECTOR, PROCESS_COLLECTOR, CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample

from odradek.broker.metrics.broker_metrics import percentiles
from odradek.broker.metrics.exposition.snapshot import MetricsSnapshot, PartitionRow
from odradek.broker.metrics.loop_stalls import BOUNDS_S
from odradek.broker.replication.state.partition import Role
from odradek.protocol.errors import ErrorCode

DEADLINE_S: Final = 10
QUANTILES: Final = (0.5, 0.75, 0.95, 0.98, 0.99, 0.999)
RUNNING: Final = 3
"""Kafka's BrokerState for a running broker."""

TOPIC_COUNTERS: Final = {
    "messagesin": ("messages_in", "Records that clients have written"),
    "bytesin": ("bytes_in", "Bytes of batches that clients have written"),
    "bytesout": ("bytes_out", "Bytes of batches that consumers have fetched"),
    "bytesrejected": ("bytes_rejected", "Bytes of batches that were too large"),
    "totalproducerequests": ("produces", "Writes, each partition of a request counted"),
    "totalfetchrequests": ("fetches", "Reads, each partition of a request counted"),
    "failedproducerequests": ("failed_produces", "Writes that were refused"),
    "failedfetchrequests": ("failed_fetches", "Reads that were refused"),
    "producemessageconversions": ("produce_conversions", "Records converted from an old format"),
}
REPLICATION_COUNTERS: Final = {
    "replicationbytesin": ("replication_bytes_in", "Bytes of batches fetched from leaders"),
    "replicationbytesout": ("replication_bytes_out", "Bytes of batches fetched by followers"),
}
GROUP_STATES: Final = {
    "preparingrebalance": "PreparingRebalance",
    "completingrebalance": "CompletingRebalance",
    "stable": "Stable",
    "dead": "Dead",
    "empty": "Empty",
}
AUTHENTICATION_COUNTERS: Final = {
    "successful_authentication": "TLS handshakes and SASL exchanges that succeeded",
    "failed_authentication": "TLS handshakes and SASL exchanges that failed",
    "successful_reauthentication": "Re-authentications that succeeded",
    "failed_reauthentication": "Re-authentications that failed",
}
Labelled = Iterable[tuple[tuple[str, ...], float]]


def gauge(name: str, text: str, value: float) -> Metric:
    """One number."""
    return GaugeMetricFamily(name, text, value)


def gauges(name: str, text: str, labels: tuple[str, ...], values: Labelled) -> Metric:
    """One number for each set of labels."""
    family = GaugeMetricFamily(name, text, labels=labels)
    for each, value in values:
        family.add_metric(each, value)
    return family


def counters(name: str, text: str, labels: tuple[str, ...], values: Labelled) -> Metric:
    """The same for counters; `_total` is appended to the name."""
    family = CounterMetricFamily(name, text, labels=labels)
    for each, value in values:
        family.add_metric(each, value)
    return family


def topics(at: MetricsSnapshot) -> Iterator[Metric]:
    """Kafka's BrokerTopicMetrics: of each topic, and of all."""
    for name, (attribute, text) in {**TOPIC_COUNTERS, **REPLICATION_COUNTERS}.items():
        family = CounterMetricFamily(f"kafka_server_brokertopicmetrics_{name}", text)
        family.add_metric((), sum(metrics[attribute] for metrics in at.topics.values()))
        if name in TOPIC_COUNTERS:
            for topic, metrics in at.topics.items():
                if metrics[attribute]:  # Kafka, too, exposes a topic from its first increment on
                    family.samples.append(_of_topic(family.name, topic, metrics[attribute]))
        yield family


def _of_topic(name: str, topic: str, value: float) -> Sample:
    return Sample(f"{name}_total", {"topic": topic}, value)


def requests(at: MetricsSnapshot) -> Iterator[Metric]:
    """Kafka's RequestMetrics; times are milliseconds."""
    prefix = "kafka_network_requestmetrics_"
    yield counters(
        prefix + "requests",
        "Requests answered",
        ("request", "version"),
        (((api.name, str(version)), count) for api in at.apis for version, count in api.versions.items()),
    )
    yield counters(
        prefix + "errors",
        "Error codes in answers",
        ("request", "error"),
        (((api.name, _error(code)), count) for api in at.apis for code, count in api.errors.items()),
    )
    for name, text, of in (
        ("totaltimems", "From a request's arrival to its answer", lambda each: each[0]),
        ("localtimems", "In which the broker worked for the request", lambda each: each[1]),
        ("remotetimems", "In which the request waited", lambda each: each[0] - each[1]),
    ):
        yield counters_named(prefix + name + "_count", text, (((api.name,), api.requests) for api in at.apis))
        yield gauges(
            prefix + name,
            text,
            ("request", "quantile"),
            (
                ((api.name, str(quantile)), value)
                for api in at.apis
                for quantile, value in zip(QUANTILES, percentiles(map(of, api.durations), QUANTILES), strict=True)
            ),
        )


def counters_named(name: str, text: str, values: Labelled) -> Metric:
    """Counters by request whose name is kept as it is, without `_total`."""
    family = Metric(name, text, "counter")
    family.samples.extend(Sample(name, {"request": labels[0]}, value) for labels, value in values)
    return family


def _error(code: int) -> str:
    try:
        return ErrorCode(code).name
    except ValueError:
        return str(code)


def replicas(at: MetricsSnapshot) -> Iterator[Metric]:
    """Kafka's ReplicaManager and ReplicaFetcherManager."""
    led = [row for row in at.partitions if row.role is Role.LEADER]
    prefix = "kafka_server_replicamanager_"
    for name, text, value in (
        ("partitioncount", "Partitions on this broker", len(at.partitions)),
        ("leadercount", "Partitions that this broker leads", len(led)),
        ("offlinereplicacount", "Partitions whose disk has failed", sum(r.role is Role.OFFLINE for r in at.partitions)),
        ("underreplicatedpartitions", "Led here, with replicas out of sync", sum(map(_under_replicated, led))),
        ("underminisrpartitioncount", "Led here, with too few in sync for acks=all", sum(map(_under_min_isr, led))),
        ("atminisrpartitioncount", "Led here, with just enough in sync", sum(map(_at_min_isr, led))),
        ("produceridcount", "Producers that are remembered", sum(row.producers for row in at.partitions)),
    ):
        yield gauge(prefix + name, text, value)
    for name, attribute, text in (
        ("isrshrinks", "isr_shrinks", "Replicas have left an ISR"),
        ("isrexpands", "isr_expands", "Replicas have come into an ISR"),
        ("failedisrupdates", "failed_isr_updates", "The controller has refused another ISR"),
    ):
        yield counters(prefix + name, text, (), [((), sum(each[attribute] for each in at.topics.values()))])
    yield gauges(
        "kafka_server_replicafetchermanager_maxlag",
        "How many records the follower that is farthest behind lacks here",
        ("clientId",),
        [(("Replica",), max((lag for _, _, lag in at.lags), default=0))],
    )
    yield gauges(
        "kafka_server_fetcherlagmetrics_consumerlag",
        "How many records a follower lacks here",
        ("clientId", "topic", "partition"),
        ((("ReplicaFetcherThread", topic, str(partition)), lag) for topic, partition, lag in at.lags),
    )


def _under_replicated(row: PartitionRow) -> bool:
    return row.in_sync is not None and row.in_sync < row.replicas


def _under_min_isr(row: PartitionRow) -> bool:
    return row.in_sync is not None and row.least is not None and row.in_sync < row.least


def _at_min_isr(row: PartitionRow) -> bool:
    return row.in_sync is not None and row.in_sync == row.least


def partitions(at: MetricsSnapshot) -> Iterator[Metric]:
    """Kafka's Partition and Log: of each partition."""
    labels = ("topic", "partition")
    led = [row for row in at.partitions if row.role is Role.LEADER]
    for name, text, of in (
        ("underreplicated", "1 while replicas are out of sync", _under_replicated),
        ("underminisr", "1 while too few are in sync for acks=all", _under_min_isr),
        ("atminisr", "1 while just enough are in sync", _at_min_isr),
        ("insyncreplicascount", "Replicas in sync", lambda row: row.in_sync or 0),
        ("replicascount", "Replicas", lambda row: row.replicas),
        ("laststableoffsetlag", "Records behind the first open transaction", lambda row: row.lso_lag or 0),
    ):
        values = (((row.topic, str(row.partition)), float(of(row))) for row in led)
        yield gauges(f"kafka_cluster_partition_{name}", text, labels, values)
    for name, text, of in (
        ("size", "Bytes of the segments", lambda row: row.size),
        ("logstartoffset", "First offset that is served", lambda row: row.start_offset),
        ("logendoffset", "Offset of the next record", lambda row: row.end_offset),
        ("numlogsegments", "Segments", lambda row: row.segments),
    ):
        values = (((row.topic, str(row.partition)), float(of(row))) for row in at.partitions)
        yield gauges(f"kafka_log_log_{name}", text, labels, values)


def controller(at: MetricsSnapshot) -> Iterator[Metric]:
    """Kafka's KafkaController; zeros where another broker is the controller."""
    row = at.controller
    for name, text, value in (
        ("activecontrollercount", "1 where this broker is the controller", row.active),
        ("activebrokercount", "Brokers that live", row.brokers),
        ("fencedbrokercount", "Brokers that are fenced: none, with ZooKeeper", 0),
        ("globaltopiccount", "Topics", row.topics),
        ("globalpartitioncount", "Partitions", row.partitions),
        ("offlinepartitionscount", "Partitions without a leader", row.offline_partitions),
        ("preferredreplicaimbalancecount", "Led by another than the preferred one", row.preferred_replica_imbalance),
        ("topicstodeletecount", "Topics that are being deleted", row.topics_to_delete),
        ("replicastodeletecount", "Their replicas", row.replicas_to_delete),
    ):
        yield gauge(f"kafka_controller_kafkacontroller_{name}", text, value)


def coordinators(at: MetricsSnapshot) -> Iterator[Metric]:
    """Kafka's GroupMetadataManager, and the fetch sessions."""
    prefix = "kafka_coordinator_group_groupmetadatamanager_"
    yield gauge(prefix + "numgroups", "Groups that this broker coordinates", sum(at.groups.values()))
    yield gauge(prefix + "numoffsets", "Offsets that they have committed", at.group_offsets)
    for name, state in GROUP_STATES.items():
        yield gauge(f"{prefix}numgroups{name}", f"Groups in the state {state}", at.groups.get(state, 0))
    sessions = "kafka_server_fetchsessioncache_"
    yield gauge(sessions + "numincrementalfetchsessions", "Fetch sessions", at.sessions.sessions)
    yield gauge(sessions + "numincrementalfetchpartitionscached", "Their partitions", at.sessions.partitions)
    yield counters(
        sessions + "incrementalfetchsessionevictions",
        "Fetch sessions that had to make room",
        (),
        [((), at.sessions.evictions)],
    )


def _authentications(at: MetricsSnapshot) -> Iterator[Metric]:
    """Kafka's socket-server-metrics of authentication."""
    labels, by_listener = ("listener", "networkProcessor"), at.authentications.items()
    for name, text in AUTHENTICATION_COUNTERS.items():
        values = (((listener, "0"), getattr(each, name)) for listener, each in by_listener)
        yield counters(f"kafka_server_socket_server_metrics_{name}", text, labels, values)
    yield gauges(
        "kafka_server_socket_server_metrics_expired_connections_killed_count",
        "Connections closed at the end of their session",
        labels,
        (((listener, "0"), each.expired_connections_killed) for listener, each in by_listener),
    )


def connections(at: MetricsSnapshot) -> Iterator[Metric]:
    """Kafka's socket-server-metrics, and the data directories."""
    yield gauges(
        "kafka_server_socket_server_metrics_connection_count",
        "Connections",
        ("listener", "networkProcessor"),
        (((listener, "0"), count) for listener, count in at.connections.items()),
    )
    yield from _authentications(at)
    offline = at.offline_directories
    yield gauge(
        "kafka_log_logmanager_offlinelogdirectorycount", "Data directories that have failed", sum(offline.values())
    )
    yield gauges(
        "kafka_log_logmanager_logdirectoryoffline",
        "1 where the directory has failed",
        ("logDirectory",),
        (((directory,), float(failed)) for directory, failed in offline.items()),
    )
    yield gauges(
        "odradek_log_quarantined_bytes",
        "Bytes that recoveries have moved from logs to the quarantine of the directory",
        ("logDirectory",),
        (((directory,), size) for directory, size in at.quarantined_bytes.items()),
    )
    yield gauge("kafka_server_kafkaserver_brokerstate", "3 while it serves", RUNNING)
    yield gauges("odradek_broker_info", "Always 1", ("broker_id",), [((str(at.broker_id),), 1.0)])


def cleaner(at: MetricsSnapshot) -> Iterator[Metric]:
    """Kafka's LogCleaner and LogCleanerManager."""
    metrics = at.cleaner
    manager, own = "kafka_log_logcleanermanager_", "kafka_log_logcleaner_"
    labels = ("logDirectory",)
    yield gauges(
        manager + "uncleanable_partitions_count",
        "Partitions that are not compacted any more because that failed",
        labels,
        (((directory,), len(partitions)) for directory, partitions in metrics.uncleanable.items()),
    )
    yield gauges(
        manager + "uncleanable_bytes",
        "Bytes of their logs",
        labels,
        (((directory,), sum(partitions.values())) for directory, partitions in metrics.uncleanable.items()),
    )
    for name, text, value in (
        (manager + "max_dirty_percent", "Largest share of dirty bytes of a log", metrics.max_dirty_percent),
        (own + "max_compaction_delay_secs", "Seconds beyond max.compaction.lag.ms", metrics.max_compaction_delay_secs),
        (own + "cleaner_recopy_percent", "Bytes kept, of those read", metrics.cleaner_recopy_percent),
        (own + "max_buffer_utilization_percent", "Fill of the map of keys", metrics.max_buffer_utilization_percent),
        (own + "max_clean_time_secs", "Longest of the last passes", metrics.max_clean_time_secs),
    ):
        yield gauge(name, text, value)
    yield CounterMetricFamily("odradek_log_cleaner_passes", "Passes over a log that were put in place", metrics.passes)


QUOTA_VALUES: Final = {
    "produce": ("byte_rate", "Bytes a second of Produce requests"),
    "fetch": ("byte_rate", "Bytes a second of Fetch responses"),
    "request": ("request_time", "Percent of the event loop's time"),
    "controllermutation": ("tokens", "Partitions that may be created or deleted now"),
}


def quotas(at: MetricsSnapshot) -> Iterator[Metric]:
    """Kafka's ClientQuotaManager and ReplicationQuotaManager: clients that have a quota, and throttled replicas."""
    labels = ("user", "client_id")
    for quota_type, (_, rows) in at.client_quotas.items():
        name, text = QUOTA_VALUES[quota_type]
        prefix = f"kafka_server_{quota_type}_"
        yield gauges(prefix + name, text, labels, ((row.tags, row.value) for row in rows))
        throttle_times = ((row.tags, row.throttle_ms) for row in rows)
        yield gauges(prefix + "throttle_time", "Average throttle time in milliseconds", labels, throttle_times)
    counts = [((quota_type,), float(count)) for quota_type, (count, _) in at.client_quotas.items()]
    yield counters(
        "odradek_quota_throttles",
        "Requests and connections that were throttled",
        ("quota",),
        [*counts, (("connection",), float(at.throttled_connections))],
    )
    for name, rate in at.replication_rates.items():
        yield gauge(f"kafka_server_{name}_byte_rate", "Bytes a second of throttled replicas", rate)


def event_loop(at: MetricsSnapshot) -> Iterator[Metric]:
    """What requests cost the event loop; Kafka has no loop."""
    row, below = at.loop, 0
    buckets = []
    for bound, count in zip((*map(str, BOUNDS_S), "+Inf"), row.stalls, strict=True):
        below += count
        buckets.append((bound, float(below)))
    yield HistogramMetricFamily(
        "odradek_event_loop_stall_seconds",
        "By how much timers were late, measured every 50 ms",
        buckets=buckets,
        sum_value=row.stalls_sum_s,
    )
    for name, text, value in (
        ("odradek_sliced_requests", "Requests that were handled in turns with the event loop", row.sliced),
        ("odradek_request_interruptions", "How often such a request was interrupted", row.interruptions),
        ("odradek_rejected_large_requests", "Requests whose decoded size was over the limit", row.rejected),
    ):
        yield CounterMetricFamily(name, text, value)
    yield gauge("odradek_held_bytes", "Bytes in memory for requests and responses of all connections", row.held_bytes)


class Page(Collector):
    """All families, from a new snapshot for each scrape."""

    def __init__(self, take_snapshot: Callable[[], MetricsSnapshot], loop: asyncio.AbstractEventLoop) -> None:
        """`take_snapshot` takes a snapshot and is called on `loop`."""
        self._take_snapshot = take_snapshot
        self._loop = loop
        self._before: MetricsSnapshot | None = None

    def collect(self) -> Iterator[Metric]:
        at = self._snapshot()
        for families in (
            topics,
            requests,
            replicas,
            partitions,
            controller,
            coordinators,
            connections,
            cleaner,
            quotas,
            event_loop,
        ):
            yield from families(at)
        yield from self._idleness(at)

    def _snapshot(self) -> MetricsSnapshot:
        """Raises TimeoutError where the loop is blocked: Prometheus then counts the broker as down."""
        taken: concurrent.futures.Future[MetricsSnapshot] = concurrent.futures.Future()

        def take() -> None:
            try:
                taken.set_result(self._take_snapshot())
            except Exception as error:
                taken.set_exception(error)

        self._loop.call_soon_threadsafe(take)
        return taken.result(DEADLINE_S)

    def _idleness(self, at: MetricsSnapshot) -> Iterator[Metric]:
        """One loop is both Kafka's network threads and its request handlers."""
        before, self._before = self._before, at
        idle = 1.0
        if before is not None and at.at_s > before.at_s:
            idle = max(0.0, 1 - (at.busy_s - before.busy_s) / (at.at_s - before.at_s))
        text = "Share of the time since the last visit in which the event loop had nothing to do"
        yield gauge("kafka_network_socketserver_networkprocessoravgidlepercent", text, idle)
        yield gauge("kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent", text, idle)


def serve_metrics(
    host: str, port: int, take_snapshot: Callable[[], MetricsSnapshot], loop: asyncio.AbstractEventLoop
) -> Callable[[], None]:
    """Start to serve the page; returns a function that stops it. Raises OSError where the address is in use."""
    registry = CollectorRegistry()
    for collector in (Page(take_snapshot, loop), PROCESS_COLLECTOR, PLATFORM_COLLECTOR, GC_COLLECTOR):
        registry.register(collector)
    server, _ = start_http_server(port, host, registry)

    def close() -> None:
        server.shutdown()
        server.server_close()

    return close
