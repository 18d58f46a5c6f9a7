"""Deleted records stay deleted for any history of the replicas; and the mistakes by which they come back.

Hypothesis chooses the events. Each mutant is a partition machine that leaves a replica out, or counts one with more
than it has compacted; the search has to find how a deleted record comes back.
"""

from __future__ import annotations

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from odradek.broker.replication.state.partition import PartitionMachine
from tests.machines.searching import run_search, search_alone
from tests.machines.tombstones_model import BROKERS, Compacted, meaning

BROKER = st.sampled_from(BROKERS)
ALL = 100


class Tombstones(RuleBasedStateMachine):
    """Any event at any time."""

    model: type[Compacted] = Compacted

    def __init__(self) -> None:
        super().__init__()
        self.partition = self.model()

    @rule(key=st.sampled_from("ab"), delete=st.booleans())
    def write(self, key: str, delete: bool) -> None:
        self.partition.write(key, delete=delete)

    @rule(broker=BROKER, most=st.integers(1, 3))
    def fetch(self, broker: int, most: int) -> None:
        self.partition.fetch(broker, most)

    @rule()
    def fetch_all(self) -> None:
        for _ in range(2):
            for broker in BROKERS:
                self.partition.fetch(broker, ALL)

    @rule(key=st.sampled_from("ab"))
    def write_and_delete(self, key: str) -> None:
        """A value that every replica has is deleted."""
        self.partition.write(key, delete=False)
        self.fetch_all()
        self.partition.write(key, delete=True)
        self.fetch_all()

    @rule(broker=BROKER, passes=st.integers(1, 2))
    def clean(self, broker: int, passes: int) -> None:
        for _ in range(passes):
            self.partition.clean(broker)

    @rule(broker=BROKER)
    def elect(self, broker: int) -> None:
        self.partition.elect(broker)

    @rule(broker=BROKER, lost=st.integers(0, 3))
    def stop(self, broker: int, lost: int) -> None:
        self.partition.stop(broker, lost)

    @rule(broker=BROKER)
    def start(self, broker: int) -> None:
        self.partition.start(broker)

    @rule(broker=BROKER, lost=st.integers(0, 3))
    def restart(self, broker: int, lost: int) -> None:
        """It is away for a moment only, and fetches the records that it has missed."""
        self.partition.stop(broker, lost)
        self.partition.start(broker)
        self.fetch_all()

    @invariant()
    def promises(self) -> None:
        self.partition.check()


def search(machine: type[PartitionMachine], examples: int, steps: int = 40, first: int | None = None) -> None:
    class Model(Compacted):
        machine_class = machine

    class Search(Tombstones):
        model = Model

    run_search(Search, examples, steps, first)


def test_deleted_records_stay_deleted() -> None:
    search(PartitionMachine, 75)


def test_tombstones_are_removed_in_the_end() -> None:
    """The machine must not keep the rule by keeping every tombstone."""
    partition = Compacted()
    partition.write("a", delete=False)
    partition.write("a", delete=True)
    partition.write("b", delete=False)
    for _ in range(4):
        for broker in BROKERS:
            partition.fetch(broker, ALL)
    for _ in range(3):
        for broker in BROKERS:
            partition.clean(broker)
            partition.fetch(broker, ALL)
    for replica in partition.brokers.values():
        assert [each.key for each in replica.log] == ["b"]
        assert meaning(replica.log, ALL) == {"b": 3}


class AsKafka(PartitionMachine):
    """The machine decides by time alone, without the other replicas."""

    __slots__ = ()

    def _count_compacted(self) -> None:
        self.compacted_everywhere = self.local_end


class InSyncOnly(PartitionMachine):
    """A replica outside the ISR does not count."""

    __slots__ = ()

    def _count_compacted(self) -> None:
        printed = (remote.compacted_to for each, remote in self.remotes.items() if each in self.isr)
        self.compacted_everywhere = max(0, min((self.cleaned_to, *printed)))


class ReportedOnly(PartitionMachine):
    """A replica that has not reported in this epoch does not count."""

    __slots__ = ()

    def _count_compacted(self) -> None:
        printed = (remote.compacted_to for remote in self.remotes.values() if remote.end_offset >= 0)
        self.compacted_everywhere = max(0, min((self.cleaned_to, *printed)))


class FetchedIsEnough(PartitionMachine):
    """A replica that has fetched a tombstone counts as if it had compacted the records that the tombstone covers."""

    __slots__ = ()

    def follower_fetched(self, replica_id: int, offset: int, now_ms: int, **printed: int) -> bool:
        return super().follower_fetched(replica_id, offset, now_ms, **{**printed, "cleaned_to": -1})


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mutant", "first"),  # the seed with which it was found soonest
    [(AsKafka, 8), (InSyncOnly, 4), (ReportedOnly, 5), (FetchedIsEnough, 13)],
)
def test_a_mistake_that_brings_deleted_records_back_is_found(mutant: type[PartitionMachine], first: int) -> None:
    with pytest.raises(AssertionError, match="C1"):
        search_alone(__name__, mutant.__name__, 12_000, 60, first)  # ends with the first violation
