"""Metrics snapshot: copies a broker's numbers for the page of metrics in one step of the event loop.

A separate thread writes the page, and it may not read what the loop changes. So the loop copies numbers into a
`MetricsSnapshot`, without formatting any, and only when a client requests the page: without scrapes there is no cost.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol

from odradek.broker.controller.controller import Controller
from odradek.broker.controller.state.context import Context
from odradek.broker.group.group_metadata_manager import GroupMetadataManager
from odradek.broker.metrics.authentication_metrics import AuthenticationMetrics
from odradek.broker.metrics.broker_metrics import ApiMetrics, RequestMetrics, TopicMetrics
from odradek.broker.metrics.loop_stalls import LoopStalls
from odradek.broker.quota.client_quota_manager import QuotaRow
from odradek.broker.quota.connection_rate_quotas import ConnectionRateQuotas
from odradek.broker.quota.quota_managers import QuotaManagers
from odradek.broker.quota.replication_quota_manager import ReplicationQuotas
from odradek.broker.replication.fetcher import Fetchers
from odradek.broker.replication.log_cleaner import CleanerMetrics
from odradek.broker.replication.partition import Replica, Replicas
from odradek.broker.replication.state.fetch_session import FetchSessions
from odradek.broker.replication.state.partition import Role
from odradek.protocol.topic_partition import TopicPartition


class Listening(Protocol):
    """The listeners."""

    @property
    def held_bytes(self) -> int:
        """Bytes in memory for connections."""
        ...

    def connections(self) -> Mapping[str, int]:
        """How many connections each listener has."""
        ...

    def authentications(self) -> Mapping[str, AuthenticationMetrics]:
        """The authentications of each listener."""
        ...


class SnapshotSources(NamedTuple):
    """The parts of a broker that a snapshot reads."""

    broker_id: int
    replicas: Replicas
    apis: ApiMetrics
    cleaner: Callable[[], CleanerMetrics]
    controller: Controller
    groups: GroupMetadataManager
    sessions: FetchSessions
    fetchers: Fetchers
    listening: Listening
    offline_directories: Callable[[], Mapping[str, bool]]
    quarantined_bytes: Callable[[], Mapping[str, int]]
    client_quotas: QuotaManagers
    connection_quotas: ConnectionRateQuotas
    replication_quotas: ReplicationQuotas
    large_requests: LargeRequestMetrics
    stalls: LoopStalls


class LargeRequestMetrics(Protocol):
    """The requests that are handled in turns with the loop."""

    sliced: int
    rejected: int

    @property
    def interruptions(self) -> int:
        """How often a request was interrupted."""
        ...


class PartitionRow(NamedTuple):
    """A partition on this broker. `in_sync`, `least` and `lso_lag` (records) are set for a leader only, else None."""

    topic: str
    partition: int
    role: Role
    replicas: int
    in_sync: int | None
    least: int | None
    lso_lag: int | None
    size: int
    start_offset: int
    end_offset: int
    segments: int
    producers: int


class ApiRow(NamedTuple):
    """Requests of one API; durations are (total, local) in nanoseconds."""

    name: str
    requests: int
    versions: dict[int, int]
    errors: dict[int, int]
    durations: list[tuple[int, int]]


class ControllerRow(NamedTuple):
    """The controller's state, by the names of Kafka's KafkaController metrics; zeros on the other brokers."""

    active: int = 0
    brokers: int = 0
    topics: int = 0
    partitions: int = 0
    offline_partitions: int = 0
    preferred_replica_imbalance: int = 0
    topics_to_delete: int = 0
    replicas_to_delete: int = 0


class SessionsRow(NamedTuple):
    """The incremental fetch sessions (KIP-227)."""

    sessions: int
    partitions: int
    evictions: int


class LoopRow(NamedTuple):
    """The event loop: its stalls by bucket of BOUNDS_S, large requests, and bytes that connections hold."""

    stalls: tuple[int, ...]
    stalls_sum_s: float
    sliced: int
    interruptions: int
    rejected: int
    held_bytes: int


class MetricsSnapshot(NamedTuple):
    """The numbers of one moment. `busy_s` is the CPU time of the event loop's thread until `at_s`."""

    broker_id: int
    topics: dict[str, dict[str, int]]
    partitions: list[PartitionRow]
    apis: list[ApiRow]
    controller: ControllerRow
    groups: Mapping[str, int]
    group_offsets: int
    sessions: SessionsRow
    lags: list[tuple[str, int, int]]
    connections: Mapping[str, int]
    authentications: Mapping[str, AuthenticationMetrics]
    offline_directories: Mapping[str, bool]
    quarantined_bytes: Mapping[str, int]
    cleaner: CleanerMetrics
    client_quotas: Mapping[str, tuple[int, list[QuotaRow]]]
    throttled_connections: int
    replication_rates: Mapping[str, float]
    loop: LoopRow
    busy_s: float
    at_s: float


def take_snapshot(at: SnapshotSources) -> MetricsSnapshot:
    """Take a snapshot; called on the event loop."""
    states = at.groups.states()
    return MetricsSnapshot(
        broker_id=at.broker_id,
        topics={topic: _counted(metrics) for topic, metrics in at.replicas.metrics.items()},
        partitions=[_partition(replica) for replica in at.replicas],
        apis=[_api(row) for row in at.apis],
        controller=_controller(at.controller),
        groups=Counter(state for state, _ in states),
        group_offsets=sum(offsets for _, offsets in states),
        sessions=_sessions(at.sessions),
        lags=at.fetchers.lags(),
        connections=at.listening.connections(),
        authentications=at.listening.authentications(),
        offline_directories=at.offline_directories(),
        quarantined_bytes=at.quarantined_bytes(),
        cleaner=at.cleaner(),
        client_quotas=at.client_quotas.metrics(),
        throttled_connections=at.connection_quotas.throttles,
        replication_rates=at.replication_quotas.rates(),
        loop=_loop(at),
        busy_s=time.thread_time(),
        at_s=time.monotonic(),
    )


def _loop(at: SnapshotSources) -> LoopRow:
    stalls, large = at.stalls, at.large_requests
    return LoopRow(
        tuple(stalls.counts),
        stalls.sum_s,
        large.sliced,
        large.interruptions,
        large.rejected,
        at.listening.held_bytes,
    )


def _counted(metrics: TopicMetrics) -> dict[str, int]:
    return {name: getattr(metrics, name) for name in metrics.__slots__}


def _partition(replica: Replica) -> PartitionRow:
    machine, log = replica.machine, replica.log
    leads = machine.role is Role.LEADER
    return PartitionRow(
        replica.topic,
        replica.partition,
        machine.role,
        len(machine.replicas),
        len(machine.isr) if leads else None,
        machine.effective_min_isr if leads else None,
        max(0, machine.high_watermark - replica.last_stable_offset) if leads else None,
        log.size,
        log.start_offset,
        log.end_offset,
        len(log.segments),
        len(log.producers),
    )


def _api(metrics: RequestMetrics) -> ApiRow:
    versions = {version: count for version, count in enumerate(metrics.versions) if count}
    return ApiRow(metrics.name, metrics.count, versions, dict(metrics.errors), metrics.durations())


def _controller(controller: Controller) -> ControllerRow:
    active_controller = controller.active_controller
    return ControllerRow() if active_controller is None else _known(active_controller.machine.context)


def _known(context: Context) -> ControllerRow:
    partitions = list(context.partitions())
    deleting = [each for each in partitions if each[0] in context.deleting]
    serving = [each for each in partitions if each[0] not in context.deleting]
    return ControllerRow(
        active=1,
        brokers=len(context.brokers),
        topics=len(context.assignments),
        partitions=len(partitions),
        offline_partitions=sum(map(context.is_leaderless, serving)),
        preferred_replica_imbalance=sum(_is_imbalanced(context, each) for each in serving),
        topics_to_delete=len(context.deleting),
        replicas_to_delete=sum(len(replicas.replicas) for each in deleting if (replicas := context.replicas(each))),
    )


def _is_imbalanced(context: Context, partition: TopicPartition) -> bool:
    replicas, known = context.replicas(partition), context.states.get(partition)
    return bool(replicas and replicas.replicas and (known is None or known.state.leader != replicas.replicas[0]))


def _sessions(sessions: FetchSessions) -> SessionsRow:
    return SessionsRow(len(sessions), sum(len(each.partitions) for each in sessions), sessions.evictions)
