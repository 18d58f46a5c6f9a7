"""Prometheus page of an application's metrics, with the names of the JMX exporter for Kafka Streams.

    with serve_metrics(streams, "127.0.0.1", 9404): ...

Beside it is the application's topology, at /topology.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from odradek.streams.metrics import Metrics, flat
from odradek.streams.page_server import serve_pages
from odradek.streams.topology_view.document import ApplicationDocument
from odradek.streams.topology_view.model import view_of

if TYPE_CHECKING:
    from odradek.streams.runtime import KafkaStreams


class StreamsCollector(Collector):
    """Collects the metrics at each scrape; for a Prometheus registry of the user's own."""

    def __init__(self, metrics: Callable[[], Metrics]) -> None:
        """`metrics` is a client's or a driver's method of this name."""
        self._metrics = metrics

    def collect(self) -> Iterator[Metric]:
        """One family for each name."""
        families: dict[str, Metric] = {}
        for name, labels, value in flat(self._metrics()):
            family = families.get(name)
            if family is None:
                family = families[name] = Metric(name, name, "gauge")
            family.add_sample(name, dict(labels), value)  # a store's label is named after its kind, so labels differ
        yield from families.values()

    def describe(self) -> list[Metric]:
        """Describes no metric in advance: names come and go with tasks."""
        return []


@contextmanager
def serve_metrics(streams: KafkaStreams, host: str, port: int) -> Iterator[int]:
    """Serve the page until the end of the block, in threads of its own. Yields the port; 0 selects a free one.

    Raises OSError where the address is not available.
    """
    registry = CollectorRegistry()
    registry.register(StreamsCollector(streams.metrics))
    document = ApplicationDocument(streams.config["application.id"], view_of(streams.topology)).text()
    with serve_pages(registry, lambda: document, host, port) as chosen:
        yield chosen
