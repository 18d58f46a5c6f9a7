"""AddOffsetsToTxn (key 25), versions 0 to 4: add a group's offsets to a transaction.

The coordinator adds the group's partition of `__consumer_offsets` to the transaction. Version 2 supports
PRODUCER_FENCED, 4 TRANSACTION_ABORTABLE.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from odradek.broker.group.coordinator import GroupCoordinator
from odradek.broker.metadata.state.topics import GROUP_OFFSETS
from odradek.broker.security.auth_helper import AuthHelper
from odradek.broker.security.state.acls import AclOperation, ResourceType
from odradek.broker.transaction.coordinator import TransactionCoordinator
from odradek.broker.transaction.state.preparation import Owner
from odradek.broker.transaction.state.transaction import Outcome
from odradek.protocol import messages as m
from odradek.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from odradek.broker.network.dispatcher import Call

KNOWS_FENCED: Final = 2


class AddOffsetsToTxn:
    """Handles AddOffsetsToTxn."""

    KEY = 25
    VERSIONS = (0, 4)

    def __init__(
        self, transactions: TransactionCoordinator, group_coordinator: GroupCoordinator, auth: AuthHelper
    ) -> None:
        self._transactions = transactions
        self._group_coordinator = group_coordinator
        self._auth = auth

    def handle(self, call: Call, request: m.AddOffsetsToTxnRequest) -> m.AddOffsetsToTxnResponse | None:
        def answer(outcome: Outcome) -> None:
            error = outcome.error
            if error is ErrorCode.PRODUCER_FENCED and call.version < KNOWS_FENCED:
                error = ErrorCode.INVALID_PRODUCER_EPOCH
            call.reply(m.AddOffsetsToTxnResponse(error_code=error))

        auth = self._auth
        if not auth.authorize(call, AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id):
            return m.AddOffsetsToTxnResponse(error_code=ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        if not auth.authorize(call, AclOperation.READ, ResourceType.GROUP, request.group_id):
            return m.AddOffsetsToTxnResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
        partition = (GROUP_OFFSETS, self._group_coordinator.partition_of(request.group_id))
        owner = Owner(request.producer_id, request.producer_epoch)
        self._transactions.add(request.transactional_id, owner, [partition], 0, answer)
        return None
