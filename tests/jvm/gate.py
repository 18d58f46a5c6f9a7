"""A gate before a broker of Apache Kafka: clients reach it once it has every topic in its metadata, and get no response
until then.

A Kafka that has just started serves before its controller has sent it the metadata, and until then returns that topics
do not exist. Java's clients retry. librdkafka takes a topic that it had for deleted: it fails writes to it, and drops
the sequence of an idempotent producer (its issue 3513). So clients that outlive a start of Kafka connect to a gate,
which is at the broker's advertised address.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from typing import Final

HOST: Final = "127.0.0.1"
DEADLINE_S: Final = 30.0
_MOST_BYTES: Final = 1 << 18


class Gate:
    """Passes connections to `port` on to `target`, both of this machine, while it is open; shut at first."""

    def __init__(self, port: int, target: int) -> None:
        self._port, self._target = port, target
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._is_shut = True
        self._passing: set[asyncio.Task[None]] = set()
        self._ways: set[asyncio.Task[None]] = set()

    def open(self) -> None:
        """Listen. Raises OSError where the port is in use."""
        self._loop = asyncio.new_event_loop()
        self._is_shut = False
        self._thread = threading.Thread(target=self._loop.run_forever, name=f"gate at {self._port}", daemon=True)
        self._thread.start()
        listening = asyncio.start_server(self._let_in, HOST, self._port)
        try:
            self._server = asyncio.run_coroutine_threadsafe(listening, self._loop).result(DEADLINE_S)
        except OSError:
            self._end_thread()
            raise

    def shut(self) -> None:
        """End every connection and listen no more; without effect on a gate that is shut."""
        if self._loop is not None:
            asyncio.run_coroutine_threadsafe(self._end(), self._loop).result(DEADLINE_S)
            self._end_thread()

    def _end_thread(self) -> None:
        assert self._loop is not None
        assert self._thread is not None
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(DEADLINE_S)
        self._loop.close()
        self._loop = None

    # ---- in the thread of the loop

    async def _end(self) -> None:
        """End every connection, also one that is being accepted or connected: when the loop ends, no task is left that
        would close its transport.
        """
        self._is_shut = True
        this = asyncio.current_task()
        # There is no event for a loop without tasks. A server that is closed could not finish an accept.
        while asyncio.all_tasks() - self._passing - {this}:  # noqa: ASYNC110
            await asyncio.sleep(0)
        self._server.close()
        while asyncio.all_tasks() != {this}:
            for way in self._ways:
                way.cancel()
            await asyncio.sleep(0)

    async def _let_in(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._passing.add(task)
        try:
            with contextlib.suppress(OSError):
                await self._join(reader, writer)
        finally:
            await _abort(writer)
            self._passing.discard(task)

    async def _join(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Until either side ends."""
        behind, to_behind = await asyncio.open_connection(HOST, self._target)
        try:
            if not self._is_shut:
                ways = {asyncio.create_task(_pour(reader, to_behind)), asyncio.create_task(_pour(behind, writer))}
                self._ways |= ways
                self._passing |= ways
                await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
                for way in ways:
                    way.cancel()
                await asyncio.gather(*ways, return_exceptions=True)
                self._ways -= ways
                self._passing -= ways
        finally:
            await _abort(to_behind)


async def _abort(writer: asyncio.StreamWriter) -> None:
    """Drop the connection, and return once its socket is closed: the loop may end at once after that."""
    writer.transport.abort()
    with contextlib.suppress(OSError):
        await writer.wait_closed()


async def _pour(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    while data := await source.read(_MOST_BYTES):
        sink.write(data)
        await sink.drain()
