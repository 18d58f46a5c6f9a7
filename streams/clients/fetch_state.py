"""Fetch state of one assigned partition (Kafka: SubscriptionState.TopicPartitionState)."""

from __future__ import annotations

from typing import Final

from odradek.protocol.topic_partition import TopicPartition
from odradek.streams.clients.metadata import Leader

BEGINNING: Final = -2
END: Final = -1
"""Logical offsets: those of the protocol, and of librdkafka."""


class FetchState:
    """Where an assigned partition is read. `position` is the offset of the next fetch."""

    __slots__ = (
        "consumed",
        "end_notified",
        "epoch",
        "failed",
        "high",
        "last_stable",
        "low",
        "offset_requested",
        "paused",
        "place",
        "position",
        "replica",
        "replica_until_s",
        "retry_at_s",
        "validated",
    )

    def __init__(self, place: TopicPartition, offset: int) -> None:
        self.place = place
        self.position = offset
        """An offset, or a logical one until the leader has returned it."""
        self.consumed = offset
        """The offset behind the last record that was returned; logical before the first."""
        self.epoch = -1
        """The leader epoch of the last fetched batch; -1 where it is not known."""
        self.validated: Leader | None = None
        """The leader whose log contains the position with its epoch; None where that is not known."""
        self.paused = False
        self.failed = False
        """Whether an error that the application handles stopped the partition."""
        self.offset_requested = False
        self.low = self.high = self.last_stable = -1
        self.end_notified = -1
        """The position at which the end of the partition was notified; -1 where it was not."""
        self.replica = -1
        self.replica_until_s = 0.0
        """The node to read from in place of the leader, and until when (KIP-392)."""
        self.retry_at_s = 0.0

    @property
    def is_logical(self) -> bool:
        """Whether the position is not an offset yet."""
        return self.position < 0

    def end(self, committed_only: bool) -> int:
        """The offset behind the last record that a fetch can return, as of the last fetch."""
        return self.last_stable if committed_only else self.high
