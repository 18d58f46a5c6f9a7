"""Helpers of the tests of bad clients: raw connections to a broker, its memory, its descriptors and its log."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import sys
from pathlib import Path
from typing import Any

from odradek.broker_process import BrokerProcess
from tests.broker.wire import DEADLINE_S, Client, batch

MB = 1_000_000


def limited_command(files: int, *, hard: bool) -> tuple[str, ...]:
    """The command line under a limit on file descriptors; the broker may raise a soft one itself."""
    return ("sh", "-c", f'ulimit -{"" if hard else "S"}n {files}; exec "$0" -m odradek "$@"', sys.executable)


def most_descriptors() -> int:
    """Let this process open as many files as it may, and return that number."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard


def resident_bytes(pid: int) -> int:
    """Memory that a process has now, without its children."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmRSS"))


def open_files(pid: int) -> int:
    """How many descriptors a process has open."""
    return len(os.listdir(f"/proc/{pid}/fd"))


def notified(process: BrokerProcess, kind: str) -> list[str]:
    """The messages of one kind of refusal that a broker logged as JSON."""
    entries: list[dict[str, Any]] = [json.loads(line) for line in process.output.splitlines()]
    return [entry["message"] for entry in entries if entry.get("kind") == kind]


async def assault(port: int, data: bytes) -> bytes:
    """Send bytes on a new connection, and read until the broker has processed them and closes it."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    async with asyncio.timeout(DEADLINE_S):
        try:
            writer.write(data)
            writer.write_eof()
            return await reader.read()
        except ConnectionError:
            return b""
        finally:
            writer.close()


async def assault_all(port: int, attacks: list[bytes]) -> None:
    """`assault` many times, some at a time."""
    left = iter(attacks)

    async def one_after_the_other() -> None:
        for data in left:
            await assault(port, data)

    await asyncio.gather(*(one_after_the_other() for _ in range(16)))


class Neighbour:
    """A good client, which bad clients must not affect: it writes a record and reads it, again and again."""

    def __init__(self, client: Client, topic: str) -> None:
        self._client = client
        self._topic = topic
        self.rounds = 0

    @classmethod
    async def settle(cls, port: int, topic: str) -> Neighbour:
        client = await Client.connect(port)
        await client.create_topic(topic)
        return cls(client, topic)

    async def live(self, rounds: int = 1) -> None:
        for _ in range(rounds):
            value = b"round %d" % self.rounds
            written = await self._client.produce(self._topic, batch(value))
            assert (written.error_code, written.base_offset) == (0, self.rounds), written
            read = await self._client.fetch(self._topic, self.rounds)
            assert read.error_code == 0, read
            assert value in bytes(read.records)
            self.rounds += 1

    async def make_topic(self, name: str) -> None:
        """A new log: the broker has to open files."""
        await self._client.create_topic(name)
        assert (await self._client.produce(name, batch(b"v"))).error_code == 0

    def leave(self) -> None:
        self._client.close()
