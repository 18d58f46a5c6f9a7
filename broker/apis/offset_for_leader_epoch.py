"""OffsetForLeaderEpoch (key 23), versions 0 to 4: the end offset of a leader epoch (KIP-101, KIP-279, KIP-320).

A consumer that gets a new leader validates that the records it has read were not truncated; a follower finds the offset
to truncate to. The response is the largest epoch not above the requested one, and the end offset of that epoch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.broker.metadata.cache import MetadataCache
from odradek.broker.replication.partition import Replicas
from odradek.protocol import messages as m
from odradek.protocol.errors import KafkaError

if TYPE_CHECKING:
    from odradek.broker.network.dispatcher import Call

EpochEnd = m.OffsetForLeaderEpochResponse.EpochEndOffset


class OffsetForLeaderEpoch:
    """Handles OffsetForLeaderEpoch."""

    KEY = 23
    VERSIONS = (0, 4)

    def __init__(self, replicas: Replicas, metadata_cache: MetadataCache) -> None:
        self._replicas = replicas
        self._metadata_cache = metadata_cache

    def handle(self, call: Call, request: m.OffsetForLeaderEpochRequest) -> m.OffsetForLeaderEpochResponse:
        topics = []
        for topic in request.topics:
            ends = []
            for wanted in topic.partitions:
                end = EpochEnd(partition=wanted.partition)
                ends.append(end)
                replica = self._replicas.get(topic.topic, wanted.partition)
                try:
                    if replica is None:
                        raise KafkaError(self._metadata_cache.error_without_replica(topic.topic, wanted.partition))
                    replica.machine.check_leader(wanted.current_leader_epoch)
                    end.leader_epoch, end.end_offset = replica.log.epochs.end_offset(
                        wanted.leader_epoch, replica.log.end_offset
                    )
                except KafkaError as error:
                    end.error_code = error.code
            topics.append(m.OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult(topic=topic.topic, partitions=ends))
        return m.OffsetForLeaderEpochResponse(topics=topics)
