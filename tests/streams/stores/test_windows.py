"""Window and session stores beside Java's: the same reads, the same changelog, the same records dropped as late."""

from __future__ import annotations

import tempfile
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st

from odradek.streams.records import Window, Windowed
from odradek.streams.serdes import BYTES, LONG, STRING
from odradek.streams.stores import builders
from odradek.streams.stores.builders import StoreBuilder
from tests.streams.stores.implementations import IN_MEMORY, Batch, Context, batches, check, ours, stamped

KEYS = st.sampled_from(["a", "aa", "ab", "b"])
BOUNDS = st.one_of(st.none(), KEYS)
VALUES = st.one_of(st.none(), st.text("xyz", max_size=2))
# A retention of 100 ms, in memory one segment a ms, in persistent stores one a minute: late by both rules is drawn.
TIMES = st.sampled_from(
    [0, 5, 10, 11, 50, 90, 100, 101, 105, 110, 150, 60_000, 60_050, 120_000, 120_099, 120_100, 180_000]
)
RELAXED = settings(
    max_examples=7,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    phases=[Phase.explicit, Phase.generate],
)


def ordered(*rest: st.SearchStrategy[Any]) -> st.SearchStrategy[tuple[Any, ...]]:
    """Operations that end with two times, the earlier first: Java's cached stores reject others."""
    return st.builds(lambda head, times: (*head, *sorted(times)), st.tuples(*rest), st.tuples(TIMES, TIMES))


def window_operations(values: st.SearchStrategy[Any]) -> st.SearchStrategy[tuple[Any, ...]]:
    """All operations of a processor on a window store."""
    return st.one_of(
        st.tuples(st.just("put"), KEYS, values, TIMES),
        st.tuples(st.just("put"), KEYS, values, TIMES),
        st.tuples(st.just("fetch"), KEYS, TIMES),
        ordered(st.sampled_from(["fetch", "backward_fetch"]), KEYS),
        ordered(st.sampled_from(["fetch_range", "backward_fetch_range"]), BOUNDS, BOUNDS),
        ordered(st.sampled_from(["fetch_all", "backward_fetch_all"])),
        st.tuples(st.sampled_from(["all", "backward_all"])),
    )


def sessions() -> st.SearchStrategy[Windowed]:
    """A key and a session, each drawn for itself."""

    def session(key: str, start: int, length: int) -> Windowed:
        return Windowed(key, Window(start, start + length))

    return st.builds(session, KEYS, TIMES, st.sampled_from([0, 1, 5, 60]))


def session_operations() -> st.SearchStrategy[tuple[Any, ...]]:
    """All operations of a processor on a session store; Java rejects reads backwards."""
    return st.one_of(
        st.tuples(st.just("put"), sessions(), VALUES),
        st.tuples(st.just("put"), sessions(), VALUES),
        st.tuples(st.just("remove"), sessions()),
        st.tuples(st.just("fetch_session"), KEYS, TIMES, TIMES),
        st.tuples(st.just("find_sessions"), KEYS, TIMES, TIMES),
        st.tuples(st.just("find_sessions_range"), BOUNDS, BOUNDS, TIMES, TIMES),
        st.tuples(st.just("fetch"), KEYS),
        st.builds(lambda keys: ("fetch_range", *sorted(keys)), st.tuples(KEYS, KEYS)),
        st.tuples(st.just("fetch_range"), BOUNDS, st.none()),
        st.tuples(st.just("fetch_range"), st.none(), BOUNDS),
    )


SINGLE = st.one_of(st.tuples(st.just("put"), KEYS, stamped(VALUES), TIMES), st.tuples(st.just("fetch"), KEYS, TIMES))


@pytest.mark.jvm
@pytest.mark.parametrize("persistent", [False, True], ids=["memory", "rocksdb"])
class TestAgainstJava:
    @pytest.mark.parametrize("caching", [False, True], ids=["plain", "cached"])
    @RELAXED
    @given(work=batches(window_operations(VALUES)))
    def test_windows(self, persistent: bool, caching: bool, work: list[Batch]) -> None:
        builder = builders.window_store("s", 100, 10, STRING, STRING, persistent=persistent)
        check(builder.with_caching(caching), work)

    @pytest.mark.parametrize("caching", [False, True], ids=["plain", "cached"])
    @RELAXED
    @given(work=batches(window_operations(stamped(VALUES))))
    def test_timestamped_windows(self, persistent: bool, caching: bool, work: list[Batch]) -> None:
        builder = builders.timestamped_window_store("s", 100, 10, STRING, STRING, persistent=persistent)
        check(builder.with_caching(caching), work)

    @RELAXED
    @example([Batch(16, [("put", "ab", None, 110), ("put", "ab", None, 110)], [("h", None), ("other", b"12")])], 70)
    @given(work=batches(SINGLE), cache_bytes=st.sampled_from([0, 70, 150, 250, 400]))
    def test_a_small_cache(self, persistent: bool, work: list[Batch], cache_bytes: int) -> None:
        builder = builders.timestamped_window_store("s", 100, 10, STRING, STRING, persistent=persistent)
        check(builder.with_caching(), work, cache_bytes)

    @RELAXED
    @given(work=batches(window_operations(VALUES)))
    def test_duplicates(self, persistent: bool, work: list[Batch]) -> None:
        builder = builders.window_store("s", 100, 10, STRING, STRING, persistent=persistent, retain_duplicates=True)
        check(builder, work)

    @pytest.mark.parametrize("caching", [False, True], ids=["plain", "cached"])
    @RELAXED
    @given(work=batches(session_operations()))
    def test_sessions(self, persistent: bool, caching: bool, work: list[Batch]) -> None:
        builder = builders.session_store("s", 100, STRING, STRING, persistent=persistent)
        check(builder.with_caching(caching), work)


@pytest.fixture(params=["memory", "rocksdb"])
def persistent(request: pytest.FixtureRequest) -> bool:
    return bool(request.param == "rocksdb")


def kinds(persistent: bool) -> list[StoreBuilder]:
    """One of each."""
    return [
        builders.window_store("plain", 1000, 10, STRING, LONG, persistent=persistent),
        builders.timestamped_window_store("stamped", 1000, 10, STRING, LONG, persistent=persistent),
        builders.window_store("many", 1000, 10, STRING, LONG, persistent=persistent, retain_duplicates=True),
        builders.session_store("sessions", 1000, STRING, LONG, persistent=persistent),
    ]


def fill(builder: StoreBuilder, store: Any, context: Context) -> None:
    """Many rows, some of them late, some removed."""
    for number in range(300):
        at = number * 7 if number % 10 else number
        context.at(number)
        value: Any = None if number % 13 == 0 else (number, number + 5) if builder.stamped else number
        key = f"key{number % 5}"
        if builder.kind == "session":
            store.put(Windowed(key, Window(max(0, at - 20), at)), value)
        else:
            store.put(key, value, at)


def content(store: Any, builder: StoreBuilder) -> list[Any]:
    return list(store.fetch_range(None, None)) if builder.kind == "session" else list(store.all())


def test_a_restored_store_equals_the_logged_store(tmp_path: Path, persistent: bool) -> None:
    for builder in kinds(persistent):
        first, second = Context(tmp_path / "first"), Context(tmp_path / "second")
        store, restored = builder.build(), builder.build()
        store.init(first)
        restored.init(second)
        fill(builder, store, first)
        for start in range(0, len(first.logged), 50):
            restored.restore(first.logged[start : start + 50])
        assert content(restored, builder) == content(store, builder)
        assert len(content(store, builder)) > 100
        assert second.logged == []
        assert first.dropped > 0 or persistent
        store.close()
        restored.close()


def test_flushed_rows_are_there_after_a_restart(tmp_path: Path) -> None:
    for builder in kinds(persistent=True):
        context = Context(tmp_path)
        store = builder.with_caching().build()
        store.init(context)
        fill(builder, store, context)
        before = content(store, builder)
        store.flush()
        store.close()
        assert not store.is_open
        again = builder.build()
        again.init(context)
        assert [row for row in content(again, builder) if row in before] == before
        again.close()


def test_listeners_receive_windows(tmp_path: Path, persistent: bool) -> None:
    context = Context(tmp_path)
    windows: Any = builders.timestamped_window_store("w", 100, 10, STRING, LONG, persistent=persistent)
    sessions: Any = builders.session_store("s", 100, STRING, LONG, persistent=persistent)
    notified: list[Any] = []
    windows, sessions = windows.with_caching().build(), sessions.with_caching().build()
    for store in (windows, sessions):
        assert not store.is_open
        store.init(context)
        assert store.set_flush_listener(lambda *change: notified.append(change), True)
    session = Windowed("k", Window(3, 8))
    context.at(8)
    for value in (1, 2, None):
        windows.put("k", None if value is None else (value, 4), 0)
        windows.flush_cache()
        sessions.put(session, value)
        sessions.flush_cache()
    window = Windowed("k", Window(0, 10))
    assert notified == [
        (window, 1, None, 4, None),
        (session, 1, None, 8, None),
        (window, 2, 1, 4, None),
        (session, 2, 1, 8, None),
        (window, None, 2, 8, None),
        (session, None, 2, 8, None),
    ]
    for store in (windows, sessions):
        store.close()


def test_without_a_cache_the_caller_forwards() -> None:
    for builder in kinds(persistent=True):
        assert not builder.build().set_flush_listener(lambda *change: None, True)


def test_expired_segments_leave_the_disk(tmp_path: Path) -> None:
    context = Context(tmp_path)
    store: Any = builders.window_store("s", 120_000, 10, STRING, LONG).build()
    store.init(context)
    for minute in range(20):
        store.put("k", minute, minute * 60_000)
    assert [start // 60_000 for start, _ in store.fetch("k", 0, 2**62)] == [18, 19]
    store.close()


def test_invalid_stores_are_rejected() -> None:
    with pytest.raises(ValueError, match="no smaller than its window size"):
        builders.window_store("s", 5, 10, STRING, LONG)
    with pytest.raises(ValueError, match="negative"):
        builders.session_store("s", -1, STRING, LONG)


@RELAXED
@given(work=batches(window_operations(VALUES)), persistent=st.booleans())
def test_cached_reads_equal_uncached_ones(work: list[Batch], persistent: bool) -> None:
    """Every range, forwards and backwards: a cache in front changes nothing but late rows, which are not drawn here."""
    builder = builders.window_store("s", 200_000, 10, STRING, STRING, persistent=persistent)
    results = []
    for caching in (False, True):
        with tempfile.TemporaryDirectory(dir=IN_MEMORY) as folder:
            context = Context(Path(folder))
            store = builder.with_caching(caching).build()
            store.init(context)
            results.append(ours(store, context, work).results)
            rows: Any = store
            assert list(rows.backward_all()) == list(rows.all())[::-1]
            store.close()
    assert results[0] == results[1]


@RELAXED
@given(work=batches(session_operations()), persistent=st.booleans())
def test_cached_session_reads_equal_uncached_ones(work: list[Batch], persistent: bool) -> None:
    builder = builders.session_store("s", 300_000, STRING, STRING, persistent=persistent)
    results = []
    for caching in (False, True):
        with tempfile.TemporaryDirectory(dir=IN_MEMORY) as folder:
            context = Context(Path(folder))
            store = builder.with_caching(caching).build()
            store.init(context)
            results.append(ours(store, context, work).results)
            rows: Any = store
            assert list(rows.backward_fetch_range(None, None)) == list(rows.fetch_range(None, None))[::-1]
            assert list(rows.backward_fetch("a")) == list(rows.fetch("a"))[::-1]
            store.close()
    assert results[0] == results[1]


def in_use(work: Callable[[], None]) -> int:
    """How many more bytes of Python's are in use after some work."""
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()


@pytest.mark.memory
@pytest.mark.parametrize("kind", ["window", "session"])
def test_expired_rows_leave_the_memory(kind: str) -> None:
    """Memory holds the rows of the retention, and a part of it more, for any lifetime of the store."""
    retention = 1_000

    def live(rows: int) -> None:
        context = Context()
        make = builders.window_store("s", retention, 10, STRING, BYTES, persistent=False)
        if kind == "session":
            make = builders.session_store("s", retention, STRING, BYTES, persistent=False)
        store: Any = make.build()
        kept.append(store)
        store.init(context)
        for at in range(rows):
            window = (Windowed("k", Window(at, at)),) if kind == "session" else ("k",)
            store.put(*window, bytes(200), *([at] if kind == "window" else []))
            context.logged.clear()
        if kind == "window":
            assert [start for start, _ in store.fetch("k", 0, rows)] == list(range(rows - retention, rows))

    kept: list[Any] = []
    few, many = in_use(lambda: live(2_000)), in_use(lambda: live(16_000))
    assert few > retention * 200
    assert many < 1.5 * few


def test_a_growing_session_leaves_no_rows_behind() -> None:
    """Each record has its session replaced by a longer one, long before anything expires."""

    def live(rows: int) -> None:
        context = Context()
        store: Any = builders.session_store("s", 10**9, STRING, LONG, persistent=False).build()
        kept.append(store)
        store.init(context)
        for at in range(rows):
            store.put(Windowed("k", Window(0, at)), at)
            if at:
                store.remove(Windowed("k", Window(0, at - 1)))
            context.logged.clear()
        assert list(store.fetch("k")) == [(Windowed("k", Window(0, rows - 1)), rows - 1)]

    kept: list[Any] = []
    few, many = in_use(lambda: live(100)), in_use(lambda: live(10_000))
    assert many < few + 20_000
