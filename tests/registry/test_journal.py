"""Answered writes survive: torn writes, power loss at every call, damaged files, a disk that fails."""

from __future__ import annotations

import asyncio
import errno
import itertools
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.broker.registry.embedded import EmbeddedEnsemble, EmbeddedRegistry
from odradek.broker.registry.interface import ConnectionLossError, Create, Delete, Event, SessionState
from odradek.broker.registry.journal import DamagedJournalError, Journal, JournalInUseError
from odradek.broker.registry.transactions import encode_snapshot, read_record
from odradek.broker.registry.tree import Tree
from tests.registry.simulated_disk import Content, Keep, SimulatedDisk, keep_all, keep_nothing
from tests.support.eventually import eventually_async

FOLDER = "/registry"
LOG = "/registry/version-2/log."
END = "/registry/version-2/end."
SNAPSHOT = "/registry/version-2/snapshot."


async def at_once(call: Callable[[], None]) -> None:
    """The background of a disk in memory."""
    call()


class Gate:
    """A background that holds each call back until it is let through."""

    def __init__(self) -> None:
        self._open = asyncio.Event()
        self.arrived = asyncio.Event()

    async def __call__(self, call: Callable[[], None]) -> None:
        self.arrived.set()
        await self._open.wait()
        call()

    def open(self) -> None:
        self._open.set()


def ensemble_on(disk: SimulatedDisk, snapshot_bytes: int = 1 << 20) -> EmbeddedEnsemble:
    clock = itertools.count(1_700_000_000_000)
    return EmbeddedEnsemble(disk, FOLDER, now_ms=clock.__next__, background=at_once, snapshot_bytes=snapshot_bytes)


def nodes_on(disk: SimulatedDisk) -> dict[str, bytes | None]:
    """Paths and data after a start on this disk."""
    return nodes_of(Journal(disk, FOLDER).load())


def nodes_of(tree: Tree) -> dict[str, bytes | None]:
    return {path: node.data for path, node in tree.nodes() if not path.startswith("/zookeeper") and path != "/"}


async def two_writes() -> tuple[SimulatedDisk, bytes, bytes]:
    """A disk with one answered write, and its log before and after another write of three transactions."""
    disk = SimulatedDisk()
    ensemble = ensemble_on(disk)
    registry = await ensemble.connect()
    await registry.create("/first", b"1" * 600)
    path = next(path for path in disk.files if path.startswith(LOG))
    before = bytes(disk.files[path].written)
    await asyncio.gather(*(registry.create(f"/second-{number}", b"2" * 600) for number in range(3)))
    return disk, before, bytes(disk.files[path].written)


def with_log(disk: SimulatedDisk, log: bytes) -> SimulatedDisk:
    """A copy of the disk with another content of its one log."""
    return disk.crash(lambda durable, written: log if durable.startswith(b"ZKLG") else durable)


async def test_a_write_torn_at_any_byte_is_cut_off() -> None:
    disk, before, after = await two_writes()
    expected = [{"/first": b"1" * 600} | {f"/second-{n}": b"2" * 600 for n in range(count)} for count in range(4)]
    size = (len(after) - len(before)) // 3
    for cut in range(len(before), len(after) + 1):
        torn = with_log(disk, after[:cut])
        assert nodes_on(torn) == expected[(cut - len(before)) // size]


async def test_after_a_torn_write_the_journal_continues() -> None:
    disk, _, after = await two_writes()
    torn = with_log(disk, after[:-5])
    ensemble = ensemble_on(torn)
    registry = await ensemble.connect()
    await registry.create("/third")
    await ensemble.close()
    assert set(nodes_on(torn.crash())) == {"/first", "/second-0", "/second-1", "/third"}


@settings(deadline=None)
@given(lost=st.sets(st.integers(0, 5)), garbage=st.booleans())
def test_a_write_with_holes_is_truncated_at_the_first(lost: set[int], garbage: bool) -> None:
    disk, before, after = asyncio.run(two_writes())
    log = bytearray(after)
    for sector in lost:
        start = max(len(before), (len(before) // 512 + sector) * 512)
        end = min(len(log), (len(before) // 512 + sector + 1) * 512)
        log[start:end] = (b"\xa5" if garbage else b"\0") * (end - start)
    found = nodes_on(with_log(disk, bytes(log)))
    assert found.pop("/first") == b"1" * 600
    assert set(found) == {f"/second-{number}" for number in range(len(found))}


async def test_damage_before_an_answered_write_is_no_torn_tail() -> None:
    disk, before, after = await two_writes()
    for position in range(16, len(before), 37):
        log = bytearray(after)
        log[position] ^= 0x10
        with pytest.raises(DamagedJournalError, match="damaged at"):
            nodes_on(with_log(disk, bytes(log)))


@pytest.mark.parametrize("keep", [keep_nothing, keep_all, lambda durable, written: written[: len(durable) + 40]])
@pytest.mark.parametrize("snapshot_bytes", [1 << 20, 0])
async def test_power_loss_at_any_call_keeps_answered_writes(keep: Keep, snapshot_bytes: int) -> None:
    failed = 0
    for calls in itertools.count():
        disk = SimulatedDisk()
        disk.fail_after = calls
        answered: dict[str, bytes | None] = {}
        tried = {"/a": b"x" * 50, "/b": b"y" * 50, "/c": b"z" * 50, "/d": b"w" * 50, "/e": b""}
        try:
            ensemble = ensemble_on(disk, snapshot_bytes)
            registry = await ensemble.connect()
            for path, data in tried.items():
                await registry.create(path, data)
                answered[path] = data
        except (OSError, ConnectionLossError):
            failed += 1
        found = nodes_on(disk.crash(keep))
        assert answered.items() <= found.items() <= tried.items()
        if answered == tried:
            break
    assert failed > 8


async def test_snapshots_keep_the_folder_small_and_the_tree_complete() -> None:
    disk = SimulatedDisk()
    ensemble = ensemble_on(disk, snapshot_bytes=2_000)
    registry = await ensemble.connect()
    expected: dict[str, bytes | None] = {"/a": b"0"}
    await registry.create("/a", b"0")
    for number in range(100):
        expected[f"/n{number}"] = None
        await registry.create(f"/n{number}", None)
        expected["/a"] = b"%d" % number * 100
        await registry.set("/a", expected["/a"])
    await ensemble.close()
    snapshots = [path for path in disk.files if path.startswith(SNAPSHOT)]
    logs = [path for path in disk.files if path.startswith(LOG)]
    assert len(snapshots) == 2
    assert len(logs) <= 3
    assert nodes_on(disk.crash()) == expected

    unfinished = disk.crash()
    unfinished.files[f"{SNAPSHOT}ffff.tmp"] = Content(b"ZKSN")
    assert nodes_on(unfinished) == expected
    assert f"{SNAPSHOT}ffff.tmp" not in unfinished.files

    newest = max(snapshots, key=lambda path: int(path.removeprefix(SNAPSHOT), 16))
    spoiled = disk.crash()
    spoiled.files[newest].written[40] ^= 1
    assert nodes_on(spoiled) == expected


async def test_a_snapshot_taken_while_writes_wait_is_harmless() -> None:
    disk = SimulatedDisk()
    ensemble = ensemble_on(disk, snapshot_bytes=0)
    registry = await ensemble.connect()

    async def chain(name: str) -> None:
        await registry.create(f"/{name}", b"x" * 300)
        await registry.create(f"/{name}/child")
        await registry.delete(f"/{name}/child")

    await asyncio.gather(*(chain(f"n{number}") for number in range(10)))
    for keep in (keep_nothing, keep_all):
        assert len(nodes_on(disk.crash(keep))) == 10


async def test_transactions_in_a_snapshot_are_skipped() -> None:
    disk = SimulatedDisk()
    journal = Journal(disk, FOLDER)
    tree = journal.load()
    journal.write([tree.open_session(1, 10_000, 0).transaction, tree.submit(1, [Create("/a")], 0).transaction])
    late = tree.submit(1, [Delete("/a")], 0).transaction
    journal.snapshot(encode_snapshot(tree), tree.zxid)
    journal.write([late, tree.submit(1, [Create("/b")], 0).transaction])
    assert nodes_on(disk.crash()) == {"/b": b""}


async def test_missing_and_foreign_files_are_detected() -> None:
    disk, _, _ = await two_writes()
    without = disk.crash()
    for path in [path for path in without.files if path.startswith(SNAPSHOT)]:
        del without.files[path]
    with pytest.raises(DamagedJournalError, match="no snapshot"):
        nodes_on(without)
    spoiled = disk.crash()
    spoiled.files[f"{SNAPSHOT}0"].written[40] ^= 1
    with pytest.raises(DamagedJournalError, match="can be read"):
        nodes_on(spoiled)


async def test_sessions_of_a_stopped_process_end_at_the_next_start() -> None:
    disk = SimulatedDisk()
    registry = await ensemble_on(disk).connect()
    await registry.create("/e", ephemeral=True)
    await registry.create("/stays")
    again = disk.crash()
    other = await ensemble_on(again).connect()
    assert await other.exists("/e") is None
    assert await other.exists("/stays") is not None
    assert Journal(again.crash(), FOLDER).load().sessions.keys() == {other.session_id}


async def test_a_folder_has_one_owner() -> None:
    disk = SimulatedDisk()
    ensemble = ensemble_on(disk)
    with pytest.raises(JournalInUseError, match="in use"):
        ensemble_on(disk)
    await ensemble.close()
    ensemble_on(disk)


async def test_concurrent_writes_share_a_sync() -> None:
    disk = SimulatedDisk()
    ensemble = ensemble_on(disk)
    registry = await ensemble.connect()
    before = disk.syncs
    await asyncio.gather(*(registry.create(f"/n{number}") for number in range(100)))
    assert disk.syncs == before + 1


async def gated() -> tuple[SimulatedDisk, EmbeddedEnsemble, EmbeddedRegistry, Gate]:
    """A session whose next write stays on its way to the disk."""
    disk, gate = SimulatedDisk(), Gate()
    passing = [True]

    async def background(call: Callable[[], None]) -> None:
        await (at_once if passing[0] else gate)(call)

    ensemble = EmbeddedEnsemble(disk, FOLDER, now_ms=itertools.count(1).__next__, background=background)
    registry = await ensemble.connect()
    passing[0] = False
    return disk, ensemble, registry, gate


async def test_no_session_sees_a_write_before_it_is_durable() -> None:
    disk, ensemble, registry, gate = await gated()
    received: list[Event] = []
    await registry.exists("/a", received.append)
    write = asyncio.create_task(registry.create("/a"))
    await gate.arrived.wait()
    read = asyncio.create_task(registry.exists("/a"))
    late = asyncio.create_task(registry.create("/b"))
    assert nodes_on(disk.crash()) == {}
    done, _ = await asyncio.wait([write, read, late], timeout=0)
    assert (done, received) == (set(), [])
    gate.open()
    await asyncio.gather(write, read, late)
    assert [event.path for event in received] == ["/a"]
    assert set(nodes_on(disk.crash())) == {"/a", "/b"}
    await ensemble.close()


async def test_a_cancelled_write_does_not_affect_the_others() -> None:
    _, ensemble, registry, gate = await gated()
    one = asyncio.create_task(registry.create("/a"))
    other = asyncio.create_task(registry.create("/b"))
    await gate.arrived.wait()
    one.cancel()
    gate.open()
    assert (await other).path == "/b"
    with pytest.raises(asyncio.CancelledError):
        await one
    await ensemble.close()


async def test_a_failing_disk_ends_the_registry() -> None:
    disk = SimulatedDisk()
    ensemble = ensemble_on(disk)
    registry = await ensemble.connect()
    states: list[SessionState] = []
    registry.add_listener(states.append)
    disk.fail_after = 0
    results = await asyncio.gather(
        registry.create("/a"), registry.exists("/a"), registry.multi([Create("/b")]), return_exceptions=True
    )
    assert [type(result) for result in results] == [ConnectionLossError] * 3
    assert states == [SessionState.SUSPENDED]
    disk.fail_after = None
    with pytest.raises(ConnectionLossError, match="cannot be written"):
        await registry.get("/")
    with pytest.raises(ConnectionLossError, match="cannot be written"):
        await ensemble.connect()
    await ensemble.close()
    assert nodes_on(disk.crash()) == {}


class FullDisk(SimulatedDisk):
    """A disk that has room for `room` more calls, and for all once `room` is None."""

    def __init__(self) -> None:
        super().__init__()
        self.room: int | None = None
        self.rejected = asyncio.Event()

    def step(self) -> None:
        super().step()
        if self.room is not None:
            if self.room == 0:
                self.rejected.set()
                raise OSError(errno.ENOSPC, "no room")
            self.room -= 1


@pytest.mark.parametrize("room", range(6))
@pytest.mark.parametrize("snapshot_bytes", [1 << 20, 0])
async def test_writes_continue_once_a_full_disk_has_room(room: int, snapshot_bytes: int) -> None:
    disk = FullDisk()
    ensemble = ensemble_on(disk, snapshot_bytes)
    registry = await ensemble.connect()
    states: list[SessionState] = []
    registry.add_listener(states.append)
    received: list[Event] = []
    disk.room = room
    made: list[str] = []
    for number in itertools.count():
        try:
            await registry.exists(f"/n{number}", received.append)
            await registry.create(f"/n{number}", b"x" * 40)
            made.append(f"/n{number}")
        except ConnectionLossError:
            break
    assert states == [SessionState.SUSPENDED]
    with pytest.raises(ConnectionLossError, match="no room"):
        await registry.exists("/")
    assert set(made) <= set(nodes_on(disk.crash(keep_all)))
    disk.room = None
    await eventually_async(lambda: asyncio.sleep(0, states), lambda states: len(states) == 2)
    assert states == [SessionState.SUSPENDED, SessionState.CONNECTED]
    # The write whose outcome was open is there, as is its event.
    assert [event.path for event in received] == [*made, f"/n{number}"]
    await registry.create("/later")
    await ensemble.close()
    assert set(nodes_on(disk.crash())) == {*made, f"/n{number}", "/later"}


async def test_a_registry_without_room_can_be_closed() -> None:
    disk = FullDisk()
    ensemble = ensemble_on(disk)
    registry = await ensemble.connect()
    await registry.create("/a")
    disk.room = 0
    with pytest.raises(ConnectionLossError):
        await registry.create("/b")
    await registry.close()
    await ensemble.close()
    assert set(nodes_on(disk.crash())) == {"/a"}


async def acknowledged() -> tuple[SimulatedDisk, bytes, list[int]]:
    """A disk whose process was killed after four answered writes; its log, and where each record of it ends."""
    disk = SimulatedDisk()
    ensemble = ensemble_on(disk)
    registry = await ensemble.connect()
    for number in range(4):
        await registry.create(f"/n{number}", b"%d" % number * 100)
    killed = disk.crash(keep_all)
    (log,) = [bytes(content.written) for path, content in killed.files.items() if path.startswith(LOG)]
    ends, position = [], 16
    while (record := read_record(memoryview(log), position)) is not None:
        position = record.end
        ends.append(position)
    assert ends[-1] == len(log)
    return killed, log, ends


async def test_a_journal_cut_anywhere_has_lost_acknowledged_writes() -> None:
    killed, log, ends = await acknowledged()
    assert len(nodes_on(with_log(killed, log))) == 4
    for cut in (*ends[:-1], *range(16, len(log), 13)):
        with pytest.raises(DamagedJournalError, match="registry check"):
            nodes_on(with_log(killed, log[:cut]))


async def test_a_journal_without_a_record_in_its_middle_is_damaged() -> None:
    killed, log, ends = await acknowledged()
    for first, last in itertools.combinations(ends, 2):
        with pytest.raises(DamagedJournalError):
            nodes_on(with_log(killed, log[:first] + log[last:]))


async def test_a_flipped_bit_in_the_last_acknowledged_write_is_no_torn_tail() -> None:
    killed, log, ends = await acknowledged()
    damaged = bytearray(log)
    damaged[ends[-2] + 30] ^= 1
    with pytest.raises(DamagedJournalError):
        nodes_on(with_log(killed, bytes(damaged)))


async def test_a_missing_log_is_detected_and_a_journal_of_an_earlier_version_opens() -> None:
    killed, _, _ = await acknowledged()
    missing = killed.crash(keep_all)
    for path in [path for path in missing.files if path.startswith(LOG)]:
        del missing.files[path]
    with pytest.raises(DamagedJournalError, match="is missing"):
        nodes_on(missing)
    earlier = killed.crash(keep_all)
    for path in [path for path in earlier.files if path.startswith(END)]:
        del earlier.files[path]
    assert len(nodes_on(earlier)) == 4
    for content in (b"", bytes(32), b"ODRE"):
        torn = killed.crash(keep_all)
        for path in [path for path in torn.files if path.startswith(END)]:
            torn.files[path] = Content(content)
        assert len(nodes_on(torn)) == 4


async def test_a_cut_below_the_newest_snapshot_loses_nothing() -> None:
    disk = SimulatedDisk()
    journal = Journal(disk, FOLDER)
    tree = journal.load()
    journal.write([tree.open_session(1, 10_000, 0).transaction, tree.submit(1, [Create("/a")], 0).transaction])
    journal.snapshot(encode_snapshot(tree), tree.zxid)
    assert nodes_on(with_log(disk, b"ZKLG")) == {"/a": b""}
