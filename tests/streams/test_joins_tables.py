"""Joins of streams with tables and of tables with tables, beside Java's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from odradek.streams.dsl.joins import JoinKind
from odradek.streams.dsl.options import Joined, Materialized, Repartitioned
from odradek.streams.records import Window, Windowed
from odradek.streams.serdes import STRING, windowed_serde
from odradek.streams.stores.builders import versioned_key_value_store
from odradek.streams.windows import TimeWindows
from tests.streams.oracle.implementations import Piped, both_refuse, records, same, same_text
from tests.streams.oracle.java import Java

pytestmark = pytest.mark.jvm

METHODS: dict[JoinKind, str] = {"inner": "join", "left": "left_join", "outer": "outer_join"}
KINDS = tuple(METHODS)
ONE_SIDED: tuple[JoinKind, ...] = ("inner", "left")


def text(left: Any, right: Any) -> str:
    return f"{left}+{right}"


def text_with_key(key: Any, left: Any, right: Any) -> str:
    return f"{key}:{left}+{right}"


def versioned(name: str, history_ms: int = 1000) -> Materialized[Any, Any]:
    """A versioned table."""
    return Materialized(store=versioned_key_value_store(name, history_ms, None, None))


# ---- a stream and a table


@pytest.mark.parametrize("kind", ONE_SIDED)
@pytest.mark.parametrize("printed", [None, Joined(name="met"), Joined(STRING, STRING, STRING)])
@settings(max_examples=4)
@given(given_records=records("stream", "table"))
def test_stream_and_table(
    java: Java, kind: JoinKind, printed: Joined[Any, Any, Any] | None, given_records: list[Piped]
) -> None:
    def build(builder: Any) -> None:
        stream, table = builder.stream("stream"), builder.table("table")
        options = {} if printed is None else {"joined": printed}
        getattr(stream, METHODS[kind])(table, text_with_key, **options).to("out")

    same(build, given_records)


@pytest.mark.parametrize("kind", ONE_SIDED)
@pytest.mark.parametrize("name", [None, "met"])
def test_stream_with_changed_keys_and_table(java: Java, kind: JoinKind, name: str | None) -> None:
    def build(builder: Any) -> None:
        stream = builder.stream("stream").map(lambda key, value: (value, key))
        table, other = builder.table("table"), builder.table("other", materialized=Materialized(name="kept"))
        getattr(stream, METHODS[kind])(table, text, joined=Joined(name=name)).to("out")
        if name is None:  # both joins share a repartition
            stream.join(other, text).to("out2")

    walk = [("table", "a", "1", 5), ("other", "a", "2", 5), ("stream", "x", "a", 9), ("stream", None, "a", 3)]
    written = same(build, [*walk, ("stream", "y", None, 11), ("stream", None, None, 12), ("stream", "z", "b", 12)])
    assert written["out"][0].value == b"x+1"


@pytest.mark.parametrize("kind", ONE_SIDED)
def test_stream_and_computed_table(java: Java, kind: JoinKind) -> None:
    def build(builder: Any) -> None:
        table = builder.table("table").filter(lambda key, value: value != "no").map_values(lambda value: value * 2)
        stream = builder.stream("stream")
        getattr(stream, METHODS[kind])(table, text).to("out")
        counts = stream.group_by_key().count()
        getattr(stream, METHODS[kind])(counts, lambda left, right: f"{left}={right}").to("out2")

    walk = [("table", "a", "1", 5), ("stream", "a", "x", 9), ("table", "a", "no", 7), ("stream", "a", "y", 8)]
    assert same(build, walk)["out"][0].value == b"x+11"


@pytest.mark.parametrize("kind", ONE_SIDED)
@settings(max_examples=4)
@given(given_records=records("stream", "table"))
def test_stream_and_versioned_table(java: Java, kind: JoinKind, given_records: list[Piped]) -> None:
    def build(builder: Any) -> None:
        stream, table = builder.stream("stream"), builder.table("table", materialized=versioned("kept", 40))
        getattr(stream, METHODS[kind])(table, text).to("out")
        getattr(stream, METHODS[kind])(table.map_values(lambda value: value + "!"), text).to("out2")

    same(build, given_records, stores=False)


@pytest.mark.parametrize("kind", ONE_SIDED)
@pytest.mark.parametrize("name", [None, "met"])
@settings(max_examples=4)
@given(given_records=records("stream", "table", null_keys=False))
def test_stream_that_waits_for_versioned_table(
    java: Java, kind: JoinKind, name: str | None, given_records: list[Piped]
) -> None:
    def build(builder: Any) -> None:
        stream, table = builder.stream("stream"), builder.table("table", materialized=versioned("kept", 100))
        getattr(stream, METHODS[kind])(table, text, joined=Joined(name=name, grace=20)).to("out")

    same(build, given_records, stores=False)


def test_waiting_needs_a_key(java: Java) -> None:
    def build(builder: Any) -> None:
        table = builder.table("table", materialized=versioned("kept", 100))
        builder.stream("stream").left_join(table, text, joined=Joined(grace=20)).to("out")

    java_message, error = both_refuse(build, [("stream", None, "1", 5)])
    assert "key cannot be null" in java_message + repr(error)


def test_waiting_needs_versions(java: Java) -> None:
    def build(printed: Materialized[Any, Any]) -> Callable[[Any], None]:
        def build(builder: Any) -> None:
            builder.stream("stream").join(
                builder.table("table", materialized=printed), text, joined=Joined(grace=50)
            ).to("out")

        return build

    java_message, error = both_refuse(build(Materialized(name="kept")))
    assert "must be versioned" in java_message
    assert "must be versioned" in str(error)
    java_message, error = both_refuse(build(versioned("kept", 49)))
    assert "at least grace period" in java_message
    assert "at least grace period" in str(error)


@pytest.mark.parametrize("kind", ONE_SIDED)
@settings(max_examples=4)
@given(given_records=records("stream", "table", values=st.sampled_from(["a", "b", "c", "-"])))
def test_stream_and_global_table(java: Java, kind: JoinKind, given_records: list[Piped]) -> None:
    def build(builder: Any) -> None:
        stream, table = builder.stream("stream"), builder.global_table("table")

        def select(key: Any, value: Any) -> Any:
            return None if value == "-" else value

        getattr(stream, METHODS[kind])(table, text, key_selector=select).to("out")
        changed = stream.select_key(lambda key, value: value)
        getattr(changed, METHODS[kind])(table, text_with_key, key_selector=lambda key, value: key, name="by").to("out2")

    same(build, given_records)


# ---- tables


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("printed", "name"),
    [
        (None, None),
        (None, "met"),
        (Materialized(), None),
        (Materialized("kept"), "met"),
        (Materialized("kept", caching=False), None),
    ],
    ids=["plain", "named", "unnamed-store", "named-store", "uncached"],
)
@settings(max_examples=3)
@given(given_records=records("left", "right"), cache=st.sampled_from([0, 10_000_000]))
def test_two_tables(
    java: Java, kind: JoinKind, printed: Any, name: str | None, given_records: list[Piped], cache: int
) -> None:
    def build(builder: Any) -> None:
        left, right = builder.table("left"), builder.table("right")
        options: dict[str, Any] = {} if name is None else {"name": name}
        if printed is not None:
            options["materialized"] = printed
        getattr(left, METHODS[kind])(right, text, **options).to_stream().to("out")

    same(build, given_records, {"statestore.cache.max.bytes": cache})


@pytest.mark.parametrize("first", KINDS)
@pytest.mark.parametrize("second", KINDS)
@settings(max_examples=3)
@given(given_records=records("left", "right", "third"), kept=st.booleans())
def test_chains_of_tables(
    java: Java, first: JoinKind, second: JoinKind, given_records: list[Piped], kept: bool
) -> None:
    """Kafka's own table of joins of three tables: every kind after every kind, with and without a store between."""

    def build(builder: Any) -> None:
        left, right, third = (builder.table(topic) for topic in ("left", "right", "third"))
        options: dict[str, Any] = {"materialized": Materialized("between")} if kept else {}
        between = getattr(left, METHODS[first])(right, text, **options)
        getattr(between, METHODS[second])(third, text).to_stream().to("out")
        getattr(third, METHODS[second])(between, text).group_by(lambda key, value: (value[:1], value)).count()

    same(build, given_records)


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=3)
@given(given_records=records("left", "right"))
def test_computed_tables(java: Java, kind: JoinKind, given_records: list[Piped]) -> None:
    def build(builder: Any) -> None:
        left = builder.table("left").filter(lambda key, value: value != "1")
        right = builder.table("right").map_values(lambda value: value + "!")
        both = getattr(left, METHODS[kind])(right, text)
        both.filter(lambda key, value: "2" not in value).to_stream().to("out")
        counts = both.group_by(lambda key, value: (value[:1], value)).count()
        counts.map_values(str).to_stream().to("out2")
        getattr(left, METHODS[kind])(left, text).to_stream().to("out3")

    same(build, given_records)


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=5)
@given(given_records=records("left", "right"), sides=st.sampled_from(["left", "right", "both"]), kept=st.booleans())
def test_versioned_tables(java: Java, kind: JoinKind, given_records: list[Piped], sides: str, kept: bool) -> None:
    def build(builder: Any) -> None:
        left, right = (
            builder.table(topic, materialized=versioned(topic, 40))
            if sides in (topic, "both")
            else builder.table(topic)
            for topic in ("left", "right")
        )
        options = {"materialized": versioned("result", 40)} if kept else {}
        joined = getattr(left, METHODS[kind])(right, text, **options)
        joined.to_stream().to("out")
        getattr(joined, METHODS[kind])(right.filter(lambda key, value: value != "1"), text).to_stream().to("out2")

    same(build, given_records, stores=False)


def test_names_of_table_joins(java: Java) -> None:
    def build(builder: Any) -> None:
        left, right = builder.table("left"), builder.table("right", materialized=Materialized("kept"))
        left.join(right, text).outer_join(right, text, Materialized("result"), name="named").to_stream().to("out")

    assert "named-join-this" in same_text(build)


@pytest.mark.parametrize("kind", KINDS)
def test_tables_of_windows(java: Java, kind: JoinKind) -> None:
    def build(builder: Any) -> None:
        windows = TimeWindows.of_size_and_grace(20, 20)
        left, right = (builder.stream(topic).group_by_key().windowed_by(windows).count() for topic in ("left", "right"))
        both = getattr(left, METHODS[kind])(right, text)
        both.to_stream(lambda key, value: key.key).to("out")
        stream = builder.stream("stream").map(lambda key, value: (Windowed(key, Window(0, 20)), value))
        stream = stream.repartition(Repartitioned(windowed_serde(STRING, 20), STRING))
        join = stream.join if kind == "inner" else stream.left_join
        join(right, text).select_key(lambda key, value: key.key).to("out2")

    walk = [
        (topic, "ab"[at % 2], str(at), at * 7 % 45) for at in range(24) for topic in (("left", "right")[at % 3 > 0],)
    ]
    written = same(build, [*walk, ("stream", "a", "1", 50), ("stream", "c", "2", 51)])
    assert len(written["out"]) > 8
