"""Many seeds, on all cores: `make simulate` and `python -m tests simulate`.

    python -m tests simulate --seed 7 --trace      one seed, with a trace of its events
    python -m tests simulate --seeds 20000         from seed 0 on, in one process for each core
    python -m tests simulate --seeds 500 --disks   with disks that fail (tests/simulation/disk_faults.py)
    python -m tests simulate --seeds 500 --compaction    with compacted topics (tests/simulation/compaction.py)
    python -m tests simulate --seeds 500 --moves   with leaders that change often, and no other faults
    python -m tests simulate --seeds 100 --directed swap    with a script of faults (tests/simulation/directed.py)
    python -m tests simulate --mutant KIP-279      how many seeds it takes to find a mutant

The first violation ends a campaign and its seed is printed; the same seed replays byte for byte. A process runs its
seeds one after the other. PYTHONHASHSEED is pinned, because the order of a set of strings depends on it.
"""

from __future__ import annotations

import argparse
import gc
import logging
import multiprocessing
import os
import statistics
import sys
import time
from collections import Counter
from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

from tests.mutants.compaction import COMPACTION_MUTANTS, NEED_A_SCRIPT
from tests.mutants.logs import LOG_MUTANTS
from tests.mutants.replication import MUTANTS as REPLICATION_MUTANTS
from tests.mutants.replication import NEED_MOVES
from tests.mutants.transactions import TRANSACTION_MUTANTS
from tests.simulation.compaction import COMPACTED, CompactionSimulation
from tests.simulation.directed import SCRIPTS
from tests.simulation.disk_faults import DISK_FAULTS
from tests.simulation.world import FAULTS, Result, Simulation

MUTANTS = {**REPLICATION_MUTANTS, **TRANSACTION_MUTANTS, **LOG_MUTANTS, **COMPACTION_MUTANTS}
SEEDS_AT_A_TIME = 25
LARGEST_MUTANT_SEARCH = 2000


class Profile(NamedTuple):
    """The options of a seed: `transactions` overrides the seed's own draw, `disks` makes disks fail, too, `compaction`
    compacts topics, `directed` names a script, with `moves` leaders change often.
    """

    transactions: bool | None = None
    disks: bool = False
    compaction: bool = False
    directed: str | None = None
    moves: bool = False

    def simulation(self, seed: int) -> Simulation:
        if self.directed is not None:
            return SCRIPTS[self.directed](seed)
        if self.compaction:
            return CompactionSimulation(seed, disks=self.disks)
        return Simulation(seed, transactions=self.transactions, disks=self.disks, moves=self.moves)

    @property
    def options(self) -> str:
        """The options as on the command line."""
        script = f" --directed {self.directed}" if self.directed is not None else ""
        return " --disks" * self.disks + " --compaction" * self.compaction + " --moves" * self.moves + script

    def must_happen(self, seeds: int) -> tuple[str, ...]:
        """Faults that this many seeds must have drawn; if one is missing, the harness is broken."""
        if self.directed is not None or self.moves:
            return ()
        if self.compaction:
            return (*FAULTS, *COMPACTED) if seeds >= 300 else COMPACTED if seeds >= 20 else ()
        if self.disks:
            return (*FAULTS, *DISK_FAULTS) if seeds >= 300 else ()
        return FAULTS if seeds >= 1000 else ()


PLAIN = Profile()


def run_seed(seed: int, profile: Profile = PLAIN) -> Result:
    """One run; an exception that a broker or a client did not expect counts as a violation."""
    logging.disable(logging.CRITICAL)
    try:
        return profile.simulation(seed).run()
    except Exception as error:
        return Result(seed, violation=f"unexpected: {error!r}")


def _run_some(seeds: range, profile: Profile) -> list[Result]:
    gc.disable()
    results = []
    for seed in seeds:
        result = run_seed(seed, profile)
        results.append(result)
        if result.violation:
            break
    gc.collect()
    return results


def _results(first: int, count: int, workers: int, profile: Profile) -> Iterator[Result]:
    chunks = [
        range(begin, min(begin + SEEDS_AT_A_TIME, first + count))
        for begin in range(first, first + count, SEEDS_AT_A_TIME)
    ]
    if workers == 1:
        for chunk in chunks:
            yield from _run_some(chunk, profile)
        return
    with multiprocessing.get_context("fork").Pool(workers, initializer=_quietly, maxtasksperchild=20) as pool:
        for results in pool.imap(partial(_run_some, profile=profile), chunks):
            yield from results


def _quietly() -> None:
    """A killed process leaves unfinished coroutines behind, and Python warns about each when it collects them."""
    sys.unraisablehook = lambda _: None


def campaign(first: int, count: int, workers: int, profile: Profile) -> int:
    """Run seeds until one finds a violation; returns the exit status."""
    total, started, done = Counter[str](), time.monotonic(), 0
    steps = acknowledged = checks = 0
    virtual_s = 0.0
    transactions = Counter[str]()
    for result in _results(first, count, workers, profile):
        done += 1
        total.update(result.faults)
        transactions.update(result.transactions)
        steps += result.steps
        checks += result.checks
        acknowledged += result.acknowledged
        virtual_s += result.virtual_s
        if result.violation:
            print(f"\nseed {result.seed}: {result.violation}", *result.trace, sep="\n")
            print(f"again: python -m tests simulate --seed {result.seed} --trace{profile.options}")
            return 1
        if done % 100 == 0 or done == count:
            rate = done / (time.monotonic() - started)
            left_s = (count - done) / rate
            print(f"\r{done} of {count} seeds, {rate:.1f} a second, {left_s:.0f} s left ", end="", flush=True)
    print(
        f"\n{done} seeds clean: {virtual_s / 3600:.1f} hours of cluster time, {steps} events, {checks} times looked, "
        f"{acknowledged} records acknowledged, none lost"
    )
    print("transactions:", ", ".join(f"{name} {number}" for name, number in sorted(transactions.items())))
    print("faults:", ", ".join(f"{name} {number}" for name, number in sorted(total.items())))
    never = [name for name in profile.must_happen(count) if not total[name]]
    if never:
        print(f"the harness is broken: it never tried {never}")
        return 1
    return 0


def seeds_to_find(mutant: str, first: int, most: int = LARGEST_MUTANT_SEARCH) -> int | None:
    """How many seeds from `first` on it takes until the mutant causes a violation; None for more than `most`."""
    profile = Profile(
        mutant in TRANSACTION_MUTANTS,
        mutant in LOG_MUTANTS,
        mutant in COMPACTION_MUTANTS,
        NEED_A_SCRIPT.get(mutant),
        mutant in NEED_MOVES,
    )
    for number in range(most):
        with MUTANTS[mutant]():
            if run_seed(first + number, profile).violation:
                return number + 1
    return None


def hunt(names: list[str], tries: int, most: int) -> int:
    """Search for mutants, each `tries` times from different seeds, and print the medians; returns the exit status."""
    status = 0
    for name in names:
        found = [seeds_to_find(name, first=100_000 * (number + 1), most=most) for number in range(tries)]
        counts = [each if each is not None else most for each in found]
        escaped = found.count(None)
        print(
            f"{name}: median {statistics.median(counts):.0f} seeds, {counts}", "ESCAPED" if escaped else "", flush=True
        )
        status |= escaped > 0
    return status


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests simulate", description=__doc__.split("\n")[0])
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--seeds", type=int, default=1, help="how many")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--disks", action="store_true", help="let disks fail, too")
    parser.add_argument("--compaction", action="store_true", help="compact all topics")
    parser.add_argument("--directed", choices=SCRIPTS, help="a script in place of drawn faults")
    parser.add_argument("--moves", action="store_true", help="change leaders often, and cause no other faults")
    parser.add_argument("--trace", action="store_true", help="print what happened")
    parser.add_argument("--mutant", action="append", choices=[*MUTANTS, "all"], help="look for this planted mistake")
    parser.add_argument("--tries", type=int, default=3, help="searches for a mutant")
    parser.add_argument("--most", type=int, default=LARGEST_MUTANT_SEARCH, help="seeds for one search")
    options = parser.parse_args(arguments)
    if os.environ.get("PYTHONHASHSEED") != "0":
        environment = {**os.environ, "PYTHONHASHSEED": "0"}
        os.execve(sys.executable, [sys.executable, "-m", "tests", "simulate", *arguments], environment)
    _quietly()
    if options.mutant:
        names = list(MUTANTS) if "all" in options.mutant else options.mutant
        return hunt(names, options.tries, options.most)
    profile = Profile(
        disks=options.disks, compaction=options.compaction, directed=options.directed, moves=options.moves
    )
    if options.seeds == 1:
        (result,) = _run_some(range(options.seed, options.seed + 1), profile)
        if options.trace:
            print(*result.trace, sep="\n")
        print(
            f"seed {result.seed}: {result.violation or 'clean'}; {result.steps} events, {result.virtual_s:.3f} s, "
            f"{result.acknowledged} acknowledged, digest {result.digest}"
        )
        return 1 if result.violation else 0
    return campaign(options.seed, options.seeds, options.workers, profile)
