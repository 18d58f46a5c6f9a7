"""A search that runs the same way in every run, for machines without a violation and for mutants that it must find.

The draws of hypothesis depend on the constants of all modules that the process has imported, so a search that has to
find something runs in a process of its own: `python -m tests.machines.searching MODULE MACHINE EXAMPLES STEPS [SEED]`
calls the `search` of the module with that machine.
"""

from __future__ import annotations

import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path

from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test

ROOT = Path(__file__).resolve().parents[2]
FOUND = 3
"""The exit status of a search that has found something."""


def run_search(machine: type[RuleBasedStateMachine], examples: int, steps: int, first: int | None = None) -> None:
    """Run this many examples of at most so many steps, without shrinking or a database. Raises the exception of a rule.

    `first` seeds the draws; without it they follow from the machine.
    """
    if first is not None:
        seed(first)(machine)
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            database=None,
            derandomize=True,
            phases=(Phase.generate,),
            suppress_health_check=list(HealthCheck),
        ),
    )


def search_alone(module: str, machine: str, examples: int, steps: int, first: int | None = None) -> None:
    """Run the `search` of a module in a process of its own, with one of its classes, and with a seed if there is one.

    Raises AssertionError with the violation that it found, RuntimeError where it broke off.
    """
    command = [sys.executable, "-m", __name__, module, machine, str(examples), str(steps)]
    command += [] if first is None else [str(first)]
    environment = {**os.environ, "PYTHONHASHSEED": "0"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    if done.returncode == FOUND:
        raise AssertionError(done.stdout)
    if done.returncode:
        raise RuntimeError(done.stderr)


def main(name: str, machine: str, examples: str, steps: str, *first: str) -> int:
    """One search; returns the exit status."""
    module = import_module(name)
    try:
        module.search(getattr(module, machine), int(examples), int(steps), *map(int, first))
    except AssertionError as found:
        print(found)
        return FOUND
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
