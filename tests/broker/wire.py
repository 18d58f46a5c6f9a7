"""A broker in this process and a client that sends it single requests, any API in any version."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from odradek.broker.config.broker_config import BrokerConfig
from odradek.broker.server import Broker, Environment
from odradek.protocol import messages as m
from odradek.protocol.batch import Record, build
from odradek.protocol.framing import frame, request_header
from odradek.storage.disk import Disk
from tests.support.connections import open_connection

DEADLINE_S = 20


class Client:
    """One connection. Requests can be sent without waiting; responses are received in order."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._correlation_id = 0
        self._owed: list[tuple[int, int, int]] = []

    @classmethod
    async def connect(cls, port: int) -> Client:
        return cls(*await open_connection("127.0.0.1", port, limit=1 << 27))

    async def send(self, request: Any, version: int, *, client_id: str | None = "test") -> None:
        """Send a request and do not wait for its response."""
        self._correlation_id += 1
        key = type(request).API_KEY
        self._owed.append((key, version, self._correlation_id))
        head = request_header(key, version, self._correlation_id, client_id)
        await self.send_bytes(frame(head, *(bytes(part) for part in request.encode_parts(version))))

    async def send_bytes(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    def forget(self) -> None:
        """The request sent last gets no response (acks=0)."""
        self._owed.pop()

    async def receive(self) -> Any:
        """The response to the oldest request without one."""
        key, version, correlation_id = self._owed.pop(0)
        async with asyncio.timeout(DEADLINE_S):
            (size,) = struct.unpack(">i", await self._reader.readexactly(4))
            data = await self._reader.readexactly(size)
        assert struct.unpack_from(">i", data)[0] == correlation_id
        response = m.response_class(key)
        has_tags = version >= response.FIRST_FLEXIBLE and key != m.ApiVersionsRequest.API_KEY
        answer, end = response.decode_prefix(data, version, 5 if has_tags else 4)
        assert end == len(data), "bytes are left behind the response"
        return answer

    async def ask(self, request: Any, version: int | None = None) -> Any:
        """Send a request, in its newest version by default, and wait for the response."""
        await self.send(request, type(request).MAX_VERSION if version is None else version)
        return await self.receive()

    async def read(self, size: int) -> bytes:
        """The next bytes, which are no response to a request."""
        async with asyncio.timeout(DEADLINE_S):
            return await self._reader.readexactly(size)

    async def is_closed(self) -> bool:
        """Whether the broker closes the connection (waits for it)."""
        async with asyncio.timeout(DEADLINE_S):
            try:
                return await self._reader.read(1) == b""
            except ConnectionError:
                return True

    def close(self) -> None:
        self._writer.close()

    # ---- helpers for most tests

    async def create_topic(
        self, name: str, partitions: int = 1, configs: dict[str, str] | None = None
    ) -> m.CreateTopicsResponse.CreatableTopicResult:
        topic = m.CreateTopicsRequest.CreatableTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=1,
            configs=[
                m.CreateTopicsRequest.CreatableTopicConfig(name=key, value=value)
                for key, value in (configs or {}).items()
            ],
        )
        answer = await self.ask(m.CreateTopicsRequest(topics=[topic], timeout_ms=10_000), 7)
        result: m.CreateTopicsResponse.CreatableTopicResult = answer.topics[0]
        assert result.error_code == 0, result
        return result

    async def produce(
        self, topic: str, records: bytes | bytearray, *, partition: int = 0, acks: int = -1, version: int = 12
    ) -> m.ProduceResponse.PartitionProduceResponse:
        answer = await self.ask(produce_request(topic, records, partition=partition, acks=acks), version)
        result: m.ProduceResponse.PartitionProduceResponse = answer.responses[0].partition_responses[0]
        return result

    async def fetch(self, topic: str, offset: int, *, partition: int = 0, version: int = 12, **options: int) -> Any:
        """The partition of the response (FetchResponse.PartitionData); its records are there unless it has an error."""
        answer = await self.ask(fetch_request(topic, offset, partition=partition, **options), version)
        return answer.responses[0].partitions[0]


def batch(*values: bytes, key: bytes | None = b"k", **options: Any) -> bytearray:
    """A batch of records as a producer sends it."""
    return build([Record(n, 1_700_000_000_000 + n, key, value, []) for n, value in enumerate(values)], **options)


def produce_request(
    topic: str, records: bytes | bytearray, *, partition: int = 0, acks: int = -1, timeout_ms: int = 10_000
) -> m.ProduceRequest:
    data = m.ProduceRequest.PartitionProduceData(index=partition, records=records)
    return m.ProduceRequest(
        acks=acks,
        timeout_ms=timeout_ms,
        topic_data=[m.ProduceRequest.TopicProduceData(name=topic, partition_data=[data])],
    )


def fetch_request(
    topic: str,
    offset: int,
    *,
    partition: int = 0,
    max_wait_ms: int = 0,
    min_bytes: int = 1,
    max_bytes: int = 1 << 25,
    partition_max_bytes: int = 1 << 20,
    isolation_level: int = 0,
    session_id: int = 0,
    session_epoch: int = -1,
) -> m.FetchRequest:
    wanted = m.FetchRequest.FetchPartition(
        partition=partition, fetch_offset=offset, partition_max_bytes=partition_max_bytes
    )
    return m.FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        isolation_level=isolation_level,
        session_id=session_id,
        session_epoch=session_epoch,
        topics=[m.FetchRequest.FetchTopic(topic=topic, partitions=[wanted])],
    )


@asynccontextmanager
async def running_broker(
    folder: Path | str, properties: dict[str, str] | None = None, *, disk: Disk | None = None
) -> AsyncIterator[Broker]:
    """A broker in this process, stopped in order at the end."""
    environment = Environment() if disk is None else Environment(disk=disk)
    broker = Broker(
        BrokerConfig(
            {
                "broker.id": "0",
                "listeners": "PLAINTEXT://127.0.0.1:0",
                "log.dirs": str(folder),
                "offsets.topic.num.partitions": "3",
                "group.initial.rebalance.delay.ms": "0",
                **(properties or {}),
            }
        ),
        environment,
    )
    await broker.start()
    try:
        yield broker
    finally:
        await broker.stop()
