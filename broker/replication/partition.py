"""One partition on this broker: its state machine, its log and its delayed operations (Kafka: Partition).

`Replica.produce` checks that the append is allowed, appends to the log, updates the state machine and completes delayed
operations. There is no `await` in between, so no other task runs between the check and the write. If the topic requires
a flush (`flush.messages`), the partition advances its end offset only after the fsync: until then the leader neither
acknowledges the batch nor returns it to a consumer. One fsync covers all appends that arrived during the previous one.

If the disk rejects a write, the partition goes offline (KAFKA_STORAGE_ERROR) and the broker continues.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

from odradek.broker.metadata.state.topics import INTERNAL_TOPICS
from odradek.broker.metrics.broker_metrics import TopicMetrics
from odradek.broker.replication.state.partition import (
    LEADER,
    NO_ERROR,
    LeaderAndIsr,
    PartitionMachine,
    PendingIsr,
    Role,
)
from odradek.broker.runtime.purgatory import Watchers, check_and_complete
from odradek.broker.runtime.timers import Clock
from odradek.protocol.batch import control_batch
from odradek.protocol.compression import DecompressedTooLarge
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.storage.compaction import Cleaned
from odradek.storage.config import AppendOrigin
from odradek.storage.config import LogConfig as LogConfig
from odradek.storage.flush import Flush
from odradek.storage.folder_changes import FolderChange
from odradek.storage.log import Log
from odradek.storage.producers import Verification
from odradek.storage.roll import SegmentFull as SegmentFull
from odradek.storage.segments import LogSlice
from odradek.storage.validation import BATCHES_SINCE, ON_LOOP_BYTES, Appended, Prepared, prepare_own

log = logging.getLogger(__name__)

READ_UNCOMMITTED = 0
READ_COMMITTED = 1
ACKS_ALL = -1
COORDINATOR = AppendOrigin.COORDINATOR
NO_FAILURES = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.KAFKA_STORAGE_ERROR,
    }
)
"""Errors that Kafka does not count as failed writes: they are expected, or counted elsewhere."""


class AlterPartitionManager(Protocol):
    """Sends a leader's AlterPartition requests to the controller."""

    def submit(self, replica: Replica, change: PendingIsr) -> None:
        """Request the change from the controller, and apply its answer to the replica."""
        ...


class Worker(Protocol):
    """Runs blocking calls off the event loop."""

    def run(self, work: Callable[[], None], done: Callable[[BaseException | None], None]) -> None:
        """Run `work` in a thread, then call `done` on the loop with the exception that it raised, or None."""
        ...


class Replica:
    """One partition of one topic on this broker."""

    __slots__ = (
        "_alter_partition_manager",
        "_clock",
        "_flushing",
        "_on_failure",
        "_worker",
        "is_internal",
        "log",
        "machine",
        "metrics",
        "partition",
        "topic",
        "topic_id",
        "watchers",
    )

    def __init__(
        self,
        log: Log,
        machine: PartitionMachine,
        clock: Clock,
        worker: Worker,
        alter_partition_manager: AlterPartitionManager,
        on_failure: Callable[[Replica], None],
    ) -> None:
        """`on_failure` is called when the log has gone offline; `log.failure` has the reason."""
        self.log = log
        self.machine = machine
        self.topic = log.topic
        self.partition = log.partition
        self.topic_id = log.topic_id
        self.is_internal = log.topic in INTERNAL_TOPICS
        self._clock = clock
        self._worker = worker
        self._alter_partition_manager = alter_partition_manager
        self._on_failure = on_failure
        self.watchers: Watchers = {}
        """The delayed operations that wait for a change of this partition."""
        self._flushing = False
        self.metrics = TopicMetrics()
        """Shared by the replicas of a topic, from `Replicas.add` on."""

    # ---- control requests

    def lead(self, state: LeaderAndIsr) -> None:
        """Apply a LeaderAndIsr request that names this broker as leader, also if it leads already. A new leader epoch
        starts at the end of the log.
        """
        machine = self.machine
        if state.leader_epoch > machine.leader_epoch:
            with self.disk():
                self.log.begin_epoch(state.leader_epoch)
        machine.cleaned(self.cleaned_to)
        machine.become_leader(state, self._clock.monotonic_ms())
        check_and_complete(self)

    def follow(self, state: LeaderAndIsr) -> None:
        """Apply a LeaderAndIsr request that names another broker as leader, or none."""
        self.machine.become_follower(state)
        check_and_complete(self)

    # ---- fetches of followers and the ISR

    def follower_fetched(
        self, replica_id: int, offset: int, start_offset: int, broker_epoch: int, cleaned_to: int = -1
    ) -> None:
        """A follower has all records below `offset` and has compacted its log below `cleaned_to` (-1 if it does not
        report that). Request its addition to the ISR if it is eligible. Raises KafkaError.
        """
        machine, now_ms = self.machine, self._clock.monotonic_ms()
        machine.cleaned(self.cleaned_to)
        known = machine.remotes.get(replica_id)
        start_before = known.start_offset if known is not None else start_offset
        if (
            machine.follower_fetched(
                replica_id, offset, now_ms, start_offset=start_offset, broker_epoch=broker_epoch, cleaned_to=cleaned_to
            )
            or start_offset != start_before
        ):
            check_and_complete(self)
        if replica_id not in machine.isr and machine.pending is None:
            change = machine.propose_expansion(replica_id)
            if change is not None:
                self._alter_partition_manager.submit(self, change)

    def shrink_isr(self) -> None:
        """Request an ISR without the followers that were not caught up for `replica.lag.time.max.ms`."""
        machine, now_ms = self.machine, self._clock.monotonic_ms()
        if machine.role is Role.LEADER and machine.remotes:
            if machine.reconsider(now_ms):
                check_and_complete(self)
            change = machine.propose_shrink(now_ms)
            if change is not None:
                self._alter_partition_manager.submit(self, change)

    # ---- writing

    def produce(
        self,
        records: memoryview | Prepared | None,
        acks: int,
        now_ms: int,
        api_version: int,
        verification: Verification | None = None,
        *,
        may_roll: bool = True,
    ) -> Appended:
        """Append one batch of a client; a transactional batch needs its `verification`.

        Raises KafkaError with the error of the state machine or the log, KAFKA_STORAGE_ERROR when the disk fails,
        DecompressedTooLarge where the batch has to be prepared in a thread, and unless `may_roll` SegmentFull where a
        thread has to create its segment (`start_roll` of the log).
        """
        machine, metrics = self.machine, self.metrics
        metrics.produces += 1
        try:
            if acks == ACKS_ALL or machine.role is not Role.LEADER:
                machine.check_may_append(acks)
            appended = self.log.append(
                records,
                leader_epoch=machine.leader_epoch,
                now_ms=now_ms,
                api_version=api_version,
                verification=verification,
                max_decompressed=ON_LOOP_BYTES,
                may_roll=may_roll,
            )
        except (DecompressedTooLarge, SegmentFull):
            metrics.produces -= 1  # it comes again when it is prepared
            raise
        except KafkaError as error:
            self._count_refusal(records, error.code)
            self._check_disk()
            raise
        if not appended.duplicate:
            metrics.bytes_in += len(records)  # type: ignore[arg-type]  # not None: the log rejects None
            metrics.messages_in += appended.last_offset - appended.first_offset + 1
            if api_version < BATCHES_SINCE:
                metrics.produce_conversions += appended.last_offset - appended.first_offset + 1
            if self.log.config.flushes or machine.remotes:
                self._grown(now_ms)
            else:  # the same, for most batches
                machine.appended(appended.last_offset + 1, 0)
                if self.watchers:
                    check_and_complete(self)
        return appended

    def _count_refusal(self, records: memoryview | Prepared | None, code: ErrorCode) -> None:
        if code is ErrorCode.MESSAGE_TOO_LARGE and records is not None:
            self.metrics.bytes_rejected += len(records)
        elif code not in NO_FAILURES:
            self.metrics.failed_produces += 1

    def begin_verification(
        self, producer_id: int, epoch: int, sequence: int, epoch_per_transaction: bool
    ) -> Verification:
        """The verification that a transactional batch needs: OPEN, or a guard while the transaction coordinator
        verifies the partition (Kafka: VerificationGuard).

        Raises KafkaError NOT_LEADER_OR_FOLLOWER or INVALID_PRODUCER_EPOCH.
        """
        if self.machine.role is not Role.LEADER:
            self.machine.check_may_append(ACKS_ALL)
        return self.log.producers.begin_verification(
            producer_id, epoch, sequence, epoch_per_transaction, self._clock.now_ms()
        )

    def prepare(self, entries: list[tuple[bytes, bytes | None]], now_ms: int) -> Prepared | None:
        """A batch of records that this broker makes itself, for `write`; None where the topic's configuration may
        change or refuse it.
        """
        return prepare_own(entries, self.log.config, now_ms)

    def write(self, records: bytearray | Prepared, now_ms: int, verification: Verification | None = None) -> int:
        """Append a batch that this broker made itself (group and offset records). Returns its end offset.

        A batch that belongs to a client's transaction needs its `verification`. Raises KafkaError as `produce` does
        with acks=all.
        """
        machine = self.machine
        if machine.role is not LEADER or len(machine.isr) < machine.min_isr:
            machine.check_may_append(ACKS_ALL)
        try:  # `disk` without the cost of a context manager: each commit of an offset is such a write
            appended = self.log.append(
                records,
                leader_epoch=machine.leader_epoch,
                now_ms=now_ms,
                origin=COORDINATOR,
                verification=verification,
            )
        except KafkaError:
            self._check_disk()
            raise
        metrics, end_offset = self.metrics, appended.last_offset + 1
        metrics.bytes_in += len(records)
        metrics.messages_in += end_offset - appended.first_offset
        if self.log.config.flushes or machine.remotes:
            self._grown(now_ms)
        else:  # the same, for most logs
            machine.appended(end_offset)
            if self.watchers:
                check_and_complete(self)
        return end_offset

    def end_transaction(
        self,
        producer_id: int,
        producer_epoch: int,
        coordinator_epoch: int,
        commit: bool,
        now_ms: int,
        *,
        epoch_per_transaction: bool = False,
    ) -> int:
        """Append the marker that ends a producer's transaction in this partition. Returns its end offset; `settled`
        with acks=all returns when it is durable.

        `epoch_per_transaction` selects the stricter check of transactions version 2. Raises KafkaError as `write`
        does, and INVALID_PRODUCER_EPOCH or TRANSACTION_COORDINATOR_FENCED for an outdated marker.
        """
        if epoch_per_transaction:
            self.log.producers.check_marker_epoch(producer_id, producer_epoch)
        batch = control_batch(
            commit=commit,
            coordinator_epoch=coordinator_epoch,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            timestamp_ms=now_ms,
        )
        return self.write(batch, now_ms)

    def _grown(self, now_ms: int) -> None:
        """After an append: start a flush if the topic requires one, otherwise advance the end offset and complete
        delayed operations.
        """
        log = self.log
        if log.config.flushes:
            if self._flushing:
                return  # the flush after the current one includes this batch
            if log.flush_due(now_ms):
                self._start_flush()
                return
        self._settle()

    def _settle(self, *, flushed: bool = False) -> None:
        """Advance the end offset: the appends meet the topic's flush policy."""
        machine = self.machine
        machine.appended(self.log.end_offset, self._clock.monotonic_ms() if machine.remotes else 0, flushed=flushed)
        if self.watchers:
            check_and_complete(self)

    def settled(self, end_offset: int, acks: int) -> ErrorCode | None:
        """NONE if a write that ends at `end_offset` may be acknowledged, or its error; None means not yet."""
        machine = self.machine
        if machine.role is not LEADER:
            return ErrorCode.KAFKA_STORAGE_ERROR if self.log.failure else ErrorCode.NOT_LEADER_OR_FOLLOWER
        if machine.local_end < end_offset:
            return None  # the fsync has not finished
        return NO_ERROR if acks >= 0 else machine.acknowledged(end_offset)

    # ---- flushing

    def flush_if_due(self, now_ms: int, scheduled: Worker) -> None:
        """Flush in a thread if `flush.ms` is over, or, as `scheduled` work, if rolled segments are not flushed yet."""
        if self._flushing or self.machine.role is Role.OFFLINE:
            return
        if self.log.flush_due(now_ms):
            self._start_flush()
        elif self.log.recovery_point < self.log.active.base_offset:
            self._start_flush(scheduled, rolled_only=True)

    def _start_flush(self, worker: Worker | None = None, *, rolled_only: bool = False) -> None:
        try:
            flush = self.log.start_flush(rolled_only=rolled_only)
        except KafkaError:
            self._check_disk()
            return
        self._flushing = True
        flushed = self.log  # another log may have replaced it when the fsync ends
        (worker or self._worker).run(
            flush.run, lambda error: self._flushed(flush, error if flushed is self.log else None)
        )

    def _flushed(self, flush: Flush, error: BaseException | None) -> None:
        self._flushing = False
        now_ms = self._clock.now_ms()
        if error is not None and not isinstance(error, OSError):
            error = OSError(f"the flush failed: {error!r}")
        try:
            self.log.finish_flush(flush, error, now_ms=now_ms)
        except KafkaError:
            self._check_disk()
            return
        if self.machine.role is Role.OFFLINE:
            return
        if self.log.flush_due(now_ms):
            # Batches arrived during the fsync: the flushed ones count now, the others after the next fsync.
            durable = max(self.machine.local_end, min(flush.end_offset, self.log.end_offset))
            self.machine.appended(durable, self._clock.monotonic_ms(), flushed=True)
            check_and_complete(self)
            self._start_flush()
        else:
            self._settle(flushed=True)

    # ---- reading

    def read(self, offset: int, max_bytes: int, *, upper: int, at_least_one: bool) -> LogSlice:
        """Whole batches from `offset` up to `upper` (exclusive).

        Raises KafkaError: OFFSET_OUT_OF_RANGE, KAFKA_STORAGE_ERROR.
        """
        try:
            return self.log.read(offset, max_bytes, end_offset=upper, at_least_one=at_least_one)
        except KafkaError:
            self._check_disk()
            raise

    @property
    def last_stable_offset(self) -> int:
        """The end of the data for a read_committed consumer: the high watermark, or the first offset of an open
        transaction below it.
        """
        log, high_watermark = self.log, self.machine.high_watermark
        if log.producers.first_unstable_offset is None:
            return high_watermark
        log.producers.on_high_watermark(high_watermark)
        unstable = log.first_unstable_offset
        return high_watermark if unstable is None else min(unstable, high_watermark)

    def readable_end(self, isolation_level: int) -> int:
        """The end (exclusive) of the data that a consumer of this isolation level may read."""
        return self.last_stable_offset if isolation_level == READ_COMMITTED else self.machine.high_watermark

    def start_retention(self, now_ms: int) -> FolderChange | None:
        """Apply retention by time and size, up to the high watermark; None if there is nothing to remove.

        The caller runs the change in a thread, then finishes it in the log. Raises KafkaError when the disk fails.
        """
        with self.disk():
            change = self.log.start_retention(high_watermark=self.machine.high_watermark, now_ms=now_ms)
        if change is not None:
            self._check_start_offset()
        return change

    def _check_start_offset(self) -> None:
        start, high_watermark = self.log.start_offset, self.machine.high_watermark
        assert start <= high_watermark, (
            f"{self.topic}-{self.partition}: log start offset {start} beyond the high watermark {high_watermark}"
        )

    def delete_records(self, offset: int) -> None:
        """Move the log start offset to `offset`. Raises KafkaError OFFSET_OUT_OF_RANGE beyond the high watermark."""
        with self.disk():
            moved = self.log.advance_start_offset(offset, high_watermark=self.machine.high_watermark)
        if moved:
            self._check_start_offset()
            check_and_complete(self)

    def low_watermark(self, runs: Callable[[int], bool]) -> int:
        """The smallest log start offset of this log and of the followers whose brokers run, from their last fetches."""
        followers = (each.start_offset for number, each in self.machine.remotes.items() if runs(number))
        return min((self.log.start_offset, *followers))

    # ---- compaction

    @property
    def cleaned_to(self) -> int:
        """The log is compacted below this offset; -1 if it was never compacted."""
        return self.log.cleaned_to

    def cleaned(self) -> None:
        """The cleaner has finished a pass over the log: update `machine.compacted_everywhere`."""
        self.machine.cleaned(self.cleaned_to)

    def start_swap(self, cleaned: Cleaned) -> FolderChange | None:
        """Replace segments with the cleaned ones; None if the log was truncated or has lost segments meanwhile.

        The caller runs the change in a thread, then finishes it in the log and calls `cleaned`. Raises KafkaError when
        the disk fails.
        """
        with self.disk():
            return self.log.start_swap(cleaned, now_ms=self._clock.now_ms())

    # ---- disk failure and removal

    @contextmanager
    def disk(self) -> Iterator[None]:
        """Take the partition offline if the disk fails in this block."""
        try:
            yield
        except KafkaError:
            self._check_disk()
            raise

    def _check_disk(self) -> None:
        """If the log has failed, take the partition offline and notify its delayed operations."""
        if self.log.failure is not None and self.machine.role is not Role.OFFLINE:
            log.error("partition offline topic=%s partition=%d error=%s", self.topic, self.partition, self.log.failure)
            self.machine.go_offline()
            self._on_failure(self)
            check_and_complete(self)

    def retire(self) -> None:
        """The partition leaves this broker (it is deleted, or the broker stops)."""
        self.machine.go_offline()
        check_and_complete(self)


class Replicas:
    """The partitions on this broker, by topic and index."""

    __slots__ = ("_names", "_topics", "metrics")

    def __init__(self) -> None:
        self.metrics: dict[str, TopicMetrics] = {}
        self._topics: dict[str | None, dict[int, Replica]] = {}
        self._names: dict[bytes, str] = {}

    def __iter__(self) -> Iterator[Replica]:
        for partitions in list(self._topics.values()):
            yield from list(partitions.values())

    def get(self, topic: str | None, partition: int) -> Replica | None:
        """The replica, None if this broker has none."""
        partitions = self._topics.get(topic)
        return partitions.get(partition) if partitions is not None else None

    def of_topic(self, topic: str) -> list[Replica]:
        """The replicas of one topic, by index."""
        return [replica for _, replica in sorted(self._topics.get(topic, {}).items())]

    def add(self, replica: Replica) -> None:
        """Add the replica of a partition."""
        replica.metrics = self.metrics.setdefault(replica.topic, replica.metrics)
        self._topics.setdefault(replica.topic, {})[replica.partition] = replica
        self._names[replica.topic_id] = replica.topic

    def name_of(self, topic_id: bytes) -> str | None:
        """The name of the topic with this id (16 bytes), None if this broker has no replica of it."""
        return self._names.get(topic_id)

    def remove(self, replica: Replica) -> None:
        """Remove the replica of a partition."""
        partitions = self._topics.get(replica.topic, {})
        if partitions.get(replica.partition) is replica:
            del partitions[replica.partition]
            if not partitions:
                del self._topics[replica.topic]
                del self.metrics[replica.topic]
                self._names.pop(replica.topic_id, None)
