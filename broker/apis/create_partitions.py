"""CreatePartitions (key 37), versions 0 to 3: add partitions to topics.

Only the controller serves it; other brokers return NOT_CONTROLLER, and the client retries with the controller. Version
3 adds THROTTLING_QUOTA_EXCEEDED (KIP-599).
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from odradek.broker.controller.auto_topic_creation import TopicsKnown
from odradek.broker.controller.controller import Controller, NewPartitions
from odradek.broker.quota.quota_managers import QuotaManagers
from odradek.broker.runtime.request_tasks import RequestTasks
from odradek.broker.runtime.turns import each as items_of
from odradek.broker.runtime.turns import later
from odradek.broker.security.auth_helper import AuthHelper
from odradek.broker.security.state.acls import AclOperation, ResourceType
from odradek.protocol import messages as m
from odradek.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from odradek.broker.network.dispatcher import Call

STRICT_QUOTA_SINCE = 3
Result = m.CreatePartitionsResponse.CreatePartitionsTopicResult


class CreatePartitions:
    """Handles CreatePartitions."""

    KEY = 37
    VERSIONS = (0, 3)

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
        self._controller = controller
        self._known = known
        self._request_tasks = request_tasks

    def handle(self, call: Call, request: m.CreatePartitionsRequest) -> None:
        self._request_tasks.run(self._create(call, request), call.connection.close)

    async def _create(self, call: Call, request: m.CreatePartitionsRequest) -> None:
        counts = Counter(topic.name for topic in request.topics)
        once = [topic.name for topic in request.topics if counts[topic.name] == 1]
        allowed = set(once)
        if self._controller.is_active:
            allowed = self._auth.filter_by_authorized(call, AclOperation.ALTER, ResourceType.TOPIC, once)
        wanted = [_new_partitions(topic) for topic in request.topics if topic.name in allowed]
        quota = self._quotas.mutations(call, STRICT_QUOTA_SINCE)
        try:
            outcomes = await self._controller.create_partitions(
                wanted, validate_only=request.validate_only, record=quota.record
            )
        except KafkaError as error:
            outcomes = dict.fromkeys(counts, (error.code, None))
        else:
            for name, count in items_of(counts.items()):
                if count > 1:
                    outcomes[name] = ErrorCode.INVALID_REQUEST, f"topic {name!r} is named {count} times in the request"
            for name in items_of(once):
                if name not in allowed:
                    outcomes[name] = ErrorCode.TOPIC_AUTHORIZATION_FAILED, "The topic authorization is failed."
        grown = {topic.name: topic.count for topic in request.topics if outcomes[topic.name][0] is ErrorCode.NONE}

        def answer() -> None:
            if not request.validate_only:
                for name, count in grown.items():
                    if request.timeout_ms <= 0 or not self._known.knows(name, count):
                        outcomes[name] = ErrorCode.REQUEST_TIMED_OUT, None
            self._quotas.throttle_mutations(call, quota)
            call.reply(
                m.CreatePartitionsResponse(
                    results=[
                        Result(name=name, error_code=code, error_message=message)
                        for name, (code, message) in items_of(outcomes.items())
                    ]
                )
            )

        if request.validate_only or not grown or request.timeout_ms <= 0:
            answer()
        else:  # so that clients find the new partitions, with their leaders, after the response
            self._known.wait(grown, request.timeout_ms, later(answer))


def _new_partitions(topic: m.CreatePartitionsRequest.CreatePartitionsTopic) -> NewPartitions:
    assignments = topic.assignments
    return NewPartitions(
        topic.name,
        topic.count,
        None if assignments is None else tuple(tuple(each.broker_ids) for each in assignments),
    )
