"""The simulation finds the mistakes of the past. `make mutants` prints the number of seeds; here are the quick ones.

Some are found with directed faults: a broker that loses the registry at the moment in which it becomes the coordinator;
an unclean election over a log that has compacted more than the new leader has; two unclean elections in turn; power
lost in the middle of a swap of the only replica (`tests/simulation/directed.py`).
"""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from tests.machines.group_harness import Harness
from tests.machines.group_scenarios import commit_in_a_transaction_before_a_tombstone
from tests.mutants.compaction import CHECKPOINT_MUTANTS, kafka_3330, unsynced_swap
from tests.mutants.groups import tombstone_after_offset
from tests.mutants.replication import kip_279
from tests.mutants.transactions import kafka_9307
from tests.simulation.campaign import seeds_to_find
from tests.simulation.directed import PowerLossInSwap, TwoUncleanElections, UncleanElection
from tests.simulation.world import Fault, Simulation
from tests.storage import compaction_crashes

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore:coroutine")
QUICK = {
    "KIP-101 loss": range(2, 102),
    "KIP-101 divergence": range(36, 136),
    "KIP-320": range(30, 90),
    "AsyncIsr": range(60),
    "KAFKA-6082": range(5),
    "lost ack": range(1, 21),
    "KAFKA-19999": range(9, 29),
    "KAFKA-9807": range(1, 21),
    "KIP-890": range(36, 76),
    "KAFKA-17507": range(4, 44),
    "KAFKA-19163": range(2, 32),
    "KAFKA-13636": range(42, 102),
    "two owners": range(1, 41),
    "KAFKA-10778": range(5, 65),
    "CORDS": range(4, 64),
    "KAFKA-5490": range(8),
    "KAFKA-13727": range(2, 10),
    "transaction cut in two": range(3, 11),
    "markers by key": range(3, 11),
    "offline replica": range(2, 10),
    "past the first unstable offset": range(1, 9),
    "late registration": range(3),
    "late fsync": range(1, 4),
}
"""Seeds of which at least one finds a mutant; the first did when this was written."""


DIRECTED = (4, 5)
"""Seeds most of which have a broker that does not begin to coordinate under its directed faults."""


@pytest.fixture(autouse=True)
def loud() -> Iterator[None]:
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.slow
@pytest.mark.parametrize("mutant", QUICK)
def test_the_simulation_finds_a_mutant(mutant: str) -> None:
    seeds = QUICK[mutant]
    assert seeds_to_find(mutant, first=seeds[0], most=len(seeds)) is not None


def _preferred_leader_without_registry(seed: int) -> str | None:
    """The violation after each broker in turn restarts, loses the registry, and is to lead again."""
    for broker in range(3):
        other = (broker + 1) % 3
        script = [
            Fault(1000, "restart", broker),
            Fault(2500, "cut registry", broker),
            Fault(100, "move", other),
            Fault(300, "move", other),
            Fault(2500, "move", broker),
        ]
        violation = Simulation(seed, script=script, transactions=True).run().violation
        if violation is not None:
            return violation
    return None


@pytest.mark.slow
def test_a_registry_lost_midway_leaves_no_coordinator_without_its_partition() -> None:
    """KAFKA-9307, with directed faults."""
    logging.disable(logging.CRITICAL)
    assert all(_preferred_leader_without_registry(seed) is None for seed in DIRECTED)
    with kafka_9307():
        found = (_preferred_leader_without_registry(seed) for seed in DIRECTED)
        assert any(violation is not None and violation.startswith("L1") for violation in found)


def test_an_offset_before_a_tombstone_is_lost_where_it_is_not_written_again() -> None:
    """A scenario of the group coordinator: delete the group under a transaction, commit, compact, load."""
    commit_in_a_transaction_before_a_tombstone(Harness())
    with tombstone_after_offset(), pytest.raises(AssertionError):
        commit_in_a_transaction_before_a_tombstone(Harness())


UNCLEAN = range(6)


@pytest.mark.parametrize("seed", UNCLEAN)
def test_a_log_truncated_below_its_compacted_end_compacts_the_new_records(seed: int) -> None:
    """KAFKA-3330: with the mutant a key is there twice below the offset that the log reports as compacted."""
    logging.disable(logging.CRITICAL)
    sound = UncleanElection(seed)
    assert sound.run().violation is None
    (forgiven,) = sound.monitor.forgiven
    assert forgiven.acknowledged > 0, "nothing was lost, so no log was truncated"
    with kafka_3330():
        violation = UncleanElection(seed).run().violation
    assert violation is not None, "the mutant was not found"
    assert violation.startswith("C1") and "although there is" in violation  # noqa: PT018


@pytest.mark.slow
@pytest.mark.parametrize("seed", UNCLEAN[:2])
def test_a_follower_truncates_to_the_end_of_its_own_epoch_where_the_leaders_ends_later(seed: int) -> None:
    """KIP-279: with the mutant the follower keeps records that the leader does not have."""
    logging.disable(logging.CRITICAL)
    sound = TwoUncleanElections(seed)
    assert sound.run().violation is None
    assert [each.acknowledged > 0 for each in sound.monitor.forgiven] == [True, True], "an election lost nothing"
    with kip_279():
        violation = TwoUncleanElections(seed).run().violation
    assert violation is not None, "the mutant was not found"
    assert violation.startswith("L1") and "the second follows" in violation  # noqa: PT018


def _first_to_find(sync: int, most: int) -> str | None:
    for seed in range(most):
        with unsynced_swap(sync):
            violation = PowerLossInSwap(seed).run().violation
        if violation is not None:
            return violation
    return None


@pytest.mark.slow
@pytest.mark.parametrize("sync", [1, 2, 3])
def test_a_missing_sync_of_a_swap_loses_records_with_the_power(sync: int) -> None:
    logging.disable(logging.CRITICAL)
    violation = _first_to_find(sync, most=30)
    assert violation is not None
    assert violation[:3] in ("R13", "C1:")


@pytest.mark.slow
def test_a_swap_that_loses_its_power_at_any_call_loses_no_record() -> None:
    logging.disable(logging.CRITICAL)
    crashes = 0
    for seed in range(3):
        simulation = PowerLossInSwap(seed)
        assert simulation.run().violation is None, f"seed {seed}"
        crashes += simulation.crashes
    assert crashes > 25, "hardly any swap lost its power"


@pytest.mark.slow
@pytest.mark.parametrize("mutant", CHECKPOINT_MUTANTS)
def test_without_the_compaction_checkpoint_a_loss_of_power_takes_records_or_epochs(mutant: str) -> None:
    """The test of the unchanged log is `test_power_is_lost_at_every_call_of_a_compaction`."""
    logging.disable(logging.CRITICAL)
    with CHECKPOINT_MUTANTS[mutant]():
        crashes, seen = compaction_crashes.crashes(), set[object]()
        found = (
            compaction_crashes.judged(crash, way, choose, seen)
            for crash in crashes[2::11]
            for way, choose in compaction_crashes.ways(crash).items()
        )
        assert any(found)
