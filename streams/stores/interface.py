"""State store interfaces for tasks and processors (Kafka: org.apache.kafka.streams.state).

A store belongs to one task, and only the task's thread uses it. Keys and values are Python objects; null is None.
Iterators show the store as it was at the call, and may be consumed later.

Timestamped stores hold `(value, timestamp)`. A flush listener, however, gets the bare values and the timestamp
separately, since that is the input of the next node.
"""

from __future__ import annotations

import abc
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from odradek.streams.errors import InvalidStateStoreError, StoreSerializationError
from odradek.streams.records import Headers, TaskId, Windowed

if TYPE_CHECKING:
    from odradek.streams.stores.cache import ThreadCache
    from odradek.streams.stores.sizes import StoreSize

ChangelogRecord = tuple[bytes, bytes | None, int, Headers]
"""Key, value, timestamp and headers, as in a changelog topic."""
FlushListener = Callable[[Any, Any, Any, int, Headers], None]
"""Called with an entry that leaves the cache: key, new value, old value, timestamp, headers."""

PUT_NOT_DONE: Final = -(2**63)
"""The result of a versioned put that was too late (PUT_RETURN_CODE_NOT_PUT)."""
VALID_TO_UNDEFINED: Final = -1
"""The result of a versioned put of the latest version (PUT_RETURN_CODE_VALID_TO_UNDEFINED)."""


class StoreContext(Protocol):
    """The context of a task for its stores."""

    task_id: TaskId
    application_id: str
    config: Mapping[str, Any]
    store_dir: Path | None
    """The task's directory; None without a disk: persistent stores are then in memory until they are closed."""
    cache: ThreadCache
    """Shared by all stores of a thread."""
    timestamp: int
    headers: Headers
    topic: str | None
    partition: int
    offset: int
    stream_time: int
    dropped: int
    """Records that were dropped, late ones among them (dropped-records-total)."""

    def log(self, store: str, key: bytes, value: bytes | None, timestamp: int, headers: Headers = None) -> None:
        """Write to the store's changelog. No effect where the store is not logged."""


class Rows(Iterator[Any]):
    """The rows of a read. It may hold a snapshot of the database: exhaust it, close it, or use it with `with`."""

    __slots__ = ("_rows",)

    def __init__(self, rows: Iterator[Any]) -> None:
        self._rows = rows

    def __iter__(self) -> Iterator[Any]:
        return self._rows  # a loop then does not call this class for each row

    def __next__(self) -> Any:
        return next(self._rows)

    def peek_next_key(self) -> Any:
        """The key of the next row, which stays in its place. Raises LookupError where there is none."""
        for row in self._rows:
            self._rows = itertools.chain((row,), self._rows)
            return row[0]
        raise LookupError("there is no next row")

    def close(self) -> None:
        """Release the resources of the read. Rows that were not read yet are lost."""
        self._rows = iter(())

    def __enter__(self) -> Rows:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class StateStore(abc.ABC):
    """The operations of a task on any store."""

    name: str
    persistent: bool
    """Whether the content survives the process: such a store has a checkpoint."""

    @abc.abstractmethod
    def init(self, context: StoreContext) -> None:
        """Open the store. Raises StreamsError where its files cannot be opened."""

    @abc.abstractmethod
    def restore(self, records: Sequence[ChangelogRecord]) -> None:
        """Restore a batch of the changelog, in one write; nothing of it is logged, cached or forwarded."""

    def flush_cache(self) -> None:
        """Write, log and forward the dirty entries of the cache, in Kafka's order. A commit begins with it."""
        return

    @abc.abstractmethod
    def flush(self) -> None:
        """Flush memory to disk, so that a checkpoint may follow."""

    @abc.abstractmethod
    def close(self) -> None:
        """Release files and memory. Dirty cache entries are lost: flush before. A second call does nothing."""

    @property
    @abc.abstractmethod
    def is_open(self) -> bool:
        """Whether reads and writes are possible."""

    def store_size(self) -> StoreSize | None:
        """The size for metrics; None where it is not measured, and for a closed store. Any thread may call it."""
        return None

    def set_flush_listener(self, listener: FlushListener, send_old_values: bool) -> bool:
        """Call `listener` with entries that leave the cache. False without a cache: then the caller forwards itself."""
        return False


class KeyValueStore(StateStore):
    """Keys and their values, in the order of the serialized keys."""

    @abc.abstractmethod
    def get(self, key: Any) -> Any:
        """The value, None where there is none."""

    @abc.abstractmethod
    def put(self, key: Any, value: Any) -> None:
        """Set a value; None deletes. Raises StoreSerializationError."""

    @abc.abstractmethod
    def put_if_absent(self, key: Any, value: Any) -> Any:
        """Set a value where there is none. Returns the previous value."""

    def put_all(self, entries: Iterable[tuple[Any, Any]]) -> None:
        """Set several values."""
        for key, value in entries:
            self.put(key, value)

    @abc.abstractmethod
    def delete(self, key: Any) -> Any:
        """Remove a key. Returns the previous value."""

    @abc.abstractmethod
    def range(self, frm: Any, to: Any) -> Rows:
        """`(key, value)` for the keys between both, these included; None stands for an open end."""

    @abc.abstractmethod
    def reverse_range(self, frm: Any, to: Any) -> Rows:
        """The same, the last key first."""

    def all(self) -> Rows:
        """Everything, in the order of the keys."""
        return self.range(None, None)

    def reverse_all(self) -> Rows:
        """Everything, the last key first."""
        return self.reverse_range(None, None)

    @abc.abstractmethod
    def prefix_scan(self, prefix: Any, serializer: Callable[[Any], bytes]) -> Rows:
        """`(key, value)` for the keys whose bytes begin with those of `prefix`."""

    @abc.abstractmethod
    def approximate_num_entries(self) -> int:
        """How many keys there are, approximately; entries in the cache do not count."""


class TimestampedKeyValueStore(KeyValueStore):
    """The same, of values that are `(value, timestamp in ms)`."""


class WindowStore(StateStore):
    """Values by key and by the start of a window, in ms, for as long as the store's retention."""

    window_size_ms: int

    @abc.abstractmethod
    def put(self, key: Any, value: Any, window_start: int) -> None:
        """Set a value; None deletes. With duplicates retained every put adds one, and None does nothing."""

    @abc.abstractmethod
    def fetch(self, key: Any, frm: int, to: int | None = None) -> Any:
        """The value of the window that starts at `frm`; with `to`, Rows of `(start, value)` for the starts between."""

    @abc.abstractmethod
    def backward_fetch(self, key: Any, frm: int, to: int) -> Rows:
        """`(start, value)` for the starts between, the last first."""

    @abc.abstractmethod
    def fetch_range(self, key_from: Any, key_to: Any, frm: int, to: int) -> Rows:
        """`(Windowed, value)` for the keys and the starts between; None stands for an open end of the keys."""

    @abc.abstractmethod
    def backward_fetch_range(self, key_from: Any, key_to: Any, frm: int, to: int) -> Rows:
        """The same in the opposite order."""

    def fetch_all(self, frm: int, to: int) -> Rows:
        """`(Windowed, value)` for the starts between."""
        return self.fetch_range(None, None, frm, to)

    def backward_fetch_all(self, frm: int, to: int) -> Rows:
        """The same in the opposite order."""
        return self.backward_fetch_range(None, None, frm, to)

    @abc.abstractmethod
    def all(self) -> Rows:
        """`(Windowed, value)` for all that has not expired."""

    @abc.abstractmethod
    def backward_all(self) -> Rows:
        """The same in the opposite order."""


class TimestampedWindowStore(WindowStore):
    """The same, of values that are `(value, timestamp in ms)`."""


class SessionStore(StateStore):
    """Values by key and session, for as long as the store's retention."""

    @abc.abstractmethod
    def put(self, session: Windowed, value: Any) -> None:
        """Set a session's value; None removes it."""

    @abc.abstractmethod
    def remove(self, session: Windowed) -> None:
        """Remove a session."""

    @abc.abstractmethod
    def fetch_session(self, key: Any, start: int, end: int) -> Any:
        """The value of one session, None where there is none."""

    @abc.abstractmethod
    def find_sessions(self, key: Any, earliest_end: int, latest_start: int) -> Rows:
        """`(Windowed, value)` for the key's sessions ending from `earliest_end` on, begun by `latest_start`."""

    @abc.abstractmethod
    def backward_find_sessions(self, key: Any, earliest_end: int, latest_start: int) -> Rows:
        """The same in the opposite order."""

    @abc.abstractmethod
    def find_sessions_range(self, key_from: Any, key_to: Any, earliest_end: int, latest_start: int) -> Rows:
        """The same for a range of keys; None stands for an open end."""

    @abc.abstractmethod
    def backward_find_sessions_range(self, key_from: Any, key_to: Any, earliest_end: int, latest_start: int) -> Rows:
        """The same in the opposite order."""

    @abc.abstractmethod
    def fetch(self, key: Any) -> Rows:
        """All sessions of a key."""

    @abc.abstractmethod
    def backward_fetch(self, key: Any) -> Rows:
        """The same in the opposite order."""

    @abc.abstractmethod
    def fetch_range(self, key_from: Any, key_to: Any) -> Rows:
        """All sessions of a range of keys."""

    @abc.abstractmethod
    def backward_fetch_range(self, key_from: Any, key_to: Any) -> Rows:
        """The same in the opposite order."""


class VersionedRecord(NamedTuple):
    """One version: its value, and the start of its validity. Java's gets do not return the end either."""

    value: Any
    timestamp: int
    valid_to: int | None = None


class VersionedKeyValueStore(StateStore):
    """Keys and their values at any time within the history retention (KIP-889)."""

    @abc.abstractmethod
    def put(self, key: Any, value: Any, timestamp: int) -> int:
        """Set the value as of `timestamp`; None deletes. Returns the end of its validity, or one of the two codes
        above.
        """

    @abc.abstractmethod
    def delete(self, key: Any, timestamp: int) -> VersionedRecord | None:
        """Delete as of `timestamp`. Returns the value that was valid then."""

    @abc.abstractmethod
    def get(self, key: Any, as_of: int | None = None) -> VersionedRecord | None:
        """The latest version, or the one that was valid at `as_of`."""

    @abc.abstractmethod
    def versions(self, key: Any, frm: int | None, to: int | None) -> list[VersionedRecord]:
        """The versions that were valid at any time between both, these included, the latest first; None stands for an
        open end. All but the latest of the key have an end of validity.
        """


def not_open(store: str) -> InvalidStateStoreError:
    """The error for a store that is used before init() or after close()."""
    return InvalidStateStoreError(f"Store {store} is currently closed")


def unreadable(store: str, what: str, given: Any, error: Exception) -> Exception:
    """The error for a key or value that a serde rejected; `what` is "key" or "value"."""
    if given is None and what == "key":
        return StoreSerializationError(f"store {store}: key cannot be null")
    return StoreSerializationError(
        f"store {store}: the {what} serde cannot take this {what} of type {type(given).__name__}: {error}"
    )


WAY_OUT: Final = (
    "Give the store another name, or the application another application.id, or remove the old state: stop all "
    "instances, call clean_up() on each, and delete the changelog by `odradek streams reset`"
)
"""What to do where a store, or its changelog, has the state of another kind of store or of other serdes."""


def foreign(store: str, error: Exception) -> Exception:
    """The error for a value in a store that its serde cannot read."""
    return StoreSerializationError(
        f"store {store}: its value serde cannot read a value that is in the store, as if another serde had written it: "
        f"{error!r}. {WAY_OUT}"
    )
