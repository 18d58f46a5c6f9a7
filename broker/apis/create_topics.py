"""CreateTopics (key 19), versions 0 to 7: make topics, or only say whether they could be made.

Version 1 brings validate-only, 4 the broker's defaults for -1, 5 the partition count, replication factor and
configuration of the new topic in the answer (KIP-525), 7 its id.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from odradek.broker.controller import Controller, NewTopic, TopicOutcome
from odradek.protocol import messages as m
from odradek.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from odradek.broker.dispatch import Call

Result = m.CreateTopicsResponse.CreatableTopicResult


class CreateTopics:
    """New topics."""

    KEY = 19
    VERSIONS = (0, 7)

    def __init__(self, controller: Controller) -> None:
        self._controller = controller

    def handle(self, call: Call, request: m.CreateTopicsRequest) -> None:
        self._controller.submit(self._create(call, request), call.connection.close)

    async def _create(self, call: Call, request: m.CreateTopicsRequest) -> None:
        counts = Counter(topic.name for topic in request.topics)
        outcomes = await self._controller.create_topics(
            [_new_topic(topic) for topic in request.topics if counts[topic.name] == 1],
            validate_only=request.validate_only,
        )
        twice = [
            TopicOutcome(name, ErrorCode.INVALID_REQUEST, f"topic {name!r} is named {count} times in the request")
            for name, count in counts.items()
            if count > 1
        ]
        call.reply(m.CreateTopicsResponse(topics=[_result(outcome) for outcome in outcomes + twice]))


def _new_topic(topic: m.CreateTopicsRequest.CreatableTopic) -> NewTopic:
    return NewTopic(
        topic.name,
        partitions=topic.num_partitions,
        replication_factor=topic.replication_factor,
        assignments={entry.partition_index: tuple(entry.broker_ids) for entry in topic.assignments},
        configs={config.name: config.value for config in topic.configs},
    )


def _result(outcome: TopicOutcome) -> m.CreateTopicsResponse.CreatableTopicResult:
    result = Result(name=outcome.name, error_code=outcome.error, error_message=outcome.message)
    if outcome.error is ErrorCode.NONE:
        result.topic_id = outcome.topic_id
        result.num_partitions = outcome.partitions
        result.replication_factor = outcome.replication_factor
        result.configs = [
            m.CreateTopicsResponse.CreatableTopicConfigs(
                name=entry.name,
                value=entry.value,
                read_only=entry.read_only,
                config_source=entry.source,
                is_sensitive=entry.sensitive,
            )
            for entry in outcome.configs
        ]
    return result
