"""The memory that all RocksDB stores of a process share: its bound, its flushes, and its options in RocksDB."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from odradek.streams.serdes import BYTES
from odradek.streams.stores import builders
from odradek.streams.stores.rocks_map import RocksMap
from odradek.streams.stores.rocksdb_memory import OWN_BUFFER_BYTES, RocksDBMemory, shared_memory
from tests.streams.stores.implementations import Context

MIB = 1024 * 1024
BOUND = 16 * MIB
VALUE = bytes(1_000)

FILL = """
import sys
from pathlib import Path
from odradek.streams.stores.rocks_map import RocksMap
from odradek.streams.stores.rocksdb_memory import shared_memory

def resident():
    line = next(line for line in open("/proc/self/status") if line.startswith("VmRSS:"))
    return int(line.split()[1]) * 1024

folder, bound = Path(sys.argv[1]), int(sys.argv[2])
stores = [RocksMap(folder / str(n), str(n), None, shared_memory(bound)) for n in range(40)]
before = most = resident()
for number in range(5_000):
    for store in stores:
        store.put(b"%08d" % (number * 7919 % 5_000), number.to_bytes(4, "big") * 250)
    if number % 50 == 0:
        most = max(most, resident())
for number in range(0, 5_000, 10):
    for store in stores:
        assert store.get(b"%08d" % number)
print(max(most, resident()) - before)
for store in stores:
    store.close()
"""
"""40 stores take 200 MB, row after row; prints by how much the process grew at most."""


@pytest.fixture
def memory() -> RocksDBMemory:
    return RocksDBMemory(BOUND)


@pytest.fixture
def stores(tmp_path: Path, memory: RocksDBMemory) -> Iterator[list[RocksMap]]:
    made = [RocksMap(tmp_path / str(number), f"s{number}", None, memory) for number in range(8)]
    yield made
    for each in made:
        each.close()


def key(number: int) -> bytes:
    return b"%08d" % number


def growth(folder: Path, bound: int) -> int:
    done = subprocess.run([sys.executable, "-c", FILL, str(folder), str(bound)], capture_output=True, check=True)
    return int(done.stdout)


@pytest.mark.slow
@pytest.mark.memory
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="resident memory is read from /proc")
def test_a_process_with_many_stores_stays_under_the_bound(tmp_path: Path) -> None:
    bound = 64 * MIB
    assert growth(tmp_path / "bounded", bound) < bound
    assert growth(tmp_path / "unbounded", 0) > 2 * bound


def test_stores_with_one_bound_share_their_memory() -> None:
    first = shared_memory(BOUND)
    assert first is shared_memory(BOUND)
    assert first is not shared_memory(2 * BOUND)
    assert shared_memory(0) is None


def test_the_property_reaches_the_stores_of_a_task(tmp_path: Path) -> None:
    shared = shared_memory(BOUND)
    assert shared is not None
    config: dict[str, Any] = {"rocksdb.memory.max.bytes": BOUND}
    builder = builders.key_value_store("s", BYTES, BYTES).with_caching(False)
    stores: list[Any] = [builder.build() for _ in range(2)]
    usage = [shared.manager.get_usage()]
    for number, store in enumerate(stores):
        store.init(Context(tmp_path / str(number), **config))
        store.put(b"key", bytes(100_000))
        usage.append(shared.manager.get_usage())
    assert usage[1] - usage[0] >= 100_000
    assert usage[2] - usage[1] >= 100_000
    for store in stores:
        store.close()


def test_memtables_of_idle_stores_are_flushed_for_the_writer(stores: list[RocksMap], memory: RocksDBMemory) -> None:
    """A store that is not written to has most of the memory; a writer of small rows must not flush its own instead."""
    idle, busy = stores[0], stores[1]
    idle.write((key(number), VALUE) for number in range(3_500))
    held = idle.memtable_bytes()
    assert 3 * MIB < held < BOUND // 4
    for number in range(3_000):
        busy.put(key(number), VALUE)
    assert idle.memtable_bytes() < held / 2
    assert idle.get(key(17)) == VALUE
    assert memory.manager.get_usage() < BOUND // 2


def test_memtables_stay_near_their_share(stores: list[RocksMap], memory: RocksDBMemory) -> None:
    most = 0
    for number in range(5_000):
        for each in stores:
            each.put(key(number), VALUE)
        most = max(most, memory.manager.get_usage())
    assert BOUND // 8 < most < BOUND * 3 // 8
    assert memory.cache.get_usage() <= BOUND * 3 // 4
    assert [each.get(key(4_999)) for each in stores] == [VALUE] * len(stores)


def test_buffered_writes_are_bounded_by_their_bytes(tmp_path: Path, memory: RocksDBMemory) -> None:
    assert memory.buffer_bytes == BOUND // 8
    stores = [RocksMap(tmp_path / str(number), "s", None, memory) for number in range(16)]
    assert memory.buffer_bytes == BOUND // 8 // 16
    first = stores[0]
    first.put(key(0), VALUE)  # determines how many bytes it may buffer
    first.put(key(1), bytes(BOUND // 8 // 16 // 2))
    assert first.memtable_bytes() < len(VALUE) * 3
    first.put(key(1), bytes(BOUND // 8 // 16))
    assert first.memtable_bytes() > BOUND // 8 // 16
    for each in stores:
        each.close()
    assert memory.buffer_bytes == BOUND // 8
    alone = RocksMap(tmp_path / "alone", "s")
    for number in range(3):
        alone.put(key(number), bytes(OWN_BUFFER_BYTES // 2))
    assert alone.memtable_bytes() > OWN_BUFFER_BYTES
    alone.close()


def test_a_key_that_is_written_again_takes_room_once(tmp_path: Path) -> None:
    rows = RocksMap(tmp_path / "again", "s")
    rows.put(key(9), VALUE)  # the first write goes through
    held = rows.memtable_bytes()
    for _ in range(10):
        for number in range(3):
            rows.put(key(number), bytes(OWN_BUFFER_BYTES // 4))
    assert rows.memtable_bytes() == held, "three quarters of the buffer are in use"
    rows.put(key(0), None)
    rows.put(key(3), bytes(OWN_BUFFER_BYTES // 4))
    assert rows.memtable_bytes() == held, "the deletion has made room for it"
    rows.put(key(3), bytes(OWN_BUFFER_BYTES // 2))
    assert rows.memtable_bytes() > OWN_BUFFER_BYTES
    assert [rows.get(key(number)) for number in (0, 2)] == [None, bytes(OWN_BUFFER_BYTES // 4)]
    rows.close()


def test_the_shared_memory_is_in_the_options_of_rocksdb(tmp_path: Path, stores: list[RocksMap]) -> None:
    written = next((tmp_path / "0").glob("OPTIONS-*")).read_text()
    assert "cache_index_and_filter_blocks=true" in written
    assert "arena_block_size=16384" in written


def test_a_closed_store_has_no_memtables(stores: list[RocksMap], memory: RocksDBMemory) -> None:
    closed = stores.pop()
    closed.put(key(0), VALUE)
    closed.close()
    assert closed.memtable_bytes() == 0
    closed.flush_memtables()
    memory.make_room()
