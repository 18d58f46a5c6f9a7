"""Key-value stores beside Java's: the same operations give the same reads and the same changelog."""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from odradek.streams.errors import InvalidStateStoreError, SerializationError, StreamsError
from odradek.streams.serdes import JSON, LONG, STRING
from odradek.streams.stores import builders
from odradek.streams.stores.cache import ThreadCache
from odradek.streams.stores.keyvalue import wipe
from tests.streams.stores.implementations import IN_MEMORY, Batch, Context, batches, check, ours, stamped

ROOT = Path(__file__).resolve().parents[3]
KEYS = st.sampled_from(["a", "aa", "ab", "b", "ba", "\x7f", "ÿ", ""])
VALUES = st.one_of(st.none(), st.text("xyz", max_size=3))
BOUNDS = st.one_of(st.none(), KEYS)
RELAXED = settings(max_examples=7, deadline=None, suppress_health_check=[HealthCheck.too_slow], phases=[Phase.generate])


def operations(values: st.SearchStrategy[Any], ranges: bool = True) -> st.SearchStrategy[tuple[Any, ...]]:
    """All operations of a processor on a key-value store. An empty prefix is an error in Java, and matches everything
    in Odradek.
    """
    writes = [
        st.tuples(st.just("put"), KEYS, values),
        st.tuples(st.just("put"), KEYS, values),
        st.tuples(st.just("put_if_absent"), KEYS, values),
        st.tuples(st.just("put_all"), st.lists(st.tuples(KEYS, values), max_size=3)),
        st.tuples(st.just("delete"), KEYS),
        st.tuples(st.just("get"), KEYS),
    ]
    if ranges:
        writes += [
            st.tuples(st.just("range"), BOUNDS, BOUNDS),
            st.tuples(st.just("reverse_range"), BOUNDS, BOUNDS),
            st.tuples(st.sampled_from(["all", "reverse_all"])),
            st.tuples(st.just("prefix_scan"), KEYS.filter(bool), st.just(STRING.serialize)),
        ]
    return st.one_of(writes)


@pytest.mark.jvm
@pytest.mark.parametrize("caching", [False, True], ids=["plain", "cached"])
@pytest.mark.parametrize("persistent", [False, True], ids=["memory", "rocksdb"])
class TestAgainstJava:
    @RELAXED
    @given(work=batches(operations(VALUES)))
    def test_plain_values(self, persistent: bool, caching: bool, work: list[Batch]) -> None:
        check(builders.key_value_store("s", STRING, STRING, persistent).with_caching(caching), work)

    @RELAXED
    @given(work=batches(operations(stamped(VALUES))))
    def test_timestamped_values(self, persistent: bool, caching: bool, work: list[Batch]) -> None:
        check(builders.timestamped_key_value_store("s", STRING, STRING, persistent).with_caching(caching), work)


@pytest.mark.jvm
@RELAXED
@given(
    work=batches(operations(stamped(VALUES))),
    cache_bytes=st.sampled_from([0, 1, 60, 130, 200, 300]),
    persistent=st.booleans(),
)
def test_a_small_cache_evicts_as_javas_does(work: list[Batch], cache_bytes: int, persistent: bool) -> None:
    builder = builders.timestamped_key_value_store("s", STRING, STRING, persistent).with_caching()
    check(builder, work, cache_bytes)


@pytest.mark.jvm
@pytest.mark.parametrize("caching", [False, True], ids=["plain", "cached"])
@RELAXED
@given(work=batches(operations(VALUES, ranges=False)), most=st.integers(1, 3))
def test_an_lru_map_evicts_as_javas_does(caching: bool, work: list[Batch], most: int) -> None:
    check(builders.lru_map("s", most, STRING, STRING).with_caching(caching), work)


@pytest.fixture(params=["memory", "rocksdb"])
def persistent(request: pytest.FixtureRequest) -> bool:
    return bool(request.param == "rocksdb")


@pytest.fixture
def context(tmp_path: Path) -> Context:
    return Context(tmp_path)


def test_a_listener_receives_the_rows_that_leave_the_cache(context: Context, persistent: bool) -> None:
    store: Any = builders.timestamped_key_value_store("s", STRING, LONG, persistent).with_caching().build()
    store.init(context)
    notified: list[Any] = []
    assert store.set_flush_listener(lambda *change: notified.append((*change, context.timestamp, context.offset)), True)
    context.at(10, [("h", b"1")])
    store.put("a", (1, 10))
    context.at(20)
    store.put("b", (1, 7))
    store.put("gone", (1, 7))
    store.put("a", (2, 15))
    store.put("gone", None)
    store.flush_cache()
    context.at(30)
    store.put("b", None)
    store.flush_cache()
    assert notified == [
        ("b", 1, None, 7, None, 20, 1),
        ("a", 2, None, 15, None, 20, 1),  # the headers of the record that wrote it last
        ("b", None, 1, 30, None, 30, 2),
    ]
    assert context.timestamp == 30
    assert [key for key, *_ in context.logged] == [
        b"b",
        b"a",
        b"b",
    ]  # rows put and deleted in between are not forwarded
    store.close()


def test_old_values_are_not_read_unless_needed(context: Context, persistent: bool) -> None:
    store: Any = builders.key_value_store("s", STRING, LONG, persistent).with_caching().build()
    store.init(context)
    notified: list[Any] = []
    store.set_flush_listener(lambda *change: notified.append(change), False)
    for value in (1, 2, None):
        context.at(5)
        store.put("a", value)
        store.flush_cache()
    assert notified == [("a", 1, None, 5, None), ("a", 2, None, 5, None), ("a", None, None, 5, None)]
    store.close()


def test_a_flush_may_write_to_the_store_again(context: Context) -> None:
    store: Any = builders.key_value_store("s", STRING, LONG, False).with_caching().build()
    store.init(context)

    def listener(key: Any, new: Any, old: Any, timestamp: int, headers: Any) -> None:
        if new is not None and new < 3:
            store.put(key, new + 1)

    store.set_flush_listener(listener, False)
    context.at(5)
    store.put("a", 1)
    for _ in range(3):
        store.flush_cache()
    assert store.get("a") == 3
    assert [value for _, value, _, _ in context.logged] == [LONG.serialize(each) for each in (1, 2, 3)]


def test_a_restored_store_equals_the_logged_store(tmp_path: Path, persistent: bool) -> None:
    builder = builders.timestamped_key_value_store("s", STRING, JSON, persistent)
    first, second = Context(tmp_path / "first"), Context(tmp_path / "second")
    store: Any = builder.build()
    restored: Any = builder.build()
    store.init(first)
    restored.init(second)
    for number in range(100):
        first.at(number)
        store.put(f"key{number % 7}", None if number % 5 == 0 else ([number], number + 1000))
    restored.restore(first.logged)
    assert list(restored.all()) == list(store.all())
    assert list(store.all()) != []
    assert second.logged == []
    store.close()
    restored.close()


def test_flushed_rows_are_there_after_a_restart(context: Context) -> None:
    builder = builders.timestamped_key_value_store("s", STRING, LONG).with_caching()
    store: Any = builder.build()
    store.init(context)
    context.at(1)
    for number in range(20_000):
        store.put(f"{number:05}", (number, 1))
    store.flush()
    store.close()
    again: Any = builder.build()
    again.init(context)
    assert again.get("19999") == (19999, 1)
    assert again.approximate_num_entries() == 20_000
    assert [key for key, _ in again.range("00010", "00012")] == ["00010", "00011", "00012"]
    again.close()


def test_rows_show_the_store_as_it_was(context: Context, persistent: bool) -> None:
    for caching in (False, True):
        store: Any = builders.key_value_store(f"s{caching}", STRING, LONG, persistent).with_caching(caching).build()
        store.init(context)
        context.at(1)
        for key in "abc":
            store.put(key, 1)
        rows = store.all()
        store.put("b", 2)
        store.put("d", 2)
        store.flush_cache()
        with rows as read:
            assert list(read) == [("a", 1), ("b", 1), ("c", 1)]
        closed = store.all()
        closed.close()
        assert list(closed) == []
        store.close()


@settings(deadline=None)
@given(work=batches(operations(VALUES)), persistent=st.booleans())
def test_backward_reads_are_forward_reads_backwards(work: list[Batch], persistent: bool) -> None:
    with tempfile.TemporaryDirectory(dir=IN_MEMORY) as folder:
        context = Context(Path(folder))
        store: Any = builders.key_value_store("s", STRING, STRING, persistent).with_caching().build()
        store.init(context)
        for batch in work:
            ours(store, context, [batch])
            context.at(batch.timestamp)
            for name, *arguments in batch.operations:
                getattr(store, name)(*arguments)
                if name in ("put", "delete"):
                    key = arguments[0]
                    assert list(store.reverse_range(None, key)) == list(store.range(None, key))[::-1]
                    assert list(store.reverse_range(key, None)) == list(store.range(key, None))[::-1]
                    assert list(store.reverse_all()) == list(store.all())[::-1]
        store.close()


def test_errors_name_the_store(context: Context, persistent: bool) -> None:
    for caching in (False, True):
        builder = builders.key_value_store(f"counts{caching}", STRING, LONG, persistent)
        store: Any = builder.with_caching(caching).build()
        with pytest.raises(InvalidStateStoreError, match="counts"):
            store.get("a")
        store.init(context)
        with pytest.raises(SerializationError, match=r"counts.*value.*str"):
            store.put("a", "one")
        with pytest.raises(SerializationError, match=r"counts.*key.*int"):
            store.get(1)
        with pytest.raises(SerializationError, match=r"counts.*key cannot be null"):
            store.put(None, 1)
        store.close()
        store.close()
        with pytest.raises(InvalidStateStoreError, match="counts"):
            store.put("a", 1)


def test_a_store_without_serdes_uses_the_applications(tmp_path: Path) -> None:
    builder = builders.key_value_store("s", None, None, persistent=False)
    with pytest.raises(StreamsError, match=r"default\.key\.serde"):
        builder.build().init(Context())
    defaults: dict[str, Any] = {"default.key.serde": STRING, "default.value.serde": LONG}
    context = Context(None, **defaults)
    store: Any = builder.build()
    store.init(context)
    store.put("a", 1)
    assert context.logged == [(b"a", LONG.serialize(1), -1, None)]


def test_a_smaller_cache_evicts_of_all_stores() -> None:
    context = Context()
    stores: list[Any] = [
        builders.key_value_store(f"s{n}", STRING, LONG, False).with_caching().build() for n in range(2)
    ]
    for store in stores:
        store.init(context)
        context.at(1)
        for key in "abc":
            store.put(key, 1)
    assert context.logged == []
    context.cache.resize(context.cache.size - 1)
    assert len(context.logged) == 3  # the first store's eldest entry, and with it its other dirty ones
    context.cache.resize(0)
    assert context.cache.size == 0
    assert len(context.logged) == 6
    stores[0].close()
    assert isinstance(context.cache, ThreadCache)


@pytest.mark.slow
def test_flushed_rows_outlive_a_kill(tmp_path: Path) -> None:
    """The write-ahead log is off: a flush writes rows to disk; a kill after it does no harm to them."""
    program = f"""
import os, signal
from pathlib import Path
from odradek.streams.serdes import LONG, STRING
from odradek.streams.stores.builders import key_value_store
from tests.streams.stores.implementations import Context
store = key_value_store("s", STRING, LONG).build()
store.init(Context(Path({str(tmp_path)!r})))
for number in range(1000):
    store.put(str(number), number)
store.flush()
for number in range(1000, 20_000):
    store.put(str(number), number)
os.kill(os.getpid(), signal.SIGKILL)
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=False)
    assert done.returncode == -signal.SIGKILL
    store: Any = builders.key_value_store("s", STRING, LONG).build()
    store.init(Context(tmp_path))
    assert [store.get(str(number)) for number in range(1000)] == list(range(1000))
    store.close()
    wipe(tmp_path, "s")
    store.init(Context(tmp_path))
    assert list(store.all()) == []
    store.close()


def test_two_stores_cannot_open_one_directory(context: Context) -> None:
    builder = builders.key_value_store("s", STRING, LONG)
    first, second = builder.build(), builder.build()
    first.init(context)
    with pytest.raises(StreamsError, match="Error opening store s at location"):
        second.init(context)
    assert not second.is_open
    first.close()
