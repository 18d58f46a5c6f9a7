"""The same scenarios on two brokers: every API in every version, and the responses are the same.

The scenarios run on Apache Kafka 3.9.2 and on Odradek, request by request; ids and times get names, and the rest has to
be equal, but for the differences that `intended.py` lists with reasons. Then hypothesis draws scenarios of its own.

ODRADEK_SCENARIOS="writes reads" runs only these; ODRADEK_DRAWN=1000 draws so many scenarios, other ones at each run.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from typing import NamedTuple

import pytest
import uvloop
from hypothesis import HealthCheck, given, note, settings

from tests.comparison import drawn
from tests.comparison.intended import INTENDED
from tests.comparison.pair import Outcome, Ports, announced, judge, ready, running_pair, sides, tell
from tests.comparison.requests import name_of
from tests.comparison.scenarios_cluster import CLUSTER
from tests.comparison.scenarios_configs import CONFIGS
from tests.comparison.scenarios_groups import GROUPS
from tests.comparison.scenarios_logs import LOGS
from tests.comparison.scenarios_malformed import MALFORMED
from tests.comparison.scenarios_topics import TOPICS
from tests.comparison.scenarios_transactions import TRANSACTIONS
from tests.comparison.side import Scenario

pytestmark = [pytest.mark.jvm, pytest.mark.slow]

SCENARIO = (*LOGS, *TOPICS, *GROUPS, *TRANSACTIONS, *CONFIGS, *CLUSTER, *MALFORMED)
CHOSEN = os.environ.get("ODRADEK_SCENARIOS", "").split()
DRAWN = int(os.environ.get("ODRADEK_DRAWN", "0"))
USUALLY_DRAWN = 40
SHOWN = 30
"""Differences in the message of a failure."""


class Notified(NamedTuple):
    """All scenarios, run."""

    ports: Ports
    versions: dict[int, tuple[int, int]]
    outcomes: dict[str, Outcome]
    runner: asyncio.Runner


@pytest.fixture(scope="module")
def notified(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Notified]:
    """Both brokers, and all scenarios run, each from the state that those before it have left."""
    with (
        running_pair(tmp_path_factory.mktemp("comparison")) as ports,
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        versions = runner.run(_ready(ports))
        scenarios = [each for each in SCENARIO if not CHOSEN or each.__name__ in CHOSEN]
        yield Notified(ports, versions, runner.run(_tell(scenarios, ports, versions)), runner)


async def _ready(ports: Ports) -> dict[int, tuple[int, int]]:
    for port in ports:
        await ready(port)
    return await announced(ports.theirs)


async def _tell(scenarios: list[Scenario], ports: Ports, versions: dict[int, tuple[int, int]]) -> dict[str, Outcome]:
    return {each.__name__: await tell(each, ports, versions) for each in scenarios}


def _check(outcome: Outcome) -> None:
    if outcome.failure is not None:
        raise outcome.failure
    shown = "\n".join(str(each) for each in outcome.unexplained[:SHOWN])
    assert not outcome.unexplained, f"{len(outcome.unexplained)} differences, the first of them:\n{shown}"


@pytest.mark.parametrize("scenario", [each.__name__ for each in SCENARIO])
def test_odradek_answers_as_kafka_does(notified: Notified, scenario: str) -> None:
    if scenario not in notified.outcomes:
        pytest.skip("not among ODRADEK_SCENARIOS")
    _check(notified.outcomes[scenario])


def test_every_version_is_requested(notified: Notified) -> None:
    if CHOSEN:
        pytest.skip("only ODRADEK_SCENARIOS were run")
    asked = set().union(*(each.asked for each in notified.outcomes.values()))
    missing = {
        name_of(key): [version for version in range(low, high + 1) if (key, version) not in asked]
        for key, (low, high) in notified.versions.items()
    }
    assert not {name: versions for name, versions in missing.items() if versions}


def test_every_intended_difference_occurs(notified: Notified) -> None:
    if CHOSEN:
        pytest.skip("only ODRADEK_SCENARIOS were run")
    met = set().union(*(each.met for each in notified.outcomes.values()))
    assert [each.name for each in INTENDED if each.name not in met] == []


def test_drawn_scenarios(notified: Notified) -> None:
    @settings(
        max_examples=DRAWN or USUALLY_DRAWN,
        derandomize=not DRAWN,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(drawn.scenario)
    def tell_drawn(scenario: list[drawn.Drawn]) -> None:
        for each in scenario:
            note(str(each))
        _check(notified.runner.run(_tell_drawn(notified, scenario)))

    tell_drawn()


async def _tell_drawn(notified: Notified, scenario: list[drawn.Drawn]) -> Outcome:
    prefix = drawn.fresh()
    async with sides(notified.ports, notified.versions) as (ours, theirs):
        async with asyncio.TaskGroup() as both:
            both.create_task(drawn.tell(ours, scenario, prefix))
            both.create_task(drawn.tell(theirs, scenario, prefix))
        return judge(ours, theirs)
