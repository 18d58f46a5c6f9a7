"""AlterPartition (key 56), versions 0 to 3: a leader requests a new ISR from the controller (KIP-497).

Brokers send it to the controller; it takes CLUSTER_ACTION. Version 1 adds the recovery state of the leader (KIP-704), 2
topic ids in place of names (KIP-841), 3 the epochs of the brokers in the ISR (KIP-903).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.broker.controller.controller import Controller
from odradek.broker.runtime.request_tasks import RequestTasks
from odradek.broker.security.auth_helper import AuthHelper
from odradek.broker.security.state.acls import AclOperation
from odradek.protocol import messages as m
from odradek.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from odradek.broker.network.dispatcher import Call


class AlterPartition:
    """Handles AlterPartition."""

    KEY = 56
    VERSIONS = (0, 3)

    def __init__(self, controller: Controller, request_tasks: RequestTasks, auth: AuthHelper) -> None:
        self._controller = controller
        self._request_tasks = request_tasks
        self._auth = auth

    def handle(self, call: Call, request: m.AlterPartitionRequest) -> m.AlterPartitionResponse | None:
        if not self._auth.authorize_cluster(call, AclOperation.CLUSTER_ACTION):
            return m.AlterPartitionResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        self._request_tasks.run(self._alter(call, request), call.connection.close)
        return None

    async def _alter(self, call: Call, request: m.AlterPartitionRequest) -> None:
        try:
            response = await self._controller.alter_partition(request, call.version)
        except KafkaError as error:
            response = m.AlterPartitionResponse(error_code=error.code)
        call.reply(response)
