"""Plain reads of fetch sessions: equal responses to those of the reads that take every request."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from odradek.broker.apis.fetch import Fetch
from odradek.broker.replication.plain_fetch import PlainRead
from odradek.protocol import messages as m
from tests.broker.wire import Client, batch, running_broker

PARTITIONS = 3
EVERYTHING = [(index, 0, 1 << 20) for index in range(PARTITIONS)]


class Session:
    """A fetch session of a connection of its own."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._session_id = self._epoch = 0

    async def ask(self, changed: list[tuple[int, int, int]], version: int, **fields: Any) -> m.FetchResponse:
        """The response without its session id, with new offsets and limits of some partitions."""
        partitions = [
            m.FetchRequest.FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=most)
            for index, offset, most in changed
        ]
        topics = [m.FetchRequest.FetchTopic(topic="t", partitions=partitions)] if changed else []
        request = m.FetchRequest(session_id=self._session_id, session_epoch=self._epoch, topics=topics, **fields)
        response: m.FetchResponse = await self._client.ask(request, version)
        self._session_id, response.session_id = response.session_id, 0
        self._epoch += 1
        return response


async def test_a_plain_read_gives_the_response_of_any_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng, end, plain_reads, is_plain = random.Random(51), [0] * PARTITIONS, 0, True
    read_plain = Fetch._read_plain

    def read(self: Fetch, *arguments: Any) -> PlainRead | None:
        nonlocal plain_reads
        found = read_plain(self, *arguments) if is_plain else None
        plain_reads += found is not None
        return found

    monkeypatch.setattr(Fetch, "_read_plain", read)
    async with running_broker(tmp_path) as broker:
        clients = [await Client.connect(broker.port) for _ in range(3)]
        sessions = [Session(client) for client in clients[:2]]
        await clients[2].create_topic("t", PARTITIONS)
        for session in sessions:
            await session.ask(EVERYTHING, 11, max_wait_ms=0, min_bytes=1, max_bytes=1 << 20)
        metrics = broker.replicas.metrics["t"]
        for _ in range(150):
            index = rng.randrange(PARTITIONS)
            if rng.random() < 0.4:
                await clients[2].produce("t", batch(bytes(rng.randint(1, 300))), partition=index)
                end[index] += 1
            offset = rng.choice((end[index], end[index], max(0, end[index] - 1), 0, end[index] + 1))
            changed = [(index, offset, rng.choice((1, 200, 1 << 20)))] if rng.random() < 0.7 else []
            fields: dict[str, Any] = {
                "isolation_level": rng.choice((0, 0, 0, 1)),
                "min_bytes": rng.choice((0, 1, 1, 150)),
                "max_bytes": rng.choice((1, 250, 1 << 20, 1 << 20)),
                "max_wait_ms": rng.choice((0,) * 9 + (2,)),
            }
            version, seen = rng.choice((8, 10, 11, 12)), []
            for is_plain, session in zip((True, False), sessions, strict=True):  # noqa: B007  # `read` uses it
                before = metrics.fetches, metrics.bytes_out
                response = await session.ask(changed, version, **fields)
                seen.append((response, metrics.fetches - before[0], metrics.bytes_out - before[1]))
            assert seen[0] == seen[1], (changed, version, fields)
        for client in clients:
            client.close()
    assert plain_reads > 40
