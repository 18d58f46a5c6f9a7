"""Random searches for examples that break a test: `make explore` and `python -m tests explore`.

    python -m tests explore                                   the machines, ten minutes, from a seed of its own
    python -m tests explore --minutes 60 tests/storage        other tests
    python -m tests explore --seed 7 --rounds 1 TEST          the round that has found a failure, once more

A round runs the tests with many more examples than `make test`, drawn from one seed; the next round has the next seed.
The first failure ends the search with status 1: it prints the smallest failing example and the command that finds it
again. A round that has begun when the time is over is stopped.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
TESTS: Final = ("tests/machines",)
NONE_COLLECTED: Final = 5
_STATE_NOISE: Final = re.compile(r"^ *\+ Exception Group Traceback.*\n", re.MULTILINE)


def explore(
    minutes: float, seed: int, tests: Sequence[str] = TESTS, *, rounds: int | None = None, factor: int = 20
) -> int:
    """Rounds of searches until the time is over; 1 as soon as one of them finds a failure."""
    end = time.monotonic() + minutes * 60
    for number in count():
        left = end - time.monotonic()
        if left <= 0 or number == rounds:
            return 0
        status, printed = _round(tests, seed + number, factor, left if rounds is None else None)
        print(f"seed {seed + number}: {_STATES.get(status, 'failed')}", flush=True)
        if status is not None and status != 0:
            print(_STATE_NOISE.sub("", printed))
            failed = re.findall(r"^FAILED (\S+)", printed, re.MULTILINE)
            again = " ".join(failed or tests)
            print(f"replay: python -m tests explore --seed {seed + number} --rounds 1 --factor {factor} {again}")
            return 1
    return 0


_STATES: Final = {0: "clean", None: "stopped, the time is over", NONE_COLLECTED: "no search among these tests"}


def _round(tests: Sequence[str], seed: int, factor: int, seconds: float | None) -> tuple[int | None, str]:
    """The exit status of pytest, None where the time was over first, and its output."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:logging", "-p", "no:cacheprovider"]
    command += ["-m", "not jvm", f"--hypothesis-seed={seed}", *tests]
    environment = {**os.environ, "ODRADEK_EXPLORE": str(factor), "PYTHONHASHSEED": "0"}
    try:
        done = subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=seconds
        )
    except subprocess.TimeoutExpired:
        return None, ""
    return done.returncode, done.stdout + done.stderr


def main(arguments: Sequence[str]) -> int:
    """Runs a search; the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests explore", description=__doc__.partition("\n")[0])
    parser.add_argument("tests", nargs="*", metavar="TEST", default=list(TESTS), help="files, folders or test ids")
    parser.add_argument("--minutes", type=float, default=10.0, help="how long to search (10)")
    parser.add_argument("--seed", type=int, default=None, help="of the first round (random)")
    parser.add_argument("--rounds", type=int, default=None, help="how many rounds at most; they are not stopped")
    parser.add_argument("--factor", type=int, default=20, help="how many times as many examples as in make test (20)")
    options = parser.parse_args(arguments)
    seed = random.SystemRandom().randrange(1, 1_000_000) if options.seed is None else options.seed
    print(f"explore {' '.join(options.tests)}, {options.minutes:g} minutes, seed {seed}", flush=True)
    return explore(options.minutes, seed, options.tests, rounds=options.rounds, factor=options.factor)
