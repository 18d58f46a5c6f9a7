"""Consumers that fetch with small limits reach the end of a compacted topic with small segments.

Some clients advance by the records that they receive, and not by the batches (segmentio's kafka-go among them): a
response of batches without records leaves them where they were.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as ConfluentPartition

from odradek.protocol import messages as m
from odradek.protocol.batch import HEADER_SIZE, Header, headers, records
from odradek.wire import Wire
from tests.broker.compacting import Compacting, create
from tests.broker.wire import batch, fetch_request, produce_request
from tests.support.eventually import eventually

pytestmark = pytest.mark.slow

TIMEOUT_S = 30.0
SEGMENTS, KEYS, LIMIT = 120, 7, 200


@pytest.fixture(scope="module")
def compacted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Compacting]:
    """A topic of segments of 200 bytes, a batch in each, which plain producers wrote and the cleaner has compacted."""
    broker = Compacting(tmp_path_factory.mktemp("small"), {})
    broker.start()
    create(broker, "t", segment_bytes=str(LIMIT))
    with Wire("127.0.0.1", broker.port) as wire:
        for number in range(SEGMENTS):
            data = batch(b"%d" % number * 20, key=b"k%d" % (number % KEYS))
            answer = wire.ask(produce_request("t", data), 9)
            assert answer.responses[0].partition_responses[0].error_code == 0
    eventually(lambda: f"t 0 {SEGMENTS - 1}" in (broker.data_dir / "cleaner-offset-checkpoint").read_text())
    yield broker
    broker.close()


def fetched(wire: Wire, offset: int, limit: int, version: int = 11) -> tuple[list[Header], list[int], int]:
    """The whole batches of a response, the offsets of the records from `offset` on, and the high watermark."""
    request = fetch_request("t", offset, max_bytes=limit, partition_max_bytes=limit)
    part: m.FetchResponse.PartitionData = wire.ask(request, version).responses[0].partitions[0]
    assert part.error_code == 0
    data = bytes(part.records or b"")
    whole = [(at, header) for at, header in headers(data) if at + header.size <= len(data)]
    found = [record.offset for at, _ in whole for record in records(data, at) if record.offset >= offset]
    return [header for _, header in whole], found, part.high_watermark


@pytest.mark.parametrize("limit", [1, HEADER_SIZE, LIMIT, 2 * LIMIT])
@pytest.mark.parametrize("version", [4, 11])
def test_every_response_advances_a_consumer_of_batches(compacted: Compacting, limit: int, version: int) -> None:
    """As Kafka's `minOneMessage`: the first batch comes whole, however small the limit."""
    offset, seen = 0, []
    with Wire("127.0.0.1", compacted.port) as wire:
        while True:
            found, offsets, end = fetched(wire, offset, limit, version)
            if offset >= end:
                break
            assert found, f"no whole batch comes from offset {offset}"
            assert found[-1].next_offset > offset
            offset, seen = found[-1].next_offset, seen + offsets
    assert (offset, seen[-1]) == (SEGMENTS, SEGMENTS - 1)
    assert KEYS <= len(seen) <= KEYS + 1, "the latest of each key, and the active segment's"


def test_a_consumer_that_advances_by_records_alone_makes_progress(compacted: Compacting) -> None:
    offset = 0
    with Wire("127.0.0.1", compacted.port) as wire:
        while True:
            _, offsets, end = fetched(wire, offset, LIMIT)
            if offset >= end:
                break
            assert offsets, f"no record comes from offset {offset}"
            offset = offsets[-1] + 1
    assert offset == SEGMENTS


def test_consumers_with_small_limits_reach_the_end(compacted: Compacting) -> None:
    settings = {
        "bootstrap.servers": compacted.bootstrap,
        "group.id": "small",
        "fetch.message.max.bytes": LIMIT,
        "enable.auto.commit": False,
    }
    consumer = Consumer(settings)
    consumer.assign([ConfluentPartition("t", 0, 0)])
    offset = -1
    while offset < SEGMENTS - 1:
        message = consumer.poll(TIMEOUT_S)
        assert message is not None, f"no batch comes behind {offset}"
        assert message.error() is None
        offset = message.offset() or 0
    consumer.close()
    assert asyncio.run(_read_with_aiokafka(compacted.bootstrap)) == SEGMENTS - 1


async def _read_with_aiokafka(bootstrap: str) -> int:
    async with _aiokafka(bootstrap) as consumer:
        offset = -1
        while offset < SEGMENTS - 1:
            message = await asyncio.wait_for(consumer.getone(), TIMEOUT_S)
            assert message.offset is not None
            offset = message.offset
        return offset


@asynccontextmanager
async def _aiokafka(bootstrap: str) -> AsyncIterator[AIOKafkaConsumer]:
    consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, max_partition_fetch_bytes=LIMIT, fetch_max_bytes=LIMIT)
    await consumer.start()
    try:
        partition = TopicPartition("t", 0)
        consumer.assign([partition])
        consumer.seek(partition, 0)
        yield consumer
    finally:
        await consumer.stop()
