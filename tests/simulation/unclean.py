"""Forgives the records that an unclean election loses, and nothing else: the monitor for scripts that allow one.

A leader from outside the ISR has fewer records than were committed, and its log is authoritative from then on. Records
that it lacks at the election count as never committed and never acknowledged; records that other replicas have
compacted away by then may be missing for ever, even where a record superseded them that is now lost (as in Kafka). All
invariants hold on: of the records of the new leader, and of all later ones. `forgiven` has the records that were lost.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from odradek.broker.registry.interface import Operation
from odradek.protocol.topic_partition import TopicPartition
from odradek.storage.log import Log
from tests.simulation.committed import Committed
from tests.simulation.compaction_monitor import CompactionMonitor, Pass


class Forgiven(NamedTuple):
    """The loss of one unclean election: from which offset on, how many batches, how many acknowledged records."""

    partition: TopicPartition
    leader: int
    offset: int
    batches: int
    acknowledged: int

    def __str__(self) -> str:
        return (
            f"broker {self.leader} was elected for {self.partition} with nothing from {self.offset} on, where "
            f"{self.batches} batches were committed and {self.acknowledged} records acknowledged (R1, R2, R3, R12)"
        )


class UncleanMonitor(CompactionMonitor):
    """Watches over logs that are compacted, with leaders that may be elected from outside the ISR."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.forgiven: list[Forgiven] = []
        self._members: dict[TopicPartition, tuple[int, ...]] = {}

    def _written(self, session_id: int, operations: Sequence[Operation], committed: Any) -> None:
        super()._written(session_id, operations, committed)
        for partition in self.partitions:
            state = self._state(partition)
            if state is None:
                continue
            before = self._members.get(partition, state.isr)
            self._members[partition] = state.isr
            if state.leader >= 0 and state.leader not in before:
                self._forgive(partition, state.leader)

    def _forgive(self, partition: TopicPartition, leader: int) -> None:
        known = self.known[partition]
        end = self._agreed(known.committed, self.shadows.get((leader, partition), []))
        for (broker_id, where), copy in self.copies.items():
            if where == partition:
                copy.agreed = min(copy.agreed, end)
                for batch in self.shadows[broker_id, partition] if broker_id != leader else ():
                    offsets = known.written[batch.first, batch.epoch].content
                    known.excused |= {(broker_id, batch, each) for each in offsets if each not in copy.present}
        before, known.committed = known.committed, Committed()
        for committed in before.batches:
            if committed.last < end:
                known.committed.take(committed)
        known.dropped = {each for each in known.dropped if each < end}
        known.passes = [Pass(min(each.cleaned_to, end), each.began_s) for each in known.passes]
        self.true_high_watermark[partition] = min(self.true_high_watermark[partition], end)
        acknowledged = self.history.acknowledged.get(partition, {}) if self.history is not None else {}
        gone = [offset for offset in acknowledged if offset >= end]
        for offset in gone:
            del acknowledged[offset]
        batches = len(before.batches) - len(known.committed.batches)
        self.forgiven.append(Forgiven(partition, leader, end, batches, len(gone)))

    def _check_claim(self, key: tuple[int, TopicPartition], copy: Any, log: Log) -> None:
        """A log may report a compacted end above its end offset, as Kafka's does after a truncation, until it is longer
        than that; from then on the compacted end is invalid.
        """
        if log.cleaned_to <= log.end_offset:
            super()._check_claim(key, copy, log)
