"""One partition on this broker: its machine, its log, and the requests that wait for either.

The way of one batch is here: `Replica.produce` asks the machine for leave, appends, tells the machine and wakes who
waits, with no `await` in between, so nothing can happen between the decision and the write. Where the topic asks for
a flush (`flush.messages`), the machine is told only when the fsync has finished: until then the batch is neither
acknowledged nor shown to a reader. One fsync serves all appends that came while the one before it ran.

A write that the disk refuses takes the partition offline (KAFKA_STORAGE_ERROR); the broker lives on.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

from odradek.broker.metadata.state.topics import INTERNAL_TOPICS
from odradek.broker.metrics.broker_metrics import TopicMetrics
from odradek.broker.replication.state.follower import Position, truncation_offset
from odradek.broker.replication.state.partition import LeaderAndIsr, PartitionMachine, PendingIsr, Role
from odradek.broker.runtime.timers import Clock
from odradek.protocol.batch import control_batch
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.storage.compaction import Cleaned
from odradek.storage.config import LogConfig as LogConfig
from odradek.storage.config import Origin
from odradek.storage.flush import Flush
from odradek.storage.log import Epochs, Log
from odradek.storage.producers import Verification
from odradek.storage.segments import LogSlice
from odradek.storage.validation import BATCHES_SINCE, Appended, Prepared

log = logging.getLogger(__name__)

READ_UNCOMMITTED = 0
READ_COMMITTED = 1
ACKS_ALL = -1
NO_ERROR = ErrorCode.NONE
NO_FAILURES = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.KAFKA_STORAGE_ERROR,
    }
)
"""Refusals that Kafka does not count as failed writes: they are expected, or counted elsewhere."""


class DelayedOperation(Protocol):
    """A request that waits for a partition to move. It decides by itself whether it has enough."""

    def wake(self, replica: Replica) -> None:
        """The replica's log or high watermark has moved, or the replica is no longer to be waited for."""
        ...


class AlterPartitionManager(Protocol):
    """Where a leader asks for another ISR."""

    def ask(self, replica: Replica, change: PendingIsr) -> None:
        """Ask the controller; `Replica.isr_changed` or `isr_refused` is called with what it says."""
        ...


class Worker(Protocol):
    """Where a blocking call runs off the event loop."""

    def run(self, work: Callable[[], None], done: Callable[[BaseException | None], None]) -> None:
        """Run `work` in a thread, then call `done` on the loop with what it raised, or None."""
        ...


class Replica:
    """One partition of one topic on this broker."""

    __slots__ = (
        "_alter_partition_manager",
        "_clock",
        "_delayed",
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
        """`on_failure` hears when the log has gone offline; `log.failure` says why."""
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
        self._delayed: dict[DelayedOperation, None] = {}  # in the order of their arrival
        self._flushing = False
        self.metrics = TopicMetrics()
        """Shared by the replicas of a topic, from `Replicas.add` on."""

    # ---- the controller speaks

    def lead(self, state: LeaderAndIsr) -> None:
        """The controller made this broker the leader, or tells the leader anew; the log begins an epoch at its end."""
        machine = self.machine
        if state.leader_epoch > machine.leader_epoch:
            with self._disk():
                self.log.begin_epoch(state.leader_epoch)
        machine.cleaned(self.cleaned_to)
        machine.become_leader(state, self._clock.monotonic_ms())
        self.wake()

    def follow(self, state: LeaderAndIsr) -> None:
        """The controller made another broker the leader, or nobody."""
        self.machine.become_follower(state)
        self.wake()

    # ---- following

    def fetch_position(self, leader_epoch: int) -> Position:
        """What to ask the leader for next."""
        log = self.log
        if log.epochs.latest < 0 and self.machine.high_watermark < log.end_offset:
            # A log older than KIP-101 has nothing better to go by than its high watermark.
            with self._disk():
                self.cut(self.machine.high_watermark)
        cleaned_to = max(0, self.cleaned_to)
        return Position(log.end_offset, log.epochs.latest, leader_epoch, log.start_offset, cleaned_to)

    def replicate(
        self,
        asked: Position,
        records: memoryview | None,
        high_watermark: int,
        log_start_offset: int,
        compacted_everywhere: int = -1,
        epochs: Epochs = (),
    ) -> None:
        """Write what the leader of the epoch in `asked` sent for the position in `asked`, and learn its bounds.

        `compacted_everywhere` is -1 where the leader does not say it; `epochs` has (epoch, start offset) of the leader
        epochs that start in the records. Raises KafkaError: what came does not fit the log, or the disk fails.
        """
        machine, log = self.machine, self.log
        if machine.role is not Role.FOLLOWER or asked.leader_epoch != machine.leader_epoch:
            return
        machine.received_compacted(compacted_everywhere)
        if asked.fetch_offset != log.end_offset:
            return
        with self._disk():
            if records:
                now_ms = self._clock.now_ms()
                log.append_replicated(records, now_ms=now_ms, leader_epoch=asked.leader_epoch, epochs=epochs)
                self.metrics.replication_bytes_in += len(records)
                if log.config.flushes and log.flush_due(now_ms):
                    # The next fetch tells the leader that this is here; so it has to be here to stay.
                    log.flush(now_ms=now_ms)
            moved = machine.replicated(log.end_offset, high_watermark)
            start = min(log_start_offset, machine.high_watermark)
            if start > log.start_offset:
                log.advance_start_offset(start, high_watermark=machine.high_watermark)
        if moved and self._delayed:
            self.wake()

    def cut_divergence(self, leader_epoch: int, leader_end: int, asked: Position) -> None:
        """The leader has another end for the epoch that this log ends in: cut, and fetch on from there.

        Raises KafkaError when the disk fails.
        """
        if self.machine.role is not Role.FOLLOWER or asked.leader_epoch != self.machine.leader_epoch:
            return
        log = self.log
        self.cut(truncation_offset(leader_epoch, leader_end, log.epochs, log.end_offset, asked.fetch_offset))

    def cut(self, offset: int) -> None:
        """Cut the log to `offset`. Raises KafkaError when the disk fails."""
        if offset < self.machine.high_watermark:
            log.warning(
                "%s-%d is cut to %d, below its high watermark %d",
                self.topic,
                self.partition,
                offset,
                self.machine.high_watermark,
            )
        with self._disk():
            self.log.truncate_to(offset, now_ms=self._clock.now_ms())
        self.machine.truncated(self.log.end_offset)

    def begin_at(self, leader_start: int) -> None:
        """The leader's log begins at `leader_start`: where ours ends below that, it begins anew there."""
        if leader_start > self.log.end_offset:
            with self._disk():
                self.log.truncate_fully(leader_start, now_ms=self._clock.now_ms())
            self.machine.truncated(self.log.end_offset)
            self.machine.replicated(self.log.end_offset, leader_start)

    # ---- followers

    def follower_fetched(
        self, replica_id: int, offset: int, start_offset: int, broker_epoch: int, cleaned_to: int = -1
    ) -> None:
        """A follower has everything below `offset`, compacted below `cleaned_to` (-1: it does not say); it may join the
        ISR. Raises KafkaError.
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
            self.wake()
        if replica_id not in machine.isr and machine.pending is None:
            self._ask_isr(machine.propose_expansion(replica_id))

    def shrink_isr(self) -> None:
        """Ask to leave out who has not been caught up for `replica.lag.time.max.ms`."""
        machine, now_ms = self.machine, self._clock.monotonic_ms()
        if machine.role is Role.LEADER and machine.remotes:
            if machine.reconsider(now_ms):
                self.wake()
            self._ask_isr(machine.propose_shrink(now_ms))

    def _ask_isr(self, change: PendingIsr | None) -> None:
        if change is not None:
            self._alter_partition_manager.ask(self, change)

    def isr_changed(self, change: PendingIsr, state: LeaderAndIsr) -> None:
        """The controller has answered a wish."""
        before = self.machine.isr
        self.machine.isr_changed(change, state, self._clock.monotonic_ms())
        if self.machine.isr != before:
            self.metrics.isr_shrinks += not before <= self.machine.isr
            self.metrics.isr_expands += not self.machine.isr <= before
            log.info(
                "%s-%d has the ISR %s, it was %s",
                self.topic,
                self.partition,
                sorted(self.machine.isr),
                sorted(before),
            )
        self.wake()

    def isr_refused(self, change: PendingIsr, error: ErrorCode) -> bool:
        """The controller has refused a wish. Returns whether to ask again."""
        machine = self.machine
        before = machine.high_watermark
        self.metrics.failed_isr_updates += 1
        again = machine.isr_refused(change, error, self._clock.monotonic_ms())
        if machine.high_watermark > before:
            self.wake()
        return again

    # ---- writing

    def produce(
        self,
        records: memoryview | Prepared | None,
        acks: int,
        now_ms: int,
        api_version: int,
        verification: Verification | None = None,
    ) -> Appended:
        """Append one batch of a client; one of a transaction needs its `verification`.

        Raises KafkaError: whatever the machine or the log refuses, KAFKA_STORAGE_ERROR when the disk does.
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
            )
        except KafkaError as error:
            self._count_refusal(records, error.code)
            self._check_disk()
            raise
        if not appended.duplicate:
            metrics.bytes_in += len(records)  # type: ignore[arg-type]  # nothing was written where there is none
            metrics.messages_in += appended.last_offset - appended.first_offset + 1
            if api_version < BATCHES_SINCE:
                metrics.produce_conversions += appended.last_offset - appended.first_offset + 1
            self._grown(now_ms)
        return appended

    def _count_refusal(self, records: memoryview | Prepared | None, code: ErrorCode) -> None:
        if code is ErrorCode.MESSAGE_TOO_LARGE and records is not None:
            self.metrics.bytes_rejected += len(records)
        elif code not in NO_FAILURES:
            self.metrics.failed_produces += 1

    def begin_verification(
        self, producer_id: int, epoch: int, sequence: int, epoch_per_transaction: bool
    ) -> Verification:
        """What a transactional batch has to bring along: OPEN, or the mark that its coordinator is being asked.

        Raises KafkaError NOT_LEADER_OR_FOLLOWER or INVALID_PRODUCER_EPOCH.
        """
        if self.machine.role is not Role.LEADER:
            self.machine.check_may_append(ACKS_ALL)
        return self.log.producers.begin_verification(
            producer_id, epoch, sequence, epoch_per_transaction, self._clock.now_ms()
        )

    def write(self, records: bytearray, now_ms: int, verification: Verification | None = None) -> int:
        """Append a batch that this broker made itself (group and offset records). Returns its end offset.

        One that belongs to a client's transaction needs its `verification`. Raises KafkaError as `produce` does with
        acks=all.
        """
        self.machine.check_may_append(ACKS_ALL)
        with self._disk():
            appended = self.log.append(
                records,
                leader_epoch=self.machine.leader_epoch,
                now_ms=now_ms,
                origin=Origin.COORDINATOR,
                verification=verification,
            )
        self.metrics.bytes_in += len(records)
        self.metrics.messages_in += appended.last_offset - appended.first_offset + 1
        self._grown(now_ms)
        return appended.last_offset + 1

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
        """Append the marker that ends a producer's transaction here. Returns its end offset; `settled` with acks=all
        says when it is durable.

        `epoch_per_transaction` asks for the stricter check of transactions version 2. Raises KafkaError as `write`
        does, and INVALID_PRODUCER_EPOCH or TRANSACTION_COORDINATOR_FENCED for a marker that comes too late.
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
        """The log has taken a batch: flush it if the topic asks for that, else let the machine and the readers know."""
        log = self.log
        if log.config.flushes:
            if self._flushing:
                return  # the flush that follows the one under way takes this along
            if log.flush_due(now_ms):
                self._start_flush()
                return
        self._settle()

    def _settle(self, *, flushed: bool = False) -> None:
        """The log is as durable as the topic asks."""
        machine = self.machine
        machine.appended(self.log.end_offset, self._clock.monotonic_ms() if machine.remotes else 0, flushed=flushed)
        if self._delayed:
            self.wake()

    def settled(self, end_offset: int, acks: int) -> ErrorCode | None:
        """Whether a write that ended at `end_offset` may be acknowledged: NONE, an error, or None for not yet."""
        machine = self.machine
        if machine.role is not Role.LEADER:
            return ErrorCode.KAFKA_STORAGE_ERROR if self.log.failure else ErrorCode.NOT_LEADER_OR_FOLLOWER
        if machine.local_end < end_offset:
            return None  # an fsync is on its way
        return NO_ERROR if acks >= 0 else machine.acknowledged(end_offset)

    # ---- flushing

    def flush_if_due(self, now_ms: int) -> None:
        """Flush in the background what `flush.ms` says is old enough, and what rolled segments still hold."""
        if self._flushing or self.machine.role is Role.OFFLINE:
            return
        if self.log.flush_due(now_ms):
            self._start_flush()
        elif self.log.recovery_point < self.log.active_base_offset:
            self._start_flush(rolled_only=True)

    def _start_flush(self, *, rolled_only: bool = False) -> None:
        try:
            flush = self.log.start_flush(rolled_only=rolled_only)
        except KafkaError:
            self._check_disk()
            return
        self._flushing = True
        flushed = self.log  # another one may have taken its place when the disk is done
        self._worker.run(flush.run, lambda error: self._flushed(flush, error if flushed is self.log else None))

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
            # Batches came while the disk was busy: what was flushed counts now, the rest after the next fsync.
            durable = max(self.machine.local_end, min(flush.end_offset, self.log.end_offset))
            self.machine.appended(durable, self._clock.monotonic_ms(), flushed=True)
            self.wake()
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
        """Up to where a read_committed consumer reads: the high watermark, or the first open transaction before it."""
        log, high_watermark = self.log, self.machine.high_watermark
        if log.first_unstable_offset is not None:
            log.on_high_watermark(high_watermark)
        unstable = log.first_unstable_offset
        return high_watermark if unstable is None else min(unstable, high_watermark)

    def readable_end(self, isolation_level: int) -> int:
        """The offset that a consumer of this isolation level may not reach."""
        return self.last_stable_offset if isolation_level == READ_COMMITTED else self.machine.high_watermark

    def delete_old_segments(self, now_ms: int) -> None:
        """Apply retention: what is too old or too much goes, up to the high watermark."""
        with self._disk():
            self.log.delete_old_segments(high_watermark=self.machine.high_watermark, now_ms=now_ms)

    def delete_records(self, offset: int) -> None:
        """Serve nothing below `offset` any more. Raises KafkaError OFFSET_OUT_OF_RANGE beyond the high watermark."""
        with self._disk():
            moved = self.log.advance_start_offset(offset, high_watermark=self.machine.high_watermark)
        if moved:
            self.wake()

    def low_watermark(self, runs: Callable[[int], bool]) -> int:
        """The least start offset of this log and those of the followers whose brokers run, as far as they said."""
        followers = (each.start_offset for number, each in self.machine.remotes.items() if runs(number))
        return min((self.log.start_offset, *followers))

    # ---- compaction

    @property
    def cleaned_to(self) -> int:
        """Below which offset the log is compacted, -1 where it never was."""
        return self.log.cleaned_to

    def cleaned(self) -> None:
        """The cleaner has finished a pass over the log: how far counts for `machine.compacted_everywhere`."""
        self.machine.cleaned(self.cleaned_to)

    def swap_in(self, cleaned: Cleaned) -> bool:
        """Put what the cleaner has made in place; False where the log has changed too much meanwhile.

        Raises KafkaError when the disk fails.
        """
        with self._disk():
            fits = self.log.swap_in(cleaned, now_ms=self._clock.now_ms())
        if fits:
            self.cleaned()
        return fits

    # ---- waiting

    def watch(self, operation: DelayedOperation) -> None:
        """Wake this waiter at every move until `unwatch`.

        A move before this call wakes nobody: a caller that completes other operations between its check and this call
        checks again after it (Kafka: DelayedOperationPurgatory.tryCompleteElseWatch).
        """
        self._delayed[operation] = None

    def unwatch(self, operation: DelayedOperation) -> None:
        """The waiter has its answer."""
        self._delayed.pop(operation, None)

    def wake(self) -> None:
        """Notify every waiter. Calls nest, as a waiter may append here: those that a nested call completes are left."""
        waiters = self._delayed
        for operation in list(waiters):
            if operation in waiters:
                operation.wake(self)

    # ---- failing and ending

    @contextmanager
    def _disk(self) -> Iterator[None]:
        try:
            yield
        except KafkaError:
            self._check_disk()
            raise

    def _check_disk(self) -> None:
        """If the log has given up its disk, the partition goes offline and whoever waits is told."""
        if self.log.failure is not None and self.machine.role is not Role.OFFLINE:
            log.error("%s-%d is offline: %s", self.topic, self.partition, self.log.failure)
            self.machine.go_offline()
            self._on_failure(self)
            self.wake()

    def retire(self) -> None:
        """The partition leaves this broker (it is deleted, or the broker stops)."""
        self.machine.go_offline()
        self.wake()


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
        """The replica, None where this broker has none."""
        partitions = self._topics.get(topic)
        return partitions.get(partition) if partitions is not None else None

    def of_topic(self, topic: str) -> list[Replica]:
        """The replicas of one topic, by index."""
        return [replica for _, replica in sorted(self._topics.get(topic, {}).items())]

    def add(self, replica: Replica) -> None:
        """A partition has come to this broker."""
        replica.metrics = self.metrics.setdefault(replica.topic, replica.metrics)
        self._topics.setdefault(replica.topic, {})[replica.partition] = replica
        self._names[replica.topic_id] = replica.topic

    def name_of(self, topic_id: bytes) -> str | None:
        """The name of the topic with this id (16 bytes), None where this broker has no replica of it."""
        return self._names.get(topic_id)

    def remove(self, replica: Replica) -> None:
        """A partition has left this broker."""
        partitions = self._topics.get(replica.topic, {})
        if partitions.get(replica.partition) is replica:
            del partitions[replica.partition]
            if not partitions:
                del self._topics[replica.topic]
                del self.metrics[replica.topic]
                self._names.pop(replica.topic_id, None)
