"""The same scenarios on two clusters of three brokers: the responses of brokers that are the wrong ones for a request.

Apache Kafka 3.9.2 and Odradek get the same requests, each at the leader of a partition, at a follower, at a broker
without a replica, at a broker that is not the coordinator and at one that is not the controller. What is equal and what
may differ are the same as in `test_comparison`.

ODRADEK_SCENARIOS="after_a_move" runs only this one.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator

import pytest

from tests.comparison.pair import Outcome, announced
from tests.comparison.scenarios_elsewhere import ELSEWHERE
from tests.comparison.scenarios_partitions import PARTITIONS
from tests.comparison.trio import CONTROLLER, Clusters, acquainted, running_clusters, tell_clusters

pytestmark = [pytest.mark.jvm, pytest.mark.slow]

SCENARIO = (*PARTITIONS, *ELSEWHERE)
CHOSEN = os.environ.get("ODRADEK_SCENARIOS", "").split()
SHOWN = 30
"""Differences in the message of a failure."""


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Outcome]]:
    """Both clusters, and all scenarios run, each from the state that those before it have left."""
    with running_clusters(tmp_path_factory.mktemp("clusters")) as clusters:
        yield asyncio.run(_tell(clusters))


async def _tell(clusters: Clusters) -> dict[str, Outcome]:
    for ports in clusters:
        await acquainted(ports)
    versions = await announced(clusters.theirs[CONTROLLER])
    scenarios = [each for each in SCENARIO if not CHOSEN or each.__name__ in CHOSEN]
    return {each.__name__: await tell_clusters(each, clusters, versions) for each in scenarios}


@pytest.mark.parametrize("scenario", [each.__name__ for each in SCENARIO])
def test_every_broker_answers_as_kafkas_does(outcomes: dict[str, Outcome], scenario: str) -> None:
    if scenario not in outcomes:
        pytest.skip("not among ODRADEK_SCENARIOS")
    outcome = outcomes[scenario]
    if outcome.failure is not None:
        raise outcome.failure
    shown = "\n".join(str(each) for each in outcome.unexplained[:SHOWN])
    assert not outcome.unexplained, f"{len(outcome.unexplained)} differences, the first of them:\n{shown}"
    assert outcome.answers
