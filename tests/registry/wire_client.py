"""A ZooKeeper client on the level of bytes: it sends frames that a test makes and returns the frames that it receives.

The layouts are written down here a second time, so that the tests do not depend on the code under test.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Sequence
from typing import NamedTuple

from tests.support.connections import open_connection

CREATE, DELETE, EXISTS, GET_DATA, SET_DATA, GET_ACL, SET_ACL, GET_CHILDREN, SYNC = range(1, 10)
PING, GET_CHILDREN_2, CHECK, MULTI, CREATE_2 = 11, 12, 13, 14, 15
CREATE_CONTAINER, CREATE_TTL, AUTH, SET_WATCHES, SASL, SET_WATCHES_2, CLOSE = 19, 21, 100, 101, 102, 105, -11
PING_XID, WATCH_XID = -2, -1

WORLD = [(31, "world", "anyone")]


class Reply(NamedTuple):
    """A response, or with xid -1 a watch that fired."""

    xid: int
    zxid: int
    error: int
    body: bytes


class Greeting(NamedTuple):
    """The response to a handshake."""

    timeout_ms: int
    session_id: int
    password: bytes
    tail: bytes
    """The byte that marks a read-only server, where the client supports it."""


def text(value: str) -> bytes:
    return buffer(value.encode())


def buffer(value: bytes | None) -> bytes:
    return struct.pack(">i", -1) if value is None else struct.pack(">i", len(value)) + value


def texts(values: list[str]) -> bytes:
    return struct.pack(">i", len(values)) + b"".join(text(value) for value in values)


def acl(entries: Sequence[tuple[int, str, str]]) -> bytes:
    return struct.pack(">i", len(entries)) + b"".join(
        struct.pack(">i", permissions) + text(scheme) + text(name) for permissions, scheme, name in entries
    )


def create(
    path: str, data: bytes | None = b"", flags: int = 0, entries: Sequence[tuple[int, str, str]] = WORLD
) -> bytes:
    return text(path) + buffer(data) + acl(entries) + struct.pack(">i", flags)


def set_acl(path: str, entries: Sequence[tuple[int, str, str]], version: int = -1) -> bytes:
    return text(path) + acl(entries) + struct.pack(">i", version)


def auth(scheme: str, credentials: bytes) -> bytes:
    return struct.pack(">i", 0) + text(scheme) + buffer(credentials)


def delete(path: str, version: int = -1) -> bytes:
    return text(path) + struct.pack(">i", version)


check = delete


def set_data(path: str, data: bytes | None, version: int = -1) -> bytes:
    return text(path) + buffer(data) + struct.pack(">i", version)


def read(path: str, watch: bool = False) -> bytes:
    """exists, getData, getChildren and getChildren2."""
    return text(path) + bytes([watch])


def multi(*operations: tuple[int, bytes]) -> bytes:
    parts = [struct.pack(">ibi", kind, 0, -1) + body for kind, body in operations]
    return b"".join(parts) + struct.pack(">ibi", -1, 1, -1)


def set_watches(zxid: int, data: list[str], exists: list[str], children: list[str]) -> bytes:
    return struct.pack(">q", zxid) + texts(data) + texts(exists) + texts(children)


def watch_body(kind: int, path: str) -> bytes:
    """The body of a watch that fired."""
    return struct.pack(">ii", kind, 3) + text(path)


class WireClient:
    """One connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._xid = 0
        self.session = Greeting(0, 0, b"", b"")

    @classmethod
    async def open(cls, connect: str) -> WireClient:
        """A connection to host:port that has sent nothing yet."""
        host, _, port = connect.rpartition(":")
        return cls(*await open_connection(host, int(port)))

    @classmethod
    async def begin(cls, connect: str, timeout_ms: int = 10_000) -> WireClient:
        """A connection with a session of its own."""
        client = await cls.open(connect)
        await client.greet(timeout_ms)
        return client

    async def greet(
        self, timeout_ms: int, session_id: int = 0, password: bytes = bytes(16), tail: bytes = b"\0"
    ) -> Greeting:
        self.send_frame(struct.pack(">iqiq", 0, 0, timeout_ms, session_id) + buffer(password) + tail)
        frame = await self.frame()
        _, granted_ms, session_id, length = struct.unpack_from(">iiqi", frame)
        self.session = Greeting(granted_ms, session_id, frame[20 : 20 + length], frame[20 + length :])
        return self.session

    def send(self, kind: int, body: bytes = b"", xid: int | None = None) -> int:
        """A request; returns its xid."""
        if xid is None:
            self._xid += 1
            xid = self._xid
        self.send_frame(struct.pack(">ii", xid, kind) + body)
        return xid

    def send_frame(self, packet: bytes) -> None:
        self.send_bytes(struct.pack(">i", len(packet)) + packet)

    def send_bytes(self, data: bytes) -> None:
        self._writer.write(data)

    async def ask(self, kind: int, body: bytes = b"", xid: int | None = None) -> Reply:
        """A request and the next frame, which must be its response."""
        xid = self.send(kind, body, xid)
        reply = await self.reply()
        assert reply.xid == xid, reply
        return reply

    async def reply(self) -> Reply:
        frame = await self.frame()
        xid, zxid, error = struct.unpack_from(">iqi", frame)
        return Reply(xid, zxid, error, frame[16:])

    async def until_pong(self) -> list[Reply]:
        """Everything before the response to a ping sent now."""
        self.send(PING, xid=PING_XID)
        replies: list[Reply] = []
        while (reply := await self.reply()).xid != PING_XID:
            replies.append(reply)
        return replies

    async def frame(self) -> bytes:
        """The next frame without its length. Raises IncompleteReadError or ConnectionError at the end."""
        async with asyncio.timeout(30):
            size = await self._reader.readexactly(4)
            return await self._reader.readexactly(int.from_bytes(size, "big"))

    async def rest(self) -> bytes:
        """All bytes until the server closes the connection; none if it resets it."""
        async with asyncio.timeout(30):
            try:
                return await self._reader.read()
            except ConnectionError:
                return b""

    async def drain(self) -> None:
        await self._writer.drain()

    async def leave(self) -> None:
        """End the session, if it is not over, and the connection."""
        if not self._reader.at_eof():
            self.send(CLOSE)
            await self.rest()
        self.cut()

    def cut(self) -> None:
        """Close the connection without a request; the session stays."""
        self._writer.transport.abort()
