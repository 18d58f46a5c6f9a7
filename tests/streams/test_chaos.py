"""Exactly once survives kill -9 of instances, of the broker and of leaders; a member that has lost its place does no
harm.

    ODRADEK_SEED=7             other moments, other victims, another order
    ODRADEK_SOAK_ROUNDS=10     every fault that often
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pytest

from odradek.pytest_plugin import BrokerFactory, ClusterFactory
from tests.streams import counting
from tests.streams.apps.storm import (
    AT_LEAST_ONCE,
    BROKER,
    EXACTLY_ONCE_V2,
    KILL_BROKER,
    KILL_ONE,
    KILL_ONE_FOR_LONG,
    PARTITIONS,
    PAUSE_ONE,
    Storm,
)
from tests.streams.counting import COUNTS, WORDS
from tests.support.nemesis import ROUNDS, SEED, Fault, in_order

FAULTS: Final = {
    EXACTLY_ONCE_V2: [KILL_ONE_FOR_LONG, KILL_BROKER, PAUSE_ONE],
    AT_LEAST_ONCE: [KILL_ONE, KILL_BROKER],
}
"""Faults for which there is time in the suite."""
TOPICS: Final = {WORDS: PARTITIONS, COUNTS: PARTITIONS}


def campaign(storm: Storm, chance: random.Random, faults: Sequence[Fault]) -> None:
    """Each fault so often, in the order of the seed, and the verdict; the storm itself awaits most recoveries."""
    for fault in in_order(storm.faults if ROUNDS else faults, chance):
        storm.strike(fault)
    storm.conclude()


@pytest.mark.slow
@pytest.mark.parametrize("guarantee", [EXACTLY_ONCE_V2, AT_LEAST_ONCE])
def test_kills_of_instances_and_of_the_broker(
    odradek_broker_factory: BrokerFactory, tmp_path: Path, guarantee: str
) -> None:
    chance = random.Random(SEED)
    broker = odradek_broker_factory(BROKER)
    counting.make_topics(broker.bootstrap, TOPICS)

    def kill_broker() -> None:
        broker.kill()
        broker.start()

    with Storm(broker.bootstrap, tmp_path, chance, guarantee, kill_broker) as storm:
        campaign(storm, chance, FAULTS[guarantee])


@pytest.mark.slow
def test_kills_of_leaders(odradek_cluster: ClusterFactory, tmp_path: Path) -> None:
    chance = random.Random(SEED)
    cluster = odradek_cluster(3, {**BROKER, "default.replication.factor": "3"}, min_insync_replicas=2)
    counting.make_topics(cluster.bootstrap_servers, TOPICS)
    cluster.await_topic(COUNTS)

    def kill_leader() -> None:
        led = chance.choice([WORDS, COUNTS, "__consumer_offsets", "__transaction_state"])
        leader = cluster.leader_of(led, 0)
        cluster.kill(leader)
        cluster.await_leader(led, 0, other_than=leader)
        storm.await_progress(f"the end of the leader of {led}")
        cluster.restart(leader)

    with Storm(cluster.bootstrap_servers, tmp_path, chance, kill_broker=kill_leader) as storm:
        campaign(storm, chance, [KILL_BROKER])
