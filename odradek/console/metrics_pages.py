"""The metrics pages of brokers, by broker: a page names its broker, or is at the address of one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from odradek.console.request_metrics import BrokerMetrics, RequestLatency
from odradek.console.sample import BrokerNode

_LOOPBACK: Final = frozenset({"127.0.0.1", "::1", "localhost"})


class MetricsPage(NamedTuple):
    """The metrics page of a broker."""

    broker_id: int | None
    """None where neither the page nor its address names one."""
    address: str
    metrics: BrokerMetrics

    @property
    def title(self) -> str:
        """The broker, or the address of a page of which no broker is known."""
        return self.address if self.broker_id is None else f"Broker {self.broker_id}"

    def busiest(self, most: int) -> list[RequestLatency]:
        """The kinds of requests that the broker answered most often."""
        return sorted(self.metrics.requests.values(), key=lambda each: -each.count)[:most]


def metrics_pages(pages: Mapping[str, BrokerMetrics], brokers: Iterable[BrokerNode]) -> list[MetricsPage]:
    """The pages, by broker. A page that names no broker is that of the only broker on its host."""
    hosts: dict[str, list[int]] = {}
    for node in brokers:
        hosts.setdefault(_host(node.host), []).append(node.broker_id)
    found = []
    for address, page in pages.items():
        alone = hosts.get(_host(urlsplit(address).hostname or ""), [])
        broker_id = page.broker_id if page.broker_id is not None else alone[0] if len(alone) == 1 else None
        found.append(MetricsPage(broker_id, address, page))
    return sorted(found, key=lambda each: (each.broker_id is None, each.broker_id or 0, each.address))


def _host(name: str) -> str:
    return "localhost" if name.lower() in _LOOPBACK else name.lower()
