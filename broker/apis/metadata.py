"""Metadata (key 3), versions 0 to 13: the brokers, and who leads which partition.

Topics are named, or from version 10 on given by id; null (an empty list in version 0) asks for all. A topic that is
not there is created when the request and `auto.create.topics.enable` allow it: the answer then waits the moment that
takes, where Kafka answers with an error that makes clients ask again. Where it cannot be created, the answer says why.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from odradek.broker.cluster_view import NO_LEADER, ClusterView, TopicView
from odradek.broker.machines.topics import is_internal, name_problem
from odradek.broker.topic_creation import TopicCreator, WantedTopic
from odradek.protocol import messages as m
from odradek.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from odradek.broker.dispatch import Call

NO_TOPIC_ID = bytes(16)
TopicAnswer = m.MetadataResponse.MetadataResponseTopic
AUTHORIZED_OPERATIONS_UNKNOWN = -(2**31)


class Metadata:
    """What the cluster looks like."""

    KEY = 3
    VERSIONS = (0, 13)

    def __init__(
        self,
        view: ClusterView,
        creator: TopicCreator,
        auto_create: Callable[[], bool],
        new_topic: Callable[[str], WantedTopic],
    ) -> None:
        """`new_topic` says how a topic is to be made of which only the name is known."""
        self._view = view
        self._creator = creator
        self._auto_create = auto_create
        self._new_topic = new_topic

    def handle(self, call: Call, request: m.MetadataRequest) -> m.MetadataResponse | None:
        topics = request.topics
        if topics is None or (call.version == 0 and not topics):
            return self._response(call, [self._describe(topic, call) for topic in self._view])
        missing = self._to_create(call, request)
        if missing:
            self._creator.create(
                [self._new_topic(name) for name in dict.fromkeys(missing)],
                lambda outcomes: call.reply(self._answer(call, request, outcomes)),
            )
            return None
        return self._answer(call, request, {})

    def _to_create(self, call: Call, request: m.MetadataRequest) -> list[str]:
        if not self._auto_create() or (call.version >= 4 and not request.allow_auto_topic_creation):
            return []
        known = self._view.topics
        return [
            topic.name
            for topic in request.topics or ()
            if topic.name is not None and topic.name not in known and name_problem(topic.name) is None
        ]

    def _answer(self, call: Call, request: m.MetadataRequest, outcomes: Mapping[str, ErrorCode]) -> m.MetadataResponse:
        answers = []
        for wanted in request.topics or ():
            name = wanted.name
            if name is None or (call.version >= 10 and wanted.topic_id != NO_TOPIC_ID):
                name = self._view.name_of(wanted.topic_id)
                if name is None:
                    answers.append(
                        TopicAnswer(name=None, topic_id=wanted.topic_id, error_code=ErrorCode.UNKNOWN_TOPIC_ID)
                    )
                    continue
            topic = self._view.topics.get(name)
            if topic is not None:
                answers.append(self._describe(topic, call))
                continue
            invalid = name_problem(name) is not None
            code = ErrorCode.INVALID_TOPIC_EXCEPTION if invalid else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            if outcomes.get(name) is not ErrorCode.REQUEST_TIMED_OUT:
                # Otherwise the controller has not answered yet, and this is what lets a client come back and ask.
                code = outcomes.get(name) or code
            answers.append(TopicAnswer(name=name, error_code=code, is_internal=is_internal(name)))
        return self._response(call, answers)

    def _describe(self, topic: TopicView, call: Call) -> m.MetadataResponse.MetadataResponseTopic:
        reachable = {broker.broker_id for broker, _ in self._view.live_brokers(call.listener)}
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
        return TopicAnswer(name=topic.name, topic_id=topic.topic_id, is_internal=topic.internal, partitions=partitions)

    def _response(self, call: Call, topics: list[m.MetadataResponse.MetadataResponseTopic]) -> m.MetadataResponse:
        view = self._view
        brokers = [
            m.MetadataResponse.MetadataResponseBroker(
                node_id=broker.broker_id, host=endpoint.host, port=endpoint.port, rack=broker.rack
            )
            for broker, endpoint in view.live_brokers(call.listener)
        ]
        return m.MetadataResponse(
            brokers=brokers,
            cluster_id=view.cluster_id,
            controller_id=view.controller_id,
            topics=topics,
        )
