"""Input of a task assignor: the tasks, the instances and the configuration of an application (KIP-924).

The classes have the names and the contents of org.apache.kafka.streams.processor.assignment. All are immutable.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from odradek.protocol.topic_partition import TopicPartition
from odradek.streams.assignment.process_id import ProcessId
from odradek.streams.errors import StreamsError
from odradek.streams.records import TaskId

if TYPE_CHECKING:
    from odradek.streams.running.locations import HostInfo

LATEST_OFFSET: Final = -2
"""The lag of a task that runs on the instance: it is not behind."""
UNKNOWN_OFFSET_SUM: Final = -3
"""The lag of state with an unknown offset, and of all state if no broker has returned the end offsets."""

NONE: Final = "none"
MIN_TRAFFIC: Final = "min_traffic"
BALANCE_SUBTOPOLOGY: Final = "balance_subtopology"
"""The values of rack.aware.assignment.strategy (KIP-925)."""

Racks = Callable[[], Mapping[TopicPartition, frozenset[str]]]
"""Requests the racks of the replicas of all partitions; a partition with unknown replicas has no entry."""


@dataclass(frozen=True, slots=True)
class AssignmentConfigs:
    """The properties of the application that concern the assignment. Lags are in records, times in ms.

    The costs are None where the properties are not set; each assignor has its own defaults.
    """

    acceptable_recovery_lag: int = 10_000
    max_warmup_replicas: int = 2
    num_standby_replicas: int = 0
    probing_rebalance_interval_ms: int = 600_000
    rack_aware_assignment_tags: tuple[str, ...] = ()
    rack_aware_traffic_cost: int | None = None
    rack_aware_non_overlap_cost: int | None = None
    rack_aware_assignment_strategy: str = NONE

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> AssignmentConfigs:
        """From the properties of an application."""
        return cls(
            config["acceptable.recovery.lag"],
            config["max.warmup.replicas"],
            config["num.standby.replicas"],
            config["probing.rebalance.interval.ms"],
            tuple(config["rack.aware.assignment.tags"]),
            config["rack.aware.assignment.traffic_cost"],
            config["rack.aware.assignment.non_overlap_cost"],
            config["rack.aware.assignment.strategy"],
        )


@dataclass(frozen=True, slots=True)
class TaskTopicPartition:
    """A partition that a task reads (`is_source`), or in which it logs its state (`is_changelog`), or both."""

    topic_partition: TopicPartition
    is_source: bool
    is_changelog: bool
    racks: Racks = field(default=dict, repr=False, compare=False)

    @property
    def rack_ids(self) -> frozenset[str] | None:
        """The racks of the brokers that have a replica; None where they are unknown.

        The first use, of any partition, requests the replicas of all partitions from the cluster.
        """
        return self.racks().get(self.topic_partition)


@dataclass(frozen=True, slots=True)
class TaskInfo:
    """A task: its state stores, and its partitions."""

    id: TaskId
    state_store_names: frozenset[str]
    topic_partitions: tuple[TaskTopicPartition, ...]

    @property
    def is_stateful(self) -> bool:
        """Whether it has a state store."""
        return bool(self.state_store_names)

    @property
    def is_logged(self) -> bool:
        """Whether it has a changelog: only such a task can have standbys."""
        return any(each.is_changelog for each in self.topic_partitions)


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaStreamsState:
    """An instance (a KafkaStreams client) before the assignment."""

    process_id: ProcessId
    num_processing_threads: int = 1
    client_tags: Mapping[str, str] = field(default_factory=dict)
    previous_active_tasks: frozenset[TaskId] = frozenset()
    previous_standby_tasks: frozenset[TaskId] = frozenset()
    task_ids_by_consumer: Mapping[str, frozenset[TaskId]] = field(default_factory=dict)
    """The previous tasks, active and standby, of each member of the group that belongs to the instance."""
    host_info: HostInfo | None = None
    """Its application.server."""
    rack_id: str | None = None
    """Its client.rack."""
    task_lags: Mapping[TaskId, int] | None = None
    """What `lag_for` returns for each task with a changelog; None where no lags were requested."""

    @property
    def consumer_client_ids(self) -> tuple[str, ...]:
        """The members of the group that belong to the instance, one for each thread, sorted."""
        return tuple(sorted(self.task_ids_by_consumer))

    @property
    def stateful_tasks_to_lag_sums(self) -> Mapping[TaskId, int]:
        """The lag of each task with a changelog. Raises StreamsError where no lags were requested."""
        if self.task_lags is None:
            raise StreamsError(
                f"the lags of process {self.process_id} were not requested: call kafka_streams_states with "
                "compute_task_lags=True"
            )
        return self.task_lags

    def lag_for(self, task: TaskId) -> int:
        """How many records the instance's state is behind, LATEST_OFFSET or UNKNOWN_OFFSET_SUM.

        Raises StreamsError for a task without a changelog, and where no lags were requested.
        """
        lag = self.stateful_tasks_to_lag_sums.get(task)
        if lag is None:
            raise StreamsError(f"task {task} has no lag: it has no changelog, or does not exist")
        return lag

    def prev_tasks_by_lag(self, consumer_client_id: str) -> list[TaskId]:
        """The previous tasks of a member that have a changelog, the least lag first. Raises StreamsError as above."""
        lags = self.stateful_tasks_to_lag_sums
        own = self.task_ids_by_consumer.get(consumer_client_id, frozenset())
        return sorted(own & lags.keys(), key=lambda task: (lags[task], task))


class ApplicationState:
    """The application before the assignment. Mappings are in the order of their keys."""

    assignment_configs: AssignmentConfigs
    all_tasks: Mapping[TaskId, TaskInfo]

    def __init__(
        self,
        assignment_configs: AssignmentConfigs,
        all_tasks: Iterable[TaskInfo],
        kafka_streams_states: Iterable[KafkaStreamsState],
    ) -> None:
        """The states have their lags."""
        self.assignment_configs = assignment_configs
        self.all_tasks = {each.id: each for each in sorted(all_tasks, key=lambda task: task.id)}
        self._states = {
            each.process_id: each for each in sorted(kafka_streams_states, key=lambda each: each.process_id)
        }

    def kafka_streams_states(self, compute_task_lags: bool) -> dict[ProcessId, KafkaStreamsState]:
        """The instances; without `compute_task_lags` they have no lags, as in Java."""
        if compute_task_lags:
            return dict(self._states)
        return {process: replace(state, task_lags=None) for process, state in self._states.items()}
