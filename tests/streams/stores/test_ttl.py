"""Stores with a TTL: against a dict that forgets, and what they remove, log, forward, restore and index."""

from __future__ import annotations

import tempfile
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.streams.errors import TopologyError
from odradek.streams.running.store_formats import format_of
from odradek.streams.serdes import JSON, LONG, STRING
from odradek.streams.stores import builders, ttl
from odradek.streams.stores.builders import StoreBuilder
from odradek.streams.stores.keyvalue import directory_of, expiry_name, wipe
from tests.streams.stores.implementations import IN_MEMORY, Context

TTL: Final = 20
PLAIN: Final = builders.key_value_store("s", STRING, JSON).with_ttl(TTL)
STAMPED: Final = builders.timestamped_key_value_store("s", STRING, JSON).with_ttl(timedelta(milliseconds=TTL))
KEYS = st.sampled_from("abcd")
WRITES = st.tuples(st.just("put"), KEYS, st.one_of(st.none(), st.integers(0, 9)), st.integers(0, 30))
OPERATIONS = st.one_of(
    WRITES,
    WRITES,
    st.tuples(st.sampled_from(["delete", "get"]), KEYS),
    st.tuples(st.just("put_if_absent"), KEYS, st.integers(0, 9)),
    st.tuples(st.just("time"), st.integers(0, 15)),
    st.tuples(st.just("commit")),
    st.tuples(st.just("reopen")),
)


class Forgetful:
    """A dict whose rows disappear with time; values have the timestamps of their store."""

    def __init__(self) -> None:
        self.rows: dict[str, tuple[Any, int]] = {}
        self.now = 0

    def live(self) -> dict[str, tuple[Any, int]]:
        return {key: row for key, row in self.rows.items() if row[1] + TTL >= self.now}

    def put(self, key: str, value: Any, at: int) -> None:
        self.rows.pop(key, None)
        if value is not None:
            self.rows[key] = value, at


def opened(builder: StoreBuilder, context: Context) -> Any:
    store = builder.build()
    store.init(context)
    return store


@pytest.mark.parametrize("persistent", [False, True], ids=["memory", "rocksdb"])
@pytest.mark.parametrize("stamped", [False, True], ids=["plain", "stamped"])
def test_reads_show_what_has_not_expired(persistent: bool, stamped: bool) -> None:
    made = builders.timestamped_key_value_store if stamped else builders.key_value_store
    builder = made("s", STRING, JSON, persistent).with_ttl(TTL)

    @given(st.lists(OPERATIONS, max_size=30))
    @settings(max_examples=12 if persistent else 40, deadline=None)
    def run(operations: list[tuple[Any, ...]]) -> None:
        with tempfile.TemporaryDirectory(dir=IN_MEMORY) as folder:
            check(builder, Context(Path(folder)), operations, stamped)

    run()


def check(builder: StoreBuilder, context: Context, operations: list[tuple[Any, ...]], stamped: bool) -> None:
    model, store = Forgetful(), opened(builder, context)
    context.at(0)

    def shown(row: tuple[Any, int] | None) -> Any:
        return row if stamped or row is None else row[0]

    for name, *given_values in operations:
        now = model.now
        before = shown(model.live().get(given_values[0])) if given_values else None
        if name == "time":
            model.now += given_values[0]
            context.at(model.now)
        elif name == "put":
            key, value, late = given_values
            at = max(0, now - late) if stamped else now
            store.put(key, (value, at) if stamped and value is not None else value)
            model.put(key, value, at)
        elif name == "put_if_absent":
            key, value = given_values
            assert store.put_if_absent(key, (value, now) if stamped else value) == before
            if before is None:
                model.put(key, value, now)
        elif name == "delete":
            assert store.delete(given_values[0]) == before
            model.put(given_values[0], None, now)
        elif name == "get":
            assert store.get(given_values[0]) == before
        elif name == "commit":
            store.flush_cache()
            assert physical(store) == len(model.live())
        elif builder.persistent:  # reopen
            store.flush()
            store.close()
            store = opened(builder, context)
        wanted = [(key, shown(row)) for key, row in sorted(model.live().items())]
        assert list(store.all()) == wanted
        assert list(store.reverse_range("b", "c")) == [row for row in reversed(wanted) if "b" <= row[0] <= "c"]
    store.flush_cache()
    assert len(store._index.oldest(100)) == physical(store) == len(model.live())
    assert changelog(context) == {key.encode(): row for key, row in model.live().items()}
    restored = opened(builder, other := Context())
    restored.restore(context.logged)
    other.stream_time = context.stream_time
    assert list(restored.all()) == wanted_rows(model, stamped)
    restored.close()
    store.close()


def physical(store: Any) -> int:
    """How many rows there are, visible or not; RocksDB's own count is an estimate."""
    return sum(1 for _ in store._map.range())


def wanted_rows(model: Forgetful, stamped: bool) -> list[tuple[str, Any]]:
    return [(key, row if stamped else row[0]) for key, row in sorted(model.live().items())]


def changelog(context: Context) -> dict[bytes, tuple[Any, int]]:
    """The rows of the changelog."""
    rows = {key: (value, timestamp) for key, value, timestamp, _ in context.logged}
    return {key: (JSON.deserialize(value), timestamp) for key, (value, timestamp) in rows.items() if value is not None}


@pytest.fixture(params=["memory", "rocksdb"])
def builder(request: pytest.FixtureRequest) -> StoreBuilder:
    return builders.timestamped_key_value_store("s", STRING, LONG, request.param == "rocksdb").with_ttl(TTL)


def test_a_removed_row_is_logged_and_forwarded_with_the_time_at_which_it_expired(
    builder: StoreBuilder, tmp_path: Path
) -> None:
    context = Context(tmp_path)
    store, forwarded = opened(builder, context), []
    assert not store.set_flush_listener(lambda *change: forwarded.append(change), True)
    context.at(5, [("h", b"1")])
    store.put("a", (1, 5))
    store.put("b", (2, 6))
    context.at(5 + TTL, [("h", b"2")])
    store.flush_cache()
    assert forwarded == []  # the TTL has to be passed
    context.at(6 + TTL, [("h", b"3")])
    store.flush_cache()
    assert forwarded == [("a", None, 1, 6 + TTL, None)]
    assert context.logged[2:] == [(b"a", None, 6 + TTL, None)]
    assert (context.timestamp, context.headers) == (6 + TTL, [("h", b"3")])
    context.at(100)
    store.put("b", (3, 100))  # the old row is deleted before the new one is written
    assert forwarded[1:] == [("b", None, 2, 7 + TTL, None)]
    assert [each[:3] for each in context.logged[3:]] == [(b"b", None, 7 + TTL), (b"b", LONG.serialize(3), 100)]
    store.flush_cache()
    assert len(forwarded) == 2
    store.close()


def test_removal_is_work_of_limited_size_and_keeps_up_with_writes(builder: StoreBuilder, tmp_path: Path) -> None:
    context = Context(tmp_path)
    store = opened(builder, context)
    context.at(0)
    for number in range(3 * ttl.MOST):
        store.put(f"old{number}", (number, 0))
    context.at(1000)
    logged = len(context.logged)
    assert list(store.all()) == []
    store.flush_cache()
    assert len(context.logged) - logged == ttl.MOST
    assert store.approximate_num_entries() == pytest.approx(2 * ttl.MOST, rel=0.01)
    for number in range(2 * ttl.EVERY):  # writes without a commit remove the rest
        store.put(f"new{number}", (number, 1000))
    assert len(context.logged) - logged == 3 * ttl.MOST + 2 * ttl.EVERY
    assert {key for key, _ in store.all()} == {f"new{number}" for number in range(2 * ttl.EVERY)}
    store.close()


def test_without_expired_rows_a_commit_does_not_read_the_index(builder: StoreBuilder, tmp_path: Path) -> None:
    context = Context(tmp_path)
    store = opened(builder, context)
    context.at(100)
    store.put("a", (1, 100))
    store.flush_cache()
    reads: list[int] = []
    store._index.oldest = lambda most: reads.append(most) or []
    context.at(100 + TTL)
    store.flush_cache()
    assert reads == []
    context.at(101 + TTL)
    store.flush_cache()
    assert reads == [ttl.MOST + 1]


def test_a_standby_hides_rows_by_the_time_of_its_changelog(builder: StoreBuilder, tmp_path: Path) -> None:
    store = opened(builder, Context(tmp_path))
    store.restore([(b"a", LONG.serialize(1), 5, None), (b"b", LONG.serialize(2), 5 + TTL, None)])
    assert store.get("a") == (1, 5)
    store.restore([(b"c", LONG.serialize(3), 6 + TTL, None), (b"d", None, 0, None)])
    assert store.get("a") is None
    assert [key for key, _ in store.all()] == ["b", "c"]
    store.restore([])
    store.close()


def test_rows_that_were_written_without_a_ttl_are_indexed(tmp_path: Path) -> None:
    plain = builders.timestamped_key_value_store("s", STRING, LONG)
    limited = plain.with_ttl(TTL)
    context = Context(tmp_path)

    def written(builder: StoreBuilder, key: str, at: int) -> None:
        store = opened(builder, context)
        context.at(at)
        store.put(key, (1, at))
        store.flush()
        store.close()

    written(plain, "a", 1)
    written(limited, "b", 2)
    written(plain, "c", 3)  # the index does not have this row, so it is removed
    assert not directory_of(tmp_path, expiry_name("s")).exists()
    store = opened(limited, context)
    context.at(1000)
    store.flush_cache()
    assert sorted(key for key, value, *_ in context.logged if value is None) == [b"a", b"b", b"c"]
    store.close()
    wipe(tmp_path, "s")
    assert not directory_of(tmp_path, expiry_name("s")).exists()
    assert opened(limited, context).get("a") is None


def test_an_index_that_a_crash_left_behind_does_no_harm(tmp_path: Path) -> None:
    """The index has entries of rows that have another timestamp, or are gone."""
    builder = builders.timestamped_key_value_store("s", STRING, LONG).with_ttl(TTL)
    context = Context(tmp_path)
    store = opened(builder, context)
    context.at(50)
    store.put("a", (1, 50))
    store._index.change((), [(1, b"a"), (2, b"gone")])
    store._oldest = 0
    store.flush_cache()
    assert store.get("a") == (1, 50)
    assert store._index.oldest(10) == [(50, b"a")]
    assert [key for key, value, *_ in context.logged if value is None] == []
    store.close()


def test_only_key_value_stores_have_a_ttl() -> None:
    for other in (
        builders.window_store("s", 10, 10, STRING, LONG),
        builders.session_store("s", 10, STRING, LONG),
        builders.versioned_key_value_store("s", 10, STRING, LONG),
        builders.lru_map("s", 3, STRING, LONG),
    ):
        with pytest.raises(TopologyError, match="only key-value stores have a TTL; s is a"):
            other.with_ttl(TTL)
    with pytest.raises(ValueError, match="at least 1 ms"):
        builders.key_value_store("s", STRING, LONG).with_ttl(0)
    assert not PLAIN.with_caching().caching
    assert format_of(PLAIN, {}) == format_of(STAMPED, {})  # on disk both have timestamps
    assert PLAIN.ttl_ms == STAMPED.ttl_ms == TTL
