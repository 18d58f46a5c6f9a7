"""A coordinator in isolation: virtual time, a log in memory, and clients that record their responses.

The log holds real record batches, so a load reads back what Kafka would read. Appends are committed at once unless the
test holds them back; then they end in the order of their arrival, with success or failure. An append that times out is
in the log; it is committed with `release`.
"""

from __future__ import annotations

import heapq
import itertools
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from odradek.broker.coordinator.state.pending_writes import COMMITTED
from odradek.broker.group.coordinator import GroupCoordinator
from odradek.broker.group.group_metadata_manager import GroupMetadataManager
from odradek.broker.group.offset_metadata_manager import OffsetMetadataManager
from odradek.broker.group.state.classic_requests import JoinRequest, JoinResult, SyncRequest, SyncResult, Terms
from odradek.broker.group.state.loading import COMMIT_MARKER
from odradek.broker.group.state.offsets import CommitRequest, OffsetAndMetadata
from odradek.broker.group.state.settings import GroupSettings
from odradek.broker.replication.transaction_verification import ProducerTransaction, Support
from odradek.broker.runtime.state.effects import KeyValue, TimerName
from odradek.protocol.batch import Header, Record, build, control_batch, read_header, records
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.topic_partition import TopicPartition

Held = tuple[int, list[KeyValue], Callable[[ErrorCode], None], dict[str, Any]]
"""Partition, records, callback, producer."""
START_MS = 1_700_000_000_000
GROUP = "g"


@dataclass(eq=False)
class VirtualTimer:
    """A timer of `VirtualTime`."""

    callback: Callable[[], None]
    cancelled: bool = False

    def cancel(self) -> None:
        self.cancelled = True


class VirtualTime:
    """Clock and timers; time passes only in `advance`."""

    def __init__(self) -> None:
        self._ms = 0
        self._count = itertools.count()
        self._queue: list[tuple[int, int, VirtualTimer]] = []

    def now_ms(self) -> int:
        return START_MS + self._ms

    def monotonic_ms(self) -> int:
        return self._ms

    def monotonic_ns(self) -> int:
        return self._ms * 1_000_000

    def at(self, deadline_ms: int, callback: Callable[[], None]) -> VirtualTimer:
        timer = VirtualTimer(callback)
        heapq.heappush(self._queue, (deadline_ms, next(self._count), timer))
        return timer

    def after(self, delay_ms: int, callback: Callable[[], None]) -> VirtualTimer:
        return self.at(self._ms + delay_ms, callback)

    def advance(self, ms: int) -> None:
        """Let time pass and call the timers that expire, in the order of their deadlines."""
        end = self._ms + ms
        while self._queue and self._queue[0][0] <= end:
            deadline, _, timer = heapq.heappop(self._queue)
            self._ms = max(self._ms, deadline)
            if not timer.cancelled:
                timer.cancelled = True
                timer.callback()
        self._ms = end

    @property
    def waiting(self) -> int:
        """How many timers are set."""
        return sum(not timer.cancelled for _, _, timer in self._queue)


class MemoryLog:
    """`__consumer_offsets` in memory."""

    def __init__(self) -> None:
        self.batches: dict[int, list[bytes]] = {}
        self.next_offset: dict[int, int] = {}
        self.hold = False
        self.error = ErrorCode.NONE
        self._commits_at_once = True
        self._held: deque[Held] = deque()
        self._late: deque[Callable[[ErrorCode], None]] = deque()

    def append(
        self, partition: int, records: list[KeyValue], done: Callable[[ErrorCode], None], **producer: Any
    ) -> None:
        if self.hold:
            self._held.append((partition, records, done, producer))
        else:
            self._end(partition, records, done, producer, self.error)

    def append_at_once(self, partition: int, records: list[KeyValue]) -> bool:
        """Commits every second batch at once, so that both ways of a commit are taken."""
        if self.hold or self.error:
            return False
        self._commits_at_once = not self._commits_at_once
        if self._commits_at_once:
            return False
        self._end(partition, records, lambda error: None, {}, self.error)
        return True

    def when_replicated(self, partition: int, done: Callable[[], None]) -> None:
        done()

    def release(self, error: ErrorCode = ErrorCode.NONE) -> None:
        """End every append that is held back. Where that is no failure, appends that have timed out are committed
        first.
        """
        while self._late and not error:
            self._late.popleft()(ErrorCode.NONE)
        while self._held:
            self._end(*self._held.popleft(), error)

    def time_out(self) -> None:
        """Late appends are delayed further."""
        for done in list(self._late):
            done(ErrorCode.REQUEST_TIMED_OUT)

    def lose(self) -> None:
        """This broker leads no more: every append without an outcome fails."""
        held, self._held = self._held, deque()
        late, self._late = self._late, deque()
        for done in [*late, *(each[2] for each in held)]:
            done(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    @property
    def late(self) -> int:
        return len(self._late)

    def pending(self, partition: int) -> Iterator[tuple[Header, Record]]:
        """Every record of a partition: those in the log, and behind them those that are held back."""
        yield from self.read_all(partition)
        for at, items, _, producer in self._held:
            if at == partition:
                batch = _batch(self.next_offset.get(partition, 0), items, producer)
                for record in records(batch):
                    yield read_header(batch), record

    @property
    def held(self) -> int:
        return len(self._held)

    def write(self, partition: int, batch: bytearray) -> None:
        """Add a batch to the end of the log that no coordinator here appended."""
        self.batches.setdefault(partition, []).append(bytes(batch))
        self.next_offset[partition] = read_header(batch).next_offset

    def compact(self, partition: int = 0) -> None:
        """Below the first unstable offset, keep the last record of each key that is not of an aborted transaction."""
        batches = self.batches.get(partition, [])
        headers = [read_header(batch) for batch in batches]
        begun: dict[int, int] = {}
        aborted: set[int] = set()
        for at, header in enumerate(headers):
            if header.is_control:
                first = begun.pop(header.producer_id, at)
                (marker,) = records(batches[at])
                if marker.key is not None and marker.key[3] != COMMIT_MARKER:
                    aborted |= {each for each in range(first, at) if headers[each].producer_id == header.producer_id}
            elif header.is_transactional:
                begun.setdefault(header.producer_id, at)
        end = min(begun.values(), default=len(batches))
        counting = [at for at in range(end) if not headers[at].is_control and at not in aborted]
        last = {record.key: record.offset for at in counting for record in records(batches[at])}
        kept: list[bytes] = []
        for at, batch in enumerate(batches):
            found = list(records(batch))
            if at < end and not headers[at].is_control:
                found = [each for each in found if at in counting and last[each.key] == each.offset]
            if len(found) == len(list(records(batch))):
                kept.append(batch)
            elif found:
                header = headers[at]
                producer: dict[str, Any] = {"producer_id": header.producer_id, "producer_epoch": header.producer_epoch}
                kept.append(
                    bytes(
                        build(found, base_offset=header.base_offset, **producer, transactional=header.is_transactional)
                    )
                )
        self.batches[partition] = kept

    def read_all(self, partition: int) -> Iterator[tuple[Header, Record]]:
        for batch in self.batches.get(partition, []):
            header = read_header(batch)
            for record in records(batch):
                yield header, record

    def _end(
        self,
        partition: int,
        items: list[KeyValue],
        done: Callable[[ErrorCode], None],
        producer: dict[str, Any],
        error: ErrorCode,
    ) -> None:
        if error in COMMITTED or error is ErrorCode.REQUEST_TIMED_OUT:
            self.write(partition, _batch(self.next_offset.get(partition, 0), items, producer))
        if error is ErrorCode.REQUEST_TIMED_OUT:
            self._late.append(done)
        done(error)


def _batch(base: int, items: list[KeyValue], producer: dict[str, Any]) -> bytearray:
    entries = [Record(base + index, START_MS, key, value, []) for index, (key, value) in enumerate(items)]
    return build(entries, base_offset=base, **producer)


class MemoryTransactions:
    """The same log for offsets of transactions, and their coordinator, which confirms every transaction by default."""

    def __init__(self, log: MemoryLog) -> None:
        self._log = log
        self.error = ErrorCode.NONE
        self.asked: list[ProducerTransaction] = []

    def request_permit(
        self, partition: int, transaction: ProducerTransaction, support: Support, done: Callable[[ErrorCode, Any], None]
    ) -> None:
        self.asked.append(transaction)
        done(self.error, None if self.error else transaction)

    def append(self, partition: int, entries: list[KeyValue], permit: Any, done: Callable[[ErrorCode], None]) -> None:
        producer = {"producer_id": permit.producer_id, "producer_epoch": permit.producer_epoch, "transactional": True}
        self._log.append(partition, entries, done, **producer)

    def append_again(self, partition: int, producer_id: int, entries: list[KeyValue]) -> None:
        outcomes: list[ErrorCode] = []
        producer = {"producer_id": producer_id, "producer_epoch": 0, "transactional": True}
        self._log.append(partition, entries, outcomes.append, **producer)
        if outcomes[0]:
            raise KafkaError(outcomes[0], "refused")


class MemoryTopics:
    """The topics of a cluster."""

    def __init__(self) -> None:
        self.version = 0
        self.counts: dict[str, int] = {}
        self._ids: dict[str, bytes] = {}
        self._made = itertools.count(1)

    def put(self, name: str, partitions: int) -> None:
        """Create a topic, or give it more partitions."""
        self.version += 1
        if name not in self.counts:
            self._ids[name] = next(self._made).to_bytes(16, "big")
        self.counts[name] = partitions

    def remove(self, name: str) -> None:
        """Delete a topic."""
        self.version += 1
        del self.counts[name], self._ids[name]

    def names(self) -> list[str]:
        return list(self.counts)

    def id_of(self, name: str) -> bytes | None:
        return self._ids.get(name)

    def name_of(self, topic_id: bytes) -> str | None:
        return next((name for name, each in self._ids.items() if each == topic_id), None)

    def partition_count(self, name: str) -> int:
        return self.counts.get(name, 0)


@dataclass(eq=False)
class Slot:
    """Receives the response of one request; there has to be exactly one."""

    answers: list[Any] = field(default_factory=list)

    def __call__(self, answer: Any) -> None:
        self.answers.append(answer)

    @property
    def answer(self) -> Any:
        assert len(self.answers) == 1, self.answers
        return self.answers[0]

    @property
    def waits(self) -> bool:
        assert len(self.answers) <= 1, self.answers
        return not self.answers


class Harness:
    """One coordinator with its dependencies."""

    def __init__(self, **settings: Any) -> None:
        self.time = VirtualTime()
        self.log = MemoryLog()
        self.transactions = MemoryTransactions(self.log)
        self.topics = MemoryTopics()
        self.settings = GroupSettings(**{"offsets_topic_num_partitions": 1, **settings})
        self._ids = itertools.count(1)
        self.defers_turns = False
        self.coordinator = self._new_coordinator()
        self.coordinator.runtime.load(0, 0)

    @property
    def groups(self) -> GroupMetadataManager:
        return self.coordinator.groups

    @property
    def offsets(self) -> OffsetMetadataManager:
        return self.coordinator.offsets

    def _new_coordinator(self) -> GroupCoordinator:
        return GroupCoordinator(
            self.settings,
            self.time,
            self.time,
            lambda: f"id{next(self._ids)}",
            self.log,
            self.transactions,
            self.topics,
            self._run,
        )

    def _run(self, work: Callable[[], None], kept: object = None) -> None:
        """Run a work in turns: at once, or in the next `advance`."""
        if self.defers_turns:
            self.time.at(self.time.monotonic_ms(), work)
        else:
            work()

    def armed(self) -> dict[TimerName, int]:
        """The timers of the group, with their deadlines."""
        group = self.coordinator.runtime.find(0, GROUP)
        assert group is not None
        return group.membership.armed

    def fail_over(self) -> None:
        """Another broker takes over: the old coordinator is notified, the new one reads the log."""
        self.coordinator.close()
        self.log.lose()
        self.coordinator = self._new_coordinator()
        self.coordinator.runtime.load(0, 0)

    def join(
        self,
        member_id: str = "",
        *,
        group: str = GROUP,
        instance: str | None = None,
        protocols: tuple[tuple[str, bytes], ...] = (("range", b"meta"),),
        protocol_type: str = "consumer",
        session_ms: int = 10_000,
        rebalance_ms: int = 60_000,
        id_required: bool = False,
        may_skip: bool = False,
    ) -> Slot:
        slot = Slot()
        terms = Terms(instance, "client", "/127.0.0.1", session_ms, rebalance_ms, protocols)
        self.groups.join(group, JoinRequest(member_id, protocol_type, terms, id_required, may_skip), slot)
        return slot

    def sync(
        self,
        member_id: str,
        generation: int,
        assignments: dict[str, bytes] | None = None,
        *,
        group: str = GROUP,
        instance: str | None = None,
        protocol_type: str | None = None,
        protocol_name: str | None = None,
    ) -> Slot:
        slot = Slot()
        request = SyncRequest(member_id, instance, generation, protocol_type, protocol_name, assignments or {})
        self.groups.sync(group, request, slot)
        return slot

    def commit(
        self,
        offsets: dict[TopicPartition, int],
        member_id: str = "",
        generation: int = -1,
        *,
        group: str = GROUP,
        instance: str | None = None,
        metadata: str = "",
        expire_ms: int = -1,
    ) -> Slot:
        slot = Slot()
        now_ms = self.time.now_ms()
        entries = [
            (partition, OffsetAndMetadata(offset, -1, metadata, now_ms, expire_ms))
            for partition, offset in offsets.items()
        ]
        self.offsets.commit(group, CommitRequest(member_id, instance, generation, entries), slot)
        return slot

    def commit_in_transaction(
        self,
        offsets: dict[TopicPartition, int],
        member_id: str = "",
        generation: int = -1,
        *,
        producer: tuple[int, int] = (7, 0),
        group: str = GROUP,
        instance: str | None = None,
        metadata: str = "",
    ) -> Slot:
        slot = Slot()
        now_ms = self.time.now_ms()
        entries = [
            (partition, OffsetAndMetadata(offset, -1, metadata, now_ms)) for partition, offset in offsets.items()
        ]
        self.offsets.commit_in_transaction(
            group,
            CommitRequest(member_id, instance, generation, entries),
            ProducerTransaction("id", *producer),
            Support.ALL_ERRORS,
            slot,
        )
        return slot

    def end_transaction(self, *, commit: bool, producer: tuple[int, int] = (7, 0), partition: int = 0) -> None:
        """The marker is appended to the log, and the group coordinator is notified, before and after."""
        if commit:
            self.offsets.before_commit(partition, producer[0])
        marker = control_batch(
            commit=commit,
            coordinator_epoch=0,
            producer_id=producer[0],
            producer_epoch=producer[1],
            timestamp_ms=START_MS,
            base_offset=self.log.next_offset.get(partition, 0),
        )
        self.log.write(partition, marker)
        self.offsets.end_transaction(partition, producer[0], commit)

    def beat(self, member_id: str, generation: int, *, group: str = GROUP, instance: str | None = None) -> ErrorCode:
        return self.groups.heartbeat(group, member_id, instance, generation)

    def leave(self, member_id: str = "", *, group: str = GROUP, instance: str | None = None) -> ErrorCode:
        error, codes = self.groups.leave(group, [(member_id, instance)])
        assert not error
        return codes[0]

    def offset(self, partition: TopicPartition, *, group: str = GROUP) -> int | None:
        """The committed offset that a client would receive."""
        error, (found,) = self.offsets.fetch(group, [partition], require_stable=False)
        assert not error
        assert not found.error
        return found.committed.offset if found.committed is not None else None

    def state(self, group: str = GROUP) -> str:
        """The group's state as DescribeGroups returns it."""
        error, membership = self.groups.describe(group)
        assert not error
        return membership.state.value if membership is not None else "Dead"

    def stable(self, count: int, **join: Any) -> tuple[list[str], int]:
        """A new stable group of that many members; their ids, the leader first, and the generation."""
        slots = [self.join(**join) for _ in range(count)]
        self.time.advance(self.settings.group_initial_rebalance_delay_ms * (count + 1))
        results: list[JoinResult] = [slot.answer for slot in slots]
        assert all(not result.error for result in results)
        results.sort(key=lambda result: result.leader != result.member_id)
        ids, generation = [result.member_id for result in results], results[0].generation
        synced = [
            self.sync(member_id, generation, {each: each.encode() for each in ids}) for member_id in reversed(ids)
        ]
        self.time.advance(0)  # a large group stores and answers in parts
        answers: list[SyncResult] = [slot.answer for slot in reversed(synced)]
        assert [answer.assignment for answer in answers] == [member_id.encode() for member_id in ids]
        return ids, generation
