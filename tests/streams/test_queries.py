"""Views of stores for other threads: their contents, when they raise, and that they do not disturb processing."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.streams.driver import TopologyTestDriver
from odradek.streams.dsl.builder import StreamsBuilder
from odradek.streams.dsl.options import Consumed, Materialized
from odradek.streams.errors import InvalidStateStoreError, UnknownStateStoreError
from odradek.streams.queries import FairLock, LocalStores, make_view
from odradek.streams.records import TaskId, Window, Windowed
from odradek.streams.running.locations import sources_by_store
from odradek.streams.running.thread_context import ThreadState
from odradek.streams.serdes import LONG, STRING
from odradek.streams.stores import builders
from odradek.streams.topology import Topology
from tests.streams.counting import word_counts
from tests.streams.oracle.java import Java
from tests.streams.oracle.java_dsl import JavaStreamsBuilder
from tests.streams.oracle.options import java_map
from tests.streams.stores.implementations import Context

WEEK_MS = 7 * 24 * 3600 * 1000
BUILDERS = {
    each.name: each
    for each in (
        builders.key_value_store("plain", STRING, LONG, persistent=False),
        builders.timestamped_key_value_store("stamped", STRING, LONG, persistent=False).with_caching(),
        builders.timestamped_window_store("windows", WEEK_MS, 10, STRING, LONG, persistent=False).with_caching(),
        builders.session_store("sessions", WEEK_MS, STRING, LONG, persistent=False),
        builders.versioned_key_value_store("versioned", WEEK_MS, STRING, LONG),
    )
}


class Two:
    """A topology of one store, and that store in two tasks."""

    def __init__(self, name: str, cache_bytes: int = 1_000_000) -> None:
        self.topology = Topology()
        self.topology.add_source("in", ["in"])
        self.topology.add_processor("work", lambda: pytest.fail("no thread runs here"), "in")
        self.topology.add_state_store(BUILDERS[name], "work")
        self.contexts = [Context(cache_bytes=cache_bytes), Context(cache_bytes=cache_bytes)]
        self.stores: list[Any] = [BUILDERS[name].build() for _ in range(2)]
        for store, context in zip(self.stores, self.contexts, strict=True):
            store.init(context)
        self.name = name

    def view(self, kind: str) -> Any:
        return make_view(self.topology, self.name, kind, lambda: [(store, nullcontext()) for store in self.stores])


@given(entries=st.dictionaries(st.text("abc", min_size=1, max_size=3), st.integers(0, 9)), frm=st.text("abc"))
@settings(max_examples=50, deadline=None)
def test_two_stores_read_as_one(entries: dict[str, int], frm: str) -> None:
    two = Two("plain")
    for key, value in entries.items():
        two.stores[len(key) % 2].put(key, value)
    view = two.view("key-value")
    assert {key: view.get(key) for key in entries} == entries
    assert view.get("d") is None
    first, second = (sorted(key for key in entries if len(key) % 2 == number) for number in range(2))
    assert list(view.all()) == [(key, entries[key]) for key in first + second]
    assert list(view.reverse_all()) == [(key, entries[key]) for key in first[::-1] + second[::-1]]
    assert list(view.range(frm, None)) == [(key, entries[key]) for key in first + second if key >= frm]
    assert list(view.reverse_range(None, frm)) == [
        (key, entries[key]) for key in first[::-1] + second[::-1] if key <= frm
    ]
    assert list(view.prefix_scan("a", STRING.serialize)) == [
        (key, entries[key]) for key in first + second if key.startswith("a")
    ]
    assert view.approximate_num_entries() == len(entries)


def test_a_timestamped_store_shows_its_values_with_or_without_their_times() -> None:
    two = Two("stamped")
    two.stores[1].put("a", (7, 1_000))
    assert two.view("key-value").get("a") == 7
    assert two.view("timestamped-key-value").get("a") == (7, 1_000)
    assert list(two.view("key-value").all()) == [("a", 7)]
    assert list(two.view("timestamped-key-value").all()) == [("a", (7, 1_000))]


def test_windows() -> None:
    two = Two("windows")
    for start in (0, 10, 20):
        two.stores[1].put("b", (start, 5), start)
    two.stores[0].put("a", (1, 5), 10)
    view = two.view("window")
    assert view.fetch("b", 10) == 10
    assert view.fetch("b", 11) is None
    assert list(view.fetch("b", 0, 10)) == [(0, 0), (10, 10)]
    assert list(view.backward_fetch("b", 0, 10)) == [(10, 10), (0, 0)]
    a, b = Windowed("a", Window(10, 20)), [Windowed("b", Window(start, start + 10)) for start in (0, 10, 20)]
    assert list(view.all()) == [(a, 1), (b[0], 0), (b[1], 10), (b[2], 20)]
    assert list(view.fetch_all(10, 10)) == [(a, 1), (b[1], 10)]
    assert list(view.fetch_range("b", "b", 5, 30)) == [(b[1], 10), (b[2], 20)]
    assert list(view.backward_fetch_range("a", "b", 5, 30)) == [(a, 1), (b[2], 20), (b[1], 10)]
    assert list(view.backward_fetch_all(10, 30)) == [(a, 1), (b[2], 20), (b[1], 10)]
    assert list(view.backward_all()) == [(a, 1), (b[2], 20), (b[1], 10), (b[0], 0)]
    assert two.view("timestamped-window").fetch("b", 10) == (10, 5)


def test_sessions() -> None:
    two = Two("sessions")
    early, late, other = (
        Windowed(key, Window(*times)) for key, times in (("a", (0, 5)), ("a", (20, 30)), ("b", (1, 2)))
    )
    for session, value, store in ((early, 1, 0), (late, 2, 0), (other, 3, 1)):
        two.stores[store].put(session, value)
    view = two.view("session")
    assert list(view.fetch("a")) == [(early, 1), (late, 2)]
    assert list(view.backward_fetch("a")) == [(late, 2), (early, 1)]
    assert list(view.fetch("b")) == [(other, 3)]
    assert list(view.fetch("c")) == []
    assert list(view.fetch_range("a", "b")) == [(early, 1), (late, 2), (other, 3)]
    assert list(view.backward_fetch_range(None, None)) == [(late, 2), (early, 1), (other, 3)]
    assert view.fetch_session("a", 20, 30) == 2
    assert list(view.find_sessions("a", 6, 40)) == [(late, 2)]
    assert list(view.backward_find_sessions("a", 0, 10)) == [(early, 1)]
    assert list(view.find_sessions_range("b", "b", 0, 40)) == [(other, 3)]


def test_versions() -> None:
    two = Two("versioned")
    two.stores[0].put("a", 1, 100)
    two.stores[0].put("a", 2, 200)
    view = two.view("versioned")
    assert view.get("a")[:2] == (2, 200)
    assert view.get("a", as_of=150)[:2] == (1, 100)
    assert view.get("a", as_of=50) is None
    assert view.get("b") is None


def test_a_query_sees_the_cache_and_does_not_enter_it() -> None:
    two = Two("stamped", cache_bytes=10_000)
    store, context = two.stores[0], two.contexts[0]
    store.restore([(STRING.serialize(f"k{number}"), LONG.serialize(number), number, None) for number in range(500)])
    written: list[Any] = []
    store.set_flush_listener(lambda key, new, *rest: written.append(key), False)
    store.put("fresh", (1, 1))
    before = context.cache.size
    view = two.view("key-value")
    assert view.get("fresh") == 1
    assert [view.get(f"k{number}") for number in range(500)] == list(range(500))
    assert len(list(view.all())) == 501
    assert context.cache.size == before
    assert written == []
    assert [store.get(f"k{number}") for number in range(500)] == [(number, number) for number in range(500)]
    assert written == ["fresh"], "a read of the task itself does make room"


def test_rows_are_those_of_the_moment_when_the_range_was_opened() -> None:
    two = Two("plain")
    two.stores[0].put("a", 1)
    rows = two.view("key-value").all()
    first = next(rows)
    two.stores[0].put("b", 2)
    assert [first, *rows] == [("a", 1)]


@pytest.mark.parametrize(
    ("name", "kind"),
    [("plain", "window"), ("plain", "timestamped-key-value"), ("windows", "key-value"), ("sessions", "window")],
)
def test_a_store_of_another_kind_is_rejected(name: str, kind: str) -> None:
    with pytest.raises(InvalidStateStoreError, match=r"is no .* store, but a"):
        Two(name).view(kind)


def test_missing_stores_are_rejected() -> None:
    with pytest.raises(UnknownStateStoreError, match="There is no state store"):
        make_view(Topology(), "plain", "key-value", list)
    with pytest.raises(ValueError, match="no kind of store"):
        Two("plain").view("timestamped-session")
    two = Two("plain")
    view = two.view("key-value")
    two.stores[0].close()
    reads: list[Callable[[], Any]] = [lambda: view.get("a"), lambda: list(view.all()), view.approximate_num_entries]
    for read in reads:
        with pytest.raises(InvalidStateStoreError, match="not open here any more"):
            read()


def test_a_store_of_the_users_own_is_chosen_by_its_class() -> None:
    class Own:
        name, logging = "own", False

        def build(self) -> Any:
            return BUILDERS["plain"].build()

    topology = Topology()
    topology.add_source("in", ["in"])
    topology.add_processor("work", lambda: pytest.fail("no thread runs here"), "in")
    topology.add_state_store(Own(), "work")
    store: Any = Own().build()
    store.init(Context())
    store.put("a", 1)
    assert make_view(topology, "own", "key-value", lambda: [(store, nullcontext())]).get("a") == 1


def test_a_fair_lock_goes_to_the_waiting_thread() -> None:
    lock, asked, seen = FairLock(), threading.Event(), list[int]()
    turns = 0

    def ask() -> None:
        asked.set()
        with lock:
            seen.append(turns)

    reader = threading.Thread(target=ask)
    deadline = time.monotonic() + 30
    with lock:
        reader.start()
        assert asked.wait(30)
    while not seen:
        assert time.monotonic() < deadline
        with lock:
            turns += 1
            sum(range(1000))
    reader.join()
    assert seen[0] < 1_000, "a thread that releases and takes it again at once does not keep it"


def test_the_driver_s_stores_are_those_that_a_view_reads() -> None:
    with TopologyTestDriver(word_counts(in_memory=True)) as driver:
        driver.create_input_topic("words", STRING, STRING).pipe_value_list(["a", "b", "a"])
        store = driver.get_state_store("totals")
        view = make_view(driver.topology, "totals", "key-value", lambda: [(store, nullcontext())])
        assert dict(view.all()) == {"a": 2, "b": 1}


class Thread:
    """A stream thread as queries use it: a task that runs, one that is restored, and a standby."""

    def __init__(self, state: str) -> None:
        self.state = ThreadState[state]
        self.name, self.lock = "thread-1", FairLock()
        self.stores = {name: Two("plain").stores[0] for name in ("runs", "restores", "stands by")}
        for name, store in self.stores.items():
            store.put(name, 1)
        runs, restores, standby = (
            SimpleNamespace(task_id=TaskId(0, partition), stores={"plain": store})
            for partition, store in enumerate(self.stores.values())
        )
        active = {0: SimpleNamespace(state=runs, task=object()), 1: SimpleNamespace(state=restores, task=None)}
        self.tasks = SimpleNamespace(tasks=active)
        self.standbys = SimpleNamespace(tasks={2: standby})


def keys(thread: Thread, stale: bool, partition: int | None = None) -> list[str]:
    threads: Any = [thread]
    stores = LocalStores(lambda: threads, lambda: None)
    view = make_view(Two("plain").topology, "plain", "key-value", stores.finder("plain", "key-value", partition, stale))
    return [key for key, _ in view.all()]


def test_readable_stores_of_each_state() -> None:
    assert keys(Thread("RUNNING"), stale=False) == ["runs"]
    for state in ("RUNNING", "PARTITIONS_ASSIGNED", "PARTITIONS_REVOKED", "STARTING"):
        assert keys(Thread(state), stale=True) == ["runs", "restores", "stands by"]
    assert keys(Thread("RUNNING"), stale=True, partition=2) == ["stands by"]
    for state in ("CREATED", "STARTING", "PARTITIONS_REVOKED", "PARTITIONS_ASSIGNED", "PENDING_SHUTDOWN"):
        with pytest.raises(InvalidStateStoreError, match=f"thread-1 is {state}, not RUNNING"):
            keys(Thread(state), stale=False)
    with pytest.raises(InvalidStateStoreError, match="PENDING_SHUTDOWN, not RUNNING or REBALANCING"):
        keys(Thread("PENDING_SHUTDOWN"), stale=True)
    with pytest.raises(InvalidStateStoreError, match="is not on this instance"):
        keys(Thread("DEAD"), stale=True)
    with pytest.raises(InvalidStateStoreError, match="no partition 2 on this instance"):
        keys(Thread("RUNNING"), stale=False, partition=2)


def tables(builder: Any) -> None:
    """Stores that several nodes use, and stores behind repartition topics."""
    table = builder.table("table", Consumed(STRING, STRING), Materialized("of-table"))
    stream = builder.stream("stream", Consumed(STRING, STRING))
    stream.join(table, lambda left, right: left).to("joined")
    stream.group_by(lambda key, value: value).count(Materialized("by-value"))
    other = builder.table("other", Consumed(STRING, STRING), Materialized("of-other"))
    table.join(other, lambda left, right: left, Materialized("of-both")).to_stream().to("out")
    both = builder.stream(["first", "second"], Consumed(STRING, STRING)).merge(stream)
    both.group_by_key().reduce(lambda left, right: left, Materialized("merged"))


@pytest.mark.jvm
def test_the_source_topics_of_stores_are_javas(java: Java) -> None:
    theirs = JavaStreamsBuilder()
    tables(theirs)
    topology = theirs.build()
    field = java.find("org.apache.kafka.streams.Topology").class_.getDeclaredField("internalTopologyBuilder")
    field.setAccessible(True)
    internal = field.get(topology)
    settings = java_map({"application.id": "app", "bootstrap.servers": "none:1"})
    internal.rewriteTopology(java.StreamsConfig(settings))
    found = internal.stateStoreNameToFullSourceTopicNames()
    ours = StreamsBuilder()
    tables(ours)
    sources = sources_by_store(ours.build(), "app", ())
    assert {name: set(topics) for name, topics in sources.items()} == {
        str(name): {str(topic) for topic in found.get(name)} for name in found.keySet()
    }
