"""Small requests of transactional producers."""

from __future__ import annotations

from typing import Final

from odradek.protocol import messages as m
from tests.benchmarks.request_loads import Prepared, ask_ready, prepared

PRODUCERS: Final = 256
"""Producers of one connection, which take turns: the markers of a transaction are written by the time that its producer
begins the next one, which would be rejected before that.
"""
VERSION: Final = 3
TRANSACTION: Final = 1
"""The type of a coordinator's key."""


def transaction(bootstrap: str, topic: str, number: int) -> Prepared:
    """AddPartitionsToTxn for one partition, then EndTxn, of one producer after the other."""
    requests: list[Prepared] = []
    for index in range(PRODUCERS):
        transactional_id = f"{topic}-{number}-{index}"
        if not index:
            ask_ready(bootstrap, m.FindCoordinatorRequest(key=transactional_id, key_type=TRANSACTION), 3)
        init = m.InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=600_000)
        producer = ask_ready(bootstrap, init, VERSION)
        add = m.AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=transactional_id,
            v3_and_below_producer_id=producer.producer_id,
            v3_and_below_producer_epoch=producer.producer_epoch,
            v3_and_below_topics=[
                m.AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name=topic, partitions=[0]),
            ],
        )
        end = m.EndTxnRequest(
            transactional_id=transactional_id,
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            committed=True,
        )
        requests += [prepared(add, VERSION), prepared(end, VERSION)]
    first, *others = requests
    return first._replace(others=tuple(others), checks_all=True)
