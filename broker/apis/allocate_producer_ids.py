"""AllocateProducerIds (key 67), version 0: the controller allocates a block of producer ids to a broker (KIP-730).

Brokers send it to the controller; it takes CLUSTER_ACTION.
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


class AllocateProducerIds:
    """Handles AllocateProducerIds."""

    KEY = 67
    VERSIONS = (0, 0)

    def __init__(self, controller: Controller, request_tasks: RequestTasks, auth: AuthHelper) -> None:
        self._controller = controller
        self._request_tasks = request_tasks
        self._auth = auth

    def handle(self, call: Call, request: m.AllocateProducerIdsRequest) -> m.AllocateProducerIdsResponse | None:
        if not self._auth.authorize_cluster(call, AclOperation.CLUSTER_ACTION):
            return m.AllocateProducerIdsResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        self._request_tasks.run(self._allocate(call, request), call.connection.close)
        return None

    async def _allocate(self, call: Call, request: m.AllocateProducerIdsRequest) -> None:
        try:
            block = await self._controller.allocate_producer_ids(request.broker_id, request.broker_epoch)
        except KafkaError as error:
            call.reply(m.AllocateProducerIdsResponse(error_code=error.code))
            return
        call.reply(m.AllocateProducerIdsResponse(producer_id_start=block.start, producer_id_len=len(block)))
