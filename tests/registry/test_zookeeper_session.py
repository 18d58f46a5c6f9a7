"""Events that only a session over a network can have: servers that die and forget, connections cut, clients paused."""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
import socket
import struct
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from odradek.broker.registry import zookeeper as registry_in_zookeeper
from odradek.broker.registry.interface import (
    BadArgumentsError,
    ConnectionLossError,
    Create,
    Delete,
    Event,
    EventKind,
    NodeExistsError,
    Registry,
    SessionExpiredError,
    SessionState,
    Set,
)
from odradek.ports import free_port
from tests.jvm.process import BackgroundProcess
from tests.registry.kazoo_registry import KazooEnsemble
from tests.registry.zookeeper_server import ZooKeeperServer

pytestmark = pytest.mark.jvm

SHORT_MS = 1000  # the least that the server grants
LONG_MS = 10_000
_roots = itertools.count()


class States:
    """A session's listener; a test waits for the state that it needs."""

    def __init__(self, registry: Registry) -> None:
        self.received: list[SessionState] = []
        self._arrived = asyncio.Event()
        registry.add_listener(self._hear)

    def _hear(self, state: SessionState) -> None:
        self.received.append(state)
        self._arrived.set()

    async def until(self, state: SessionState) -> None:
        async with asyncio.timeout(30):
            while state not in self.received:
                self._arrived.clear()
                await self._arrived.wait()


class Received:
    """A watcher that records its events and lets a test wait for the first."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self._arrived = asyncio.Event()

    def __call__(self, event: Event) -> None:
        self.events.append(event)
        self._arrived.set()

    async def first(self) -> Event:
        await asyncio.wait_for(self._arrived.wait(), 30)
        return self.events[0]


@pytest.fixture
async def ensemble(zookeeper: ZooKeeperServer) -> AsyncIterator[KazooEnsemble]:
    """Sessions over a link that can be cut."""
    sessions = KazooEnsemble(zookeeper.connect)
    yield sessions
    await sessions.close()


@pytest.fixture
async def other(zookeeper: ZooKeeperServer) -> AsyncIterator[Registry]:
    """A session with a connection of its own, independent of the link."""
    registry = await registry_in_zookeeper.connect(
        zookeeper.connect, session_timeout_ms=LONG_MS, connection_timeout_ms=30_000
    )
    yield registry
    await registry.close()


@pytest.fixture
async def root(other: Registry) -> str:
    """A node that no other test uses."""
    return (await other.create(f"/session-{next(_roots)}")).path


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[ZooKeeperServer]:
    """A server that a test may end."""
    server = ZooKeeperServer(tmp_path, tmp_path / "data")
    try:
        server.start()
        yield server
    finally:
        server.stop()


def _zookeeper_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "zookeeper"]


# Servers


async def test_a_session_survives_its_server(own_server: ZooKeeperServer) -> None:
    registry = await registry_in_zookeeper.connect(
        own_server.connect, session_timeout_ms=LONG_MS, connection_timeout_ms=30_000
    )
    states, changed, deleted = States(registry), Received(), Received()
    session_id = registry.session_id
    await registry.create("/a", b"1")
    created = await registry.create("/e", ephemeral=True)
    await registry.get("/a", changed)
    await registry.exists("/e", deleted)
    own_server.stop()
    await states.until(SessionState.SUSPENDED)
    with pytest.raises(ConnectionLossError):
        await registry.set("/a", b"lost")
    await asyncio.to_thread(own_server.start)
    await states.until(SessionState.CONNECTED)
    assert (registry.session_id, await registry.exists("/e")) == (session_id, created.stat)
    assert (changed.events, deleted.events) == ([], [])
    await registry.set("/a", b"2", version=0)
    assert await changed.first() == Event(EventKind.DATA_CHANGED, "/a")
    await registry.delete("/e")
    assert await deleted.first() == Event(EventKind.DELETED, "/e")
    assert states.received == [SessionState.SUSPENDED, SessionState.CONNECTED]
    await registry.close()


async def test_a_server_without_the_session_ends_it(own_server: ZooKeeperServer, tmp_path: Path) -> None:
    registry = await registry_in_zookeeper.connect(
        own_server.connect, session_timeout_ms=LONG_MS, connection_timeout_ms=30_000
    )
    states = States(registry)
    own_server.stop()
    (tmp_path / "data").rename(tmp_path / "elsewhere")
    await asyncio.to_thread(own_server.start)
    await states.until(SessionState.EXPIRED)
    with pytest.raises(SessionExpiredError):
        await registry.exists("/")
    await registry.close()


async def test_unreachable_hosts_are_named() -> None:
    before = _zookeeper_threads()
    hosts = f"127.0.0.1:{free_port()},127.0.0.1:{free_port()}"
    with pytest.raises(ConnectionLossError, match=f"{hosts}.*300 ms.*refused"):
        await registry_in_zookeeper.connect(hosts, session_timeout_ms=LONG_MS, connection_timeout_ms=300)
    assert _zookeeper_threads() == before


async def test_a_server_that_accepts_and_does_not_answer_is_given_up() -> None:
    before = _zookeeper_threads()
    accepted: list[asyncio.StreamWriter] = []
    mute = await asyncio.start_server(lambda _, writer: accepted.append(writer), "127.0.0.1", 0)
    async with mute:
        host, port = mute.sockets[0].getsockname()
        with pytest.raises(ConnectionLossError, match=f"{host}:{port} within 300 ms"):
            await registry_in_zookeeper.connect(f"{host}:{port}", session_timeout_ms=60_000, connection_timeout_ms=300)
        assert _zookeeper_threads() == before
        for writer in accepted:
            writer.close()


@pytest.mark.parametrize("hosts", ["", "localhost:port", "localhost:2181/kafka"])
async def test_invalid_hosts_are_refused(hosts: str) -> None:
    with pytest.raises(BadArgumentsError):
        await registry_in_zookeeper.connect(hosts, session_timeout_ms=LONG_MS, connection_timeout_ms=300)


# Connections


async def test_watches_survive_a_connection(ensemble: KazooEnsemble, other: Registry, root: str) -> None:
    registry = await ensemble.connect()
    states = States(registry)
    for name in ("set", "gone", "again", "parent", "same", "gone-parent", "quiet-parent"):
        await other.create(f"{root}/{name}", b"1")
    names = ("set", "gone", "again", "came", "same")
    data = {name: Received() for name in names}
    children = {name: Received() for name in ("parent", "gone-parent", "quiet-parent")}
    both = Received()
    for name, received in data.items():
        await registry.exists(f"{root}/{name}", received)
    for name, received in children.items():
        await registry.children(f"{root}/{name}", received)
    await registry.get(f"{root}/gone", both)
    await registry.children(f"{root}/gone", both)
    ensemble.link.cut()
    await states.until(SessionState.SUSPENDED)
    await other.set(f"{root}/set", b"2")
    await other.delete(f"{root}/gone")
    await other.delete(f"{root}/again")
    await other.create(f"{root}/again")
    await other.create(f"{root}/came")
    await other.create(f"{root}/parent/child")
    await other.delete(f"{root}/gone-parent")
    ensemble.link.heal()
    await states.until(SessionState.CONNECTED)
    assert (await registry.get(f"{root}/set"))[0] == b"2"
    kinds = EventKind
    assert {name: [event.kind for event in received.events] for name, received in data.items()} == {
        "set": [kinds.DATA_CHANGED],
        "gone": [kinds.DELETED],
        "again": [kinds.DATA_CHANGED],
        "came": [kinds.CREATED],
        "same": [],
    }
    assert {name: [event.kind for event in received.events] for name, received in children.items()} == {
        "parent": [kinds.CHILDREN_CHANGED],
        "gone-parent": [kinds.DELETED],
        "quiet-parent": [],
    }
    assert both.events == [Event(EventKind.DELETED, f"{root}/gone")]
    # Watches that have not fired are set again; those that fired are not.
    await other.set(f"{root}/set", b"3")
    await other.set(f"{root}/same", b"2")
    await other.create(f"{root}/quiet-parent/child")
    assert await data["same"].first() == Event(EventKind.DATA_CHANGED, f"{root}/same")
    assert await children["quiet-parent"].first() == Event(EventKind.CHILDREN_CHANGED, f"{root}/quiet-parent")
    assert len(data["set"].events) == 1


async def test_a_write_in_flight_may_have_taken_effect(ensemble: KazooEnsemble, other: Registry, root: str) -> None:
    registry = await ensemble.connect()
    states, done = States(registry), Received()
    await other.exists(f"{root}/a", done)
    ensemble.link.hold_answers()
    write = asyncio.ensure_future(registry.create(f"{root}/a", ephemeral=True))
    waiting = asyncio.ensure_future(registry.get(root))
    await done.first()
    ensemble.link.cut()
    for call in (write, waiting):
        with pytest.raises(ConnectionLossError):
            await call
    await states.until(SessionState.SUSPENDED)
    ensemble.link.release_answers()
    ensemble.link.heal()
    await states.until(SessionState.CONNECTED)
    with pytest.raises(NodeExistsError):
        await registry.create(f"{root}/a", ephemeral=True)
    stat = await registry.exists(f"{root}/a")
    assert stat is not None
    assert stat.ephemeral_owner == registry.session_id


async def test_calls_without_a_connection_fail_at_once(ensemble: KazooEnsemble, root: str) -> None:
    registry = await ensemble.connect()
    states = States(registry)
    ensemble.link.cut()
    await states.until(SessionState.SUSPENDED)
    results = await asyncio.gather(*(registry.get(root) for _ in range(1000)), return_exceptions=True)
    assert {type(result) for result in results} == {ConnectionLossError}
    ensemble.link.heal()
    await states.until(SessionState.CONNECTED)
    assert (await registry.get(root))[0] == b""


async def test_many_calls_at_once_are_answered_in_order(ensemble: KazooEnsemble, root: str) -> None:
    registry = await ensemble.connect()
    order: list[int] = []

    async def write(number: int) -> None:
        await registry.set(root, b"%d" % number, version=number)
        order.append(number)

    await asyncio.gather(*(write(number) for number in range(3000)))
    assert order == list(range(3000))


async def test_a_session_that_expired_while_cut_off_ends(ensemble: KazooEnsemble, other: Registry, root: str) -> None:
    await ensemble.connect()  # starts the link
    link = ensemble.link
    registry = await registry_in_zookeeper.connect(
        f"{link.connect},{link.connect}", session_timeout_ms=SHORT_MS, connection_timeout_ms=30_000
    )
    states, gone, silent = States(registry), Received(), Received()
    await registry.create(f"{root}/e", ephemeral=True)
    await registry.exists(f"{root}/later", silent)
    await other.exists(f"{root}/e", gone)
    sessions = set(link.passwords)
    link.cut()
    await states.until(SessionState.SUSPENDED)
    assert await gone.first() == Event(EventKind.DELETED, f"{root}/e")
    assert registry.state is SessionState.SUSPENDED
    link.heal()
    await states.until(SessionState.EXPIRED)
    with pytest.raises(SessionExpiredError):
        await registry.create(f"{root}/e", ephemeral=True)
    await other.create(f"{root}/later")
    await registry.close()
    assert silent.events == []
    assert set(link.passwords) - {0} == sessions, "a second session was begun"
    assert states.received == [SessionState.SUSPENDED, SessionState.EXPIRED]


class ForgetfulServer:
    """Begins a session, drops it, answers that it has expired, and counts every later connection. It runs in a thread
    of its own, so a test can stand still meanwhile.
    """

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.connect = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self.drop, self.notified, self.asked_again = threading.Event(), threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        with self._accept(timeout_ms=LONG_MS):
            self.drop.wait(30)
        with self._accept(timeout_ms=0):
            self.notified.set()
        try:
            self._accept(timeout_ms=LONG_MS).close()
            self.asked_again.set()
        except OSError:
            return  # closed: no connection came

    def _accept(self, timeout_ms: int) -> socket.socket:
        connection, _ = self._listener.accept()
        connection.recv(1000)
        greeting = struct.pack(">iiqi", 0, timeout_ms, 77, 16) + bytes(17)
        connection.sendall(struct.pack(">i", len(greeting)) + greeting)
        return connection

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(30)


async def test_no_session_begins_before_the_owner_is_notified_of_the_end() -> None:
    server = ForgetfulServer()
    registry = await registry_in_zookeeper.connect(
        f"{server.connect},{server.connect},{server.connect}", session_timeout_ms=LONG_MS, connection_timeout_ms=30_000
    )
    states = States(registry)
    server.drop.set()
    # The loop stands still from here on: only kazoo's own thread runs.
    assert server.notified.wait(30)
    assert not server.asked_again.wait(0.5)
    await states.until(SessionState.EXPIRED)
    await registry.close()
    server.close()
    assert not server.asked_again.is_set()


async def test_a_session_that_is_cut_off_can_be_closed(ensemble: KazooEnsemble) -> None:
    registry = await ensemble.connect()
    states = States(registry)
    ensemble.link.cut()
    await states.until(SessionState.SUSPENDED)
    await registry.close()
    await states.until(SessionState.CLOSED)
    assert states.received == [SessionState.SUSPENDED, SessionState.CLOSED]


async def test_calls_before_a_close_are_answered(ensemble: KazooEnsemble, other: Registry, root: str) -> None:
    registry = await ensemble.connect()
    calls = [asyncio.ensure_future(registry.create(f"{root}/{number}")) for number in range(50)]
    await asyncio.sleep(0)  # each has been sent
    await registry.close()
    assert [(await call).path for call in calls] == [f"{root}/{number}" for number in range(50)]
    assert len((await other.children(root))[0]) == 50


async def test_a_client_paused_for_too_long_is_notified_of_the_expiration(
    zookeeper: ZooKeeperServer, other: Registry, root: str
) -> None:
    command = [sys.executable, "-m", "tests.registry.session_process", zookeeper.connect, str(SHORT_MS), f"{root}/e"]
    with BackgroundProcess(command) as process:
        await asyncio.to_thread(process.stdout.wait_for, "holding", 30)
        gone = Received()
        assert await other.exists(f"{root}/e", gone) is not None
        os.kill(process.pid, signal.SIGSTOP)
        assert await gone.first() == Event(EventKind.DELETED, f"{root}/e")
        os.kill(process.pid, signal.SIGCONT)
        lines = await asyncio.to_thread(process.stdout.wait_for_end, 30)
        assert lines[-1] == "expired"


# Paths and arguments


async def test_a_chroot_is_created_and_hides_the_nodes_above(
    zookeeper: ZooKeeperServer, other: Registry, root: str
) -> None:
    chroot = f"{root}/kafka/cluster"
    for _ in range(2):
        registry = await registry_in_zookeeper.connect(
            zookeeper.connect, chroot, session_timeout_ms=LONG_MS, connection_timeout_ms=30_000
        )
        await registry.close()
    registry = await registry_in_zookeeper.connect(
        zookeeper.connect, chroot + "/", session_timeout_ms=LONG_MS, connection_timeout_ms=30_000
    )
    received, above = Received(), Received()
    assert (await registry.children("/", above))[0] == []
    await registry.exists("/a", received)
    assert (await registry.create("/a", b"1")).path == "/a"
    assert await received.first() == Event(EventKind.CREATED, "/a")
    assert await above.first() == Event(EventKind.CHILDREN_CHANGED, "/")
    assert (await registry.create("/", sequential=True)).path == "/0000000001"
    assert await registry.multi([Create("/a/b"), Create("/a/n-", sequential=True), Delete("/a/b")]) == [
        "/a/b",
        "/a/n-0000000001",
        None,
    ]
    assert (await other.get(f"{chroot}/a"))[0] == b"1"
    assert (await other.get(root))[1].num_children == 1
    with pytest.raises(NodeExistsError):
        await registry.create("/")
    with pytest.raises(BadArgumentsError):
        await registry.delete("/")
    with pytest.raises(BadArgumentsError) as failure:
        await registry.multi([Delete("/a/n-0000000001"), Delete("/")])
    assert failure.value.index == 1
    assert (await registry.children("/a"))[0] == ["n-0000000001"]
    await registry.close()


async def test_a_transaction_supports_null_data_and_bare_numbers(ensemble: KazooEnsemble, root: str) -> None:
    registry = await ensemble.connect()
    made = await registry.multi(
        [Create(f"{root}/a", None), Create(f"{root}/", sequential=True), Create(f"{root}/b", b""), Set(root, None)]
    )
    assert made[:3] == [f"{root}/a", f"{root}/0000000001", f"{root}/b"]
    assert [(await registry.get(f"{root}{path}"))[0] for path in ("/a", "/b", "")] == [None, b"", None]


async def test_too_much_data_is_refused_and_the_session_continues(ensemble: KazooEnsemble, root: str) -> None:
    registry = await ensemble.connect()
    for call in (
        registry.create(f"{root}/a", b"x" * 0xFFFFF),
        registry.set(root, b"x" * 0xFFFFF),
        registry.multi([Create(f"{root}/a", b"x" * 600_000), Create(f"{root}/b", b"x" * 600_000)]),
    ):
        with pytest.raises(BadArgumentsError):
            await call
    largest = b"x" * (0xFFFFF - 64 - len(root))
    await registry.set(root, largest)
    assert (await registry.get(root))[0] == largest
    assert registry.state is SessionState.CONNECTED


@pytest.mark.parametrize("path", ["", "a", "/a/", "/a//b", "/a/../b", "/\x00"])
async def test_malformed_paths_are_refused(ensemble: KazooEnsemble, path: str) -> None:
    registry = await ensemble.connect()
    for call in (
        registry.get(path),
        registry.exists(path),
        registry.children(path),
        registry.create(path),
        registry.set(path, b""),
        registry.delete(path),
        registry.multi([Create(path)]),
    ):
        with pytest.raises(BadArgumentsError):
            await call
