"""Follower replica: appends records of the leader to a log, and truncates it (Kafka: ReplicaFetcherThread, Partition).

The fetcher of a leader has one `FollowerReplica` for each partition that it fetches.
"""

from __future__ import annotations

import logging

from odradek.broker.replication.partition import Replica
from odradek.broker.replication.state.follower import FetchPosition, truncation_offset
from odradek.broker.replication.state.partition import Role
from odradek.broker.runtime.purgatory import check_and_complete
from odradek.broker.runtime.timers import Clock
from odradek.storage.log import Epochs
from odradek.storage.validation import ReceivedRun

logger = logging.getLogger(__name__)


class FollowerReplica:
    """A replica whose records a fetcher gets from the leader."""

    __slots__ = ("_clock", "replica")

    def __init__(self, replica: Replica, clock: Clock) -> None:
        self.replica = replica
        self._clock = clock

    def fetch_position(self, leader_epoch: int) -> FetchPosition:
        """The position of the next fetch from the leader."""
        replica, log = self.replica, self.replica.log
        if log.epochs.latest < 0 and replica.machine.high_watermark < log.end_offset:
            # A log without leader epochs (older than KIP-101) can only be truncated to its high watermark.
            self.truncate_to(replica.machine.high_watermark)
        cleaned_to = max(0, replica.cleaned_to)
        return FetchPosition(log.end_offset, log.epochs.latest, leader_epoch, log.start_offset, cleaned_to)

    def replicate(
        self,
        asked: FetchPosition,
        records: memoryview | ReceivedRun | None,
        high_watermark: int,
        log_start_offset: int,
        compacted_everywhere: int = -1,
        epochs: Epochs = (),
    ) -> None:
        """Append the records that the leader returned for the fetch at `asked`, and apply the leader's high watermark
        and log start offset.

        `compacted_everywhere` is -1 if the leader does not send it; `epochs` has (epoch, start offset) of the leader
        epochs that start in the records. Raises KafkaError if the records do not fit the log, or the disk fails.
        """
        replica = self.replica
        machine, log = replica.machine, replica.log
        if machine.role is not Role.FOLLOWER or asked.leader_epoch != machine.leader_epoch:
            return
        machine.received_compacted(compacted_everywhere)
        if asked.fetch_offset != log.end_offset:
            return
        with replica.disk():
            if records:
                now_ms = self._clock.now_ms()
                log.append_replicated(records, now_ms=now_ms, leader_epoch=asked.leader_epoch, epochs=epochs)
                replica.metrics.replication_bytes_in += len(records)
                if log.config.flushes and log.flush_due(now_ms):
                    # The next fetch acknowledges these records to the leader, so they have to be durable first.
                    log.flush(now_ms=now_ms)
            moved = machine.replicated(log.end_offset, high_watermark)
            assert machine.high_watermark <= log.end_offset, (
                f"{replica.topic}-{replica.partition}: high watermark {machine.high_watermark} beyond {log.end_offset}"
            )
            start = min(log_start_offset, machine.high_watermark)
            if start > log.start_offset:
                log.advance_start_offset(start, high_watermark=machine.high_watermark)
        if moved and replica.watchers:
            check_and_complete(replica)

    def truncate_to_divergence(self, leader_epoch: int, leader_end: int, asked: FetchPosition) -> None:
        """Truncate the log: the leader has another end offset for the last epoch of this log (a diverging epoch).

        Raises KafkaError when the disk fails.
        """
        machine, log = self.replica.machine, self.replica.log
        if machine.role is not Role.FOLLOWER or asked.leader_epoch != machine.leader_epoch:
            return
        self.truncate_to(truncation_offset(leader_epoch, leader_end, log.epochs, log.end_offset, asked.fetch_offset))

    def truncate_to(self, offset: int) -> None:
        """Truncate the log to `offset`. Raises KafkaError when the disk fails."""
        replica = self.replica
        if offset < replica.machine.high_watermark:
            logger.warning(
                "truncating log below high watermark topic=%s partition=%d offset=%d high_watermark=%d",
                replica.topic,
                replica.partition,
                offset,
                replica.machine.high_watermark,
            )
        with replica.disk():
            replica.log.truncate_to(offset, now_ms=self._clock.now_ms())
        replica.machine.truncated(replica.log.end_offset)

    def truncate_fully_and_start_at(self, leader_start: int) -> None:
        """Restart the log at `leader_start`, the leader's log start offset, if it ends below that offset."""
        replica, machine = self.replica, self.replica.machine
        if leader_start > replica.log.end_offset:
            with replica.disk():
                replica.log.truncate_fully(leader_start, now_ms=self._clock.now_ms())
            machine.truncated(replica.log.end_offset)
            machine.replicated(replica.log.end_offset, leader_start)
