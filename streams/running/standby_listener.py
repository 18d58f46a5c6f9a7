"""Listener of standby tasks: the progress of their stores (Kafka: StandbyUpdateListener, KIP-988)."""

from __future__ import annotations

import enum

from odradek.protocol.topic_partition import TopicPartition
from odradek.streams.records import TaskId


class SuspendReason(enum.Enum):
    """Why a standby is no longer updated (StandbyUpdateListener.SuspendReason)."""

    MIGRATED = enum.auto()
    """It was closed: it moved to another instance, or the client ends."""
    PROMOTED = enum.auto()
    """It became an active task on this thread."""


class StandbyUpdateListener:
    """Receives the progress of standby tasks. Override what is of interest; stream threads call it, and a slow listener
    delays them. `current_end` is the end offset of the changelog as of the last fetch; -1 where there was none.
    """

    def on_update_start(self, changelog: TopicPartition, store: str, start: int) -> None:
        """The store is updated from this offset on."""

    def on_batch_loaded(
        self, changelog: TopicPartition, store: str, task_id: TaskId, batch_end: int, count: int, current_end: int
    ) -> None:
        """A batch of `count` records is loaded; `batch_end` is the offset of the last of them."""

    def on_update_suspended(
        self, changelog: TopicPartition, store: str, store_offset: int, current_end: int, reason: SuspendReason
    ) -> None:
        """The store is no longer updated; `store_offset` is the offset of the last record that it contains."""
