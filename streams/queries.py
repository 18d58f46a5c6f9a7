"""Interactive queries: other threads read the stores of an instance (KIP-67, KIP-535, KIP-562).

    counts = streams.store("counts", "key-value")
    counts.get("kafka")

A view shows the stores of all tasks that this instance has at the moment of a call, one after the other, including the
contents of their caches; the results are Java's (CompositeReadOnlyKeyValueStore and its siblings). With `stale=True` it
also reads standbys and tasks that are being restored. A view outlives rebalances: it finds its stores at each call, and
raises InvalidStateStoreError where they are not on this instance, or not ready.

Locks. A stream thread holds one lock (FairLock) while it processes a chunk of records or flushes its caches, and
releases it between chunks and while it waits for the cluster; a query acquires it for the time of one read. So the
record loop acquires no lock, a read never returns half-written data, and a query waits for one chunk or one flush. Rows
of a range show the store as it was when the range was opened, and are read without the lock.

A query changes nothing: a value that a query reads does not enter the cache, where it would evict other entries and so
flush them from a thread that does not own them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar

from odradek.streams.errors import InvalidStateStoreError, UnknownStateStoreError
from odradek.streams.shown_results import Result, shown
from odradek.streams.stores.interface import (
    KeyValueStore,
    Rows,
    SessionStore,
    VersionedKeyValueStore,
    VersionedRecord,
    WindowStore,
)

if TYPE_CHECKING:
    from odradek.streams.running.global_state import GlobalState
    from odradek.streams.running.task_state import TaskState
    from odradek.streams.running.thread import StreamThread
    from odradek.streams.topology import Topology

V = TypeVar("V", bound="_View")
Kind = Literal["key-value", "timestamped-key-value", "window", "timestamped-window", "session", "versioned"]
"""The kind of a view. A timestamped store can be viewed as a plain one, which leaves the timestamps out."""
Time = int | datetime
"""ms since the epoch, or a datetime."""
Located = tuple[Any, AbstractContextManager[Any]]
"""A store, and the lock to hold while it is read."""
Find = Callable[[], Sequence[Located]]
"""Returns the stores to read now. Raises InvalidStateStoreError."""

GONE: Final = (
    "This state store is not open here any more; its task may have migrated to another instance. Find the "
    "instance of the key again."
)
_READY: Final = ("RUNNING",)
_ALIVE: Final = ("STARTING", "PARTITIONS_REVOKED", "PARTITIONS_ASSIGNED", "RUNNING")
_CLASSES: Final[Mapping[str, type]] = {
    "key-value": KeyValueStore,
    "window": WindowStore,
    "session": SessionStore,
    "versioned": VersionedKeyValueStore,
}


class FairLock:
    """A lock that goes to the waiting thread: the thread that has released it cannot acquire it again before.

    A plain lock would nearly always return to the stream thread, which acquires it again within microseconds.
    """

    __slots__ = ("_gate", "_lock")

    def __init__(self) -> None:
        self._gate = threading.Lock()
        self._lock = threading.Lock()

    def acquire(self) -> None:
        """Acquire the lock."""
        with self._gate:
            self._lock.acquire()

    def release(self) -> None:
        """Release the lock."""
        self._lock.release()

    def __enter__(self) -> FairLock:
        self.acquire()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


class _View:
    """The common part of all views: reads several stores as one."""

    def __init__(self, name: str, find: Find, convert: Callable[[Any], Any] | None) -> None:
        """`convert` makes the values of the view from those of the store; None where they are the same."""
        self.name = name
        self._find = find
        self._convert = convert

    def _first(self, read: Callable[[Any], Any]) -> Any:
        """The first result that is not None."""
        for store, lock in self._find():
            with lock:
                found = read(check_open(store))
            if found is not None:
                return found if self._convert is None else self._convert(found)
        return None

    def _first_rows(self, read: Callable[[Any], Iterator[Any]]) -> Rows:
        """The rows of the first store that has any; a key is in one of them only."""
        for store, lock in self._find():
            with lock:
                rows = read(check_open(store))
            row = next(rows, None)
            if row is not None:
                return self._rows(_with(row, rows))
        return Rows(iter(()))

    def _all_rows(self, read: Callable[[Any], Iterator[Any]]) -> Rows:
        """The rows of one store after the other; each is opened in its turn."""
        return self._rows(_in_turn(self._find(), read))

    def _rows(self, rows: Iterator[Any]) -> Rows:
        convert = self._convert
        return Rows(rows if convert is None else ((key, convert(value)) for key, value in rows))


class ReadOnlyKeyValueStore(_View):
    """Keys and their values (org.apache.kafka.streams.state.ReadOnlyKeyValueStore)."""

    def get(self, key: Any) -> Any:
        """The value, None where there is none. Raises InvalidStateStoreError, SerializationError, as all methods do."""
        return self._first(lambda store: getattr(store, "peek", store.get)(key))

    def range(self, frm: Any, to: Any) -> Rows:
        """`(key, value)` for the keys between both, these included, store by store; None stands for an open end."""
        return self._all_rows(lambda store: store.range(frm, to))

    def reverse_range(self, frm: Any, to: Any) -> Rows:
        """The same, in each store the last key first."""
        return self._all_rows(lambda store: store.reverse_range(frm, to))

    def all(self) -> Rows:
        """Everything, store by store."""
        return self._all_rows(lambda store: store.all())

    def reverse_all(self) -> Rows:
        """The same, in each store the last key first."""
        return self._all_rows(lambda store: store.reverse_all())

    def prefix_scan(self, prefix: Any, serializer: Callable[[Any], bytes]) -> Rows:
        """`(key, value)` for the keys whose bytes begin with those of `prefix`."""
        return self._all_rows(lambda store: store.prefix_scan(prefix, serializer))

    def approximate_num_entries(self) -> int:
        """How many keys there are, approximately; entries in a cache do not count."""
        total = 0
        for store, lock in self._find():
            with lock:
                total += check_open(store).approximate_num_entries()
        return total


class ReadOnlyWindowStore(_View):
    """Values by key and window (org.apache.kafka.streams.state.ReadOnlyWindowStore)."""

    def fetch(self, key: Any, frm: Time, to: Time | None = None) -> Any:
        """The value of the window that starts at `frm`; with `to`, Rows of `(start, value)` for the starts between."""
        start = _ms(frm)
        if to is None:
            return self._first(lambda store: store.fetch(key, start))
        end = _ms(to)
        return self._first_rows(lambda store: store.fetch(key, start, end))

    def backward_fetch(self, key: Any, frm: Time, to: Time) -> Rows:
        """`(start, value)` for the starts between, the last first."""
        start, end = _ms(frm), _ms(to)
        return self._first_rows(lambda store: store.backward_fetch(key, start, end))

    def fetch_range(self, key_from: Any, key_to: Any, frm: Time, to: Time) -> Rows:
        """`(Windowed, value)` for the keys and the starts between; None stands for an open end of the keys."""
        start, end = _ms(frm), _ms(to)
        return self._all_rows(lambda store: store.fetch_range(key_from, key_to, start, end))

    def backward_fetch_range(self, key_from: Any, key_to: Any, frm: Time, to: Time) -> Rows:
        """The same, in each store in the opposite order."""
        start, end = _ms(frm), _ms(to)
        return self._all_rows(lambda store: store.backward_fetch_range(key_from, key_to, start, end))

    def fetch_all(self, frm: Time, to: Time) -> Rows:
        """`(Windowed, value)` for the starts between."""
        start, end = _ms(frm), _ms(to)
        return self._all_rows(lambda store: store.fetch_all(start, end))

    def backward_fetch_all(self, frm: Time, to: Time) -> Rows:
        """The same, in each store in the opposite order."""
        start, end = _ms(frm), _ms(to)
        return self._all_rows(lambda store: store.backward_fetch_all(start, end))

    def all(self) -> Rows:
        """`(Windowed, value)` for all that has not expired."""
        return self._all_rows(lambda store: store.all())

    def backward_all(self) -> Rows:
        """The same, in each store in the opposite order."""
        return self._all_rows(lambda store: store.backward_all())


class ReadOnlySessionStore(_View):
    """Values by key and session (org.apache.kafka.streams.state.ReadOnlySessionStore)."""

    def fetch(self, key: Any) -> Rows:
        """`(Windowed, value)` for all sessions of a key."""
        return self._first_rows(lambda store: store.fetch(key))

    def backward_fetch(self, key: Any) -> Rows:
        """The same in the opposite order."""
        return self._first_rows(lambda store: store.backward_fetch(key))

    def fetch_range(self, key_from: Any, key_to: Any) -> Rows:
        """`(Windowed, value)` for all sessions of a range of keys; None stands for an open end."""
        return self._all_rows(lambda store: store.fetch_range(key_from, key_to))

    def backward_fetch_range(self, key_from: Any, key_to: Any) -> Rows:
        """The same, in each store in the opposite order."""
        return self._all_rows(lambda store: store.backward_fetch_range(key_from, key_to))

    def fetch_session(self, key: Any, earliest_end: Time, latest_start: Time) -> Any:
        """The value of the session with this start and end, None where there is none."""
        start, end = _ms(earliest_end), _ms(latest_start)
        return self._first(lambda store: store.fetch_session(key, start, end))

    def find_sessions(self, key: Any, earliest_end: Time, latest_start: Time) -> Rows:
        """`(Windowed, value)` for the key's sessions ending from `earliest_end` on, begun by `latest_start`."""
        end, start = _ms(earliest_end), _ms(latest_start)
        return self._first_rows(lambda store: store.find_sessions(key, end, start))

    def backward_find_sessions(self, key: Any, earliest_end: Time, latest_start: Time) -> Rows:
        """The same in the opposite order."""
        end, start = _ms(earliest_end), _ms(latest_start)
        return self._first_rows(lambda store: store.backward_find_sessions(key, end, start))

    def find_sessions_range(self, key_from: Any, key_to: Any, earliest_end: Time, latest_start: Time) -> Rows:
        """The same for a range of keys, of the first store that has any."""
        end, start = _ms(earliest_end), _ms(latest_start)
        return self._first_rows(lambda store: store.find_sessions_range(key_from, key_to, end, start))


class ReadOnlyVersionedStore(_View):
    """Keys and the versions of their values (KIP-960's VersionedKeyQuery)."""

    def get(self, key: Any, as_of: Time | None = None) -> VersionedRecord | None:
        """The latest version, or the one that was valid at `as_of`; None where there is none."""
        at = None if as_of is None else _ms(as_of)
        found: VersionedRecord | None = self._first(lambda store: store.get(key) if at is None else store.get(key, at))
        return found


VIEWS: Final[Mapping[str, type[_View]]] = {
    "key-value": ReadOnlyKeyValueStore,
    "window": ReadOnlyWindowStore,
    "session": ReadOnlySessionStore,
    "versioned": ReadOnlyVersionedStore,
}


def make_view(topology: Topology, name: str, kind: str, find: Find) -> Any:
    """A view of a store of this topology.

    Raises UnknownStateStoreError, InvalidStateStoreError for a store of another kind, ValueError for no kind at all.
    """
    builder: Any = topology.stores.get(name) or topology.global_stores.get(name)
    if builder is None:
        raise UnknownStateStoreError(f"There is no state store {name} in this topology")
    stamped = kind.startswith("timestamped-")
    plain = kind.removeprefix("timestamped-")
    if plain not in VIEWS or (stamped and plain not in ("key-value", "window")):
        raise ValueError(f"{kind!r} is no kind of store; expected one of {', '.join(Kind.__args__)}")  # type: ignore[attr-defined]
    has_time = bool(getattr(builder, "stamped", False))
    actual = getattr(builder, "kind", plain)
    if actual != plain or (stamped and not has_time):
        raise InvalidStateStoreError(
            f"The state store {name} is no {kind} store, but a {'timestamped ' if has_time else ''}{actual} store"
        )
    return VIEWS[plain](name, find, _conversion(has_time and not stamped, stamped, getattr(builder, "result", None)))


class LocalStores:
    """Finds stores in the threads of a client, at each call anew (StreamThreadStateStoreProvider)."""

    def __init__(
        self, threads: Callable[[], Sequence[StreamThread]], globals_of: Callable[[], GlobalState | None]
    ) -> None:
        """Each call evaluates both."""
        self._threads = threads
        self._globals_of = globals_of

    def finder(self, name: str, kind: str, partition: int | None, stale: bool) -> Find:
        """A function that finds the stores of one name: all of them, or the one of a partition."""

        def find() -> list[Located]:
            shared = self._globals_of()
            if shared is not None and name in shared.stores:
                return [(check_class(shared.stores[name], name, kind), shared.lock)]
            found: list[Located] = []
            for thread in self._threads():
                states = _states(thread, name, stale)
                lock = thread.lock
                for state in states:
                    store = state.stores.get(name)
                    if store is not None and partition in (None, state.task_id.partition):
                        found.append((check_class(store, name, kind), lock))
            if found:
                return found
            if partition is not None:
                raise InvalidStateStoreError(f"The store {name} has no partition {partition} on this instance")
            raise InvalidStateStoreError(
                f"The state store {name} is not on this instance; it may have migrated to another one"
            )

        return find


def _states(thread: StreamThread, name: str, stale: bool) -> list[TaskState]:
    """The stores of a thread's tasks that may be read. Raises InvalidStateStoreError while the thread is not ready."""
    state = thread.state.name
    if state == "DEAD":
        return []
    if state not in (_ALIVE if stale else _READY):
        raise InvalidStateStoreError(
            f"The state store {name} cannot be read while {thread.name} is {state}, not RUNNING"
            f"{' or REBALANCING' if stale else ''}"
        )
    tasks, standbys = thread.tasks, thread.standbys
    active = list(tasks.tasks.values()) if tasks is not None else []
    if not stale:
        return [each.state for each in active if each.task is not None]
    return [each.state for each in active] + (list(standbys.tasks.values()) if standbys is not None else [])


def check_class(store: Any, name: str, kind: str) -> Any:
    """A store, if it is of this kind; a user's own store declares its kind by its class. Raises
    InvalidStateStoreError.
    """
    wanted = _CLASSES[kind.removeprefix("timestamped-")]
    if not isinstance(store, wanted):
        raise InvalidStateStoreError(f"The state store {name} is no {kind} store, but a {type(store).__name__}")
    return store


def check_open(store: Any) -> Any:
    """The store. Raises InvalidStateStoreError: a rebalance may have closed it between the search and the read."""
    if not store.is_open:
        raise InvalidStateStoreError(GONE)
    return store


def _in_turn(stores: Iterable[Located], read: Callable[[Any], Iterator[Any]]) -> Iterator[Any]:
    for store, lock in stores:
        with lock:
            rows = read(check_open(store))
        yield from rows


def _with(row: Any, rows: Iterator[Any]) -> Iterator[Any]:
    yield row
    yield from rows


def _value_of(stamped: Any) -> Any:
    return stamped[0]


def _conversion(strip: bool, stamped: bool, result: Result | None) -> Callable[[Any], Any] | None:
    """From the values of a store to those of its view. `strip`: without their timestamps, which the store has."""
    if result is None:
        return _value_of if strip else None
    if strip:
        return lambda found: result(found[0])
    return lambda found: shown(found, result, stamped)


def _ms(moment: Time) -> int:
    return round(moment.timestamp() * 1000) if isinstance(moment, datetime) else moment
