"""InitProducerId (key 22), versions 0 to 5: a producer id for an idempotent producer (KIP-98).

An id comes from a block that the controller hands out, so no two producers of a cluster share one. A transactional id
asks for a coordinator of transactions, which is not there yet: COORDINATOR_NOT_AVAILABLE.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.broker.producer_ids import ProducerIds
from odradek.protocol import messages as m
from odradek.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from odradek.broker.dispatch import Call


class InitProducerId:
    """Ids of producers."""

    KEY = 22
    VERSIONS = (0, 5)

    def __init__(self, producer_ids: ProducerIds) -> None:
        self._producer_ids = producer_ids

    def handle(self, call: Call, request: m.InitProducerIdRequest) -> m.InitProducerIdResponse | None:
        if request.transactional_id is not None:
            code = ErrorCode.COORDINATOR_NOT_AVAILABLE if request.transactional_id else ErrorCode.INVALID_REQUEST
            return m.InitProducerIdResponse(error_code=code, producer_id=-1, producer_epoch=-1)
        self._producer_ids.take(lambda producer_id, error: call.reply(_answer(producer_id, error)))
        return None


def _answer(producer_id: int, error: ErrorCode) -> m.InitProducerIdResponse:
    epoch = 0 if error is ErrorCode.NONE else -1
    return m.InitProducerIdResponse(error_code=error, producer_id=producer_id, producer_epoch=epoch)
