"""One of the two brokers that run the same scenario, and its responses, step by step."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from odradek.protocol import messages as m
from odradek.protocol.errors import ProtocolError
from odradek.protocol.framing import frame, request_header, response_header_version
from tests.comparison.answers import CLOSED, SILENT, Names, plain
from tests.comparison.requests import key_of, request
from tests.support.eventually import eventually_async

DEADLINE_S = 20.0
SILENCE_S = 1.0
"""How long to wait for a response that Kafka is known not to send."""
CLIENT_ID = "teller"


class Step(NamedTuple):
    """One request and its response. `api` and `version` name the request, `notified` is the whole response, `answer` is
    plain.
    """

    api: str
    version: int
    notified: str
    answer: Any


class Pending(NamedTuple):
    """A request that waits for its response."""

    api: str
    version: int
    notified: str
    line: Line


class Line:
    """One connection; it is opened anew when the broker has closed it."""

    def __init__(self, port: int, source: str = "127.0.0.1") -> None:
        self._port = port
        self._source = source
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def send(self, data: bytes) -> None:
        if self._writer is None:
            self._reader, self._writer = await asyncio.open_connection(
                "127.0.0.1", self._port, limit=1 << 27, local_addr=(self._source, 0)
            )
        self._writer.write(data)

    async def receive(self, deadline_s: float = DEADLINE_S) -> bytes | str:
        """One frame, without its length; CLOSED or SILENT."""
        assert self._reader is not None
        try:
            async with asyncio.timeout(deadline_s):
                (size,) = struct.unpack(">i", await self._reader.readexactly(4))
                return await self._reader.readexactly(size)
        except TimeoutError:
            self.close()
            return SILENT
        except (asyncio.IncompleteReadError, ConnectionError):
            self.close()
            return CLOSED

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
        self._reader = self._writer = None


class Side:
    """A broker that runs a scenario. `versions` are those of Apache Kafka 3.9.2's ApiVersions response, by key.

    `source` is the loopback address of the client, for ACLs of hosts.
    """

    def __init__(self, who: str, port: int, versions: dict[int, tuple[int, int]], source: str = "127.0.0.1") -> None:
        self.who = who
        self.port = port
        self._source = source
        self.steps: list[Step] = []
        self.asked: set[tuple[int, int]] = set()
        self.versions = versions
        self._names = Names({port: "own"})
        self._lines: dict[str, Line] = {}
        self._correlation_id = 0

    def close(self) -> None:
        """End all connections."""
        for line in self._lines.values():
            line.close()
        self._lines.clear()

    def span(self, api: str, versions: str | int | None) -> list[int]:
        """Versions in the notation of scenarios: a number, "2-5", "3+", or None for all that Kafka has."""
        low, high = self.versions[key_of(api)]
        if versions is None:
            return list(range(low, high + 1))
        if isinstance(versions, int):
            return [versions]
        first, _, last = versions.partition("-")
        if first.endswith("+"):
            return list(range(int(first[:-1]), high + 1))
        return list(range(int(first), int(last) + 1))

    async def ask(self, api: str, versions: str | int | None = None, *, at: str = "main", **fields: Any) -> Any:
        """Send a request in each of these versions, and record the responses. Returns the last."""
        answer = None
        for version in self.span(api, versions):
            answer = await self.take(await self.send(api, version, at=at, **fields))
        return answer

    async def send(self, api: str, version: int, *, at: str = "main", label: str = "", **fields: Any) -> Pending:
        """Send a request; `take` waits for its response."""
        message = request(api, version, **fields)
        self.asked.add((message.API_KEY, version))
        body = b"".join(bytes(part) for part in message.encode_parts(version))
        line = self._line(at)
        await line.send(frame(self._head(message.API_KEY, version), body))
        return Pending(api, version, f"{label or fields}", line)

    async def take(self, pending: Pending, *, note: bool = True) -> Any:
        """The response to a request, recorded."""
        answer = self._read(pending.api, pending.version, await pending.line.receive())
        if note:
            self.note(pending.api, pending.version, pending.notified, answer)
        return answer

    async def quietly(self, api: str, version: int, *, at: str = "main", **fields: Any) -> Any:
        """Send a request, and record nothing."""
        return await self.take(await self.send(api, version, at=at, **fields), note=False)

    async def wait(self, done: Callable[[Any], Any], api: str, version: int, **fields: Any) -> Any:
        """Repeat a request until the response is as wanted."""
        return await eventually_async(
            lambda: self.quietly(api, version, **fields), done, f"{self.who}'s response to {api} {fields} is as wanted"
        )

    async def until(self, done: Callable[[Any], Any], api: str, version: int, **fields: Any) -> Any:
        """Repeat a request until the response is as wanted, and record that one."""
        answer = await self.wait(done, api, version, **fields)
        self.note(api, version, f"{fields}", answer)
        return answer

    async def unanswered(
        self, api: str, versions: str | int | None = None, *, at: str = "unanswered", **fields: Any
    ) -> None:
        """Send a request without a response (acks=0), and check whether the connection stays open."""
        for version in self.span(api, versions):
            pending = await self.send(api, version, at=at, **fields)
            await pending.line.send(frame(self._head(18, 0)))
            data = await pending.line.receive()
            self.note(api, version, pending.notified, data if isinstance(data, str) else SILENT)

    async def hanging(self, api: str, versions: str | int | None = None, **fields: Any) -> None:
        """Send a request that Kafka never answers, over a connection of its own."""
        for version in self.span(api, versions):
            pending = await self.send(api, version, at="hanging", **fields)
            data = await pending.line.receive(SILENCE_S)
            self.note(api, version, pending.notified, self._read(api, version, data))

    async def exchange(self, key: int, version: int, body: bytes, head: bytes | None = None) -> bytes | str:
        """Send a body under a header over a connection of its own; the frame that comes, CLOSED or SILENT."""
        line = Line(self.port, self._source)
        await line.send(frame(self._head(key, version) if head is None else head, body))
        data = await line.receive()
        line.close()
        return data

    async def raw(self, notified: str, key: int, version: int, body: bytes, head: bytes | None = None) -> None:
        """Send bytes as a request, and record the response."""
        self.note_bytes(notified, key, version, await self.exchange(key, version, body, head))

    async def raw_frame(self, notified: str, data: bytes) -> None:
        """Send bytes that may be no frame at all, or an ApiVersions request, and record the response."""
        line = Line(self.port, self._source)
        await line.send(data)
        answer = await line.receive()
        line.close()
        self.note_bytes(notified, 18, 3, answer)

    def note_bytes(self, notified: str, key: int, version: int, data: bytes | str) -> None:
        """Record a response that came as a frame; one that cannot be parsed stays bytes."""
        try:
            api = m.request_class(key).__name__.removesuffix("Request")
        except KeyError:
            api = f"key {key}"
        answer: Any = data
        if not isinstance(data, str):
            try:
                answer = self._read(api, version, data)
            except (AttributeError, AssertionError, ValueError, ProtocolError):
                answer = data[4:]
        self.note(api, version, notified, answer)

    def note(self, api: str, version: int, notified: str, answer: Any) -> None:
        """Record a response."""
        self.steps.append(Step(api, version, notified, plain(answer, self._names)))

    def port_of(self, at: str) -> int:
        """The address for the connection of this name."""
        return self.port

    def _line(self, at: str) -> Line:
        return self._lines.setdefault(at, Line(self.port_of(at), self._source))

    def _head(self, key: int, version: int) -> bytes:
        self._correlation_id += 1
        return request_header(key, version, self._correlation_id, CLIENT_ID)

    def _read(self, api: str, version: int, data: bytes | str) -> Any:
        if isinstance(data, str):
            return data
        response = getattr(m, f"{api}Response")
        start = 5 if response_header_version(key_of(api), version) else 4
        answer, end = response.decode_prefix(data, version, start)
        assert end == len(data), f"{self.who}: {len(data) - end} bytes behind the response to {api} v{version}"
        return answer


Scenario = Callable[[Side], Awaitable[None]]
