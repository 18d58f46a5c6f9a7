"""Apache Kafka 3.9.2 as a replica beside brokers of Odradek: it joins, follows, leads, and moves its leaderships back,
under load.

A producer writes with acks=all and idempotence through all of it. Every acknowledged record is read once and in order,
and the three logs hold the same bytes at the end, whichever broker wrote them first.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from odradek.broker_process import BrokerProcess
from odradek.cluster_process import ClusterProcess
from odradek.ports import free_port
from odradek.protocol import messages as m
from tests.broker.wire import Client
from tests.jvm.kafka import Kafka
from tests.registry.zookeeper_server import ZooKeeperServer
from tests.support.eventually import eventually_async

pytestmark = [pytest.mark.jvm, pytest.mark.slow]

KAFKA = 9
OURS = (1, 2)
TOPIC = "moving"
PROGRESS = 300
"""Records that have to be acknowledged in each state of the cluster."""
KAFKAS_PEERS = {
    "replica.lag.time.max.ms": "3000",
    "offsets.topic.replication.factor": "2",
    "auto.leader.rebalance.enable": "false",
}


class Load:
    """Writes numbers, one after the other, until it is stopped."""

    def __init__(self, bootstrap: str) -> None:
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "acks": "all",
                "enable.idempotence": True,
                "linger.ms": 2,
                "delivery.timeout.ms": 60_000,
            }
        )
        self.acknowledged: dict[int, bytes] = {}
        self.failures: list[str] = []
        self._stopping = threading.Event()
        self._moved = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="load")

    def __enter__(self) -> Load:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()

    def stop(self) -> None:
        """Write no more, and wait until the outcome of every record is known."""
        self._stopping.set()
        self._thread.join()

    def await_progress(self, count: int = PROGRESS) -> None:
        """Wait until this many more records have been acknowledged."""
        with self._moved:
            goal = len(self.acknowledged) + count
            assert self._moved.wait_for(lambda: len(self.acknowledged) >= goal or bool(self.failures), 60)
        assert not self.failures, self.failures[:3]

    def _run(self) -> None:
        number = 0
        while not self._stopping.is_set():
            self._producer.produce(TOPIC, b"%d" % number, partition=0, on_delivery=self._delivered)
            number += 1
            self._producer.poll(0.002)
        self._producer.flush(60)

    def _delivered(self, error: object, message: object) -> None:
        with self._moved:
            if error is not None:
                self.failures.append(str(error))
            else:
                self.acknowledged[message.offset()] = message.value()  # type: ignore[attr-defined]
            self._moved.notify_all()


@pytest.fixture
def zookeeper(tmp_path: Path) -> Iterator[ZooKeeperServer]:
    server = ZooKeeperServer(tmp_path, tmp_path / "zookeeper")
    server.start()
    yield server
    server.stop()


def joining_kafka(folder: Path, connect: str) -> Kafka:
    port = free_port()
    addresses = f"PLAINTEXT://127.0.0.1:{port},PEERS://127.0.0.1:{free_port()}"
    properties = {
        "broker.id": str(KAFKA),
        "listeners": addresses,
        "advertised.listeners": addresses,
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,PEERS:PLAINTEXT",
        "inter.broker.listener.name": "PEERS",  # as ClusterProcess has it
        **KAFKAS_PEERS,
    }
    kafka = Kafka(folder, properties, zookeeper=connect)
    kafka.port = port
    return kafka


class Partition:
    """The partition that moves, in the metadata of any broker."""

    def __init__(self, ports: dict[int, int]) -> None:
        self._ports = ports

    async def _ask(self, broker_id: int, request: object, version: int) -> object:
        client = await Client.connect(self._ports[broker_id])
        try:
            return await client.ask(request, version)
        finally:
            client.close()

    async def metadata(self) -> m.MetadataResponse:
        topics = [m.MetadataRequest.MetadataRequestTopic(name=TOPIC)]
        request = m.MetadataRequest(topics=topics, allow_auto_topic_creation=False)
        answer = await self._ask(OURS[0], request, 12)
        assert isinstance(answer, m.MetadataResponse)
        return answer

    async def _ask_controller(self, request: object, version: int, ended: Callable[[m.MetadataResponse], bool]) -> None:
        await self._ask((await self.metadata()).controller_id, request, version)
        await eventually_async(self.metadata, ended)

    async def create(self, replicas: list[int]) -> None:
        request = m.CreateTopicsRequest
        assignment = [request.CreatableReplicaAssignment(partition_index=0, broker_ids=replicas)]
        configs = [request.CreatableTopicConfig(name="min.insync.replicas", value="2")]
        topic = request.CreatableTopic(
            name=TOPIC, num_partitions=-1, replication_factor=-1, assignments=assignment, configs=configs
        )
        await self._ask_controller(
            request(topics=[topic], timeout_ms=10_000), 7, lambda known: leader_of(known) == replicas[0]
        )

    async def move(self, replicas: list[int]) -> None:
        """Reassign, and wait until all are in sync."""
        request = m.AlterPartitionReassignmentsRequest
        partition = request.ReassignablePartition(partition_index=0, replicas=replicas)
        topic = request.ReassignableTopic(name=TOPIC, partitions=[partition])
        await self._ask_controller(
            request(topics=[topic], timeout_ms=10_000),
            0,
            lambda known: (
                partition_of(known).replica_nodes == replicas and set(partition_of(known).isr_nodes) == set(replicas)
            ),
        )

    async def lead(self, broker_id: int) -> None:
        """Elect the preferred leader."""
        wanted = m.ElectLeadersRequest.TopicPartitions(topic=TOPIC, partitions=[0])
        request = m.ElectLeadersRequest(election_type=0, topic_partitions=[wanted], timeout_ms=10_000)
        await self._ask_controller(request, 2, lambda known: leader_of(known) == broker_id)


def partition_of(metadata: m.MetadataResponse) -> m.MetadataResponse.MetadataResponsePartition:
    partitions = metadata.topics[0].partitions
    return partitions[0] if partitions else m.MetadataResponse.MetadataResponsePartition(leader_id=-1)


def leader_of(metadata: m.MetadataResponse) -> int:
    return int(partition_of(metadata).leader_id)


def read_all(bootstrap: str, end: int) -> list[tuple[int, bytes]]:
    """Every record of the partition, as (offset, value)."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "reader", "enable.auto.commit": False})
    consumer.assign([TopicPartition(TOPIC, 0, 0)])
    found: list[tuple[int, bytes]] = []
    try:
        while not found or found[-1][0] < end - 1:
            message = consumer.poll(20)
            assert message is not None, f"the records end at {found[-1:]}, not at {end}"
            assert message.error() is None, message.error()
            found.append((message.offset() or 0, message.value() or b""))
    finally:
        consumer.close()
    return found


async def same_bytes(folders: dict[int, Path]) -> None:
    """Wait until the logs and the epochs of all replicas are equal."""

    async def read() -> dict[int, tuple[bytes, bytes]]:
        return {
            broker_id: (
                b"".join(path.read_bytes() for path in sorted(folder.glob("*.log"))),
                (folder / "leader-epoch-checkpoint").read_bytes(),
            )
            for broker_id, folder in folders.items()
        }

    logs = await eventually_async(read, lambda logs: len(set(logs.values())) == 1)
    assert len(next(iter(logs.values()))[0]) > 10_000


async def there_and_back(
    partition: Partition, bootstrap: str, ours_first: list[int], theirs_first: list[int], folders: dict[int, Path]
) -> None:
    with Load(bootstrap) as load:
        load.await_progress()
        await partition.move(theirs_first)
        load.await_progress()
        await partition.lead(theirs_first[0])
        load.await_progress()
        await partition.move(ours_first)
        await partition.lead(ours_first[0])
        load.await_progress()
    assert not load.failures
    end = max(load.acknowledged) + 1
    records = read_all(bootstrap, end)
    assert [value for _, value in records] == [b"%d" % number for number in range(len(records))], "once and in order"
    assert dict(records) == load.acknowledged
    await same_bytes(folders)
    epochs = {line.split()[0] for line in (folders[KAFKA] / "leader-epoch-checkpoint").read_text().splitlines()[2:]}
    assert len(epochs) >= 3, "the leadership has moved there and back"


async def test_kafka_follows_leads_and_returns_leadership(zookeeper: ZooKeeperServer, tmp_path: Path) -> None:
    with ClusterProcess(tmp_path / "ours", len(OURS), KAFKAS_PEERS, zookeeper=zookeeper.connect + "/both") as ours:
        kafka = joining_kafka(tmp_path / "kafka", ours.zookeeper_connect)
        try:
            kafka.start()
            partition = Partition({each: ours.brokers[each].port for each in OURS} | {KAFKA: kafka.port})
            await partition.create(list(OURS))
            folders = {each: ours.brokers[each].data_dir / f"{TOPIC}-0" for each in OURS}
            folders[KAFKA] = kafka.data_dir / f"{TOPIC}-0"
            await there_and_back(partition, ours.bootstrap_servers, [1, 2, KAFKA], [KAFKA, 1, 2], folders)
        finally:
            kafka.close()


async def test_odradek_follows_leads_and_returns_leadership_under_kafkas_controller(
    zookeeper: ZooKeeperServer, tmp_path: Path
) -> None:
    connect = zookeeper.connect + "/both"
    kafka = Kafka(tmp_path / "kafka", {"broker.id": str(KAFKA), **KAFKAS_PEERS}, zookeeper=connect)
    with ExitStack() as stack:
        stack.callback(kafka.close)
        kafka.start()
        ours = {}
        for each in OURS:
            overrides = {"broker.id": str(each), "zookeeper.connect": connect, **KAFKAS_PEERS}
            ours[each] = stack.enter_context(BrokerProcess(tmp_path / str(each), overrides))
        partition = Partition({each: broker.port for each, broker in ours.items()} | {KAFKA: kafka.port})
        assert (await partition.metadata()).controller_id == KAFKA
        await partition.create([KAFKA, 1])
        folders = {each: broker.data_dir / f"{TOPIC}-0" for each, broker in ours.items()}
        folders[KAFKA] = kafka.data_dir / f"{TOPIC}-0"
        await there_and_back(partition, kafka.bootstrap, [KAFKA, 1, 2], [1, 2, KAFKA], folders)
