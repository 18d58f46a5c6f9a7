"""AlterPartitionReassignments (key 45), versions 0 and 1: start or cancel reassignments of partitions (KIP-455).

Version 1 can forbid a change of the replication factor (KIP-860).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.broker.controller.controller import Controller
from odradek.broker.runtime.request_tasks import RequestTasks
from odradek.broker.runtime.turns import each as items_of
from odradek.broker.runtime.turns import keep
from odradek.broker.security.auth_helper import AuthHelper
from odradek.broker.security.state.acls import AclOperation
from odradek.protocol import messages as m
from odradek.protocol.errors import KafkaError

if TYPE_CHECKING:
    from odradek.broker.network.dispatcher import Call

TopicResponse = m.AlterPartitionReassignmentsResponse.ReassignableTopicResponse
PartitionResponse = m.AlterPartitionReassignmentsResponse.ReassignablePartitionResponse


class AlterPartitionReassignments:
    """Handles AlterPartitionReassignments."""

    KEY = 45
    VERSIONS = (0, 1)

    def __init__(self, controller: Controller, request_tasks: RequestTasks, auth: AuthHelper) -> None:
        self._controller = controller
        self._request_tasks = request_tasks
        self._auth = auth

    def handle(
        self, call: Call, request: m.AlterPartitionReassignmentsRequest
    ) -> m.AlterPartitionReassignmentsResponse | None:
        try:
            self._auth.require_cluster(call, AclOperation.ALTER)
        except KafkaError as error:
            return _refused(request, error)
        self._request_tasks.run(self._reassign(call, request), call.connection.close)
        return None

    async def _reassign(self, call: Call, request: m.AlterPartitionReassignmentsRequest) -> None:
        allowed = request.allow_replication_factor_change
        response = m.AlterPartitionReassignmentsResponse(allow_replication_factor_change=allowed)
        wanted = keep(
            {
                (topic.name, each.partition_index): None if each.replicas is None else tuple(each.replicas)
                for topic in request.topics
                for each in topic.partitions
            }
        )
        try:
            outcomes = await self._controller.alter_partition_reassignments(wanted, allow_factor_change=allowed)
        except KafkaError as error:
            response.error_code, response.error_message = error.code, error.message
            call.reply(response)
            return
        topics: dict[str, m.AlterPartitionReassignmentsResponse.ReassignableTopicResponse] = {}
        for (topic, index), (code, message) in items_of(outcomes.items()):
            result = topics.setdefault(topic, TopicResponse(name=topic))
            result.partitions.append(PartitionResponse(partition_index=index, error_code=code, error_message=message))
        response.responses = list(topics.values())
        call.reply(response)


def _refused(request: m.AlterPartitionReassignmentsRequest, error: KafkaError) -> m.AlterPartitionReassignmentsResponse:
    """The error for the request, and for each of its partitions."""
    code, message = error.code, error.message
    return m.AlterPartitionReassignmentsResponse(
        error_code=code,
        error_message=message,
        responses=[
            TopicResponse(
                name=topic.name,
                partitions=[
                    PartitionResponse(partition_index=each.partition_index, error_code=code, error_message=message)
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        ],
    )
