"""InitProducerId (key 22), versions 0 to 5: producer ids for idempotent producers, new epochs for transactional ids.

An idempotent producer gets an unused producer id, with epoch 0. The coordinator of a transactional id gives the
producer the next epoch and fences the former owner (KIP-98). From version 3 on a producer may send its former id and
epoch, and continues in the next epoch only if it still owns the transactional id (KIP-360); version 4 supports
PRODUCER_FENCED, 5 TRANSACTION_ABORTABLE.

A transactional producer has to be authorized to write to its transactional id, an idempotent producer to write to some
topic or, as in older releases, for IDEMPOTENT_WRITE on the cluster (KIP-679).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from odradek.broker.security.auth_helper import AuthHelper
from odradek.broker.security.state.acls import AclOperation, ResourceType
from odradek.broker.transaction.coordinator import TransactionCoordinator
from odradek.broker.transaction.producer_ids import ProducerIds
from odradek.broker.transaction.state.preparation import Owner
from odradek.broker.transaction.state.records import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from odradek.broker.transaction.state.transaction import Outcome
from odradek.protocol import messages as m
from odradek.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from odradek.broker.network.dispatcher import Call

KNOWS_FENCED: Final = 4
NO_MEMBER: Final = Owner(NO_PRODUCER_ID, NO_PRODUCER_EPOCH)


class InitProducerId:
    """Handles InitProducerId."""

    KEY = 22
    VERSIONS = (0, 5)

    def __init__(self, producer_ids: ProducerIds, transactions: TransactionCoordinator, auth: AuthHelper) -> None:
        self._producer_ids = producer_ids
        self._transactions = transactions
        self._auth = auth

    def handle(self, call: Call, request: m.InitProducerIdRequest) -> m.InitProducerIdResponse | None:
        refusal = self._refusal(call, request.transactional_id)
        if refusal:
            return _answer(call, Outcome(refusal))
        expected = Owner(request.producer_id, request.producer_epoch)
        if (expected.producer_id == NO_PRODUCER_ID) != (expected.epoch == NO_PRODUCER_EPOCH):
            return _answer(call, Outcome(ErrorCode.INVALID_REQUEST))
        if request.transactional_id is None:
            self._producer_ids.take(
                lambda producer_id, error: call.reply(_answer(call, Outcome(error, Owner(producer_id, 0))))
            )
            return None
        self._transactions.init(
            request.transactional_id,
            request.transaction_timeout_ms,
            None if expected == NO_MEMBER else expected,
            lambda outcome: call.reply(_answer(call, outcome)),
        )
        return None

    def _refusal(self, call: Call, transactional_id: str | None) -> ErrorCode:
        auth = self._auth
        if transactional_id is not None:
            if auth.authorize(call, AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id):
                return ErrorCode.NONE
            return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        if auth.authorize_cluster(call, AclOperation.IDEMPOTENT_WRITE, log_if_denied=False):
            return ErrorCode.NONE
        if auth.authorize_by_resource_type(call, AclOperation.WRITE, ResourceType.TOPIC):
            return ErrorCode.NONE
        return ErrorCode.CLUSTER_AUTHORIZATION_FAILED


def _answer(call: Call, outcome: Outcome) -> m.InitProducerIdResponse:
    error = outcome.error
    if error is ErrorCode.PRODUCER_FENCED and call.version < KNOWS_FENCED:
        error = ErrorCode.INVALID_PRODUCER_EPOCH
    owner = NO_MEMBER if error else outcome.owner
    return m.InitProducerIdResponse(error_code=error, producer_id=owner.producer_id, producer_epoch=owner.epoch)
