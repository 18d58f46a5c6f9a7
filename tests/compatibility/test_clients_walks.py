"""Clients of five languages walk through their features, on one broker and on three.

confluent-kafka (librdkafka), aiokafka, kafka-python, franz-go, Sarama (which uses the protocol of a configured
version), KafkaJS, and Java's client of 2.8.2, 3.9.2 and 4.3.0: topics and configurations, records in every codec with
headers and times, assignment, seeking, pausing, groups with two members, static and cooperative ones, transactions
committed, aborted and fenced, and their admin clients. On three brokers the oldest and the newest release of a client
walk. The programs are in tests/clients; the output of each has to be, line for line, its output against Apache Kafka
3.9.2.

    --broker kafka                       runs them against Apache Kafka again
    python -m tests.clients record NAME  keeps the output
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final, cast

import pytest

from odradek.broker_process import BrokerProcess
from odradek.cluster_process import ClusterProcess
from tests.clients.toolchain import AbsentError
from tests.clients.walks import NEWEST, WALKS, Walk

pytestmark = [pytest.mark.jvm, pytest.mark.slow]

BESIDES: Final = 3
"""How many run at a time; most of a walk is waiting."""
UNHURRIED: Final = {
    "zookeeper.session.timeout.ms": "30000",
    "replica.lag.time.max.ms": "30000",
    "replica.socket.timeout.ms": "30000",
}
"""No broker fails here: one that a slow machine delays for seconds is not to lose its session."""
START_TIMEOUT_S: Final = 150.0
BETWEEN: Final = frozenset({"sarama-0.11.0.0", "sarama-1.1.0", "java-3.9.2"})
"""Clients with an older and a newer release here: on three brokers those two walk."""


class Paths:
    """Walks under way on one place: each begins when it is first requested, or when another has ended."""

    def __init__(self, bootstrap: str, replication: int, names: list[str]) -> None:
        self._pool = ThreadPoolExecutor(BESIDES)
        self._walks = {
            walk.name: self._pool.submit(walk.run, bootstrap, replication)
            for walk in (*WALKS, NEWEST)
            if walk.name in names
        }

    def printed(self, name: str) -> list[str]:
        walk: Future[list[str]] = self._walks[name]
        return walk.result()

    def close(self) -> None:
        self._pool.shutdown(cancel_futures=True)


def _asked_for(request: pytest.FixtureRequest, place: str) -> list[str]:
    """The walks of this run's tests at a place: a deselected walk does not run."""
    return [
        cast(Walk, item.callspec.params["walk"]).name
        for item in request.session.items
        if isinstance(item, pytest.Function) and item.path == request.path and place in item.name
    ]


@pytest.fixture(scope="module")
def one(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Paths]:
    """The walks on one broker."""
    names = _asked_for(request, "one_broker")
    if request.config.getoption("--broker") == "kafka":
        paths = Paths(request.getfixturevalue("kafka").bootstrap, 1, names)
        yield paths
        paths.close()
        return
    broker = BrokerProcess(tmp_path_factory.mktemp("walks"), timeout_s=START_TIMEOUT_S)
    broker.start()
    paths = Paths(broker.bootstrap, 1, names)
    try:
        yield paths
    finally:
        paths.close()
        broker.close()


@pytest.fixture(scope="module")
def three(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Paths]:
    """The walks on three brokers, with topics of three replicas."""
    if request.config.getoption("--broker") == "kafka":
        pytest.skip("the transcripts are those of one Apache Kafka")
    cluster = ClusterProcess(tmp_path_factory.mktemp("walks"), 3, UNHURRIED, timeout_s=START_TIMEOUT_S)
    cluster.start()
    paths = Paths(cluster.bootstrap_servers, 3, _asked_for(request, "three_brokers"))
    try:
        yield paths
    finally:
        paths.close()
        cluster.close()


@pytest.fixture
def ready(walk: Walk) -> Walk:
    """A walk whose program is built; where that is not possible, the test is skipped."""
    try:
        walk.command()
    except AbsentError as reason:
        pytest.skip(str(reason))
    return walk


def named(walk: Walk) -> str:
    return walk.name


@pytest.mark.parametrize("walk", WALKS, ids=named)
def test_one_broker_gives_clients_the_results_of_kafka(ready: Walk, one: Paths, walk: Walk) -> None:
    assert one.printed(walk.name) == walk.expected()


@pytest.mark.parametrize("walk", [each for each in WALKS if each.name not in BETWEEN], ids=named)
def test_three_brokers_give_clients_the_results_of_kafka(ready: Walk, three: Paths, walk: Walk) -> None:
    assert three.printed(walk.name) == walk.expected()


@pytest.mark.parametrize("walk", [NEWEST], ids=named)
def test_one_broker_assigns_to_franz_go(request: pytest.FixtureRequest, ready: Walk, one: Paths, walk: Walk) -> None:
    if request.config.getoption("--broker") == "kafka":
        pytest.skip("Apache Kafka 3.9.2 with ZooKeeper has no consumer protocol (KIP-848)")
    printed = one.printed(walk.name)
    assert "two members hold 2+2" in printed
    assert 'with two members: Stable "range", 2 members' in printed
    assert "one member holds all; read in all 97" in printed
    assert printed[-1].startswith("when all have left: Empty")
