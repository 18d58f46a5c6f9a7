"""Controller context: the controller's copy of brokers, topics, assignments and leaders (Kafka: ControllerContext).

The controller reads it from the metadata store when it is elected. Afterwards the controller updates it with its own
writes and with what it reads when watches fire.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from odradek.broker.registry.znodes import BrokerRegistration, PartitionState, ReplicaAssignment
from odradek.protocol.topic_partition import TopicPartition

NO_LEADER: Final = -1
LEADER_DURING_DELETE: Final = -2


class LiveBroker(NamedTuple):
    """A broker's registration and the transaction that made it."""

    registration: BrokerRegistration
    epoch: int


class KnownState(NamedTuple):
    """The state of a partition, the version of its node, which is the partition's epoch, and the transaction that wrote
    it.
    """

    state: PartitionState
    version: int
    mzxid: int


class Context:
    """The controller's copy of the cluster's state."""

    __slots__ = (
        "assignments",
        "brokers",
        "deleting",
        "epoch",
        "epoch_version",
        "leaving",
        "offline_replicas",
        "states",
        "topic_ids",
    )

    def __init__(self, epoch: int, epoch_version: int) -> None:
        """`epoch_version` is the version of /controller_epoch that belongs to `epoch`, the controller's."""
        self.epoch = epoch
        self.epoch_version = epoch_version
        self.brokers: dict[int, LiveBroker] = {}
        self.leaving: dict[int, None] = {}
        """Brokers in a controlled shutdown: they are live, and are not elected."""
        self.topic_ids: dict[str, bytes] = {}
        self.assignments: dict[str, dict[int, ReplicaAssignment]] = {}
        self.states: dict[TopicPartition, KnownState] = {}
        self.deleting: dict[str, None] = {}
        """Topics that are to be deleted."""
        self.offline_replicas: dict[int, dict[TopicPartition, None]] = {}
        """By broker, the replicas whose disk has failed."""

    # ---- brokers

    def can_lead(self, partition: TopicPartition) -> list[int]:
        """Live brokers whose replica of the partition can be made leader."""
        return [
            each
            for each in self.brokers
            if each not in self.leaving and partition not in self.offline_replicas.get(each, {})
        ]

    def is_online(self, broker_id: int, partition: TopicPartition) -> bool:
        """Whether the broker is live and its disk for this partition works. A leaving broker still counts as live."""
        return broker_id in self.brokers and partition not in self.offline_replicas.get(broker_id, {})

    # ---- partitions

    def partitions(self) -> Iterator[TopicPartition]:
        """All partitions of all topics."""
        for topic, assignment in self.assignments.items():
            for index in assignment:
                yield topic, index

    def replicas(self, partition: TopicPartition) -> ReplicaAssignment | None:
        """The assignment of a partition, None where the context has none."""
        return self.assignments.get(partition[0], {}).get(partition[1])

    def assigned(self, partition: TopicPartition) -> tuple[int, ...]:
        """The brokers that have a replica of a partition, none where the context has no assignment."""
        replicas = self.replicas(partition)
        return replicas.replicas if replicas is not None else ()

    def on_brokers(self, brokers: Iterable[int]) -> list[TopicPartition]:
        """The partitions that have a replica on one of these brokers."""
        wanted = frozenset(brokers)
        return [
            (topic, index)
            for topic, assignment in self.assignments.items()
            for index, replicas in assignment.items()
            if not wanted.isdisjoint(replicas.replicas)
        ]

    def led_by(self, broker_id: int) -> list[TopicPartition]:
        """The partitions that a broker leads."""
        return [partition for partition, known in self.states.items() if known.state.leader == broker_id]

    def is_leaderless(self, partition: TopicPartition) -> bool:
        """Whether the partition has no leader, or one that cannot serve it."""
        known = self.states.get(partition)
        return known is None or not self.is_online(known.state.leader, partition)

    def is_reassigning(self, partition: TopicPartition) -> bool:
        """Whether replicas are being added or removed."""
        replicas = self.replicas(partition)
        return replicas is not None and bool(replicas.adding or replicas.removing)

    def bounced(self, partition: TopicPartition) -> list[int]:
        """Leader and ISR members that have restarted since the partition's state was written: they may have lost
        records that were not synced.
        """
        known = self.states.get(partition)
        if known is None:
            return []
        return [
            each
            for each in known.state.isr
            if (broker := self.brokers.get(each)) is not None and broker.epoch > known.mzxid
        ]

    def forget_topic(self, topic: str) -> None:
        """Remove a deleted topic."""
        for index in self.assignments.pop(topic, {}):
            self.states.pop((topic, index), None)
            for offline in self.offline_replicas.values():
                offline.pop((topic, index), None)
        self.topic_ids.pop(topic, None)
        self.deleting.pop(topic, None)
