"""ControlledShutdown (key 7), versions 0 to 3: move leadership away from a broker that is about to stop.

Brokers send it to the controller; it takes CLUSTER_ACTION. Version 2 adds the epoch of the broker (KIP-380). The
response contains the partitions that the broker still leads because no other replica can.
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

Remaining = m.ControlledShutdownResponse.RemainingPartition


class ControlledShutdown:
    """Handles ControlledShutdown."""

    KEY = 7
    VERSIONS = (0, 3)

    def __init__(self, controller: Controller, request_tasks: RequestTasks, auth: AuthHelper) -> None:
        self._controller = controller
        self._request_tasks = request_tasks
        self._auth = auth

    def handle(self, call: Call, request: m.ControlledShutdownRequest) -> m.ControlledShutdownResponse | None:
        if not self._auth.authorize_cluster(call, AclOperation.CLUSTER_ACTION):
            return m.ControlledShutdownResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        self._request_tasks.run(self._shut_down(call, request), call.connection.close)
        return None

    async def _shut_down(self, call: Call, request: m.ControlledShutdownRequest) -> None:
        try:
            remaining = await self._controller.controlled_shutdown(request.broker_id, request.broker_epoch)
        except KafkaError as error:
            # For this API alone, a Kafka broker that is not the controller throws ControllerMovedException.
            moved = error.code is ErrorCode.NOT_CONTROLLER
            code = ErrorCode.STALE_CONTROLLER_EPOCH if moved else error.code
            call.reply(m.ControlledShutdownResponse(error_code=code))
            return
        call.reply(
            m.ControlledShutdownResponse(
                remaining_partitions=[Remaining(topic_name=topic, partition_index=index) for topic, index in remaining]
            )
        )
