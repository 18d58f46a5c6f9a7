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
READS = st.tuples(st.sampled_from(["get", "pop", "__contains__"]), KEYS)
OTHERS = st.tuples(st.sampled_from(["pop_oldest", "take_dirty", "keys", "clear", "__len__"]))


def entry(size: int, content: Any = b"") -> Any:
    """An entry of this size."""
    return (content, b"", None, size, 0, None, "topic", 0, 0)


def call(entries: Any, name: str, *arguments: Any) -> Any:
    """Call a method; the size of a write becomes an entry."""
    if name in ("put", "keep"):
        return getattr(entries, name)(arguments[0], entry(arguments[1]))
    return getattr(entries, name)(*arguments)


@needs_c
@given(st.lists(st.one_of(WRITES, WRITES, READS, OTHERS), max_size=60))
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
    assert [key for key, _ in in_c.take_dirty()] == [key for key, _ in in_python.take_dirty() if int(key) % 3 != 1]


@needs_c
def test_references_are_released() -> None:
    key, content = b"a key of its own", [object()]
    before = sys.getrefcount(key), sys.getrefcount(content)
    entries = EntriesInC()
    for _ in range(3):
        entries.put(key, entry(1, content))
    entries.keep(b"other", entry(1, content))
    assert [row[0] for row in entries.take_dirty()] == [key]
    assert entries.pop_oldest()[0] == key
    entries.put(key, entry(1, content))
    entries.pop(key)
    entries.clear()
    entries.put(key, entry(1, content))
    del entries
    assert (sys.getrefcount(key), sys.getrefcount(content)) == before


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
    ],
)
def test_arguments_of_other_types_are_rejected(name: str, arguments: tuple[Any, ...]) -> None:
    with pytest.raises((TypeError, OverflowError)):
        getattr(EntriesInC(), name)(*arguments)
