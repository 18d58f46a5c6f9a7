"""Measurements of a running application, from its metrics page: throughput and latency of nodes, sizes of stores, lag.

The page is that of `odradek streams run --metrics` or of `serve_metrics`, or one of the JMX exporter with its default
names for a Java application. The rates of a node are differences of its totals on two pages.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from prometheus_client.parser import text_string_to_metric_families

from odradek.streams.topology_view.model import NodeView, TopologyView

_NODE: Final = "kafka_streams_stream_processor_node_metrics_"
_CONSUMED: Final = "kafka_streams_stream_topic_metrics_records_consumed_total"
_STORE: Final = "kafka_streams_stream_state_metrics_"
_THREADS: Final = "kafka_streams_stream_metrics_alive_stream_threads"
_LAG: Final = "kafka_consumer_consumer_fetch_manager_metrics_records_lag"
_READ: Final = (_NODE, _CONSUMED, _STORE, _THREADS, _LAG)
_SIZES: Final = {
    "num_keys": "keys",
    "estimate_num_keys": "keys",
    "total_sst_files_size": "disk_bytes",
    "cur_size_all_mem_tables": "memtable_bytes",
}

Origin = tuple[str, str, str]
"""The labels process, thread_id and task_id of a sample."""


@dataclass(slots=True)
class NodeMeasurement:
    """One node in all tasks."""

    records: float = 0.0
    """Since the start of the tasks."""
    rate: float | None = None
    """Records a second; None on a first page."""
    latency_ns: float | None = None
    """The average time of one record in this node alone; None below the recording level DEBUG."""


@dataclass(slots=True)
class StoreMeasurement:
    """One store in all tasks; None is not measured."""

    tasks: int = 0
    keys: float | None = None
    is_estimate: bool = False
    disk_bytes: float | None = None
    memtable_bytes: float | None = None


@dataclass(slots=True)
class Measurements:
    """The measurements of one page, by the names of nodes and stores."""

    nodes: dict[str, NodeMeasurement] = field(default_factory=dict)
    stores: dict[str, StoreMeasurement] = field(default_factory=dict)
    lag: dict[str, dict[int, float]] = field(default_factory=dict)
    """Records behind the end offset, by topic as it is on the page (dots are underscores) and partition."""
    tasks: set[str] = field(default_factory=set)
    threads: float = 0.0
    """Stream threads that are alive."""
    detailed: bool = False
    """Whether the application records the metrics of all nodes, not of sources alone."""
    totals: dict[tuple[Origin, str], float] = field(default_factory=dict)
    """The records of each node in each task."""

    def lag_of(self, node: NodeView, view: TopologyView) -> float | None:
        """The lag of the topics that a source reads; None where there is no measurement."""
        found = [
            sum(lags.values())
            for topic in (node.topics if node.kind == "source" else ())
            for name, lags in self.lag.items()
            if _is(name, topic, topic in view.internal_topics)
        ]
        return sum(found) if found else None

    def measure_rates(self, before: Measurements, seconds: float) -> None:
        """Set the rates of nodes to those since an earlier page, `seconds` ago: of tasks that both pages have."""
        grown: dict[str, float] = {}
        for (origin, node), total in self.totals.items():
            earlier = before.totals.get((origin, node))
            if earlier is not None and total >= earlier:
                grown[node] = grown.get(node, 0.0) + total - earlier
        for name, measured in self.nodes.items():
            if name in grown and seconds > 0:
                measured.rate = grown[name] / seconds

    def as_json(self) -> dict[str, Any]:
        """Dictionaries and lists of it."""
        return {
            "nodes": {name: asdict(each) for name, each in self.nodes.items()},
            "stores": {name: asdict(each) for name, each in self.stores.items()},
            "lag": self.lag,
            "tasks": sorted(self.tasks),
            "threads": self.threads,
            "detailed": self.detailed,
        }


def measurements_of(page: str) -> Measurements:
    """The measurements of a metrics page. Raises ValueError for a page without metrics of a stream application.

    Lines of other metrics are left out before the page is parsed: that of many tasks is long.
    """
    if "kafka_streams_" not in page:
        raise ValueError("the page has no metrics of a stream application")
    found = Measurements()
    consumed: dict[tuple[Origin, str], float] = {}
    latencies: dict[tuple[Origin, str], float] = {}
    wanted = "\n".join(line for line in page.splitlines() if line.startswith(_READ))
    for family in text_string_to_metric_families(wanted + "\n"):
        for sample in family.samples:
            name, labels, value = sample.name, sample.labels, sample.value
            origin = labels.get("process", ""), labels.get("thread_id", ""), labels.get("task_id", "")
            if "task_id" in labels:
                found.tasks.add(labels["task_id"])
            if name.startswith(_NODE):
                into = {"process_total": found.totals, "process_latency_avg": latencies}.get(name[len(_NODE) :])
                if into is not None:
                    into[origin, labels["processor_node_id"]] = value
            elif name == _CONSUMED:
                key = origin, labels["processor_node_id"]
                consumed[key] = consumed.get(key, 0.0) + value
            elif name.startswith(_STORE):
                _add_size(found, name[len(_STORE) :], labels, value)
            elif name == _THREADS:
                found.threads += value
            elif name == _LAG:
                partitions = found.lag.setdefault(labels["topic"], {})
                partition = int(labels["partition"])
                partitions[partition] = partitions.get(partition, 0.0) + value
    found.detailed = bool(latencies)
    found.totals = {**consumed, **found.totals}
    _add_nodes(found, latencies)
    return found


def _add_size(found: Measurements, name: str, labels: Mapping[str, str], value: float) -> None:
    size = _SIZES.get(name)
    store = next((text for label, text in labels.items() if label.endswith("_state_id")), None)
    if size is None or store is None:
        return
    measured = found.stores.setdefault(store, StoreMeasurement())
    setattr(measured, size, (getattr(measured, size) or 0.0) + value)
    if size == "keys":
        measured.tasks += 1
        measured.is_estimate = measured.is_estimate or name != "num_keys"


def _add_nodes(found: Measurements, latencies: Mapping[tuple[Origin, str], float]) -> None:
    spent: dict[str, float] = {}
    for (origin, node), total in found.totals.items():
        found.nodes.setdefault(node, NodeMeasurement()).records += total
        latency = latencies.get((origin, node), math.nan)
        if not math.isnan(latency):
            spent[node] = spent.get(node, 0.0) + latency * total
    for node, nanoseconds in spent.items():
        measured = found.nodes[node]
        measured.latency_ns = nanoseconds / measured.records if measured.records else None


def _is(label: str, topic: str, is_internal: bool) -> bool:
    """Whether a label of the page is that of a topic; an internal one has the application.id in front."""
    text = topic.replace(".", "_")
    return label.endswith(f"-{text}") if is_internal else label == text
