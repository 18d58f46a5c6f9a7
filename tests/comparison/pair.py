"""Both brokers, Apache Kafka 3.9.2 and Odradek, side by side, and the run of a scenario on both at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import NamedTuple

from odradek.broker_process import BrokerProcess
from tests.comparison.intended import Difference, Intended, compare, explanation
from tests.comparison.side import Scenario, Side
from tests.jvm.kafka import running_kafka

PROPERTIES = {
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "4",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.replication.factor": "1",
    "offsets.topic.replication.factor": "1",
    "group.initial.rebalance.delay.ms": "0",
    "num.partitions": "1",
    # The records of the scenarios are older than a week, and stay.
    "log.retention.ms": "-1",
    "group.coordinator.rebalance.protocols": "classic",
    # No broker fails here: a broker that a slow machine delays for seconds stays in its cluster.
    "zookeeper.session.timeout.ms": "30000",
}
"""The same for both."""


class Ports(NamedTuple):
    """The ports of the two."""

    ours: int
    theirs: int


class Outcome(NamedTuple):
    """The result of one scenario."""

    unexplained: list[Difference]
    met: set[str]
    asked: set[tuple[int, int]]
    failure: BaseException | None
    answers: int


@contextmanager
def running_pair(folder: Path) -> Iterator[Ports]:
    """Both brokers, fresh, with the same properties."""
    with running_kafka(folder / "kafka", PROPERTIES) as kafka, BrokerProcess(folder / "odradek", PROPERTIES) as odradek:
        yield Ports(odradek.port, kafka.port)


@asynccontextmanager
async def sides(ports: Ports, versions: dict[int, tuple[int, int]]) -> AsyncIterator[tuple[Side, Side]]:
    """Two sides at the beginning of a scenario."""
    pair = Side("Odradek", ports.ours, versions), Side("Kafka", ports.theirs, versions)
    try:
        yield pair
    finally:
        for side in pair:
            side.close()


async def announced(port: int) -> dict[int, tuple[int, int]]:
    """The versions of each API in a broker's ApiVersions response."""
    side = Side("", port, {})
    answer = await side.quietly("ApiVersions", 0)
    side.close()
    return {each.api_key: (each.min_version, each.max_version) for each in answer.api_keys}


async def tell(scenario: Scenario, ports: Ports, versions: dict[int, tuple[int, int]]) -> Outcome:
    """Run a scenario on both brokers and compare."""
    async with sides(ports, versions) as (ours, theirs):
        notified = await asyncio.gather(scenario(ours), scenario(theirs), return_exceptions=True)
        failure = next((each for each in notified if isinstance(each, BaseException)), None)
        return judge(ours, theirs, failure)


def judge(ours: Side, theirs: Side, failure: BaseException | None = None) -> Outcome:
    """Compare the responses of two sides."""
    unexplained: list[Difference] = []
    met: set[str] = set()
    for our, their in zip(ours.steps, theirs.steps, strict=False):
        assert (our.api, our.version) == (their.api, their.version), (our, their)
        for difference in compare(our, their):
            intended: Intended | None = explanation(difference)
            if intended is None:
                unexplained.append(difference)
            else:
                met.add(intended.name)
    if failure is None and len(ours.steps) != len(theirs.steps):
        failure = AssertionError(f"{len(ours.steps)} answers of Odradek, {len(theirs.steps)} of Kafka")
    return Outcome(unexplained, met, ours.asked & theirs.asked, failure, len(theirs.steps))


async def ready(port: int) -> None:
    """Wait until a broker is in its own metadata."""
    side = Side("", port, {})
    await side.wait(lambda answer: answer.brokers, "Metadata", 1, topics=[])
    side.close()
