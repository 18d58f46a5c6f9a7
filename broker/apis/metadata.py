"""Metadata (key 3), versions 0 to 13: the brokers, the controller, topics and their partitions (Kafka: KafkaApis).

The request contains topics by name, or from version 10 on by id; null (an empty list in version 0) means all topics. A
missing topic is created when the request and `auto.create.topics.enable` allow it: the response then waits for the
creation, where Kafka returns an error that makes clients retry. If it cannot be created, the response contains the
reason; if the outcome is unknown, the error makes clients retry, and so it does until this broker has received metadata
from a controller.

The response is joined from the encoded bytes of its topics, which are cached until they change (`topic_responses`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from odradek.broker.controller.auto_topic_creation import AutoCreatedTopic, TopicCreator
from odradek.broker.metadata.cache import NO_LEADER, MetadataCache, TopicMetadata
from odradek.broker.metadata.state.topics import (
    CLUSTER_OPERATIONS,
    TOPIC_OPERATIONS,
    can_be_made,
    is_internal,
    why_missing,
)
from odradek.broker.metadata.topic_responses import TopicAnswers
from odradek.protocol import messages as m
from odradek.protocol.encoded import EncodedArray, EncodedElement
from odradek.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from odradek.broker.network.dispatcher import Call

NO_TOPIC_ID = bytes(16)
TopicAnswer = m.MetadataResponse.MetadataResponseTopic
AUTHORIZED_OPERATIONS_UNKNOWN = -(2**31)
MADE_OR_UNKNOWN = frozenset({ErrorCode.NONE, ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_CONTROLLER})
"""Outcomes of a creation after which a topic may exist, although this broker's metadata do not contain it."""


class Metadata:
    """Handles Metadata."""

    KEY = 3
    VERSIONS = (0, 13)

    def __init__(
        self,
        metadata_cache: MetadataCache,
        creator: TopicCreator,
        auto_create: Callable[[], bool],
        new_topic: Callable[[str], AutoCreatedTopic],
        answers: TopicAnswers,
    ) -> None:
        """`new_topic` returns the creation parameters for a topic name; `answers` caches encoded topics."""
        self._metadata_cache = metadata_cache
        self._creator = creator
        self._auto_create = auto_create
        self._new_topic = new_topic
        self._answers = answers

    def handle(self, call: Call, request: m.MetadataRequest) -> m.MetadataResponse | None:
        topics = request.topics
        if topics is None or (call.version == 0 and not topics):
            return self._response(call, request, list(self._metadata_cache))
        if call.version >= 10 and any(each.name is None and each.topic_id == NO_TOPIC_ID for each in topics):
            return _neither(topics, ErrorCode.INVALID_REQUEST if call.version < 12 else ErrorCode.UNKNOWN_SERVER_ERROR)
        if 10 <= call.version < 12 and any(each.name is None or each.topic_id != NO_TOPIC_ID for each in topics):
            code = ErrorCode.INVALID_REQUEST  # these versions have ids, but do not support requests by id
            refused = [TopicAnswer(name=each.name or "", topic_id=each.topic_id, error_code=code) for each in topics]
            return m.MetadataResponse(topics=refused)
        missing = self._to_create(call, request)
        if missing:
            self._creator.create(
                [self._new_topic(name) for name in dict.fromkeys(missing)],
                lambda outcomes: call.reply(self._answer(call, request, outcomes)),
            )
            return None
        return self._answer(call, request, {})

    def _to_create(self, call: Call, request: m.MetadataRequest) -> list[str]:
        if not self._metadata_cache.is_initialized or not self._auto_create():
            return []
        if call.version >= 4 and not request.allow_auto_topic_creation:
            return []
        known = self._metadata_cache.topics
        return [
            topic.name
            for topic in request.topics or ()
            if topic.name is not None and topic.name not in known and can_be_made(topic.name)
        ]

    def _answer(self, call: Call, request: m.MetadataRequest, outcomes: Mapping[str, ErrorCode]) -> m.MetadataResponse:
        answers: list[TopicMetadata | m.MetadataResponse.MetadataResponseTopic] = []
        named = set()
        for wanted in request.topics or ():
            name = wanted.name
            if name is None or (call.version >= 10 and wanted.topic_id != NO_TOPIC_ID):
                name = self._metadata_cache.name_of(wanted.topic_id)
                if name is None:
                    answers.append(
                        TopicAnswer(name=None, topic_id=wanted.topic_id, error_code=ErrorCode.UNKNOWN_TOPIC_ID)
                    )
                    continue
            if name in named:
                continue
            named.add(name)
            topic = self._metadata_cache.topics.get(name)
            if topic is not None:
                answers.append(topic)
                continue
            code = why_missing(name, is_initialized=self._metadata_cache.is_initialized)
            if (outcome := outcomes.get(name)) is not None:
                code = ErrorCode.LEADER_NOT_AVAILABLE if outcome in MADE_OR_UNKNOWN else outcome
            answers.append(TopicAnswer(name=name, error_code=code, is_internal=is_internal(name)))
        return self._response(call, request, answers)

    def _response(
        self,
        call: Call,
        request: m.MetadataRequest,
        topics: list[TopicMetadata | m.MetadataResponse.MetadataResponseTopic],
    ) -> m.MetadataResponse:
        """The response with known topics, and with the entries for unknown ones."""
        metadata_cache, version = self._metadata_cache, call.version
        operations = AUTHORIZED_OPERATIONS_UNKNOWN
        if request.include_topic_authorized_operations:
            operations = TOPIC_OPERATIONS
        live = metadata_cache.live_brokers(call.listener)
        reachable = frozenset(broker.broker_id for broker, _ in live)

        def encoded(topic: TopicMetadata) -> EncodedElement:
            return _describe(topic, reachable, operations).encoded(version)

        known = [topic for topic in topics if isinstance(topic, TopicMetadata)]
        elements = self._answers.of(known, (version, operations, call.listener), reachable, encoded)
        if len(known) < len(topics):
            elements = list(_in_order(topics, elements, operations, version))
        brokers = [
            m.MetadataResponse.MetadataResponseBroker(
                node_id=broker.broker_id, host=endpoint.host, port=endpoint.port, rack=broker.rack
            )
            for broker, endpoint in live
        ]
        return m.MetadataResponse(
            brokers=brokers,
            cluster_id=metadata_cache.cluster_id,
            controller_id=metadata_cache.controller_id,
            topics=EncodedArray(elements, version),
            cluster_authorized_operations=(
                CLUSTER_OPERATIONS if request.include_cluster_authorized_operations else AUTHORIZED_OPERATIONS_UNKNOWN
            ),
        )


def _describe(
    topic: TopicMetadata, reachable: frozenset[int], operations: int
) -> m.MetadataResponse.MetadataResponseTopic:
    """A topic for clients that can reach these brokers."""
    partitions = []
    for partition in topic.partitions:
        answer = m.MetadataResponse.MetadataResponsePartition(
            partition_index=partition.index,
            leader_id=partition.leader,
            leader_epoch=partition.leader_epoch,
            replica_nodes=list(partition.replicas),
            isr_nodes=list(partition.isr),
            offline_replicas=list(partition.offline),
        )
        if partition.leader not in reachable:
            answer.error_code = ErrorCode.LEADER_NOT_AVAILABLE
            answer.leader_id = NO_LEADER
        partitions.append(answer)
    return TopicAnswer(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.internal,
        partitions=partitions,
        topic_authorized_operations=operations,
    )


def _in_order(
    topics: Iterable[TopicMetadata | m.MetadataResponse.MetadataResponseTopic],
    known: Iterable[EncodedElement],
    operations: int,
    version: int,
) -> Iterator[EncodedElement]:
    """The elements of all topics, in order: the next of `known` for each known topic, the others as they are."""
    rest = iter(known)
    for topic in topics:
        if isinstance(topic, TopicMetadata):
            yield next(rest)
        else:
            topic.topic_authorized_operations = operations
            yield topic.encoded(version)


def _neither(topics: list[m.MetadataRequest.MetadataRequestTopic], code: ErrorCode) -> m.MetadataResponse:
    """The response of Kafka to an entry without name and id: an error for every topic of the request."""
    return m.MetadataResponse(
        cluster_id=None,
        topics=[TopicAnswer(name=each.name or "", error_code=code) for each in topics],
    )
