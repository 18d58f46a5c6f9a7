"""DescribeTopicPartitions (key 75), version 0: topics and their partitions in pages (KIP-966).

The response contains topics in the order of their names, with at most `max.request.partition.size.limit` partitions in
all, or fewer if the client requests fewer; if there are more, it contains a cursor, with which the next request
continues. A cursor at a topic that is not requested, or before its first partition, is refused. Unlike Metadata, this
API never creates a topic. Eligible leader replicas exist only with KRaft: the lists are empty.

Topics that the client may not describe are omitted; those that it requests by name come last, with the same error
whether they exist or not.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from odradek.broker.metadata.cache import NO_LEADER, MetadataCache, TopicMetadata
from odradek.broker.metadata.state.topics import is_internal, why_missing
from odradek.broker.runtime.turns import each as items_of
from odradek.broker.runtime.turns import in_order
from odradek.broker.security.auth_helper import AuthHelper
from odradek.broker.security.state.acls import AclOperation, ResourceType
from odradek.protocol import messages as m
from odradek.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from odradek.broker.network.dispatcher import Call

Response = m.DescribeTopicPartitionsResponse
Topic = Response.DescribeTopicPartitionsResponseTopic
Partition = Response.DescribeTopicPartitionsResponsePartition
FROM_THE_BEGINNING: Final = ("", 0)


class DescribeTopicPartitions:
    """Handles DescribeTopicPartitions."""

    KEY = 75
    VERSIONS = (0, 0)

    def __init__(self, metadata_cache: MetadataCache, limit: Callable[[], int], auth: AuthHelper) -> None:
        """`limit()` is the maximum number of partitions of one response."""
        self._metadata_cache = metadata_cache
        self._limit = limit
        self._auth = auth

    def handle(self, call: Call, request: m.DescribeTopicPartitionsRequest) -> m.DescribeTopicPartitionsResponse:
        cursor = request.cursor
        begin = FROM_THE_BEGINNING if cursor is None else (cursor.topic_name, cursor.partition_index)
        named = dict.fromkeys(topic.name for topic in request.topics)
        if begin[1] < 0 or (cursor is not None and named and begin[0] not in named):
            return Response(topics=[Topic(name=name, error_code=ErrorCode.INVALID_REQUEST) for name in items_of(named)])
        names = named or self._metadata_cache.topics
        left = max(1, min(self._limit(), request.response_partition_limit))
        response = Response()
        wanted = in_order(name for name in items_of(names) if name >= begin[0])
        described = self._auth.filter_by_authorized(call, AclOperation.DESCRIBE, ResourceType.TOPIC, wanted)
        for name in items_of(wanted):
            if name not in described:
                continue
            if not left:
                response.next_cursor = Response.Cursor(topic_name=name, partition_index=0)
                break
            topic = self._metadata_cache.topics.get(name)
            if topic is None:
                response.topics.append(self._unknown(call, name))
                continue
            first = begin[1] if name == begin[0] else 0
            page = self._page(call, topic, first, left)
            response.topics.append(page)
            left -= len(page.partitions)
            if first + len(page.partitions) < len(topic.partitions):
                after = first + len(page.partitions)
                response.next_cursor = Response.Cursor(topic_name=name, partition_index=after)
                break
        response.topics += [
            Topic(name=name, error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            for name in items_of(wanted if named else ())
            if name not in described
        ]
        return response

    def _page(
        self, call: Call, topic: TopicMetadata, first: int, most: int
    ) -> m.DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponseTopic:
        reachable = {broker.broker_id for broker, _ in self._metadata_cache.live_brokers(call.listener)}
        partitions = []
        for partition in topic.partitions[first : first + most]:
            answer = Partition(
                partition_index=partition.index,
                leader_id=partition.leader,
                leader_epoch=partition.leader_epoch,
                replica_nodes=list(partition.replicas),
                isr_nodes=list(partition.isr),
                eligible_leader_replicas=[],  # Java's client fails with null here
                last_known_elr=[],
                offline_replicas=list(partition.offline),
            )
            if partition.leader not in reachable:
                answer.error_code, answer.leader_id = ErrorCode.LEADER_NOT_AVAILABLE, NO_LEADER
            partitions.append(answer)
        return Topic(
            name=topic.name,
            topic_id=topic.topic_id,
            is_internal=topic.internal,
            partitions=partitions,
            topic_authorized_operations=self._auth.authorized_operations(call, ResourceType.TOPIC, topic.name),
        )

    def _unknown(self, call: Call, name: str) -> m.DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponseTopic:
        return Topic(
            name=name,
            error_code=why_missing(name, is_initialized=self._metadata_cache.is_initialized),
            is_internal=is_internal(name),
            topic_authorized_operations=self._auth.authorized_operations(call, ResourceType.TOPIC, name),
        )
