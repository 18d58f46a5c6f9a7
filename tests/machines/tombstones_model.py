"""A compacted partition on three brokers, without a byte: lists of records, cleaners that run at every chance, brokers
that are away for any time and may lose the end of their log.

Each broker has the log after compaction, and its history: the same without compaction, which no real broker has. The
invariant is that both mean the same to a consumer that reads all committed records: every key has its last value, and
deleted keys stay deleted. Time is no help here: `delete.retention.ms` is 0, so only `compacted_everywhere` of the
partition machine keeps a tombstone.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from odradek.broker.replication.state.partition import LeaderAndIsr, PartitionMachine, Role

BROKERS = (0, 1, 2)
NOW = 1_000_000


class Record(NamedTuple):
    """A record, or a tombstone where `value` is None."""

    offset: int
    epoch: int
    key: str
    value: int | None


@dataclass
class Broker:
    """One replica."""

    machine: PartitionMachine
    log: list[Record] = field(default_factory=list)
    history: list[Record] = field(default_factory=list)
    cleaned_to: int = 0
    alive: bool = True

    @property
    def end(self) -> int:
        return len(self.history)

    def cut(self, offset: int) -> None:
        del self.history[offset:]
        self.log = [each for each in self.log if each.offset < offset]
        self.cleaned_to = min(self.cleaned_to, offset)


def meaning(records: Iterable[Record], end: int) -> dict[str, int]:
    """The map of a consumer that reads everything below `end`."""
    last = {each.key: each.value for each in records if each.offset < end}
    return {key: value for key, value in last.items() if value is not None}


class Compacted:
    """The brokers, and a controller with a complete state."""

    machine_class: type[PartitionMachine] = PartitionMachine

    def __init__(self) -> None:
        self.state = LeaderAndIsr(0, 0, BROKERS, BROKERS, 0)
        self.brokers = {each: Broker(self._machine(each, 0)) for each in BROKERS}
        self.committed = 0
        self.values = 0
        self._tell()

    def _machine(self, broker_id: int, end: int) -> PartitionMachine:
        return self.machine_class(broker_id, high_watermark=0, local_end=end)

    def _tell(self) -> None:
        for broker_id, broker in self.brokers.items():
            if broker.alive and broker.machine.leader_epoch < self.state.leader_epoch:
                self._tell_one(broker_id)

    def _tell_one(self, broker_id: int) -> None:
        machine = self.brokers[broker_id].machine
        machine.cleaned(self.brokers[broker_id].cleaned_to)
        if self.state.leader == broker_id:
            machine.become_leader(self.state, NOW)
        else:
            machine.become_follower(self.state)

    def _control(self, leader: int, isr: tuple[int, ...]) -> None:
        self.state = LeaderAndIsr(leader, self.state.leader_epoch + 1, isr, BROKERS, self.state.partition_epoch + 1)
        self._tell()

    # ---- events

    def elect(self, broker_id: int) -> None:
        """Another member of the ISR leads."""
        if broker_id in self.state.isr:
            self._control(broker_id, self.state.isr)

    def stop(self, broker_id: int, lost: int) -> None:
        """A broker is gone, and loses so many records that were not on its disk; the last record stays."""
        broker = self.brokers[broker_id]
        left = tuple(each for each in self.state.isr if each != broker_id)
        if broker.alive and left:
            broker.alive = False
            broker.cut(max(broker.cleaned_to, broker.end - lost))  # compacted records were written for good
            self._control(self.state.leader if self.state.leader != broker_id else left[0], left)

    def start(self, broker_id: int) -> None:
        """The broker comes back."""
        broker = self.brokers[broker_id]
        if not broker.alive:
            broker.alive = True
            broker.machine = self._machine(broker_id, broker.end)
            self._tell_one(broker_id)

    def write(self, key: str, *, delete: bool) -> None:
        """The leader appends a record."""
        self.values += 1
        leader = self.brokers[self.state.leader]
        record = Record(leader.end, self.state.leader_epoch, key, None if delete else self.values)
        leader.log.append(record)
        leader.history.append(record)
        leader.machine.appended(leader.end, NOW)

    def fetch(self, broker_id: int, most: int) -> None:
        """A follower gets up to so many offsets from the leader, and may join the ISR."""
        broker, leader = self.brokers[broker_id], self.brokers[self.state.leader]
        if not broker.alive or broker.machine.role is not Role.FOLLOWER:
            return
        same = 0
        while same < min(broker.end, leader.end) and broker.history[same] == leader.history[same]:
            same += 1
        if same < broker.end:
            broker.cut(same)
            broker.machine.truncated(same)
        begin = broker.end
        leader.machine.follower_fetched(broker_id, begin, NOW, cleaned_to=broker.cleaned_to)
        change = leader.machine.propose_expansion(broker_id)
        if change is not None:
            self.state = self.state._replace(isr=change.isr, partition_epoch=self.state.partition_epoch + 1)
            leader.machine.isr_changed(change, self.state, NOW)
        end = min(begin + most, leader.end)
        broker.history += leader.history[begin:end]
        broker.log += [each for each in leader.log if begin <= each.offset < end]
        broker.machine.replicated(broker.end, leader.machine.high_watermark)
        broker.machine.received_compacted(leader.machine.compacted_everywhere)

    def clean(self, broker_id: int) -> None:
        """One pass of a broker's cleaner over all that is committed."""
        broker = self.brokers[broker_id]
        if not broker.alive:
            return
        upper = broker.machine.high_watermark
        last = {each.key: each.offset for each in broker.log if each.offset < upper}
        broker.log = [each for each in broker.log if each.offset >= upper or self._stays(broker, each, last[each.key])]
        broker.cleaned_to = max(broker.cleaned_to, upper)
        broker.machine.cleaned(broker.cleaned_to)

    @staticmethod
    def _stays(broker: Broker, record: Record, last: int) -> bool:
        if record.offset < last:
            return False
        seen_before = record.offset < broker.cleaned_to  # the first pass only sets its delete horizon
        return not (record.value is None and seen_before and record.offset < broker.machine.compacted_everywhere)

    # ---- invariants

    def check(self) -> None:
        """Deleted keys stay deleted, and every key has its last value, on every broker that has all committed
        records.
        """
        leading = self.brokers[self.state.leader]
        self.committed = max(self.committed, leading.machine.high_watermark)
        for broker_id, broker in self.brokers.items():
            if broker.history[: self.committed] == leading.history[: self.committed]:
                found, wanted = meaning(broker.log, self.committed), meaning(leading.history, self.committed)
                assert found == wanted, f"C1: broker {broker_id} has {found}, the written records are {wanted}"
