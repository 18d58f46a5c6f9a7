"""Stateless operators beside Java's: every record of every topic, and describe(), are the same."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings

from odradek.streams.driver import TopologyTestDriver
from odradek.streams.dsl.options import Branched, Consumed, Grouped, Printed, Produced, Repartitioned
from odradek.streams.processor import FixedKeyProcessor, Processor
from odradek.streams.records import Record, RecordMetadata
from odradek.streams.serdes import INTEGER, JSON, LONG, STRING
from odradek.streams.stores.builders import key_value_store
from tests.streams.oracle.implementations import (
    Piped,
    both_refuse,
    java_topology,
    our_topology,
    records,
    same,
    same_text,
)
from tests.streams.oracle.java_driver import JavaDriver

pytestmark = pytest.mark.jvm


def operators(builder: Any) -> None:
    """Each operator between a source and a topic of its own."""
    stream = builder.stream("in")
    stream.filter(lambda key, value: value is not None and value > "1").to("filter")
    stream.filter(lambda value: value == "1").to("filter-by-value")
    stream.filter_not(lambda key, value: key == "a").to("filter-not")
    stream.map(lambda key, value: (value, key)).to("map")
    stream.map_values(lambda value: f"{value}!").to("map-values")
    stream.map_values(lambda key, value: f"{key}:{value}").to("map-values-with-key")
    stream.flat_map(lambda key, value: [(value, key), (key, None)] * len(value or "")).to("flat-map")
    stream.flat_map_values(lambda value: list(value or "?")).to("flat-map-values")
    stream.flat_map_values(lambda key, value: [key, value]).to("flat-map-values-with-key")
    stream.select_key(lambda key, value: value).to("select-key")
    stream.merge(builder.stream("other")).to("merge")
    stream.peek(lambda key, value: None).to("peek")
    stream.foreach(lambda key, value: None)
    stream.to(lambda key, value, where: f"chosen-{key}-{where.topic}-{where.offset}")
    stream.repartition().to("repartition")
    stream.select_key(lambda value: value).repartition(Repartitioned(name="named", partitions=1)).to(
        "repartition-named"
    )


@given(records("in", "other"))
@settings(max_examples=8)
def test_every_operator(java: Any, steps: list[Piped]) -> None:
    same(operators, steps)


def named(builder: Any) -> None:
    """The same, with names of the user's."""
    stream = builder.stream(["in", "too"], Consumed(STRING, STRING, name="source", offset_reset="earliest"))
    one = stream.filter(lambda value: True, name="filter").filter_not(lambda value: False, name="not")
    two = one.map(lambda key, value: (key, value), name="map").map_values(str, name="values")
    three = two.flat_map(lambda key, value: [(key, value)], name="flat").flat_map_values(list, name="flat-values")
    four = three.select_key(lambda value: value, name="select").peek(print, name="peek").merge(stream, name="merge")
    four.foreach(lambda value: None, name="foreach")
    four.print(Printed(name="printer"))
    four.split(name="split-").branch(lambda value: True, Branched("one")).branch(lambda value: True).default_branch()
    four.process(Upper, name="process").process_values(FixedUpper, name="process-values")
    four.to("out", Produced(name="sink"))
    four.repartition(Repartitioned(name="again")).to_table(name="to-table").to_stream(name="to-stream").to("table-out")
    four.group_by(lambda value: value, Grouped(name="group")).count(name="count")


def test_names_in_the_text(java: Any) -> None:
    assert "KSTREAM-SINK-00000000" in same_text(operators)
    assert "split-one" in same_text(named)


def test_equal_sources_are_read_once(java: Any) -> None:
    def build(builder: Any) -> None:
        first, second = builder.stream("in"), builder.stream("in")
        builder.stream(["b", "a"]).to("both")
        first.merge(second).to("out")
        builder.stream(["a", "b"]).merge(first).to("mixed")

    same(build, [Piped("in", "k", "v", 1), Piped("a", "k", "v", 2)])


def branches(builder: Any) -> None:
    """Branches with and without names, functions and consumers."""
    stream = builder.stream("in")
    named = (
        stream.split(name="by-")
        .branch(lambda key, value: value == "1", Branched("one"))
        .branch(lambda value: value is None)
        .branch(lambda value: value == "2", Branched("two", function=lambda branch: branch.map_values(lambda v: v * 2)))
        .branch(lambda value: value == "", Branched(consumer=lambda branch: branch.to("empty")))
        .default_branch(Branched("rest"))
    )
    for name, branch in sorted(named.items()):  # Java's map has no order
        branch.to(f"out-{name}")
    for name, branch in stream.split().branch(lambda value: value == "1").no_default_branch().items():
        branch.to(f"only-{name}")


@given(records("in"))
@settings(max_examples=8)
def test_branches(java: Any, steps: list[Piped]) -> None:
    same(branches, steps)


class Upper(Processor):
    """Changes every field of a record."""

    def process(self, record: Record) -> None:
        self.context.forward(Record((record.value or "").upper(), record.key, record.timestamp + 1, [("x", None)]))
        self.context.forward(record)


class FixedUpper(FixedKeyProcessor):
    """Changes the fields other than the key, and counts in a store."""

    def process(self, record: Record) -> None:
        store = self.context.state_store("counts")
        count = (store.get("all") or 0) + 1
        store.put("all", count)
        self.context.forward(record.with_value(f"{record.value}{count}").with_timestamp(record.timestamp + 2))


@given(records("in"))
@settings(max_examples=8)
def test_processors_in_a_stream(java: Any, steps: list[Piped]) -> None:
    def build(builder: Any) -> None:
        builder.add_state_store(key_value_store("counts", STRING, LONG))
        stream = builder.stream("in")
        stream.process(Upper).to("process")
        stream.process_values(FixedUpper, "counts").to("process-values")
        stream.process(Upper, name="then").group_by_key().count().to_stream().to("count", Produced(value=LONG))

    same(build, steps)


def test_serdes_of_numbers_and_json(java: Any) -> None:
    def build(builder: Any) -> None:
        numbers = builder.stream("numbers", Consumed(STRING, LONG))
        numbers.map_values(lambda value: value and value * 2).to("doubled", Produced(STRING, LONG))
        numbers.map_values(lambda value: value and value % 1000).to("small", Produced(STRING, INTEGER))
        numbers.map_values(lambda key, value: {"key": key, "list": [value]}).to("json", Produced(STRING, JSON))
        builder.stream("json-in", Consumed(STRING, JSON)).map_values(lambda value: value["a"]).to("a")

    written = same(
        build, [Piped("numbers", "k", -5, 1), Piped("numbers", "k", None, 2), Piped("json-in", "k", b'{"a":"b"}')]
    )
    assert written["json"][0].value == b'{"key":"k","list":[-5]}'


def test_topics_by_pattern(java: Any) -> None:
    def build(builder: Any) -> None:
        builder.stream(re.compile("in-[0-9]")).to(lambda key, value, where: f"from-{where.topic}")

    steps = [Piped("in-1", "k", "v", 3), Piped("in-2", "k", "v", 1), Piped("in-1", "k", "v", 2)]
    assert set(same(build, steps)) == {"from-in-1", "from-in-2"}


@given(records("in"))
@settings(max_examples=8)
def test_a_timestamp_extractor(java: Any, steps: list[Piped]) -> None:
    def extract(key: Any, value: Any, timestamp: int, partition_time: int, where: RecordMetadata) -> int:
        return -1 if value == "1" else partition_time + len(value or "") + where.offset

    def build(builder: Any) -> None:
        builder.stream("in", Consumed(timestamp_extractor=extract)).process(Upper).to("out")

    same(build, steps)


def test_a_partitioner_is_called(java: Any) -> None:
    asked: list[tuple[Any, ...]] = []

    def build(builder: Any) -> None:
        stream = builder.stream("in")
        stream.to("out", Produced(partitioner=lambda *about: asked.append(about)))
        stream.to("nowhere", Produced(partitioner=lambda topic, key, value, count: []))

    written = same(build, [Piped("in", "k", "v", 1)])
    assert set(written) == {"out"}
    assert asked == [("out", "k", "v", 1)] * 2


def test_print_writes_the_same_file(java: Any, tmp_path: Path) -> None:
    def build(folder: Path) -> Any:
        def write(builder: Any) -> None:
            stream = builder.stream("in").map_values(lambda value: value)
            stream.print(Printed(file=folder / "plain"))
            stream.print(Printed(file=folder / "labelled", label="label"))
            stream.print(Printed(file=folder / "mapped", mapper=lambda key, value: f"{key}={value}"))

        return write

    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    ours.mkdir(), theirs.mkdir()
    config = {"default.key.serde": STRING, "default.value.serde": STRING}
    steps = [(b"k", b"v"), (None, None), ("é".encode(), b"")]
    with TopologyTestDriver(our_topology(build(ours), config), config) as driver:
        for step in steps:
            driver.pipe("in", *step, 1)
    serde = "org.apache.kafka.common.serialization.Serdes$StringSerde"
    settings = dict.fromkeys(config, serde)
    with JavaDriver(java_topology(build(theirs), settings), settings) as java_driver:
        for step in steps:
            java_driver.pipe("in", *step, 1)
    for name in ("plain", "labelled", "mapped"):
        assert (ours / name).read_text() == (theirs / name).read_text() != ""


def test_invalid_topologies_are_rejected_as_by_java(java: Any) -> None:
    both_refuse(lambda builder: (builder.stream(["a", "b"]).to("x"), builder.stream("a").to("y")))
    both_refuse(lambda builder: builder.stream([]).to("x"))
    both_refuse(lambda builder: builder.stream("in").filter(lambda value: True, name="no blanks").to("x"))
    both_refuse(lambda builder: builder.stream("in").map_values(lambda value: 5).to("x"), [Piped("in", "k", "v", 1)])
    both_refuse(lambda builder: builder.stream("in").filter(lambda value: 1 / 0).to("x"), [Piped("in", "k", "v", 1)])
