"""Serdes of lists and of the keys of window stores' changelogs, beside Java's bytes."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.streams.errors import SerializationError
from odradek.streams.records import Window, Windowed
from odradek.streams.serdes import (
    BYTES,
    DOUBLE,
    FLOAT,
    INTEGER,
    LONG,
    SHORT,
    STRING,
    UUID,
    Serde,
    list_serde,
    windowed_serde,
)
from odradek.streams.stores.interface import Rows
from tests.streams.oracle.java import Java
from tests.streams.oracle.values import java_bytes, java_list, java_serde, python_bytes, to_java

NUMBERS: dict[str, Serde[Any]] = {"Integer": INTEGER, "Short": SHORT, "Float": FLOAT, "Long": LONG, "Double": DOUBLE}


def of_java(java: Java, inner: str, values: list[Any]) -> bytes:
    """What Java's ListSerde writes."""
    serde = java.Serdes.ListSerde(java.ArrayList.class_, getattr(java.Serdes, inner)())
    written = python_bytes(serde.serializer().serialize("topic", java_list(values)))
    assert written is not None
    return written


@pytest.mark.jvm
@pytest.mark.parametrize("inner", NUMBERS)
def test_lists_of_numbers_have_the_bytes_of_java(java: Java, inner: str) -> None:
    serde, kind = list_serde(NUMBERS[inner]), getattr(java, inner)
    examples: list[list[Any]] = [[], [1, 2], [None, 3, None], [None]]
    for values in examples:
        expected = of_java(java, inner, [None if each is None else kind(each) for each in values])
        assert serde.serialize(values) == expected
        assert serde.deserialize(expected) == values


@pytest.mark.jvm
def test_lists_of_texts_have_the_bytes_of_java(java: Java) -> None:
    serde = list_serde(STRING)

    @settings(max_examples=20, deadline=None)
    @given(st.lists(st.none() | st.text(st.characters(exclude_categories=["Cs"]), max_size=5), max_size=5))
    def run(values: list[str | None]) -> None:
        written = of_java(java, "String", [to_java(each) for each in values])
        assert serde.serialize(values) == written
        assert serde.deserialize(written) == values

    run()


@pytest.mark.jvm
def test_lists_of_uuids_and_bytes(java: Java) -> None:
    for inner, serde, value in (("UUID", UUID, uuid.UUID(int=7)), ("ByteArray", BYTES, b"")):
        written = of_java(java, inner, [to_java(value) if inner == "UUID" else java_bytes(b""), None])
        assert list_serde(serde).serialize([value, None]) == written
        assert list_serde(serde).deserialize(written) == [value, None]


def test_a_list_of_one_size_needs_an_inner_serde_with_one() -> None:
    with pytest.raises(SerializationError, match="string has none"):
        list_serde(STRING).deserialize(list_serde(LONG).serialize([1]))


@pytest.mark.jvm
def test_keys_of_a_changelog_of_windows(java: Java) -> None:
    time_windowed = java.find("org.apache.kafka.streams.kstream.WindowedSerdes$TimeWindowedSerde")
    theirs = time_windowed(java_serde(STRING), 10).forChangelog(True).deserializer()
    raw = b"key" + (40).to_bytes(8, "big") + (3).to_bytes(4, "big")
    read = theirs.deserialize("topic", java_bytes(raw))
    ours = windowed_serde(STRING, 10, changelog=True)
    assert ours.deserialize(raw) == Windowed("key", Window(40, 50))
    assert (str(read.key()), read.window().start(), read.window().end()) == ("key", 40, 50)
    assert ours.serialize(Windowed("key", Window(40, 50))) == raw[:-4] + bytes(4)


@pytest.mark.jvm
def test_overlap_is_that_of_java(java: Java) -> None:
    kinds = {False: java.TimeWindow, True: java.SessionWindow}
    for inside, kind in kinds.items():
        for start, end in ((0, 5), (4, 6), (5, 9), (6, 9)):
            one, other = Window(2, 5), Window(start, end)
            assert one.overlap(other, end_inside=inside) == bool(kind(2, 5).overlap(kind(start, end))), (inside, other)


def test_the_next_key_stays_in_its_place() -> None:
    rows = Rows(iter([("a", 1), ("b", 2)]))
    assert rows.peek_next_key() == "a"
    assert [next(rows), rows.peek_next_key(), list(rows)] == [("a", 1), "b", [("b", 2)]]
    with pytest.raises(LookupError, match="no next row"):
        rows.peek_next_key()
