"""Requests with few bytes that decompress to many: threads handle them, and other clients are answered meanwhile."""

from __future__ import annotations

import asyncio
import functools
import gzip
import statistics
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from odradek.broker.config.broker_config import BrokerConfig
from odradek.broker.replication import conversions, produce_appends
from odradek.broker.server import Broker, Environment
from odradek.protocol import messages as m
from odradek.protocol.batch import HEADER_SIZE, MAX_DECOMPRESSED, read_header, sealed
from odradek.protocol.compression import Codec
from odradek.protocol.errors import ErrorCode, KafkaError
from tests.broker.held_worker import HeldWorker
from tests.broker.message_sets import THEN_MS, message, wrapper
from tests.broker.wire import Client, batch, fetch_request, running_broker
from tests.support.eventually import eventually_async

BATCHES = 40
BOMBS: dict[str, tuple[Codec, int | None]] = {
    **{f"batch-{codec.name}": (codec, None) for codec in Codec if codec},
    **{
        f"magic{magic}-{codec.name}": (codec, magic)
        for codec in (Codec.GZIP, Codec.SNAPPY, Codec.LZ4)
        for magic in (0, 1)
    },
}
"""Codec, and the magic of a message set."""


@functools.cache
def bomb_of(name: str) -> tuple[bytes | bytearray, int]:
    """20 MB of zeros, compressed, and the version of Produce that carries them."""
    codec, magic = BOMBS[name]
    if magic is None:
        return batch(bytes(20_000_000), codec=codec), 9
    return wrapper(message(bytes(20_000_000), magic=magic), codec, magic=magic), 2


@pytest.fixture
async def worker() -> HeldWorker:
    return HeldWorker()


@pytest.fixture
async def held_broker(tmp_path: Path, worker: HeldWorker) -> AsyncIterator[Broker]:
    properties = {
        "broker.id": "0",
        "listeners": "PLAINTEXT://127.0.0.1:0",
        "log.dirs": str(tmp_path),
        "offsets.topic.num.partitions": "1",
        "log.cleaner.enable": "false",
    }
    running = Broker(BrokerConfig(properties), Environment(worker=worker))
    await running.start()
    yield running
    await running.stop()


def produce(batches: list[bytes | bytearray]) -> m.ProduceRequest:
    """A request with one batch for each partition."""
    data = [
        m.ProduceRequest.PartitionProduceData(index=index, records=records) for index, records in enumerate(batches)
    ]
    topic = m.ProduceRequest.TopicProduceData(name="t", partition_data=data)
    return m.ProduceRequest(acks=1, timeout_ms=10_000, topic_data=[topic])


def codes(response: m.ProduceResponse) -> set[str]:
    """The errors of a response."""
    return {ErrorCode(each.error_code).name for each in response.responses[0].partition_responses}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow) if name.startswith("magic0") else name for name in BOMBS]
)
async def test_a_bomb_is_not_decompressed_on_the_event_loop(held_broker: Broker, worker: HeldWorker, name: str) -> None:
    client, other = [await Client.connect(held_broker.port) for _ in range(2)]
    await other.create_topic("t", BATCHES, {"max.message.bytes": "10000000"})
    bomb, version = bomb_of(name)
    await client.send(produce([bomb] * 2), version)
    await worker.arrived()
    assert (await other.ask(m.MetadataRequest(topics=[]), 7)).brokers
    assert (await other.produce("t", batch(b"small", codec=Codec.ZSTD), partition=5)).base_offset == 0
    for _ in range(2):
        await worker.arrived()
        worker.release()
    assert codes(await client.receive()) == {"NONE"}


async def test_many_small_batches_leave_the_event_loop_together(held_broker: Broker, worker: HeldWorker) -> None:
    client = await Client.connect(held_broker.port)
    await client.create_topic("t", BATCHES)
    small = batch(bytes(200_000), codec=Codec.LZ4)
    await client.send(produce([small] * BATCHES), 9)
    await worker.arrived()
    for _ in range(BATCHES - 5):
        await worker.arrived()
        worker.release()
    left = worker.waiting
    while worker.waiting:
        worker.release()
    assert left <= 5
    assert codes(await client.receive()) == {"NONE"}


async def test_gzip_that_announces_too_little_goes_to_a_thread(held_broker: Broker, worker: HeldWorker) -> None:
    client = await Client.connect(held_broker.port)
    await client.create_topic("t")
    whole = batch(bytes(20_000_000), codec=Codec.GZIP)
    plain = batch(bytes(20_000_000))[HEADER_SIZE:]
    payload = gzip.compress(plain[:-1]) + gzip.compress(plain[-1:])  # the last member announces one byte
    header = read_header(whole)._replace(batch_length=HEADER_SIZE - 12 + len(payload), crc=0)
    await client.send(produce([sealed(header, payload)]), 9)
    await worker.arrived()
    worker.release()
    await worker.arrived()  # it was too large for the quick conversions, too
    worker.release()
    assert codes(await client.receive()) == {"NONE"}


async def test_slow_conversions_run_one_at_a_time(held_broker: Broker, worker: HeldWorker) -> None:
    """They leave a thread to the conversions of other clients."""
    clients = [await Client.connect(held_broker.port) for _ in range(3)]
    await clients[0].create_topic("t", 3, {"max.message.bytes": "10000000"})
    for client in clients:
        await client.send(produce([bomb_of("batch-ZSTD")[0]]), 9)
    await worker.arrived()
    quick = await Client.connect(held_broker.port)
    await quick.send(produce([batch(bytes(900_000), codec=Codec.LZ4)]), 9)
    await eventually_async(worker.count, lambda waiting: waiting >= 2)
    assert worker.waiting == 2  # one slow conversion of three, and the quick one
    while worker.waiting:
        worker.release()
    assert {code for client in (*clients, quick) for code in codes(await client.receive())} == {"NONE"}


async def test_slow_conversions_of_a_client_do_not_wait_for_all_those_of_another(worker: HeldWorker) -> None:
    ended: list[str] = []
    queue = conversions.OneAtATime(worker)
    for client, count in (("bombs", 4), ("other", 2)):
        for number in range(count):
            name = f"{client} {number}"
            queue.run(lambda: None, lambda error, name=name: ended.append(name), client)
    while worker.waiting:
        worker.release()
    assert ended == ["bombs 0", "bombs 1", "other 0", "bombs 2", "other 1", "bombs 3"]


async def test_what_decompresses_to_too_much_is_refused(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        client = await Client.connect(broker.port)
        await client.create_topic("t", 4)
        bomb = batch(bytes(MAX_DECOMPRESSED + 1), codec=Codec.ZSTD)
        await client.send(produce([bomb, batch(b"x", codec=Codec.ZSTD)]), 9)
        answers = (await client.receive()).responses[0].partition_responses
        assert [ErrorCode(each.error_code).name for each in answers] == ["MESSAGE_TOO_LARGE", "NONE"]


@pytest.mark.parametrize("codec", [Codec.ZSTD, Codec.GZIP])
async def test_the_batches_of_a_request_decompress_to_a_limited_size_together(
    held_broker: Broker, worker: HeldWorker, monkeypatch: pytest.MonkeyPatch, codec: Codec
) -> None:
    """Each batch has a limit of its own, but a request of 1 MB may have hundreds of them."""
    monkeypatch.setattr(produce_appends, "DECOMPRESSED_BYTES", 50_000_000)
    client = await Client.connect(held_broker.port)
    await client.create_topic("t", 6)
    bomb = batch(bytes(15_000_000), codec=codec)
    if codec is Codec.GZIP:  # one that announces a single byte counts with its limit when that is found
        plain = batch(bytes(20_000_000))[HEADER_SIZE:]
        payload = gzip.compress(plain[:-1]) + gzip.compress(plain[-1:])
        bomb = sealed(read_header(bomb)._replace(batch_length=HEADER_SIZE - 12 + len(payload), crc=0), payload)
    accepted = 3 if codec is Codec.ZSTD else 0
    await client.send(produce([*[bomb] * 5, batch(b"x", codec=codec)]), 9)
    for _ in range(accepted or 5):
        await worker.arrived()
        worker.release()
    answers = (await client.receive()).responses[0].partition_responses
    names = [ErrorCode(each.error_code).name for each in answers]
    assert names == ["NONE"] * accepted + ["MESSAGE_TOO_LARGE"] * (5 - accepted) + ["NONE"]


def test_a_large_request_may_decompress_to_more() -> None:
    spent = produce_appends.Spent()
    for _ in range(5):
        spent.decompress(MAX_DECOMPRESSED // 10, MAX_DECOMPRESSED)
    for _ in range(11):
        spent.decompress(1000, MAX_DECOMPRESSED)
    with pytest.raises(KafkaError) as refused:
        spent.decompress(1000, MAX_DECOMPRESSED)
    assert refused.value.code is ErrorCode.MESSAGE_TOO_LARGE


@pytest.mark.slow
@pytest.mark.parametrize("codec", ["ZSTD", "GZIP"])
async def test_other_clients_are_answered_within_100_ms(tmp_path: Path, codec: str) -> None:
    async with running_broker(tmp_path) as broker:
        client, other = [await Client.connect(broker.port) for _ in range(2)]
        await other.create_topic("t", BATCHES)

        async def p99_ms(until: Callable[[], bool]) -> float:
            took_ms = []
            while not until():
                begun_s = time.perf_counter()
                await other.ask(m.MetadataRequest(topics=[]), 7)
                took_ms.append(1000 * (time.perf_counter() - begun_s))
            return statistics.quantiles(took_ms, n=100)[-1]

        rounds = iter(range(500))
        alone_ms = await p99_ms(lambda: next(rounds, None) is None)
        await client.send(produce([bomb_of(f"batch-{codec}")[0]] * (BATCHES // 4)), 9)
        received = asyncio.ensure_future(client.receive())
        beside_ms = await p99_ms(received.done)
        assert "NONE" in codes(received.result()) <= {"NONE", "MESSAGE_TOO_LARGE"}  # a request has a limit in all
        assert beside_ms < max(100, 10 * alone_ms)  # the latter where others use the machine


async def test_a_fetch_of_an_old_version_decompresses_in_a_thread(held_broker: Broker, worker: HeldWorker) -> None:
    client, other = [await Client.connect(held_broker.port) for _ in range(2)]
    await client.create_topic("t")
    await client.send(produce([bomb_of("batch-GZIP")[0]]), 9)
    await worker.arrived()
    worker.release()
    assert codes(await client.receive()) == {"NONE"}
    await client.send(fetch_request("t", 0), 3)
    await worker.arrived()
    assert (await other.ask(m.MetadataRequest(topics=[]), 7)).brokers
    worker.release()
    assert (await client.receive()).responses[0].partitions[0].error_code == 0


@pytest.mark.parametrize("timestamp", [THEN_MS + 1, -3])
async def test_a_search_for_a_timestamp_decompresses_in_a_thread(
    held_broker: Broker, worker: HeldWorker, timestamp: int
) -> None:
    client, other = [await Client.connect(held_broker.port) for _ in range(2)]
    await client.create_topic("t", 2)
    late = batch(bytes(20_000_000), b"late", codec=Codec.ZSTD)  # the second record is a millisecond later
    await client.send(produce([late] * 2), 9)
    for _ in range(2):
        await worker.arrived()
        worker.release()
    assert codes(await client.receive()) == {"NONE"}
    partitions = [
        m.ListOffsetsRequest.ListOffsetsPartition(partition_index=index, timestamp=timestamp, current_leader_epoch=-1)
        for index in range(2)
    ]
    topic = m.ListOffsetsRequest.ListOffsetsTopic(name="t", partitions=partitions)
    await client.send(m.ListOffsetsRequest(replica_id=-1, topics=[topic]), 7)
    for _ in range(2):
        await worker.arrived()
        assert (await other.ask(m.MetadataRequest(topics=[]), 7)).brokers
        worker.release()
    answers = (await client.receive()).topics[0].partitions
    assert [(each.error_code, each.offset, each.timestamp) for each in answers] == [(0, 1, THEN_MS + 1)] * 2


def test_the_limits_fit_together() -> None:
    """A conversion that is not slow fits the limit of the quick ones."""
    assert conversions.QUICK_BYTES >> 10 > conversions.SLOW_MICROSECONDS // 3
