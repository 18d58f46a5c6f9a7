"""AlterReplicaLogDirs (key 34), versions 0 to 2: move replicas of this broker to other data directories (KIP-113).

The response means that a move has begun, not that it has ended: DescribeLogDirs returns its progress. If this broker
has no such replica yet, it stores the directory for later and still returns an error, like Kafka.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from odradek.broker.metadata.cache import MetadataCache
from odradek.broker.replication.alter_log_dirs import ReplicaMoves
from odradek.broker.security.auth_helper import AuthHelper
from odradek.broker.security.state.acls import AclOperation
from odradek.protocol import messages as m
from odradek.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from odradek.broker.network.dispatcher import Call

log = logging.getLogger(__name__)

TopicResult = m.AlterReplicaLogDirsResponse.AlterReplicaLogDirTopicResult
PartitionResult = m.AlterReplicaLogDirsResponse.AlterReplicaLogDirPartitionResult


class AlterReplicaLogDirs:
    """Handles AlterReplicaLogDirs."""

    KEY = 34
    VERSIONS = (0, 2)

    def __init__(self, moves: ReplicaMoves, metadata_cache: MetadataCache, auth: AuthHelper) -> None:
        self._moves = moves
        self._metadata_cache = metadata_cache
        self._auth = auth

    def handle(self, call: Call, request: m.AlterReplicaLogDirsRequest) -> m.AlterReplicaLogDirsResponse:
        wanted = {
            (topic.name, index): directory.path
            for directory in request.dirs
            for topic in directory.topics
            for index in topic.partitions
        }
        is_allowed = self._auth.authorize_cluster(call, AclOperation.ALTER)
        topics: dict[str, m.AlterReplicaLogDirsResponse.AlterReplicaLogDirTopicResult] = {}
        for (topic, index), path in wanted.items():
            code = self._move(topic, index, path) if is_allowed else ErrorCode.CLUSTER_AUTHORIZATION_FAILED
            topics.setdefault(topic, TopicResult(topic_name=topic)).partitions.append(
                PartitionResult(partition_index=index, error_code=code)
            )
        return m.AlterReplicaLogDirsResponse(results=list(topics.values()))

    def _move(self, topic: str, index: int, path: str) -> ErrorCode:
        try:
            self._moves.alter_log_dir((topic, index), path)
        except KafkaError as error:
            log.warning(
                "cannot move replica topic=%s partition=%d directory=%s error=%s", topic, index, path, error.message
            )
            if error.code is ErrorCode.REPLICA_NOT_AVAILABLE and self._metadata_cache.leader(topic, index) is None:
                return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            return error.code
        return ErrorCode.NONE
