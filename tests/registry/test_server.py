"""The server of the embedded tree over raw bytes: sessions and their end, order, limits, and bytes of other protocols.

test_server_against_zookeeper.py compares its responses with ZooKeeper's; test_contract.py checks the contract over
kazoo. Time is a number here that the tests set.
"""

from __future__ import annotations

import asyncio
import itertools
import struct
import threading
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from odradek.broker.registry.embedded import EmbeddedEnsemble
from odradek.broker.registry.interface import ANY_VERSION, NoNodeError
from odradek.broker.registry.server import RegistryServer
from tests.registry import wire_client as w
from tests.registry.simulated_disk import SimulatedDisk
from tests.registry.wire_client import WireClient

# Far more than the duration of a test, so that only the tests' own clock expires sessions.
TICK_MS = 100_000
SHORTEST_MS, LONGEST_MS = 2 * TICK_MS, 20 * TICK_MS
NO_NODE, BAD_VERSION, NOT_EMPTY, NODE_EXISTS, BAD_ARGUMENTS = -101, -103, -111, -110, -8
MARSHALLING, UNIMPLEMENTED, INVALID_ACL = -5, -6, -114
CREATED, DELETED, CHANGED, CHILDREN_CHANGED = 1, 2, 3, 4


class Served:
    """An ensemble and its server, under a clock that stands still until it is set."""

    def __init__(self, disk: SimulatedDisk | None = None, background: Any = None) -> None:
        self.now_ms = 0.0
        self.disk = disk or SimulatedDisk()
        self.ensemble = EmbeddedEnsemble(
            self.disk,
            "/registry",
            now_ms=itertools.count(1_700_000_000_000).__next__,
            keep_sessions=True,
            **({} if background is None else {"background": background}),
        )
        self.server = RegistryServer(self.ensemble, tick_ms=TICK_MS, monotonic_ms=lambda: self.now_ms)
        self.connect = ""

    async def start(self) -> None:
        self.connect = f"127.0.0.1:{await self.server.start('127.0.0.1', 0)}"

    def pass_ms(self, time_ms: int) -> None:
        """Let time pass, tick by tick."""
        for _ in range(time_ms // TICK_MS):
            self.now_ms += TICK_MS
            self.server.sweep()

    async def close(self) -> None:
        await self.server.close()
        await self.ensemble.close()


@pytest.fixture
async def served() -> AsyncIterator[Served]:
    running = Served()
    await running.start()
    yield running
    await running.close()


@pytest.fixture
async def client(served: Served) -> WireClient:
    """A session that lives longer than the others."""
    return await WireClient.begin(served.connect, LONGEST_MS)


# Handshakes


@pytest.mark.parametrize(
    ("asked_ms", "granted_ms"),
    [(0, SHORTEST_MS), (-5, SHORTEST_MS), (SHORTEST_MS + 1, SHORTEST_MS + 1), (2**31 - 1, LONGEST_MS)],
)
async def test_the_timeout_is_between_two_and_twenty_ticks(served: Served, asked_ms: int, granted_ms: int) -> None:
    client = await WireClient.begin(served.connect, asked_ms)
    assert client.session.timeout_ms == granted_ms
    assert client.session.session_id > 0
    assert len(client.session.password) == 16


async def test_an_old_client_receives_no_read_only_flag(served: Served) -> None:
    client = await WireClient.open(served.connect)
    assert (await client.greet(SHORTEST_MS, tail=b"")).tail == b""


@pytest.mark.parametrize("password", [bytes(16), b"", b"x" * 500])
async def test_a_session_needs_its_password(served: Served, client: WireClient, password: bytes) -> None:
    thief = await WireClient.open(served.connect)
    assert await thief.greet(SHORTEST_MS, client.session.session_id, password) == (0, 0, bytes(16), b"\0")
    assert await thief.rest() == b""
    assert (await client.ask(w.PING, xid=w.PING_XID)).error == 0


async def test_an_unknown_session_is_expired(served: Served) -> None:
    client = await WireClient.open(served.connect)
    assert await client.greet(SHORTEST_MS, 77, bytes(16)) == (0, 0, bytes(16), b"\0")
    assert await client.rest() == b""


async def test_a_session_moves_to_the_newest_connection(served: Served, client: WireClient) -> None:
    await client.ask(w.CREATE, w.create("/e", flags=1))
    await client.ask(w.GET_DATA, w.read("/", watch=True))
    second = await WireClient.open(served.connect)
    again = await second.greet(LONGEST_MS, client.session.session_id, client.session.password)
    assert again == client.session
    assert await client.rest() == b""
    # The watch belonged to the old connection.
    assert (await second.ask(w.SET_DATA, w.set_data("/", b"1"))).error == 0
    assert (await second.ask(w.GET_DATA, w.read("/e"))).error == 0


async def test_a_silent_connection_is_closed(served: Served) -> None:
    client = await WireClient.open(served.connect)
    client.send_bytes(b"\0\0")
    other = await WireClient.begin(served.connect)  # by now the first is registered
    served.now_ms += 10_001
    served.server.sweep()
    assert await client.rest() == b""
    assert (await other.ask(w.PING, xid=w.PING_XID)).error == 0


# The end of sessions


async def test_a_silent_session_expires(served: Served, client: WireClient) -> None:
    silent = await WireClient.begin(served.connect, SHORTEST_MS)
    await silent.ask(w.CREATE, w.create("/e", flags=1))
    await client.ask(w.EXISTS, w.read("/e", watch=True))
    served.pass_ms(TICK_MS)
    await silent.ask(w.PING, xid=w.PING_XID)
    served.pass_ms(TICK_MS)
    assert await client.until_pong() == []
    served.pass_ms(TICK_MS)
    assert await silent.rest() == b""
    assert (await client.reply()).body == w.watch_body(DELETED, "/e")
    back = await WireClient.open(served.connect)
    assert (await back.greet(SHORTEST_MS, silent.session.session_id, silent.session.password)).timeout_ms == 0


async def test_a_session_without_a_connection_lives_on_for_its_timeout(served: Served, client: WireClient) -> None:
    lost = await WireClient.begin(served.connect, SHORTEST_MS + TICK_MS)
    await lost.ask(w.CREATE, w.create("/e", flags=1))
    lost.cut()
    served.pass_ms(2 * TICK_MS)
    back = await WireClient.open(served.connect)
    assert await back.greet(SHORTEST_MS, lost.session.session_id, lost.session.password) == lost.session._replace(
        timeout_ms=SHORTEST_MS
    )
    assert (await back.ask(w.EXISTS, w.read("/e", watch=True))).error == 0
    back.cut()
    served.pass_ms(TICK_MS)
    assert (await client.ask(w.EXISTS, w.read("/e"))).error == 0
    served.pass_ms(TICK_MS)
    assert (await client.ask(w.EXISTS, w.read("/e"))).error == NO_NODE


async def test_after_a_pause_the_server_extends_sessions_by_it(served: Served, client: WireClient) -> None:
    served.now_ms += 50 * TICK_MS
    served.server.sweep()
    assert (await client.ask(w.PING, xid=w.PING_XID)).error == 0
    served.pass_ms(LONGEST_MS)
    assert await client.rest() == b""


async def test_a_session_that_is_closing_does_not_keep_the_others_alive() -> None:
    gate = Gate()
    served = Served(background=gate)
    await served.start()
    ended, silent = [await WireClient.begin(served.connect, SHORTEST_MS) for _ in range(2)]
    gate.shut()
    ending = asyncio.create_task(served.ensemble.expire(ended.session.session_id))
    await gate.waiting.wait()
    served.pass_ms(SHORTEST_MS)
    assert await silent.rest() == b""
    gate.open()
    await ending
    assert await ended.rest() == b""
    await served.close()


async def test_a_closed_session_removes_its_nodes(served: Served, client: WireClient) -> None:
    other = await WireClient.begin(served.connect)
    for path in ("/e2", "/e1"):
        await other.ask(w.CREATE, w.create(path, flags=1))
        await client.ask(w.EXISTS, w.read(path, watch=True))
    assert (await other.ask(w.CLOSE)).error == 0
    assert await other.rest() == b""
    assert [(await client.reply()).body for _ in range(2)] == [w.watch_body(DELETED, path) for path in ("/e1", "/e2")]


async def test_sessions_survive_the_server(served: Served, client: WireClient) -> None:
    gone = await WireClient.begin(served.connect, SHORTEST_MS)
    for owner, path in ((client, "/mine"), (gone, "/gone")):
        await owner.ask(w.CREATE, w.create(path, flags=1))
    before = await client.ask(w.EXISTS, w.read("/mine"))
    await served.close()
    assert await client.rest() == b""

    after = Served(served.disk)
    await after.start()
    after.pass_ms(TICK_MS)
    back = await WireClient.open(after.connect)
    assert await back.greet(LONGEST_MS, client.session.session_id, client.session.password) == client.session
    assert (await back.ask(w.EXISTS, w.read("/mine"))).body == before.body
    assert (await back.ask(w.EXISTS, w.read("/gone", watch=True))).error == 0
    after.pass_ms(TICK_MS)
    assert (await back.reply()).body == w.watch_body(DELETED, "/gone")
    new = await WireClient.begin(after.connect)
    assert new.session.session_id not in (client.session.session_id, gone.session.session_id)
    await after.close()


async def test_a_server_does_not_expire_the_sessions_of_its_own_process(served: Served) -> None:
    ensemble = EmbeddedEnsemble.in_memory(now_ms=lambda: 1)
    registry = await ensemble.connect(timeout_ms=1)
    now_ms = [0.0]
    server = RegistryServer(ensemble, tick_ms=TICK_MS, monotonic_ms=lambda: now_ms[0])
    connect = f"127.0.0.1:{await server.start('127.0.0.1', 0)}"
    client = await WireClient.begin(connect)
    await registry.create("/e", ephemeral=True)
    for _ in range(3):
        now_ms[0] += TICK_MS
        server.sweep()
    assert await client.rest() == b""
    assert await registry.exists("/e") is not None
    await server.close()
    await ensemble.close()


# Order


class Gate:
    """A disk's background that holds every write back while it is closed. Writes run in order, as on the disk."""

    def __init__(self) -> None:
        self._open = asyncio.Event()
        self._open.set()
        self.waiting = asyncio.Event()

    def shut(self) -> None:
        self._open.clear()

    def open(self) -> None:
        self._open.set()

    async def __call__(self, call: Callable[[], None]) -> None:
        if not self._open.is_set():
            self.waiting.set()
        await self._open.wait()
        call()


async def test_a_watch_event_is_sent_between_the_response_that_set_it_and_the_one_that_shows_the_change() -> None:
    gate = Gate()
    served = Served(background=gate)
    await served.start()
    reader, writer = await WireClient.begin(served.connect), await WireClient.begin(served.connect)
    await writer.ask(w.CREATE, w.create("/a", b"old"))
    gate.shut()
    writer.send(w.CREATE, w.create("/first"))
    await gate.waiting.wait()
    # All of this goes to the disk in the next write, and the client is notified after it.
    await send_and_see_taken(served, writer, (w.CREATE, w.create("/second")))
    await send_and_see_taken(served, reader, (w.GET_DATA, w.read("/a", watch=True)))
    await send_and_see_taken(served, writer, (w.SET_DATA, w.set_data("/a", b"new")))
    await send_and_see_taken(served, reader, (w.GET_DATA, w.read("/a")))
    gate.open()
    received = [await reader.reply() for _ in range(3)]
    assert [reply.xid for reply in received] == [1, w.WATCH_XID, 2]
    assert received[0].body.startswith(w.buffer(b"old"))
    assert received[1].body == w.watch_body(CHANGED, "/a")
    assert received[2].body.startswith(w.buffer(b"new"))
    await served.close()


async def send_and_see_taken(served: Served, client: WireClient, request: tuple[int, bytes]) -> None:
    """Send a request and return when the server has received it, possibly before its response."""
    before = await received(served)
    client.send(*request)
    async with asyncio.timeout(30):
        while await received(served) == before:
            pass  # the request took a turn of the loop


async def received(served: Served) -> int:
    """The number of packets that the server has received."""
    return count_in(await say(served, b"srvr"))


def count_in(described: str) -> int:
    (line,) = [line for line in described.splitlines() if line.startswith("Received: ")]
    return int(line.removeprefix("Received: "))


async def say(served: Served, word: bytes) -> str:
    client = await WireClient.open(served.connect)
    client.send_bytes(word)
    answer = await client.rest()
    client.cut()
    return answer.decode()


async def test_a_burst_is_answered_in_order(client: WireClient) -> None:
    xids = [client.send(w.CREATE, w.create(f"/n{number}")) for number in range(3000)]
    assert [(await client.reply()).xid for _ in xids] == xids


async def test_a_burst_lets_other_clients_in_between(served: Served, client: WireClient) -> None:
    other = await WireClient.open(served.connect)
    before, burst = await received(served), 5_000
    client.send_bytes(struct.pack(">iii", 8, w.PING_XID, w.PING) * burst)
    other.send_bytes(b"srvr")
    assert before < count_in((await other.rest()).decode()) < before + burst
    assert [(await client.reply()).xid for _ in range(burst)] == [w.PING_XID] * burst


async def test_missed_watches_fire_on_reconnection(served: Served, client: WireClient) -> None:
    for path in ("/changed", "/gone", "/parent", "/calm"):
        await client.ask(w.CREATE, w.create(path))
    away = await WireClient.begin(served.connect)
    seen = (await away.ask(w.EXISTS, w.read("/calm"))).zxid
    away.cut()
    await client.ask(w.SET_DATA, w.set_data("/changed", b"1"))
    await client.ask(w.DELETE, w.delete("/gone"))
    await client.ask(w.CREATE, w.create("/parent/child"))
    await client.ask(w.CREATE, w.create("/new"))
    back = await WireClient.open(served.connect)
    await back.greet(10_000, away.session.session_id, away.session.password)
    watches = w.set_watches(seen, ["/changed", "/calm"], ["/new", "/later"], ["/gone", "/parent", "/calm"])
    back.send(w.SET_WATCHES_2, watches + w.texts([]) * 2, xid=-8)
    notified = [await back.reply() for _ in range(5)]
    assert [reply.body for reply in notified] == [
        w.watch_body(CHANGED, "/changed"),
        w.watch_body(CREATED, "/new"),
        w.watch_body(DELETED, "/gone"),
        w.watch_body(CHILDREN_CHANGED, "/parent"),
        b"",
    ]
    assert (notified[-1].xid, notified[-1].error) == (-8, 0)
    for kind, body in ((w.CREATE, w.create("/later")), (w.DELETE, w.delete("/calm"))):
        await client.ask(kind, body)
    assert [reply.body for reply in await back.until_pong()] == [
        w.watch_body(CREATED, "/later"),
        w.watch_body(DELETED, "/calm"),
    ]


async def test_no_write_after_a_restart_hides_behind_one_that_failed_before(served: Served, client: WireClient) -> None:
    await client.ask(w.CREATE, w.create("/a"))
    for _ in range(5):
        seen = await client.ask(w.CREATE, w.create("/a"))
        assert seen.error == NODE_EXISTS
    await served.close()
    after = Served(served.disk)
    await after.start()
    other = await WireClient.begin(after.connect)
    await other.ask(w.SET_DATA, w.set_data("/a", b"unseen"))
    back = await WireClient.open(after.connect)
    await back.greet(LONGEST_MS, client.session.session_id, client.session.password)
    back.send(w.SET_WATCHES, w.set_watches(seen.zxid, ["/a"], [], []), xid=-8)
    assert (await back.reply()).body == w.watch_body(CHANGED, "/a")
    await after.close()


# Refusals


@pytest.mark.parametrize(
    ("kind", "body", "error"),
    [
        (w.CREATE, w.text("/a") + w.buffer(b"") + w.acl([]) + bytes(4), INVALID_ACL),
        (w.CREATE, w.text("/a") + w.buffer(b"") + w.acl([(31, "auth", "")]) + bytes(4), INVALID_ACL),
        (w.CREATE_2, w.text("/a") + w.buffer(b"") + w.acl([(31, "digest", "a")]) + bytes(4), INVALID_ACL),
        (w.SET_ACL, w.text("/") + w.acl([(31, "ip", "::x")]) + struct.pack(">i", -1), INVALID_ACL),
        (w.SET_ACL, w.text("/") + w.acl(w.WORLD) + struct.pack(">i", 3), BAD_VERSION),
        (w.SET_ACL, w.text("/a") + w.acl(w.WORLD) + struct.pack(">i", -1), NO_NODE),
        (w.GET_ACL, w.text("/a"), NO_NODE),
        (w.CREATE, w.create("/a", flags=7), BAD_ARGUMENTS),
        (w.CREATE, w.create("/a", flags=-1), BAD_ARGUMENTS),
        (w.CREATE, w.create("/a", flags=4), UNIMPLEMENTED),
        (w.CREATE_CONTAINER, w.create("/a", flags=4), UNIMPLEMENTED),
        (w.CREATE_TTL, w.create("/a", flags=5) + bytes(8), UNIMPLEMENTED),
        (w.SET_WATCHES_2, w.set_watches(0, [], [], []) + w.texts(["/a"]) + w.texts([]), UNIMPLEMENTED),
        (107, b"", UNIMPLEMENTED),
        (99, b"whatever", UNIMPLEMENTED),
        (w.CREATE, w.create("a"), BAD_ARGUMENTS),
        (w.CREATE, w.create("/a/../b"), BAD_ARGUMENTS),
        (w.DELETE, w.delete("/"), BAD_ARGUMENTS),
        (w.GET_DATA, w.read("/a//b"), BAD_ARGUMENTS),
        (w.CREATE, b"", MARSHALLING),
        (w.CREATE, struct.pack(">i", 2**31 - 1), MARSHALLING),
        (w.GET_DATA, struct.pack(">i", -1) + b"\0", MARSHALLING),
        (w.GET_DATA, w.buffer(b"\xff\xfe") + b"\0", MARSHALLING),
        (w.MULTI, w.multi((77, b"")), MARSHALLING),
        (w.MULTI, struct.pack(">ibi", w.DELETE, 0, -1), MARSHALLING),
        (w.SET_WATCHES, struct.pack(">qi", 0, 2**31 - 1), MARSHALLING),
    ],
)
async def test_invalid_requests_are_answered_with_their_codes(
    client: WireClient, kind: int, body: bytes, error: int
) -> None:
    reply = await client.ask(kind, body)
    assert (reply.error, reply.body) == (error, b"")
    assert (await client.ask(w.EXISTS, w.read("/a"))).error == NO_NODE


async def test_a_transaction_returns_the_result_of_each_operation(client: WireClient) -> None:
    container = w.create("/c", flags=4)
    request = w.multi((w.CREATE, w.create("/a")), (w.CREATE_CONTAINER, container), (w.DELETE, w.delete("/a")))
    reply = await client.ask(w.MULTI, request)
    assert reply.error == 0
    assert reply.body == b"".join(
        struct.pack(">ibii", -1, 0, code, code) for code in (0, UNIMPLEMENTED, -2)
    ) + struct.pack(">ibi", -1, 1, -1)
    assert (await client.ask(w.EXISTS, w.read("/a"))).error == NO_NODE


async def test_every_client_has_all_permissions(client: WireClient) -> None:
    auth = struct.pack(">i", 0) + w.text("digest") + w.buffer(b"user:secret")
    assert (await client.ask(w.AUTH, auth, xid=-4)).error == 0
    reply = await client.ask(w.GET_ACL, w.text("/"))
    assert reply.body.startswith(w.acl(w.WORLD))
    assert (await client.ask(w.SET_ACL, w.text("/") + w.acl(w.WORLD) + bytes(4))).error == 0


async def test_four_letter_words(served: Served, client: WireClient) -> None:
    await client.ask(w.CREATE, w.create("/a"))
    assert await say(served, b"ruok") == "imok"
    lines = (await say(served, b"srvr")).splitlines()
    assert lines[0].startswith("Zookeeper version: 3.8.4")
    assert {"Mode: standalone", "Node count: 5", "Connections: 2", "Zxid: 0x2"} <= set(lines)


@pytest.mark.parametrize(
    "sent",
    [
        struct.pack(">i", -1),
        struct.pack(">i", 0),
        struct.pack(">i", 0x100000),
        b"GET / HTTP/1.1\r\n\r\n",
        struct.pack(">i", 7) + bytes(7),
        struct.pack(">iiqiqi", 28, 0, 0, 1000, 0, 2**31 - 1),
    ],
)
async def test_an_invalid_handshake_closes_its_connection_only(served: Served, client: WireClient, sent: bytes) -> None:
    stranger = await WireClient.open(served.connect)
    stranger.send_bytes(sent)
    assert await stranger.rest() == b""
    assert (await client.ask(w.PING, xid=w.PING_XID)).error == 0


@pytest.mark.parametrize("sent", [struct.pack(">i", -1), struct.pack(">i", 0x100000), struct.pack(">i", 3) + b"abc"])
async def test_an_invalid_packet_closes_the_connection_and_not_the_session(
    served: Served, client: WireClient, sent: bytes
) -> None:
    await client.ask(w.CREATE, w.create("/e", flags=1))
    client.send_bytes(sent)
    assert await client.rest() == b""
    back = await WireClient.open(served.connect)
    assert await back.greet(LONGEST_MS, client.session.session_id, client.session.password) == client.session
    assert (await back.ask(w.EXISTS, w.read("/e"))).error == 0


async def test_the_largest_packet_is_accepted(client: WireClient) -> None:
    room = 0xFFFFF - 8 - len(w.set_data("/", b""))
    assert (await client.ask(w.SET_DATA, w.set_data("/", b"x" * room))).error == 0
    reply = await client.ask(w.GET_DATA, w.read("/"))
    assert reply.body.startswith(w.buffer(b"x" * room))


kinds = st.sampled_from([*range(-12, 23), *range(99, 108)])
bodies = st.one_of(
    st.binary(max_size=60),
    st.builds(lambda path, rest: w.text(path) + rest, st.sampled_from(["/", "/a", "a", ""]), st.binary(max_size=40)),
    st.builds(w.create, st.text(max_size=4), st.binary(max_size=9), st.integers(-2, 9)),
    st.builds(lambda kind, body: w.multi((kind, body)), st.integers(-3, 24), st.binary(max_size=30)),
)
packets = st.one_of(
    st.builds(
        lambda kind, body: struct.pack(">ii", 1, kind) + body, kinds.filter(lambda kind: kind != w.CLOSE), bodies
    ),
    st.binary(max_size=80),
)


async def _fuzz(streams: list[list[bytes]], tail: bytes) -> None:
    failures: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: failures.append(context))
    served = Served()
    await served.start()
    witness = await WireClient.begin(served.connect)
    for stream in streams:
        client = await WireClient.begin(served.connect)
        for packet in stream:
            client.send_frame(packet)
        client.send_bytes(tail + struct.pack(">i", -1))  # an invalid length closes the connection after any requests
        await client.rest()
        client.cut()
        assert (await witness.ask(w.PING, xid=w.PING_XID)).error == 0
    witness.cut()
    await served.close()
    Served(served.disk).ensemble.tree_and_watches()  # and the journal can still be read
    assert failures == []


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(streams=st.lists(st.lists(packets, max_size=8), min_size=1, max_size=3), tail=st.binary(max_size=3))
def test_no_bytes_affect_the_other_clients(streams: list[list[bytes]], tail: bytes) -> None:
    asyncio.run(_fuzz(streams, tail))


# Limits and failures


async def until_no_more_is_taken(served: Served, before: int) -> int:
    """Wait until the server has received more packets than `before`, and then none between two checks."""
    taken = before
    async with asyncio.timeout(30):
        while (now := await received(served)) > taken or taken == before:
            taken = now
    return taken


@pytest.mark.slow
@pytest.mark.parametrize("at_once", [True, False])
async def test_the_server_stops_reading_from_a_client_that_does_not_read(
    served: Served, client: WireClient, at_once: bool
) -> None:
    await client.ask(w.CREATE, w.create("/large", b"x" * 1_000_000))
    before = await received(served)
    packet = struct.pack(">ii", 7, w.GET_DATA) + w.read("/large")
    request = struct.pack(">i", len(packet)) + packet
    count = 500
    for part in [request * count] if at_once else [request] * count:
        client.send_bytes(part)
    # The requests are for 500 MB of responses. The server reads requests until its responses pile up.
    taken = await until_no_more_is_taken(served, before)
    assert before < taken < before + 50
    other = await WireClient.begin(served.connect)
    assert (await other.ask(w.PING, xid=w.PING_XID)).error == 0
    # Nothing is lost, though: as soon as it reads, the client receives all of them.
    assert [len((await client.reply()).body) for _ in range(count)] == [4 + 1_000_000 + 68] * count


async def test_a_slow_disk_delays_a_client_with_many_requests() -> None:
    gate = Gate()
    served = Served(background=gate)
    await served.start()
    client = await WireClient.begin(served.connect)
    await client.ask(w.CREATE, w.create("/large", b"x" * 1_000_000))
    gate.shut()
    client.send(w.CREATE, w.create("/a"))
    await gate.waiting.wait()
    before = await received(served)
    count = 100
    for _ in range(count):
        client.send(w.GET_DATA, w.read("/large"))
    taken = await until_no_more_is_taken(served, before)
    assert before < taken < before + 10
    gate.open()
    assert [(await client.reply()).xid for _ in range(count + 1)] == list(range(2, count + 3))
    await served.close()


async def test_a_failing_disk_closes_all_connections(served: Served, client: WireClient) -> None:
    other = await WireClient.begin(served.connect)
    served.disk.fail_after = 0
    client.send(w.CREATE, w.create("/a"))
    assert await client.rest() == b""
    assert await other.rest() == b""
    late = await WireClient.open(served.connect)
    late.send_frame(struct.pack(">iqiq", 0, 0, 1000, 0) + w.buffer(bytes(16)) + b"\0")
    assert await late.rest() == b""
    served.disk.fail_after = None


async def test_a_tree_in_memory_needs_no_disk_and_no_thread() -> None:
    threads = threading.active_count()
    ensemble = EmbeddedEnsemble.in_memory(now_ms=lambda: 1)
    server = RegistryServer(ensemble)
    client = await WireClient.begin(f"127.0.0.1:{await server.start('127.0.0.1', 0)}")
    assert (await client.ask(w.CREATE, w.create("/a", b"1"))).error == 0
    registry = await ensemble.connect()
    assert (await registry.get("/a"))[0] == b"1"
    await registry.delete("/a", ANY_VERSION)
    with pytest.raises(NoNodeError):
        await registry.get("/a")
    assert threading.active_count() == threads
    await server.close()
    await ensemble.close()
