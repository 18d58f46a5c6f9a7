"""The entries of a cache in C and in Python: equal results for every sequence of calls; nothing leaks."""

from __future__ import annotations

import gc
import sys
import weakref
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.streams.stores.lru_entries import LruEntriesInPython

EntriesInC: Any
try:
    from odradek.streams.stores import _lru_entries
except ImportError:
    EntriesInC = None
else:
    EntriesInC = _lru_entries.LruEntries

needs_c = pytest.mark.skipif(EntriesInC is None, reason="built without a C compiler")
KEYS = st.one_of(st.sampled_from([b"", b"a", b"b", b"c"]), st.integers(0, 300).map(b"%d".__mod__))
WRITES = st.tuples(st.sampled_from(["put", "keep"]), KEYS, st.integers(0, 100))
COUNTS = st.tuples(
    st.just("count"),
    KEYS,
    st.sampled_from([None, "known"]),
    st.integers(0, 100),
    st.integers(0, 3),
    st.none(),
    st.sampled_from([None, "topic"]),
    st.integers(0, 2),
    st.integers(0, 2**40),
)
READS = st.tuples(st.sampled_from(["get", "pop", "__contains__"]), KEYS)
OTHERS = st.tuples(st.sampled_from(["pop_oldest", "take_dirty", "keys", "clear", "__len__"]))


def entry(size: int, content: Any = b"") -> Any:
    """An entry of this size: a count as of time 1, or a deletion where the size is odd."""
    deleted = isinstance(size, int) and size % 2
    return (None if deleted else (size, 1), content, None, size, 0, None, "topic", 0, 0)


def call(entries: Any, name: str, *arguments: Any) -> Any:
    """Call a method; the size of a write becomes an entry."""
    if name in ("put", "keep"):
        return getattr(entries, name)(arguments[0], entry(arguments[1]))
    result = getattr(entries, name)(*arguments)
    return result if name != "take_dirty" else (list(result[0]), result[1])


@needs_c
@given(st.lists(st.one_of(WRITES, WRITES, READS, COUNTS, OTHERS), max_size=60))
def test_both_return_the_same(calls: list[tuple[Any, ...]]) -> None:
    in_c, in_python = EntriesInC(), LruEntriesInPython()
    for each in [*calls, ("take_dirty",), ("keys",), ("clear",), ("keys",)]:
        assert call(in_c, *each) == call(in_python, *each), each


@needs_c
def test_a_table_with_many_keys_finds_every_key() -> None:
    in_c, in_python = EntriesInC(), LruEntriesInPython()
    for number in [*range(5_000), *range(0, 5_000, 7)]:
        assert call(in_c, "put", b"%d" % number, number) == call(in_python, "put", b"%d" % number, number)
    assert all(in_c.get(b"%d" % number)[3] == number for number in range(0, 5_000, 3))
    assert [in_c.pop(b"%d" % number)[3] for number in range(1, 5_000, 3)] == list(range(1, 5_000, 3))
    assert len(in_c) == 3_333
    rows, expected = in_c.take_dirty()[0], in_python.take_dirty()[0]
    assert [key for key, _ in rows] == [key for key, _ in expected if int(key) % 3 != 1]


@needs_c
def test_references_are_released() -> None:
    key, content = b"a key of its own", [object()]
    before = sys.getrefcount(key), sys.getrefcount(content)
    entries = EntriesInC()
    for _ in range(3):
        entries.put(key, entry(1, content))
    entries.keep(b"other", entry(1, content))
    assert [row[0] for row in entries.take_dirty()[0]] == [key]
    assert entries.pop_oldest()[0] == key
    entries.put(key, entry(1, content))
    entries.pop(key)
    entries.clear()
    entries.put(key, entry(1, content))
    del entries
    assert (sys.getrefcount(key), sys.getrefcount(content)) == before


def plus_one(entries: Any, key: bytes, known: Any = "known") -> Any:
    """Count one record at time 7."""
    return entries.count(key, known, 10, 7, [("h", b"")], "topic", 0, 5)


@needs_c
def test_a_count_releases_its_references() -> None:
    entries, key, known = EntriesInC(), b"a key of its own", object()
    before = sys.getrefcount(key), sys.getrefcount(known)
    for end in (entries.clear, lambda: entries.pop(key), entries.pop_oldest, lambda: entries.put(key, entry(1))):
        entries.put(key, entry(2, [known]))
        assert plus_one(entries, key, known) == 10 + 8 - 2
        assert plus_one(entries, key, known) == 0
        counted = ((4, 7), b"\0" * 7 + b"\4", known, 18, 7, [("h", b"")], "topic", 0, 5)
        assert entries.get(key) == counted
        rows, deleted = entries.take_dirty()
        assert deleted == []
        plus_one(entries, key, known)
        assert next(rows) == (key, counted), "as it was taken"
        rows, _ = entries.take_dirty()
        end()
        assert next(rows)[1][0] == (5, 7)
        plus_one(entries, key, known)
        del counted
    rows = entries.take_dirty()[0]  # never read
    entries.clear()
    del rows
    assert (sys.getrefcount(key), sys.getrefcount(known)) == before


@pytest.mark.parametrize("entries_of", [LruEntriesInPython, pytest.param(EntriesInC, marks=needs_c)])
def test_a_count_beyond_8_bytes_is_refused_and_stays(entries_of: Any) -> None:
    entries = entries_of()
    last = ((2**63 - 2, 7), b"", None, 2, 0, None, None, 0, 0)
    entries.put(b"key", last)
    assert plus_one(entries, b"key") == 16
    assert plus_one(entries, b"absent") is None
    with pytest.raises(OverflowError):
        plus_one(entries, b"key")
    assert entries.get(b"key")[:2] == ((2**63 - 1, 7), b"\x7f" + b"\xff" * 7)


@needs_c
def test_entries_that_hold_each_other_are_collected_as_counts_and_as_taken_rows() -> None:
    class Known:
        other: Any

    for taken in (False, True):
        known, entries = Known(), EntriesInC()
        entries.put(b"key", entry(2))
        plus_one(entries, b"key", known)
        known.other = entries.take_dirty()[0] if taken else entries
        gone = weakref.ref(known)
        del known, entries
        gc.collect()
        assert gone() is None


@needs_c
def test_a_cycle_through_an_entry_is_collected() -> None:
    class Content:
        entries: Any

    content = Content()
    content.entries = EntriesInC()
    content.entries.put(b"key", entry(1, content))
    gone = weakref.ref(content)
    del content
    gc.collect()
    assert gone() is None


@needs_c
@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("get", ("text",)),
        ("put", (b"key",)),
        ("put", ("text", entry(1))),
        ("put", (b"key", [1])),
        ("put", (b"key", entry(None))),  # type: ignore[arg-type]
        ("keep", (b"key", (1, 2, 3, 2**100))),
        ("count", (b"key",)),
        ("count", ("text", None, 1, 1, None, None, 0, 0)),
    ],
)
def test_arguments_of_other_types_are_rejected(name: str, arguments: tuple[Any, ...]) -> None:
    with pytest.raises((TypeError, OverflowError)):
        getattr(EntriesInC(), name)(*arguments)
