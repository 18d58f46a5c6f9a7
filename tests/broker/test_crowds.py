"""Many clients at once, and clients that send without reading: a broker in its own process continues to serve the
others.

Memory is that of the process. The broker logs each refusal in one line, and only a few lines of one kind.
"""

from __future__ import annotations

import asyncio
import select
import socket
import struct
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from odradek.broker_process import BrokerProcess
from odradek.protocol import messages as m
from odradek.protocol.framing import frame, request_header
from tests.broker.crowd import MB, Neighbour, limited_command, most_descriptors, notified, open_files, resident_bytes
from tests.broker.wire import Client, running_broker
from tests.support.eventually import eventually_async

CROWD = 5_000
BYTES_A_CONNECTION = 8_000
FEW_FILES = 200
ASK_API_VERSIONS = frame(request_header(18, 0, 7, "crowd"))
JSON_LOG = ("--log-format", "json")


class JsonBroker(BrokerProcess):
    """A broker whose log can be read entry by entry."""

    def _arguments(self) -> list[str]:
        return [*super()._arguments(), *JSON_LOG]


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """One broker for all of them; it begins with few descriptors and has to raise its limit."""
    overrides = {
        "socket.request.max.bytes": "1000000",
        "queued.max.request.bytes": "20000000",
        "log.retention.ms": "-1",  # the records here are old, and the broker runs for longer than half a minute
    }
    command = limited_command(256, hard=False)
    with JsonBroker(tmp_path_factory.mktemp("crowds"), overrides, command=command) as running:
        yield running


@pytest.fixture
async def neighbour(process: BrokerProcess, request: pytest.FixtureRequest) -> AsyncIterator[Neighbour]:
    """A good client beside the others."""
    settled = await Neighbour.settle(process.port, request.node.name)
    yield settled
    await settled.live()
    settled.leave()


async def connect(port: int) -> socket.socket:
    sock = socket.socket()
    sock.setblocking(False)
    await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", port))
    return sock


async def ask(sock: socket.socket) -> bytes:
    """One request and its whole response."""
    loop = asyncio.get_running_loop()
    await loop.sock_sendall(sock, ASK_API_VERSIONS)
    answer = await loop.sock_recv(sock, 65536)
    while len(answer) < 4 or len(answer) < 4 + struct.unpack_from(">i", answer)[0]:
        more = await loop.sock_recv(sock, 65536)
        assert more, "the broker has closed the connection"
        answer += more
    return answer


@pytest.mark.slow
async def test_thousands_of_clients_are_answered_and_need_little_memory(
    process: BrokerProcess, neighbour: Neighbour
) -> None:
    if most_descriptors() < CROWD + 1_000:
        pytest.skip(f"this machine allows a process {most_descriptors()} file descriptors, too few for {CROWD}")
    before, files = resident_bytes(process.pid), open_files(process.pid)
    crowd: list[socket.socket] = []

    async def come(count: int) -> None:
        crowd.extend([await connect(process.port) for _ in range(count)])

    try:
        async with asyncio.timeout(60):
            await asyncio.gather(neighbour.live(50), *(come(CROWD // 50) for _ in range(50)))
            first = await ask(crowd[0])
            for start in range(0, CROWD, 500):
                assert set(await asyncio.gather(*map(ask, crowd[start : start + 500]))) == {first}
            await neighbour.live(50)
        assert open_files(process.pid) >= CROWD
        assert resident_bytes(process.pid) - before < CROWD * BYTES_A_CONNECTION
    finally:
        for sock in crowd:
            sock.close()
    await eventually_async(lambda: open_files(process.pid) <= files)


@pytest.mark.slow
async def test_the_broker_stops_reading_from_clients_that_never_read(
    process: BrokerProcess, neighbour: Neighbour
) -> None:
    """They send requests without end; the responses are twenty times as long as the requests."""
    before = resident_bytes(process.pid)
    questions = ASK_API_VERSIONS * 200
    bad = [await connect(process.port) for _ in range(10)]
    loop = asyncio.get_running_loop()

    async def insist(sock: socket.socket) -> None:
        while True:
            await loop.sock_sendall(sock, questions)

    insisting = [asyncio.create_task(insist(sock)) for sock in bad]
    # In the end the broker reads no more of their requests, since they read none of its responses.
    async with asyncio.timeout(60):
        while select.select([], bad, [], 0)[1]:
            await neighbour.live(5)
    await neighbour.live(20)
    assert (
        resident_bytes(process.pid) - before < 2 * 20 * MB + 10 * MB
    )  # twice the limit, and the memory that malloc keeps
    for task in insisting:
        task.cancel()
    await asyncio.gather(*insisting, return_exceptions=True)
    for sock in bad:
        sock.close()


@pytest.mark.slow
async def test_slow_and_half_open_clients_delay_no_other_client(process: BrokerProcess, neighbour: Neighbour) -> None:
    """Some send a byte at a time, some declare a megabyte and send half of it, some send nothing at all."""
    before = resident_bytes(process.pid)
    silent = [await connect(process.port) for _ in range(100)]
    promising = [await connect(process.port) for _ in range(100)]
    loop = asyncio.get_running_loop()
    for sock in promising:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 8192)
    halves = [
        asyncio.create_task(loop.sock_sendall(sock, struct.pack(">i", 1_000_000) + bytes(500_000)))
        for sock in promising
    ]
    slow = [await connect(process.port) for _ in range(20)]
    for byte in ASK_API_VERSIONS:
        for sock in slow:
            await loop.sock_sendall(sock, bytes([byte]))
        await neighbour.live(2)
    answers = {await loop.sock_recv(sock, 65536) for sock in slow}
    assert len(answers) == 1
    await eventually_async(lambda: bool(notified(process, "memory")))
    assert resident_bytes(process.pid) - before < 80 * MB
    for task in halves:
        task.cancel()
    await asyncio.gather(*halves, return_exceptions=True)
    for sock in (*silent, *promising, *slow):
        sock.close()


@pytest.mark.slow
async def test_without_descriptors_new_connections_wait_and_logs_continue(tmp_path: Path) -> None:
    command = limited_command(FEW_FILES, hard=True)
    with JsonBroker(tmp_path, {"socket.listen.backlog.size": "511"}, command=command) as process:
        neighbour = await Neighbour.settle(process.port, "there")
        crowd = [await connect(process.port) for _ in range(2 * FEW_FILES)]
        answers = [asyncio.create_task(ask(sock)) for sock in crowd]
        await eventually_async(lambda: bool(notified(process, "file descriptors")))
        await neighbour.live(20)
        await neighbour.make_topic("made-meanwhile")
        assert open_files(process.pid) < FEW_FILES
        assert any(not answer.done() for answer in answers)
        line = notified(process, "file descriptors")[0]
        assert "listener PLAINTEXT" in line
        assert f"of {FEW_FILES} file descriptors" in line
        assert len(notified(process, "file descriptors")) <= 5
        # Clients that were answered disconnect, and the broker accepts those that waited.
        async with asyncio.timeout(20):
            waiting = dict(zip(answers, crowd, strict=True))
            while waiting:
                done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                for answer in done:
                    assert answer.result()
                    waiting.pop(answer).close()
        await neighbour.live()
        neighbour.leave()


async def test_connections_over_the_limit_wait_until_there_is_room(tmp_path: Path) -> None:
    async with running_broker(tmp_path, {"max.connections": "2"}) as broker:
        first, second = [await Client.connect(broker.port) for _ in range(2)]
        for each in (first, second):
            assert (await each.ask(m.DescribeClusterRequest(), 0)).controller_id == 0
        third = await Client.connect(broker.port)
        await third.send(m.DescribeClusterRequest(), 0)
        for _ in range(20):
            assert (await second.ask(m.DescribeClusterRequest(), 0)).controller_id == 0
        first.close()
        assert (await third.receive()).controller_id == 0
        second.close()
        third.close()


async def test_connections_over_the_limit_of_an_address_are_closed(tmp_path: Path) -> None:
    async with running_broker(tmp_path, {"max.connections.per.ip": "2"}) as broker:
        kept = [await Client.connect(broker.port) for _ in range(2)]
        for each in kept:
            assert (await each.ask(m.DescribeClusterRequest(), 0)).controller_id == 0
        third = await Client.connect(broker.port)
        assert await third.is_closed()
        for each in kept:
            assert (await each.ask(m.DescribeClusterRequest(), 0)).controller_id == 0
            each.close()


async def test_clients_do_not_block_connections_of_brokers(tmp_path: Path) -> None:
    """The inter-broker listener takes the place of the client that was idle for longest."""
    inside = socket.create_server(("127.0.0.1", 0))
    port = inside.getsockname()[1]
    inside.close()
    properties = {
        "max.connections": "2",
        "listeners": f"CLIENTS://127.0.0.1:0,BROKERS://127.0.0.1:{port}",
        "listener.security.protocol.map": "CLIENTS:PLAINTEXT,BROKERS:PLAINTEXT",
        "inter.broker.listener.name": "BROKERS",
    }
    async with running_broker(tmp_path, properties) as broker:
        silent, busy = [await Client.connect(broker.port) for _ in range(2)]
        for each in (silent, busy, busy):
            assert (await each.ask(m.DescribeClusterRequest(), 0)).controller_id == 0
        other = await Client.connect(port)
        assert (await other.ask(m.DescribeClusterRequest(), 0)).controller_id == 0
        assert await silent.is_closed()
        assert (await busy.ask(m.DescribeClusterRequest(), 0)).controller_id == 0
        busy.close()
        other.close()
