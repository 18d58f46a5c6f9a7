"""Offsets that belong to transactions: who may commit them, when they count, and what waits for them."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from odradek.protocol.errors import ErrorCode, KafkaError
from tests.machines.group_world import GROUP, World

P = ("t", 0)
Q = ("t", 1)


@pytest.fixture
def world() -> World:
    return World()


def unstable(world: World, partition: tuple[str, int] = P) -> bool:
    error, (found,) = world.groups.fetch(GROUP, [partition], require_stable=True)
    assert not error
    return found.error is ErrorCode.UNSTABLE_OFFSET_COMMIT


def test_they_count_with_the_marker(world: World) -> None:
    assert world.commit_in_transaction({P: 5}).answer == [ErrorCode.NONE]
    assert world.offset(P) is None
    assert unstable(world)
    assert not unstable(world, Q)
    world.end_transaction(commit=True)
    assert world.offset(P) == 5
    assert not unstable(world)
    world.commit_in_transaction({P: 6, Q: 7})
    world.end_transaction(commit=False)
    assert (world.offset(P), world.offset(Q)) == (5, None)
    assert not unstable(world)


@pytest.mark.parametrize("commit", [True, False])
def test_a_failover_in_the_middle_changes_nothing(world: World, commit: bool) -> None:
    world.commit({P: 1})
    world.commit_in_transaction({P: 5})
    world.fail_over()
    assert world.offset(P) == 1
    assert unstable(world)
    world.end_transaction(commit=commit)
    assert world.offset(P) == (5 if commit else 1)
    world.fail_over()
    assert world.offset(P) == (5 if commit else 1)
    assert not unstable(world)


def test_a_marker_that_comes_while_the_partition_is_read_is_not_lost(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.commit_in_transaction({P: 5})
    monkeypatch.setattr("odradek.broker.group.coordinator.RECORDS_AT_A_TIME", 1)
    read_all = world.log.read_all
    monkeypatch.setattr(world.log, "read_all", lambda partition: iter(list(read_all(partition))))  # up to here
    world.fail_over()
    with pytest.raises(KafkaError, match="is not loaded"):
        world.end_transaction(commit=True)
    world.end_transaction(commit=False)
    assert world.groups.fetch(GROUP, [P], require_stable=False)[0] is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    world.time.advance(10)
    assert world.offset(P) is None
    assert not unstable(world)


def test_a_later_commit_outside_of_the_transaction_wins(world: World) -> None:
    world.commit_in_transaction({P: 5})
    world.commit({P: 9})
    world.end_transaction(commit=True)
    assert world.offset(P) == 9
    world.fail_over()
    assert world.offset(P) == 9


def test_two_producers_do_not_disturb_each_other(world: World) -> None:
    world.commit_in_transaction({P: 5}, producer=(1, 0))
    world.commit_in_transaction({P: 6, Q: 6}, producer=(2, 0))
    world.end_transaction(commit=True, producer=(2, 0))
    assert (world.offset(P), world.offset(Q)) == (6, 6)
    assert unstable(world)
    world.end_transaction(commit=True, producer=(1, 0))
    assert world.offset(P) == 6, "the newer of both stands later in the log"
    assert not unstable(world)


def test_a_member_is_checked_and_a_producer_from_before_kip_447_is_believed(world: World) -> None:
    (member, _), generation = world.stable(2)
    commit = world.commit_in_transaction
    assert commit({P: 1}, member, generation).answer == [ErrorCode.NONE]
    assert commit({P: 1}, member, generation + 1).answer == [ErrorCode.ILLEGAL_GENERATION]
    assert commit({P: 1}, "stranger", generation).answer == [ErrorCode.UNKNOWN_MEMBER_ID]
    assert commit({P: 1}, member, generation, instance="i").answer == [ErrorCode.UNKNOWN_MEMBER_ID]
    assert commit({P: 2}).answer == [ErrorCode.NONE]
    world.end_transaction(commit=True)
    assert world.offset(P) == 2


def test_a_static_member_that_was_replaced_is_fenced(world: World) -> None:
    ((old,), generation) = world.stable(1, instance="i")
    world.join(instance="i")
    assert world.commit_in_transaction({P: 1}, old, generation, instance="i").answer == [ErrorCode.FENCED_INSTANCE_ID]


def test_a_rebalance_that_completes_does_not_hinder(world: World) -> None:
    (leader, _), generation = world.stable(2)
    world.leave(_)
    rejoined = world.join(leader).answer
    assert world.state() == "CompletingRebalance"
    assert world.commit({P: 1}, leader, rejoined.generation).answer == [ErrorCode.REBALANCE_IN_PROGRESS]
    assert world.commit_in_transaction({P: 1}, leader, rejoined.generation).answer == [ErrorCode.NONE]
    assert world.commit_in_transaction({P: 1}, leader, generation).answer == [ErrorCode.ILLEGAL_GENERATION]


def test_a_group_that_nobody_joined_may_keep_them(world: World) -> None:
    assert world.commit_in_transaction({P: 1}, "member", 3).answer == [ErrorCode.UNKNOWN_MEMBER_ID]
    assert world.state() == "Dead"
    assert world.commit_in_transaction({P: 1}).answer == [ErrorCode.NONE]
    assert world.state() == "Empty"
    assert world.commit_in_transaction({P: 1}, group="").answer == [ErrorCode.INVALID_GROUP_ID]


def test_metadata_is_limited(world: World) -> None:
    assert world.commit_in_transaction({P: 1}, metadata="x" * 4097).answer == [ErrorCode.OFFSET_METADATA_TOO_LARGE]
    assert not unstable(world)


@pytest.mark.parametrize(
    ("said", "heard"),
    [
        ("NETWORK_EXCEPTION", "COORDINATOR_LOAD_IN_PROGRESS"),
        ("COORDINATOR_NOT_AVAILABLE", "COORDINATOR_NOT_AVAILABLE"),
        ("NOT_LEADER_OR_FOLLOWER", "NOT_COORDINATOR"),
        ("INVALID_PRODUCER_EPOCH", "INVALID_PRODUCER_EPOCH"),
        ("INVALID_TXN_STATE", "INVALID_TXN_STATE"),
        ("TRANSACTION_ABORTABLE", "TRANSACTION_ABORTABLE"),
        ("CONCURRENT_TRANSACTIONS", "CONCURRENT_TRANSACTIONS"),
    ],
)
def test_without_the_word_of_the_coordinator_nothing_is_written(world: World, said: str, heard: str) -> None:
    world.transactions.error = ErrorCode[said]
    assert world.commit_in_transaction({P: 1, Q: 1}).answer == [ErrorCode[heard]] * 2
    assert world.log.batches == {}
    assert world.state() == "Dead"


def test_a_refused_append_leaves_nothing(world: World) -> None:
    world.log.error = ErrorCode.NOT_ENOUGH_REPLICAS
    assert world.commit_in_transaction({P: 1}).answer == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    assert not unstable(world)
    world.log.error = ErrorCode.NONE
    world.end_transaction(commit=True)
    assert world.offset(P) is None


def test_a_group_with_offsets_in_a_transaction_is_neither_deleted_nor_expired(world: World) -> None:
    world.commit({P: 1})
    world.commit_in_transaction({P: 5, Q: 5})
    world.groups.start()
    assert world.groups.delete_group(GROUP) is ErrorCode.NONE
    assert world.offset(P) is None, "what was committed is gone"
    assert unstable(world)
    world.time.advance(30 * 24 * 3_600_000)
    assert world.state() == "Empty"
    world.end_transaction(commit=True)
    assert world.offset(P) == 5, "the transaction committed after the deletion"
    world.fail_over()
    assert world.offset(P) == 5
    world.groups.start()
    world.time.advance(30 * 24 * 3_600_000)
    assert world.state() == "Dead", "afterwards it expires like any other"


def test_deleting_one_offset_leaves_what_a_transaction_has_of_it(world: World) -> None:
    world.commit({P: 1})
    world.commit_in_transaction({P: 5})
    assert world.groups.delete_offsets(GROUP, [P]) == (ErrorCode.NONE, [ErrorCode.NONE])
    assert world.offset(P) is None
    world.end_transaction(commit=True)
    assert world.offset(P) == 5
    world.fail_over()
    assert world.offset(P) == 5


def test_an_offset_that_stands_before_a_tombstone_outlives_compaction(world: World) -> None:
    world.commit({P: 1})
    world.commit_in_transaction({P: 5, Q: 6})
    assert world.groups.delete_group(GROUP) is ErrorCode.NONE
    world.end_transaction(commit=True)
    world.log.compact()
    world.fail_over()
    assert (world.offset(P), world.offset(Q)) == (5, 6)


def test_the_tombstone_is_known_to_a_coordinator_that_loads_before_the_marker(world: World) -> None:
    world.commit({P: 1})
    world.commit_in_transaction({P: 5})
    assert world.groups.delete_offsets(GROUP, [P]) == (ErrorCode.NONE, [ErrorCode.NONE])
    world.fail_over()
    world.end_transaction(commit=True)
    world.log.compact()
    world.fail_over()
    assert world.offset(P) == 5


def test_the_marker_waits_until_the_log_takes_the_offset_again(world: World) -> None:
    world.commit({P: 1})
    world.commit_in_transaction({P: 5})
    world.groups.delete_group(GROUP)
    world.log.error = ErrorCode.NOT_ENOUGH_REPLICAS
    with pytest.raises(KafkaError, match="refused"):
        world.end_transaction(commit=True)
    assert unstable(world)
    world.log.error = ErrorCode.NONE
    world.end_transaction(commit=True)
    world.log.compact()
    world.fail_over()
    assert world.offset(P) == 5


def test_an_aborted_transaction_writes_nothing_again(world: World) -> None:
    world.commit({P: 1})
    world.commit_in_transaction({P: 5})
    world.groups.delete_group(GROUP)
    written = len(world.log.batches[0])
    world.end_transaction(commit=False)
    assert len(world.log.batches[0]) == written + 1, "the marker"
    assert world.offset(P) is None


def test_no_commit_marker_is_written_before_the_partition_is_loaded(world: World) -> None:
    world.commit_in_transaction({P: 5})
    world.groups.unload(0)
    with pytest.raises(KafkaError) as refused:
        world.end_transaction(commit=True)
    assert refused.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER


class TransactionalOffsets(RuleBasedStateMachine):
    """Commits, markers, deletions and failovers in any order, held against a model that reads the same log in words."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World()
        self.offsets = itertools.count(1)
        self.committed: dict[tuple[str, int], tuple[int, int]] = {}
        self.pending: dict[int, dict[tuple[str, int], tuple[int, int]]] = {}

    partitions = st.sampled_from([P, Q])
    producers = st.sampled_from([1, 2])

    @rule(partition=partitions)
    def commit(self, partition: tuple[str, int]) -> None:
        offset = next(self.offsets)
        assert self.world.commit({partition: offset}).answer == [ErrorCode.NONE]
        self.committed[partition] = (offset, offset)

    @rule(partition=partitions, producer=producers)
    def commit_in_transaction(self, partition: tuple[str, int], producer: int) -> None:
        offset = next(self.offsets)
        answer = self.world.commit_in_transaction({partition: offset}, producer=(producer, 0)).answer
        assert answer == [ErrorCode.NONE]
        self.pending.setdefault(producer, {})[partition] = (offset, offset)

    @rule(producer=producers, commit=st.booleans())
    def end(self, producer: int, commit: bool) -> None:
        self.world.end_transaction(commit=commit, producer=(producer, 0))
        for partition, entry in self.pending.pop(producer, {}).items():
            if commit and self.committed.get(partition, (0, 0)) < entry:
                self.committed[partition] = entry

    @rule(compacts=st.booleans())
    def fail_over(self, compacts: bool) -> None:
        if compacts:
            self.world.log.compact()
        self.world.fail_over()

    @precondition(lambda self: self.committed or self.pending)
    @rule()
    def delete_group(self) -> None:
        assert self.world.groups.delete_group(GROUP) is ErrorCode.NONE
        self.committed.clear()

    @precondition(lambda self: self.committed or self.pending)
    @rule(partition=partitions)
    def delete_offset(self, partition: tuple[str, int]) -> None:
        assert self.world.groups.delete_offsets(GROUP, [partition]) == (ErrorCode.NONE, [ErrorCode.NONE])
        self.committed.pop(partition, None)

    @invariant()
    def the_log_is_what_counts(self) -> None:
        for partition in (P, Q):
            expected = self.committed.get(partition)
            assert self.world.offset(partition) == (expected[0] if expected is not None else None)
            assert unstable(self.world, partition) == any(partition in each for each in self.pending.values())


TestTransactionalOffsets = TransactionalOffsets.TestCase
TestTransactionalOffsets.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)
