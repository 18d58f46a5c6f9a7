"""Odradek as a replica beside Apache Kafka 3.9.2 and under its controller: it joins, follows, leads, and moves its
leaderships back, under load. `test_cluster_of_both` has the same under Odradek's controller.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from odradek.broker_process import BrokerProcess
from tests.compatibility.moving import TOPIC, Partition, there_and_back
from tests.jvm.kafka import Kafka
from tests.registry.zookeeper_server import ZooKeeperServer

pytestmark = [pytest.mark.jvm, pytest.mark.slow]

KAFKA = 9
OURS = (1, 2)
PROPERTIES = {
    "replica.lag.time.max.ms": "3000",
    "offsets.topic.replication.factor": "2",
    "auto.leader.rebalance.enable": "false",
}


@pytest.fixture
def zookeeper(tmp_path: Path) -> Iterator[ZooKeeperServer]:
    server = ZooKeeperServer(tmp_path, tmp_path / "zookeeper")
    server.start()
    yield server
    server.stop()


async def test_odradek_follows_leads_and_returns_leadership_under_kafkas_controller(
    zookeeper: ZooKeeperServer, tmp_path: Path
) -> None:
    connect = zookeeper.connect + "/both"
    kafka = Kafka(tmp_path / "kafka", {"broker.id": str(KAFKA), **PROPERTIES}, zookeeper=connect)
    with ExitStack() as stack:
        stack.callback(kafka.close)
        kafka.start()
        ours = {}
        for each in OURS:
            overrides = {"broker.id": str(each), "zookeeper.connect": connect, **PROPERTIES}
            ours[each] = stack.enter_context(BrokerProcess(tmp_path / str(each), overrides))
        partition = Partition({each: broker.port for each, broker in ours.items()} | {KAFKA: kafka.port})
        assert (await partition.metadata()).controller_id == KAFKA
        await partition.create([KAFKA, 1])
        folders = {each: broker.data_dir / f"{TOPIC}-0" for each, broker in ours.items()}
        folders[KAFKA] = kafka.data_dir / f"{TOPIC}-0"
        await there_and_back(partition, kafka.bootstrap, [KAFKA, 1, 2], [1, 2, KAFKA], folders)
