"""Metadata cache: the brokers and topics that Metadata, DescribeCluster and FindCoordinator return (Kafka:
MetadataCache).

It holds what the cluster looks like to clients: the live brokers, the topics with their ids, and for each partition
its leader, epoch and replicas. The controller replaces entries; handlers only read. The cache is a copy: the metadata
store is authoritative.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from odradek.protocol.errors import ErrorCode

NO_LEADER = -1


class ListenerAddress(NamedTuple):
    """The address of one listener of a broker."""

    listener: str
    host: str
    port: int


class BrokerMetadata(NamedTuple):
    """A live broker."""

    broker_id: int
    endpoints: tuple[ListenerAddress, ...]
    rack: str | None = None

    def endpoint(self, listener: str) -> ListenerAddress | None:
        """The endpoint of that listener, None when the broker does not have it."""
        for endpoint in self.endpoints:
            if endpoint.listener == listener:
                return endpoint
        return None


@dataclass(frozen=True, slots=True)
class PartitionMetadata:
    """One partition as the controller last announced it."""

    index: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline: tuple[int, ...] = ()


class TopicMetadata(NamedTuple):
    """One topic; `topic_id` is 16 bytes, partitions are in the order of their index."""

    name: str
    topic_id: bytes
    internal: bool
    partitions: tuple[PartitionMetadata, ...]


_Live = tuple[
    dict[int, "BrokerMetadata"], "BrokerMetadata | None", tuple[tuple["BrokerMetadata", "ListenerAddress"], ...]
]
"""What the live brokers of a listener were found in, and these."""


class MetadataCache:
    """The brokers and topics of the last UpdateMetadata requests."""

    __slots__ = (
        "_by_id",
        "_live",
        "_topic_watchers",
        "_watchers",
        "brokers",
        "cluster_id",
        "controller_id",
        "is_initialized",
        "own",
        "topics",
    )

    def __init__(self, cluster_id: str, own: BrokerMetadata | None = None) -> None:
        self.cluster_id = cluster_id
        self.controller_id = -1
        self.brokers: dict[int, BrokerMetadata] = {}
        self.topics: dict[str, TopicMetadata] = {}
        self.is_initialized = False
        """Whether a controller has sent the state of the cluster since this broker started."""
        self.own = own
        """This broker, for responses before a controller has sent the live brokers. A client that receives an empty
        list of brokers may drop those that it has, and then has no broker left to connect to (librdkafka)."""
        self._by_id: dict[bytes, str] = {}
        self._live: dict[str, _Live] = {}
        self._watchers: dict[Callable[[], None], None] = {}
        self._topic_watchers: list[Callable[[str], None]] = []

    def watch(self, watcher: Callable[[], None]) -> None:
        """Call `watcher` whenever topics or this broker's role in them have changed, until `unwatch`."""
        self._watchers[watcher] = None

    def watch_topics(self, watcher: Callable[[str], None]) -> None:
        """Call `watcher` with the name of every topic whose metadata is replaced or removed, from now on."""
        self._topic_watchers.append(watcher)

    def unwatch(self, watcher: Callable[[], None]) -> None:
        """Stop calling `watcher`."""
        self._watchers.pop(watcher, None)

    def __iter__(self) -> Iterator[TopicMetadata]:
        return iter(self.topics.values())

    def put_topics(self, topics: Iterable[TopicMetadata]) -> None:
        """Add or replace topics. The first call sets all topics of the cluster. Its watchers are notified at the end;
        each topic counts from its turn on.
        """
        for topic in topics:
            known = self.topics.get(topic.name)
            if known is not None and known.topic_id != topic.topic_id:
                self._by_id.pop(known.topic_id, None)
            self.topics[topic.name] = topic
            self._by_id[topic.topic_id] = topic.name
            if known is not None:
                self._replaced(topic.name)
        self.is_initialized = True
        self._changed()

    def partition_states_changed(self) -> None:
        """Notify the watchers after this broker became leader or follower of partitions."""
        self._changed()

    def _changed(self) -> None:
        for watcher in list(self._watchers):
            watcher()

    def _replaced(self, name: str) -> None:
        for watcher in self._topic_watchers:
            watcher(name)

    def remove_topic(self, name: str) -> None:
        """Remove a topic that has been deleted."""
        topic = self.topics.pop(name, None)
        if topic is not None:
            self._by_id.pop(topic.topic_id, None)
            self._replaced(name)
            self._changed()

    def leader(self, topic: str, partition: int) -> tuple[int, int] | None:
        """The leader of a partition and its epoch; None where the cache does not have the partition."""
        known = self.topics.get(topic)
        if known is None:
            return None
        found = _partition(known, partition)
        return (found.leader, found.leader_epoch) if found is not None else None

    def has(self, topic: str | None, partition: int) -> bool:
        """Whether the cluster has this partition, on any broker."""
        known = self.topics.get(topic) if topic is not None else None
        return known is not None and _partition(known, partition) is not None

    def error_without_replica(self, topic: str | None, partition: int) -> ErrorCode:
        """The error that a broker without a replica of a partition returns (Kafka: ReplicaManager.getPartitionOrError).

        For a partition that other brokers have it is NOT_LEADER_OR_FOLLOWER, which makes a client look for the leader.
        """
        exists = self.has(topic, partition)
        return ErrorCode.NOT_LEADER_OR_FOLLOWER if exists else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def nodes(self, listener: str, ids: Container[int]) -> Iterator[tuple[BrokerMetadata, ListenerAddress]]:
        """Those of these brokers that have the listener, with its endpoint."""
        return ((broker, endpoint) for broker, endpoint in self.live_brokers(listener) if broker.broker_id in ids)

    def name_of(self, topic_id: bytes) -> str | None:
        """The name of the topic with this id (16 bytes)."""
        return self._by_id.get(topic_id)

    def id_of(self, name: str) -> bytes:
        """The id of a topic, zeros when the cache does not have the topic."""
        topic = self.topics.get(name)
        return topic.topic_id if topic is not None else bytes(16)

    def live_brokers(self, listener: str) -> tuple[tuple[BrokerMetadata, ListenerAddress], ...]:
        """The brokers that have a listener, by id, with its endpoint; this broker alone before UpdateMetadata. The
        tuple is the same object until the brokers change.
        """
        known = self._live.get(listener)
        if known is not None and known[0] is self.brokers and known[1] is self.own:
            return known[2]
        own = {} if self.own is None else {self.own.broker_id: self.own}
        found = ((broker, broker.endpoint(listener)) for _, broker in sorted((self.brokers or own).items()))
        live = tuple((broker, endpoint) for broker, endpoint in found if endpoint is not None)
        self._live[listener] = self.brokers, self.own, live
        return live


def _partition(topic: TopicMetadata, index: int) -> PartitionMetadata | None:
    """The partition with this index, found at its place: a request may name each of thousands of partitions."""
    partitions = topic.partitions
    if 0 <= index < len(partitions) and partitions[index].index == index:
        return partitions[index]
    if partitions and partitions[-1].index == len(partitions) - 1:
        return None  # they are in order and complete
    return next((each for each in partitions if each.index == index), None)
