"""Bad input of clients: the broker serves all other clients as before, and keeps nothing of it."""

from __future__ import annotations

import asyncio
import http.client
import os
import random
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from odradek.broker.metrics.refusals import AT_ONCE
from odradek.broker.network.long_messages import shorten_messages
from odradek.broker.server import Broker
from odradek.protocol import messages as m
from odradek.protocol.compression import Codec
from odradek.protocol.errors import ErrorCode
from odradek.protocol.framing import frame, request_header
from tests.broker.admin_scripts import alter_quotas
from tests.broker.crowd import MB, assault, assault_all, resident_bytes
from tests.broker.wire import DEADLINE_S, Client, batch, fetch_request, produce_request, running_broker
from tests.protocol.samples import sample

CONNECTIONS = 300
MUTATIONS = 2500
CUTS = 12
DRAWN = 300
BOMB_BYTES = 20 * MB
REFUSED_TLS = (ssl.SSLError, ConnectionError)
AMONG_BROKERS = frozenset({4, 5, 6, 7})
"""Control requests; Kafka, too, applies them from any client where there is no authorizer."""


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
    """Change, cut or extend a frame; its size field stays true or becomes false."""
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
    """A broker with small limits, and a client that is unrelated to the bad ones."""
    limits = {"socket.request.max.bytes": "1000000", "group.initial.rebalance.delay.ms": "0"}
    async with running_broker(tmp_path / "data", limits) as broker:
        client = await Client.connect(broker.port)
        await client.create_topic("there")
        assert (await client.produce("there", batch(b"first"))).base_offset == 0
        yield broker, client
        client.close()


async def still_well(broker: Broker, client: Client) -> None:
    """The other client is served as before, and the broker keeps nothing of the bad ones."""
    assert (await client.produce("there", batch(b"later"))).error_code == 0
    read = await client.fetch("there", 0)
    assert read.error_code == 0
    assert len(read.records) > 0
    assert broker.running.held_bytes == 0


def requests_of_all_apis(seed: int) -> list[tuple[bytes, bytes, bool]]:
    """A request of every API that clients use, in its oldest and its newest version, with drawn values for all fields.

    They consist of header, body, and whether the version is a flexible one.
    """
    made = []
    for key, api in sorted(m.APIS.items()):
        request = m.request_class(key)
        for version in {request.MIN_VERSION, request.MAX_VERSION} if key not in AMONG_BROKERS else ():
            drawn = sample(request.__name__, version, random.Random(f"{seed} {key} {version}"), unknown_tags=False)
            body = b"".join(bytes(part) for part in drawn.encode_parts(version))
            made.append((request_header(key, version, 1, "bad"), body, version >= api.first_flexible))
    return made


@pytest.mark.slow
async def test_truncated_requests_of_all_apis(server: tuple[Broker, Client]) -> None:
    """Each truncated at many places, some with a false length and some with a true one."""
    broker, client = server
    attacks = []
    for head, body, _ in requests_of_all_apis(1):
        whole = head + body
        for number, end in enumerate(range(0, len(whole), 1 + len(whole) // CUTS)):
            attacks.append(frame(whole[:end]) if number % 4 else frame(whole)[: 4 + end])
    await assault_all(broker.port, attacks)
    await still_well(broker, client)


@pytest.mark.slow
@pytest.mark.memory
async def test_counts_and_lengths_of_two_billions(server: tuple[Broker, Client]) -> None:
    broker, client = server
    before = resident_bytes(os.getpid())
    attacks = []
    for head, body, flexible in requests_of_all_apis(2):
        lie = b"\xff\xff\xff\xff\x07" if flexible else b"\x7f\xff\xff\xff"
        places = range(0, len(body), 1 + len(body) // CUTS)
        attacks += [frame(head, body[:place], lie, body[place + len(lie) :]) for place in places]
    await assault_all(broker.port, attacks)
    await still_well(broker, client)
    assert resident_bytes(os.getpid()) - before < 60 * MB


async def test_well_formed_requests_with_meaningless_values(
    server: tuple[Broker, Client], caplog: pytest.LogCaptureFixture
) -> None:
    """They are answered or refused, without an unexpected exception."""
    broker, client = server
    await assault_all(
        broker.port, [frame(head, body) for seed in (3, 4) for head, body, _ in requests_of_all_apis(seed)]
    )
    await still_well(broker, client)
    assert [entry.getMessage() for entry in caplog.records if entry.exc_info] == []


@pytest.mark.slow
async def test_drawn_bytes(server: tuple[Broker, Client]) -> None:
    """Bytes behind a true length, so that the decoder gets as far as it can."""
    broker, client = server
    loop = asyncio.get_running_loop()

    @settings(max_examples=DRAWN, suppress_health_check=[HealthCheck.too_slow])
    @given(st.integers(0, 80), st.integers(0, 15), st.binary(max_size=200))
    def run(key: int, version: int, data: bytes) -> None:
        attack = frame(struct.pack(">hhi", key, version, 1), data)
        asyncio.run_coroutine_threadsafe(assault(broker.port, attack), loop).result(DEADLINE_S)

    await asyncio.to_thread(run)
    await still_well(broker, client)


@pytest.mark.memory
@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
async def test_records_that_decompress_to_far_more_than_their_size(server: tuple[Broker, Client], codec: int) -> None:
    """Zeros without end, in a batch that declares a small size, to a topic as it is and to one that recompresses."""
    broker, client = server
    await client.create_topic("packed", configs={"compression.type": "zstd"})
    bomb = batch(bytes(BOMB_BYTES), codec=codec)
    assert len(bomb) < BOMB_BYTES // 15
    before = resident_bytes(os.getpid())
    for topic in ("there", "packed"):
        answer = await client.produce(topic, bomb)
        assert answer.error_code in (ErrorCode.NONE, ErrorCode.MESSAGE_TOO_LARGE)
    assert resident_bytes(os.getpid()) - before < 3 * BOMB_BYTES
    await still_well(broker, client)


def get(port: int) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=DEADLINE_S)
    connection.request("GET", "/")
    with pytest.raises((http.client.HTTPException, ConnectionError)):
        connection.getresponse()
    connection.close()


def shake_hands(port: int) -> None:
    context = ssl.create_default_context()
    with socket.create_connection(("127.0.0.1", port), timeout=DEADLINE_S) as plain, pytest.raises(REFUSED_TLS):
        context.wrap_socket(plain, server_hostname="localhost")


@pytest.mark.parametrize(
    ("knock", "words"),
    [(get, "this looks like HTTP (GET...)"), (shake_hands, "this looks like a TLS handshake")],
    ids=["HTTP", "TLS"],
)
async def test_bytes_of_other_protocols_are_named_in_the_log(
    server: tuple[Broker, Client], caplog: pytest.LogCaptureFixture, knock: Callable[[int], None], words: str
) -> None:
    broker, client = server
    caplog.clear()
    await asyncio.to_thread(knock, broker.port)
    assert [words in line for line in caplog.messages] == [True]
    assert caplog.messages[0].startswith("request or connection rejected reason=connection from 127.0.0.1:")
    assert " to listener PLAINTEXT closed: " in caplog.messages[0]
    await still_well(broker, client)


async def test_refusals_are_logged_and_limited_in_number(
    server: tuple[Broker, Client], caplog: pytest.LogCaptureFixture
) -> None:
    broker, client = server
    attacks = {
        "invalid frame": (struct.pack(">i", -5), "a request of -5 bytes is not within 0 and 1000000"),
        "invalid request": (frame(request_header(3, 12, 1, None), b"?"), "a request Metadata v12 of"),
        "unsupported request": (frame(request_header(3, 99, 1, None)), "API key 3 is not served in version 99"),
    }
    for kind, (attack, words) in attacks.items():
        caplog.clear()
        for _ in range(4 * AT_ONCE):
            await assault(broker.port, attack)
        notified = [entry for entry in caplog.records if getattr(entry, "kind", "") == kind]
        assert len(notified) == AT_ONCE
        assert [entry.getMessage() for entry in notified if words not in entry.getMessage()] == []
    await still_well(broker, client)


async def test_random_bytes(server: tuple[Broker, Client]) -> None:
    broker, client = server
    chance = random.Random(1)
    for _ in range(CONNECTIONS):
        await assault(broker.port, chance.randbytes(chance.randrange(200)))
    await still_well(broker, client)


@pytest.mark.parametrize("seed", [1, 2])
async def test_spoiled_requests(server: tuple[Broker, Client], seed: int) -> None:
    broker, client = server
    chance = random.Random(seed)
    frames = valid_frames()
    for _ in range(MUTATIONS // 5):
        await assault(broker.port, b"".join(spoil(chance.choice(frames), chance) for _ in range(5)))
    await still_well(broker, client)


async def test_requests_that_are_cut_off(server: tuple[Broker, Client]) -> None:
    broker, client = server
    for data in valid_frames():
        for end in range(0, len(data), 5):
            await assault(broker.port, data[:end])
    await still_well(broker, client)


@pytest.mark.parametrize("size", [1_000_001, 2**31 - 1, -1, -(2**31)])
async def test_absurd_sizes(server: tuple[Broker, Client], size: int) -> None:
    broker, client = server
    bad = await Client.connect(broker.port)
    await bad.send_bytes(struct.pack(">i", size))
    assert await bad.is_closed()
    await still_well(broker, client)


async def test_half_open_connections_with_large_declared_sizes(server: tuple[Broker, Client]) -> None:
    broker, client = server
    bad = [await Client.connect(broker.port) for _ in range(50)]
    for each in bad:
        await each.send_bytes(struct.pack(">i", 1_000_000) + b"\0")
    assert (await client.produce("there", batch(b"later"))).error_code == 0
    assert broker.running.held_bytes < 50 * 300_000
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


async def test_idle_connections_are_closed_through_the_configuration(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with running_broker(tmp_path / "data", {"connections.max.idle.ms": "150"}) as broker:
        caplog.clear()
        idle = await Client.connect(broker.port)
        assert await idle.is_closed()
        assert caplog.messages == []
        half = await Client.connect(broker.port)
        await half.send_bytes(struct.pack(">i", 1000) + b"and no more")
        assert await half.is_closed()
        assert [line.partition(" closed: ")[2] for line in caplog.messages] == [
            "it sent 15 bytes of a request of 1004, and nothing for 0.15 s (connections.max.idle.ms)"
        ]


@pytest.mark.parametrize("length", [32_000, 32_767])
async def test_an_error_message_that_repeats_a_long_name_is_cut(broker: Broker, client: Client, length: int) -> None:
    """A message has at most 32,767 bytes, and so has the name of the request that the message repeats."""
    name = "x" * length
    quota = await client.ask(alter_quotas(({"user": "u"}, {name: 1.0})), 1)
    assert [each.error_code for each in quota.entries] == [ErrorCode.INVALID_REQUEST]
    many = await client.ask(alter_quotas(*[({"user": f"u{n}"}, {name: 1.0}) for n in range(300)]), 1)  # a large request
    assert [each.error_code for each in many.entries] == [ErrorCode.INVALID_REQUEST] * 300
    topic = m.CreatePartitionsRequest.CreatePartitionsTopic(name=name, count=2, assignments=None)
    (grown,) = (await client.ask(m.CreatePartitionsRequest(topics=[topic], timeout_ms=1000), 3)).results
    assert grown.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    for message in (quota.entries[0].error_message, many.entries[-1].error_message, grown.error_message):
        assert len(message.encode()) <= 32_767
        assert "xxx" in message


def test_only_messages_that_are_too_long_are_cut() -> None:
    entry = m.AlterClientQuotasResponse.EntryData
    kept, cut = "é" * 16_383, "é" * 16_384
    response = m.AlterClientQuotasResponse(
        entries=[entry(error_message=kept, entity=[]), entry(error_message=cut, entity=[]), entry(entity=[])]
    )
    assert shorten_messages(response)
    assert [each.error_message for each in response.entries] == [kept, "é" * 1000 + "…", ""]
    assert not shorten_messages(response)
