"""Tables beside Java's: when they have a store, which changes they forward, and with what time."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings

from odradek.streams.dsl.options import Consumed, Grouped, Materialized, Produced
from odradek.streams.operators.repartition import ChangeSerde
from odradek.streams.operators.table import ValueTransformer
from odradek.streams.records import Change
from odradek.streams.serdes import LONG, STRING
from odradek.streams.stores.builders import key_value_store, versioned_key_value_store
from odradek.streams.timestamps import use_partition_time_on_invalid_timestamp
from tests.streams.oracle.implementations import Piped, both_refuse, records, same, same_text

pytestmark = pytest.mark.jvm

NO_CACHE = {"statestore.cache.max.bytes": 0, "default.dsl.store": "in_memory"}


def longer(value: str) -> bool:
    """A predicate."""
    return len(value) > 0


def operators(builder: Any) -> None:
    """Each operator on tables with and without stores of their own."""
    plain = builder.table("in")
    stored = builder.table("stored", Consumed(STRING, STRING), Materialized("rows"))
    streamed = builder.stream("in-stream").to_table("streamed")
    bare = builder.stream("bare").to_table()
    for name, table in (("plain", plain), ("stored", stored), ("streamed", streamed), ("bare", bare)):
        table.to_stream().to(f"{name}-rows")
        table.filter(longer).to_stream().to(f"{name}-filter")
        table.filter_not(lambda key, value: value == "1").filter(longer).to_stream().to(f"{name}-filters")
        table.map_values(lambda value: f"{value}!").to_stream().to(f"{name}-mapped")
        table.map_values(lambda key, value: None if value == "2" else key).to_stream().to(f"{name}-nulls")
        table.filter(longer, Materialized(f"{name}-kept")).to_stream().to(f"{name}-stored-filter")
        table.map_values(len, Materialized(f"{name}-lengths", value=LONG)).to_stream().to(f"{name}-stored-mapped")
        table.filter(longer).map_values(str.upper, f"{name}-upper").filter(longer).to_stream().to(f"{name}-chain")
        table.to_stream(lambda key, value: value).to(f"{name}-rekeyed")


ALL = records("in", "stored", "in-stream", "bare")


@given(ALL)
@settings(max_examples=8)
def test_every_operator(java: Any, steps: list[Piped]) -> None:
    same(operators, steps)


@given(ALL)
@settings(max_examples=5)
def test_every_operator_without_caches(java: Any, steps: list[Piped]) -> None:
    same(operators, steps, NO_CACHE)


def old_values(builder: Any) -> None:
    """Tables that have to return the old values of their rows."""
    plain = builder.table("in")
    mapped = plain.filter(longer).map_values(lambda key, value: value[:1])
    mapped.group_by(lambda key, value: (value, key)).count("by-first").to_stream().to("count", Produced(value=LONG))
    kept = plain.map_values(lambda value: value * 2, Materialized("doubled"))
    kept.filter(longer, Materialized("kept")).group_by(lambda value: (value, value), Grouped(STRING, STRING)).reduce(
        lambda so_far, value: f"{so_far}+{value}", lambda so_far, value: f"{so_far}-{value}"
    ).to_stream().to("reduce")
    streamed = builder.stream("in-stream").to_table()
    streamed.group_by(lambda key, value: (key, value)).aggregate(
        lambda: "", lambda key, value, so_far: so_far + value, lambda key, value, so_far: f"({so_far}-{value})"
    ).to_stream().to("aggregate")
    # Rows grouped by null take no part.
    plain.group_by(lambda key, value: (None if value == "1" else "k", value or None)).count().filter(
        lambda count: count != 1
    ).to_stream().to("nulls", Produced(value=LONG))
    again = builder.stream("in-stream").group_by_key().count().group_by(lambda key, value: (key, str(value)))
    again.reduce(max, min).to_stream().to("again")


@given(records("in", "in-stream"))
@settings(max_examples=8)
def test_grouped_tables(java: Any, steps: list[Piped]) -> None:
    same(old_values, steps)


@given(records("in", "in-stream"))
@settings(max_examples=5)
def test_grouped_tables_without_caches(java: Any, steps: list[Piped]) -> None:
    same(old_values, steps, NO_CACHE)


def test_changes_are_sent_apart_to_older_releases(java: Any) -> None:
    steps = [Piped("in", "k", "v", 1), Piped("in", "k", "w", 2), Piped("in", "k", None, 3)]
    for upgrade in ("3.3", "3.4"):
        written = same(build_counts, steps, {"upgrade.from": upgrade})
        assert [each.value for each in written["app-counts-repartition"]] == [b"v\1", b"v\0", b"w\1", b"w\0"]
    written = same(build_counts, steps, {"upgrade.from": "3.5"})
    assert [each.value for each in written["app-counts-repartition"]] == [b"v\1", b"\2wv\2", b"w\0"]


def build_counts(builder: Any) -> None:
    """A count by the same key."""
    table = builder.table("in").group_by(lambda key, value: (key, value)).count("counts")
    table.to_stream().to("out", Produced(value=LONG))


def test_long_changes_have_a_long_length() -> None:
    serde = ChangeSerde(STRING)
    for new, old in (("n" * 63, "o"), ("n" * 64, ""), ("é" * 70_000, "old"), (None, "o"), ("n", None)):
        assert serde.deserialize(serde.serialize(Change(new, old))) == Change(new, old)
    assert serde.serialize(Change("n" * 64, "o"))[:2] == b"\x80\x01"


def test_lengths_of_changes_are_javas(java: Any) -> None:
    steps = [Piped("in", "k", "x" * size, size) for size in (63, 64, 8191, 8192, 1)]
    written = same(build_counts, steps)
    assert len(written["app-counts-repartition"]) == len(steps)


class Numbered(ValueTransformer):
    """Puts the number of the row that it computes before each value."""

    def init(self, context: Any) -> None:
        self.store = context.state_store("numbers")

    def transform(self, key: Any, value: Any) -> Any:
        number = (self.store.get("all") or 0) + 1
        self.store.put("all", number)
        return None if value == "2" else f"{number}:{value}"


class Shouting(ValueTransformer):
    """Accepts null."""

    def transform(self, key: Any, value: Any) -> Any:
        return f"{key}-{value}"


@given(records("in", null_keys=False))
@settings(max_examples=5)
def test_transform_values(java: Any, steps: list[Piped]) -> None:
    def build(builder: Any) -> None:
        builder.add_state_store(key_value_store("numbers", STRING, LONG))
        table = builder.table("in")
        table.transform_values(Numbered, "numbers").to_stream().to("numbered")
        table.transform_values(Shouting, materialized=Materialized("loud", value=STRING)).to_stream().to("loud")
        table.transform_values(Shouting, name="t").group_by(
            lambda key, value: (key, value), Grouped(STRING, STRING)
        ).reduce(lambda so_far, value: so_far + value, lambda so_far, value: so_far.replace(value, "")).to_stream().to(
            "grouped"
        )

    same(build, steps)


@given(records("in", "in-stream", span_ms=400))
@settings(max_examples=5)
def test_versioned_tables(java: Any, steps: list[Piped]) -> None:
    def build(builder: Any) -> None:
        store = Materialized(store=versioned_key_value_store("versions", 200, None, None))
        table = builder.table("in", Consumed(STRING, STRING), store)
        table.to_stream().to("rows")
        table.filter(longer).to_stream().to("filter")
        table.filter(longer, "kept").to_stream().to("kept-rows")
        table.map_values(str.upper).to_stream().to("mapped")
        table.group_by(lambda key, value: (value, key)).count("counts").to_stream().to("count", Produced(value=LONG))
        again = Materialized(store=versioned_key_value_store("more", 100, None, None))
        table.map_values(str.upper, again).to_stream().to("stored")
        streamed = Materialized(store=versioned_key_value_store("streamed", 100, None, None))
        builder.stream("in-stream").to_table(streamed).to_stream().to("streamed-rows")

    same(build, steps)


def names(builder: Any) -> None:
    """Operators with names, and stores without."""
    table = builder.table("in", Consumed(STRING, STRING, name="source"))
    one = table.filter(longer, name="filter").filter_not(longer, Materialized(key=STRING), name="not")
    two = one.map_values(str, name="map").map_values(str, Materialized(value=STRING))
    two.to_stream(name="stream").to("a")
    two.to_stream(lambda value: value, name="rekeyed").to("b")
    grouped = two.group_by(lambda key, value: (value, value), Grouped(STRING, STRING, name="group"))
    grouped.count(name="count").to_stream().to("c")
    grouped.reduce(max, min, name="reduce").to_stream().to("d")
    grouped.aggregate(str, max, max, Materialized("total"), name="aggregate").to_stream().to("e")
    builder.global_table("global", Consumed(name="everywhere"))
    builder.global_table("global-2", materialized="all-of-it")
    builder.table("t", materialized=Materialized("t-store", caching=False, logging=False)).to_stream().to("f")
    builder.table("u", Consumed(timestamp_extractor=use_partition_time_on_invalid_timestamp, offset_reset="latest"))
    builder.table("v").group_by(lambda key, value: (value, key)).count().to_stream().to("g")
    builder.stream("w").select_key(lambda value: value).to_table(name="table").filter(longer).to_stream().to("h")


def test_names_in_the_text(java: Any) -> None:
    text = same_text(names)
    assert "for global store" in text
    assert "group-repartition" in text


def test_global_tables_are_filled(java: Any) -> None:
    def build(builder: Any) -> None:
        builder.global_table("global", materialized="everywhere")
        builder.stream("in").to("out")

    steps = [Piped("global", "k", "v", 5), Piped("global", "k", "w", 3), Piped("global", None, "x", 3)]
    same(build, [*steps, Piped("global", "l", None, 7), Piped("in", "a", "b", 1)])


def test_invalid_topologies_are_rejected_as_by_java(java: Any) -> None:
    both_refuse(lambda builder: (builder.table("in"), builder.table("in").to_stream().to("x")))
    both_refuse(lambda builder: (builder.stream("in"), builder.table("in").to_stream().to("x")))
    both_refuse(lambda builder: (builder.table("a", materialized="s"), builder.table("b", materialized="s")))
    both_refuse(
        lambda builder: builder.global_table(
            "g", materialized=Materialized(store=versioned_key_value_store("v", 9, None, None))
        )
    )
    both_refuse(lambda builder: builder.table("in", materialized="no blanks").to_stream().to("x"))
