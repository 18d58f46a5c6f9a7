"""Foreign-key joins beside Java's: both internal topics, the store of subscriptions and the results."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from typing import Any

import hypothesis.strategies as st
import jpype
import pytest
from hypothesis import given, settings

from odradek.streams.dsl.builder import StreamsBuilder
from odradek.streams.dsl.joins import JoinKind
from odradek.streams.dsl.options import Consumed, Materialized, TableJoined
from odradek.streams.murmur3 import hash128
from odradek.streams.serdes import LONG, STRING
from odradek.streams.stores.builders import versioned_key_value_store
from tests.streams.oracle.implementations import Piped, both_refuse, same
from tests.streams.oracle.java import Java

pytestmark = pytest.mark.jvm

METHODS: dict[JoinKind, str] = {"inner": "join", "left": "left_join"}
KINDS = tuple(METHODS)
REGISTRATION = "app-KTABLE-FK-JOIN-SUBSCRIPTION-REGISTRATION-0000000006-topic"
# A left row is its foreign key, "|" and some text; "-" has none. Right keys are foreign keys.
LEFT = st.builds(
    Piped,
    st.just("left"),
    st.sampled_from(["a", "b", "c", None]),
    st.one_of(st.none(), st.sampled_from(["x|1", "x|2", "y|1", "y|2", "z|", "-", "-2"])),
    st.integers(0, 60),
    st.sampled_from([None, [("h", b"1")]]),
)
RIGHT = st.builds(
    Piped,
    st.just("right"),
    st.sampled_from(["x", "y", "z", None]),
    st.one_of(st.none(), st.sampled_from(["one", "two", ""])),
    st.integers(0, 60),
    st.sampled_from([None, [("r", None)]]),
)
BOTH = st.lists(st.one_of(LEFT, LEFT, RIGHT), max_size=20)


def text(left: Any, right: Any) -> str:
    return f"{left}+{right}"


def foreign_key(value: str) -> str | None:
    return None if value.startswith("-") else value.partition("|")[0]


def joined(kind: JoinKind, **options: Any) -> Callable[[Any], None]:
    """A topology that joins "left" with "right" by the foreign key."""

    def build(builder: Any) -> None:
        left, right = builder.table("left"), builder.table("right")
        getattr(left, METHODS[kind])(right, text, foreign_key=foreign_key, **options).to_stream().to("out")

    return build


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=12)
@given(given_records=BOTH)
def test_records(java: Java, kind: JoinKind, given_records: list[Piped]) -> None:
    same(joined(kind), given_records, text=False, stores=False)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"table_joined": TableJoined(name="fk")},
        {"materialized": Materialized("kept")},
        {"table_joined": TableJoined(name="fk"), "materialized": Materialized("kept", caching=False)},
        {"table_joined": TableJoined(lambda *given: 0, lambda *given: [0])},
    ],
    ids=["plain", "named", "kept", "both", "partitioned"],
)
def test_options(java: Java, kind: JoinKind, options: dict[str, Any]) -> None:
    walk: list[tuple[str, str, str | None, int]]
    walk = [("left", "a", "x|1", 5), ("right", "x", "one", 9), ("left", "a", "y|1", 12), ("right", "y", "two", 3)]
    walk += [("left", "b", "x|9", 1), ("left", "a", None, 20)]
    written = same(joined(kind, **options), walk, stores=False)
    assert b"x|1+one" in [each.value for each in written["out"]]


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=6)
@given(given_records=BOTH, sides=st.sampled_from(["left", "right", "both"]))
def test_computed_and_versioned_tables(java: Java, kind: JoinKind, given_records: list[Piped], sides: str) -> None:
    def build(builder: Any) -> None:
        left, right = (
            builder.table(topic, materialized=Materialized(store=versioned_key_value_store(topic, 40, None, None)))
            if sides in (topic, "both")
            else builder.table(topic)
            for topic in ("left", "right")
        )
        right = right.filter(lambda key, value: value != "two")
        both = getattr(left, METHODS[kind])(right, text, foreign_key=foreign_key)
        both.to_stream().to("out")
        third = getattr(both, METHODS[kind])(right, text, foreign_key=foreign_key)
        third.group_by(lambda key, value: (value[:1], value)).count()

    same(build, given_records, stores=False)


@pytest.mark.parametrize("kind", KINDS)
def test_other_serdes(java: Java, kind: JoinKind) -> None:
    def build(builder: Any) -> None:
        left = builder.table("left", Consumed(STRING, LONG))
        right = builder.table("right", Consumed(LONG, STRING))
        result = getattr(left, METHODS[kind])(
            right, text, Materialized(key=STRING, value=STRING), foreign_key=lambda value: value // 10
        )
        result.to_stream().to("out")

    walk = [("left", "a", 11, 5), ("right", 1, "one", 9), ("left", "b", 25, 12), ("right", 2, "two", 3)]
    assert same(build, walk, stores=False)["out"][0].key == b"a"


def test_a_table_with_itself(java: Java) -> None:
    def build(builder: Any) -> None:
        people = builder.table("people")
        people.left_join(people, text, foreign_key=foreign_key).to_stream().to("out")

    walk = [("people", "x", "y|1", 5), ("people", "y", "x|2", 9), ("people", "x", "x|3", 12), ("people", "y", None, 30)]
    assert len(same(build, walk, stores=False)["out"]) > 4


def test_a_partitioner_that_chooses_several_partitions(java: Java) -> None:
    several = TableJoined(other_partitioner=lambda *given: [0, 1])
    java_message, error = both_refuse(joined("inner", table_joined=several), [("left", "a", "x|1", 5)])
    assert "singleton" in java_message or "singleton" in str(error)
    assert "singleton" in repr(error.__cause__) + str(error)


def test_subscriptions_of_an_older_release(java: Java) -> None:
    """Version 0 has no field for the requesting partition; it is answered and stored as it is (KIP-775)."""
    old = bytes([0, 2]) + bytes(16) + b"a"
    walk = [("right", "x", "one", 9), (REGISTRATION, "x", old, 5), ("left", "a", "x|1", 6), ("right", "x", "two", 12)]
    written = same(joined("left"), [*walk, (REGISTRATION, "y", bytes([0x80, 1]) + b"a", 12)], stores=False)
    assert old in [each.value for topic in written for each in written[topic]]


@pytest.mark.parametrize("broken", [bytes([2, 2]) + bytes(21), bytes([1, 9]) + bytes(21)])
def test_unknown_subscriptions(java: Java, broken: bytes) -> None:
    both_refuse(joined("left"), [(REGISTRATION, "x", broken, 5)])


def test_the_hash(java: Java) -> None:
    murmur3 = java.find("org.apache.kafka.streams.state.internals.Murmur3")
    assert murmur3 is not None
    drawn = random.Random(3)
    for length in range(70):
        data = drawn.randbytes(length)
        theirs = murmur3.hash128(jpype.JArray(jpype.JByte)(data))
        assert struct.pack(">qq", int(theirs[0]), int(theirs[1])) == hash128(data)


def test_keys_are_extracted_by_a_function_of_the_value() -> None:
    builder = StreamsBuilder()
    table = builder.table("left")
    table.join(table, text, foreign_key=lambda key, value: key)
    with pytest.raises(TypeError, match="expected a function of"):
        builder.build()
