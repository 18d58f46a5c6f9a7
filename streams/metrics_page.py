"""An application's metrics as a page for Prometheus, under the names that its JMX exporter gives to Kafka Streams'.

with serve_metrics(streams, "127.0.0.1", 9404): ...
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from odradek.streams.metrics import Metrics, flat

if TYPE_CHECKING:
    from odradek.streams.runtime import KafkaStreams


class StreamsCollector(Collector):
    """Asks for the metrics whenever the page is asked for; for a registry of the user's own."""

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
        """Nothing beforehand: names come and go with tasks."""
        return []


@contextmanager
def serve_metrics(streams: KafkaStreams, host: str, port: int) -> Iterator[int]:
    """Serve the page until the end of the block, by threads of its own. Gives the port; 0 takes a free one.

    Raises OSError where the address cannot be taken.
    """
    registry = CollectorRegistry()
    registry.register(StreamsCollector(streams.metrics))
    server, thread = start_http_server(port, host, registry)
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
