"""Aggregations of streams beside Java's: results, their times, changelogs, and where records are repartitioned."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings

from odradek.streams.dsl.options import Consumed, Grouped, Materialized, Produced
from odradek.streams.serdes import JSON, LONG, STRING
from odradek.streams.stores.builders import key_value_store, lru_map, versioned_key_value_store
from tests.streams.oracle.implementations import Piped, both_refuse, records, same, same_text

pytestmark = pytest.mark.jvm

NO_CACHE = {"statestore.cache.max.bytes": 0}
IN_MEMORY = {"default.dsl.store": "in_memory"}
LONGS = Produced(value=LONG)


def joined(key: str, value: str, so_far: str) -> str:
    """An aggregator."""
    return f"{so_far}{value}"


def operators(builder: Any) -> None:
    """Each aggregation, with and without a repartition, names and stores of one's own."""
    stream = builder.stream("in")
    by_key, by_value = stream.group_by_key(), stream.group_by(lambda value: value)
    by_pair = stream.group_by(lambda key, value: None if value == "1" else f"{key}{value}")
    for name, grouped in (("key", by_key), ("value", by_value), ("pair", by_pair)):
        grouped.count().to_stream().to(f"{name}-count", LONGS)
        grouped.count(f"{name}-counts").to_stream().to(f"{name}-named-count", LONGS)
        grouped.reduce(lambda so_far, value: f"{so_far}-{value}").to_stream().to(f"{name}-reduce")
        grouped.reduce(lambda so_far, value: None if value == "2" else value, f"{name}-last").to_stream().to(
            f"{name}-last"
        )
        grouped.aggregate(lambda: "0", joined).to_stream().to(f"{name}-aggregate")
        uncached = Materialized(f"{name}-uncached", value=STRING, caching=False)
        grouped.aggregate(str, joined, uncached).to_stream().to(f"{name}-uncached-out")
        plain = Materialized(f"{name}-plain", key=STRING, logging=False, store_type="in_memory")
        grouped.aggregate(str, joined, plain).filter(lambda value: len(value) < 3).to_stream().to(f"{name}-short")
        again = grouped.count().group_by(lambda key, value: (value, key), Grouped(LONG, STRING))
        again.aggregate(str, joined, lambda key, value, so_far: so_far.replace(value, "", 1)).to_stream().to(
            f"{name}-by-count", Produced(key=LONG)
        )


@given(records("in"))
@settings(max_examples=8)
def test_every_operator(java: Any, steps: list[Piped]) -> None:
    same(operators, steps, IN_MEMORY)


@given(records("in"))
@settings(max_examples=7)
def test_every_operator_without_caches(java: Any, steps: list[Piped]) -> None:
    same(operators, steps, {**NO_CACHE, **IN_MEMORY})


@given(records("in", span_ms=300))
@settings(max_examples=5)
def test_custom_stores(java: Any, steps: list[Piped]) -> None:
    def build(builder: Any) -> None:
        grouped = builder.stream("in").group_by_key()
        for store in (
            key_value_store("plain", None, None),
            key_value_store("memory", None, None, persistent=False),
            versioned_key_value_store("versions", 100, None, None),
        ):
            printed = Materialized(key=STRING, value=STRING, store=store)
            grouped.aggregate(str, joined, printed).to_stream().to(f"{store.name}-out")
            reduced = Materialized(store=versioned_key_value_store(f"{store.name}-reduced", 50, None, None))
            grouped.reduce(lambda so_far, value: so_far + value, reduced).to_stream().to(f"{store.name}-reduced-out")

    same(build, steps)


def test_few_keys_stay_in_the_store(java: Any) -> None:
    def build(builder: Any) -> None:
        printed = Materialized(key=STRING, value=LONG, store=lru_map("few", 2, None, None))
        builder.stream("in").group_by_key().count(printed).to_stream().to("out", LONGS)

    same(build, [Piped("in", key, "v", time) for time, key in enumerate("abacabcc")], stores=False)


@given(records("in"))
@settings(max_examples=5)
def test_values_that_change_in_place(java: Any, steps: list[Piped]) -> None:
    """A list that is aggregated into is another one for each read."""

    def append(key: str, value: str, so_far: list[str]) -> list[str]:
        so_far.append(value)
        return so_far

    def build(builder: Any) -> None:
        grouped = builder.stream("in").group_by_key()
        lists = grouped.aggregate(list, append, Materialized("lists", value=JSON))
        lists.to_stream().to("out", Produced(value=JSON))
        lists.group_by(lambda key, value: (key, value), Grouped(STRING, JSON)).reduce(
            lambda so_far, value: so_far + value, lambda so_far, value: so_far[: -len(value)]
        ).to_stream().to("again", Produced(value=JSON))

    same(build, steps, IN_MEMORY)


def shared(builder: Any) -> None:
    """Aggregations of one named group, whose repartition they share, with other operators between them."""
    stream = builder.stream("in")
    grouped = stream.group_by(lambda value: value, Grouped(STRING, STRING, name="group"))
    grouped.count().to_stream().map_values(str).to("count")
    stream.map_values(str.upper).to("between")
    grouped.reduce(max, name="reduce").to_stream().to("reduce")
    stream.to("after")
    tables = builder.table("rows").group_by(lambda key, value: (value, key), Grouped(STRING, STRING, name="tables"))
    tables.count().to_stream().map_values(str).to("table-count")
    stream.to("after-table")
    tables.reduce(max, min, "last", name="table-reduce").to_stream().to("table-reduce")


def test_a_named_group_is_repartitioned_once(java: Any) -> None:
    assert same_text(shared).count("Sink: group-repartition-sink") == 1
    steps = [Piped("in", "a", "1", 5), Piped("rows", "a", "x", 2), Piped("in", "b", "1", 3), Piped("rows", "a", "y", 9)]
    assert "app-group-repartition" in same(shared, [step for step in steps if step.value], text=False)


def names(builder: Any) -> None:
    """Names that are given, and those that are generated all the same."""
    stream = builder.stream("in", Consumed(STRING, STRING))
    stream.group_by(lambda value: value, Grouped(name="by-value")).count(name="counter").to_stream().to("a", LONGS)
    stream.group_by_key(Grouped(STRING, STRING, "by-key")).reduce(max, name="biggest").to_stream().to("b")
    stream.map(lambda key, value: (value, key)).group_by_key(Grouped(name="mapped")).aggregate(
        str, joined, "total", name="totals"
    ).to_stream().to("c")
    stream.map(lambda key, value: (value, key)).group_by_key().count("kept").to_stream().to("d", LONGS)
    stream.select_key(lambda value: value).group_by_key().count().to_stream().to("e", LONGS)
    log = {"min.insync.replicas": "2"}
    stream.group_by_key().count(Materialized("logged", log_config=log), name="logger").to_stream().to("f", LONGS)


def test_names_in_the_text(java: Any) -> None:
    text = same_text(names)
    assert "(topic: total-repartition)" not in text
    assert "by-value-repartition-filter" in text


def test_invalid_topologies_are_rejected_as_by_java(java: Any) -> None:
    step = [Piped("in", "k", "v", 1)]
    both_refuse(
        lambda b: b.stream("in").group_by_key().aggregate(lambda: 5, lambda k, v, a: a).to_stream().to("x"), step
    )
    both_refuse(lambda b: b.stream("in").group_by_key().reduce(lambda a, v: 1 / 0).to_stream().to("x"), step * 2)
    both_refuse(lambda b: b.stream("in").group_by(str.upper, Grouped(name="not/legal")).count())
    both_refuse(lambda b: (b.stream("in").group_by_key().count("s"), b.stream("in").group_by_key().count("s")))
    both_refuse(lambda b: (b.stream("in").to("x", Produced(name="n")), b.stream("in").to("y", Produced(name="n"))))
