"""A transaction that hangs: a batch of one that no coordinator will ever end."""

from __future__ import annotations

from typing import Final

from odradek.protocol import messages as m
from odradek.wire import Wire, parse_address
from tests.commands.running import Running
from tests.storage.batches import batch
from tests.support.eventually import eventually

HANGING_PRODUCER: Final = 770_000
VERIFICATION: Final = "transaction.partition.verification.enable"


def leave_hanging(side: Running, topic: str) -> None:
    """Write the batch, with old timestamps, while the broker does not verify transactions."""
    side.done("config", "set", "broker", "default", f"{VERIFICATION}=false")
    try:
        _write(side, topic)
    finally:
        side.done("config", "unset", "broker", "default", VERIFICATION)


def _write(side: Running, topic: str) -> None:
    records = batch(3, producer=(HANGING_PRODUCER, 7, 0), transactional=True)
    part = m.ProduceRequest.PartitionProduceData(index=0, records=records)
    topics = [m.ProduceRequest.TopicProduceData(name=topic, partition_data=[part])]
    request = m.ProduceRequest(transactional_id="unknown", acks=-1, timeout_ms=10_000, topic_data=topics)
    with Wire(*parse_address(side.bootstrap), timeout_s=30) as wire:
        # The dynamic configuration takes a moment to arrive.
        eventually(
            lambda: wire.ask(request, 9).responses[0].partition_responses[0].error_code,
            lambda error: error == 0,
            "the batch is accepted",
        )
