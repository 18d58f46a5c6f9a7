"""Long runs on real processes: `make soak` and `python -m tests soak`.

    python -m tests soak                        half an hour of each
    python -m tests soak --minutes 5 endurance  three brokers under clients that come and go: does anything grow?
    python -m tests soak --seed 7 faults        the fault tests, with a seed after the other
    python -m tests soak searches               random searches for examples that break a test (tests/explore.py)
    python -m tests soak stalls                 a lone client beside 50 MB a second to 2,000 partitions

The first failure ends a campaign with status 1. A round, or a test, that has begun when the time is over is finished.
tests/README.md describes the fault tests and their checks.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import Final

from odradek.cluster_process import ClusterProcess
from tests.explore import explore
from tests.soak.footprint import ENOUGH, Footprint, footprint, growth
from tests.soak.life import SHORT_MEMORY, Life
from tests.soak.stalls import stalls

FAULT_TESTS: Final = (
    "tests/cluster/test_faults.py",
    "tests/cluster/test_transactions_faults.py",
    "tests/compatibility/test_exactly_once.py",
    "tests/streams/test_chaos.py",
    "tests/spark_jobs/test_kills.py",
)
PROPERTIES: Final = {**SHORT_MEMORY, "min.insync.replicas": "2", "transaction.state.log.replication.factor": "3"}
_NOTES: Final = 60
"""The approximate number in a run: enough for medians, few enough to be read."""


def endurance(minutes: float, seed: int) -> int:
    """Rounds of clients' lives on three brokers; 1 if the resources of a process have grown, or a round has failed."""
    with (
        tempfile.TemporaryDirectory(prefix="odradek-soak-") as folder,
        ClusterProcess(Path(folder), 3, PROPERTIES) as cluster,
    ):
        pids = {f"broker {number}": broker.pid for number, broker in cluster.brokers.items()}
        pids["registry"] = cluster.registry.pid
        notes: dict[str, list[Footprint]] = {name: [] for name in pids}
        life = Life(cluster.bootstrap_servers, 3, seed)
        life.begin()
        for rounds, at in _in_time(minutes, _NOTES):
            life.round()
            if at:
                for name, pid in pids.items():
                    notes[name].append(footprint(pid))
                print(f"{at}, round {rounds}, {life.records:,} records: {_latest(notes)}", flush=True)
    return _judge(notes)


def faults(minutes: float, seed: int) -> int:
    """The fault tests in turn, each with the next seed when all have had one; 1 if one of them fails."""
    turns = ((number, test) for number in count(seed) for test in FAULT_TESTS)
    for _, at in _in_time(minutes, None):
        number, test = next(turns)
        command = [sys.executable, "-m", "pytest", "-q", "-s", "-p", "no:cacheprovider", test]
        environment = {**os.environ, "ODRADEK_SEED": str(number)}
        ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        print(f"{at}, {test} with seed {number}: {_last(ended.stdout)}", flush=True)
        if ended.returncode:
            printed = Path(tempfile.mkdtemp(prefix="odradek-soak-")) / "output"
            printed.write_text(ended.stdout + ended.stderr)
            print(f"its whole output is in {printed}")
            return 1
    return 0


def _in_time(minutes: float, notes: int | None) -> Iterator[tuple[int, str]]:
    """The number of each round that begins in time, with a name of the moment where it is to be measured."""
    begun = time.monotonic()
    next_s = 0.0
    for number in count(1):
        passed = time.monotonic() - begun
        if passed >= minutes * 60 and number > 1:
            return
        at = ""
        if notes is None or passed >= next_s:
            at = f"{passed / 60:5.1f} min"
            next_s = passed + minutes * 60 / (notes or 1)
        yield number, at


def _latest(notes: dict[str, list[Footprint]]) -> str:
    """The resources of each process now."""
    now = {name: each[-1] for name, each in notes.items()}
    return "; ".join(f"{name} {it.megabytes:.0f} MB, {it.descriptors} fds" for name, it in now.items())


def _judge(notes: dict[str, list[Footprint]]) -> int:
    """Prints the resources that have grown; the status."""
    least = min(map(len, notes.values()))
    if least < ENOUGH:
        print(f"{least} notes are too few for a verdict, {ENOUGH} are the least: take more --minutes")
        return 0
    grown = {name: growth(each) for name, each in notes.items()}
    for name, what in grown.items():
        for quantity, (before, after) in what.items():
            print(f"{name} grows: {quantity} from {before:g} to {after:g} (medians of the second and the last third)")
    if any(grown.values()):
        return 1
    print("nothing grows")
    return 0


def _last(printed: str) -> str:
    """pytest's summary line."""
    lines = [line for line in printed.splitlines() if line.strip()]
    return lines[-1].strip("= ") if lines else "nothing was printed"


def searches(minutes: float, seed: int) -> int:
    """Random searches over the machines, the storage and the protocol; 1 if one finds a failure."""
    return explore(minutes, seed, ("tests/machines", "tests/storage", "tests/protocol"), factor=5)


PARTS: Final = {"endurance": endurance, "faults": faults, "searches": searches, "stalls": stalls}
_NAMES: Final = ", ".join(PARTS)


def main(arguments: Sequence[str]) -> int:
    """Runs a campaign; the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests soak", description=__doc__.partition("\n")[0])
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"{_NAMES}, by default all")
    parser.add_argument("--minutes", type=float, default=30.0, help="for each part (30)")
    parser.add_argument("--seed", type=int, default=1, help="of what is drawn, and of the first fault tests (1)")
    options = parser.parse_args(arguments)
    unknown = [part for part in options.parts if part not in PARTS]
    if unknown:
        parser.error(f"{unknown[0]} is no part; there are {_NAMES}")
    for part in options.parts or PARTS:
        print(f"{part}, {options.minutes:g} minutes, seed {options.seed}", flush=True)
        if PARTS[part](options.minutes, options.seed):
            return 1
    return 0
