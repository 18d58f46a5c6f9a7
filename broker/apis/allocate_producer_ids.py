"""AllocateProducerIds (key 67), version 0: the controller allocates a block of producer ids to a broker (KIP-730).

Brokers send it to the controller.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.broker.controller.controller import Controller
from odradek.broker.runtime.request_tasks import RequestTasks
from odradek.protocol import messages as m
from odradek.protocol.errors import KafkaError

if TYPE_CHECKING:
    from odradek.broker.network.dispatcher import Call


class AllocateProducerIds:
    """Handles AllocateProducerIds."""

    KEY = 67
    VERSIONS = (0, 0)

    def __init__(self, controller: Controller, request_tasks: RequestTasks) -> None:
        self._controller = controller
        self._request_tasks = request_tasks

    def handle(self, call: Call, request: m.AllocateProducerIdsRequest) -> None:
        self._request_tasks.run(self._allocate(call, request), call.connection.close)

    async def _allocate(self, call: Call, request: m.AllocateProducerIdsRequest) -> None:
        try:
            block = await self._controller.allocate_producer_ids(request.broker_id, request.broker_epoch)
        except KafkaError as error:
            call.reply(m.AllocateProducerIdsResponse(error_code=error.code))
            return
        call.reply(m.AllocateProducerIdsResponse(producer_id_start=block.start, producer_id_len=len(block)))
