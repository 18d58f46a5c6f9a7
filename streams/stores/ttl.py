"""Key-value stores whose rows expire: state TTL (Kafka has none).

A row is expired when the stream time of the task has passed its timestamp by more than the TTL. From then on no read
shows it. The store removes it some time later: at a write of the same key, in a batch of limited size after every
EVERY-th write, and in one at every commit. The removal writes a tombstone to the changelog and, where the store is a
table's, forwards the deletion of the row. Both have the timestamp at which the row expired: that of the row, plus the
TTL, plus 1 ms.

The time of a standby or a restoring task is the latest timestamp that it has read from the changelog.

The store has no cache, since each row has to be in the index of timestamps. It keeps timestamps also where its values
have none for the user; there the timestamp is that of the record during which the value was put.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from odradek.streams.records import NO_TIMESTAMP
from odradek.streams.stores.expiry_index import Entry, ExpiryIndex, MapExpiryIndex, MemoryExpiryIndex
from odradek.streams.stores.interface import ChangelogRecord, FlushListener, StoreContext
from odradek.streams.stores.keyvalue import PlainKeyValueStore, expiry_name, holds_bytes, open_map
from odradek.streams.stores.values import LONG

if TYPE_CHECKING:
    from odradek.streams.stores.builders import StoreBuilder

EVERY: Final = 128
"""Writes after which a batch is removed."""
MOST: Final = 512
"""Rows that one batch removes: more than writes add in between, so that removals keep up."""
_BATCH: Final = 5_000
"""Rows that are indexed in one write."""
_NEVER: Final = 2**63 - 1


class TtlKeyValueStore(PlainKeyValueStore):
    """A key-value store with a TTL."""

    _listener: FlushListener | None = None
    _send_old = False

    def __init__(self, spec: StoreBuilder) -> None:
        super().__init__(replace(spec, stamped=True))
        self._ttl_ms = spec.ttl_ms
        self._bare = not spec.stamped
        self._restored_time = NO_TIMESTAMP
        """The latest timestamp of the changelog, as far as it was read here."""
        self._oldest = NO_TIMESTAMP
        """No row has a timestamp below this one."""
        self._writes = 0

    def init(self, context: StoreContext) -> None:
        """Open the store and its index. Where rows have no index, since the store had no TTL before, it is made now."""
        super().init(context)
        self._timestamp_of: Callable[[Any], int] = _of_stored if self._in_rocks else _of_cell
        if holds_bytes(self._spec, context):
            named = replace(self._spec, name=expiry_name(self.name))
            self._index: ExpiryIndex = MapExpiryIndex(open_map(named, context))
        else:
            self._index = MemoryExpiryIndex()
        if not self._index.oldest(1):
            self._index_all()

    def _bind_access(self) -> None:
        """The methods below compare timestamps with the time."""

    def _index_all(self) -> None:
        added: list[Entry] = []
        for key, cell in self._live().range():
            added.append(self._entry(key, cell))
            if len(added) == _BATCH:
                self._index.change((), added)
                added = []
        self._index.change((), added)

    def set_flush_listener(self, listener: FlushListener, send_old_values: bool) -> bool:
        """`listener` receives the rows that are removed; the caller forwards its own changes."""
        if self._listener is None:  # the aggregations of a co-group share one store, and the table gets a removal once
            self._listener = listener
        self._send_old = self._send_old or send_old_values
        return False

    # ---- time

    @property
    def _expired_before(self) -> int:
        """Rows with timestamps below this one are expired."""
        return max(self._context.stream_time, self._restored_time) - self._ttl_ms

    def _entry(self, key: bytes, cell: Any) -> Entry:
        return max(0, self._timestamp_of(cell)), key

    # ---- reads show no expired row

    def get(self, key: Any) -> Any:
        cell = self._get_cell(self._bytes(key))
        if cell is None or self._timestamp_of(cell) < self._expired_before:
            return None
        return self._shown(self._decode(cell))

    def _shown(self, stamped: Any) -> Any:
        return stamped[0] if self._bare else stamped

    def _typed(self, cells: Iterable[tuple[bytes, Any]]) -> Iterator[tuple[Any, Any]]:
        read_key, decode, shown = self._key_serde.deserialize, self._decode, self._shown
        timestamp_of, expired_before = self._timestamp_of, self._expired_before
        return ((read_key(key), shown(decode(cell))) for key, cell in cells if timestamp_of(cell) >= expired_before)

    # ---- writes

    def put(self, key: Any, value: Any) -> None:
        raw_key = self._bytes(key)
        if self._bare and value is not None:
            value = value, self._context.timestamp
        cell, raw = self._codec.encode(value)
        before = self._get_cell(raw_key)
        if before is not None and self._timestamp_of(before) < self._expired_before:
            self._remove([(raw_key, before)])
            before = None
        self._put_bytes(raw_key, cell, raw)
        self._index.change(
            () if before is None else (self._entry(raw_key, before),),
            () if cell is None else (self._index_entry(raw_key, cell[1]),),
        )
        self._writes += 1
        if self._writes >= EVERY:
            self.remove_expired()

    def _index_entry(self, key: bytes, timestamp: int) -> Entry:
        timestamp = max(0, timestamp)
        if timestamp < self._oldest:
            self._oldest = timestamp
        return timestamp, key

    def put_all(self, entries: Iterable[tuple[Any, Any]]) -> None:
        for key, value in entries:
            self.put(key, value)

    def restore(self, records: Sequence[ChangelogRecord]) -> None:
        latest = {record[0]: record for record in records}
        cells = self._codec.restored_rows(latest.values(), self._in_rocks)
        get = self._get_cell
        removed = [self._entry(key, before) for key, _ in cells if (before := get(key)) is not None]
        added = [self._entry(key, cell) for key, cell in cells if cell is not None]
        self._live().write(cells)
        self._index.change(removed, added)
        self._oldest = NO_TIMESTAMP
        latest_time = max((timestamp for _, _, timestamp, _ in records), default=NO_TIMESTAMP)
        self._restored_time = max(self._restored_time, latest_time)

    # ---- removal

    def flush_cache(self) -> None:
        self.remove_expired()

    def remove_expired(self, most: int = MOST) -> int:
        """Remove expired rows, the oldest first, at most so many; log and forward each removal. Returns how many."""
        self._writes = 0
        before = self._expired_before
        if self._oldest >= before or before <= 0:
            return 0
        found = self._index.oldest(most + 1)
        entries = [entry for entry in found[:most] if entry[0] < before]
        get, timestamp_of = self._get_cell, self._timestamp_of
        rows: list[tuple[bytes, Any]] = []
        stale: list[Entry] = []
        for entry in entries:
            key = entry[1]
            cell = get(key)
            if cell is not None and max(0, timestamp_of(cell)) == entry[0]:
                rows.append((key, cell))
            else:
                stale.append(entry)
        self._index.change(stale, ())
        self._oldest = found[len(entries)][0] if len(found) > len(entries) else _NEVER
        self._remove(rows)
        return len(rows)

    def _remove(self, rows: Sequence[tuple[bytes, Any]]) -> None:
        context, live = self._context, self._live()
        current = context.timestamp, context.headers
        try:
            for key, cell in rows:
                if live.get(key) != cell:  # a node downstream of an earlier removal has written it again
                    continue
                live.put(key, None)
                self._index.change((self._entry(key, cell),), ())
                at = self._timestamp_of(cell) + self._ttl_ms + 1
                context.log(self.name, key, None, at)
                if self._listener is not None:
                    old = self._decode(cell)[0] if self._send_old else None
                    self._listener(self._key_serde.deserialize(key), None, old, at, None)
                    context.timestamp, context.headers = current
        finally:
            context.timestamp, context.headers = current

    def flush(self) -> None:
        super().flush()
        self._index.flush()

    def close(self) -> None:
        if self._map is not None:
            self._index.close()
        super().close()


def _of_stored(cell: bytes) -> int:
    """The timestamp of a row in RocksDB."""
    timestamp: int = LONG.unpack_from(cell)[0]
    return timestamp


def _of_cell(cell: Any) -> int:
    """The timestamp of a row in memory."""
    timestamp: int = cell[1]
    return timestamp
