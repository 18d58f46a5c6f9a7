"""Followers send how far they have compacted in tags that Apache Kafka 3.9.2 does not have: it replicates as before.

A broker of Odradek, in this process, and a Kafka lead one partition each and follow the other's. Odradek's compacted
offset changes with every batch, so that its requests to Kafka always carry the tag. Kafka sends no such tag, so Odradek
counts it with its log end offset; and a follower of Kafka gets no lowest compacted offset of all replicas.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from odradek.broker.config.broker_config import BrokerConfig
from odradek.broker.replication.follower_replica import FollowerReplica
from odradek.broker.replication.partition import Replica
from odradek.broker.replication.state.follower import FetchPosition
from odradek.broker.server import Broker
from odradek.protocol import messages as m
from odradek.protocol.errors import ErrorCode
from tests.broker.wire import Client, batch
from tests.jvm.kafka import Kafka
from tests.support.eventually import eventually_async

pytestmark = [pytest.mark.jvm, pytest.mark.slow]

OURS, KAFKA = 1, 9
TOPIC = "both"
LED_BY_OURS, LED_BY_KAFKA = 0, 1
PRODUCE = 11
"""The newest version of Produce that Kafka 3.9 has."""
BATCHES = 40
BEHIND = 3
"""Odradek's log is compacted up to this many records before its end."""


@pytest.fixture
def kafka(tmp_path: Path) -> Iterator[Kafka]:
    properties = {
        "broker.id": str(KAFKA),
        "auto.leader.rebalance.enable": "false",
        "replica.fetch.wait.max.ms": "100",
        "zookeeper.session.timeout.ms": "6000",
    }
    running = Kafka(tmp_path / "kafka", properties)
    try:
        running.start()
        yield running
    finally:
        running.close()


@pytest.fixture
async def ours(kafka: Kafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Broker]:
    cleaned_to = property(lambda replica: max(-1, replica.log.end_offset - BEHIND))
    monkeypatch.setattr(Replica, "cleaned_to", cleaned_to)
    broker = Broker(
        BrokerConfig(
            {
                "broker.id": str(OURS),
                "listeners": "PLAINTEXT://127.0.0.1:0",
                "log.dirs": str(tmp_path / "ours"),
                "zookeeper.connect": kafka.zookeeper_connect,
                "replica.fetch.wait.max.ms": "100",
            }
        )
    )
    await broker.start()
    yield broker
    await broker.stop()


async def create(client: Client) -> None:
    """A topic with a partition led by each of both, that both replicate."""
    request = m.CreateTopicsRequest
    plans = {LED_BY_OURS: [OURS, KAFKA], LED_BY_KAFKA: [KAFKA, OURS]}
    assignments = [
        request.CreatableReplicaAssignment(partition_index=index, broker_ids=replicas)
        for index, replicas in plans.items()
    ]
    configs = [
        request.CreatableTopicConfig(name="min.insync.replicas", value="2"),
        request.CreatableTopicConfig(name="cleanup.policy", value="compact"),
    ]
    topic = request.CreatableTopic(
        name=TOPIC, num_partitions=-1, replication_factor=-1, assignments=assignments, configs=configs
    )
    answer = await client.ask(request(topics=[topic], timeout_ms=20_000), 7)
    assert answer.topics[0].error_code == ErrorCode.NONE, answer


def all_in_sync(answer: m.MetadataResponse) -> bool:
    return [len(each.isr_nodes) for each in answer.topics[0].partitions] == [2, 2]


def replica_of(broker: Broker, partition: int) -> Replica:
    replica = broker.replicas.get(TOPIC, partition)
    assert replica is not None
    return replica


async def ends(broker: Broker) -> dict[int, tuple[int, int]]:
    """End offset and high watermark of both partitions."""
    found = [replica_of(broker, index) for index in (LED_BY_OURS, LED_BY_KAFKA)]
    return {each.partition: (each.log.end_offset, each.machine.high_watermark) for each in found}


async def test_kafka_replicates_with_unknown_tags_as_without(
    kafka: Kafka, ours: Broker, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    positions: list[FetchPosition] = []
    real = FollowerReplica.fetch_position

    def noted(follower: FollowerReplica, leader_epoch: int) -> FetchPosition:
        positions.append(real(follower, leader_epoch))
        return positions[-1]

    monkeypatch.setattr(FollowerReplica, "fetch_position", noted)
    caplog.set_level(logging.INFO, logger="odradek.broker.replication.fetcher")
    clients = {LED_BY_OURS: await Client.connect(ours.port), LED_BY_KAFKA: await Client.connect(kafka.port)}
    await create(clients[LED_BY_KAFKA])  # the controller, as it was there first
    wanted = m.MetadataRequest(topics=[m.MetadataRequest.MetadataRequestTopic(name=TOPIC)])
    for client in clients.values():
        await eventually_async(lambda asked=client: asked.ask(wanted, 12), all_in_sync)
    for number in range(BATCHES):
        for partition, client in clients.items():
            answer = await client.produce(TOPIC, batch(b"%d" % number), partition=partition, version=PRODUCE)
            assert (answer.error_code, answer.base_offset) == (ErrorCode.NONE, number)
    await eventually_async(lambda: ends(ours), lambda found: set(found.values()) == {(BATCHES, BATCHES)})
    led, followed = replica_of(ours, LED_BY_OURS).machine, replica_of(ours, LED_BY_KAFKA).machine
    assert (led.leader_id, followed.leader_id) == (OURS, KAFKA)
    assert led.isr == {OURS, KAFKA}
    # Kafka has everything, so Odradek's own compacted offset counts; for Kafka's partition the value is unknown.
    assert led.compacted_everywhere == BATCHES - BEHIND
    assert followed.compacted_everywhere == -1
    assert {each.cleaned_to for each in positions} > {1, BATCHES - BEHIND}, "each fetch has sent another value"
    for partition in clients:
        name = f"{TOPIC}-{partition}/{0:020d}.log"
        logs = [(data / name).read_bytes() for data in (tmp_path / "ours", kafka.data_dir)]
        assert logs[0] == logs[1]
        assert len(logs[0]) > BATCHES * 61, "there are values to compare"
    assert [record.message for record in caplog.records if "refuses" in record.message] == []
    assert "ERROR" not in kafka.output, kafka.output
    for client in clients.values():
        client.close()
