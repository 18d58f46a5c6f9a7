"""Searches for offsets by time that need a thread (Kafka: ReplicaManager.fetchOffset).

A search reads the records of a batch. Where there are many, or where they decompress to much, a thread reads them, and
the search begins again with the result.
"""

from __future__ import annotations

from odradek.protocol import messages as m
from odradek.storage.log_search import Known, SlowBatch

__all__ = ["Known", "SlowBatch", "SlowSearch"]


class SlowSearch:
    """The search in one partition, while a thread reads a batch of it."""

    __slots__ = ("answer", "batch", "known", "name", "partition")

    def __init__(
        self,
        name: str,
        partition: m.ListOffsetsRequest.ListOffsetsPartition,
        answer: m.ListOffsetsResponse.ListOffsetsPartitionResponse,
        batch: SlowBatch,
    ) -> None:
        self.name = name
        self.partition = partition
        self.answer = answer
        self.batch = batch
        self.known: Known = {}

    def read(self) -> None:
        """Read the batch; in any thread."""
        self.known[self.batch.base_offset] = self.batch.read()
