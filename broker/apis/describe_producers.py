"""DescribeProducers (key 61), version 0: the producer states of a replica and their open transactions (KIP-664).

Any replica answers, not only the leader; `kafka-transactions` uses this to find hanging transactions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.broker.metadata.cache import MetadataCache
from odradek.broker.metadata.state.topics import name_problem
from odradek.broker.replication.partition import Replicas
from odradek.broker.replication.state.partition import Role
from odradek.protocol import messages as m
from odradek.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from odradek.broker.network.dispatcher import Call

Response = m.DescribeProducersResponse


class DescribeProducers:
    """Handles DescribeProducers."""

    KEY = 61
    VERSIONS = (0, 0)

    def __init__(self, replicas: Replicas, metadata_cache: MetadataCache) -> None:
        self._replicas = replicas
        self._metadata_cache = metadata_cache

    def handle(self, call: Call, request: m.DescribeProducersRequest) -> m.DescribeProducersResponse:
        return Response(
            topics=[
                Response.TopicResponse(
                    name=topic.name, partitions=[self._describe(topic.name, index) for index in topic.partition_indexes]
                )
                for topic in request.topics
            ]
        )

    def _describe(self, topic: str, index: int) -> Response.PartitionResponse:
        answer = Response.PartitionResponse(partition_index=index)
        problem = name_problem(topic)
        if problem is not None:
            answer.error_code, answer.error_message = ErrorCode.INVALID_TOPIC_EXCEPTION, problem
            return answer
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
                for producer in replica.log.producers.active()
            ]
        return answer
