"""The server of the embedded registry beside a real ZooKeeper: the same bytes to both, and the same bytes back.

Each step is a burst of requests of one client, sent without waiting for responses; then both clients are pinged, and
everything before the pong is compared: responses, watches, their order. Session ids, zxids and times differ by nature:
in a stat they are replaced by the owner's name and by their distance from the first node's zxid. Not compared are the
zxid of a response that follows a failed write (see `odradek.broker.registry.server`), the order of children's names,
and the events of a client's own ephemeral nodes when it ends its session: ZooKeeper sends them, Odradek sends nothing
more.
"""

from __future__ import annotations

import asyncio
import itertools
import struct
from typing import Any, TypeAlias

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kazoo.client import KazooClient

from odradek.broker.registry.acls import digest_name
from odradek.broker.registry.server_sessions import password_of
from tests.registry import wire_client as w
from tests.registry.conftest import serving
from tests.registry.wire_client import Reply, WireClient
from tests.registry.zookeeper_server import ZooKeeperServer
from tests.support.connections import closing_connections

pytestmark = pytest.mark.jvm

_STAT = struct.Struct(">qqqqiiiqiiq")
_PATHS = ["", "/a", "/b", "/a/a", "/a/b", "/b/a", "/s0000000000", "/s0000000001", "/a/s0000000000"]
_roots = itertools.count()

Request: TypeAlias = tuple[Any, ...]

paths = st.sampled_from(_PATHS)
data = st.sampled_from([None, b"", b"x", b"yy"])
versions = st.sampled_from([-1, -1, -1, 0, 1, 2, -2])
_DIGEST = digest_name("u:secret")
acls = st.sampled_from(
    [
        *[w.WORLD] * 3,
        [(31, "auth", "")],
        [(31, "auth", ""), (1, "world", "anyone")],
        [(1 | 16, "digest", _DIGEST), (4, "digest", _DIGEST)],
        [(31, "digest", "stranger:x"), (31, "ip", "127.0.0.0/8")],
        [(31, "ip", "10.0.0.1")],
        [(15, "world", "anyone"), (15, "world", "anyone")],
        [(16, "sasl", "stranger"), (8, "world", "anyone")],
        [(31, "digest", "a")],
        [(31, "ip", "10.0.0.1/99")],
        [(31, "unknown", "a")],
        [],
    ]
)
creates = st.tuples(
    st.sampled_from([w.CREATE, w.CREATE_2]),
    st.sampled_from([*_PATHS[1:], "/s", "/a/s", "/b/s"]),
    data,
    st.sampled_from([0, 0, 1, 2, 3]),
    acls,
)
operations = st.one_of(
    creates,
    creates,
    st.tuples(st.just(w.SET_DATA), paths, data, versions),
    st.tuples(st.just(w.DELETE), st.sampled_from(_PATHS[1:]), versions),
    st.tuples(st.just(w.CHECK), paths, versions),
)
requests = st.one_of(
    operations.filter(lambda operation: operation[0] != w.CHECK),
    st.tuples(st.just(w.MULTI), st.lists(operations, max_size=5)),
    st.tuples(st.sampled_from([w.EXISTS, w.GET_DATA, w.GET_CHILDREN, w.GET_CHILDREN_2]), paths, st.booleans()),
    st.tuples(st.sampled_from([w.GET_ACL, w.SYNC]), paths),
    st.tuples(st.just(w.SET_ACL), paths, acls, versions),
)
bursts = st.lists(requests, min_size=1, max_size=6)
logins = st.tuples(st.just("login"), st.sampled_from([b"u:secret", b"u:secret", b"u:other", b"v:", b"w"]))
returns = st.tuples(st.just("return"), st.lists(paths, max_size=3), st.lists(paths, max_size=3), st.lists(paths))
steps = st.lists(
    st.tuples(st.booleans(), st.one_of(bursts, bursts, bursts, logins, returns, st.just(("close",)))),
    min_size=1,
    max_size=10,
)


class Transcript:
    """Sends steps to one server and records its responses, in a form that is equal for both servers."""

    def __init__(self, connect: str, root: str) -> None:
        self._connect = connect
        self._root = root
        self._base_zxid = 0
        self._seen = [0, 0]
        self._certain = True
        self._owners: dict[int, str] = {0: "nobody"}
        self._clients: list[WireClient] = []

    async def run(self, sequence: list[tuple[bool, Any]]) -> list[Any]:
        self._clients = [await self._begin(), await self._begin()]
        made = await self._clients[0].ask(w.CREATE, w.create(self._root))
        self._base_zxid = made.zxid
        try:
            lines = [await self._step(int(second), step) for second, step in sequence]
            return [*lines, await self._leave(0), await self._leave(1)]
        finally:
            for client in self._clients:
                await client.leave()  # an open session would take a zxid of a later transcript when it expires

    async def _step(self, index: int, step: Any) -> Any:
        match step:
            case ("close",):
                left = await self._leave(index)
                self._clients[index], self._seen[index] = await self._begin(), 0
                return left, await self._received(1 - index)
            case ("login", credentials):
                # Alone: ZooKeeper sends this response before those to earlier requests.
                self._clients[index].send(w.AUTH, w.auth("digest", credentials), xid=-4)
                return await self._clients[index].reply()
            case ("return", *watches):
                return await self._return(index, watches)
            case burst:
                return await self._burst(index, burst)

    async def _begin(self) -> WireClient:
        client = await WireClient.begin(self._connect)
        self._owners[client.session.session_id] = f"session {len(self._owners)}"
        assert client.session.password == password_of(client.session.session_id)
        assert (client.session.timeout_ms, client.session.tail) == (10_000, b"\0")
        return client

    async def _burst(self, index: int, burst: list[Request]) -> Any:
        kinds = {self._clients[index].send(request[0], self._body(request)): request[0] for request in burst}
        lines = [self._line(index, reply, kinds) for reply in await self._clients[index].until_pong()]
        return lines, await self._received(1 - index)

    async def _leave(self, index: int) -> Any:
        client = self._clients[index]
        xid = client.send(w.CLOSE)
        while (reply := await client.reply()).xid != xid:
            assert reply.xid == w.WATCH_XID
        return self._line(index, reply, {}), await client.rest()

    async def _return(self, index: int, watches: list[list[str]]) -> Any:
        """The client loses its connection and comes back with its session and watches."""
        before = self._clients[index]
        before.cut()
        client = self._clients[index] = await WireClient.open(self._connect)
        again = await client.greet(10_000, before.session.session_id, before.session.password)
        below = [[self._root + path for path in each] for each in watches]
        client.send(w.SET_WATCHES, w.set_watches(self._seen[index], *below), xid=-8)
        lines = [self._line(index, reply, {}) for reply in await client.until_pong()]
        return again == before.session, lines, await self._received(1 - index)

    async def _received(self, index: int) -> list[Any]:
        return [self._line(index, reply, {}) for reply in await self._clients[index].until_pong()]

    def _body(self, request: Request) -> bytes:
        kind, *fields = request
        if kind == w.MULTI:
            return w.multi(*((operation[0], self._body(operation)) for operation in fields[0]))
        path = self._root + fields[0]
        match kind:
            case w.CREATE | w.CREATE_2:
                return w.create(path, *fields[1:])
            case w.SET_DATA:
                return w.set_data(path, *fields[1:])
            case w.DELETE | w.CHECK:
                return w.delete(path, fields[1])
            case w.SET_ACL:
                return w.set_acl(path, *fields[1:])
            case w.GET_ACL | w.SYNC:
                return w.text(path)
            case _:
                return w.read(path, fields[1])

    # The parts of a response without ids and times

    def _line(self, index: int, reply: Reply, kinds: dict[int, int]) -> Any:
        kind = kinds.get(reply.xid, 0)
        if reply.error or (kind == w.MULTI and reply.body[:4] == struct.pack(">i", -1) and len(reply.body) > 9):
            self._certain = False
        elif kind in (w.CREATE, w.CREATE_2, w.SET_DATA, w.SET_ACL, w.DELETE, w.MULTI):
            self._certain = True
        zxid = None
        if reply.xid == w.WATCH_XID:
            assert reply.zxid == -1
        else:
            assert reply.zxid >= self._seen[index]
            self._seen[index] = reply.zxid
            zxid = reply.zxid - self._base_zxid if self._certain else None
        return reply.xid, zxid, reply.error, self._plain(kind, reply.body)

    def _plain(self, kind: int, body: bytes) -> Any:
        if not body:
            return b""
        match kind:
            case w.CREATE_2 | w.SET_DATA | w.SET_ACL | w.EXISTS | w.GET_DATA | w.GET_ACL:
                return self._short(body[: -_STAT.size]), self._stat(body[-_STAT.size :])
            case w.GET_CHILDREN:
                return self._names(body)
            case w.GET_CHILDREN_2:
                return self._names(body[: -_STAT.size]), self._stat(body[-_STAT.size :])
            case w.MULTI:
                return self._results(body)
            case _:
                return self._short(body)

    def _results(self, body: bytes) -> list[Any]:
        results: list[Any] = []
        while True:
            header, body = body[:9], body[9:]
            kind, done, _ = struct.unpack(">ibi", header)
            size = 0
            if kind in (w.CREATE, w.CREATE_2):
                size = 4 + int.from_bytes(body[:4], "big") + (_STAT.size if kind == w.CREATE_2 else 0)
            elif kind == w.SET_DATA:
                size = _STAT.size
            elif kind == -1 and not done:
                size = 4
            results.append((header, self._plain(kind, body[:size]) if size > 4 else body[:size]))
            body = body[size:]
            if done:
                return [*results, body]

    def _stat(self, stat: bytes) -> Any:
        czxid, mzxid, ctime, mtime, *counts, owner, length, children, pzxid = _STAT.unpack(stat)
        zxids = [zxid - self._base_zxid for zxid in (czxid, mzxid, pzxid)]
        return zxids, ctime > 0, mtime > 0, counts, self._owners[owner], length, children

    def _names(self, body: bytes) -> list[bytes]:
        names: list[bytes] = []
        count, rest = int.from_bytes(body[:4], "big"), body[4:]
        for _ in range(count):
            size = int.from_bytes(rest[:4], "big")
            names.append(rest[4 : 4 + size])
            rest = rest[4 + size :]
        return [*sorted(names), rest]

    def _short(self, body: bytes) -> bytes:
        return body.replace(self._root.encode(), b"")


@pytest.fixture(scope="module")
def real(zookeeper: ZooKeeperServer) -> str:
    """The real ZooKeeper's host:port. It rejects connections for a moment after its start; kazoo retries."""
    client = KazooClient(zookeeper.connect)
    client.start()
    client.stop()
    client.close()
    return zookeeper.connect


async def _compare(real: str, sequence: list[tuple[bool, Any]]) -> None:
    # The same length everywhere, because responses contain paths with their lengths.
    root = f"/wire-{next(_roots):06}"
    async with closing_connections(), serving() as ours:
        assert await Transcript(ours, root).run(sequence) == await Transcript(real, root).run(sequence)


@settings(
    max_examples=75,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(sequence=steps)
def test_the_server_answers_as_zookeeper_does(real: str, sequence: list[tuple[bool, Any]]) -> None:
    asyncio.run(_compare(real, sequence))
