"""Offsets that belong to transactions: which members may commit them, when they count, and which fetches wait for
them.
"""

from __future__ import annotations

import itertools

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from odradek.protocol.errors import ErrorCode, KafkaError
from tests.machines.group_harness import GROUP, Harness
from tests.machines.group_scenarios import commit_in_a_transaction_before_a_tombstone

P = ("t", 0)
Q = ("t", 1)


@pytest.fixture
def harness() -> Harness:
    return Harness()


def unstable(harness: Harness, partition: tuple[str, int] = P) -> bool:
    error, (found,) = harness.offsets.fetch(GROUP, [partition], require_stable=True)
    assert not error
    return found.error is ErrorCode.UNSTABLE_OFFSET_COMMIT


def test_they_count_after_the_marker(harness: Harness) -> None:
    assert harness.commit_in_transaction({P: 5}).answer == [ErrorCode.NONE]
    assert harness.offset(P) is None
    assert unstable(harness)
    assert not unstable(harness, Q)
    harness.end_transaction(commit=True)
    assert harness.offset(P) == 5
    assert not unstable(harness)
    harness.commit_in_transaction({P: 6, Q: 7})
    harness.end_transaction(commit=False)
    assert (harness.offset(P), harness.offset(Q)) == (5, None)
    assert not unstable(harness)


@pytest.mark.parametrize("commit", [True, False])
def test_a_failover_in_the_middle_changes_nothing(harness: Harness, commit: bool) -> None:
    harness.commit({P: 1})
    harness.commit_in_transaction({P: 5})
    harness.fail_over()
    assert harness.offset(P) == 1
    assert unstable(harness)
    harness.end_transaction(commit=commit)
    assert harness.offset(P) == (5 if commit else 1)
    harness.fail_over()
    assert harness.offset(P) == (5 if commit else 1)
    assert not unstable(harness)


def test_a_marker_during_the_load_of_the_partition_is_not_lost(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness.commit_in_transaction({P: 5})
    monkeypatch.setattr("odradek.broker.coordinator.runtime.AT_ONCE", 1)
    harness.defers_turns = True
    read_all = harness.log.read_all
    monkeypatch.setattr(harness.log, "read_all", lambda partition: iter(list(read_all(partition))))  # up to here
    harness.fail_over()
    with pytest.raises(KafkaError, match="is not loaded"):
        harness.end_transaction(commit=True)
    harness.end_transaction(commit=False)
    assert harness.offsets.fetch(GROUP, [P], require_stable=False)[0] is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    harness.time.advance(10)
    assert harness.offset(P) is None
    assert not unstable(harness)


def test_a_later_commit_outside_of_the_transaction_wins(harness: Harness) -> None:
    harness.commit_in_transaction({P: 5})
    harness.commit({P: 9})
    harness.end_transaction(commit=True)
    assert harness.offset(P) == 9
    harness.fail_over()
    assert harness.offset(P) == 9


def test_two_producers_are_independent(harness: Harness) -> None:
    harness.commit_in_transaction({P: 5}, producer=(1, 0))
    harness.commit_in_transaction({P: 6, Q: 6}, producer=(2, 0))
    harness.end_transaction(commit=True, producer=(2, 0))
    assert (harness.offset(P), harness.offset(Q)) == (6, 6)
    assert unstable(harness)
    harness.end_transaction(commit=True, producer=(1, 0))
    assert harness.offset(P) == 6, "the newer of both stands later in the log"
    assert not unstable(harness)


def test_a_member_is_checked_and_a_producer_from_before_kip_447_is_accepted(harness: Harness) -> None:
    (member, _), generation = harness.stable(2)
    commit = harness.commit_in_transaction
    assert commit({P: 1}, member, generation).answer == [ErrorCode.NONE]
    assert commit({P: 1}, member, generation + 1).answer == [ErrorCode.ILLEGAL_GENERATION]
    assert commit({P: 1}, "stranger", generation).answer == [ErrorCode.UNKNOWN_MEMBER_ID]
    assert commit({P: 1}, member, generation, instance="i").answer == [ErrorCode.UNKNOWN_MEMBER_ID]
    assert commit({P: 2}).answer == [ErrorCode.NONE]
    harness.end_transaction(commit=True)
    assert harness.offset(P) == 2


def test_a_static_member_that_was_replaced_is_fenced(harness: Harness) -> None:
    ((old,), generation) = harness.stable(1, instance="i")
    harness.join(instance="i")
    assert harness.commit_in_transaction({P: 1}, old, generation, instance="i").answer == [ErrorCode.FENCED_INSTANCE_ID]


def test_a_rebalance_that_completes_does_not_hinder(harness: Harness) -> None:
    (leader, _), generation = harness.stable(2)
    harness.leave(_)
    rejoined = harness.join(leader).answer
    assert harness.state() == "CompletingRebalance"
    assert harness.commit({P: 1}, leader, rejoined.generation).answer == [ErrorCode.REBALANCE_IN_PROGRESS]
    assert harness.commit_in_transaction({P: 1}, leader, rejoined.generation).answer == [ErrorCode.NONE]
    assert harness.commit_in_transaction({P: 1}, leader, generation).answer == [ErrorCode.ILLEGAL_GENERATION]


def test_a_group_without_members_may_have_them(harness: Harness) -> None:
    assert harness.commit_in_transaction({P: 1}, "member", 3).answer == [ErrorCode.UNKNOWN_MEMBER_ID]
    assert harness.state() == "Dead"
    assert harness.commit_in_transaction({P: 1}).answer == [ErrorCode.NONE]
    assert harness.state() == "Empty"
    assert harness.commit_in_transaction({P: 1}, group="").answer == [ErrorCode.INVALID_GROUP_ID]


def test_metadata_has_a_size_limit(harness: Harness) -> None:
    assert harness.commit_in_transaction({P: 1}, metadata="x" * 4097).answer == [ErrorCode.OFFSET_METADATA_TOO_LARGE]
    assert not unstable(harness)


@pytest.mark.parametrize(
    ("printed", "received"),
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
def test_nothing_is_written_without_the_confirmation_of_the_coordinator(
    harness: Harness, printed: str, received: str
) -> None:
    harness.transactions.error = ErrorCode[printed]
    assert harness.commit_in_transaction({P: 1, Q: 1}).answer == [ErrorCode[received]] * 2
    assert harness.log.batches == {}
    assert harness.state() == "Dead"


def test_a_refused_append_leaves_nothing(harness: Harness) -> None:
    harness.log.error = ErrorCode.NOT_ENOUGH_REPLICAS
    assert harness.commit_in_transaction({P: 1}).answer == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    assert not unstable(harness)
    harness.log.error = ErrorCode.NONE
    harness.end_transaction(commit=True)
    assert harness.offset(P) is None


def test_a_group_with_offsets_in_a_transaction_is_neither_deleted_nor_expired(harness: Harness) -> None:
    harness.commit({P: 1})
    harness.commit_in_transaction({P: 5, Q: 5})
    harness.coordinator.start()
    assert harness.groups.delete_group(GROUP) is ErrorCode.NONE
    assert harness.offset(P) is None, "the committed offset is gone"
    assert unstable(harness)
    harness.time.advance(30 * 24 * 3_600_000)
    assert harness.state() == "Empty"
    harness.end_transaction(commit=True)
    assert harness.offset(P) == 5, "the transaction committed after the deletion"
    harness.fail_over()
    assert harness.offset(P) == 5
    harness.coordinator.start()
    harness.time.advance(30 * 24 * 3_600_000)
    assert harness.state() == "Dead", "afterwards it expires like any other"


def test_deleting_one_offset_keeps_the_pending_one_of_a_transaction(harness: Harness) -> None:
    harness.commit({P: 1})
    harness.commit_in_transaction({P: 5})
    assert harness.offsets.delete_offsets(GROUP, [P]) == (ErrorCode.NONE, [ErrorCode.NONE])
    assert harness.offset(P) is None
    harness.end_transaction(commit=True)
    assert harness.offset(P) == 5
    harness.fail_over()
    assert harness.offset(P) == 5


def test_an_offset_before_a_tombstone_survives_compaction(harness: Harness) -> None:
    commit_in_a_transaction_before_a_tombstone(harness)


def test_the_tombstone_is_visible_to_a_coordinator_that_loads_before_the_marker(harness: Harness) -> None:
    harness.commit({P: 1})
    harness.commit_in_transaction({P: 5})
    assert harness.offsets.delete_offsets(GROUP, [P]) == (ErrorCode.NONE, [ErrorCode.NONE])
    harness.fail_over()
    harness.end_transaction(commit=True)
    harness.log.compact()
    harness.fail_over()
    assert harness.offset(P) == 5


def test_the_marker_waits_until_the_offset_is_appended_again(harness: Harness) -> None:
    harness.commit({P: 1})
    harness.commit_in_transaction({P: 5})
    harness.groups.delete_group(GROUP)
    harness.log.error = ErrorCode.NOT_ENOUGH_REPLICAS
    with pytest.raises(KafkaError, match="refused"):
        harness.end_transaction(commit=True)
    assert unstable(harness)
    harness.log.error = ErrorCode.NONE
    harness.end_transaction(commit=True)
    harness.log.compact()
    harness.fail_over()
    assert harness.offset(P) == 5


def test_an_aborted_transaction_appends_no_offset_again(harness: Harness) -> None:
    harness.commit({P: 1})
    harness.commit_in_transaction({P: 5})
    harness.groups.delete_group(GROUP)
    written = len(harness.log.batches[0])
    harness.end_transaction(commit=False)
    assert len(harness.log.batches[0]) == written + 1, "the marker"
    assert harness.offset(P) is None


def test_no_commit_marker_is_written_before_the_partition_is_loaded(harness: Harness) -> None:
    harness.commit_in_transaction({P: 5})
    harness.coordinator.runtime.unload(0)
    with pytest.raises(KafkaError) as refused:
        harness.end_transaction(commit=True)
    assert refused.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER


class TransactionalOffsets(RuleBasedStateMachine):
    """Commits, markers, deletions and failovers in any order, compared with a model that reads the same log."""

    def __init__(self) -> None:
        super().__init__()
        self.harness = Harness()
        self.offsets = itertools.count(1)
        self.committed: dict[tuple[str, int], tuple[int, int]] = {}
        self.pending: dict[int, dict[tuple[str, int], tuple[int, int]]] = {}

    partitions = st.sampled_from([P, Q])
    producers = st.sampled_from([1, 2])

    @rule(partition=partitions)
    def commit(self, partition: tuple[str, int]) -> None:
        offset = next(self.offsets)
        assert self.harness.commit({partition: offset}).answer == [ErrorCode.NONE]
        self.committed[partition] = (offset, offset)

    @rule(partition=partitions, producer=producers)
    def commit_in_transaction(self, partition: tuple[str, int], producer: int) -> None:
        offset = next(self.offsets)
        answer = self.harness.commit_in_transaction({partition: offset}, producer=(producer, 0)).answer
        assert answer == [ErrorCode.NONE]
        self.pending.setdefault(producer, {})[partition] = (offset, offset)

    @rule(producer=producers, commit=st.booleans())
    def end(self, producer: int, commit: bool) -> None:
        self.harness.end_transaction(commit=commit, producer=(producer, 0))
        for partition, entry in self.pending.pop(producer, {}).items():
            if commit and self.committed.get(partition, (0, 0)) < entry:
                self.committed[partition] = entry

    @rule(compacts=st.booleans())
    def fail_over(self, compacts: bool) -> None:
        if compacts:
            self.harness.log.compact()
        self.harness.fail_over()

    @precondition(lambda self: self.committed or self.pending)
    @rule()
    def delete_group(self) -> None:
        assert self.harness.groups.delete_group(GROUP) is ErrorCode.NONE
        self.committed.clear()

    @precondition(lambda self: self.committed or self.pending)
    @rule(partition=partitions)
    def delete_offset(self, partition: tuple[str, int]) -> None:
        assert self.harness.offsets.delete_offsets(GROUP, [partition]) == (ErrorCode.NONE, [ErrorCode.NONE])
        self.committed.pop(partition, None)

    @invariant()
    def the_log_is_what_counts(self) -> None:
        for partition in (P, Q):
            expected = self.committed.get(partition)
            assert self.harness.offset(partition) == (expected[0] if expected is not None else None)
            assert unstable(self.harness, partition) == any(partition in each for each in self.pending.values())


TestTransactionalOffsets = TransactionalOffsets.TestCase
TestTransactionalOffsets.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)
