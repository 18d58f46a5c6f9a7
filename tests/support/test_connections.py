"""The connections of a block are closed at its end: when it fails, and when the peer does not read, too."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from tests.support.connections import closing_connections, open_connection


class Peer:
    """A server that keeps its ends of the connections open."""

    def __init__(self) -> None:
        self.port = 0
        self._writers: list[asyncio.StreamWriter] = []

    async def accept(self, _: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.append(writer)

    def close(self) -> None:
        for writer in self._writers:
            writer.close()


@pytest.fixture
async def peer() -> AsyncIterator[Peer]:
    running = Peer()
    async with await asyncio.start_server(running.accept, "127.0.0.1", 0) as server:
        running.port = server.sockets[0].getsockname()[1]
        yield running
        running.close()


async def test_a_block_closes_the_connections_that_it_opens_and_no_others(peer: Peer) -> None:
    _, outer = await open_connection("127.0.0.1", peer.port)
    async with closing_connections():
        _, inner = await open_connection("127.0.0.1", peer.port)
        assert not inner.transport.is_closing()
    assert inner.transport.is_closing()
    assert not outer.transport.is_closing()
    _, later = await open_connection("127.0.0.1", peer.port)
    assert not later.transport.is_closing()


async def test_a_block_that_fails_closes_its_connections(peer: Peer) -> None:
    opened: list[asyncio.StreamWriter] = []

    async def failing() -> None:
        async with closing_connections():
            opened.append((await open_connection("127.0.0.1", peer.port))[1])
            raise RuntimeError("the test fails")

    with pytest.raises(RuntimeError, match="the test fails"):
        await failing()
    assert [writer.transport.is_closing() for writer in opened] == [True]


async def test_data_that_the_peer_does_not_read_delays_no_test(peer: Peer) -> None:
    async with closing_connections():
        _, writer = await open_connection("127.0.0.1", peer.port)
        writer.write(bytes(1 << 24))
    assert writer.transport.is_closing()
