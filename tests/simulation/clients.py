"""Clients of a simulated cluster: they produce and fetch as Kafka's do, and record the responses they received."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from random import Random
from typing import Any

from odradek.protocol import messages as m
from odradek.protocol.batch import Record, build, records
from odradek.protocol.errors import ErrorCode
from odradek.protocol.framing import frame, request_header
from odradek.protocol.topic_partition import TopicPartition
from tests.simulation.loop import Owner
from tests.simulation.network import Network

TIMEOUT_S = 1.0
BACKOFF_S = 0.05
VERSIONS = {0: 9, 1: 11, 2: 5, 3: 9}


class LostError(Exception):
    """No response: whether the broker carried out the request is unknown."""


@dataclass
class History:
    """The responses that clients received."""

    acknowledged: dict[TopicPartition, dict[int, bytes]] = field(default_factory=dict)
    """By partition, offset -> value, of writes with acks=all."""
    refused: int = 0
    unknown: int = 0
    read: dict[TopicPartition, dict[int, bytes]] = field(default_factory=dict)
    writes: int = 0
    count: int = 0
    """Of acknowledged records."""


class Connection:
    """One connection with one request at a time."""

    def __init__(self, network: Network, owner: Owner) -> None:
        self._network, self._owner = network, owner
        self._channels: dict[tuple[str, int], Any] = {}
        self._answers: dict[int, asyncio.Future[Any]] = {}
        self._number = 0

    async def ask(self, address: tuple[str, int], request: Any, version: int | None = None) -> Any:
        """Raises LostError."""
        key = request.API_KEY
        if version is None:
            version = VERSIONS[key]
        channel = self._channels.get(address)
        try:
            async with asyncio.timeout(TIMEOUT_S):
                if channel is None:
                    channel = self._channels[address] = await self._network.connect(self._owner)(
                        *address, on_frame=self._on_frame, on_lost=lambda: self._on_lost(address), frame_bytes=1 << 20
                    )
                self._number += 1
                answer = self._answers[self._number] = asyncio.get_running_loop().create_future()
                head = request_header(key, version, self._number, "client")
                channel.write(frame(head, *(bytes(part) for part in request.encode_parts(version))))
                data = await answer
        except (TimeoutError, OSError) as error:
            self._drop(address)
            raise LostError(str(error)) from error
        response = m.response_class(key)
        return response.decode(data, version, 5 if version >= response.FIRST_FLEXIBLE else 4)

    def _on_frame(self, data: memoryview) -> None:
        answer = self._answers.pop(int.from_bytes(data[:4], "big"), None)
        if answer is not None and not answer.done():
            answer.set_result(bytes(data))

    def _on_lost(self, address: tuple[str, int]) -> None:
        self._channels.pop(address, None)
        for answer in self._answers.values():
            if not answer.done():
                answer.set_exception(ConnectionResetError("the broker closed the connection"))
        self._answers.clear()

    def _drop(self, address: tuple[str, int]) -> None:
        channel = self._channels.pop(address, None)
        if channel is not None:
            channel.close()


class Client:
    """Finds leaders; base class of producers and consumers."""

    def __init__(
        self, network: Network, random: Random, history: History, bootstrap: list[tuple[str, int]], name: str
    ) -> None:
        self.owner = Owner(name)
        self.random, self.history = random, history
        self._bootstrap = bootstrap
        self.connection = Connection(network, self.owner)
        self._brokers: dict[int, tuple[str, int]] = {}
        self._leaders: dict[TopicPartition, int] = {}
        self.epochs: dict[TopicPartition, int] = {}
        self.stopped = False

    def record(self, number: int, value: bytes) -> Record:
        """The record of a batch with this value."""
        return Record(number, 0, None, value)

    def anybody(self) -> tuple[str, int]:
        """The address of some broker."""
        return self.random.choice(self._bootstrap)

    async def refresh(self, topic: str) -> None:
        wanted = [m.MetadataRequest.MetadataRequestTopic(name=topic)]
        try:
            answer = await self.connection.ask(self.anybody(), m.MetadataRequest(topics=wanted))
        except LostError:
            return
        self._brokers = {each.node_id: (each.host, each.port) for each in answer.brokers}
        for each in answer.topics:
            for partition in each.partitions:
                key = (topic, partition.partition_index)
                if partition.leader_epoch >= self.epochs.get(key, -1):  # older metadata is stale (KIP-320)
                    self._leaders[key], self.epochs[key] = partition.leader_id, partition.leader_epoch

    async def leader(self, partition: TopicPartition) -> tuple[str, int]:
        while True:
            found = self._brokers.get(self._leaders.get(partition, -1))
            if found is not None:
                return found
            await asyncio.sleep(BACKOFF_S)
            await self.refresh(partition[0])

    async def ask(self, partition: TopicPartition, request: Any, version: int | None = None) -> Any:
        """Send a request to the leader. Raises LostError."""
        return await self.connection.ask(await self.leader(partition), request, version)

    def forget(self, partition: TopicPartition) -> None:
        self._leaders.pop(partition, None)


class Producer(Client):
    """Produces unique values one after the other with acks=all. A write with an unknown outcome is not repeated."""

    async def run(self, partitions: list[TopicPartition], pause_s: float) -> None:
        while not self.stopped:
            await self.write(self.random.choice(partitions))
            await asyncio.sleep(self.random.random() * pause_s)

    async def write(self, partition: TopicPartition) -> bool:
        """One batch; returns whether it was acknowledged."""
        values = []
        for _ in range(self.random.randint(1, 2)):
            self.history.writes += 1
            values.append(f"{self.owner.name}-{self.history.writes}".encode())
        batch = build([self.record(number, value) for number, value in enumerate(values)])
        request = m.ProduceRequest(
            acks=-1,
            timeout_ms=500,
            topic_data=[
                m.ProduceRequest.TopicProduceData(
                    name=partition[0],
                    partition_data=[m.ProduceRequest.PartitionProduceData(index=partition[1], records=batch)],
                )
            ],
        )
        try:
            answer = (await self.ask(partition, request)).responses[0].partition_responses[0]
        except LostError:
            self.history.unknown += 1
            self.forget(partition)
            return False
        code = ErrorCode(answer.error_code)
        if code is ErrorCode.NONE:
            acknowledged = self.history.acknowledged.setdefault(partition, {})
            for number, value in enumerate(values):
                assert answer.base_offset + number not in acknowledged, "one offset was acknowledged twice"
                acknowledged[answer.base_offset + number] = value
                self.history.count += 1
            return True
        if code in (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.REQUEST_TIMED_OUT):
            self.history.unknown += 1
        else:
            self.history.refused += 1
        self.forget(partition)
        return False


class Consumer(Client):
    """Reads a partition again and again; fails when it finds another record at an offset that it has read (R6)."""

    async def run(self, partition: TopicPartition) -> None:
        position = 0
        seen = self.history.read.setdefault(partition, {})
        while not self.stopped:
            await self.leader(partition)
            wanted = m.FetchRequest.FetchPartition(
                partition=partition[1],
                fetch_offset=position,
                partition_max_bytes=1 << 16,
                current_leader_epoch=self.epochs.get(partition, -1),
            )
            request = m.FetchRequest(
                max_wait_ms=100,
                min_bytes=1,
                session_epoch=-1,
                topics=[m.FetchRequest.FetchTopic(topic=partition[0], partitions=[wanted])],
            )
            try:
                answer = (await self.ask(partition, request)).responses[0].partitions[0]
            except LostError:
                self.forget(partition)
                continue
            code = ErrorCode(answer.error_code)
            if code is not ErrorCode.NONE:
                assert code is not ErrorCode.OFFSET_OUT_OF_RANGE or position == 0, (
                    f"R6: {partition} was read up to {position}, and a later leader does not have that"
                )
                self.forget(partition)
                await asyncio.sleep(BACKOFF_S)
                continue
            data = bytes(answer.records or b"")
            place = 0
            while place + 12 <= len(data):
                size = int.from_bytes(data[place + 8 : place + 12], "big") + 12
                if place + size > len(data):
                    break
                for record in records(memoryview(data), place):
                    if record.offset >= position:
                        before = seen.setdefault(record.offset, record.value or b"")
                        assert before == record.value, (
                            f"R6: {partition} had {before!r} at {record.offset}, now it has {record.value!r}"
                        )
                        position = record.offset + 1
                place += size
            if self.random.random() < 0.1:
                position = 0
