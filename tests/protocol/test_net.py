"""Connections over real sockets: framing for any split of the bytes, order of responses, limits, slow clients."""

from __future__ import annotations

import asyncio
import contextlib
import mmap
import random
import socket
import struct
from collections.abc import AsyncIterator, Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.protocol import memory_pool
from odradek.protocol.in_flight import Exchange
from odradek.protocol.listening import Limits, Listener
from odradek.protocol.net import Connection
from odradek.protocol.outbox import JOINED_BYTES, Outbox
from odradek.protocol.read_turn import (
    CONNECTIONS_IN_A_TURN,
    COUNTED_BYTES,
    FIRST_FRAMES,
    FIRST_FRAMES_NS,
    FRAMES_AT_ONCE,
    FRAMES_IN_A_TURN,
    FRAMES_NS,
    LITTLE_BYTES,
    MORE_FRAMES,
    READ_IN_ALL_BYTES,
    READ_IN_ALL_NS,
    RELEASED_BYTES,
    SHARED_FRAMES,
    WATCHED_BYTES,
    WRITE_AT_ONCE_BYTES,
    WRITTEN_BYTES,
    ReadTurn,
)
from odradek.protocol.receive import READ_AT_ONCE_BYTES, NetworkReceive
from odradek.protocol.release import PART_BYTES, MemoryRelease
from tests.support.connections import open_connection

Handler = Callable[[Connection, memoryview], None]


def framed(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data


def echo(connection: Connection, frame: memoryview) -> None:
    connection.send(Exchange(connection), [framed(bytes(frame))])


class Server:
    """A listener on a free port whose refusals can be read."""

    def __init__(self, handler: Handler, **limits: Any) -> None:
        self.reports: list[tuple[str, str]] = []
        self.closed: list[Connection] = []
        self.changed = asyncio.Event()
        self.listener = Listener("TEST", handler, limits=Limits(**limits), on_close=self._on_close, report=self._report)
        self.port = 0

    def _on_close(self, connection: Connection) -> None:
        self.closed.append(connection)
        self.changed.set()

    def _report(self, kind: str, text: str) -> None:
        self.reports.append((kind, text))
        self.changed.set()

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(20):
            while not condition():
                self.changed.clear()
                await asyncio.wait([asyncio.ensure_future(self.changed.wait())], timeout=0.01)

    async def __aenter__(self) -> Server:
        self.port = await self.listener.bind("127.0.0.1", 0)
        await self.listener.serve()
        return self

    async def __aexit__(self, *_: object) -> None:
        self.listener.close()
        await self.until(lambda: not self.listener.connections and not self.listener.held_bytes)

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await open_connection("127.0.0.1", self.port, limit=1 << 26)


@pytest.fixture
async def echo_server() -> AsyncIterator[Server]:
    async with Server(echo) as server:
        yield server


async def read_frame(reader: asyncio.StreamReader) -> bytes:
    async with asyncio.timeout(20):
        (size,) = struct.unpack(">i", await reader.readexactly(4))
        return await reader.readexactly(size)


@pytest.mark.parametrize("size", [0, 1, 3, 100, 262_140, 262_144, 262_148, 3_000_000])
async def test_a_frame_of_any_size_comes_back_whole(echo_server: Server, size: int) -> None:
    reader, writer = await echo_server.connect()
    data = random.Random(1).randbytes(size)
    writer.write(framed(data))
    assert await read_frame(reader) == data
    writer.close()


async def test_frames_split_anywhere_are_answered_in_order(echo_server: Server) -> None:
    frames = [bytes([i]) * (i * 37 % 1000) for i in range(50)]
    stream = b"".join(map(framed, frames))
    for cut in (1, 2, 3, 5, 7, 1000):
        reader, writer = await echo_server.connect()
        for start in range(0, len(stream), cut):
            writer.write(stream[start : start + cut])
            if cut > 3 or start % 99 == 0:
                await writer.drain()
                await asyncio.sleep(0)
        assert [await read_frame(reader) for _ in frames] == frames
        writer.close()


async def test_responses_to_others_leave_after_those_of_the_connection_that_is_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As Kafka completes delayed operations after the response: a producer does not wait for two followers' fetches."""
    waiting: list[Exchange] = []
    order: list[str] = []
    flush = Connection._flush

    def recorded(self: Connection) -> None:
        order.append("waiting" if waiting and self is waiting[0].connection else "read")
        flush(self)

    def handle(connection: Connection, frame: memoryview) -> None:
        exchange = Exchange(connection)
        if bytes(frame) == b"wait":
            connection.expect(exchange)
            waiting.append(exchange)
            server.changed.set()
            return
        waiting[0].connection.answer(waiting[0], [framed(b"late")])
        connection.send(exchange, [framed(b"first")])

    async with Server(handle) as server:
        late_reader, late_writer = await server.connect()
        late_writer.write(framed(b"wait"))
        await server.until(lambda: bool(waiting))
        monkeypatch.setattr(Connection, "_flush", recorded)
        reader, writer = await server.connect()
        writer.write(framed(b"go"))
        assert (await read_frame(reader), await read_frame(late_reader)) == (b"first", b"late")
        assert order == ["read", "waiting"]
        for each in (writer, late_writer):
            each.close()


def test_any_split_of_any_frames() -> None:
    @given(st.lists(st.binary(max_size=300), max_size=8), st.lists(st.integers(1, 400), max_size=8))
    @settings(max_examples=60, deadline=None)
    def run(frames: list[bytes], cuts: list[int]) -> None:
        asyncio.run(scenario(frames, cuts))

    async def scenario(frames: list[bytes], cuts: list[int]) -> None:
        async with Server(echo) as server:
            reader, writer = await server.connect()
            stream, position = b"".join(map(framed, frames)), 0
            for cut in [*cuts, len(stream)]:
                writer.write(stream[position : position + cut])
                await writer.drain()
                position += cut
            assert [await read_frame(reader) for _ in frames] == frames
            writer.close()

    run()


async def test_responses_are_sent_in_the_order_of_their_requests() -> None:
    waiting: list[Exchange] = []

    def later(connection: Connection, frame: memoryview) -> None:
        exchange = Exchange(connection)
        if frame[0] == ord("w"):
            waiting.append(exchange)
            connection.expect(exchange)
        else:
            connection.send(exchange, [framed(bytes(frame))])

    async with Server(later) as server:
        reader, writer = await server.connect()
        writer.write(framed(b"a") + framed(b"w1") + framed(b"b") + framed(b"w2") + framed(b"c"))
        assert await read_frame(reader) == b"a"
        assert len(waiting) == 2
        waiting[1].connection.answer(waiting[1], [framed(b"second")])
        waiting[0].connection.answer(waiting[0], [framed(b"first")])
        assert [await read_frame(reader) for _ in range(4)] == [b"first", b"b", b"second", b"c"]
        writer.close()


async def test_a_range_of_a_file_is_sent_between_bytes(tmp_path: Path) -> None:
    content = random.Random(1).randbytes(5_000_000)
    path = tmp_path / "file"
    path.write_bytes(content)

    class Range:
        def __init__(self, position: int, size: int) -> None:
            self.position, self.size = position, size

        def __len__(self) -> int:
            return self.size

        def fileno(self) -> int:
            return file.fileno()

    def serve(connection: Connection, frame: memoryview) -> None:
        parts: list[bytes | Range] = [b"head", Range(1, 4_000_000), b"middle", Range(17, 5), b"", Range(0, 0), b"tail"]
        size = sum(map(len, parts))
        connection.send(Exchange(connection), [struct.pack(">i", size), *parts])

    with path.open("rb") as file:
        async with Server(serve) as server:
            reader, writer = await server.connect()
            expected = b"head" + content[1:4_000_001] + b"middle" + content[17:22] + b"tail"
            for _ in range(3):
                writer.write(framed(b"x") * 3)
                for _ in range(3):
                    assert await read_frame(reader) == expected
            writer.close()


@pytest.mark.parametrize("announced", [1_000, 100_000])
async def test_a_file_that_shrank_closes_the_connection(tmp_path: Path, announced: int) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"short")

    class Range:
        position = 0

        def __len__(self) -> int:
            return announced

        def fileno(self) -> int:
            return file.fileno()

    def serve(connection: Connection, frame: memoryview) -> None:
        connection.send(Exchange(connection), [struct.pack(">i", announced), Range()])

    with path.open("rb") as file:
        async with Server(serve) as server:
            reader, writer = await server.connect()
            writer.write(framed(b"x"))
            with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
                await read_frame(reader)
            writer.close()


@pytest.mark.parametrize("size", [-1, 1001, 2**31 - 1, -(2**31)])
@pytest.mark.parametrize("split", [False, True])
async def test_an_absurd_size_closes_the_connection_and_is_reported(size: int, split: bool) -> None:
    async with Server(echo, frame_bytes=1000) as server:
        reader, writer = await server.connect()
        head = struct.pack(">i", size)
        if split:
            writer.write(head[:2])
            await writer.drain()
            await asyncio.sleep(0)
            writer.write(head[2:])
        else:
            writer.write(head + b"rest")
        with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
            await read_frame(reader)
        assert server.reports[0][0] == "invalid frame"
        assert str(size) in server.reports[0][1]
        assert "1000" in server.reports[0][1]
        writer.close()


async def test_a_declared_frame_takes_no_memory_before_it_arrives(echo_server: Server) -> None:
    writers = []
    for _ in range(20):
        _, writer = await echo_server.connect()
        writer.write(struct.pack(">i", 100_000_000) + b"only this")
        writers.append(writer)
    await echo_server.until(lambda: echo_server.listener.held_bytes > 0)
    await echo_server.until(lambda: len(echo_server.listener.connections) == 20)
    assert echo_server.listener.held_bytes <= 20 * 300_000
    for writer in writers:
        writer.close()


async def test_a_client_that_does_not_read_slows_only_itself() -> None:
    answer = bytes(100_000)
    handled: dict[str, int] = {}

    def big(connection: Connection, frame: memoryview) -> None:
        handled[connection.peer] = handled.get(connection.peer, 0) + 1
        connection.send(Exchange(connection), [struct.pack(">i", len(answer)), answer])

    async with Server(big, queued_bytes=1_000_000) as server:
        slow = socket.create_connection(("127.0.0.1", server.port))
        slow.setblocking(False)
        request = framed(b"x")
        await asyncio.get_running_loop().sock_sendall(slow, request * 600)
        peer = "{}:{}".format(*slow.getsockname())
        reader, writer = await server.connect()
        for _ in range(50):
            writer.write(request)
            assert len(await read_frame(reader)) == len(answer)
        writer.close()
        # 600 responses are 60 MB; completed ones are those that fit into the socket's buffers and the limit.
        assert handled[peer] < 200
        assert server.listener.held_bytes < 3_000_000
        # Once it reads, it receives every response.
        total = 0
        while total < 600 * (len(answer) + 4):
            data = await asyncio.get_running_loop().sock_recv(slow, 1 << 20)
            assert data
            total += len(data)
        assert handled[peer] == 600
        slow.close()


async def test_pending_responses_are_limited() -> None:
    waiting: list[Exchange] = []

    def later(connection: Connection, frame: memoryview) -> None:
        exchange = Exchange(connection)
        waiting.append(exchange)
        connection.expect(exchange)

    async with Server(later, owed_answers=10) as server:
        reader, writer = await server.connect()
        writer.write(framed(b"x") * 1000)
        await server.until(lambda: len(waiting) == 10)
        answered = 0
        while answered < 1000:
            exchange = waiting[answered]
            exchange.connection.answer(exchange, [framed(b"%d" % answered)])
            assert await read_frame(reader) == b"%d" % answered
            answered += 1
            assert len(waiting) - answered <= 10
        writer.close()


async def test_responses_from_files_that_a_client_does_not_read_are_limited(tmp_path: Path) -> None:
    """They take no bytes of memory, but objects: a client must not collect them without limit."""
    handled = 0
    path = tmp_path / "records"
    path.write_bytes(bytes(4_000_000))

    with path.open("rb") as file:

        class Records:
            position = 0

            def __len__(self) -> int:
                return 4_000_000

            def fileno(self) -> int:
                return file.fileno()

        def handle(connection: Connection, frame: memoryview) -> None:
            nonlocal handled
            handled += 1
            connection.send(Exchange(connection), [struct.pack(">i", 4_000_000), Records()])

        async with Server(handle, owed_answers=20) as server:
            with socket.create_connection(("127.0.0.1", server.port)) as silent:
                silent.sendall(framed(b"x") * 400)
                await server.until(lambda: handled > 0)
                other, writer = await server.connect()
                for number in range(10):  # the loop runs, and reads no more requests of the silent client
                    writer.write(framed(b"y"))
                    assert len(await read_frame(other)) == 4_000_000
                    assert handled - number - 1 <= 20 + MORE_FRAMES
                writer.close()


@pytest.mark.slow
async def test_a_crowd_of_pipelines_delays_another_connection_by_few_requests() -> None:
    crowd, requests = 50, 2_000
    before_other = handled = 0

    def handle(connection: Connection, frame: memoryview) -> None:
        nonlocal before_other, handled
        if len(frame) == 5:
            before_other = handled
        handled += 1
        connection.send(Exchange(connection), [framed(bytes(frame))])

    async with Server(handle) as server:
        pipelines = [await server.connect() for _ in range(crowd)]
        other, its_writer = await server.connect()
        await server.until(lambda: len(server.listener.connections) == crowd + 1)
        for _, writer in pipelines:
            writer.write(framed(b"x") * requests)
        its_writer.write(framed(b"other"))
        assert await read_frame(other) == b"other"
        assert before_other < crowd * 20
        for reader, writer in pipelines:
            for _ in range(requests):
                assert await read_frame(reader) == b"x"
            writer.close()
        its_writer.close()


async def test_the_system_probes_silent_connections() -> None:
    """As Kafka's: the end of a client whose machine disappeared is noticed (SO_KEEPALIVE)."""
    async with Server(echo) as server:
        reader, writer = await server.connect()
        writer.write(framed(b"x"))
        assert await read_frame(reader) == b"x"
        (connection,) = server.listener.connections
        assert connection.socket is not None
        assert connection.socket.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        writer.close()


async def test_connections_are_counted_in_total_and_for_each_address() -> None:
    async with Server(echo, connections=2) as server:
        kept = [await server.connect() for _ in range(2)]
        for reader, writer in kept:
            writer.write(framed(b"in"))
            assert await read_frame(reader) == b"in"
        reader, writer = await server.connect()
        writer.write(framed(b"in its turn"))
        await server.until(lambda: bool(server.reports))
        assert server.reports[0][0] == "connection limit"
        assert "max.connections" in server.reports[0][1]
        kept[1][1].write(framed(b"still in"))
        assert await read_frame(kept[1][0]) == b"still in"
        assert len(server.listener.connections) == 2
        kept[0][1].close()
        assert await read_frame(reader) == b"in its turn"
        assert [len(server.listener.connections), len(server.closed)] == [2, 1]
    async with Server(echo, connections_by_address={"127.0.0.1": 1}) as server:
        await server.connect()
        await server.until(lambda: len(server.listener.connections) == 1)
        reader, writer = await server.connect()
        assert await reader.read() == b""
        assert "max.connections.per.ip" in server.reports[0][1]


async def test_an_idle_connection_is_closed_also_while_its_request_waits() -> None:
    waiting = []

    def wait(connection: Connection, frame: memoryview) -> None:
        exchange = Exchange(connection)
        connection.expect(exchange)
        waiting.append(exchange)

    async with Server(wait, idle_s=600) as server:
        idle, _ = await server.connect()
        answered, answered_writer = await server.connect()
        answered_writer.write(framed(b"x"))
        await server.until(lambda: len(waiting) == 1)
        forgotten, forgotten_writer = await server.connect()
        forgotten_writer.write(framed(b"y"))
        waiting[0].connection.answer(waiting[0], [framed(b"z")])
        assert await read_frame(answered) == b"z"
        # Only now: the limit would have closed these connections sooner where the machine stood still for as long.
        server.listener.limits.idle_s = 0.2
        server.listener._close_idle()
        assert await idle.read() == b""
        assert await forgotten.read() == b""
        await server.until(lambda: len(server.closed) >= 2)


class Operation:
    """What a request waits for; notes that its client has left."""

    def __init__(self) -> None:
        self.left = False

    def client_left(self) -> None:
        self.left = True


class Waiting:
    """A handler whose requests wait."""

    def __init__(self) -> None:
        self.frames: list[bytes] = []
        self.operations: list[Operation] = []

    def __call__(self, connection: Connection, frame: memoryview) -> None:
        exchange = Exchange(connection)
        exchange.operation = operation = Operation()
        self.frames.append(bytes(frame[:3]))
        self.operations.append(operation)
        connection.expect(exchange)


@pytest.mark.parametrize("size", [3, 400_000])
@pytest.mark.parametrize("end", ["close", "reset"])
async def test_a_client_that_leaves_is_noticed_while_its_request_waits(size: int, end: str) -> None:
    waiting = Waiting()
    async with Server(waiting) as server:
        _, writer = await server.connect()
        writer.write(framed(b"abc" + bytes(size - 3)))
        await writer.drain()
        await server.until(lambda: waiting.frames == [b"abc"])
        assert not server.closed
        if end == "reset":
            linger = struct.pack("ii", 1, 0)
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        writer.transport.abort()
        await server.until(lambda: len(server.closed) == 1)
        assert [each.left for each in waiting.operations] == [True]
        assert server.listener.held_bytes == 0
        assert not server.listener.connection_quotas.hang_ups


async def test_requests_that_a_client_sent_before_it_left_are_handled() -> None:
    """A producer with acks=0 sends its last batches and closes."""
    waiting = Waiting()
    async with Server(waiting, owed_answers=2) as server:
        _, writer = await server.connect()
        writer.write(framed(b"abc" + bytes(400_000)))
        await writer.drain()
        await server.until(lambda: waiting.frames == [b"abc"])
        for number in range(200):
            writer.write(framed(b"%03d" % number))
        writer.write(framed(b"big" + bytes(400_000)) + framed(b"end"))
        await writer.drain()
        writer.close()
        await server.until(lambda: len(server.closed) == 1)
        assert waiting.frames == [b"abc", *(b"%03d" % number for number in range(200)), b"big", b"end"]
        assert all(each.left for each in waiting.operations)


async def test_memory_of_all_connections_is_bounded_and_released() -> None:
    async with Server(echo, total_bytes=2_000_000) as server:
        data = random.Random(1).randbytes(900_000)
        half = framed(data)[:800_000]
        writers = []
        for _ in range(6):
            reader, writer = await server.connect()
            writer.write(half)
            writers.append((reader, writer))
        await server.until(lambda: any(kind == "memory" for kind, _ in server.reports))
        assert server.listener.held_bytes < 2_000_000 + 6 * 600_000
        for _, writer in writers[3:]:
            writer.close()
        for _, writer in writers[:3]:
            writer.write(framed(data)[800_000:])
        for reader, _ in writers[:3]:
            assert await read_frame(reader) == data


async def test_one_request_is_read_although_the_memory_limit_is_exceeded() -> None:
    """As Kafka's MemoryPool grants a whole request while one byte is free: a request larger than the limit proceeds."""
    async with Server(echo, total_bytes=1000) as server:
        data = random.Random(1).randbytes(900_000)
        reader, writer = await server.connect()
        writer.write(framed(data))
        assert await read_frame(reader) == data
        assert not server.reports
        writer.close()


async def test_incomplete_requests_that_hold_all_memory_proceed_one_after_the_other() -> None:
    """Each waits for memory that only the others can release, so one of them has to exceed the limit."""
    async with Server(echo, total_bytes=1000) as server:
        data = random.Random(1).randbytes(900_000)
        clients = []
        for number in range(4):
            reader, writer = await server.connect()
            writer.write(framed(data)[:500_000])
            clients.append((reader, writer))
            if number == 0:
                await server.until(lambda: server.listener.held_bytes >= 500_000)
            else:
                await server.until(lambda number=number: len(server.reports) == number)
        assert [kind for kind, _ in server.reports] == ["memory"] * 3
        for _, writer in reversed(clients):
            writer.write(framed(data)[500_000:])
        for reader, _ in clients:
            assert await read_frame(reader) == data
        for _, writer in clients:
            writer.close()


async def test_the_request_that_waited_longest_proceeds_when_the_client_before_it_disconnects() -> None:
    async with Server(echo, total_bytes=1000) as server:
        data = random.Random(1).randbytes(900_000)
        clients = []
        for number in range(3):
            reader, writer = await server.connect()
            writer.write(framed(data)[:500_000])
            clients.append((reader, writer))
            await server.until(lambda number=number: len(server.reports) == number)
            await server.until(lambda number=number: server.listener.held_bytes > number * 200_000)
        clients[0][1].close()
        clients[1][1].write(framed(data)[500_000:])
        assert await read_frame(clients[1][0]) == data
        for _, writer in clients[1:]:
            writer.close()


async def test_incomplete_large_requests_leave_memory_for_those_that_are_complete() -> None:
    """Those of 50 connections of 20 MB filled the limit before the first of them was complete."""
    async with Server(echo, total_bytes=8_000_000, queued_bytes=500_000) as server:
        data = random.Random(1).randbytes(1_500_000)
        clients = []
        for _ in range(4):  # six megabytes
            reader, writer = await server.connect()
            writer.write(framed(data)[:-1])
            clients.append((reader, writer))
        await server.until(lambda: [kind for kind, _ in server.reports][:1] == ["memory"])
        for reader, writer in clients:
            writer.write(framed(data)[-1:])
            assert await read_frame(reader) == data
            writer.close()


async def test_a_client_that_stops_sending_does_not_keep_others_waiting_for_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(memory_pool, "LONGEST_WAIT_FOR_MEMORY_S", -1.0)
    async with Server(echo, total_bytes=1000) as server:
        data = random.Random(1).randbytes(900_000)
        stalled, stalled_writer = await server.connect()
        stalled_writer.write(framed(data)[:500_000])
        await server.until(lambda: server.listener.held_bytes >= 500_000)
        reader, writer = await server.connect()
        writer.write(framed(data))
        assert await read_frame(reader) == data
        with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
            await read_frame(stalled)
        assert any("sent nothing" in text for _, text in server.reports)
        for each in (writer, stalled_writer):
            each.close()


HUGE = 6_000_000


async def test_an_iteration_of_the_loop_reads_a_part_of_the_large_requests_that_have_arrived(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Before, one iteration read READ_AT_ONCE_BYTES of each connection, so 200 connections held the loop for 49 ms."""
    read = [0]
    original = Connection.buffer_updated

    def buffer_updated(connection: Connection, nbytes: int) -> None:
        read[-1] += nbytes
        original(connection, nbytes)

    def next_iteration() -> None:
        read.append(0)
        if sum(read) < sent:
            loop.call_soon(next_iteration)

    monkeypatch.setattr(Connection, "buffer_updated", buffer_updated)
    loop = asyncio.get_running_loop()
    async with Server(echo) as server:
        data = memoryview(framed(random.Random(1).randbytes(HUGE // 4)))
        sockets = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(24)]
        await server.until(lambda: len(server.listener.connections) == len(sockets))
        left = []
        for each in sockets:  # as much as the buffers of both sides take
            each.setblocking(False)
            left.append(each.send(data))
        sent = sum(left)
        assert sent > 2 * READ_IN_ALL_BYTES
        next_iteration()
        await server.until(lambda: sum(read) == sent)
        assert max(read) <= READ_IN_ALL_BYTES + READ_AT_ONCE_BYTES + len(sockets) * LITTLE_BYTES
        for each, begun in zip(sockets, left, strict=True):
            reader, writer = await asyncio.open_connection(sock=each)
            writer.write(data[begun:])
            assert await read_frame(reader) == data[4:]
            writer.close()


async def test_an_iteration_of_the_loop_writes_a_part_of_the_responses_that_clients_begin_to_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Those of 50 clients held the loop for 62 ms: each socket took four megabytes at once."""
    size, count, crowd = 1 << 20, 24, 6
    written = [0]
    original = Outbox.flush

    def flush(outbox: Outbox, sock: socket.socket, *most_bytes: int) -> int:
        sent = original(outbox, sock, *most_bytes)
        written[-1] += sent
        return sent

    def next_iteration() -> None:
        written.append(0)
        if received < crowd * (4 + size * count):
            loop.call_soon(next_iteration)

    def answer(connection: Connection, frame: memoryview) -> None:
        connection.send(Exchange(connection), [struct.pack(">i", size * count), *[bytes(size)] * count])

    def drain(sock: socket.socket) -> int:
        received = 0
        with contextlib.suppress(BlockingIOError):
            while data := sock.recv(size):
                received += len(data)
        return received

    received = 0
    loop = asyncio.get_running_loop()
    async with Server(answer, queued_bytes=1 << 26) as server:
        sockets = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(crowd)]
        for each in sockets:
            each.sendall(framed(b""))
            each.setblocking(False)
        await server.until(lambda: sum(connection._writing for connection in server.listener.connections) == crowd)
        monkeypatch.setattr(Outbox, "flush", flush)
        received = sum(map(drain, sockets))
        next_iteration()
        while received < crowd * (4 + size * count):
            await asyncio.sleep(0)
            received += sum(map(drain, sockets))
        assert max(written) <= WRITTEN_BYTES + WRITE_AT_ONCE_BYTES + JOINED_BYTES
        for each in sockets:
            each.close()


async def test_large_requests_are_read_for_a_limited_time_in_an_iteration_of_the_loop() -> None:
    """The same number of bytes takes longer where the system has to find memory for them."""
    time_ns = [1]
    turn = ReadTurn(lambda: time_ns[0])
    turn.count_read(WATCHED_BYTES, is_large=True)
    assert not turn.is_over(is_large=True)
    time_ns[0] += READ_IN_ALL_NS + 1
    turn.count_read(COUNTED_BYTES, is_large=False)
    assert not turn.is_over(is_large=True)
    turn.count_read(COUNTED_BYTES, is_large=True)
    assert turn.is_over(is_large=True)
    assert turn.is_over(is_large=False)
    await asyncio.sleep(0)
    turn.count_read(WATCHED_BYTES, is_large=True)
    assert not turn.is_over(is_large=True)


async def test_a_large_request_is_queued_behind_the_connections_that_wait() -> None:
    """Otherwise those that are read first would be read in each iteration of the loop, and others little by little."""
    async with Server(echo) as server:
        _, writer = await server.connect()
        await server.until(lambda: bool(server.listener.connections))
        (connection,) = server.listener.connections
        turn = server.listener.connection_quotas.turn
        assert not turn.is_over(is_large=True)
        turn.queue(connection)
        assert turn.is_over(is_large=True)
        assert not turn.is_over(is_large=False)
        await asyncio.sleep(0)
        assert not turn.is_over(is_large=True)
        writer.close()


async def test_the_memory_of_connections_that_end_together_is_released_in_parts() -> None:
    """The incomplete requests of 50 connections, 600 MB, held the loop for 20 ms and more."""
    async with Server(echo) as server:
        clients = [(await server.connect())[1] for _ in range(6)]
        for writer in clients:
            writer.write(framed(bytes(HUGE))[:-1])
        await server.until(lambda: server.listener.held_bytes >= len(clients) * HUGE)
        held = [server.listener.held_bytes]
        for connection in list(server.listener.connections):
            connection.close()
        while server.listener.held_bytes:
            await asyncio.sleep(0)
            held.append(server.listener.held_bytes)
        released = [before - after for before, after in pairwise(held)]
        assert max(released) <= RELEASED_BYTES + PART_BYTES
        for writer in clients:
            writer.close()


def test_memory_in_use_is_left_to_its_user() -> None:
    held = [0]
    unused = MemoryRelease()
    memory = mmap.mmap(-1, 3 * PART_BYTES)
    with memoryview(memory) as view:
        unused.add([memory, bytes(10)], held.append)
        assert unused.release(1) == 3 * PART_BYTES
        assert len(view) == 3 * PART_BYTES
    assert unused
    assert unused.release(1) == 10
    assert (held, bool(unused)) == ([0, -3 * PART_BYTES, -10], False)


def test_a_large_request_grows_without_a_copy_and_holds_what_has_arrived() -> None:
    held = [0]
    receive = NetworkReceive(lambda count: held.append(held[-1] + count))
    data = framed(random.Random(1).randbytes(HUGE))
    receive.begin(memoryview(data)[:10])
    buffer = receive.buffer
    assert receive.is_large
    while receive.have < receive.need:
        with receive.room() as room:
            assert len(room) <= READ_AT_ONCE_BYTES
            room[:] = memoryview(data)[receive.have : receive.have + len(room)]
            receive.have += len(room)
        assert held[-1] == len(receive.buffer) <= max(READ_AT_ONCE_BYTES, 2 * receive.have)
    assert receive.buffer is buffer
    assert memoryview(receive.take()) == data
    assert not receive.clear()


def test_a_large_request_whose_bytes_are_in_use_is_copied_when_it_grows() -> None:
    receive = NetworkReceive(lambda count: None)
    data = framed(bytes(HUGE))
    receive.begin(memoryview(data)[:100_000])
    in_use = memoryview(receive.buffer)
    receive.have = len(receive.buffer)
    assert len(receive.room()) == READ_AT_ONCE_BYTES
    assert memoryview(receive.buffer)[:100_000] == in_use[:100_000]


async def test_the_first_requests_of_a_crowd_wait_when_others_have_taken_the_time_of_an_iteration() -> None:
    """Those of 400 connections, JoinGroup requests, held the loop for 32 to 48 ms."""
    time_ns, handled = [1], [0]

    def slow(connection: Connection, frame: memoryview) -> None:
        time_ns[0] += FIRST_FRAMES_NS // 10
        handled[-1] += 1
        echo(connection, frame)

    def next_iteration() -> None:
        handled.append(0)
        if sum(handled) < crowd:
            loop.call_soon(next_iteration)

    crowd = 3 * FIRST_FRAMES
    loop = asyncio.get_running_loop()
    async with Server(slow) as server:
        server.listener.connection_quotas.turn = ReadTurn(lambda: time_ns[0])
        sockets = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(crowd)]
        await server.until(lambda: len(server.listener.connections) == crowd)
        for each in sockets:
            each.sendall(framed(b"request"))
        next_iteration()
        await server.until(lambda: sum(handled) == crowd)
        for each in sockets:
            assert each.recv(100) == framed(b"request")
            each.close()
    assert max(handled) <= FIRST_FRAMES + 11 + CONNECTIONS_IN_A_TURN


async def test_slow_requests_of_one_connection_do_not_share_an_iteration_of_the_loop() -> None:
    """Eight heartbeats of a large group of the consumer protocol, 12 ms each, held the loop for 100 ms."""
    time_ns, handled = [1], [0]

    def slow(connection: Connection, frame: memoryview) -> None:
        time_ns[0] += FRAMES_NS + 1
        handled[-1] += 1
        echo(connection, frame)

    def next_iteration() -> None:
        handled.append(0)
        if sum(handled) < count:
            loop.call_soon(next_iteration)

    count = 3 * FRAMES_AT_ONCE
    loop = asyncio.get_running_loop()
    async with Server(slow) as server:
        server.listener.connection_quotas.turn = ReadTurn(lambda: time_ns[0])
        with socket.create_connection(("127.0.0.1", server.port)) as client:
            await server.until(lambda: len(server.listener.connections) == 1)
            client.sendall(framed(b"request") * count)
            next_iteration()
            await server.until(lambda: sum(handled) == count)
            assert len(client.recv(10_000)) == len(framed(b"request")) * count
    assert max(handled) <= 2  # where the callback above runs after the next read


async def test_a_client_waits_for_one_request_of_each_connection_before_it() -> None:
    """It waited for up to 24 requests of each of 400 connections: 200 to 450 ms beside joins of 20,000 members."""
    time_ns, handled = [1], [b""]

    def slow(connection: Connection, frame: memoryview) -> None:
        time_ns[0] += FIRST_FRAMES_NS // 5
        handled.append(bytes(frame))
        echo(connection, frame)

    crowd = 3 * FIRST_FRAMES
    async with Server(slow) as server:
        server.listener.connection_quotas.turn = ReadTurn(lambda: time_ns[0])
        sockets = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(crowd + 1)]
        await server.until(lambda: len(server.listener.connections) == crowd + 1)
        for each in sockets[:-1]:
            each.sendall(framed(b"crowd") * 50)
        sockets[-1].sendall(framed(b"alone"))
        await server.until(lambda: b"alone" in handled)
        before = handled.index(b"alone")
        # And for those of the first iteration, and of one connection in each of the others.
        assert before <= crowd + SHARED_FRAMES + MORE_FRAMES + (crowd - FIRST_FRAMES) // 5 * FRAMES_IN_A_TURN
        for each in sockets:
            each.close()


@pytest.mark.parametrize(
    "behind",
    [b"", framed(b"second")[:6], framed(b"second"), framed(b"second") * 100],
    ids=["its end", "a part of a request", "a request", "many requests"],
)
async def test_a_client_whose_first_request_waits_may_send_more_or_close(behind: bytes) -> None:
    """The connection is still read meanwhile: nothing is lost, and responses have the order of the requests."""
    time_ns, handled = [1], [b""]

    def slow(connection: Connection, frame: memoryview) -> None:
        time_ns[0] += FIRST_FRAMES_NS
        handled.append(bytes(frame))
        if len(handled) == FIRST_FRAMES + 5:  # in the next iteration: the first request of `late` waits
            late.sendall(behind)
            late.shutdown(socket.SHUT_WR)
        echo(connection, frame)

    crowd = FIRST_FRAMES + 10
    async with Server(slow) as server:
        server.listener.connection_quotas.turn = ReadTurn(lambda: time_ns[0])
        sockets = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(crowd)]
        late = sockets[-1]
        await server.until(lambda: len(server.listener.connections) == crowd)
        for each in sockets:
            each.sendall(framed(b"first"))
        await server.until(lambda: len(server.closed) == 1)
        assert handled.count(b"first") == crowd
        assert handled.count(b"second") == behind.count(b"second")
        for each in sockets:
            assert each.recv(9) == framed(b"first")
            each.close()


async def test_the_requests_of_a_crowd_share_an_iteration_of_the_loop() -> None:
    """400 connections that sent 50 JoinGroup requests each held the loop for 170 milliseconds: eight of each."""
    turn = ReadTurn()
    assert sum(turn.frames_behind_the_first() for _ in range(400)) == SHARED_FRAMES
    await asyncio.sleep(0)
    assert turn.frames_behind_the_first() == FRAMES_AT_ONCE - 1
