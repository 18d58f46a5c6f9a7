"""A search that runs the same way in every run, for machines that are to hold and for mutants that are to be found."""

from __future__ import annotations

from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test


def run_search(machine: type[RuleBasedStateMachine], examples: int, steps: int) -> None:
    """Run so many examples of at most so many steps; nothing is shrunk and nothing kept. Raises what a rule raises."""
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
