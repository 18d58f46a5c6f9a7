"""Coordinator log: appends to and loads from an internal topic (Kafka: PartitionWriter and CoordinatorLoader).

The internal topics are `__consumer_offsets` and `__transaction_state`. An append follows the rules of acks=all. Its
callback receives NONE when the in-sync replicas have the records, otherwise the error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from odradek.broker.coordinator.state.pending_writes import COMMITTED
from odradek.broker.replication.partition import ACKS_ALL, Replica, Replicas
from odradek.broker.replication.state.partition import LEADER
from odradek.broker.runtime.purgatory import DelayedOperation, DelayedOperationPurgatory
from odradek.broker.runtime.state.effects import KeyValue
from odradek.broker.runtime.timers import Clock
from odradek.protocol.batch import LOG_OVERHEAD, Header, Record, build, read_header
from odradek.protocol.batch import records as records_of
from odradek.protocol.compression import Codec
from odradek.protocol.errors import ErrorCode, KafkaError

LOAD_BYTES: Final = 5 << 20


class InternalTopicLog:
    """The partitions of an internal topic on this broker."""

    def __init__(
        self,
        name: str,
        replicas: Replicas,
        clock: Clock,
        purgatory: DelayedOperationPurgatory,
        *,
        timeout_ms: int,
        codec: Codec = Codec.NONE,
        acks: int = ACKS_ALL,
        load_bytes: int = LOAD_BYTES,
    ) -> None:
        """`timeout_ms` is the time for an append to reach the in-sync replicas.

        With `acks` of 0 or more an append does not wait for them. A load reads `load_bytes` at a time.
        """
        self._acks = acks
        self._load_bytes = load_bytes
        self._name = name
        self._timeout_ms = timeout_ms
        self._codec = codec
        self._replicas = replicas
        self._clock = clock
        self._purgatory = purgatory

    def append(self, partition: int, entries: list[KeyValue], done: Callable[[ErrorCode], None]) -> None:
        """Append one batch; `done` is called with each of its outcomes (see `coordinator.state.pending_writes`).

        The codes are those of a produce; the coordinators' state machines map them to codes for clients. If the log
        rejects the append, `done` is called before this returns.
        """
        replica = self._replicas.get(self._name, partition)
        if replica is None:
            done(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            return
        now_ms = self._clock.now_ms()
        plain = None if self._codec else replica.prepare(entries, now_ms)
        try:
            if plain is not None:
                end_offset = replica.write(plain, now_ms)
            else:
                records = [Record(offset, now_ms, key, value) for offset, (key, value) in enumerate(entries)]
                end_offset = replica.write(build(records, codec=self._codec), now_ms)
        except KafkaError as error:
            done(error.code)
            return
        await_append(replica, end_offset, self._acks, done, self._purgatory, self._timeout_ms)

    def append_at_once(self, partition: int, entries: list[KeyValue]) -> bool:
        """Append one batch where it is committed when this returns. Returns False without a change of the log where it
        would not be, or where the log rejects the batch; `append` then has the outcome.
        """
        replica = self._replicas.get(self._name, partition)
        if replica is None or self._codec or not _commits_at_once(replica):
            return False
        now_ms = self._clock.now_ms()
        batch = replica.prepare(entries, now_ms)
        if batch is None:
            return False
        try:
            replica.write(batch, now_ms)
        except KafkaError:
            return False
        return True

    def when_replicated(self, partition: int, done: Callable[[], None]) -> None:
        """Call `done` when the in-sync replicas have all records that the partition has now; never if this broker stops
        leading the partition before that.
        """
        replica = self._replicas.get(self._name, partition)
        if replica is not None:
            await_append(
                replica,
                replica.log.end_offset,
                ACKS_ALL,
                lambda code: done() if code in COMMITTED else None,
                self._purgatory,
                self._timeout_ms,
            )

    def read_all(self, partition: int) -> Iterator[tuple[Header, Record]]:
        """Every record of a partition in order, each with the header of its batch.

        Raises KafkaError if the log cannot be read, ProtocolError if a batch is invalid.
        """
        replica = self._replicas.get(self._name, partition)
        if replica is None:
            return
        offset, end = replica.log.start_offset, replica.log.end_offset
        while offset < end:
            part = replica.read(offset, self._load_bytes, upper=end, at_least_one=True).records
            data = part if isinstance(part, bytes) else part.read()
            position = 0
            while position + LOG_OVERHEAD <= len(data):
                header = read_header(data, position)
                if position + header.size > len(data):
                    break
                if header.last_offset >= offset:
                    for record in records_of(data, position):
                        yield header, record
                offset = max(offset, header.next_offset)
                position += header.size
            if position == 0:
                return


def _commits_at_once(replica: Replica) -> bool:
    """Whether a write is committed when it is in the log of this broker: the only replica, without fsyncs."""
    machine = replica.machine
    return machine.role is LEADER and not (machine.remotes or replica.log.config.flushes)


def await_append(
    replica: Replica,
    end_offset: int,
    acks: int,
    done: Callable[[ErrorCode], None],
    purgatory: DelayedOperationPurgatory,
    timeout_ms: int,
) -> None:
    """Call `done` with the outcome of an append that ends at `end_offset`, perhaps at once.

    `done` receives REQUEST_TIMED_OUT every `timeout_ms` until the outcome is final: the records are in the leader's log
    and are committed when the in-sync replicas have them. If this broker stops leading the partition, `done` receives
    that error as the final outcome.
    """
    settled = replica.settled(end_offset, acks)
    if settled is not None:
        done(settled)
    else:
        operation = DelayedCoordinatorAppend(end_offset, acks, done, purgatory, timeout_ms)
        purgatory.try_complete_else_watch(operation, (replica,), timeout_ms)


class DelayedCoordinatorAppend(DelayedOperation[Replica]):
    """An append of a coordinator that waits for the in-sync replicas or an fsync (Kafka: CoordinatorRuntime's deferred
    events).
    """

    __slots__ = ("_acks", "_done", "_end_offset", "_outcome", "_purgatory", "_timeout_ms")

    def __init__(
        self,
        end_offset: int,
        acks: int,
        done: Callable[[ErrorCode], None],
        purgatory: DelayedOperationPurgatory,
        timeout_ms: int,
    ) -> None:
        super().__init__()
        self._acks = acks
        self._end_offset = end_offset
        self._done = done
        self._purgatory = purgatory
        self._timeout_ms = timeout_ms
        self._outcome = ErrorCode.REQUEST_TIMED_OUT

    def try_complete(self, replica: Replica) -> None:
        settled = replica.settled(self._end_offset, self._acks)
        if settled is not None:
            self._outcome = settled
            self.force_complete()

    def on_complete(self) -> None:
        self._done(self._outcome)

    def expire(self) -> None:
        """Report the timeout and continue to wait: the outcome is still unknown."""
        self._purgatory.start_timer(self, self._timeout_ms)
        self._done(ErrorCode.REQUEST_TIMED_OUT)
