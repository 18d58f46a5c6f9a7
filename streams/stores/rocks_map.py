"""An ordered map for the bytes of stores in RocksDB (Kafka: RocksDBStore).

Options of RocksDB are Kafka's: universal compaction, no compression, 16 MB memtables, 50 MB block cache, bloom filters,
no write-ahead log (the changelog is one). A dict buffers writes, which reach RocksDB in batches, since one call of it
costs as much as many operations of a dict. With rocksdb.memory.max.bytes all stores share their memory
(rocksdb_memory.py).

The first store on disk imports this module: a supervisor, and an application with stores in memory, need no RocksDB.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import rocksdict

from odradek.streams.errors import InvalidStateStoreError, StreamsError
from odradek.streams.stores.maps import Cells
from odradek.streams.stores.rocksdb_config import RocksDBConfigSetter
from odradek.streams.stores.rocksdb_memory import OWN_BUFFER_BYTES, RocksDBMemory
from odradek.streams.stores.sizes import StoreSize

_ENTRY_BYTES: Final = 200  # of a buffered write beside its key and value: three objects and its place in the dict
_ABSENT: Final = object()
NO_CONFIGS: Final[Mapping[str, Any]] = MappingProxyType({})


class _Reading:
    """Rows from RocksDB, read one at a time.

    RocksDB's own iterator keeps the database open, and its directory locked, for as long as it is referenced. So
    readers get this object, which drops its iterator when the map is closed.
    """

    __slots__ = ("__weakref__", "rows")

    def __init__(self, rows: Cells) -> None:
        self.rows = rows

    def __iter__(self) -> Cells:
        return self

    def __next__(self) -> tuple[bytes, Any]:
        return next(self.rows)


class RocksMap:
    """A RocksDB database and its buffered writes."""

    __slots__ = (
        "__weakref__",
        "_buffer",
        "_db",
        "_db_get",
        "_memory",
        "_options",
        "_readings",
        "_room",
        "_setter",
        "_store",
    )

    def __init__(
        self,
        path: Path,
        store: str,
        setter: RocksDBConfigSetter | None = None,
        memory: RocksDBMemory | None = None,
        configs: Mapping[str, Any] = NO_CONFIGS,
    ) -> None:
        """Open or create the database, in the memory that stores share where it is given. Raises StreamsError.

        `setter` may change its options by the application's configuration, `configs`.
        """
        options = _options(memory)
        self._setter, self._options = setter, options
        if setter is not None:
            setter.set_config(store, options, configs)
        try:
            path.mkdir(parents=True, exist_ok=True)
            self._db: Any = rocksdict.Rdict(str(path), options)
        except Exception as error:  # rocksdict raises plain Exceptions
            raise StreamsError(f"Error opening store {store} at location {path}: {error}") from error
        unlogged: Any = rocksdict.WriteOptions()
        unlogged.disable_wal = True  # an attribute, contrary to its stub
        self._db.set_write_options(unlogged)
        self._db_get = self._db.get
        self._store = store
        self._readings: weakref.WeakSet[_Reading] = weakref.WeakSet()
        self._buffer: dict[bytes, bytes | None] = {}
        self._memory = memory
        if memory is not None:
            memory.add(self)
        self._room = 0
        """The bytes that the buffer may still take; the first write determines it, when other stores are open, too."""

    def get(self, key: bytes) -> Any:
        """A cell, None where there is none."""
        cell = self._buffer.get(key, _ABSENT)
        return self._db_get(key) if cell is _ABSENT else cell

    def put(self, key: bytes, cell: Any) -> None:
        """Set a cell; None deletes."""
        buffer = self._buffer
        before: Any = buffer.get(key, _ABSENT)
        buffer[key] = cell
        # A key that is written again takes no further room, so the keys that change most stay in the buffer.
        grown = len(key) + _ENTRY_BYTES if before is _ABSENT else -len(before or b"")
        self._room -= grown + len(cell or b"")
        if self._room <= 0:
            self._drain()

    def write(self, rows: Iterable[tuple[bytes, Any]]) -> None:
        """Set many cells in one write."""
        self._drain()  # earlier writes of the same keys come first
        self._write(rows)

    def _drain(self) -> None:
        self._room = OWN_BUFFER_BYTES if self._memory is None else self._memory.buffer_bytes
        if self._buffer:
            self._write(self._buffer.items())
            self._buffer.clear()

    def _write(self, rows: Iterable[tuple[bytes, Any]]) -> None:
        batch = rocksdict.WriteBatch(raw_mode=True)
        put, delete = batch.put, batch.delete
        for key, cell in rows:
            if cell is None:
                delete(key)
            else:
                put(key, cell)
        self._db.write(batch)
        if self._memory is not None:
            self._memory.make_room()

    def range(
        self, low: bytes | None = None, high: bytes | None = None, inclusive: bool = True, reverse: bool = False
    ) -> Cells:
        """The rows between; None stands for an open end, `inclusive` is whether `high` itself is one of them.

        Rows are read one by one, and reads raise InvalidStateStoreError once the map is closed.
        """
        self._drain()
        if reverse:
            rows = self._reading(self._db.items(backwards=True, from_key=high))
            return _down(rows, low, None if inclusive else high)
        rows = self._reading(self._db.items(from_key=low))
        return rows if high is None else _up(rows, high, inclusive)

    def _reading(self, rows: Cells) -> Cells:
        reading = _Reading(rows)
        self._readings.add(reading)
        return reading

    def delete_range(self, low: bytes, high: bytes) -> None:
        """Remove the rows from `low` up to, not including `high`."""
        self._drain()
        self._db.delete_range(low, high)

    def __len__(self) -> int:
        """RocksDB's estimate."""
        self._drain()
        return self._db.property_int_value("rocksdb.estimate-num-keys") or 0

    def flush(self) -> None:
        """Flush all writes to disk."""
        self._drain()
        self._db.flush()

    def memtable_bytes(self) -> int:
        """The size of RocksDB's memtables; 0 once the map is closed. For all threads."""
        try:
            return self._db.property_int_value("rocksdb.cur-size-all-mem-tables") or 0
        except rocksdict.DbClosedError:
            return 0

    def store_size(self) -> StoreSize | None:
        """RocksDB's estimates, with the number of buffered writes; None once the map is closed. For all threads."""
        read = self._db.property_int_value
        try:
            keys, files, memtables = (
                read(f"rocksdb.{name}") or 0
                for name in ("estimate-num-keys", "total-sst-files-size", "cur-size-all-mem-tables")
            )
        except rocksdict.DbClosedError:
            return None
        return StoreSize(keys + len(self._buffer), files, memtables)

    def flush_memtables(self) -> None:
        """Flush RocksDB's memtables to disk, but not the buffered writes. For all threads."""
        with contextlib.suppress(rocksdict.DbClosedError):
            self._db.flush()

    def close(self) -> None:
        """Write buffered entries, end all reads, and close."""

        def refuse() -> Any:
            raise InvalidStateStoreError(f"RocksDB iterator for store {self._store} has closed")

        if self._memory is not None:
            self._memory.remove(self)
        for reading in list(self._readings):
            reading.rows = iter(refuse, None)
        with contextlib.suppress(rocksdict.DbClosedError):
            self._drain()
            self._db.close()
            if self._setter is not None:
                self._setter.close(self._store, self._options)


def _up(rows: Cells, high: bytes, inclusive: bool) -> Cells:
    for row in rows:
        key = row[0]
        if key > high or (key == high and not inclusive):
            return
        yield row


def _down(rows: Cells, low: bytes | None, without: bytes | None) -> Cells:
    for row in rows:
        key = row[0]
        if low is not None and key < low:
            return
        if key != without:
            yield row


def _options(memory: RocksDBMemory | None) -> Any:
    table = rocksdict.BlockBasedOptions()
    table.set_block_size(4096)
    table.set_bloom_filter(10, False)
    options = rocksdict.Options(raw_mode=True)
    options.create_if_missing(True)
    if memory is None:
        table.set_block_cache(rocksdict.Cache(50 * 1024 * 1024))
    else:
        memory.apply(table, options)
    options.set_block_based_table_factory(table)
    options.set_write_buffer_size(16 * 1024 * 1024)
    options.set_max_write_buffer_number(3)
    options.set_compaction_style(rocksdict.DBCompactionStyle.universal())
    options.set_compression_type(rocksdict.DBCompressionType.none())
    options.increase_parallelism(2)
    options.set_keep_log_file_num(1)  # of RocksDB's own LOG files, one
    return options
