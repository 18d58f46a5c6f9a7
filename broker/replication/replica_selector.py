"""Replica selectors: from which replica a consumer reads (KIP-392; Kafka: ReplicaSelector, replica.selector.class)."""

from __future__ import annotations

from collections.abc import Callable

from odradek.broker.metadata.cache import MetadataCache
from odradek.broker.replication.partition import Replica
from odradek.broker.replication.state.partition import Role

NO_PREFERENCE = -1
ReplicaSelector = Callable[[Replica, str, int], int]
"""(replica, rack of the consumer, offset) -> the broker to read from; NO_PREFERENCE for this broker."""


def leader_selector(replica: Replica, rack: str, offset: int) -> int:
    """Consumers read from the leader: the default (Kafka: LeaderSelector)."""
    return NO_PREFERENCE


class RackAwareReplicaSelector:
    """Selects a replica in the consumer's own rack that has the offset (Kafka: RackAwareReplicaSelector)."""

    def __init__(self, metadata_cache: MetadataCache) -> None:
        self._metadata_cache = metadata_cache

    def __call__(self, replica: Replica, rack: str, offset: int) -> int:
        machine, brokers = replica.machine, self._metadata_cache.brokers
        if not rack or machine.role is not Role.LEADER:
            return NO_PREFERENCE
        near = [
            replica_id for replica_id in machine.replicas if replica_id in brokers and brokers[replica_id].rack == rack
        ]
        if not near or machine.broker_id in near:
            return NO_PREFERENCE
        ends = {
            replica_id: machine.remotes[replica_id].end_offset
            for replica_id in near
            if machine.remotes[replica_id].start_offset <= offset <= machine.remotes[replica_id].end_offset
        }
        return max(ends, key=lambda replica_id: ends[replica_id]) if ends else NO_PREFERENCE
