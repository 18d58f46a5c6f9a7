"""The cluster at a glance: brokers, controller, throughput, partitions in trouble, groups. Alerts are in `alerts`."""

from __future__ import annotations

from dataclasses import dataclass

from odradek.admin.quorum import MetadataQuorum
from odradek.admin.topics import NO_LEADER
from odradek.console.history import ClusterHistory
from odradek.console.sample import BrokerNode, ClusterSample


@dataclass(frozen=True, slots=True)
class BrokerRow:
    """A broker in a list. Bytes on disk are None before they are read."""

    node: BrokerNode
    is_controller: bool
    is_alive: bool
    leaders: int
    replicas: int
    out_of_sync: int
    """Replicas on it that are not in the ISR."""
    disk_bytes: int | None


@dataclass(frozen=True, slots=True)
class TopicRate:
    """A topic that is written to, in records a second."""

    topic: str
    records_per_s: float


@dataclass(frozen=True, slots=True)
class ClusterOverview:
    """The numbers of the first page."""

    cluster_id: str
    taken_s: float
    controller_id: int
    """As in the sample: NO_CONTROLLER, KRAFT, or a broker."""
    quorum: MetadataQuorum | None
    brokers: tuple[BrokerRow, ...]
    topics: int
    partitions: int
    offline: int
    under_replicated: int
    groups: int
    lag: int
    """Of all groups, in records."""
    records_per_s: float | None
    records_over_time: tuple[float, ...]
    busiest: tuple[TopicRate, ...]


def overview_of(history: ClusterHistory, busiest: int = 5) -> ClusterOverview | None:
    """The overview of the latest sample; None before the first one."""
    sample = history.sample
    if sample is None:
        return None
    return history.derived(f"overview {busiest}", lambda: _overview(history, sample, busiest))


def _overview(history: ClusterHistory, sample: ClusterSample, busiest: int) -> ClusterOverview:
    rates = [TopicRate(topic.name, history.rate_of(topic.name) or 0.0) for topic in sample.topics]
    busy = sorted((each for each in rates if each.records_per_s > 0), key=lambda each: -each.records_per_s)
    partitions = list(sample.partitions)
    return ClusterOverview(
        sample.cluster_id,
        sample.taken_s,
        sample.controller_id,
        sample.quorum,
        tuple(broker_rows(history, sample)),
        len(sample.topics),
        len(partitions),
        sum(each.leader == NO_LEADER for each in partitions),
        sum(len(each.isr) < len(each.replicas) for each in partitions),
        len(sample.groups),
        sum(each.lag or 0 for each in sample.groups.values()),
        history.records.last,
        tuple(history.records.values()),
        tuple(busy[:busiest]),
    )


def broker_rows(history: ClusterHistory, sample: ClusterSample) -> list[BrokerRow]:
    """Every broker that is alive, and every one that should have replicas and is not, by id."""
    return history.derived("brokers", lambda: _broker_rows(history, sample))


def _broker_rows(history: ClusterHistory, sample: ClusterSample) -> list[BrokerRow]:
    leaders: dict[int, int] = {}
    replicas: dict[int, int] = {}
    behind: dict[int, int] = {}
    for part in sample.partitions:
        leaders[part.leader] = leaders.get(part.leader, 0) + 1
        for broker in part.replicas:
            replicas[broker] = replicas.get(broker, 0) + 1
            if broker not in part.isr:
                behind[broker] = behind.get(broker, 0) + 1
    nodes = {each.broker_id: each for each in sample.brokers}
    return [
        BrokerRow(
            nodes.get(broker) or BrokerNode(broker, "", 0, None),
            broker == sample.controller_id,
            broker in nodes,
            leaders.get(broker, 0),
            replicas.get(broker, 0),
            behind.get(broker, 0),
            history.disk.by_broker.get(broker),
        )
        for broker in sorted(nodes.keys() | replicas.keys())
    ]
