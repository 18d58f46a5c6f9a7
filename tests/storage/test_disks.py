"""The disk of the operating system and the simulated one behave alike; the latter also loses unsynced writes."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.storage.disk import Disk, Entry, OsDisk
from tests.storage.disks import MemoryDisk, Plan, at_random, keep_all, keep_nothing


@pytest.fixture(params=["os", "simulated"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Disk, str]:
    disk: Disk = OsDisk() if request.param == "os" else MemoryDisk()
    disk.make_directory(str(tmp_path))
    return disk, str(tmp_path)


# ---- common behavior


def test_a_file_is_read_where_it_was_written(place: tuple[Disk, str]) -> None:
    disk, path = place
    file = disk.open(f"{path}/a")
    file.write(b"hello", 0)
    file.write_parts((b"wor", memoryview(b"ld")), 7)
    assert file.read(100, 0) == b"hello\0\0world"
    assert (file.read(3, 7), file.read(3, 11), file.read(3, 99)) == (b"wor", b"d", b"")
    file.truncate(6)
    file.truncate(8)
    assert file.read(100, 0) == disk.read(f"{path}/a") == b"hello\0\0\0"
    file.sync()
    file.close()
    file.close()


def test_an_open_file_survives_its_name(place: tuple[Disk, str]) -> None:
    disk, path = place
    file = disk.open(f"{path}/a")
    file.write(b"old", 0)
    disk.rename(f"{path}/a", f"{path}/b")
    disk.replace(f"{path}/b", b"new", sync=False)
    file.write(b"er", 3)
    assert (file.read(9, 0), disk.read(f"{path}/b")) == (b"older", b"new")
    disk.remove(f"{path}/b")
    assert not disk.exists(f"{path}/b")
    disk.remove(f"{path}/b")
    assert disk.list(path) == []


def test_the_time_of_the_last_write_can_be_set(place: tuple[Disk, str]) -> None:
    disk, path = place
    disk.replace(f"{path}/a", b"1", sync=True)
    disk.set_modified_ms(f"{path}/a", 1_700_000_000_123)
    assert disk.modified_ms(f"{path}/a") == 1_700_000_000_123
    assert disk.open_existing(f"{path}/a").read(1, 0) == b"1"


def test_replacing_leaves_one_file(place: tuple[Disk, str]) -> None:
    disk, path = place
    for sync in (False, True):
        for data in (b"one", b"", b"three"):
            disk.replace(f"{path}/a", data, sync=sync)
            assert disk.read(f"{path}/a") == data
    assert disk.list(path) == [Entry("a", False, 5)]


def test_directories_are_listed_renamed_and_removed(place: tuple[Disk, str]) -> None:
    disk, path = place
    disk.make_directory(f"{path}/d/e")
    disk.make_directory(f"{path}/d/e")
    disk.open(f"{path}/d/e/file").write(b"12345", 0)
    disk.rename(f"{path}/d", f"{path}/f")
    assert sorted(disk.list(path)) == [Entry("f", True, 0)]
    assert disk.list(f"{path}/f/e") == [Entry("file", False, 5)]
    disk.sync_directory(f"{path}/f/e")
    disk.remove_directory(f"{path}/f")
    disk.remove_directory(f"{path}/f")
    assert disk.list(path) == []


def test_missing_files_are_errors(place: tuple[Disk, str]) -> None:
    disk, path = place
    calls: list[Callable[[], object]] = [
        lambda: disk.read(f"{path}/a"),
        lambda: disk.open(f"{path}/d/a"),
        lambda: disk.rename(f"{path}/a", f"{path}/b"),
        lambda: disk.open_existing(f"{path}/a"),
        lambda: disk.modified_ms(f"{path}/a"),
        lambda: disk.set_modified_ms(f"{path}/a", 1),
        lambda: disk.list(f"{path}/d"),
        lambda: disk.sync_directory(f"{path}/d"),
        lambda: disk.replace(f"{path}/d/a", b"", sync=True),
    ]
    for call in calls:
        with pytest.raises(FileNotFoundError):
            call()


def test_a_lock_has_one_holder(place: tuple[Disk, str]) -> None:
    disk, path = place
    lock = disk.lock(f"{path}/.lock")
    assert lock is not None
    assert disk.lock(f"{path}/.lock") is None
    assert disk.exists(f"{path}/.lock")
    lock.release()
    again = disk.lock(f"{path}/.lock")
    assert again is not None
    again.release()


commands = st.one_of(
    st.tuples(st.just("write"), st.sampled_from("ab"), st.binary(max_size=9), st.integers(0, 12)),
    st.tuples(st.just("truncate"), st.sampled_from("ab"), st.integers(0, 20), st.just(0)),
    st.tuples(st.just("rename"), st.sampled_from("ab"), st.sampled_from("abc"), st.just(0)),
    st.tuples(st.just("remove"), st.sampled_from("abc"), st.just(0), st.just(0)),
    st.tuples(st.just("replace"), st.sampled_from("ab"), st.binary(max_size=9), st.booleans()),
)


def carry_out(disk: Disk, path: str, command: tuple[str, str, object, object]) -> str:
    kind, name, *values = command
    try:
        match kind, *values:
            case "write", bytes(data), int(position):
                disk.open(f"{path}/{name}").write(data, position)
            case "truncate", int(size), _:
                disk.open(f"{path}/{name}").truncate(size)
            case "rename", str(new), _:
                disk.rename(f"{path}/{name}", f"{path}/{new}")
            case "remove", _, _:
                disk.remove(f"{path}/{name}")
            case "replace", bytes(data), bool(sync):
                disk.replace(f"{path}/{name}", data, sync=sync)
    except OSError as error:
        return errno.errorcode[error.errno or 0]
    return ""


@settings(max_examples=60, deadline=None)
@given(st.lists(commands, max_size=20))
def test_both_disks_end_alike(
    tmp_path_factory: pytest.TempPathFactory, script: list[tuple[str, str, object, object]]
) -> None:
    path = str(tmp_path_factory.mktemp("disk"))
    real, simulated = OsDisk(), MemoryDisk()
    simulated.make_directory(path)
    for command in script:
        assert carry_out(real, path, command) == carry_out(simulated, path, command), command
    assert sorted(real.list(path)) == sorted(simulated.list(path))
    for entry in real.list(path):
        assert real.read(f"{path}/{entry.name}") == simulated.read(f"{path}/{entry.name}")
    fork = simulated.fork()
    simulated.lose_power(keep_all)
    for disk in (fork, simulated):
        assert sorted(real.list(path)) == sorted(disk.list(path)), "when everything was written"


# ---- behavior of a failing disk


def disk_with(data: bytes, *, synced: bool = True) -> MemoryDisk:
    disk = MemoryDisk()
    disk.make_directory("/d")
    file = disk.open("/d/a")
    file.write(data, 0)
    if synced:
        file.sync()
        disk.sync_directory("/d")
    return disk


def found_after(disk: MemoryDisk, draws: int = 400) -> set[bytes | None]:
    """The possible contents of /d/a after a loss of power; None where it is gone."""
    found: set[bytes | None] = set()
    for seed in range(draws):
        fork = disk.fork()
        fork.lose_power(at_random(Random(seed)))
        found.add(fork.read("/d/a") if fork.exists("/d/a") else None)
    return found


def test_synced_writes_stay_and_others_may_go() -> None:
    disk = disk_with(b"old")
    disk.open("/d/a").write(b"new", 3)
    assert found_after(disk) == {b"old", b"oldnew", b"old\0\0\0"}
    disk.open("/d/a").sync()
    assert found_after(disk) == {b"oldnew"}


def test_an_unsynced_name_may_go_even_if_the_file_is_synced() -> None:
    disk = disk_with(b"data", synced=False)
    disk.open("/d/a").sync()
    assert found_after(disk) == {b"data", None}
    disk.sync_directory("/d")
    assert found_after(disk) == {b"data"}
    disk.remove("/d/a")
    assert found_after(disk) == {b"data", None}


def test_a_rename_is_never_in_half() -> None:
    disk = disk_with(b"old")
    disk.replace("/d/a", b"new", sync=False)
    assert found_after(disk) == {b"old", b"new", b"", b"\0\0\0"}
    disk.rename("/d/a", "/d/b")
    disk.rename("/d/b", "/d/c")
    for seed in range(100):
        fork = disk.fork()
        fork.lose_power(at_random(Random(seed)))
        names = {entry.name for entry in fork.list("/d")} - {"a.tmp"}
        assert len(names) == 1


def test_a_truncation_lasts_only_after_a_sync() -> None:
    disk = disk_with(b"0123456789")
    file = disk.open("/d/a")
    file.truncate(4)
    assert {b"0123", b"0123456789"} <= found_after(disk)
    file.write(b"xy", 4)
    assert {b"0123456789", b"0123xy", b"0123"} <= found_after(disk)
    file.sync()
    assert found_after(disk) == {b"0123xy"}


def test_pages_reach_the_medium_in_any_order_and_tear_at_sectors() -> None:
    disk = disk_with(bytes(3 * 4096))
    disk.open("/d/a").write(b"x" * 3 * 4096, 0)
    torn = set()
    for data in found_after(disk, 300):
        assert data is not None
        sectors = [data[start : start + 512] for start in range(0, len(data), 512)]
        assert set(sectors) <= {bytes(512), b"x" * 512}
        torn.add(tuple(sector == b"x" * 512 for sector in sectors))
    assert any(not row[0] and row[-8] for row in torn), "a later page without an earlier one"
    assert any(row[0] and not row[7] for row in torn), "a page that tore"


def test_a_file_without_order_has_holes_and_one_with_order_has_none() -> None:
    disk = disk_with(b"")
    file = disk.open("/d/a")
    for page in range(4):
        file.write(b"x" * 4096, page * 4096)
    for ordered in (0, 1):
        found = set()
        for seed in range(200):
            fork = disk.fork()
            fork.lose_power(at_random(Random(seed), ordered))
            found.add(b"\0" in fork.read("/d/a"))
        assert found == ({False} if ordered else {False, True})


def test_a_failed_sync_loses_the_pages_that_the_next_one_reports_as_written() -> None:
    disk = disk_with(b"old")
    file = disk.open("/d/a")
    file.write(b"new", 0)
    disk.plan.fail_next()
    with pytest.raises(OSError, match="Input/output error"):
        file.sync()
    file.sync()
    assert file.read(3, 0) == b"new"
    assert found_after(disk) == {b"old"}
    file.write(b"!", 3)
    file.sync()
    assert found_after(disk) == {b"new!"}, "a page that is written again is written whole"


def test_a_plan_fails_one_call_or_all_from_there() -> None:
    for lasting in (False, True):
        disk = disk_with(b"")
        disk.plan = Plan(1, errno.ENOSPC, lasting=lasting)
        file = disk.open("/d/a")
        file.write(b"1234", 0)
        with pytest.raises(OSError, match="No space") as refused:
            file.write(b"5678", 4)
        assert refused.value.errno == errno.ENOSPC
        assert file.read(9, 0) == b"123456", "half of it"
        if lasting:
            with pytest.raises(OSError, match="No space"):
                disk.remove("/d/a")
            disk.plan.recover()
        disk.remove("/d/a")
        assert disk.plan.failed == 1 + lasting


def test_the_medium_can_be_damaged() -> None:
    disk = disk_with(bytes(8192))
    disk.flip("/d/a", 8 * 5000 + 3)
    assert disk.read("/d/a")[5000] == 8
    assert found_after(disk) == {bytes(5000) + b"\x08" + bytes(3191)}
    disk.spoil("/d/a", 4100)
    file = disk.open("/d/a")
    assert file.read(4096, 0) == bytes(4096)
    with pytest.raises(OSError, match="Input/output error"):
        file.read(1, 4096)
    disk.lose_power(keep_nothing)
    file = disk.open("/d/a")
    with pytest.raises(OSError, match="Input/output error"):
        disk.read("/d/a")
    file.write(b"x", 4096)
    assert file.read(1, 4096) == b"x"


def test_a_fork_is_independent() -> None:
    disk = disk_with(b"old")
    disk.open("/d/a").write(b"new", 0)
    disk.rename("/d/a", "/d/b")
    fork = disk.fork()
    fork.open("/d/b").write(b"far", 0)
    fork.sync_directory("/d")
    fork.lose_power(keep_nothing)
    assert fork.read("/d/b") == b"old"
    assert disk.read("/d/b") == b"new"
    disk.lose_power(keep_nothing)
    assert disk.read("/d/a") == b"old"
