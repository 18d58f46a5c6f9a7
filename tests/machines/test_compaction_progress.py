"""Compaction progress of every replica of a partition: reports of followers, the leader's minimum, and no forgotten
replica.

The rule is that a tombstone or a marker goes only below what every assigned replica has compacted. The state machine
has partition machines for all replicas, reports that are late, lost or repeated, leaders that change and replicas that
come and go; the naive observer remembers what each replica had compacted when it last reported in an epoch.
"""

from __future__ import annotations

from typing import NamedTuple

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from odradek.broker.replication.state.partition import LeaderAndIsr, PartitionMachine
from odradek.protocol.errors import KafkaError

NOW = 1_000_000
UNKNOWN = -1
END = 100


def state(epoch: int, leader: int, replicas: tuple[int, ...] = (0, 1, 2), isr: tuple[int, ...] = ()) -> LeaderAndIsr:
    return LeaderAndIsr(leader, epoch, isr or replicas, replicas, epoch)


def leader(replicas: tuple[int, ...] = (0, 1, 2), cleaned_to: int = 50) -> PartitionMachine:
    machine = PartitionMachine(0, high_watermark=0, local_end=END)
    machine.cleaned(cleaned_to)
    machine.become_leader(state(3, 0, replicas), NOW)
    return machine


def report(machine: PartitionMachine, replica_id: int, cleaned_to: int, offset: int = END) -> None:
    machine.follower_fetched(replica_id, offset, NOW, cleaned_to=cleaned_to)


def test_a_single_replica_counts_by_its_own_progress() -> None:
    machine = PartitionMachine(0, high_watermark=0, local_end=END)
    machine.cleaned(10)
    assert machine.compacted_everywhere == UNKNOWN, "it has no role yet"
    machine.become_leader(state(0, 0, (0,)), NOW)
    assert machine.compacted_everywhere == 10
    machine.cleaned(60)
    assert machine.compacted_everywhere == 60
    machine.cleaned(-1)
    assert machine.compacted_everywhere == 0


def test_the_least_of_all_counts_and_an_unreported_replica_counts_as_nothing() -> None:
    machine = leader()
    assert machine.compacted_everywhere == 0
    report(machine, 1, 70)
    assert machine.compacted_everywhere == 0, "broker 2 has not reported"
    report(machine, 2, 20)
    assert machine.compacted_everywhere == 20
    report(machine, 2, 90)
    assert machine.compacted_everywhere == 50, "this broker itself is behind"
    machine.cleaned(80)
    assert machine.compacted_everywhere == 70


def test_a_replica_out_of_the_isr_or_long_gone_still_counts() -> None:
    machine = leader()
    report(machine, 1, 70)
    report(machine, 2, 20)
    change = machine.propose_shrink(NOW + 10**9)
    assert change is None
    machine.appended(END + 1, NOW)
    report(machine, 1, 70, END + 1)
    change = machine.propose_shrink(NOW + 10**9)
    assert change is not None
    assert change.isr == (0, 1)
    machine.isr_changed(change, state(3, 0, isr=(0, 1))._replace(partition_epoch=4), NOW)
    assert machine.compacted_everywhere == 20


def test_a_replica_that_lost_its_disk_counts_by_its_latest_report() -> None:
    machine = leader()
    report(machine, 1, 70)
    report(machine, 2, 60)
    assert machine.compacted_everywhere == 50
    report(machine, 2, 0, 0)
    assert machine.compacted_everywhere == 0


def test_no_replica_has_compacted_what_it_does_not_have() -> None:
    machine = leader()
    report(machine, 1, 70)
    report(machine, 2, 60, offset=40)
    assert machine.compacted_everywhere == 40


def test_a_kafka_broker_counts_by_its_end_offset() -> None:
    machine = leader((0, 1))
    machine.follower_fetched(1, 30, NOW)
    assert machine.compacted_everywhere == 30
    machine.follower_fetched(1, END, NOW)
    assert machine.compacted_everywhere == 50


def test_a_new_epoch_has_no_reports_and_a_new_replica_has_nothing() -> None:
    machine = leader((0, 1))
    report(machine, 1, 70)
    assert machine.compacted_everywhere == 50
    machine.become_leader(state(3, 0, (0, 1))._replace(partition_epoch=9), NOW)
    assert machine.compacted_everywhere == 50, "a control request of the same epoch again"
    machine.become_leader(state(3, 0, (0, 1, 2))._replace(partition_epoch=10), NOW)
    assert machine.compacted_everywhere == 0, "broker 2 is being added"
    report(machine, 2, 45)
    assert machine.compacted_everywhere == 45
    machine.become_leader(state(11, 0, (0, 1, 2)), NOW)
    assert machine.compacted_everywhere == 0, "a new epoch"


def test_a_follower_has_the_progress_that_the_leader_of_its_epoch_sent() -> None:
    machine = PartitionMachine(1, high_watermark=0, local_end=END)
    machine.cleaned(80)
    machine.received_compacted(70)
    assert machine.compacted_everywhere == UNKNOWN, "it follows no leader"
    machine.become_follower(state(3, 0))
    assert machine.compacted_everywhere == UNKNOWN
    machine.received_compacted(40)
    machine.cleaned(90)
    assert machine.compacted_everywhere == 40
    machine.received_compacted(UNKNOWN)
    assert machine.compacted_everywhere == UNKNOWN, "a leader without the field"
    machine.received_compacted(40)
    machine.become_follower(state(4, 2))
    assert machine.compacted_everywhere == UNKNOWN, "another leader"
    machine.received_compacted(40)
    machine.go_offline()
    assert machine.compacted_everywhere == UNKNOWN


BROKERS = (0, 1, 2, 3)
BROKER = st.sampled_from(BROKERS)


class Report(NamedTuple):
    """A follower's fetch on its way, and the response on the same way back."""

    follower: int
    leader: int
    epoch: int
    offset: int
    cleaned_to: int


class Answer(NamedTuple):
    """The progress that a leader sent to a follower."""

    follower: int
    epoch: int
    compacted_everywhere: int


class Progress(RuleBasedStateMachine):
    """Any order of cleaning, reports, answers, elections and reassignments."""

    def __init__(self) -> None:
        super().__init__()
        self.state = state(0, 0)
        self.partition_epoch = 0
        self.cleaned = dict.fromkeys(BROKERS, 0)
        self.machines = {each: PartitionMachine(each, high_watermark=0, local_end=END) for each in BROKERS}
        self.wire: list[Report | Answer] = []
        self.reported: dict[tuple[int, int, int], int] = {}
        """The last report of a replica, by (leader, epoch, replica)."""
        self.answered: set[tuple[int, int]] = set()
        """(epoch, the progress that its leader sent to a follower)."""
        self.tell(0)

    def control(self, leader_id: int, replicas: tuple[int, ...], *, new_epoch: bool) -> None:
        self.partition_epoch += 1
        epoch = self.state.leader_epoch + new_epoch
        self.state = LeaderAndIsr(leader_id, epoch, replicas, replicas, self.partition_epoch)

    @rule(broker=BROKER)
    def elect(self, broker: int) -> None:
        if broker in self.state.replicas:
            self.control(broker, self.state.replicas, new_epoch=True)

    @rule(broker=BROKER, new_epoch=st.booleans())
    def reassign(self, broker: int, new_epoch: bool) -> None:
        replicas = tuple(each for each in BROKERS if (each in self.state.replicas) != (each == broker))
        if self.state.leader in replicas:
            self.control(self.state.leader, replicas, new_epoch=new_epoch)

    @rule(broker=BROKER)
    def tell(self, broker: int) -> None:
        if broker not in self.state.replicas:
            return
        machine = self.machines[broker]
        if self.state.leader == broker:
            machine.cleaned(self.cleaned[broker])
            machine.become_leader(self.state, NOW)
            for notified in [each for each in self.reported if each[0] == broker and each[2] not in machine.replicas]:
                del self.reported[notified]  # a replica that leaves the replica set and comes back begins anew
        else:
            machine.become_follower(self.state)

    @rule(broker=BROKER, offset=st.integers(0, END))
    def clean(self, broker: int, offset: int) -> None:
        """A pass of the cleaner, or a log that was truncated or lost."""
        self.cleaned[broker] = offset
        self.machines[broker].cleaned(offset)

    @rule(broker=BROKER, offset=st.integers(0, END))
    def fetch(self, broker: int, offset: int) -> None:
        machine = self.machines[broker]
        if machine.leader_id not in (UNKNOWN, broker):
            end = max(offset, self.cleaned[broker])
            self.wire.append(Report(broker, machine.leader_id, machine.leader_epoch, end, self.cleaned[broker]))

    @rule(broker=BROKER)
    def fetch_as_kafka_does(self, broker: int) -> None:
        machine = self.machines[broker]
        if machine.leader_id not in (UNKNOWN, broker):
            self.wire.append(Report(broker, machine.leader_id, machine.leader_epoch, END, UNKNOWN))

    @precondition(lambda self: self.wire)
    @rule(index=st.integers(0, 20), repeat=st.booleans())
    def deliver(self, index: int, repeat: bool) -> None:
        message = self.wire[index % len(self.wire)]
        if not repeat:
            self.wire.remove(message)
        if isinstance(message, Answer):
            machine = self.machines[message.follower]
            if machine.leader_epoch == message.epoch:  # as in FollowerReplica.replicate
                machine.received_compacted(message.compacted_everywhere)
            return
        leading = self.machines[message.leader]
        try:
            leading.check_leader(message.epoch)
            leading.follower_fetched(message.follower, message.offset, NOW, cleaned_to=message.cleaned_to)
        except KafkaError:
            return
        printed = message.offset if message.cleaned_to == UNKNOWN else message.cleaned_to
        self.reported[message.leader, message.epoch, message.follower] = printed
        self.wire.append(Answer(message.follower, message.epoch, leading.compacted_everywhere))
        self.answered.add((message.epoch, leading.compacted_everywhere))

    @precondition(lambda self: self.wire)
    @rule(index=st.integers(0, 20))
    def lose(self, index: int) -> None:
        self.wire.pop(index % len(self.wire))

    @invariant()
    def a_leader_never_counts_with_more_than_was_reported(self) -> None:
        for broker, machine in self.machines.items():
            if machine.leader_id == broker:
                printed = [self.reported.get((broker, machine.leader_epoch, each), 0) for each in machine.remotes]
                assert machine.compacted_everywhere == min([self.cleaned[broker], *printed])
                assert set(machine.remotes) | {broker} == set(machine.replicas)

    @invariant()
    def a_follower_has_only_the_progress_its_leader_sent(self) -> None:
        for broker, machine in self.machines.items():
            if machine.leader_id != broker:
                known = machine.compacted_everywhere
                assert known == UNKNOWN or (machine.leader_epoch, known) in self.answered


TestProgress = Progress.TestCase
TestProgress.settings = settings(max_examples=70, stateful_step_count=40, deadline=None)


def test_the_model_rejects_a_leader_that_forgets_silent_replicas(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counting only replicas that have reported is the mistake that brings deleted records back."""

    def count(machine: PartitionMachine) -> None:
        printed = (each.compacted_to for each in machine.remotes.values() if each.end_offset >= 0)
        machine.compacted_everywhere = max(0, min((machine.cleaned_to, *printed)))

    monkeypatch.setattr(PartitionMachine, "_count_compacted", count)
    model = Progress()
    model.clean(0, 30)
    with pytest.raises(AssertionError):
        model.a_leader_never_counts_with_more_than_was_reported()
