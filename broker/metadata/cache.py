"""The snapshot that Metadata, DescribeCluster and FindCoordinator answer from.

It holds what the cluster looks like to clients: the live brokers, the topics with their ids, and for each partition
its leader, epoch and replicas. The controller replaces entries; handlers only read. Nothing here is authoritative:
the registry is.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from odradek.protocol.errors import ErrorCode

NO_LEADER = -1


class Endpoint(NamedTuple):
    """Where one listener of a broker is reached."""

    listener: str
    host: str
    port: int


class BrokerMetadata(NamedTuple):
    """A live broker."""

    broker_id: int
    endpoints: tuple[Endpoint, ...]
    rack: str | None = None

    def endpoint(self, listener: str) -> Endpoint | None:
        """The endpoint of that listener, None when the broker does not have it."""
        return next((endpoint for endpoint in self.endpoints if endpoint.listener == listener), None)


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
    """One topic; `topic_id` is 16 bytes, partitions stand in the order of their index."""

    name: str
    topic_id: bytes
    internal: bool
    partitions: tuple[PartitionMetadata, ...]


class MetadataCache:
    """The brokers and topics as this broker knows them."""

    __slots__ = (
        "_by_id",
        "_topic_watchers",
        "_watchers",
        "brokers",
        "cluster_id",
        "controller_id",
        "is_initialized",
        "own",
        "topics",
    )

    def __init__(self, cluster_id: str) -> None:
        self.cluster_id = cluster_id
        self.controller_id = -1
        self.brokers: dict[int, BrokerMetadata] = {}
        self.topics: dict[str, TopicMetadata] = {}
        self.is_initialized = False
        """Whether a controller has said what there is, since this broker has started."""
        self.own: BrokerMetadata | None = None
        """This broker, for those who ask before a controller has said who lives. A client that hears of no broker at
        all may drop those that it knows, and then has nobody left to ask (librdkafka)."""
        self._by_id: dict[bytes, str] = {}
        self._watchers: dict[Callable[[], None], None] = {}
        self._topic_watchers: list[Callable[[str], None]] = []

    def watch(self, watcher: Callable[[], None]) -> None:
        """Call `watcher` whenever topics or this broker's part in them have changed, until `unwatch`."""
        self._watchers[watcher] = None

    def watch_topics(self, watcher: Callable[[str], None]) -> None:
        """Call `watcher` with the name of every topic whose view is replaced or gone, from now on."""
        self._topic_watchers.append(watcher)

    def unwatch(self, watcher: Callable[[], None]) -> None:
        """Call it no more."""
        self._watchers.pop(watcher, None)

    def __iter__(self) -> Iterator[TopicMetadata]:
        return iter(self.topics.values())

    def put_topics(self, topics: Iterable[TopicMetadata]) -> None:
        """Add topics, or replace them by what they are now. The first time these are all that there are."""
        self.is_initialized = True
        for topic in topics:
            known = self.topics.get(topic.name)
            if known is not None and known.topic_id != topic.topic_id:
                self._by_id.pop(known.topic_id, None)
            self.topics[topic.name] = topic
            self._by_id[topic.topic_id] = topic.name
            if known is not None:
                self._replaced(topic.name)
        self._changed()

    def partition_states_changed(self) -> None:
        """This broker leads or follows as it was told: whoever waits for that looks again."""
        self._changed()

    def _changed(self) -> None:
        for watcher in list(self._watchers):
            watcher()

    def _replaced(self, name: str) -> None:
        for watcher in self._topic_watchers:
            watcher(name)

    def remove_topic(self, name: str) -> None:
        """The topic has been deleted."""
        topic = self.topics.pop(name, None)
        if topic is not None:
            self._by_id.pop(topic.topic_id, None)
            self._replaced(name)
            self._changed()

    def leader(self, topic: str, partition: int) -> tuple[int, int] | None:
        """Who leads a partition, and in which epoch; None where it is not known."""
        known = self.topics.get(topic)
        if known is None:
            return None
        found = next((each for each in known.partitions if each.index == partition), None)
        return (found.leader, found.leader_epoch) if found is not None else None

    def has(self, topic: str | None, partition: int) -> bool:
        """Whether the cluster has this partition, on whatever broker."""
        known = self.topics.get(topic) if topic is not None else None
        return known is not None and any(each.index == partition for each in known.partitions)

    def error_without_replica(self, topic: str | None, partition: int) -> ErrorCode:
        """What a broker without a replica of a partition answers (Kafka: ReplicaManager.getPartitionOrError).

        For a partition that other brokers have it is NOT_LEADER_OR_FOLLOWER, which makes a client look for the leader.
        """
        exists = self.has(topic, partition)
        return ErrorCode.NOT_LEADER_OR_FOLLOWER if exists else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def nodes(self, listener: str, ids: Container[int]) -> Iterator[tuple[BrokerMetadata, Endpoint]]:
        """Those of these brokers that can be reached through a listener, and where."""
        return ((broker, endpoint) for broker, endpoint in self.live_brokers(listener) if broker.broker_id in ids)

    def name_of(self, topic_id: bytes) -> str | None:
        """The name of the topic with this id (16 bytes)."""
        return self._by_id.get(topic_id)

    def id_of(self, name: str) -> bytes:
        """The id of a topic, zeros when it is not known."""
        topic = self.topics.get(name)
        return topic.topic_id if topic is not None else bytes(16)

    def live_brokers(self, listener: str) -> list[tuple[BrokerMetadata, Endpoint]]:
        """The brokers that can be reached through a listener, by id, with where; this one until others are known."""
        own = {} if self.own is None else {self.own.broker_id: self.own}
        found = ((broker, broker.endpoint(listener)) for _, broker in sorted((self.brokers or own).items()))
        return [(broker, endpoint) for broker, endpoint in found if endpoint is not None]
