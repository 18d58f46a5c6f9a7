"""DescribeTransactions (key 65), version 0: the state of transactional ids, from their coordinator (KIP-664)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.broker.security.auth_helper import AuthHelper
from odradek.broker.security.state.acls import AclOperation, ResourceType
from odradek.broker.transaction.coordinator import TransactionCoordinator
from odradek.protocol import messages as m
from odradek.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from odradek.broker.network.dispatcher import Call

State = m.DescribeTransactionsResponse.TransactionState


class DescribeTransactions:
    """Handles DescribeTransactions."""

    KEY = 65
    VERSIONS = (0, 0)

    def __init__(self, transactions: TransactionCoordinator, auth: AuthHelper) -> None:
        self._transactions = transactions
        self._auth = auth

    def handle(self, call: Call, request: m.DescribeTransactionsRequest) -> m.DescribeTransactionsResponse:
        return m.DescribeTransactionsResponse(
            transaction_states=[self._describe(call, each) for each in request.transactional_ids]
        )

    def _describe(self, call: Call, transactional_id: str) -> State:
        auth, resource = self._auth, ResourceType.TRANSACTIONAL_ID
        if not auth.authorize(call, AclOperation.DESCRIBE, resource, transactional_id):
            error = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
            return State(error_code=error, transactional_id=transactional_id)
        error, metadata = self._transactions.describe(transactional_id)
        if metadata is None:
            return State(error_code=error, transactional_id=transactional_id)
        topics: dict[str, list[int]] = {}
        for topic, index in sorted(metadata.partitions):
            topics.setdefault(topic, []).append(index)
        described = auth.filter_by_authorized(call, AclOperation.DESCRIBE, ResourceType.TOPIC, topics)
        return State(
            transactional_id=transactional_id,
            transaction_state=metadata.status.label,
            transaction_timeout_ms=metadata.timeout_ms,
            transaction_start_time_ms=metadata.started_ms,
            producer_id=metadata.producer_id,
            producer_epoch=metadata.epoch,
            topics=[
                m.DescribeTransactionsResponse.TopicData(topic=name, partitions=indexes)
                for name, indexes in topics.items()
                if name in described
            ],
        )
