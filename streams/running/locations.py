"""Locations of keys: the instance that has a key, a partition or a store (Kafka: StreamsMetadataState).

With each assignment the leader of the group sends every member the partitions of all instances that have an endpoint
(`application.server`). The partition of a key is that of its store's source topics, by the hash that producers use, or
by the partitioner that writes the topic (KIP-67, KIP-535).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from odradek.protocol.topic_partition import TopicPartition
from odradek.streams.errors import StreamsError
from odradek.streams.group.subscription_info import HostPartitions, Hosts, Partitions
from odradek.streams.java_names import JavaNames
from odradek.streams.murmur2 import partition_of
from odradek.streams.topology import Partitioner, ProcessorNode, SourceNode, Topology

if TYPE_CHECKING:
    from odradek.streams.running.task_state import TaskState

Serializer = Callable[[Any], bytes]


class HostInfo(NamedTuple):
    """The endpoint of an instance, from its application.server."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


UNKNOWN_HOST: Final = HostInfo("unknown", -1)
NO_PARTITION: Final = -1


@dataclass(frozen=True, slots=True)
class KeyQueryMetadata(JavaNames):
    """The instances to query for a key."""

    active_host: HostInfo
    standby_hosts: frozenset[HostInfo]
    partition: int


NOT_AVAILABLE: Final = KeyQueryMetadata(HostInfo("unavailable", -1), frozenset(), NO_PARTITION)
"""The value before the first rebalance."""


class StreamsMetadata(NamedTuple):
    """The stores and partitions of one instance."""

    host_info: HostInfo
    state_store_names: frozenset[str]
    topic_partitions: frozenset[TopicPartition]
    standby_state_store_names: frozenset[str]
    standby_topic_partitions: frozenset[TopicPartition]


class LagInfo(NamedTuple):
    """The offset lag of a store behind its changelog."""

    current_offset_position: int
    end_offset_position: int

    @property
    def offset_lag(self) -> int:
        """Records left, at least 0."""
        return max(0, self.end_offset_position - self.current_offset_position)


class Locations:
    """Answers from the contents of the last assignment. Any thread may call it."""

    def __init__(
        self, topology: Topology, application_id: str, server: str, partitions_of: Callable[[str], int]
    ) -> None:
        """`server` is this instance's application.server, or empty; `partitions_of` requests the partition count of a
        topic.
        """
        self._topology = topology
        self._application_id = application_id
        self._here = host_of(server) if server else UNKNOWN_HOST
        self._partitions_of = partitions_of
        self._lock = threading.Lock()
        self._hosts: Hosts | None = None
        self._counts: dict[str, int] = {}
        self._sources: dict[str, tuple[str, ...]] = {}

    def learn(self, hosts: Hosts) -> None:
        """Store the locations of a new assignment."""
        known = {topic for each in hosts.values() for role in (each.active, each.standby) for topic in role}
        sources = sources_by_store(self._topology, self._application_id, tuple(sorted(known)))
        with self._lock:
            self._hosts = hosts
            self._sources = sources
            self._counts.clear()

    def everywhere(self) -> list[StreamsMetadata]:
        """All instances with an endpoint, in the order of their addresses."""
        with self._lock:
            hosts, sources = self._hosts or {}, self._sources
        return [self._metadata(endpoint, hosts[endpoint], sources) for endpoint in sorted(hosts)]

    def of_store(self, store: str) -> list[StreamsMetadata]:
        """The instances that have a partition of a store, also as standbys; all instances for a global store."""
        if store in self._topology.global_stores:
            return self.everywhere()
        return [
            each
            for each in self.everywhere()
            if store in each.state_store_names or store in each.standby_state_store_names
        ]

    def of_key(
        self, store: str, key: Any, serializer: Serializer, partitioner: Partitioner | None = None
    ) -> KeyQueryMetadata | None:
        """The location of a key of a store; None for an unknown store. NOT_AVAILABLE before the first rebalance.

        `partitioner` is the partitioner that writes the store's source topics, if it is not the default. Raises
        StreamsError where the cluster does not return the partition count of a topic, or the partitioner returns
        several partitions.
        """
        with self._lock:
            if self._hosts is None:
                return NOT_AVAILABLE
            sources = self._sources.get(store)
        if store in self._topology.global_stores:
            return KeyQueryMetadata(self._here_or_anywhere(), frozenset(), NO_PARTITION)
        if not sources:
            return None
        widest = max(sources, key=self._count)
        partition = self._partition(widest, self._count(widest), key, serializer, partitioner)
        wanted = {(topic, partition) for topic in sources}
        active, standbys = UNKNOWN_HOST, set()
        for each in self.everywhere():
            if store in each.state_store_names and wanted & each.topic_partitions:
                active = each.host_info
            if store in each.standby_state_store_names and wanted & each.standby_topic_partitions:
                standbys.add(each.host_info)
        return KeyQueryMetadata(active, frozenset(standbys), partition)

    # ---- internals

    def _here_or_anywhere(self) -> HostInfo:
        if self._here is not UNKNOWN_HOST:
            return self._here
        return next((each.host_info for each in self.everywhere()), UNKNOWN_HOST)

    def _count(self, topic: str) -> int:
        with self._lock:
            known = self._counts.get(topic)
        if known is None:
            known = self._partitions_of(topic)
            with self._lock:
                self._counts[topic] = known
        return known

    @staticmethod
    def _partition(topic: str, count: int, key: Any, serializer: Serializer, partitioner: Partitioner | None) -> int:
        chosen = None if partitioner is None else partitioner(topic, key, None, count)
        if chosen is None:
            return partition_of(serializer(key), count)
        if isinstance(chosen, int):
            return chosen
        several = sorted(set(chosen))
        if len(several) != 1:
            raise StreamsError(f"a key of {topic} has one partition, but the partitioner returned {several}")
        return several[0]

    def _metadata(self, endpoint: str, has: HostPartitions, sources: Mapping[str, tuple[str, ...]]) -> StreamsMetadata:
        everywhere = frozenset(self._topology.global_stores)
        return StreamsMetadata(
            host_of(endpoint),
            _stores_of(sources, has.active) | everywhere,
            _flat(has.active),
            _stores_of(sources, has.standby),
            _flat(has.standby),
        )


def host_of(endpoint: str) -> HostInfo:
    """host:port as a HostInfo."""
    host, _, port = endpoint.rpartition(":")
    return HostInfo(host, int(port))


def sources_by_store(topology: Topology, application_id: str, topics: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """The topics whose partitions divide each store: those upstream of the node that the store was first connected to.

    A table's store has the partitions of its own topic, independent of later joins. `topics` are the topics of the
    cluster that sources with a pattern may match.
    """
    found: dict[str, tuple[str, ...]] = {}
    for node in topology.nodes.values():
        if isinstance(node, ProcessorNode) and node.name not in topology.global_nodes:
            for store in node.stores:
                if store not in found:
                    found[store] = tuple(dict.fromkeys(_upstream(topology, node, application_id, topics)))
    return found


def _upstream(topology: Topology, node: ProcessorNode, application_id: str, topics: Sequence[str]) -> list[str]:
    found: list[str] = []
    seen = {node.name}
    waiting = list(node.parents)
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        above = topology.nodes[name]
        if isinstance(above, SourceNode):
            found.extend(topology.source_of(above, application_id, tuple(topics)))
        elif isinstance(above, ProcessorNode):
            waiting.extend(above.parents)
    return found


def _stores_of(sources: Mapping[str, tuple[str, ...]], has: Partitions) -> frozenset[str]:
    return frozenset(store for store, topics in sources.items() if any(has.get(topic) for topic in topics))


def _flat(partitions: Partitions) -> frozenset[TopicPartition]:
    return frozenset((topic, number) for topic, numbers in partitions.items() for number in numbers)


def local_lags(
    states: Iterable[tuple[TaskState, bool]], ends: Callable[[set[TopicPartition]], Mapping[TopicPartition, int]]
) -> dict[str, dict[int, LagInfo]]:
    """The lags of this instance's stores, by store and partition (KafkaStreams.allLocalStorePartitionLags).

    `states` are the stores of tasks, and whether each task runs: a running task has no lag. `ends` fetches the end
    offsets of changelogs; it raises StreamsError.
    """
    found = [
        (name, place, None if runs else state.positions.get(place, -1) + 1)
        for state, runs in states
        for name, place in state.changelogs.items()
    ]
    end_of = ends({place for _, place, _ in found})
    lags: dict[str, dict[int, LagInfo]] = {}
    for name, place, position in found:
        end = end_of.get(place, 0)
        lags.setdefault(name, {})[place[1]] = LagInfo(end if position is None else position, end)
    return lags
