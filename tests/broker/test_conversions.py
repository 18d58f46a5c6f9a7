"""Batches that are converted in a thread: their order, their responses, and events meanwhile.

The thread is one that runs on demand of the test; everything else is a broker over the wire.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from odradek.broker.config.broker_config import BrokerConfig
from odradek.broker.server import Broker, Environment
from odradek.protocol import messages as m
from odradek.protocol.batch import headers, records
from odradek.protocol.compression import Codec
from odradek.protocol.errors import ErrorCode
from odradek.storage.config import LogConfig
from odradek.storage.staged import STAGED_BYTES
from odradek.storage.validation import takes_long
from tests.broker.held_worker import HeldWorker
from tests.broker.message_sets import message, messages_in, wrapper
from tests.broker.wire import DEADLINE_S, Client, batch, fetch_request, produce_request

LONG = batch(b"a" * 200_000)
"""A batch that is large enough for a thread where a topic wants it compressed."""


@pytest.fixture
async def worker() -> HeldWorker:
    return HeldWorker()


@pytest.fixture
async def broker(tmp_path: Path, worker: HeldWorker) -> AsyncIterator[Broker]:
    properties = {
        "broker.id": "0",
        "listeners": "PLAINTEXT://127.0.0.1:0",
        "log.dirs": str(tmp_path),
        "offsets.topic.num.partitions": "1",
        "transaction.state.log.num.partitions": "1",
        "log.cleaner.enable": "false",
    }
    running = Broker(BrokerConfig(properties), Environment(worker=worker))
    await running.start()
    yield running
    await running.stop()


@pytest.fixture
async def client(broker: Broker) -> AsyncIterator[Client]:
    connected = await Client.connect(broker.port)
    await connected.create_topic("t", 2, {"compression.type": "gzip"})
    yield connected
    connected.close()


async def values(client: Client, partition: int = 0) -> list[bytes | None]:
    """The first byte of each record in the log."""
    data = bytes((await client.fetch("t", 0, partition=partition)).records or b"")
    return [each.value[:1] if each.value else None for at, _ in headers(data) for each in records(data, at)]


def offsets(answer: m.ProduceResponse) -> list[tuple[str, int]]:
    """Offset and error of each partition of a response."""
    return [(ErrorCode(each.error_code).name, each.base_offset) for each in answer.responses[0].partition_responses]


async def test_one_connection_keeps_its_order_and_others_continue(
    broker: Broker, client: Client, worker: HeldWorker
) -> None:
    other = await Client.connect(broker.port)
    await client.send(produce_request("t", LONG), 9)
    await worker.arrived()
    await client.send(produce_request("t", batch(b"b")), 9)
    await client.send(produce_request("t", batch(b"c"), partition=1), 9)
    assert (await other.produce("t", batch(b"x"))).base_offset == 0  # the same partition, another connection
    while await values(other, 1) != [b"c"]:
        pass  # another partition does not wait either, only its response does
    assert await values(other) == [b"x"]
    worker.release()
    answers = [offsets(await client.receive())[0] for _ in range(3)]
    assert answers == [("NONE", 1), ("NONE", 2), ("NONE", 0)]
    assert await values(other) == [b"x", b"a", b"b"]
    other.close()


async def test_a_thread_writes_a_large_batch_and_the_log_gets_it_in_order(
    tmp_path: Path, broker: Broker, client: Client, worker: HeldWorker
) -> None:
    await client.create_topic("large", 1, {"max.message.bytes": str(2 * STAGED_BYTES)})
    other = await Client.connect(broker.port)
    await client.send(produce_request("large", batch(b"a" * STAGED_BYTES)), 9)
    await worker.arrived()
    await client.send(produce_request("large", batch(b"b")), 9)
    assert (await other.produce("large", batch(b"x"))).base_offset == 0
    worker.release()
    assert [offsets(await client.receive())[0] for _ in range(2)] == [("NONE", 1), ("NONE", 2)]
    segments = {path.name: path.stat().st_size > STAGED_BYTES for path in (tmp_path / "large-0").glob("*.log")}
    assert segments == {f"{0:020d}.log": False, f"{1:020d}.log": True}
    assert worker.waiting == 1  # the memory of the request
    worker.release()
    other.close()


async def test_several_partitions_of_one_request(client: Client, worker: HeldWorker) -> None:
    request = produce_request("t", LONG)
    request.topic_data[0].partition_data.append(m.ProduceRequest.PartitionProduceData(index=1, records=batch(b"b")))
    await client.send(request, 9)
    await worker.arrived()
    worker.release()
    assert offsets(await client.receive()) == [("NONE", 0), ("NONE", 0)]


async def test_a_refused_batch_does_not_stop_those_behind_it(client: Client, worker: HeldWorker) -> None:
    torn = bytearray(LONG)
    torn[-1] ^= 1
    for data in (torn, batch(b"b"), LONG):
        await client.send(produce_request("t", data), 9)
    await worker.arrived()
    worker.release()
    assert offsets(await client.receive()) == [("CORRUPT_MESSAGE", -1)]
    assert offsets(await client.receive()) == [("NONE", 0)]
    await worker.arrived()
    worker.release()
    assert offsets(await client.receive()) == [("NONE", 1)]


async def test_the_deadline_counts_from_the_end_of_the_conversion(client: Client, worker: HeldWorker) -> None:
    await client.send(produce_request("t", LONG, acks=1, timeout_ms=0), 9)
    await worker.arrived()
    worker.release()
    assert offsets(await client.receive()) == [("NONE", 0)]


async def test_a_batch_is_written_although_its_client_disconnects(
    broker: Broker, client: Client, worker: HeldWorker
) -> None:
    gone = await Client.connect(broker.port)
    await gone.send(produce_request("t", LONG), 9)
    await worker.arrived()
    gone.close()
    worker.release()
    assert await values(client) == [b"a"]


async def test_acks_0_waits_for_nothing_and_keeps_its_order(broker: Broker, client: Client, worker: HeldWorker) -> None:
    await client.send(produce_request("t", LONG, acks=0), 9)
    client.forget()
    await client.send(produce_request("t", batch(b"b"), acks=0), 9)
    client.forget()
    await client.send(fetch_request("t", 0), 11)
    await worker.arrived()
    worker.release()
    assert (await client.receive()).responses[0].partitions[0].error_code == 0
    assert await values(client) == [b"a", b"b"]


async def test_acks_0_that_fails_ends_the_connection(broker: Broker, client: Client, worker: HeldWorker) -> None:
    torn = bytearray(LONG)
    torn[-1] ^= 1
    other = await Client.connect(broker.port)
    await other.send(produce_request("t", torn, acks=0), 9)
    other.forget()
    await worker.arrived()
    worker.release()
    assert await other.is_closed()


async def test_a_topic_is_deleted_during_a_conversion(broker: Broker, client: Client, worker: HeldWorker) -> None:
    writer = await Client.connect(broker.port)
    await writer.send(produce_request("t", LONG), 9)
    await worker.arrived()
    await client.ask(m.DeleteTopicsRequest(topic_names=["t"], timeout_ms=10_000), 4)
    ((code, _),) = offsets(await writer.receive())
    assert code == "NOT_LEADER_OR_FOLLOWER"
    worker.release()
    assert (await client.ask(m.MetadataRequest(topics=[]), 7)).brokers
    writer.close()


async def test_a_broker_stops_during_a_conversion(broker: Broker, client: Client, worker: HeldWorker) -> None:
    await client.send(produce_request("t", LONG), 9)
    await worker.arrived()
    await broker.stop()
    worker.release()
    assert await client.is_closed()


async def test_closed_threads_refuse_work_that_still_waits(client: Client, worker: HeldWorker) -> None:
    for data in (LONG, LONG, batch(b"c")):
        await client.send(produce_request("t", data), 9)
    await worker.arrived()
    worker.closed = True
    worker.release()
    answers = [offsets(await client.receive()) for _ in range(3)]
    assert answers == [[("NONE", 0)], [("NOT_LEADER_OR_FOLLOWER", -1)], [("NONE", 1)]]


async def test_a_response_in_an_old_format_is_made_in_a_thread(
    broker: Broker, client: Client, worker: HeldWorker
) -> None:
    await client.create_topic("plain")
    assert (await client.produce("plain", batch(b"b" * 300_000))).error_code == 0
    reader = await Client.connect(broker.port)
    await reader.send(fetch_request("plain", 0), 2)
    await worker.arrived()
    assert (await client.ask(m.MetadataRequest(topics=[]), 7)).brokers  # the loop continues
    worker.release()
    data = bytes((await reader.receive()).responses[0].partitions[0].records)
    (first, *_) = messages_in(data)
    assert first[5] == b"b" * 300_000
    reader.close()


async def test_a_transaction_is_converted_and_then_confirmed(
    broker: Broker, client: Client, worker: HeldWorker
) -> None:
    begin = m.InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=60_000)
    await client.ask(m.FindCoordinatorRequest(key="x", key_type=1), 1)
    async with asyncio.timeout(DEADLINE_S):
        while (answer := await client.ask(begin, 1)).error_code:
            pass
    producer: dict[str, Any] = {"producer_id": answer.producer_id, "producer_epoch": answer.producer_epoch}
    added = m.AddPartitionsToTxnRequest(
        v3_and_below_transactional_id="x",
        v3_and_below_producer_id=answer.producer_id,
        v3_and_below_producer_epoch=answer.producer_epoch,
        v3_and_below_topics=[m.AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name="t", partitions=[0])],
    )
    await client.ask(added, 1)
    for sequence, data in enumerate((b"a" * 200_000, b"b")):
        request = produce_request("t", batch(data, base_sequence=sequence, transactional=True, **producer))
        request.transactional_id = "x"
        await client.send(request, 9)
    await worker.arrived()
    worker.release()
    assert [offsets(await client.receive()) for _ in range(2)] == [[("NONE", 0)], [("NONE", 1)]]
    ended = await client.ask(m.EndTxnRequest(transactional_id="x", committed=True, **producer), 1)
    assert ended.error_code == 0
    assert (await values(client))[:2] == [b"a", b"b"]


@pytest.mark.parametrize(
    ("data", "target", "version", "long"),
    [
        (batch(b"a" * 900_000), "producer", 9, False),
        (batch(b"a" * 900_000), "uncompressed", 9, False),
        (batch(b"a" * 100_000), "gzip", 9, True),
        (batch(b"a" * 10_000), "gzip", 9, False),
        (batch(b"a" * 900_000, codec=Codec.LZ4), "producer", 9, True),  # a few KiB when compressed
        (batch(b"a" * 100_000, codec=Codec.LZ4), "producer", 9, False),
        (batch(b"a" * 100_000, codec=Codec.GZIP), "producer", 9, False),
        (batch(b"a" * 900_000, codec=Codec.GZIP), "producer", 9, True),
        (message(b"a" * 900_000), "producer", 2, True),
        (message(b"a" * 100_000), "producer", 2, False),
        (wrapper(bytes(range(256)) * 200, Codec.SNAPPY), "gzip", 2, True),
        (wrapper(b"a" * 50_000, Codec.SNAPPY), "producer", 2, False),
        (b"", "gzip", 9, False),
        (b"\0" * 61, "gzip", 0, False),
    ],
)
def test_which_work_goes_to_a_thread(data: bytes, target: str, version: int, long: bool) -> None:
    assert takes_long(memoryview(data), LogConfig(compression_type=target), version) is long


SEGMENT_BYTES = 2_000
FILLS = b"f" * 1_400
"""The value of a record that leaves no room for another one in a segment."""


async def test_a_batch_waits_while_a_thread_creates_its_segment_and_others_continue(
    tmp_path: Path, broker: Broker, client: Client, worker: HeldWorker
) -> None:
    await client.create_topic("rolls", 2, {"segment.bytes": str(SEGMENT_BYTES)})
    other, third = await Client.connect(broker.port), await Client.connect(broker.port)
    await client.produce("rolls", batch(FILLS))
    await client.send(produce_request("rolls", batch(b"a" * 1_000)), 9)
    await worker.arrived()
    await client.send(produce_request("rolls", batch(b"b")), 9)
    await other.send(produce_request("rolls", batch(b"x")), 9)  # small enough for the old segment, which is closed
    assert (await third.produce("rolls", batch(b"y"), partition=1)).base_offset == 0
    assert [path.name for path in (tmp_path / "rolls-0").glob("*.log")] == [f"{0:020d}.log"]
    async with asyncio.timeout(DEADLINE_S):
        while worker.waiting < 2:
            assert (await third.fetch("rolls", 0)).high_watermark == 1
    worker.release()
    worker.release()
    answers = [offsets(await client.receive())[0] for _ in range(2)]
    assert (answers, offsets(await other.receive())) == ([("NONE", 1), ("NONE", 2)], [("NONE", 3)])
    assert sorted(path.name for path in (tmp_path / "rolls-0").glob("*.log")) == [f"{0:020d}.log", f"{1:020d}.log"]
    assert worker.waiting == 0
    for connection in (other, third):
        connection.close()


async def waiting_for_a_segment(client: Client, worker: HeldWorker, acks: int) -> None:
    """The client has sent a batch for which no thread has created the segment yet."""
    await client.create_topic("rolls", 1, {"segment.bytes": str(SEGMENT_BYTES)})
    await client.produce("rolls", batch(FILLS))
    await client.send(produce_request("rolls", batch(b"a" * 1_000), acks=acks), 9)
    await worker.arrived()


async def test_a_batch_without_acknowledgment_waits_for_its_segment_too(
    broker: Broker, client: Client, worker: HeldWorker
) -> None:
    other = await Client.connect(broker.port)
    await waiting_for_a_segment(client, worker, acks=0)
    client.forget()
    assert (await other.fetch("rolls", 0)).high_watermark == 1
    worker.release()
    assert (await client.produce("rolls", batch(b"b"))).base_offset == 2
    other.close()


async def test_a_deleted_topic_refuses_the_batch_that_waits_for_a_segment(
    broker: Broker, client: Client, worker: HeldWorker
) -> None:
    other = await Client.connect(broker.port)
    await waiting_for_a_segment(client, worker, acks=-1)
    await other.ask(m.DeleteTopicsRequest(topic_names=["rolls"], timeout_ms=10_000), 4)
    ((code, _),) = offsets(await client.receive())
    assert code == "NOT_LEADER_OR_FOLLOWER"
    worker.release()
    assert (await other.ask(m.MetadataRequest(topics=[]), 7)).brokers
    other.close()


async def test_a_broker_without_threads_creates_the_segment_at_once(client: Client, worker: HeldWorker) -> None:
    await client.create_topic("rolls", 1, {"segment.bytes": str(SEGMENT_BYTES)})
    await client.produce("rolls", batch(FILLS))
    worker.closed = True
    assert (await client.produce("rolls", batch(b"a" * 1_000))).base_offset == 1
    worker.closed = False
