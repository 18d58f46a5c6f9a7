"""EndTxn (key 26), versions 0 to 5: commit or abort a transaction.

The coordinator answers when the decision is durable; the markers follow. From version 5 on the producer uses
transactions version 2: the response contains the producer id and epoch of its next transaction (KIP-890). Version 2
supports PRODUCER_FENCED, 4 TRANSACTION_ABORTABLE.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from odradek.broker.security.auth_helper import AuthHelper
from odradek.broker.security.state.acls import AclOperation, ResourceType
from odradek.broker.transaction.coordinator import TransactionCoordinator
from odradek.broker.transaction.state.preparation import Owner
from odradek.broker.transaction.state.records import EPOCH_PER_TRANSACTION
from odradek.broker.transaction.state.transaction import Outcome
from odradek.protocol import messages as m
from odradek.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from odradek.broker.network.dispatcher import Call

KNOWS_FENCED: Final = 2
BUMPS_EPOCH: Final = 5


class EndTxn:
    """Handles EndTxn."""

    KEY = 26
    VERSIONS = (0, 5)

    def __init__(self, transactions: TransactionCoordinator, auth: AuthHelper) -> None:
        self._transactions = transactions
        self._auth = auth

    def handle(self, call: Call, request: m.EndTxnRequest) -> m.EndTxnResponse | None:
        resource, transactional_id = ResourceType.TRANSACTIONAL_ID, request.transactional_id
        if not self._auth.authorize(call, AclOperation.WRITE, resource, transactional_id):
            return m.EndTxnResponse(error_code=ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)

        def answer(outcome: Outcome) -> None:
            error = outcome.error
            if error is ErrorCode.PRODUCER_FENCED and call.version < KNOWS_FENCED:
                error = ErrorCode.INVALID_PRODUCER_EPOCH
            call.reply(
                m.EndTxnResponse(
                    error_code=error, producer_id=outcome.owner.producer_id, producer_epoch=outcome.owner.epoch
                )
            )

        version = EPOCH_PER_TRANSACTION if call.version >= BUMPS_EPOCH else 0
        owner = Owner(request.producer_id, request.producer_epoch)
        self._transactions.end(transactional_id, owner, request.committed, version, answer)
        return None
