"""The simulation in the tests: some seeds, those of the past, seeds that hypothesis chooses and shrinks, and itself."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.simulation.disk_faults import DISK_FAULTS
from tests.simulation.monitor import ViolationError
from tests.simulation.regressions import SEEDS
from tests.simulation.world import FAULTS, Fault, Simulation

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore:coroutine")


@pytest.fixture(autouse=True)
def silence() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.slow
def test_seeds_are_clean_and_every_fault_is_tried() -> None:
    faults: Counter[str] = Counter()
    acknowledged = 0
    for seed in range(16):
        result = Simulation(seed).run()
        assert result.violation is None, f"seed {seed}: {result.violation}"
        faults.update(result.faults)
        acknowledged += result.acknowledged
    assert not [kind for kind in FAULTS if not faults[kind]]
    assert faults["sessions expired"] > 0
    assert acknowledged > 1000, "a cluster without writes is no test"


@pytest.mark.slow
def test_disks_fail_one_at_a_time_and_nothing_is_lost() -> None:
    faults: Counter[str] = Counter()
    for seed in range(16):
        result = Simulation(seed, disks=True).run()
        assert result.violation is None, f"seed {seed}: {result.violation}"
        faults.update(result.faults)
    assert not [kind for kind in DISK_FAULTS if not faults[kind]]
    assert faults["failed calls to disks"] > 12


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_regression_seeds_are_clean(seed: int) -> None:
    assert Simulation(seed).run().violation is None, SEEDS[seed]


@pytest.mark.slow
def test_a_seed_replays_byte_for_byte() -> None:
    command = [sys.executable, "-m", "tests", "simulate", "--seed", "3", "--trace"]
    runs = [
        subprocess.run(
            command, capture_output=True, text=True, check=True, env={**os.environ, "PYTHONHASHSEED": pinned}
        )
        for pinned in ("0", "random")
    ]
    assert runs[0].stdout == runs[1].stdout
    assert "digest" in runs[0].stdout


fault = st.builds(Fault, st.integers(0, 1500), st.sampled_from(FAULTS), st.integers(0, 3))


@pytest.mark.slow
@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 2**32), script=st.lists(fault, max_size=12))
def test_no_order_of_faults_causes_a_violation(seed: int, script: list[Fault]) -> None:
    assert Simulation(seed, script=script).run().violation is None


def test_a_violation_inside_a_handler_is_raised_although_the_broker_logs_it() -> None:
    monitor = Simulation(1).monitor
    with suppress(ViolationError), monitor.remembering():
        raise ViolationError("R10: cut below what was committed")
    with pytest.raises(ViolationError, match="R10"):
        monitor.look()
