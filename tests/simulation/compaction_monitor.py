"""Checks compacted logs after every event: the five parts of C1, and P1 as far as compaction can break it.

The shadow of a log, which the other checks compare, is the line of batches that it stands for, as if nothing had been
compacted. Beside it stands what the log has of that line; each missing record must be one that compaction may remove:

- offsets, values, times and sequences never change;
- the latest value of each key stays;
- nothing at or past the first unstable offset is gone;
- a tombstone or a marker goes only once no assigned replica, offline ones included, has anything that it covers, and
  not before delete.retention.ms is over since the first pass over it;
- the log has compacted everything up to the offset that it reports, and keeps a producer's last sequences.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple
from unittest import mock

from odradek.broker.registry import znodes
from odradek.broker.replication.partition import Replica
from odradek.broker.replication.state.partition import Role
from odradek.protocol.topic_partition import TopicPartition
from odradek.storage.compaction import Cleaned
from odradek.storage.folder_changes import FolderChange
from odradek.storage.log import Log
from tests.simulation.committed import Committed, WrittenBatch, records_of
from tests.simulation.monitor import Batch, Monitor, ViolationError, prefix
from tests.storage.r13 import Written, batches_in, check_compacted_files

LAST_SEQUENCE = 2**31 - 1
STAYS = ("last_offset", "producer_id", "producer_epoch", "base_sequence", "is_control", "is_transactional")
"""The parts of a batch that compaction does not change."""


@dataclass(slots=True)
class Copy:
    """One replica's log at the last check."""

    end: int
    present: set[int]
    """The offsets of the records in the log."""
    agreed: int = 0
    """Up to where its line is the committed one; a leader that was deposed may have another end."""
    checked: int = 0
    """How many batches of its line were checked since the log was last read whole."""

    def left_of(self, offsets: Iterable[int]) -> list[int]:
        """Which of these committed records the log still has."""
        return [each for each in offsets if each in self.present and each < self.agreed]


class Pass(NamedTuple):
    """A pass of some replica: it compacted everything below `cleaned_to`, and began then."""

    cleaned_to: int
    began_s: float


@dataclass
class Partitions:
    """The state that is known of one partition."""

    committed: Committed = field(default_factory=Committed)
    written: dict[tuple[int, int], WrittenBatch] = field(default_factory=dict)
    """By first offset and epoch."""
    looks: dict[bytes, tuple[WrittenBatch, frozenset[int]]] = field(default_factory=dict)
    """Batches that were found correct, by their remains after compaction: the original batch, and the offsets left."""
    epochs: dict[int, int] = field(default_factory=dict)
    """The newest epoch in which each producer has written anything; no check needs the sequences of an older one."""
    passes: list[Pass] = field(default_factory=list)
    dropped: set[int] = field(default_factory=set)
    """Tombstones and markers that at least one replica has removed."""
    excused: set[tuple[int, Batch, int]] = field(default_factory=set)
    """Broker, batch and offset of records that were missing when their history was lost (`unclean.py`); nothing in
    drawn seeds.
    """


class CompactionMonitor(Monitor):
    """Watches over logs that are compacted."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.known = {partition: Partitions() for partition in self.partitions}
        self.copies: dict[tuple[int, TopicPartition], Copy] = {}
        self.retention_s = 0.0
        """delete.retention.ms, less the largest difference between clocks."""
        self.now_s: Callable[[], float] = lambda: 0.0
        self.swaps = self.tombstones = self.markers = 0
        self._passes_under_way: dict[str, tuple[float, int]] = {}
        self._unchecked: dict[tuple[int, TopicPartition], bool] = {}
        self._follows = False

    # ---- listening

    @contextmanager
    def listening(self) -> Iterator[None]:
        monitor, real_start_swap = self, Log.start_swap

        def start_swap(log: Log, cleaned: Cleaned, *, now_ms: int) -> FolderChange | None:
            change = real_start_swap(log, cleaned, now_ms=now_ms)
            if change is not None:
                apply = change.apply

                def applied() -> None:
                    apply()
                    with monitor.remembering():
                        monitor._swapped(log, cleaned)

                change.apply = applied
            return change

        with super().listening():
            received = Log.append_replicated  # which notifies the monitor of the changes

            def append_replicated(log: Log, *arguments: Any, **options: Any) -> Any:
                monitor._follows = True
                try:
                    return received(log, *arguments, **options)
                finally:
                    monitor._follows = False

            with (
                mock.patch.object(Log, "start_swap", start_swap),
                mock.patch.object(Log, "append_replicated", append_replicated),
            ):
                yield

    def begun(self, replica: Replica) -> None:
        """A pass over a log begins."""
        self._passes_under_way[replica.log.directory] = self.now_s(), replica.last_stable_offset

    def remember(self, broker_id: int) -> Callable[[], None]:
        """For the calls of a broker that continues after its death, in the middle of an event: how to undo them."""
        keys = [key for key in self.copies if key[0] == broker_id]
        kept = [
            (key, replace(self.copies[key], present=set(self.copies[key].present)), self.shadows[key][:])
            for key in keys
        ]

        def forget() -> None:
            for key, copy, shadow in kept:
                self.copies[key], self.shadows[key] = copy, shadow
                self._unchecked.pop(key, None)

        return forget

    def _swapped(self, log: Log, cleaned: Cleaned) -> None:
        partition = (log.topic, log.partition)
        if partition not in self.known:
            return
        began_s, stable = self._passes_under_way[log.directory]
        self.swaps += 1
        key = (self._owner_of(log), partition)
        before = self.copies[key].present
        self.shadows[key] = self._whole(key[0], log)
        gone = [offset for offset in before - self.copies[key].present if offset >= stable]
        if gone or cleaned.cleaned_to > stable:
            raise ViolationError(
                f"C1: broker {key[0]} compacted {partition} up to {cleaned.cleaned_to}, and {min(gone, default=None)} "
                f"is gone; only what is below {stable} is stable"
            )
        self.known[partition].passes.append(Pass(cleaned.cleaned_to, began_s))
        self._dirty = self._logs_dirty = True

    def _log_changed(self, log: Log, end_before: int, size_before: int | None) -> None:
        partition = (log.topic, log.partition)
        if partition not in self.known:
            return
        broker_id = self._owner_of(log)
        if log.end_offset < end_before:
            self._truncated(broker_id, partition, log)
        key = (broker_id, partition)
        copy = self.copies.get(key)
        if copy is None or copy.end != end_before or log.end_offset < end_before or log.failure is not None:
            self.shadows[key] = self._whole(broker_id, log)
        elif log.end_offset > end_before:
            self._grown(key, copy, log)
        self._dirty = self._logs_dirty = True

    def _grown(self, key: tuple[int, TopicPartition], copy: Copy, log: Log) -> None:
        known, shadow = self.known[key[1]], self.shadows[key]
        last = known.written[shadow[-1].first, shadow[-1].epoch] if shadow else None
        for each in _batches(log, copy.end):
            header = each.header
            if not self._follows and (header.base_offset, header.leader_epoch) not in known.written:
                batch = WrittenBatch(header, last, records_of(each.data))
                known.written[batch.first, header.leader_epoch] = batch
                known.epochs[header.producer_id] = max(header.producer_epoch, known.epochs.get(header.producer_id, -1))
            batch, offsets = self._recognized(key, each)
            line = batch.line(last)
            if line is None:
                raise ViolationError(
                    f"R5: broker {key[0]} has put {header.base_offset} of {key[1]} behind {shadow[-1:]}, it was "
                    f"written behind {batch.before}"
                )
            shadow.extend(Batch.of(step.header) for step in line)
            copy.present |= offsets
            last = batch
        copy.end = log.end_offset
        self._unchecked.setdefault(key, False)

    def _recognized(self, key: tuple[int, TopicPartition], each: Written) -> tuple[WrittenBatch, frozenset[int]]:
        """A batch as it was written, and the offsets that it still has; the remaining records must be unchanged."""
        known, header = self.known[key[1]], each.header
        if each.data in known.looks:
            return known.looks[each.data]
        batch = known.written.get((header.base_offset, header.leader_epoch))
        if batch is None:
            raise ViolationError(f"R5: broker {key[0]} has {header} of {key[1]}, which no producer wrote")
        written = batch.header
        for name in STAYS:
            if getattr(header, name) != getattr(written, name):
                raise ViolationError(f"C1: {name} of {written} of {key[1]} on broker {key[0]} is now that of {header}")
        left = records_of(each.data)
        for offset, record in left.items():
            if record != batch.content.get(offset):
                raise ViolationError(
                    f"C1: broker {key[0]} has {record} at {offset} of {key[1]}, written was {batch.content.get(offset)}"
                )
        return known.looks.setdefault(each.data, (batch, frozenset(left)))

    def _whole(self, broker_id: int, log: Log) -> list[Batch]:
        """Read a log from its start; returns the line that it stands for."""
        key = (broker_id, (log.topic, log.partition))
        before = self.shadows.get(key, [])
        found = [self._recognized(key, each) for each in _batches(log, 0)]
        last = found[-1][0] if found else None
        line = (last.line() or []) if last is not None else []
        astray = {batch for batch, _ in found}.difference(line)
        if astray:
            raise ViolationError(
                f"R5: broker {broker_id} has {[each.header for each in astray]} of {key[1]}, and behind it {last}, "
                "which was written behind something else"
            )
        shadow = [Batch.of(step.header) for step in line]
        if not shadow or shadow[-1].last + 1 < log.end_offset:
            longer = prefix(before, log.end_offset)  # the log was truncated where compaction had left nothing
            shadow = longer if longer[: len(shadow)] == shadow else shadow
        self._check_recovered(broker_id, log, before, shadow)
        self.copies[key] = Copy(log.end_offset, set().union(*(offsets for _, offsets in found)))
        self._unchecked[key] = True
        return shadow

    def _check_recovered(self, broker_id: int, log: Log, before: list[Batch], line: list[Batch]) -> None:
        """R13, for a broker that has just started: its log is a prefix of the log before, with everything that was
        synced.
        """
        process = self.processes[broker_id]
        synced = process.left.get((log.topic, log.partition))
        if synced is None:
            return
        if line != before[: len(line)] or (log.end_offset < synced and not process.disk_lied):
            raise ViolationError(
                f"R13: broker {broker_id} has {line[-2:]} as the end of {log.topic}-{log.partition}, once it had "
                f"{before[-2:]}, of which {synced} was synced"
            )
        check_compacted_files(log)

    # ---- looking

    def _check(self, partition: TopicPartition) -> None:
        super()._check(partition)
        self._commit(partition)
        for key in [key for key in self._unchecked if key[1] == partition]:
            self._check_copy(key, whole=self._unchecked.pop(key))

    def _commit(self, partition: TopicPartition) -> None:
        known = self.known[partition]
        for process, replica in self._replicas(partition):
            if replica.machine.high_watermark <= known.committed.end or replica.machine.role is not Role.LEADER:
                continue
            shadow, count = self.shadows[process.broker_id, partition], len(known.committed.batches)
            for batch in shadow[count:]:
                if batch.last >= replica.machine.high_watermark:
                    break
                written = known.written[batch.first, batch.epoch]
                last = known.committed.batches[-1] if known.committed.batches else None
                if written.before is not last:
                    raise ViolationError(f"R1: {written.header} of {partition} is committed, but not what came before")
                known.committed.take(written)

    def _check_copy(self, key: tuple[int, TopicPartition], *, whole: bool) -> None:
        broker_id, partition = key
        copy, known, shadow = self.copies[key], self.known[partition], self.shadows[key]
        copy.agreed = self._agreed(known.committed, shadow)
        for batch in shadow[copy.checked :]:
            for offset in known.written[batch.first, batch.epoch].content.keys() - copy.present:
                if (broker_id, batch, offset) in known.excused:
                    continue
                if offset >= copy.agreed:
                    raise ViolationError(f"C1: broker {broker_id} lacks {offset} of {partition}, not committed yet")
                self._explain(key, copy, offset)
        copy.checked = len(shadow)
        replica = next((each for process, each in self._replicas(partition) if process.broker_id == broker_id), None)
        if replica is None or replica.log.failure is not None:
            return
        self._check_producers(key, copy, replica.log)
        if whole:
            self._check_claim(key, copy, replica.log)
            self._check_aborted(key, copy, replica.log)
            for offset in known.dropped:
                self._check_dropped(key, copy, offset)

    @staticmethod
    def _agreed(committed: Committed, shadow: list[Batch]) -> int:
        most = min(len(shadow), len(committed.batches))

        def differs(number: int) -> bool:
            return Batch.of(committed.batches[number].header) != shadow[number]

        count = bisect_left(range(most), True, key=differs)
        return shadow[count - 1].last + 1 if count else 0

    def _explain(self, key: tuple[int, TopicPartition], copy: Copy, offset: int) -> None:
        """A committed record is missing: whether compaction was allowed to remove it."""
        committed = self.known[key[1]].committed
        transaction = committed.markers.get(offset)
        if transaction is not None:
            left = copy.left_of(transaction.offsets)
            if left:
                raise ViolationError(
                    f"C1: broker {key[0]} has lost the marker at {offset} of {key[1]}, and still has {left} of its data"
                )
            self._is_dropped(key[1], offset)
            return
        if committed.is_open(offset):
            raise ViolationError(f"C1: broker {key[0]} lacks {offset} of {key[1]}, whose transaction is open")
        record = committed.records[offset]
        if committed.is_aborted(offset) or committed.latest[record.key or b""] > offset:
            return
        if record.value is not None:
            raise ViolationError(f"C1: broker {key[0]} lacks the latest value of {record.key!r}, {offset} of {key[1]}")
        self._is_dropped(key[1], offset)

    def _is_dropped(self, partition: TopicPartition, offset: int) -> None:
        """A tombstone or a marker is missing: whether no replica needed it, and delete.retention.ms had passed."""
        known = self.known[partition]
        if offset in known.dropped:
            return
        known.dropped.add(offset)
        is_marker = offset in known.committed.markers
        self.markers += is_marker
        self.tombstones += not is_marker
        for broker_id in self._assigned(partition):
            key = (broker_id, partition)
            if key in self.copies:
                self._check_dropped(key, self.copies[key], offset)
        first = min((each.began_s for each in known.passes if each.cleaned_to > offset), default=None)
        if first is None or self.now_s() - first < self.retention_s:
            raise ViolationError(
                f"C1: the {'marker' if is_marker else 'tombstone'} at {offset} of {partition} is gone, "
                + (
                    "and no replica has compacted it"
                    if first is None
                    else f"{self.now_s() - first:.3f} s after the first pass"
                )
            )

    def _check_dropped(self, key: tuple[int, TopicPartition], copy: Copy, offset: int) -> None:
        """The records that a removed tombstone or marker covered: no replica may have them still, or again."""
        committed = self.known[key[1]].committed
        transaction = committed.markers.get(offset)
        if transaction is None:
            if committed.latest[committed.records[offset].key or b""] > offset:
                return
            left = copy.left_of(committed.covered_by(offset))
        elif transaction.commits and offset < copy.agreed and offset in copy.present:
            return  # of a committed transaction data may be left here, and the marker with it
        else:
            left = copy.left_of(transaction.offsets)
        if left:
            raise ViolationError(
                f"C1: {offset} of {key[1]} is gone, and broker {key[0]}, which ends at {copy.end}, has {left}, what it "
                "covered"
            )

    def _check_producers(self, key: tuple[int, TopicPartition], copy: Copy, log: Log) -> None:
        for producer_id, end in self.known[key[1]].committed.producers.items():
            if end.offset >= copy.agreed or end.epoch < self.known[key[1]].epochs[producer_id]:
                continue
            known = log.producers.get(producer_id)
            if known is None or known.epoch < end.epoch:
                raise ViolationError(f"P1: broker {key[0]} has forgotten producer {producer_id} of {key[1]}: {end}")
            if known.epoch == end.epoch and known.last_sequence < end.last_sequence < LAST_SEQUENCE:
                raise ViolationError(
                    f"P1: broker {key[0]} takes {known.last_sequence} for the last sequence of producer {producer_id} "
                    f"in {key[1]}, and {end.last_sequence} is"
                )

    def _check_claim(self, key: tuple[int, TopicPartition], copy: Copy, log: Log) -> None:
        committed = self.known[key[1]].committed
        if log.cleaned_to > log.end_offset:
            raise ViolationError(f"C1: {key} is compacted up to {log.cleaned_to}, and ends at {log.end_offset}")
        newest: dict[bytes, int] = {}
        for offset in sorted(copy.left_of(range(log.cleaned_to)), reverse=True):
            record = committed.records.get(offset)
            if record is None:
                continue
            later = newest.setdefault(record.key or b"", offset)
            if later != offset or committed.is_aborted(offset):
                raise ViolationError(
                    f"C1: broker {key[0]} reports {key[1]} as compacted up to {log.cleaned_to}, and has {offset} "
                    f"still, although there is {later}"
                )

    def _check_aborted(self, key: tuple[int, TopicPartition], copy: Copy, log: Log) -> None:
        """A consumer that reads data of an aborted transaction must be able to detect that it was aborted."""
        for transaction in self.known[key[1]].committed.markers.values():
            left = copy.left_of(transaction.offsets)
            if transaction.commits or not left or transaction.marker >= copy.agreed:
                continue
            notified = log.search.aborted_transactions(left[0], log.end_offset)
            if not any(producer == transaction.producer_id and first <= left[0] for producer, first in notified):
                raise ViolationError(
                    f"T2: broker {key[0]} has lost the information that {left} of {key[1]} were aborted"
                )

    def _assigned(self, partition: TopicPartition) -> tuple[int, ...]:
        data, _ = self.ensemble.tree.get(znodes.topic_path(partition[0]))
        return znodes.TopicAssignment.decode(data).partitions[partition[1]].replicas


def _batches(log: Log, offset: int) -> list[Written]:
    """The batches of a log that begin at or after an offset."""
    segments = log.segments
    first = next((n for n in range(len(segments) - 1, -1, -1) if segments[n].base_offset <= offset), 0)
    return [each for segment in segments[first:] for each in batches_in(segment) if each.header.base_offset >= offset]
