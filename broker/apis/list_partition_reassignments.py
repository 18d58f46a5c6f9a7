"""ListPartitionReassignments (key 46), version 0: the partition reassignments in progress (KIP-455).

Requested partitions without a reassignment, or that do not exist, are omitted.
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

Topic = m.ListPartitionReassignmentsResponse.OngoingTopicReassignment
Partition = m.ListPartitionReassignmentsResponse.OngoingPartitionReassignment


class ListPartitionReassignments:
    """Handles ListPartitionReassignments."""

    KEY = 46
    VERSIONS = (0, 0)

    def __init__(self, controller: Controller, request_tasks: RequestTasks, auth: AuthHelper) -> None:
        self._controller = controller
        self._request_tasks = request_tasks
        self._auth = auth

    def handle(
        self, call: Call, request: m.ListPartitionReassignmentsRequest
    ) -> m.ListPartitionReassignmentsResponse | None:
        try:
            self._auth.require_cluster(call, AclOperation.DESCRIBE)
        except KafkaError as error:
            return _refused(request, error)
        self._request_tasks.run(self._list(call, request), call.connection.close)
        return None

    async def _list(self, call: Call, request: m.ListPartitionReassignmentsRequest) -> None:
        wanted = request.topics
        partitions = (
            None
            if wanted is None
            else keep([(topic.name, index) for topic in wanted for index in items_of(topic.partition_indexes)])
        )
        try:
            moves = await self._controller.list_partition_reassignments(partitions)
        except KafkaError as error:
            call.reply(m.ListPartitionReassignmentsResponse(error_code=error.code, error_message=error.message))
            return
        topics: dict[str, m.ListPartitionReassignmentsResponse.OngoingTopicReassignment] = {}
        for (topic, index), move in items_of(moves.items()):
            topics.setdefault(topic, Topic(name=topic)).partitions.append(
                Partition(
                    partition_index=index,
                    replicas=list(move.replicas),
                    adding_replicas=list(move.adding),
                    removing_replicas=list(move.removing),
                )
            )
        call.reply(m.ListPartitionReassignmentsResponse(topics=list(topics.values())))


def _refused(request: m.ListPartitionReassignmentsRequest, error: KafkaError) -> m.ListPartitionReassignmentsResponse:
    """The error, and the requested partitions without content, like Kafka's."""
    return m.ListPartitionReassignmentsResponse(
        error_code=error.code,
        error_message=error.message,
        topics=[
            Topic(name=topic.name, partitions=[Partition(partition_index=index) for index in topic.partition_indexes])
            for topic in request.topics or ()
        ],
    )
