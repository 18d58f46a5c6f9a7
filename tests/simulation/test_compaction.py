"""The simulation with compacted topics: some seeds, and that a seed replays."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator

import pytest

from tests.simulation.compaction import COMPACTED, CompactionSimulation
from tests.simulation.regressions import COMPACTION_SEEDS, COMPACTION_SEEDS_WITH_DISKS

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore:coroutine")


@pytest.fixture(autouse=True)
def silence() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.slow
def test_seeds_are_clean_and_cover_every_event_of_compaction() -> None:
    seen: Counter[str] = Counter()
    for seed in range(4):
        result = CompactionSimulation(seed, duration_s=4.0).run()
        assert result.violation is None, f"seed {seed}: {result.violation}"
        seen.update(result.faults)
    assert not [kind for kind in COMPACTED if not seen[kind]]
    assert seen["swaps"] > 100, "a cluster that hardly compacts is no test"


@pytest.mark.slow
@pytest.mark.parametrize("seed", COMPACTION_SEEDS)
def test_regression_seeds_are_clean(seed: int) -> None:
    assert CompactionSimulation(seed).run().violation is None, COMPACTION_SEEDS[seed]


@pytest.mark.slow
@pytest.mark.parametrize("seed", COMPACTION_SEEDS_WITH_DISKS)
def test_regression_seeds_with_failing_disks_are_clean(seed: int) -> None:
    result = CompactionSimulation(seed, disks=True).run()
    assert result.violation is None, COMPACTION_SEEDS_WITH_DISKS[seed]


@pytest.mark.slow
def test_a_seed_replays_byte_for_byte() -> None:
    command = [sys.executable, "-m", "tests", "simulate", "--compaction", "--seed", "2", "--trace"]
    runs = [
        subprocess.run(
            command, capture_output=True, text=True, check=True, env={**os.environ, "PYTHONHASHSEED": pinned}
        )
        for pinned in ("0", "random")
    ]
    assert runs[0].stdout == runs[1].stdout
    assert "digest" in runs[0].stdout
