"""The network between a ZooKeeper client and its server, under a test's control: it can delay responses and cut
connections.

It also keeps the password that the server assigns to each session, with which another client can continue the session.
"""

from __future__ import annotations

import asyncio
import contextlib
import struct

_GREETING = struct.Struct(">iiqi")  # protocol version, timeout in ms, session id, length of the password


class ZooKeeperLink:
    """A listener that forwards whole frames to a server; both directions can be stopped and cut."""

    def __init__(self, connect: str) -> None:
        """`connect` is host:port of the server."""
        host, _, port = connect.rpartition(":")
        self._server_address = host, int(port)
        self._listener: asyncio.Server | None = None
        self._writers: list[asyncio.StreamWriter] = []
        self._whole = True
        self._answers = asyncio.Event()
        self._answers.set()
        self._held = asyncio.Event()
        self.passwords: dict[int, bytes] = {}
        self.connect = ""

    async def start(self) -> None:
        """Listen; `connect` is then host:port for clients."""
        self._listener = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.connect = f"127.0.0.1:{self._listener.sockets[0].getsockname()[1]}"

    def cut(self) -> None:
        """Close all connections and every one that is opened from now on."""
        self._whole = False
        for writer in self._writers:
            writer.transport.abort()

    def heal(self) -> None:
        """New connections reach the server again."""
        self._whole = True

    def hold_answers(self) -> None:
        """Hold back the frames of the server from now on."""
        self._answers.clear()
        self._held.clear()

    def release_answers(self) -> None:
        """Forward the frames held back, and all that follow."""
        self._answers.set()

    async def await_held_answer(self) -> None:
        """Return once a frame of the server is held back."""
        await asyncio.wait_for(self._held.wait(), 30)

    async def close(self) -> None:
        """End everything."""
        self.cut()
        if self._listener is not None:
            self._listener.close()
            await self._listener.wait_closed()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if not self._whole:
            writer.transport.abort()
            return
        try:
            server_reader, server_writer = await asyncio.open_connection(*self._server_address)
        except OSError:
            writer.transport.abort()
            return
        self._writers += [writer, server_writer]
        requests = self._forward(reader, server_writer)
        answers = self._forward_answers(server_reader, writer)
        try:
            await asyncio.gather(requests, answers)
        finally:
            for one in (writer, server_writer):
                one.transport.abort()
                self._writers.remove(one)

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(1 << 16):
                writer.write(data)
                await writer.drain()
        writer.transport.abort()

    async def _forward_answers(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        greeted = False
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            while True:
                size = await reader.readexactly(4)
                frame = await reader.readexactly(int.from_bytes(size, "big"))
                if not greeted:
                    greeted = True
                    _, _, session_id, length = _GREETING.unpack_from(frame)
                    self.passwords[session_id] = frame[_GREETING.size : _GREETING.size + length]
                if not self._answers.is_set():
                    self._held.set()
                    await self._answers.wait()
                writer.write(size + frame)
                await writer.drain()
        writer.transport.abort()
