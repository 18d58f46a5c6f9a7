"""Two clusters of three brokers, Apache Kafka 3.9.2 and Odradek, that get the same requests broker by broker.

Both have brokers 1, 2 and 3 and share one ZooKeeper, under a chroot each. Broker 1 starts first, so it is the
controller. Coordinators may be other brokers on each side: the scenarios find them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from odradek.broker_process import BrokerProcess
from tests.comparison.answers import Names
from tests.comparison.pair import PROPERTIES, Outcome, judge
from tests.comparison.side import Pending, Side
from tests.jvm.kafka import Kafka

BROKERS = (1, 2, 3)
CONTROLLER = 1
CLUSTER_PROPERTIES = {
    **PROPERTIES,
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.num.partitions": "3",
    # Leaders move when the scenario requests it, and a follower stays in the ISR.
    "auto.leader.rebalance.enable": "false",
    "replica.lag.time.max.ms": "60000",
    # Followers fetch at once, so that the leader has their end offset.
    "replica.fetch.wait.max.ms": "100",
    "auto.create.topics.enable": "false",
}
"""The same for both."""
Ports = Mapping[int, int]


class Clusters(NamedTuple):
    """The addresses of the brokers of both, by id."""

    ours: Ports
    theirs: Ports


@contextmanager
def running_clusters(folder: Path) -> Iterator[Clusters]:
    """Both clusters, fresh."""
    with ExitStack() as stack:
        first = Kafka(folder / "kafka-1", {**CLUSTER_PROPERTIES, "broker.id": str(CONTROLLER)})
        stack.callback(first.close)
        first.start()
        kafkas, odradeks = {CONTROLLER: first}, {}
        for broker_id in BROKERS[1:]:
            properties = {**CLUSTER_PROPERTIES, "broker.id": str(broker_id)}
            kafkas[broker_id] = Kafka(folder / f"kafka-{broker_id}", properties, zookeeper=first.zookeeper_connect)
            stack.callback(kafkas[broker_id].close)
        for broker_id in BROKERS:
            properties = {
                **CLUSTER_PROPERTIES,
                "broker.id": str(broker_id),
                "zookeeper.connect": f"{first.zookeeper_connect}/odradek",
            }
            odradeks[broker_id] = BrokerProcess(folder / f"odradek-{broker_id}", properties)
            stack.callback(_end, odradeks[broker_id])
        odradeks[CONTROLLER].start()
        with ThreadPoolExecutor() as threads:
            for started in [threads.submit(each[n].start) for n in BROKERS[1:] for each in (kafkas, odradeks)]:
                started.result()
        yield Clusters(*({n: each[n].port for n in BROKERS} for each in (odradeks, kafkas)))


def _end(broker: BrokerProcess) -> None:
    """Kill a broker, which must not have ended by itself. Raises BrokerError."""
    try:
        broker.reap()
    finally:
        broker.discard()


class ClusterSide(Side):
    """A cluster that runs a scenario. `at` in a request names a broker, and perhaps one of several connections to it
    ("2", "2 again").
    """

    def __init__(self, who: str, ports: Ports, versions: dict[int, tuple[int, int]]) -> None:
        super().__init__(who, ports[CONTROLLER], versions)
        self._ports = ports
        self._names = Names({port: f"port of broker {broker_id}" for broker_id, port in ports.items()})

    async def send(self, api: str, version: int, *, at: str = "main", label: str = "", **fields: Any) -> Pending:
        return await super().send(api, version, at=at, label=f"to broker {at}: {label or fields}", **fields)

    def port_of(self, at: str) -> int:
        number = at.partition(" ")[0]
        return self._ports[int(number)] if number.isdigit() else self.port

    async def agreed(self, topic: str, partitions: Mapping[int, tuple[int, set[int]]]) -> int:
        """Wait until every broker returns this leader and ISR of each partition. Returns the highest leader epoch."""
        request: dict[str, Any] = {"topics": [{"name": topic}], "allow_auto_topic_creation": False}

        def is_so(answer: Any) -> bool:
            found = {
                each.partition_index: (each.leader_id, set(each.isr_nodes)) for each in answer.topics[0].partitions
            }
            replicas = {each.partition_index: set(each.replica_nodes) for each in answer.topics[0].partitions}
            return found == partitions and all(replicas[index] == isr for index, (_, isr) in partitions.items())

        for broker_id in BROKERS:
            answer = await self.wait(is_so, "Metadata", 9, at=str(broker_id), **request)
        return max(each.leader_epoch for each in answer.topics[0].partitions)


async def tell_clusters(scenario: Any, clusters: Clusters, versions: dict[int, tuple[int, int]]) -> Outcome:
    """Run a scenario on both clusters and compare."""
    pair = ClusterSide("Odradek", clusters.ours, versions), ClusterSide("Kafka", clusters.theirs, versions)
    try:
        notified = await asyncio.gather(*(scenario(each) for each in pair), return_exceptions=True)
        return judge(*pair, next((each for each in notified if isinstance(each, BaseException)), None))
    finally:
        for side in pair:
            side.close()


async def acquainted(ports: Ports) -> None:
    """Wait until every broker returns all of them, and the controller."""
    side = ClusterSide("", ports, {})
    for broker_id in BROKERS:
        await side.wait(
            lambda answer: len(answer.brokers) == len(BROKERS) and answer.controller_id == CONTROLLER,
            "Metadata",
            1,
            at=str(broker_id),
            topics=[],
        )
    side.close()
