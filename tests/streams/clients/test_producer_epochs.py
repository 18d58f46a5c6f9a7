"""Producer ids and epochs beside a scripted coordinator: what an abort after a failed batch requests (KIP-360), and
when a producer is fenced.
"""

from __future__ import annotations

import time
from typing import Any, cast

import pytest
from confluent_kafka import KafkaException

from odradek.protocol import messages as m
from odradek.protocol.errors import ErrorCode
from odradek.streams.clients.transactions import ProducerIdentity, Transactions, TransactionStatus
from tests.streams.clients.scripted import ScriptedNetwork

PLACE = ("t", 0)


def nothing() -> None:
    """Work while a call waits: none."""


class Coordinator:
    """Assigns the producer id 7 with ascending epochs. `codes` are the error codes of the next InitProducerId."""

    def __init__(self, *codes: int) -> None:
        self.codes = list(codes)
        self.epoch = -1
        self.network = cast(Any, ScriptedNetwork(self.answer))
        self.restarts = 0
        self.transactions = Transactions(self.network, "id", 1000, self.restarted)

    def restarted(self) -> None:
        self.restarts += 1

    def answer(self, request: Any) -> Any:
        if isinstance(request, m.FindCoordinatorRequest):
            return m.FindCoordinatorResponse(node_id=4, host="nowhere", port=1)
        if isinstance(request, m.AddPartitionsToTxnRequest):
            return m.AddPartitionsToTxnResponse(results_by_topic_v3_and_below=[])
        if isinstance(request, m.EndTxnRequest):
            return m.EndTxnResponse()
        code = self.codes.pop(0) if self.codes else 0
        self.epoch += not code
        return m.InitProducerIdResponse(error_code=code, producer_id=7, producer_epoch=self.epoch)

    def requests(self) -> list[Any]:
        """Those to the coordinator since the last call, without lookups."""
        sent = [request for _, request in self.network.sent if not isinstance(request, m.FindCoordinatorRequest)]
        self.network.sent.clear()
        return sent

    def begin(self) -> Transactions:
        """Open a transaction with one partition."""
        made = self.transactions
        made.register(time.monotonic() + 60, nothing)
        made.begin()
        assert not made.may_send(PLACE)
        made.drive(False)
        self.network.poll()
        assert made.may_send(PLACE)
        return made


def test_an_abort_after_a_failed_batch_raises_the_epoch() -> None:
    coordinator = Coordinator()
    made = coordinator.begin()
    assert (made.producer_id, made.epoch, coordinator.restarts) == (7, 0, 1)
    made.failed(ErrorCode.RECORD_LIST_TOO_LARGE, "too large")
    assert made.status is TransactionStatus.ABORTABLE
    assert not made.may_send(PLACE)
    with pytest.raises(KafkaException) as raised:
        made.commit(time.monotonic() + 60, nothing)
    assert raised.value.args[0].txn_requires_abort()
    coordinator.requests()
    made.abort(time.monotonic() + 60, nothing, sent=True)
    end, init = coordinator.requests()
    assert (end.committed, end.producer_epoch) == (False, 0)
    assert (init.producer_id, init.producer_epoch) == (7, 0)
    assert (made.producer_id, made.epoch, coordinator.restarts) == (7, 1, 2)
    made.begin()
    assert not made.may_send(PLACE), "the partition is added to the next transaction anew"


def test_an_abort_without_missing_records_keeps_the_epoch() -> None:
    coordinator = Coordinator()
    made = coordinator.begin()
    coordinator.requests()
    made.abort(time.monotonic() + 60, nothing, sent=False)
    (end,) = coordinator.requests()
    assert isinstance(end, m.EndTxnRequest)
    assert (made.epoch, coordinator.restarts) == (0, 1)


@pytest.mark.parametrize("code", [ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH])
def test_a_producer_whose_epoch_another_one_has_raised_is_fenced(code: int) -> None:
    coordinator = Coordinator(0, code)
    made = coordinator.begin()
    made.failed(ErrorCode.RECORD_LIST_TOO_LARGE, "too large")
    with pytest.raises(KafkaException) as raised:
        made.abort(time.monotonic() + 60, nothing, sent=True)
    assert raised.value.args[0].fatal()
    assert made.fatal is not None
    with pytest.raises(KafkaException):
        made.begin()


def test_a_registration_waits_for_the_end_of_the_previous_transaction() -> None:
    coordinator = Coordinator(ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.CONCURRENT_TRANSACTIONS)
    made = coordinator.begin()
    assert (made.producer_id, made.epoch, coordinator.restarts) == (7, 0, 1)


def test_an_idempotent_producer_gets_another_id_once_nothing_is_in_flight() -> None:
    coordinator = Coordinator()
    identity = ProducerIdentity(coordinator.network, coordinator.restarted)
    identity.drive(False)
    coordinator.network.poll()
    assert (identity.producer_id, identity.epoch, identity.restarting) == (7, 0, False)
    identity.failed(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, "out of order")
    coordinator.requests()
    identity._again_s = 0.0
    identity.drive(True)
    assert coordinator.requests() == []
    identity.drive(False)
    (init,) = coordinator.requests()
    assert (init.transactional_id, init.producer_id) == (None, -1)
    coordinator.network.poll()
    assert (identity.epoch, coordinator.restarts, identity.restarting) == (1, 2, False)
