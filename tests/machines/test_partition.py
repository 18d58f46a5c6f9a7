"""The partition machine: transcripts of scenarios, and rules that hold after any sequence of events."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from odradek.broker.replication.state.partition import LeaderAndIsr, PartitionMachine, Role
from odradek.protocol.errors import ErrorCode, KafkaError

ALONE = frozenset({0})
THREE = frozenset({0, 1, 2})
LONG_AGO, NOW = 0, 1_000_000
"""Times between which a follower that was in sync is no longer waited for."""


def leader(isr: frozenset[int] = THREE, *, local_end: int = 10, min_isr: int = 1) -> PartitionMachine:
    machine = PartitionMachine(0, high_watermark=0, local_end=local_end, min_isr=min_isr)
    machine.become_leader(state(3, isr=isr), LONG_AGO)
    return machine


def state(
    epoch: int, *, leader: int = 0, isr: frozenset[int] = THREE, partition_epoch: int | None = None
) -> LeaderAndIsr:
    version = epoch * 10 if partition_epoch is None else partition_epoch
    return LeaderAndIsr(leader, epoch, tuple(sorted(isr)), (0, 1, 2), version)


def test_a_leader_without_followers_commits_its_whole_log() -> None:
    machine = leader(ALONE)
    assert machine.high_watermark == 10
    assert machine.appended(15, NOW)
    assert (machine.high_watermark, machine.acknowledged(15)) == (15, ErrorCode.NONE)
    assert machine.acknowledged(16) is None


def test_a_write_is_acknowledged_when_the_last_of_the_in_sync_replicas_has_it() -> None:
    machine = leader()
    assert machine.high_watermark == 0  # the positions of the followers are not known yet
    assert not machine.follower_fetched(1, 10, NOW)
    assert machine.follower_fetched(2, 8, NOW)
    assert (machine.high_watermark, machine.acknowledged(10)) == (8, None)
    assert machine.follower_fetched(2, 10, NOW)
    assert machine.acknowledged(10) is ErrorCode.NONE
    with pytest.raises(KafkaError) as refused:
        machine.follower_fetched(7, 99, NOW)
    assert refused.value.code is ErrorCode.UNKNOWN_LEADER_EPOCH, "an unknown epoch is refused"


def test_too_few_in_sync_replicas() -> None:
    machine = leader(ALONE, min_isr=2)
    machine.check_may_append(1)
    with pytest.raises(KafkaError) as refused:
        machine.check_may_append(-1)
    assert refused.value.code is ErrorCode.NOT_ENOUGH_REPLICAS
    assert machine.acknowledged(5) is None, "records on too few replicas are not committed (KIP-966)"


def test_a_log_that_ends_below_the_high_watermark_of_its_leader_violates_an_invariant() -> None:
    machine = PartitionMachine(0, high_watermark=10, local_end=10, name=("orders", 3))
    machine.become_leader(state(3, isr=ALONE), LONG_AGO)
    with pytest.raises(AssertionError, match=r"^orders-3: .* leader_epoch=3 .* high_watermark=10 "):
        machine.appended(9, NOW)


def test_a_write_after_which_the_isr_shrank_too_far() -> None:
    machine = leader(min_isr=2)
    machine.follower_fetched(1, 10, LONG_AGO)
    machine.follower_fetched(2, 10, LONG_AGO)
    assert machine.acknowledged(10) is ErrorCode.NONE
    change = machine.propose_shrink(NOW)
    assert change is None, "a replica with every record is in sync for any time since its last fetch"
    machine.appended(11, NOW)
    change = machine.propose_shrink(NOW)
    assert change is not None
    assert change.isr == (0,)
    assert machine.maximal_isr == THREE, "until the controller agrees"
    machine.isr_changed(change, state(3, isr=ALONE, partition_epoch=31), NOW)
    assert machine.acknowledged(10) is ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
    assert machine.acknowledged(11) is None


def test_a_write_does_not_wait_for_a_replica_that_the_controller_rejects() -> None:
    """A broker in controlled shutdown fetches to its last moment; no later event would have moved the high
    watermark.
    """
    machine = leader(frozenset({0, 1}), min_isr=2)
    machine.follower_fetched(1, 10, NOW)
    machine.follower_fetched(2, 10, NOW)
    change = machine.propose_expansion(2)
    assert change is not None
    machine.appended(12, NOW)
    machine.follower_fetched(1, 12, NOW)
    assert machine.acknowledged(12) is None, "broker 2 may be in the ISR by now"
    assert not machine.isr_refused(change, ErrorCode.INELIGIBLE_REPLICA, NOW)
    assert machine.acknowledged(12) is ErrorCode.NONE
    assert machine.follower_fetched(2, 12, NOW) is False
    assert machine.propose_expansion(2) is not None, "it may join the ISR again"


def test_a_replica_about_to_join_is_waited_for_only_so_long() -> None:
    machine = leader(frozenset({0, 1}), min_isr=2)
    machine.follower_fetched(1, 10, NOW)
    machine.follower_fetched(2, 10, NOW)
    machine.appended(12, NOW)
    machine.follower_fetched(1, 12, NOW)
    assert not machine.reconsider(NOW + machine.max_lag_ms)
    assert machine.high_watermark == 10
    assert machine.reconsider(NOW + machine.max_lag_ms + 1)
    assert machine.high_watermark == 12


def test_min_isr_never_exceeds_the_number_of_replicas() -> None:
    machine = PartitionMachine(0, high_watermark=0, local_end=0, min_isr=2)
    machine.become_leader(LeaderAndIsr(0, 0, (0,), (0,)), NOW)
    machine.check_may_append(-1)
    assert machine.appended(1)
    assert machine.acknowledged(1) is ErrorCode.NONE


def test_a_follower_accepts_no_writes() -> None:
    machine = leader()
    machine.become_follower(state(4, leader=1))
    with pytest.raises(KafkaError) as refused:
        machine.check_may_append(1)
    assert refused.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert machine.acknowledged(1) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    machine.go_offline()
    with pytest.raises(KafkaError) as refused:
        machine.check_may_append(1)
    assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR


def test_epochs_fence() -> None:
    machine = leader()
    machine.check_leader(-1)
    machine.check_leader(3)
    for epoch, code in ((2, ErrorCode.FENCED_LEADER_EPOCH), (4, ErrorCode.UNKNOWN_LEADER_EPOCH)):
        with pytest.raises(KafkaError) as refused:
            machine.check_leader(epoch)
        assert refused.value.code is code
    machine.become_follower(state(2, leader=1))
    assert (machine.role, machine.leader_epoch) == (Role.LEADER, 3), "an old control request is not applied"


class Partition(RuleBasedStateMachine):
    """Any events in any order, beside a naive observer."""

    def __init__(self) -> None:
        super().__init__()
        self.machine = PartitionMachine(0, high_watermark=0, local_end=0, min_isr=2)
        self.seen_epoch = -1
        self.committed = 0
        self.version = 0
        self.reached: dict[int, int] = {}

    @rule(step=st.integers(-1, 2), isr=st.sets(st.integers(1, 2)).map(lambda others: frozenset({0, *others})))
    def lead(self, step: int, isr: frozenset[int]) -> None:
        epoch = self.seen_epoch + step
        if epoch < 0:
            return
        begins = epoch > self.seen_epoch or (epoch == self.seen_epoch and self.machine.role is not Role.LEADER)
        self.version += 1
        self.machine.become_leader(state(epoch, isr=isr, partition_epoch=self.version), LONG_AGO)
        if begins:
            self.reached = {}
        self.seen_epoch = max(epoch, self.seen_epoch)

    @rule(step=st.integers(-1, 2))
    def follow(self, step: int) -> None:
        epoch = self.seen_epoch + step
        if epoch < 0:
            return
        self.version += 1
        self.machine.become_follower(state(epoch, leader=1, partition_epoch=self.version))
        self.seen_epoch = max(epoch, self.seen_epoch)

    @precondition(lambda self: self.machine.role is Role.LEADER)
    @rule(records=st.integers(1, 5))
    def append(self, records: int) -> None:
        self.machine.appended(self.machine.local_end + records, NOW)

    @rule(replica=st.integers(1, 3), behind=st.integers(0, 6))
    def fetch(self, replica: int, behind: int) -> None:
        end = max(0, self.machine.local_end - behind)
        if self.machine.role is Role.LEADER and replica in (1, 2):
            self.machine.follower_fetched(replica, end, NOW)
            self.reached[replica] = end
        else:
            with pytest.raises(KafkaError):
                self.machine.follower_fetched(replica, end, NOW)

    @invariant()
    def epochs_never_go_back(self) -> None:
        assert self.machine.leader_epoch == self.seen_epoch

    @invariant()
    def the_high_watermark_never_falls_and_never_passes_the_end(self) -> None:
        assert self.committed <= self.machine.high_watermark <= self.machine.local_end
        self.committed = self.machine.high_watermark

    @invariant()
    def an_acknowledged_write_is_on_every_in_sync_replica(self) -> None:
        machine = self.machine
        if machine.role is Role.LEADER and machine.acknowledged(machine.local_end) is ErrorCode.NONE:
            assert len(machine.isr) >= 2
            others = machine.isr - {0}
            moved = any(self.reached.get(replica, -1) >= 0 for replica in others)
            assert machine.high_watermark == machine.local_end
            assert moved or machine.local_end == self.committed


TestPartition = Partition.TestCase
TestPartition.settings = settings(max_examples=80, stateful_step_count=30, deadline=None)
