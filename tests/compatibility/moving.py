"""A partition whose replicas and leader move between Apache Kafka and Odradek, under load.

A producer writes with acks=all and idempotence through all of it. Every acknowledged record is read once and in order,
and all logs hold the same bytes at the end, whichever broker wrote them first.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

from confluent_kafka import Consumer, Producer, TopicPartition

from odradek.protocol import messages as m
from tests.broker.wire import Client
from tests.support.eventually import eventually_async

TOPIC = "moving"
PROGRESS = 300
"""Records that have to be acknowledged in each state of the cluster."""


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
        answer = await self._ask(min(self._ports), request, 12)
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
    partition: Partition, bootstrap: str, before: list[int], then: list[int], folders: dict[int, Path]
) -> None:
    """Move the replicas to `then`, of which the first leads, and back to `before`; `folders` are those of the
    partition, by broker.
    """
    with Load(bootstrap) as load:
        load.await_progress()
        await partition.move(then)
        load.await_progress()
        await partition.lead(then[0])
        load.await_progress()
        await partition.move(before)
        await partition.lead(before[0])
        load.await_progress()
    assert not load.failures
    end = max(load.acknowledged) + 1
    records = read_all(bootstrap, end)
    assert [value for _, value in records] == [b"%d" % number for number in range(len(records))], "once and in order"
    assert dict(records) == load.acknowledged
    await same_bytes(folders)
    checkpoint = (folders[before[0]] / "leader-epoch-checkpoint").read_text()
    epochs = {line.split()[0] for line in checkpoint.splitlines()[2:]}
    assert len(epochs) >= 3, "the leadership has moved there and back"
