"""AlterReplicaLogDirs (key 34), versions 0 to 2: move replicas of this broker to other data directories (KIP-113).

The response means that a move has begun, not that it has ended: DescribeLogDirs returns its progress. If this broker
has no such replica yet, it stores the directory for later and still returns an error, like Kafka.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from odradek.broker.metadata.cache import MetadataCache
from odradek.broker.replication.alter_log_dirs import ReplicaMoves
from odradek.broker.runtime.turns import each as items_of
from odradek.broker.runtime.turns import keep
from odradek.broker.security.auth_helper import AuthHelper
from odradek.broker.security.state.acls import AclOperation
from odradek.protocol import messages as m
from odradek.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from odradek.broker.network.dispatcher import Call

log = logging.getLogger(__name__)

LOGGED: Final = 10
"""Refusals of one request that are logged; it may have a hundred thousand."""

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
        wanted = keep(
            {
                (topic.name, index): directory.path
                for directory in request.dirs
                for topic in directory.topics
                for index in items_of(topic.partitions)
            }
        )
        is_allowed = self._auth.authorize_cluster(call, AclOperation.ALTER)
        topics: dict[str, m.AlterReplicaLogDirsResponse.AlterReplicaLogDirTopicResult] = {}
        refusals: list[tuple[str, int, str, str]] = []
        for (topic, index), path in items_of(wanted.items()):
            code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
            if is_allowed:
                code = self._move(topic, index, path, refusals)
            topics.setdefault(topic, TopicResult(topic_name=topic)).partitions.append(
                PartitionResult(partition_index=index, error_code=code)
            )
        for refusal in refusals:
            log.warning("cannot move replica topic=%s partition=%d directory=%s error=%s", *refusal)
        return m.AlterReplicaLogDirsResponse(results=list(topics.values()))

    def _move(self, topic: str, index: int, path: str, refusals: list[tuple[str, int, str, str]]) -> ErrorCode:
        """Begin a move; returns the error. `refusals` are the first ones of the request."""
        try:
            self._moves.alter_log_dir((topic, index), path)
        except KafkaError as error:
            if len(refusals) < LOGGED:
                refusals.append((topic, index, path, error.message))
            if error.code is ErrorCode.REPLICA_NOT_AVAILABLE and self._metadata_cache.leader(topic, index) is None:
                return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            return error.code
        return ErrorCode.NONE
