"""ListTransactions (key 66), versions 0 to 2: the transactional ids that this broker coordinates (KIP-664).

Filters: state and producer id, from version 1 on the duration of a transaction (KIP-994), from version 2 on a regular
expression that must match the whole id (KIP-1152).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import re2

from odradek.broker.runtime.timers import Clock
from odradek.broker.runtime.turns import each as items_of
from odradek.broker.security.auth_helper import AuthHelper
from odradek.broker.security.state.acls import AclOperation, ResourceType
from odradek.broker.transaction.coordinator import TransactionCoordinator
from odradek.broker.transaction.state.records import Status, TransactionMetadata
from odradek.protocol import messages as m
from odradek.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from odradek.broker.network.dispatcher import Call

_OPTIONS = re2.Options()
_OPTIONS.log_errors = False  # errors of clients do not belong on the broker's standard error
LABELS: Final = frozenset(status.label for status in Status)


class ListTransactions:
    """Handles ListTransactions."""

    KEY = 66
    VERSIONS = (0, 2)

    def __init__(self, transactions: TransactionCoordinator, clock: Clock, auth: AuthHelper) -> None:
        self._transactions = transactions
        self._clock = clock
        self._auth = auth

    def handle(self, call: Call, request: m.ListTransactionsRequest) -> m.ListTransactionsResponse:
        error, found = self._transactions.list_all()
        if error:
            return m.ListTransactionsResponse(error_code=error)
        pattern = None
        if request.transactional_id_pattern:
            try:
                pattern = re2.compile(request.transactional_id_pattern, options=_OPTIONS)
            except re2.error:
                return m.ListTransactionsResponse(error_code=ErrorCode.INVALID_REGULAR_EXPRESSION)
        return m.ListTransactionsResponse(
            unknown_state_filters=[each for each in request.state_filters if each not in LABELS],
            transaction_states=[
                m.ListTransactionsResponse.TransactionState(
                    transactional_id=each.transactional_id,
                    producer_id=each.metadata.producer_id,
                    transaction_state=each.metadata.status.label,
                )
                for each in items_of(found)
                if self._passes(request, each.metadata)
                and (pattern is None or pattern.fullmatch(each.transactional_id))
                and self._auth.authorize(
                    call, AclOperation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, each.transactional_id
                )
            ],
        )

    def _passes(self, request: m.ListTransactionsRequest, metadata: TransactionMetadata) -> bool:
        if request.producer_id_filters and metadata.producer_id not in request.producer_id_filters:
            return False
        if request.state_filters and metadata.status.label not in request.state_filters:
            return False
        # An id without a transaction has a start time before 1970, so its duration passes: Kafka lists it.
        return request.duration_filter < 0 or self._clock.now_ms() - metadata.started_ms > request.duration_filter
