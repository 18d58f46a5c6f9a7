"""Undelivered batches: their records, for reports and for smaller batches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from odradek.streams.clients.accumulator import Accumulator
from odradek.streams.clients.received import ReceivedRecords, inflate


def records_of(batch: Any) -> Sequence[Any]:
    """The records of a batch as messages, in their order."""
    batch.seal(-1, -1, -1, 0)
    records: Sequence[Any] = ReceivedRecords(batch.view(), batch.topic, batch.partition, 0, (), inflate).take(
        batch.count
    )
    return records


def halves(batch: Any) -> Sequence[Any]:
    """The records of a batch in batches of about half its size."""
    size = len(batch)
    smaller = Accumulator(size // 2 + 1, 2 * size, 4 * size + (1 << 20), batch.count + 1, 0, lambda _: 0, None)
    smaller.set_partitions(batch.topic, batch.partition + 1)
    for record, origin in zip(records_of(batch), batch.origins(), strict=True):
        time_ms, headers = record.timestamp()[1], record.headers()
        smaller.produce(batch.topic, record.value(), record.key(), batch.partition, origin, None, time_ms, headers)
    batches: Sequence[Any] = smaller.due(float("inf"))
    return batches
