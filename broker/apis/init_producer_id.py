"""InitProducerId (key 22), versions 0 to 5: a producer id for an idempotent producer (KIP-98).

An id comes from a block that the registry hands out, so no two producers of a cluster share one. A transactional id
asks for a coordinator of transactions, which is not there yet: COORDINATOR_NOT_AVAILABLE.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.broker.controller import Controller
from odradek.protocol import messages as m
from odradek.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from odradek.broker.dispatch import Call


class InitProducerId:
    """Ids of producers."""

    KEY = 22
    VERSIONS = (0, 5)

    def __init__(self, controller: Controller) -> None:
        self._controller = controller

    def handle(self, call: Call, request: m.InitProducerIdRequest) -> m.InitProducerIdResponse | None:
        if request.transactional_id is not None:
            code = ErrorCode.COORDINATOR_NOT_AVAILABLE if request.transactional_id else ErrorCode.INVALID_REQUEST
            return m.InitProducerIdResponse(error_code=code, producer_id=-1, producer_epoch=-1)
        producer_id = self._controller.next_producer_id()
        if producer_id is not None:
            return m.InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)
        self._controller.submit(self._answer(call), call.connection.close)
        return None

    async def _answer(self, call: Call) -> None:
        producer_id = await self._controller.allocate_producer_id()
        call.reply(m.InitProducerIdResponse(producer_id=producer_id, producer_epoch=0))
