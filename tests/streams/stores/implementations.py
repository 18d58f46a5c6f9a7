"""One store of Odradek's and the same one of Java's, with the same operations.

Operations come in batches: each is a processor's work on one record, after which the task commits, so that cached rows
are written. Java's store lives in a TopologyTestDriver; Odradek's in a context of its own.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from hypothesis import strategies as st

from odradek.streams.processor import Processor
from odradek.streams.records import Headers, Record, TaskId
from odradek.streams.serdes import BYTES
from odradek.streams.stores.builders import StoreBuilder
from odradek.streams.stores.cache import ThreadCache
from odradek.streams.stores.interface import ChangelogRecord, StateStore
from tests.streams.oracle.java import java
from tests.streams.oracle.java_driver import JavaDriver
from tests.streams.oracle.java_dsl import JavaTopology

DEFAULT_CACHE = 10 * 1024 * 1024
IN_MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None  # a folder for databases that need not last


class Batch(NamedTuple):
    """A record's timestamp and headers, and the operations on the store while it is processed."""

    timestamp: int
    operations: Sequence[tuple[Any, ...]]
    headers: Headers = None


class Outcome(NamedTuple):
    """The results of the operations, and the records of the changelog (key, value, timestamp)."""

    results: list[list[Any]]
    changelog: list[tuple[bytes, bytes | None, int]]


class Context:
    """The context of a task, as far as stores need it."""

    def __init__(self, store_dir: Path | None = None, cache_bytes: int = DEFAULT_CACHE, **config: Any) -> None:
        self.task_id = TaskId(0, 0)
        self.application_id = "app"
        self.config: Mapping[str, Any] = config
        self.store_dir = store_dir
        self.cache = ThreadCache(cache_bytes)
        self.timestamp = -1
        self.headers: Headers = None
        self.topic: str | None = None
        self.partition = 0
        self.offset = -1
        self.stream_time = -1
        self.dropped = 0
        self.logged: list[ChangelogRecord] = []

    def log(self, store: str, key: bytes, value: bytes | None, timestamp: int, headers: Headers = None) -> None:
        self.logged.append((key, value, timestamp, headers))

    def at(self, timestamp: int, headers: Headers = None) -> None:
        """Another record comes."""
        self.timestamp, self.headers, self.topic = timestamp, headers, "in"
        self.offset += 1
        self.stream_time = max(self.stream_time, timestamp)


def ours(store: StateStore, context: Context, batches: Iterable[Batch]) -> Outcome:
    """Run the batches on an open store of Odradek's."""
    results = []
    for batch in batches:
        context.at(batch.timestamp, batch.headers)
        results.append([result_of(getattr(store, name)(*arguments)) for name, *arguments in batch.operations])
        store.flush_cache()
    return Outcome(results, [(key, value, timestamp) for key, value, timestamp, _ in context.logged])


def javas(builder: StoreBuilder, batches: Iterable[Batch], cache_bytes: int = DEFAULT_CACHE) -> Outcome:
    """Run the batches on Java's store."""
    results: list[list[Any]] = []
    at_hand: list[Batch] = []

    class Operator(Processor):
        def process(self, record: Record) -> None:
            store = self.context.state_store(builder.name)
            results.append([_on_java(store, builder, each) for each in at_hand[0].operations])

    topology = JavaTopology().add_source("in", "in", key=BYTES, value=BYTES).add_processor("operator", Operator, "in")
    topology.add_state_store(builder, "operator")
    with JavaDriver(topology.build(), {"statestore.cache.max.bytes": str(cache_bytes)}) as driver:
        for batch in batches:
            at_hand[:] = [batch]
            driver.pipe("in", b"k", b"v", batch.timestamp, batch.headers)
        written = driver.outputs(f"app-{builder.name}-changelog")
    return Outcome(results, [(each.key or b"", each.value, each.timestamp) for each in written])


def _on_java(store: Any, builder: StoreBuilder, operation: tuple[Any, ...]) -> Any:
    name, *arguments = operation
    if builder.stamped:
        arguments = [_stamped(each) for each in arguments]
    if name == "put_all":
        arguments = [[(key, _stamped(value)) for key, value in operation[1]]]
    if name == "prefix_scan":
        arguments[1] = java().StringSerializer()
    return result_of(getattr(store, name)(*arguments))


def _stamped(value: Any) -> Any:
    if type(value) is tuple:
        return java().ValueAndTimestamp.make(java().String(value[0]), value[1])
    return value


def result_of(value: Any) -> Any:
    """Reads as lists."""
    return list(value) if hasattr(value, "__next__") else value


def stamped(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Values with timestamps."""
    return st.one_of(st.none(), st.tuples(values.filter(lambda value: value is not None), st.integers(0, 99)))


def batches(each: st.SearchStrategy[tuple[Any, ...]], most: int = 12) -> st.SearchStrategy[list[Batch]]:
    """Several records' worth of operations."""
    headers = st.sampled_from([None, [("h", b"1")], [("h", None), ("other", b"12")]])
    batch = st.builds(Batch, st.integers(0, 99), st.lists(each, max_size=most), headers)
    return st.lists(batch, min_size=1, max_size=4)


def comparable(work: list[Batch]) -> list[Batch]:
    """Without the reads that Java's caches get wrong.

    Read backwards they show deleted rows (they look for them in forward order), and a range of windows that is open on
    either side repeats rows, once for every segment.
    """

    def sound(operation: tuple[Any, ...]) -> bool:
        name, *arguments = operation
        return not name.startswith(("reverse", "backward")) and not (name == "fetch_range" and None in arguments)

    return [batch._replace(operations=[each for each in batch.operations if sound(each)]) for batch in work]


def check(builder: StoreBuilder, work: list[Batch], cache_bytes: int = 10_000_000) -> None:
    if builder.caching:
        work = comparable(work)
    with tempfile.TemporaryDirectory(dir=IN_MEMORY) as folder:
        context = Context(Path(folder), cache_bytes)
        store = builder.build()
        store.init(context)
        try:
            found = ours(store, context, work)
        finally:
            store.close()
    wanted = javas(builder, work, cache_bytes)
    for batch, mine, theirs in zip(work, found.results, wanted.results, strict=True):
        for operation, result, java_result in zip(batch.operations, mine, theirs, strict=True):
            assert result == java_result, f"{operation}: {result}, in Java {java_result}"
    assert found.changelog == wanted.changelog, f"{found.changelog}, in Java {wanted.changelog}"
