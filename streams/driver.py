"""Test driver: runs a topology in the calling thread without a broker (Kafka:
org.apache.kafka.streams.TopologyTestDriver).

A test pipes records into input topics and reads them from output topics; `pipe_input` returns after the driver has
processed everything that the record causes. The test controls time: stream time comes from the records, and wall-clock
time stands still until the test advances it.

    with TopologyTestDriver(topology) as driver:
        lines = driver.create_input_topic("lines", STRING, STRING)
        counts = driver.create_output_topic("counts", STRING, LONG)
        lines.pipe_input("k", "all the world")
        assert counts.read_key_values_to_map() == {"all": 1, "the": 1, "world": 1}

The driver uses the runtime's Task and differs from a cluster as Java's driver does: every topic has one partition, all
sub-topologies are one task, records written to a source topic of the topology return at once, and each record is
committed separately, so that caches hold nothing back.
"""

from __future__ import annotations

import random
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from types import TracebackType
from typing import Any, Final, Generic, TypeVar

from odradek.streams.config import StreamsConfig
from odradek.streams.driver_stores import KeyValueStoreFacade, WindowStoreFacade
from odradek.streams.driver_tasks import DriverTasks, ProducedRecord
from odradek.streams.metrics import Metrics, driver_metrics
from odradek.streams.operators.emission import EMIT_INTERVAL as WINDOW_EMIT_INTERVAL
from odradek.streams.operators.stream_join import EMIT_INTERVAL as JOIN_EMIT_INTERVAL
from odradek.streams.records import Headers, Record
from odradek.streams.serdes import Serde
from odradek.streams.shown_results import ResultStore
from odradek.streams.stores.interface import (
    KeyValueStore,
    SessionStore,
    TimestampedKeyValueStore,
    TimestampedWindowStore,
    VersionedKeyValueStore,
    WindowStore,
)
from odradek.streams.topology import Topology

K = TypeVar("K")
V = TypeVar("V")
Time = int | datetime
"""ms since the epoch, or a datetime (a naive one is local, as everywhere in Python)."""
Span = int | timedelta
"""ms, or a timedelta."""

Pipe = Callable[[str, bytes | None, bytes | None, int, Headers], None]
"""Takes a topic and a record for it: key, value, timestamp and headers."""

_MS: Final = timedelta(milliseconds=1)
# Outer joins and closed windows check their buffers with every record, as in Java's driver.
_AT_ONCE: Final = dict.fromkeys((JOIN_EMIT_INTERVAL, WINDOW_EMIT_INTERVAL), 0)


class TopologyTestDriver:
    """Runs a topology. A context manager; otherwise `close()` it, which removes the stores' files.

    `config` contains properties of the application, under Kafka's names (`default.key.serde`, `state.dir`, …); none is
    required. Without `state.dir`, persistent stores are in a temporary directory. `initial_wall_clock` is the initial
    wall-clock time, by default the current time; it does not advance by itself.

    Raises StreamsError for a topology that cannot run.
    """

    def __init__(
        self, topology: Topology, config: Mapping[str, Any] | None = None, initial_wall_clock: Time | None = None
    ) -> None:
        application = f"dummy-topology-test-driver-app-id-{random.randrange(2**31)}"
        defaults = {"application.id": application, "bootstrap.servers": "none", **_AT_ONCE}
        self.config = StreamsConfig({**defaults, **(config or {})})
        self.topology = topology
        now_ms = _ms_of(initial_wall_clock) if initial_wall_clock is not None else time.time_ns() // 1_000_000
        self._tasks = DriverTasks(topology, self.config, now_ms)
        self._closed = False

    def __enter__(self) -> TopologyTestDriver:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close processors and stores; caches are flushed first. A second call does nothing."""
        if self._closed:
            return
        self._closed = True
        self._tasks.close()

    # ---- topics

    def create_input_topic(
        self,
        topic: str,
        key: Serde[K],
        value: Serde[V],
        start_timestamp: Time | None = None,
        auto_advance: Span = 0,
    ) -> TestInputTopic[K, V]:
        """A topic to pipe records into.

        Records without a timestamp get `start_timestamp` (the current time if omitted), which advances by
        `auto_advance` with each of them. Raises ValueError for a negative `auto_advance`.
        """
        return TestInputTopic(self.pipe, topic, key, value, start_timestamp, auto_advance)

    def create_output_topic(self, topic: str, key: Serde[K], value: Serde[V]) -> TestOutputTopic[K, V]:
        """A topic to read written records from. Two objects for one topic take from the same records."""
        return TestOutputTopic(self._tasks.produced, topic, key, value)

    def produced_topic_names(self) -> set[str]:
        """The topics that the topology has written to, repartition topics and changelogs included."""
        return set(self._tasks.produced)

    def read(self, topic: str) -> ProducedRecord | None:
        """Take the first record from an output topic, as bytes; None where there is none."""
        waiting = self._tasks.produced.get(topic)
        return waiting.popleft() if waiting else None

    def queue_size(self, topic: str) -> int:
        """How many records of a topic have not been read yet."""
        return len(self._tasks.produced.get(topic, ()))

    def pipe(self, topic: str, key: bytes | None, value: bytes | None, timestamp: int, headers: Headers = None) -> None:
        """Pipe in a record as bytes, and process everything that it causes.

        Raises ValueError for a topic that the topology does not read, StreamsError for errors within it.
        """
        if not self._tasks.feed(topic, ProducedRecord(key, value, timestamp, headers)):
            raise ValueError(f"Unknown topic: {topic}")
        self._tasks.complete_work()

    # ---- time

    def advance_wall_clock_time(self, by: Span) -> None:
        """Advance wall-clock time. Due punctuators are called, once each for any amount of time."""
        self._tasks.advance(_span_ms(by))

    # ---- queries

    @property
    def dropped_records(self) -> int:
        """How many records nodes have dropped, such as late ones (Kafka's metric dropped-records-total)."""
        task = self._tasks.task
        return 0 if task is None else task.context.dropped

    def get_state_store(self, name: str) -> Any:
        """A store of the topology, global ones included; None for an unknown name.

        Timestamped stores, which the DSL uses, hold `(value, timestamp)`; the methods below leave the timestamp out.
        """
        return self._tasks.stores.get(name)

    def get_key_value_store(self, name: str) -> KeyValueStore | KeyValueStoreFacade | None:
        """A key-value store of values without timestamps; None for an unknown name.

        Raises ValueError for a store of another kind, as all of these methods do.
        """
        store = self._store_of(name, "key-value")
        facade = store is not None and self._builder(name).stamped
        found: KeyValueStore | KeyValueStoreFacade | None = self._shown(
            name, KeyValueStoreFacade(store) if facade else store
        )
        return found

    def get_timestamped_key_value_store(self, name: str) -> TimestampedKeyValueStore | None:
        """A key-value store of `(value, timestamp)`."""
        found: TimestampedKeyValueStore | None = self._shown(
            name, self._store_of(name, "key-value", stamped=True), True
        )
        return found

    def get_versioned_key_value_store(self, name: str) -> VersionedKeyValueStore | None:
        """A store of all versions of a value."""
        found: VersionedKeyValueStore | None = self._shown(name, self._store_of(name, "versioned"))
        return found

    def get_window_store(self, name: str) -> WindowStore | WindowStoreFacade | None:
        """A window store of values without timestamps."""
        store = self._store_of(name, "window")
        facade = store is not None and self._builder(name).stamped
        found: WindowStore | WindowStoreFacade | None = self._shown(name, WindowStoreFacade(store) if facade else store)
        return found

    def get_timestamped_window_store(self, name: str) -> TimestampedWindowStore | None:
        """A window store of `(value, timestamp)`."""
        found: TimestampedWindowStore | None = self._shown(name, self._store_of(name, "window", stamped=True), True)
        return found

    def get_session_store(self, name: str) -> SessionStore | None:
        """A session store."""
        found: SessionStore | None = self._shown(name, self._store_of(name, "session"))
        return found

    def metrics(self) -> Metrics:
        """The metrics, by group, name and tags, the user's sensors among them; see `metrics.py`."""
        own = driver_metrics(self, self._tasks.task, threading.current_thread().name)
        return own | self._tasks.sensors.metrics()

    def get_all_state_stores(self) -> Mapping[str, Any]:
        """All stores by their names."""
        return dict(self._tasks.stores)

    # ---- internals

    def _builder(self, name: str) -> Any:
        return self.topology.stores.get(name) or self.topology.global_stores[name]

    def _shown(self, name: str, store: Any, stamped: bool = False) -> Any:
        """The store, which shows results where it holds the states of an aggregation by name."""
        result = None if store is None else getattr(self._builder(name), "result", None)
        return store if result is None else ResultStore(store, result, stamped)

    def _store_of(self, name: str, kind: str, stamped: bool = False) -> Any:
        store = self._tasks.stores.get(name)
        if store is not None:
            builder = self._builder(name)
            found = getattr(builder, "kind", "other")
            if found != kind or (stamped and not builder.stamped):
                raise ValueError(f"Store {name} is no {'timestamped ' * stamped}{kind} store: it is {builder}")
        return store


class TestInputTopic(Generic[K, V]):
    """A topic of the driver to pipe records into; `create_input_topic` creates it."""

    __test__ = False  # pytest would collect a class with this name as a test

    def __init__(
        self,
        pipe: Pipe,
        topic: str,
        key: Serde[K],
        value: Serde[V],
        start_timestamp: Time | None,
        auto_advance: Span,
    ) -> None:
        self.topic = topic
        self._pipe_bytes = pipe
        self._key = key.for_topic(topic, True)
        self._value = value.for_topic(topic, False)
        self._now = time.time_ns() // 1_000_000 if start_timestamp is None else _ms_of(start_timestamp)
        self._advance = _span_ms(auto_advance)
        if self._advance < 0:
            raise ValueError("auto_advance must be non-negative")

    def advance_time(self, by: Span) -> None:
        """Advance the time for records without a timestamp. Raises ValueError for a negative span."""
        ms = _span_ms(by)
        if ms < 0:
            raise ValueError("advance must be positive")
        self._now += ms

    def pipe_input(
        self, *key_and_value: Any, timestamp: Time | None = None, headers: Sequence[tuple[str, bytes | None]] = ()
    ) -> None:
        """One record: `pipe_input(value)` without a key, or `pipe_input(key, value)`; `pipe_input(record)` takes a
        Record.

        Raises TypeError for other arguments, ValueError for a topic that the topology does not read and for a negative
        timestamp, StreamsError for errors within the topology.
        """
        if len(key_and_value) == 1 and isinstance(key_and_value[0], Record):
            record = key_and_value[0]
            self._pipe(record.key, record.value, record.timestamp, record.headers)
            return
        if not 1 <= len(key_and_value) <= 2:
            raise TypeError(f"pipe_input takes a value, or a key and a value, not {len(key_and_value)} arguments")
        key, value = key_and_value if len(key_and_value) == 2 else (None, key_and_value[0])
        self._pipe(key, value, None if timestamp is None else _ms_of(timestamp), list(headers) or None)

    def pipe_value_list(
        self, values: Iterable[V | None], start_timestamp: Time | None = None, advance: Span = 0
    ) -> None:
        """A record without a key for each value; with timestamps of their own if `start_timestamp` is given."""
        self.pipe_key_value_list(((None, value) for value in values), start_timestamp, advance)

    def pipe_key_value_list(
        self, pairs: Iterable[tuple[K | None, V | None]], start_timestamp: Time | None = None, advance: Span = 0
    ) -> None:
        """A record for each key and value; with timestamps of their own if `start_timestamp` is given."""
        at = None if start_timestamp is None else _ms_of(start_timestamp)
        step = _span_ms(advance)
        for key, value in pairs:
            self._pipe(key, value, at, None)
            if at is not None:
                at += step

    def pipe_record_list(self, records: Iterable[Record]) -> None:
        """Pipe in records unchanged."""
        for record in records:
            self._pipe(record.key, record.value, record.timestamp, record.headers)

    def _pipe(self, key: K | None, value: V | None, timestamp: int | None, headers: Headers) -> None:
        if timestamp is None:
            timestamp = self._now
            self._now += self._advance
        if timestamp < 0:
            raise ValueError(f"a record's timestamp cannot be negative: {timestamp}")
        key_bytes = None if key is None else self._key.serialize(key)
        value_bytes = None if value is None else self._value.serialize(value)
        self._pipe_bytes(self.topic, key_bytes, value_bytes, timestamp, headers)


class TestOutputTopic(Generic[K, V]):
    """A topic of the driver to read written records from; `create_output_topic` creates it."""

    __test__ = False

    def __init__(
        self, produced: Mapping[str, deque[ProducedRecord]], topic: str, key: Serde[K], value: Serde[V]
    ) -> None:
        """`produced` are the unread records of all topics."""
        self.topic = topic
        self._produced = produced
        self._key = key.for_topic(topic, True)
        self._value = value.for_topic(topic, False)

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to read."""
        return self.queue_size == 0

    @property
    def queue_size(self) -> int:
        """How many records there are to read."""
        return len(self._produced.get(self.topic, ()))

    def read_record(self) -> Record[K | None, V | None]:
        """Take the next record. Raises LookupError where there is none."""
        waiting = self._produced.get(self.topic)
        if not waiting:
            raise LookupError(f"{'Uninitialized' if waiting is None else 'Empty'} topic: {self.topic}")
        produced = waiting.popleft()
        key = None if produced.key is None else self._key.deserialize(produced.key)
        value = None if produced.value is None else self._value.deserialize(produced.value)
        return Record(key, value, produced.timestamp, produced.headers)

    def read_value(self) -> V | None:
        """Take the value of the next record. Raises LookupError where there is none."""
        return self.read_record().value

    def read_key_value(self) -> tuple[K | None, V | None]:
        """Take key and value of the next record. Raises LookupError where there is none."""
        record = self.read_record()
        return record.key, record.value

    def read_records_to_list(self) -> list[Record[K | None, V | None]]:
        """Take all records."""
        return [self.read_record() for _ in range(self.queue_size)]

    def read_values_to_list(self) -> list[V | None]:
        """Take all records, for their values."""
        return [record.value for record in self.read_records_to_list()]

    def read_key_values_to_list(self) -> list[tuple[K | None, V | None]]:
        """Take all records, for their keys and values."""
        return [(record.key, record.value) for record in self.read_records_to_list()]

    def read_key_values_to_map(self) -> dict[K, V | None]:
        """Take all records; the latest value of each key. Raises ValueError for a record without a key."""
        found: dict[K, V | None] = {}
        for key, value in self.read_key_values_to_list():
            if key is None:
                raise ValueError("Null keys not allowed with read_key_values_to_map")
            found[key] = value
        return found


def _ms_of(moment: Time) -> int:
    return round(moment.timestamp() * 1000) if isinstance(moment, datetime) else moment


def _span_ms(span: Span) -> int:
    return span // _MS if isinstance(span, timedelta) else span
