"""The broker's figures as a page for Prometheus (`odradek broker --metrics HOST:PORT`).

Names are those that Prometheus' JMX exporter gives to Kafka's own metrics, so what watches a Kafka broker can watch
this one. The page is served by a thread of its own, which only ever reads immutable snapshots that the event loop has
put into place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from odradek.broker.log_cleaner import CleanerFigures


class CleanerMetrics(Collector):
    """What the log cleaner says of itself (Kafka's LogCleaner and LogCleanerManager)."""

    def __init__(self, figures: Callable[[], CleanerFigures]) -> None:
        self._figures = figures

    def collect(self) -> Iterator[Metric]:
        figures = self._figures()
        manager, cleaner = "kafka_log_logcleanermanager_", "kafka_log_logcleaner_"
        count = GaugeMetricFamily(
            manager + "uncleanable_partitions_count",
            "Partitions that are not compacted any more because that failed",
            labels=["logdirectory"],
        )
        size = GaugeMetricFamily(manager + "uncleanable_bytes", "Bytes of their logs", labels=["logdirectory"])
        for directory, partitions in figures.uncleanable.items():
            count.add_metric([directory], len(partitions))
            size.add_metric([directory], sum(partitions.values()))
        yield count
        yield size
        for name, help_text, value in (
            (manager + "max_dirty_percent", "Largest share of dirty bytes of a log", figures.max_dirty_percent),
            (
                cleaner + "max_compaction_delay_secs",
                "By how many seconds max.compaction.lag.ms is exceeded at most",
                figures.max_compaction_delay_secs,
            ),
            (
                cleaner + "cleaner_recopy_percent",
                "Bytes that the last passes kept, of those that they read",
                figures.cleaner_recopy_percent,
            ),
            (
                cleaner + "max_buffer_utilization_percent",
                "How full the map of keys was at most in the last passes",
                figures.max_buffer_utilization_percent,
            ),
            (cleaner + "max_clean_time_secs", "Seconds of the longest of the last passes", figures.max_clean_time_secs),
        ):
            yield GaugeMetricFamily(name, help_text, value)
        yield CounterMetricFamily(
            "odradek_log_cleaner_passes", "Passes over a log that were put in place", figures.passes
        )


def serve_metrics(host: str, port: int, figures: Callable[[], CleanerFigures]) -> Callable[[], None]:
    """Begin to serve the page; returns what ends that. Raises OSError where the address is in use."""
    registry = CollectorRegistry()
    registry.register(CleanerMetrics(figures))
    server, _ = start_http_server(port, host, registry)

    def close() -> None:
        server.shutdown()
        server.server_close()

    return close
