"""CreateTopics (key 19), versions 0 to 7: create topics, or validate their creation.

Version 1 adds validate-only, 4 the broker's defaults for -1, 5 the partition count, replication factor and
configuration of the new topic in the response (KIP-525), 6 THROTTLING_QUOTA_EXCEEDED for topics over the quota of their
client (KIP-599), 7 the topic's id. A topic without leaders at the end of the request's timeout gets REQUEST_TIMED_OUT,
and so does every created topic if the timeout is 0. The controller refuses assignments without brokers, or to a broker
that does not exist, like KRaft; with ZooKeeper Kafka creates topics without leaders.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from odradek.broker.controller.auto_topic_creation import TopicsKnown
from odradek.broker.controller.controller import Controller, NewTopic, TopicOutcome
from odradek.broker.metadata.state.topics import CLUSTER_METADATA
from odradek.broker.quota.quota_managers import QuotaManagers
from odradek.broker.runtime.request_tasks import RequestTasks
from odradek.broker.runtime.turns import each as items_of
from odradek.broker.runtime.turns import keep, later
from odradek.broker.security.auth_helper import AuthHelper
from odradek.broker.security.state.acls import AclOperation, ResourceType
from odradek.protocol import messages as m
from odradek.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from odradek.broker.network.dispatcher import Call

Result = m.CreateTopicsResponse.CreatableTopicResult
STRICT_QUOTA_SINCE = 6


class CreateTopics:
    """Handles CreateTopics."""

    KEY = 19
    VERSIONS = (0, 7)

    def __init__(
        self,
        controller: Controller,
        known: TopicsKnown,
        request_tasks: RequestTasks,
        auth: AuthHelper,
        quotas: QuotaManagers,
    ) -> None:
        self._auth = auth
        self._quotas = quotas
        self._request_tasks = request_tasks
        self._controller = controller
        self._known = known

    def handle(self, call: Call, request: m.CreateTopicsRequest) -> None:
        self._request_tasks.run(self._create(call, request), call.connection.close)

    async def _create(self, call: Call, request: m.CreateTopicsRequest) -> None:
        keep(request)
        counts = keep(Counter(topic.name for topic in items_of(request.topics)))
        allowed, describable = self._authorized(call, counts)
        once = (topic for topic in items_of(request.topics) if counts[topic.name] == 1)
        wanted = keep([_new_topic(topic) for topic in once if topic.name in allowed])
        quota = self._quotas.mutations(call, STRICT_QUOTA_SINCE)
        try:
            outcomes = await self._controller.create_topics(
                wanted, validate_only=request.validate_only, record=quota.record
            )
        except KafkaError as error:
            outcomes = [TopicOutcome(topic.name, error.code, error.message) for topic in items_of(wanted)]
        refused = keep(_refused(request.topics, counts, allowed))
        made = keep([outcome for outcome in items_of(outcomes) if outcome.error is ErrorCode.NONE])

        def answer() -> None:
            topics = [
                _late(outcome)
                if outcome.error is ErrorCode.NONE and not self._in_time(request, outcome)
                else _result(outcome, is_described=outcome.name in describable)
                for outcome in items_of(outcomes)
            ]
            for outcome in items_of(refused):
                result = _result(outcome)
                if outcome.name not in describable:
                    result.topic_config_error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
                topics.append(result)
            self._quotas.throttle_mutations(call, quota)
            call.reply(keep(m.CreateTopicsResponse(topics=topics)))

        if request.validate_only or not made or request.timeout_ms <= 0:
            answer()
        else:  # so that clients find the new topic, with its leaders, after the response
            made.reverse()  # the first ones are checked first
            self._known.wait_for_each(made, self._is_known, request.timeout_ms, later(answer))

    def _authorized(self, call: Call, names: Iterable[str]) -> tuple[set[str], set[str]]:
        """The topics that the client may create, and those whose configuration it may read."""
        auth, names = self._auth, keep(list(names))
        if not self._controller.is_active:  # this comes first
            return set(items_of(names)), set(items_of(names))
        if auth.authorize_cluster(call, AclOperation.CREATE, log_if_denied=False):
            allowed = keep(set(items_of(names)))
        else:
            allowed = auth.filter_by_authorized(call, AclOperation.CREATE, ResourceType.TOPIC, names)
        describable = auth.filter_by_authorized(
            call, AclOperation.DESCRIBE_CONFIGS, ResourceType.TOPIC, names, log_if_denied=False
        )
        forbidden = {CLUSTER_METADATA}  # the controller rejects it, with an error that is no secret
        allowed |= forbidden
        describable |= forbidden
        return allowed, keep(describable)

    def _in_time(self, request: m.CreateTopicsRequest, outcome: TopicOutcome) -> bool:
        return request.validate_only or (request.timeout_ms > 0 and self._is_known(outcome))

    def _is_known(self, made: TopicOutcome) -> bool:
        """Whether this broker's metadata have leaders of all partitions of the new topic, not of a former one."""
        return self._known.knows(made.name, made.partitions, made.topic_id)


def _refused(
    topics: list[m.CreateTopicsRequest.CreatableTopic], counts: Mapping[str, int], allowed: set[str]
) -> list[TopicOutcome]:
    """The topics that the request names several times, or that the client may not create."""
    outcomes = []
    for name in (topic.name for topic in items_of(topics)):
        if counts[name] > 1:
            message = f"topic {name!r} is named {counts[name]} times in the request"
            outcomes.append(TopicOutcome(name, ErrorCode.INVALID_REQUEST, message))
        elif name not in allowed:
            outcomes.append(TopicOutcome(name, ErrorCode.TOPIC_AUTHORIZATION_FAILED, "Authorization failed."))
    return outcomes


def _new_topic(topic: m.CreateTopicsRequest.CreatableTopic) -> NewTopic:
    return NewTopic(
        topic.name,
        partitions=topic.num_partitions,
        replication_factor=topic.replication_factor,
        assignments={entry.partition_index: tuple(entry.broker_ids) for entry in topic.assignments},
        configs={config.name: config.value for config in topic.configs},
    )


def _late(outcome: TopicOutcome) -> m.CreateTopicsResponse.CreatableTopicResult:
    """The result of a created topic for which this broker's metadata have no leaders yet."""
    return Result(
        name=outcome.name, topic_id=outcome.topic_id, error_code=ErrorCode.REQUEST_TIMED_OUT, error_message=None
    )


def _result(outcome: TopicOutcome, *, is_described: bool = True) -> m.CreateTopicsResponse.CreatableTopicResult:
    """The result of a topic; id and configuration of a new one only where the client may read the latter."""
    result = Result(name=outcome.name, error_code=outcome.error, error_message=outcome.message)
    if outcome.error is ErrorCode.NONE:
        if not is_described:
            result.topic_config_error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            return result
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
