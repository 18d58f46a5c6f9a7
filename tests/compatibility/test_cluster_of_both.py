"""Apache Kafka 3.9.2 beside brokers of Odradek in a cluster under Odradek's controller: it joins, follows, leads, and
moves its leaderships back, under load; changed configurations, and requests to the controller.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from odradek.cluster_process import ClusterProcess
from odradek.ports import free_port
from odradek.protocol import messages as m
from odradek.protocol.errors import ErrorCode
from tests.broker.admin_requests import BROKER, DELETE, SET, TOPIC, describe, set_config
from tests.broker.wire import Client, batch
from tests.compatibility.moving import TOPIC as MOVING
from tests.compatibility.moving import Partition, there_and_back
from tests.jvm.kafka import Kafka
from tests.registry.zookeeper_server import ZooKeeperServer
from tests.support.eventually import eventually_async

pytestmark = [pytest.mark.jvm, pytest.mark.slow]

KAFKA = 9
OURS = (1, 2)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterProcess]:
    """Two brokers of Odradek, one of which is the controller."""
    folder: Path = tmp_path_factory.mktemp("both")
    zookeeper = ZooKeeperServer(folder, folder / "zookeeper")
    zookeeper.start()
    try:
        overrides = {"auto.leader.rebalance.enable": "false", "replica.lag.time.max.ms": "3000"}
        with ClusterProcess(folder / "cluster", len(OURS), overrides, zookeeper=zookeeper.connect + "/both") as running:
            yield running
    finally:
        zookeeper.stop()


@pytest.fixture(scope="module")
def kafka(cluster: ClusterProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    """A Kafka that has joined them."""
    port = free_port()
    addresses = f"PLAINTEXT://127.0.0.1:{port},PEERS://127.0.0.1:{free_port()}"
    properties = {
        "broker.id": str(KAFKA),
        "listeners": addresses,
        "advertised.listeners": addresses,
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,PEERS:PLAINTEXT",
        "inter.broker.listener.name": "PEERS",  # as ClusterProcess has it
        "auto.leader.rebalance.enable": "false",
        "replica.lag.time.max.ms": "2000",
        "replica.fetch.wait.max.ms": "500",
    }
    joined = Kafka(tmp_path_factory.mktemp("kafka"), properties, zookeeper=cluster.zookeeper_connect)
    joined.port = port
    try:
        joined.start()
        yield joined
    finally:
        joined.close()


class Clients:
    """A connection to each broker."""

    def __init__(self, of: dict[int, Client], controller: int) -> None:
        self.of, self.controller = of, controller

    async def create(self, topic: str, *assignment: list[int]) -> None:
        """A topic that every broker has in its metadata, led by the first of its replicas."""
        request = m.CreateTopicsRequest
        replicas = [
            request.CreatableReplicaAssignment(partition_index=index, broker_ids=ids)
            for index, ids in enumerate(assignment)
        ]
        wanted = request.CreatableTopic(name=topic, num_partitions=-1, replication_factor=-1, assignments=replicas)
        answer = await self.of[self.controller].ask(request(topics=[wanted], timeout_ms=10_000))
        assert answer.topics[0].error_code == ErrorCode.NONE
        for broker_id in self.of:
            await self.leaders(broker_id, topic, [ids[0] for ids in assignment])

    async def leaders(self, broker_id: int, topic: str, leaders: list[int]) -> None:
        """Wait until a broker returns these leaders."""
        wanted = [m.MetadataRequest.MetadataRequestTopic(name=topic)]
        request = m.MetadataRequest(topics=wanted, allow_auto_topic_creation=False)
        await eventually_async(
            lambda: self.of[broker_id].ask(request, 12),
            lambda answer: (
                [
                    each.leader_id
                    for each in sorted(answer.topics[0].partitions, key=lambda partition: partition.partition_index)
                ]
                == leaders
            ),
        )


@pytest.fixture
async def clients(cluster: ClusterProcess, kafka: Kafka) -> AsyncIterator[Clients]:
    ports = {broker_id: cluster.brokers[broker_id].port for broker_id in OURS} | {KAFKA: kafka.port}
    of = {broker_id: await Client.connect(port) for broker_id, port in ports.items()}
    for client in of.values():
        await eventually_async(
            lambda client=client: client.ask(m.MetadataRequest(topics=[]), 7),
            lambda answer: {each.node_id for each in answer.brokers} == {*OURS, KAFKA},
        )
    yield Clients(of, cluster.controller())
    for client in of.values():
        client.close()


async def test_kafka_follows_leads_and_returns_leadership(
    cluster: ClusterProcess, kafka: Kafka, clients: Clients
) -> None:
    partition = Partition({each: cluster.brokers[each].port for each in OURS} | {KAFKA: kafka.port})
    await partition.create(list(OURS))
    folders = {each: cluster.brokers[each].data_dir / f"{MOVING}-0" for each in OURS}
    folders[KAFKA] = kafka.data_dir / f"{MOVING}-0"
    await there_and_back(partition, cluster.bootstrap_servers, [1, 2, KAFKA], [KAFKA, 1, 2], folders)


@pytest.mark.parametrize("asked", [1, KAFKA], ids=["sent to Odradek", "sent to Kafka"])
async def test_all_brokers_apply_a_change_of_configuration_sent_to_any_of_them(
    clients: Clients, topic: str, asked: int
) -> None:
    await clients.create(topic, [1, KAFKA], [KAFKA, 1])
    large = batch(bytes(2000))
    for partition, leader in ((0, 1), (1, KAFKA)):
        answer = await clients.of[leader].produce(topic, large, partition=partition, version=9)
        assert answer.error_code == ErrorCode.NONE
    await set_config(clients.of[asked], TOPIC, topic, ("max.message.bytes", SET, "1000"))
    for partition, leader in ((0, 1), (1, KAFKA)):
        await eventually_async(
            lambda leader=leader, partition=partition: clients.of[leader].produce(
                topic, large, partition=partition, version=9
            ),
            lambda answer: answer.error_code == ErrorCode.MESSAGE_TOO_LARGE,
        )
    for broker_id in (1, KAFKA):
        answer = await clients.of[broker_id].ask(describe(TOPIC, topic, "max.message.bytes"), 4)
        assert answer.results[0].configs[0].value == "1000"
    await set_config(clients.of[asked], BROKER, "", ("log.segment.bytes", SET, "1048577"))
    for broker_id in clients.of:
        await eventually_async(
            lambda broker_id=broker_id: clients.of[broker_id].ask(
                describe(BROKER, str(broker_id), "log.segment.bytes"), 4
            ),
            lambda answer: answer.results[0].configs[0].value == "1048577",
        )
    await set_config(clients.of[asked], BROKER, "", ("log.segment.bytes", DELETE, None))


async def test_kafka_gets_producer_ids_and_an_isr_from_odradeks_controller(
    cluster: ClusterProcess, clients: Clients, topic: str
) -> None:
    await clients.create(topic, [KAFKA, 1, 2])
    ids = set()
    request = m.InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
    for client in clients.of.values():
        answer = await eventually_async(
            lambda client=client: client.ask(request, 4), lambda answer: not answer.error_code
        )
        ids.add(answer.producer_id // 1000)
    assert len(ids) == 3  # a block for each
    assert (await clients.of[KAFKA].produce(topic, batch(b"v"), version=9)).error_code == ErrorCode.NONE
    cluster.await_isr(topic, 0, {KAFKA, 1, 2})
    other = next(broker_id for broker_id in OURS if broker_id != clients.controller)
    cluster.kill(other)
    cluster.await_isr(topic, 0, {KAFKA, clients.controller})
    cluster.brokers[other].start()
    cluster.await_isr(topic, 0, {KAFKA, 1, 2})  # Kafka, as the leader, adds it to the ISR again


async def test_kafka_moves_its_leaderships_before_it_stops(
    cluster: ClusterProcess, kafka: Kafka, clients: Clients, topic: str
) -> None:
    await clients.create(topic, [KAFKA, 1], [KAFKA, 2])
    cluster.await_isr(topic, 0, {KAFKA, 1})
    cluster.await_isr(topic, 1, {KAFKA, 2})
    kafka.stop()
    assert cluster.leader_of(topic, 0) == 1
    assert cluster.leader_of(topic, 1) == 2
    await clients.leaders(1, topic, [1, 2])
    assert (await clients.of[2].produce(topic, batch(b"v"), partition=1)).error_code == ErrorCode.NONE
    kafka.start()
    cluster.await_isr(topic, 0, {KAFKA, 1})
