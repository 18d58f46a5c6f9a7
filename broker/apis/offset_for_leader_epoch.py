"""OffsetForLeaderEpoch (key 23), versions 0 to 4: the end offset of a leader epoch (KIP-101, KIP-279, KIP-320).

A consumer that gets a new leader validates that the records it has read were not truncated; a follower finds the offset
to truncate to. The response is the largest epoch not above the requested one, and the end offset of that epoch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.broker.metadata.cache import MetadataCache
from odradek.broker.replication.partition import Replicas
from odradek.broker.security.auth_helper import AuthHelper
from odradek.broker.security.state.acls import AclOperation, ResourceType
from odradek.protocol import messages as m
from odradek.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from odradek.broker.network.dispatcher import Call

EpochEnd = m.OffsetForLeaderEpochResponse.EpochEndOffset
TopicResult = m.OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult
Wanted = m.OffsetForLeaderEpochRequest.OffsetForLeaderPartition


class OffsetForLeaderEpoch:
    """Handles OffsetForLeaderEpoch."""

    KEY = 23
    VERSIONS = (0, 4)

    def __init__(self, replicas: Replicas, metadata_cache: MetadataCache, auth: AuthHelper) -> None:
        self._replicas = replicas
        self._metadata_cache = metadata_cache
        self._auth = auth

    def handle(self, call: Call, request: m.OffsetForLeaderEpochRequest) -> m.OffsetForLeaderEpochResponse:
        auth, allowed, denied = self._auth, request.topics, []
        # a follower has the right to act as a broker, a consumer has rights on its topics
        if not auth.authorize_cluster(call, AclOperation.CLUSTER_ACTION, log_if_denied=False):
            names = (topic.topic for topic in request.topics)
            described = auth.filter_by_authorized(call, AclOperation.DESCRIBE, ResourceType.TOPIC, names)
            allowed = [topic for topic in request.topics if topic.topic in described]
            denied = [topic for topic in request.topics if topic.topic not in described]
        topics = [TopicResult(topic=each.topic, partitions=self._ends(each.topic, each.partitions)) for each in allowed]
        topics += [TopicResult(topic=each.topic, partitions=_refused(each.partitions)) for each in denied]
        return m.OffsetForLeaderEpochResponse(topics=topics)

    def _ends(self, topic: str, partitions: list[Wanted]) -> list[EpochEnd]:
        ends = []
        for wanted in partitions:
            end = EpochEnd(partition=wanted.partition)
            ends.append(end)
            replica = self._replicas.get(topic, wanted.partition)
            try:
                if replica is None:
                    raise KafkaError(self._metadata_cache.error_without_replica(topic, wanted.partition))
                replica.machine.check_leader(wanted.current_leader_epoch)
                end.leader_epoch, end.end_offset = replica.log.epochs.end_offset(
                    wanted.leader_epoch, replica.log.end_offset
                )
            except KafkaError as error:
                end.error_code = error.code
        return ends


def _refused(partitions: list[Wanted]) -> list[EpochEnd]:
    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return [EpochEnd(partition=wanted.partition, error_code=code) for wanted in partitions]
