"""OffsetDelete (key 47), version 0: delete offsets of topics that no member of the group consumes (KIP-496)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.broker.group.offset_metadata_manager import OffsetMetadataManager
from odradek.broker.metadata.cache import MetadataCache
from odradek.broker.runtime.turns import each as items_of
from odradek.broker.security.auth_helper import AuthHelper
from odradek.broker.security.state.acls import AclOperation, ResourceType
from odradek.protocol import messages as m
from odradek.protocol.errors import ErrorCode
from odradek.protocol.topic_partition import TopicPartition

if TYPE_CHECKING:
    from odradek.broker.network.dispatcher import Call

Response = m.OffsetDeleteResponse


class OffsetDelete:
    """Handles OffsetDelete."""

    KEY = 47
    VERSIONS = (0, 0)

    def __init__(self, offsets: OffsetMetadataManager, metadata_cache: MetadataCache, auth: AuthHelper) -> None:
        self._offsets = offsets
        self._metadata_cache = metadata_cache
        self._auth = auth

    def handle(self, call: Call, request: m.OffsetDeleteRequest) -> m.OffsetDeleteResponse:
        if not self._auth.authorize(call, AclOperation.DELETE, ResourceType.GROUP, request.group_id):
            return Response(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
        topics: dict[str, Response.OffsetDeleteResponseTopic] = {}
        wanted: dict[TopicPartition, list[Response.OffsetDeleteResponsePartition]] = {}
        for topic in request.topics:
            refusal, count = self._partition_count(call, topic.name)
            answers = [
                Response.OffsetDeleteResponsePartition(partition_index=index, error_code=refusal)
                for index in items_of(dict.fromkeys(each.partition_index for each in topic.partitions))
            ]
            if not answers:
                continue
            topics.setdefault(topic.name, Response.OffsetDeleteResponseTopic(name=topic.name)).partitions += answers
            for answer in items_of(answers):
                if 0 <= answer.partition_index < count:
                    wanted.setdefault((topic.name, answer.partition_index), []).append(answer)
        error, codes = self._offsets.delete_offsets(request.group_id, list(wanted))
        if error:
            return Response(error_code=error)
        for repeated, code in items_of(zip(wanted.values(), codes, strict=True)):
            for answer in items_of(repeated):
                answer.error_code = code
        return Response(topics=list(topics.values()))

    def _partition_count(self, call: Call, name: str) -> tuple[ErrorCode, int]:
        """The error of partitions that the group does not get, and how many partitions of the topic it gets."""
        if not self._auth.authorize(call, AclOperation.READ, ResourceType.TOPIC, name):
            return ErrorCode.TOPIC_AUTHORIZATION_FAILED, 0
        topic = self._metadata_cache.topics.get(name)
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, len(topic.partitions) if topic is not None else 0
