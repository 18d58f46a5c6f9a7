"""Whatever a client sends, the broker answers the others as before, and keeps nothing."""

from __future__ import annotations

import asyncio
import random
import struct
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from odradek.broker.server import Broker
from odradek.protocol import messages as m
from odradek.protocol.errors import ErrorCode
from odradek.protocol.framing import frame, request_header
from tests.broker.wire import Client, batch, fetch_request, produce_request, running_broker

CONNECTIONS = 300
MUTATIONS = 2500


def valid_frames() -> list[bytes]:
    """One request of many kinds each, as whole frames."""
    requests: list[tuple[object, int]] = [
        (produce_request("there", batch(b"value", b"another")), 9),
        (produce_request("there", batch(b"value"), acks=1), 3),
        (fetch_request("there", 0), 12),
        (fetch_request("there", 0), 4),
        (m.MetadataRequest(topics=[m.MetadataRequest.MetadataRequestTopic(name="there")]), 9),
        (m.FindCoordinatorRequest(coordinator_keys=["g"]), 4),
        (m.OffsetFetchRequest(groups=[m.OffsetFetchRequest.OffsetFetchRequestGroup(group_id="g", topics=None)]), 8),
        (m.DescribeGroupsRequest(groups=["g"]), 5),
        (m.ListOffsetsRequest(replica_id=-1, topics=[m.ListOffsetsRequest.ListOffsetsTopic(name="there")]), 7),
        (m.ApiVersionsRequest(client_software_name="x", client_software_version="1"), 3),
    ]
    frames = []
    for request, version in requests:
        key = type(request).API_KEY  # type: ignore[attr-defined]
        parts = [bytes(part) for part in request.encode_parts(version)]  # type: ignore[attr-defined]
        frames.append(frame(request_header(key, version, 1, "spoiler"), *parts))
    return frames


def spoil(data: bytes, chance: random.Random) -> bytes:
    """Change, cut or stretch a frame; its size stays what it says or becomes a lie."""
    changed = bytearray(data)
    for _ in range(chance.randint(1, 4)):
        place = chance.randrange(4 if chance.random() < 0.9 else 0, len(changed))
        changed[place] = chance.choice((0, 1, 0x7F, 0x80, 0xFF, chance.randrange(256)))
    if chance.random() < 0.3:
        body = changed[4 : chance.randrange(4, len(changed) + 1)]
        changed = bytearray(struct.pack(">i", len(body)) + body)
    return bytes(changed)


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[tuple[Broker, Client]]:
    """A broker with small limits, and a client that has nothing to do with the bad ones."""
    limits = {"socket.request.max.bytes": "1000000", "group.initial.rebalance.delay.ms": "0"}
    async with running_broker(tmp_path / "data", limits) as broker:
        client = await Client.connect(broker.port)
        await client.create_topic("there")
        assert (await client.produce("there", batch(b"first"))).base_offset == 0
        yield broker, client
        client.close()


async def assault(broker: Broker, data: bytes) -> None:
    """Send bytes on a connection of their own, and go without reading an answer."""
    reader, writer = await asyncio.open_connection("127.0.0.1", broker.port)
    writer.write(data)
    writer.write_eof()
    async with asyncio.timeout(20):
        try:
            await reader.read()  # to the end: the broker has worked through it
        except ConnectionError:
            return
        finally:
            writer.close()


async def still_well(broker: Broker, client: Client) -> None:
    """The other client is served as before, and nothing is kept of the bad ones."""
    assert (await client.produce("there", batch(b"later"))).error_code == 0
    read = await client.fetch("there", 0)
    assert read.error_code == 0
    assert len(read.records) > 0
    assert broker.held_bytes == 0


async def test_random_bytes(server: tuple[Broker, Client]) -> None:
    broker, client = server
    chance = random.Random(1)
    for _ in range(CONNECTIONS):
        await assault(broker, chance.randbytes(chance.randrange(200)))
    await still_well(broker, client)


@pytest.mark.parametrize("seed", [1, 2])
async def test_spoiled_requests(server: tuple[Broker, Client], seed: int) -> None:
    broker, client = server
    chance = random.Random(seed)
    frames = valid_frames()
    for _ in range(MUTATIONS // 5):
        await assault(broker, b"".join(spoil(chance.choice(frames), chance) for _ in range(5)))
    await still_well(broker, client)


async def test_requests_that_are_cut_off(server: tuple[Broker, Client]) -> None:
    broker, client = server
    for data in valid_frames():
        for end in range(0, len(data), 5):
            await assault(broker, data[:end])
    await still_well(broker, client)


@pytest.mark.parametrize("size", [1_000_001, 2**31 - 1, -1, -(2**31)])
async def test_absurd_sizes(server: tuple[Broker, Client], size: int) -> None:
    broker, client = server
    bad = await Client.connect(broker.port)
    await bad.send_bytes(struct.pack(">i", size))
    assert await bad.is_closed()
    await still_well(broker, client)


async def test_half_open_connections_that_promise_much(server: tuple[Broker, Client]) -> None:
    broker, client = server
    bad = [await Client.connect(broker.port) for _ in range(50)]
    for each in bad:
        await each.send_bytes(struct.pack(">i", 1_000_000) + b"\0")
    assert (await client.produce("there", batch(b"later"))).error_code == 0
    assert broker.held_bytes < 50 * 300_000
    for each in bad:
        each.close()


async def test_oversized_names_and_metadata(server: tuple[Broker, Client]) -> None:
    broker, client = server
    while (await client.ask(m.FindCoordinatorRequest(key="g"), 3)).error_code:
        pass
    partition = m.OffsetCommitRequest.OffsetCommitRequestPartition(
        partition_index=0, committed_offset=1, committed_metadata="x" * 4097
    )
    commit = m.OffsetCommitRequest(
        group_id="g",
        topics=[m.OffsetCommitRequest.OffsetCommitRequestTopic(name="there", partitions=[partition])],
    )
    answer = await client.ask(commit, 8)
    assert answer.topics[0].partitions[0].error_code == ErrorCode.OFFSET_METADATA_TOO_LARGE
    join = m.JoinGroupRequest(group_id="", session_timeout_ms=10_000, protocol_type="consumer")
    assert (await client.ask(join, 3)).error_code == ErrorCode.INVALID_GROUP_ID
    long = m.MetadataRequest.MetadataRequestTopic(name="x" * 32_000)
    assert (await client.ask(m.MetadataRequest(topics=[long]), 12)).topics[0].error_code == 17
    await still_well(broker, client)


async def test_connections_are_limited_through_the_configuration(tmp_path: Path) -> None:
    for limits in ({"max.connections": "2"}, {"max.connections.per.ip": "2"}):
        async with running_broker(tmp_path / next(iter(limits)), limits) as broker:
            kept = [await Client.connect(broker.port) for _ in range(2)]
            for each in kept:
                assert (await each.ask(m.DescribeClusterRequest(), 0)).controller_id == 0
            third = await Client.connect(broker.port)
            assert await third.is_closed()
            for each in kept:
                each.close()


async def test_idle_connections_are_closed_through_the_configuration(tmp_path: Path) -> None:
    async with running_broker(tmp_path / "data", {"connections.max.idle.ms": "150"}) as broker:
        idle = await Client.connect(broker.port)
        assert await idle.is_closed()
