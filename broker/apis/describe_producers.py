"""DescribeProducers (key 61), version 0: the producer states of a replica and their open transactions (KIP-664).

Any replica answers, not only the leader; `kafka-transactions` uses this to find hanging transactions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.broker.metadata.cache import MetadataCache
from odradek.broker.metadata.state.topics import name_problem
from odradek.broker.replication.partition import Replicas
from odradek.broker.replication.state.partition import Role
from odradek.broker.runtime.turns import each as items_of
from odradek.broker.security.auth_helper import AuthHelper
from odradek.broker.security.state.acls import AclOperation, ResourceType
from odradek.protocol import messages as m
from odradek.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from odradek.broker.network.dispatcher import Call

Response = m.DescribeProducersResponse


class DescribeProducers:
    """Handles DescribeProducers."""

    KEY = 61
    VERSIONS = (0, 0)

    def __init__(self, replicas: Replicas, metadata_cache: MetadataCache, auth: AuthHelper) -> None:
        self._replicas = replicas
        self._metadata_cache = metadata_cache
        self._auth = auth

    def handle(self, call: Call, request: m.DescribeProducersRequest) -> m.DescribeProducersResponse:
        return Response(topics=[self._topic(call, topic.name, topic.partition_indexes) for topic in request.topics])

    def _topic(self, call: Call, name: str, indexes: list[int]) -> Response.TopicResponse:
        problem, code = name_problem(name), ErrorCode.INVALID_TOPIC_EXCEPTION
        if problem is None and not self._auth.authorize(call, AclOperation.READ, ResourceType.TOPIC, name):
            problem, code = "Topic authorization failed.", ErrorCode.TOPIC_AUTHORIZATION_FAILED
        if problem is None:
            partitions = [self._describe(name, index) for index in indexes]
        else:
            partitions = [
                Response.PartitionResponse(partition_index=index, error_code=code, error_message=problem)
                for index in indexes
            ]
        return Response.TopicResponse(name=name, partitions=partitions)

    def _describe(self, topic: str, index: int) -> Response.PartitionResponse:
        answer = Response.PartitionResponse(partition_index=index)
        replica = self._replicas.get(topic, index)
        if replica is None:
            answer.error_code = self._metadata_cache.error_without_replica(topic, index)
            if topic not in self._metadata_cache.topics:
                answer.error_message = f"there is no topic {topic}"
        elif replica.machine.role is Role.OFFLINE:
            answer.error_code = ErrorCode.KAFKA_STORAGE_ERROR
        else:
            answer.active_producers = [
                Response.ProducerState(
                    producer_id=producer.producer_id,
                    producer_epoch=producer.epoch,
                    last_sequence=producer.last_sequence,
                    last_timestamp=producer.last_timestamp,
                    coordinator_epoch=producer.coordinator_epoch,
                    current_txn_start_offset=producer.transaction_start,
                )
                for producer in items_of(list(replica.log.producers.active()))
            ]
        return answer
