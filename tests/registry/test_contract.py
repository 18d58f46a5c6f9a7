"""The contract of every registry, run over the embedded tree and over a real ZooKeeper, which is right by
definition.
"""

from __future__ import annotations

import asyncio

import pytest

from odradek.broker.registry.interface import (
    BadArgumentsError,
    BadVersionError,
    Check,
    Create,
    Delete,
    Event,
    EventKind,
    NoChildrenForEphemeralsError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    Registry,
    RegistryError,
    SessionExpiredError,
    SessionState,
    Set,
    Stat,
    ensure_path,
)
from tests.registry.conftest import Ensemble


class Received:
    """A watcher that records its events and lets a test wait for them."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self._arrived = asyncio.Event()

    def __call__(self, event: Event) -> None:
        self.events.append(event)
        self._arrived.set()

    async def first(self) -> Event:
        await asyncio.wait_for(self._arrived.wait(), 10)
        return self.events[0]


async def test_a_created_node_has_its_data_and_a_first_stat(registry: Registry, root: str) -> None:
    created = await registry.create(f"{root}/a", b"data")
    data, stat = await registry.get(f"{root}/a")
    assert (created.path, data) == (f"{root}/a", b"data")
    assert created.stat == stat
    assert stat.czxid == stat.mzxid == stat.pzxid > 0
    assert stat.ctime_ms == stat.mtime_ms > 0
    assert stat[4:10] == (0, 0, 0, 0, 4, 0)


async def test_no_data_is_not_empty_data(registry: Registry, root: str) -> None:
    await registry.create(f"{root}/none", None)
    await registry.create(f"{root}/empty", b"")
    assert (await registry.get(f"{root}/none"))[0] is None
    assert (await registry.get(f"{root}/empty"))[0] == b""


async def test_set_counts_versions_and_does_not_change_the_parent(registry: Registry, root: str) -> None:
    made = (await registry.create(f"{root}/a", b"1")).stat
    parent = await registry.exists(root)
    stat = await registry.set(f"{root}/a", b"three")
    assert (stat.version, stat.data_length, stat.czxid, stat.ctime_ms) == (1, 5, made.czxid, made.ctime_ms)
    assert stat.mzxid > made.mzxid
    assert await registry.exists(root) == parent
    assert (await registry.set(f"{root}/a", b"x", version=1)).version == 2


async def test_a_stale_version_is_refused_and_changes_nothing(registry: Registry, root: str) -> None:
    await registry.create(f"{root}/a", b"kept")
    with pytest.raises(BadVersionError):
        await registry.set(f"{root}/a", b"lost", version=1)
    with pytest.raises(BadVersionError):
        await registry.delete(f"{root}/a", version=7)
    assert (await registry.get(f"{root}/a"))[0] == b"kept"
    await registry.delete(f"{root}/a", version=0)
    assert await registry.exists(f"{root}/a") is None


async def test_missing_and_existing_nodes_are_reported(registry: Registry, root: str) -> None:
    for call in (
        registry.get(f"{root}/a"),
        registry.children(f"{root}/a"),
        registry.set(f"{root}/a", b""),
        registry.delete(f"{root}/a"),
        registry.create(f"{root}/a/b"),
    ):
        with pytest.raises(NoNodeError):
            await call
    await registry.create(f"{root}/a")
    await registry.create(f"{root}/a/b")
    with pytest.raises(NodeExistsError):
        await registry.create(f"{root}/a")
    with pytest.raises(NotEmptyError):
        await registry.delete(f"{root}/a")


async def test_the_root_can_be_neither_created_nor_deleted(registry: Registry) -> None:
    with pytest.raises(NodeExistsError):
        await registry.create("/")
    with pytest.raises(BadArgumentsError):
        await registry.delete("/")
    assert "zookeeper" in (await registry.children("/"))[0]


@pytest.mark.parametrize("name", ["a\x00b", "a\x1fb", "a\x7fb", "a\ue000b", "a\ufff0b"])
async def test_forbidden_characters_are_refused(registry: Registry, root: str, name: str) -> None:
    with pytest.raises(BadArgumentsError):
        await registry.create(f"{root}/{name}")
    assert (await registry.children(root))[0] == []


async def test_children_are_named_and_counted(registry: Registry, root: str) -> None:
    for name in ("b", "a", "ü", "c"):
        await registry.create(f"{root}/{name}")
    await registry.delete(f"{root}/c")
    last = await registry.create(f"{root}/a/deep")
    names, stat = await registry.children(root)
    assert names == ["a", "b", "ü"]
    assert (stat.num_children, stat.cversion, stat.version) == (3, 5, 0)
    assert stat.pzxid == last.stat.czxid - 1
    assert (await registry.exists(f"{root}/a")) == (await registry.children(f"{root}/a"))[1]
    assert (await registry.children(f"{root}/a"))[1].pzxid == last.stat.czxid


async def test_sequential_names_count_the_creations_under_the_parent(registry: Registry, root: str) -> None:
    first = await registry.create(f"{root}/n-", sequential=True)
    await registry.create(f"{root}/other")
    await registry.delete(first.path)
    second = await registry.create(f"{root}/m-", sequential=True)
    bare = await registry.create(f"{root}/", sequential=True)
    assert [first.path, second.path, bare.path] == [
        f"{root}/n-0000000000",
        f"{root}/m-0000000002",
        f"{root}/0000000003",
    ]


async def test_ephemeral_nodes_end_with_their_session(ensemble: Ensemble, registry: Registry, root: str) -> None:
    other = await ensemble.connect()
    stat = (await other.create(f"{root}/e", ephemeral=True)).stat
    await other.create(f"{root}/stays")
    assert stat.ephemeral_owner == other.session_id != registry.session_id
    gone = Received()
    assert await registry.exists(f"{root}/e", gone) == stat
    await other.close()
    assert await gone.first() == Event(EventKind.DELETED, f"{root}/e")
    assert (await registry.children(root))[0] == ["stays"]


async def test_an_ephemeral_node_has_no_children(registry: Registry, root: str) -> None:
    await registry.create(f"{root}/e", ephemeral=True)
    with pytest.raises(NoChildrenForEphemeralsError):
        await registry.create(f"{root}/e/a")


async def test_an_expired_session_is_notified_and_refused(ensemble: Ensemble, registry: Registry, root: str) -> None:
    other = await ensemble.connect()
    await other.create(f"{root}/e", ephemeral=True)
    states: list[SessionState] = []
    other.add_listener(states.append)
    silent = Received()
    await other.exists(f"{root}/later", silent)
    await ensemble.expire(other.session_id)
    assert (states[-1], other.state) == (SessionState.EXPIRED, SessionState.EXPIRED)
    for call in (other.get(root), other.create(f"{root}/x"), other.multi([Create(f"{root}/x")])):
        with pytest.raises(SessionExpiredError):
            await call
    await registry.create(f"{root}/later")
    assert (await registry.children(root))[0] == ["later"]
    assert silent.events == []
    await other.close()


async def test_a_session_can_be_closed_twice(ensemble: Ensemble, root: str) -> None:
    other = await ensemble.connect()
    await other.close()
    await other.close()
    with pytest.raises(SessionExpiredError):
        await other.get(root)


# Transactions


async def test_a_transaction_is_one_write(registry: Registry, root: str) -> None:
    await registry.create(f"{root}/epoch", b"1")
    results = await registry.multi(
        [
            Check(f"{root}/epoch", 0),
            Create(f"{root}/a", b"x"),
            Create(f"{root}/a/n-", sequential=True),
            Set(f"{root}/epoch", b"2", 0),
            Set(f"{root}/epoch", b"3", 1),
            Delete(f"{root}/a/n-0000000000"),
        ]
    )
    stat = results[4]
    assert isinstance(stat, Stat)
    assert (results[:3], results[5]) == ([None, f"{root}/a", f"{root}/a/n-0000000000"], None)
    assert stat.version == 2
    made = await registry.exists(f"{root}/a")
    assert made is not None
    assert made.czxid == stat.mzxid == made.pzxid
    assert (made.num_children, made.cversion) == (0, 2)


@pytest.mark.parametrize(
    ("bad", "error"),
    [
        (Check("/epoch", 5), BadVersionError),
        (Check("/none", 0), NoNodeError),
        (Create("/a"), NodeExistsError),
        (Delete("/b"), NotEmptyError),
        (Set("/none", b""), NoNodeError),
    ],
)
async def test_a_transaction_fails_as_a_whole(
    registry: Registry, root: str, bad: Check | Create | Delete | Set, error: type[RegistryError]
) -> None:
    await registry.create(f"{root}/epoch", b"1")
    before = await registry.children(root)
    at_root = {Check: Check, Create: Create, Delete: Delete, Set: Set}[type(bad)]
    fields = {name: getattr(bad, name) for name in bad.__dataclass_fields__ if name != "path"}
    with pytest.raises(error) as failure:
        await registry.multi(
            [
                Create(f"{root}/a", ephemeral=True),
                Create(f"{root}/b"),
                Create(f"{root}/b/c"),
                Set(f"{root}/epoch", b"2"),
                at_root(path=root + bad.path, **fields),
                Create(f"{root}/never"),
            ]
        )
    assert failure.value.index == 4
    assert await registry.children(root) == before
    assert (await registry.get(f"{root}/epoch"))[0] == b"1"


async def test_an_empty_transaction_does_nothing(registry: Registry) -> None:
    assert await registry.multi([]) == []


# Watches


async def test_a_data_watch_fires_once(registry: Registry, root: str) -> None:
    received = Received()
    await registry.get(root, received)
    await registry.create(f"{root}/child")
    await registry.set(root, b"1")
    assert await received.first() == Event(EventKind.DATA_CHANGED, root)
    await registry.set(root, b"2")
    await registry.get(root)
    assert len(received.events) == 1


async def test_a_child_watch_fires_for_children_only(registry: Registry, root: str) -> None:
    received = Received()
    await registry.children(root, received)
    await registry.set(root, b"1")
    await registry.create(f"{root}/a")
    assert await received.first() == Event(EventKind.CHILDREN_CHANGED, root)
    again = Received()
    await registry.children(root, again)
    await registry.set(f"{root}/a", b"1")
    await registry.create(f"{root}/a/b")
    await registry.delete(f"{root}/a/b")
    await registry.delete(f"{root}/a")
    assert await again.first() == Event(EventKind.CHILDREN_CHANGED, root)
    assert (len(received.events), len(again.events)) == (1, 1)


async def test_an_exists_watch_waits_for_a_node(registry: Registry, root: str) -> None:
    received = Received()
    assert await registry.exists(f"{root}/a", received) is None
    await registry.create(f"{root}/a")
    assert await received.first() == Event(EventKind.CREATED, f"{root}/a")


async def test_a_failed_read_sets_no_watch(registry: Registry, root: str) -> None:
    received, last = Received(), Received()
    with pytest.raises(NoNodeError):
        await registry.get(f"{root}/a", received)
    with pytest.raises(NoNodeError):
        await registry.children(f"{root}/a", received)
    await registry.exists(f"{root}/a", last)
    await registry.create(f"{root}/a")
    await last.first()
    assert received.events == []


async def test_a_deletion_notifies_all_watchers(registry: Registry, root: str) -> None:
    path = f"{root}/a"
    await registry.create(path)
    data, exists, children, parent = Received(), Received(), Received(), Received()
    await registry.get(path, data)
    await registry.exists(path, exists)
    await registry.children(path, children)
    await registry.children(root, parent)
    await registry.delete(path)
    assert await parent.first() == Event(EventKind.CHILDREN_CHANGED, root)
    for received in (data, exists, children):
        assert received.events == [Event(EventKind.DELETED, path)]


async def test_one_watcher_in_several_places_is_notified_once(registry: Registry, root: str) -> None:
    received = Received()
    await registry.get(root, received)
    await registry.get(root, received)
    await registry.exists(root, received)
    await registry.set(root, b"1")
    await received.first()
    await registry.get(root)
    assert len(received.events) == 1


async def test_a_watch_fires_before_the_change_is_visible(ensemble: Ensemble, registry: Registry, root: str) -> None:
    other = await ensemble.connect()
    for value in (b"1", b"2", b"3", b"4", b"5"):
        received = Received()
        seen: list[tuple[bytes | None, int]] = []

        async def look(received: Received = received, seen: list[tuple[bytes | None, int]] = seen) -> None:
            data, _ = await registry.get(root)
            seen.append((data, len(received.events)))

        await registry.get(root, received)
        await asyncio.gather(look(), other.set(root, value), *(look() for _ in range(5)))
        await look()
        assert seen[-1] == (value, 1)
        assert all(count == 1 for data, count in seen if data == value)


async def test_writes_of_one_transaction_fire_in_its_order(registry: Registry, root: str) -> None:
    order: list[Event] = []
    last = Received()

    def watch(event: Event) -> None:
        order.append(event)

    await registry.exists(f"{root}/a", watch)
    await registry.children(root, watch)
    await registry.get(root, watch)
    await registry.exists(f"{root}/z", last)
    await registry.multi([Create(f"{root}/a"), Set(root, b"1"), Create(f"{root}/b"), Create(f"{root}/z")])
    await last.first()
    assert order == [
        Event(EventKind.CREATED, f"{root}/a"),
        Event(EventKind.CHILDREN_CHANGED, root),
        Event(EventKind.DATA_CHANGED, root),
    ]


async def test_calls_of_a_session_keep_their_order(registry: Registry, root: str) -> None:
    results = await asyncio.gather(
        registry.create(f"{root}/a", b"1"),
        registry.set(f"{root}/a", b"2", version=0),
        registry.get(f"{root}/a"),
        registry.delete(f"{root}/a", version=1),
        registry.exists(f"{root}/a"),
    )
    assert results[2][0] == b"2"
    assert results[4] is None


async def test_ensure_path_creates_missing_nodes(registry: Registry, root: str) -> None:
    await ensure_path(registry, f"{root}/a/b/c")
    await ensure_path(registry, f"{root}/a/b/c")
    await ensure_path(registry, f"{root}/a/b/d")
    assert (await registry.children(f"{root}/a/b"))[0] == ["c", "d"]
    assert (await registry.get(f"{root}/a"))[0] is None
