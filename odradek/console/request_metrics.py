"""What a broker's metrics page adds: request latencies, bytes in and out, how busy the event loop is.

The names are those of Odradek's page and of Apache Kafka's through Prometheus' JMX exporter (docs/metrics.md). Lines of
other metrics are left out before the page is parsed: that of a broker with many partitions is long.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from prometheus_client.parser import text_string_to_metric_families

_TIME: Final = "kafka_network_requestmetrics_totaltimems"
_COUNT: Final = "kafka_network_requestmetrics_totaltimems_count"
_IDLE: Final = "kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent"
_BYTES_IN: Final = "kafka_server_brokertopicmetrics_bytesin_total"
_BYTES_OUT: Final = "kafka_server_brokertopicmetrics_bytesout_total"
_IDENTITIES: Final[Mapping[str, str]] = {"odradek_broker_info": "broker_id", "kafka_server_app_info": "id"}
"""The label with the id of the broker, by the beginning of a name: Odradek's, and Kafka's AppInfoParser."""
_READ: Final = (_TIME, _IDLE, _BYTES_IN, _BYTES_OUT, *_IDENTITIES)
_MEDIAN: Final = 0.5
_SLOW: Final = 0.99


@dataclass(slots=True)
class RequestLatency:
    """From arrival to answer of one kind of request, in milliseconds; None where the page does not have it."""

    request: str
    count: int = 0
    p50_ms: float | None = None
    p99_ms: float | None = None


@dataclass(slots=True)
class BrokerMetrics:
    """The numbers of one page. Bytes count from the start of the broker."""

    requests: dict[str, RequestLatency] = field(default_factory=dict)
    bytes_in: float | None = None
    bytes_out: float | None = None
    idle_share: float | None = None
    """From 0 to 1."""
    broker_id: int | None = None
    """The broker that the page names; None where it names none."""


def broker_metrics(page: str) -> BrokerMetrics:
    """The numbers of a page. Raises ValueError for a line of them that is no metric."""
    found = BrokerMetrics()
    wanted = "\n".join(line for line in page.splitlines() if line.startswith(_READ))
    for family in text_string_to_metric_families(wanted + "\n"):
        for sample in family.samples:
            name, labels, value = sample.name, sample.labels, sample.value
            if name.startswith(_TIME) and "request" in labels:
                _add_latency(found, name, labels, value)
            elif name.startswith(tuple(_IDENTITIES)):
                found.broker_id = found.broker_id if found.broker_id is not None else _identity(name, labels)
            elif name == _IDLE:
                found.idle_share = value
            elif name == _BYTES_IN and "topic" not in labels:
                found.bytes_in = value
            elif name == _BYTES_OUT and "topic" not in labels:
                found.bytes_out = value
    return found


def _identity(name: str, labels: Mapping[str, str]) -> int | None:
    label = next(label for beginning, label in _IDENTITIES.items() if name.startswith(beginning))
    text = labels.get(label, "")
    return int(text) if text.isascii() and text.isdigit() else None


def _add_latency(found: BrokerMetrics, name: str, labels: dict[str, str], value: float) -> None:
    latency = found.requests.setdefault(labels["request"], RequestLatency(labels["request"]))
    if name == _COUNT:
        latency.count = int(value)
        return
    try:
        quantile = float(labels.get("quantile", "nan"))
    except ValueError:
        return
    if quantile == _MEDIAN:
        latency.p50_ms = value
    elif quantile == _SLOW:
        latency.p99_ms = value
