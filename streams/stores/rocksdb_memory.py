"""One memory bound for all RocksDB stores of a process (rocksdb.memory.max.bytes; Kafka has no such property: a
RocksDBConfigSetter there holds a static Cache and a static WriteBufferManager).

Stores that have the same bound share a block cache, which also holds their index and filter blocks, and a write buffer
manager, which charges their memtables to that cache. RocksDB flushes memtables in the background and accepts writes
meanwhile, so its manager alone does not hold a bound: stores that write faster than RocksDB flushes exceeded 64 MiB of
memtables twelve times. RocksDB's own remedy is to stall writers (allow_stall), but the stall lasts for ever where the
memtables belong to idle stores. So a writer that finds too many memtables flushes the largest of them
itself, and waits for that flush.

The shares of the bound: three quarters are the block cache, a third of which may be memtables; an eighth are writes
that are buffered in Python. The last eighth is for what RocksDB allocates outside its cache.
"""

from __future__ import annotations

import threading
import weakref
from typing import Any, Final, Protocol

import rocksdict

OWN_BUFFER_BYTES: Final = 4 * 1024 * 1024
"""The most bytes of buffered writes of one store."""
_ARENA_BLOCK_BYTES: Final = 16 * 1024
"""What a memtable allocates at a time; RocksDB's default is 1 MiB, which each store would take for its first row."""


class Flushed(Protocol):
    """A store whose memtables can be flushed."""

    def memtable_bytes(self) -> int:
        """The size of its memtables."""

    def flush_memtables(self) -> None:
        """Write them to disk, and wait for that."""


class RocksDBMemory:
    """The block cache and the write buffer manager of all stores with one bound. Safe for threads."""

    def __init__(self, bound: int) -> None:
        """`bound` is in bytes."""
        self._memtables = bound // 4
        self._buffers = bound // 8
        self.cache: Any = rocksdict.Cache(bound * 3 // 4)
        self.manager: Any = rocksdict.WriteBufferManager.new_write_buffer_manager_with_cache(
            bound * 3 // 8, False, self.cache
        )
        self._stores: weakref.WeakSet[Flushed] = weakref.WeakSet()
        self._lock = threading.Lock()

    def apply(self, table: Any, options: Any) -> None:
        """Set the shared cache and manager in the options of a store, table options first."""
        table.set_block_cache(self.cache)
        table.set_cache_index_and_filter_blocks(True)
        table.set_pin_l0_filter_and_index_blocks_in_cache(True)
        options.set_write_buffer_manager(self.manager)
        options.set_arena_block_size(_ARENA_BLOCK_BYTES)

    def add(self, store: Flushed) -> None:
        """Count an open store."""
        with self._lock:
            self._stores.add(store)

    def remove(self, store: Flushed) -> None:
        """Forget a closed store."""
        with self._lock:
            self._stores.discard(store)

    @property
    def buffer_bytes(self) -> int:
        """How many bytes of writes one of the open stores may buffer."""
        return min(OWN_BUFFER_BYTES, self._buffers // max(1, len(self._stores)))

    def make_room(self) -> None:
        """Flush the largest memtables where all of them exceed their share. A writer calls it after each batch."""
        if self.manager.get_usage() < self._memtables:
            return
        with self._lock:
            stores = list(self._stores)
        largest = max(stores, key=lambda store: store.memtable_bytes(), default=None)
        if largest is not None:
            largest.flush_memtables()


_shared: Final[weakref.WeakValueDictionary[int, RocksDBMemory]] = weakref.WeakValueDictionary()
_sharing: Final = threading.Lock()


def shared_memory(bound: int) -> RocksDBMemory | None:
    """The memory of all stores of this process with this bound in bytes; None where the bound is 0."""
    if not bound:
        return None
    with _sharing:
        found = _shared.get(bound)
        if found is None:
            found = _shared[bound] = RocksDBMemory(bound)
        return found
