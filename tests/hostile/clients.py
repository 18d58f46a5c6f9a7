"""Clients that misbehave over time, in a process of their own: `python -m tests.hostile.clients NAME PORT`.

The process prints `ready` when its connections are open, goes on until its standard input ends, and then prints what it
did. Each client is a function of `Crowd`; `prepare` creates the topics that they need.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import sys
import time
import zlib
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final

import uvloop

from odradek.protocol import messages as m
from odradek.protocol.batch import Record, build
from odradek.protocol.compression import Codec
from odradek.protocol.framing import frame, request_header
from odradek.protocol.legacy import wrap
from odradek.wire import Wire

API_VERSIONS, CREATE_TOPICS, FETCH, METADATA, PRODUCE = 3, 5, 11, 8, 9
OLD_PRODUCE, OLD_FETCH = 2, 2
JOIN, SYNC = 3, 2
MANY_PARTITIONS, FULL, BOMBS, PACKED, STORED = "many-partitions", "full", "bombs", "bombs-packed", "stored-bomb"
PARTITIONS: Final = 100
FULL_BYTES: Final = 32 << 20
BATCH_BYTES: Final = 900_000
NOW_MS: Final = time.time_ns() // 1_000_000
SEVERAL: Final = 50
MANY: Final = 200
CROWDED: Final = 500
JOINERS: Final = 400
JOINS: Final = 20_000
CROWDED_GROUP: Final = "crowded"
SUBSCRIPTION: Final = b"\0\0\0\0\0\1\0\4full\xff\xff\xff\xff"
BYTE_EVERY_S: Final = 0.5
HALF: Final = 500_000
CHURN_PER_S: Final = 1000
CHURN_STEP_S: Final = 0.02
BOMB_BYTES: Final = 100_000_000
BOMB_SENDERS: Final = 8
MOST_RECORDS: Final = 500_000
EMPTY_RECORD_BYTES: Final = 9
RESET: Final = struct.pack("ii", 1, 0)
"""SO_LINGER: closing sends RST."""


class Crowd:
    """The connections of one kind of client to one broker, and what they did."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.done: Counter[str] = Counter()
        self.is_complete = False
        self._started_s = 0.0
        self._sockets: set[socket.socket] = set()

    async def connect(self) -> socket.socket:
        """A new connection, which is kept. Raises OSError."""
        sock = socket.socket()
        self._sockets.add(sock)
        sock.setblocking(False)
        await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", self.port))
        return sock

    async def connections(self, count: int) -> list[socket.socket]:
        """Several of them."""
        return [await self.connect() for _ in range(count)]

    def leave(self, sock: socket.socket, *, reset: bool = False) -> None:
        """Close a connection."""
        if reset:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        self._sockets.discard(sock)
        sock.close()

    async def send(self, sock: socket.socket, data: bytes) -> None:
        """Send all of it. Raises OSError."""
        await asyncio.get_running_loop().sock_sendall(sock, data)

    async def answer(self, sock: socket.socket) -> None:
        """Read one response, and drop it. Raises OSError."""
        loop = asyncio.get_running_loop()
        head = b""
        while len(head) < 4:
            head += await self._received(loop.sock_recv(sock, 4 - len(head)))
        (left,) = struct.unpack(">i", head)
        while left:
            size = len(await self._received(loop.sock_recv(sock, min(left, 1 << 20))))
            left -= size
            self.done["bytes received"] += size

    async def response(self, sock: socket.socket) -> bytes:
        """Read one response; returns it with its header. Raises OSError."""
        loop = asyncio.get_running_loop()
        data = b""
        while len(data) < 4 or len(data) < 4 + int.from_bytes(data[:4], "big"):
            left = 4 + int.from_bytes(data[:4], "big") - len(data) if len(data) >= 4 else 4 - len(data)
            data += await self._received(loop.sock_recv(sock, left))
        return data[4:]

    async def _received(self, coming: Awaitable[bytes]) -> bytes:
        data = await coming
        if not data:
            raise ConnectionResetError("the broker closed the connection")
        return data

    async def repeat(self, what: str, request: bytes, connections: int) -> None:
        """Send a request on so many connections, and again after each answer, without end."""

        async def one(sock: socket.socket) -> None:
            while True:
                await self.send(sock, request)
                self.done[what] += 1
                await self.answer(sock)
                self.done["answers"] += 1

        await self.together(one, await self.connections(connections))

    async def insist(self, what: str, requests: bytes, connections: int) -> None:
        """Send requests on so many connections without end, and read no answer."""

        async def one(sock: socket.socket) -> None:
            while True:
                await self.send(sock, requests)
                self.done[what] += 1

        await self.together(one, await self.connections(connections))

    async def together(
        self, work: Callable[[socket.socket], Coroutine[Any, Any, None]], sockets: list[socket.socket]
    ) -> None:
        """Do the work with every connection at the same time; connections that the broker closes are counted."""

        async def one(sock: socket.socket) -> None:
            try:
                await work(sock)
            except OSError:
                self.done["connections that the broker closed"] += 1

        self.ready()
        await asyncio.gather(*map(one, sockets))
        await asyncio.Event().wait()

    def ready(self) -> None:
        """The measurement may begin."""
        self._started_s = asyncio.get_running_loop().time()
        print("ready", flush=True)

    def report(self) -> str:
        """What the connections did, for each second, or in all where they have come to an end."""
        if self.is_complete:
            return ", ".join(f"{what} {count:,}" for what, count in self.done.items())
        took_s = asyncio.get_running_loop().time() - self._started_s
        return ", ".join(f"{what} {count / took_s:,.0f}/s" for what, count in self.done.items())


async def pause(seconds: float) -> None:
    """Do nothing, for a client that is slow."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await asyncio.Event().wait()


# ---- half of a request, or less


async def slowloris(crowd: Crowd) -> None:
    """500 connections that send one byte of a request every half second."""
    request = _fetch(FULL, 1, 1 << 20)

    async def one(sock: socket.socket) -> None:
        while True:
            for byte in request:
                await crowd.send(sock, bytes((byte,)))
                crowd.done["bytes"] += 1
                await pause(BYTE_EVERY_S)

    await crowd.together(one, await crowd.connections(CROWDED))


async def half_frames(crowd: Crowd) -> None:
    """200 connections that send half of a request of 1 MB, and then nothing."""

    async def one(sock: socket.socket) -> None:
        await crowd.send(sock, struct.pack(">i", 2 * HALF) + bytes(HALF))
        crowd.done["halves"] += 1

    await crowd.together(one, await crowd.connections(MANY))


async def half_open(crowd: Crowd) -> None:
    """200 connections that send a Fetch request and neither read, write nor close: half wait for records, half have an
    answer of 32 MB.
    """

    async def one(sock: socket.socket) -> None:
        waits = sock.fileno() % 2 > 0
        await crowd.send(sock, _fetch(MANY_PARTITIONS, PARTITIONS, 1 << 20, 60_000) if waits else _fetch_all())
        crowd.done["requests"] += 1

    await crowd.together(one, await crowd.connections(MANY))


# ---- connections that come and go


async def churn(crowd: Crowd) -> None:
    """1,000 connections a second: each sends ApiVersions, reads the answer and closes."""
    await _come_and_go(crowd, reset=False)


async def churn_reset(crowd: Crowd) -> None:
    """1,000 connections a second: each sends a Fetch request that waits and half of another, and resets."""
    await _come_and_go(crowd, reset=True)


async def _come_and_go(crowd: Crowd, *, reset: bool) -> None:
    loop = asyncio.get_running_loop()
    wanted = _fetch(MANY_PARTITIONS, PARTITIONS, 1 << 20, 60_000) if reset else _api_versions()

    async def one() -> None:
        try:
            sock = await crowd.connect()
            if reset:
                await crowd.send(sock, wanted + wanted[: len(wanted) // 2])
            else:
                await crowd.send(sock, wanted)
                await crowd.answer(sock)
            crowd.leave(sock, reset=reset)
            crowd.done["connections"] += 1
        except OSError:
            crowd.done["failed connections"] += 1

    crowd.ready()
    running: set[asyncio.Task[None]] = set()
    started_s, begun = loop.time(), 0
    while True:
        due = int((loop.time() - started_s) * CHURN_PER_S)
        for _ in range(min(due - begun, CROWDED - len(running))):
            task = asyncio.create_task(one())
            running.add(task)
            task.add_done_callback(running.discard)
        begun = due
        await pause(CHURN_STEP_S)


# ---- requests without reading


async def pipelines(crowd: Crowd) -> None:
    """50 connections that send ApiVersions requests without end and read no answer."""
    await crowd.insist("requests", _api_versions() * 100, SEVERAL)


async def pipelines_large(crowd: Crowd) -> None:
    """50 connections that send Metadata requests with answers of about 1 MB without end and read no answer."""
    await crowd.insist("requests", _metadata(), SEVERAL)


async def pipelines_fetch(crowd: Crowd) -> None:
    """50 connections that send Fetch requests with answers of 32 MB without end and read no answer."""
    await crowd.insist("requests", _fetch_all() * 10, SEVERAL)


# ---- groups


async def rebalance(crowd: Crowd) -> None:
    """400 connections that send 20,000 JoinGroup requests to one group, and 20,000 SyncGroup requests after them."""
    protocol = m.JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=SUBSCRIPTION)
    join = m.JoinGroupRequest(
        group_id=CROWDED_GROUP,
        session_timeout_ms=300_000,
        rebalance_timeout_ms=300_000,
        protocol_type="consumer",
        protocols=[protocol],
    )
    joins = _framed(join, JOIN) * (JOINS // JOINERS)
    sockets = await crowd.connections(JOINERS)
    are_joined = asyncio.Barrier(JOINERS)

    async def one(sock: socket.socket) -> None:
        await crowd.send(sock, joins)
        answers = [m.JoinGroupResponse.decode(await crowd.response(sock), JOIN, 4) for _ in range(JOINS // JOINERS)]
        await are_joined.wait()
        members = [each for each in answers if not each.error_code]
        crowd.done["refused"] += len(answers) - len(members)
        await crowd.send(sock, b"".join(map(_sync, members)))
        for _ in members:
            answer = m.SyncGroupResponse.decode(await crowd.response(sock), SYNC, 4)
            crowd.done["assigned" if answer.assignment == SUBSCRIPTION else f"error {answer.error_code}"] += 1

    crowd.ready()
    await asyncio.gather(*map(one, sockets))
    crowd.is_complete = True


def _sync(joined: m.JoinGroupResponse) -> bytes:
    assignment = m.SyncGroupRequest.SyncGroupRequestAssignment
    request = m.SyncGroupRequest(
        group_id=CROWDED_GROUP,
        generation_id=joined.generation_id,
        member_id=joined.member_id,
        assignments=[assignment(member_id=each.member_id, assignment=SUBSCRIPTION) for each in joined.members],
    )
    return _framed(request, SYNC)


# ---- floods


async def fetch_flood(crowd: Crowd) -> None:
    """200 connections that fetch 100 partitions without records with a max.wait of 500 ms, again and again."""
    await crowd.repeat("requests", _fetch(MANY_PARTITIONS, PARTITIONS, 1 << 20), MANY)


async def fetch_flood_at_once(crowd: Crowd) -> None:
    """200 connections that fetch 100 partitions without records and do not wait, again and again."""
    await crowd.repeat("requests", _fetch(MANY_PARTITIONS, PARTITIONS, 1 << 20, 0), MANY)


async def fetch_flood_bytes(crowd: Crowd) -> None:
    """200 connections that fetch 32 MB with a max.bytes of 2 GB, again and again."""
    await crowd.repeat("requests", _fetch_all(), MANY)


async def metadata_flood(crowd: Crowd) -> None:
    """50 connections that request the metadata of 10,000 names at once, again and again."""
    await crowd.repeat("requests", _metadata(), SEVERAL)


# ---- bombs


def _bombs(codec: Codec, magic: int, *, many: bool = False, packed: bool = False) -> Callable[[Crowd], Awaitable[None]]:
    async def send(crowd: Crowd) -> None:
        version = PRODUCE if magic == 2 else OLD_PRODUCE
        topic = PACKED if packed else BOMBS
        bomb = _bomb(codec, magic, many=many)
        request = _framed(_produce(topic, [bomb] * max(1, min(BOMB_SENDERS, 1_000_000 // len(bomb)))), version)
        await crowd.repeat(f"requests of {len(request):,} B", request, BOMB_SENDERS)

    content = "empty records" if many else "zeros"
    send.__doc__ = (
        f"8 connections that produce batches of magic {magic} with {content} in {codec.name.lower()}, up to 1 MB"
        + (" to a topic with another codec." if packed else ".")
    )
    return send


async def old_readers(crowd: Crowd) -> None:
    """8 connections that fetch such a batch with version 2, which needs a conversion, again and again."""
    topic = m.FetchRequest.FetchTopic(
        topic=STORED,
        partitions=[m.FetchRequest.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)],
    )
    request = m.FetchRequest(replica_id=-1, max_wait_ms=500, min_bytes=1, topics=[topic])
    await crowd.repeat("requests", _framed(request, OLD_FETCH), BOMB_SENDERS)


def _bomb(codec: Codec, magic: int, *, many: bool) -> bytes:
    """A batch or message set of at most BATCH_BYTES bytes, which decompresses to at most BOMB_BYTES."""
    size = BOMB_BYTES
    while len(bomb := _packed(codec, magic, size, many=many)) > BATCH_BYTES:
        size = int(size * 0.95 * BATCH_BYTES / len(bomb))
    return bomb


def _packed(codec: Codec, magic: int, size: int, *, many: bool) -> bytes:
    if magic < 2:
        inner = _old_messages(magic, size, many=many)
        count = len(inner) // len(_old_message(magic, 0, b"")) if many else 1
        return wrap(inner, magic, codec, count - 1, NOW_MS, append_time=False)
    if not many:
        return bytes(build([Record(0, NOW_MS, None, bytes(size), [])], codec=codec))
    count = min(size // EMPTY_RECORD_BYTES, MOST_RECORDS)
    return bytes(build([Record(offset, NOW_MS, None, b"", []) for offset in range(count)], codec=codec))


def _old_message(magic: int, offset: int, value: bytes) -> bytes:
    body = bytes((magic, 0)) + (struct.pack(">q", NOW_MS) if magic else b"")
    body += struct.pack(">ii", -1, len(value)) + value
    return struct.pack(">qiI", offset, 4 + len(body), zlib.crc32(body)) + body


def _old_messages(magic: int, size: int, *, many: bool) -> bytes:
    if not many:
        return _old_message(magic, 0, bytes(size))
    one = _old_message(magic, 0, b"")[8:]
    count = min(size // (8 + len(one)), MOST_RECORDS)
    return b"".join(struct.pack(">q", offset) + one for offset in range(count))


# ---- requests


def _framed(request: Any, version: int) -> bytes:
    return frame(request_header(request.API_KEY, version, 1, "hostile"), request.encode(version))


def _api_versions() -> bytes:
    return _framed(m.ApiVersionsRequest(client_software_name="hostile", client_software_version="1"), API_VERSIONS)


def _metadata() -> bytes:
    topic = m.MetadataRequest.MetadataRequestTopic
    names = [topic(name=f"unknown{number}") for number in range(10_000)]
    return _framed(m.MetadataRequest(topics=names, allow_auto_topic_creation=False), METADATA)


def _fetch(name: str, count: int, most: int, wait_ms: int = 500) -> bytes:
    partition = m.FetchRequest.FetchPartition
    partitions = [partition(partition=index, fetch_offset=0, partition_max_bytes=most) for index in range(count)]
    topic = m.FetchRequest.FetchTopic(topic=name, partitions=partitions)
    request = m.FetchRequest(replica_id=-1, max_wait_ms=wait_ms, min_bytes=1, max_bytes=2**31 - 1, topics=[topic])
    return _framed(request, FETCH)


def _fetch_all() -> bytes:
    return _fetch(FULL, 1, 2**31 - 1)


def _produce(topic: str, batches: list[bytes]) -> m.ProduceRequest:
    partition = m.ProduceRequest.PartitionProduceData
    data = [partition(index=index, records=records) for index, records in enumerate(batches)]
    topic_data = m.ProduceRequest.TopicProduceData(name=topic, partition_data=data)
    return m.ProduceRequest(acks=1, timeout_ms=30_000, topic_data=[topic_data])


def prepare(port: int) -> None:
    """Create the topics of the clients, and fill one. Raises OSError."""
    creatable, config = m.CreateTopicsRequest.CreatableTopic, m.CreateTopicsRequest.CreatableTopicConfig
    codec = [config(name="compression.type", value="lz4")]
    topics = [
        creatable(name=MANY_PARTITIONS, num_partitions=PARTITIONS, replication_factor=1),
        creatable(name=FULL, num_partitions=1, replication_factor=1),
        creatable(name=STORED, num_partitions=1, replication_factor=1),
        creatable(name=BOMBS, num_partitions=BOMB_SENDERS, replication_factor=1),
        creatable(name=PACKED, num_partitions=BOMB_SENDERS, replication_factor=1, configs=codec),
    ]
    batch = bytes(build([Record(0, NOW_MS, None, bytes(BATCH_BYTES), [])]))
    with Wire("127.0.0.1", port, 60) as wire:
        wire.ask(m.CreateTopicsRequest(topics=topics, timeout_ms=30_000), CREATE_TOPICS)
        for _ in range(FULL_BYTES // BATCH_BYTES):
            wire.exchange(_produce(FULL, [batch]), PRODUCE)
        wire.exchange(_produce(STORED, [_bomb(Codec.LZ4, 2, many=False)]), PRODUCE)


CODECS: Final = {
    0: (Codec.GZIP, Codec.SNAPPY, Codec.LZ4),
    1: (Codec.GZIP, Codec.SNAPPY, Codec.LZ4),
    2: tuple(Codec)[1:],
}
"""zstd needs magic 2."""
CLIENTS: Final[dict[str, Callable[[Crowd], Awaitable[None]]]] = {
    "slowloris": slowloris,
    "half-frames": half_frames,
    "half-open": half_open,
    "churn": churn,
    "churn-reset": churn_reset,
    "pipelines": pipelines,
    "pipelines-large": pipelines_large,
    "pipelines-fetch": pipelines_fetch,
    "fetch-flood": fetch_flood,
    "fetch-flood-at-once": fetch_flood_at_once,
    "fetch-flood-bytes": fetch_flood_bytes,
    "metadata-flood": metadata_flood,
    "rebalance": rebalance,
    **{
        f"bombs-{codec.name.lower()}-v{magic}": _bombs(codec, magic)
        for magic, codecs in CODECS.items()
        for codec in codecs
    },
    **{f"bombs-records-{codec.name.lower()}": _bombs(codec, 2, many=True) for codec in CODECS[2]},
    "bombs-records-gzip-v1": _bombs(Codec.GZIP, 1, many=True),
    "bombs-packed-zstd": _bombs(Codec.ZSTD, 2, packed=True),
    "old-readers": old_readers,
}
"""The clients by name; the docstring of each describes them."""


async def run(name: str, port: int) -> None:
    """Misbehave until standard input ends; then print what was done."""
    crowd = Crowd(port)
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    loop.add_reader(sys.stdin.fileno(), ended.set)
    work = asyncio.ensure_future(CLIENTS[name](crowd))
    waiting = asyncio.ensure_future(ended.wait())
    await asyncio.wait((work, waiting), return_when=asyncio.FIRST_COMPLETED)
    loop.remove_reader(sys.stdin.fileno())
    if work.done():
        work.result()
    print(crowd.report(), flush=True)
    work.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await work


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(run(sys.argv[1], int(sys.argv[2])))
