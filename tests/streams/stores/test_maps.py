"""RocksDB as a map: the rows that its ranges return and hold, and its writes to disk."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from odradek.streams.errors import InvalidStateStoreError
from odradek.streams.serdes import BYTES, STRING
from odradek.streams.stores import builders
from odradek.streams.stores.rocks_map import RocksMap
from tests.streams.stores.implementations import Context

ROWS = 6_000
VALUE = bytes(4_000)
ALL_OF_IT = ROWS * len(VALUE)


@pytest.fixture
def rocks(tmp_path: Path) -> Iterator[RocksMap]:
    made = RocksMap(tmp_path / "map", "s")
    yield made
    made.close()


def key(number: int) -> bytes:
    return b"%08d" % number


def most_held(read: Callable[[], Iterator[Any]]) -> tuple[int, int]:
    """How many rows there were, and how many bytes of Python's were in use at most to read them one by one."""
    tracemalloc.start()
    try:
        count = sum(1 for _ in read())
        return count, tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("bounded", [False, True])
@pytest.mark.memory
def test_a_range_holds_a_row_at_a_time(rocks: RocksMap, bounded: bool, reverse: bool) -> None:
    for number in range(ROWS):
        rocks.put(key(number), VALUE)
    low, high = (key(0), key(ROWS)) if bounded else (None, None)
    count, held = most_held(lambda: rocks.range(low, high, reverse=reverse))
    assert count == ROWS
    assert held < ALL_OF_IT / 20


@pytest.mark.memory
def test_stores_return_rows_one_by_one(tmp_path: Path) -> None:
    context: Any = Context(tmp_path, cache_bytes=100_000)
    plain = builders.key_value_store("plain", STRING, BYTES).build()
    cached = builders.key_value_store("cached", STRING, BYTES).with_caching().build()
    by_segments = builders.window_store("windows", ROWS, 10, STRING, BYTES)
    by_segments = replace(by_segments, segment_interval_ms=ROWS // 50)
    windows: Any = by_segments.build()
    timely: Any = replace(by_segments, name="timely", in_time_order=True).build()
    store: Any
    for store in (plain, cached, windows, timely):
        store.init(context)
        context.at(1)
        for number in range(ROWS):
            store.put(f"{number:08}", VALUE, *([number] if store in (windows, timely) else []))
        context.logged.clear()
        count, held = most_held(store.all)
        assert count == ROWS, store.name
        assert held < ALL_OF_IT / 20, store.name
        store.close()


@pytest.mark.parametrize("reverse", [False, True])
def test_a_range_returns_exactly_the_rows_put_before(rocks: RocksMap, reverse: bool) -> None:
    for number in range(0, 100, 2):
        rocks.put(key(number), b"before")
    rocks.flush()
    rocks.put(key(4), None)
    rocks.put(key(6), b"buffered")
    rows = rocks.range(key(2), key(8), reverse=reverse)
    first = next(rows)
    rocks.put(key(2), None)
    rocks.put(key(5), b"after")
    rocks.put(key(8), b"after")
    rocks.flush()
    rocks.delete_range(key(0), key(100))
    found = [first, *rows]
    assert (found[::-1] if reverse else found) == [(key(2), b"before"), (key(6), b"buffered"), (key(8), b"before")]


@pytest.mark.parametrize("reverse", [False, True])
def test_an_unfinished_range_does_not_keep_the_directory(tmp_path: Path, reverse: bool) -> None:
    first = RocksMap(tmp_path / "map", "s")
    for number in range(10):
        first.put(key(number), VALUE)
    half_read = [first.range(reverse=reverse), first.range(key(1), key(9), reverse=reverse)]
    for rows in half_read:
        next(rows)
    first.close()
    again = RocksMap(tmp_path / "map", "s")
    assert again.get(key(3)) == VALUE
    again.close()
    for rows in half_read:
        with pytest.raises(InvalidStateStoreError, match="iterator for store s has closed"):
            next(rows)


def test_the_write_ahead_log_is_off(tmp_path: Path) -> None:
    """Rows that reach RocksDB wait in its memory: the changelog has them, and no row is written twice."""
    rocks = RocksMap(tmp_path / "map", "s")
    rocks.write((key(number), VALUE) for number in range(1_000))
    rocks.delete_range(key(10), key(20))
    logs = list((tmp_path / "map").glob("*.log"))
    assert logs
    assert [log.stat().st_size for log in logs] == [0] * len(logs)
    rocks.flush()
    assert list((tmp_path / "map").glob("*.sst"))
    rocks.close()
