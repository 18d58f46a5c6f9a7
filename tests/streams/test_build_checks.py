"""What a wrong description of a topology is rejected for before anything runs, and what the message contains."""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from odradek.streams import (
    LONG,
    STRING,
    Branched,
    Consumed,
    Grouped,
    Joined,
    JoinWindows,
    KafkaStreams,
    Materialized,
    Printed,
    Produced,
    Repartitioned,
    SessionWindows,
    StreamJoined,
    StreamsBuilder,
    TimeWindows,
    Topology,
    TopologyError,
    key_value_store,
)
from odradek.streams.dsl.kstream import KStream
from odradek.streams.dsl.ktable import KTable
from odradek.streams.functions import OF_RECORD, problem_of
from odradek.streams.processor import Processor
from odradek.streams.records import Record

WINDOWS = TimeWindows.of_size_with_no_grace(10)
SESSIONS = SessionWindows.of_inactivity_gap_with_no_grace(10)
NEAR = JoinWindows.of_time_difference_with_no_grace(10)


class Build:
    """A stream and a table to put operators after."""

    def __init__(self) -> None:
        self.builder = StreamsBuilder()
        self.stream: KStream[Any, Any] = self.builder.stream("in", Consumed(STRING, STRING))
        self.table: KTable[Any, Any] = self.builder.table("rows", Consumed(STRING, STRING))
        self.grouped = self.stream.group_by_key()

    def other(self) -> KStream[Any, Any]:
        return self.builder.stream("other", Consumed(STRING, STRING))


def untyped(function: Any) -> Any:
    """The function itself: a type checker would reject those below as well (test_types.py)."""
    return function


@untyped
def none() -> None:
    """A function without parameters."""


@untyped
def four(a: Any, b: Any, c: Any, d: Any) -> None:
    """A function of four."""


@untyped
def keyword(value: Any, *, needed: Any) -> None:
    """A function that requires a keyword."""


@untyped
async def coroutine(value: Any) -> Any:
    """A coroutine function, whose result nothing would await."""


class NoProcessor:
    """A class that cannot process."""


WRONG: dict[str, tuple[str, Callable[[Build], Any]]] = {
    "filter": ("KSTREAM-FILTER-0000000004: predicate", lambda b: b.stream.filter(none)),
    "filter_not": ("mine: predicate", lambda b: b.stream.filter_not(four, name="mine")),
    "map": ("KSTREAM-MAP-0000000004: mapper", lambda b: b.stream.map("text")),  # type: ignore[call-overload]
    "map_values": ("KSTREAM-MAPVALUES-0000000004: mapper", lambda b: b.stream.map_values(keyword)),
    "flat_map": ("KSTREAM-FLATMAP-0000000004: mapper", lambda b: b.stream.flat_map(four)),
    "flat_map_values": ("KSTREAM-FLATMAPVALUES", lambda b: b.stream.flat_map_values(four)),
    "select_key": ("KSTREAM-KEY-SELECT-0000000004: selector", lambda b: b.stream.select_key(none)),
    "peek": ("KSTREAM-PEEK-0000000004: action", lambda b: b.stream.peek(none)),
    "foreach": ("KSTREAM-FOREACH-0000000004: action", lambda b: b.stream.foreach(none)),
    "print": ("KSTREAM-PRINTER", lambda b: b.stream.print(Printed(mapper=none))),
    "branch": ("KSTREAM-BRANCH-0000000004: predicate 1", lambda b: b.stream.split().branch(none, Branched("x"))),
    "to": ("KSTREAM-SINK-0000000004: topic", lambda b: b.stream.to(none)),
    "partitioner": ("partitioner", lambda b: b.stream.to("out", Produced(partitioner=none))),
    "process": ("KSTREAM-PROCESSOR-0000000004: supplier", lambda b: b.stream.process(Listed([]))),  # type: ignore[arg-type]
    "no processor": (
        "KSTREAM-PROCESSOR-0000000004: supplier is NoProcessor, a class without a method process",
        lambda b: b.stream.process(NoProcessor),  # type: ignore[arg-type]
    ),
    "coroutine": (
        "KSTREAM-MAPVALUES-0000000004: mapper is coroutine",
        lambda b: b.stream.map_values(coroutine),
    ),
    "group_by": ("KSTREAM-KEY-SELECT-0000000004: selector", lambda b: b.stream.group_by(none).count()),
    "reduce": ("KSTREAM-REDUCE-0000000005: reducer", lambda b: b.grouped.reduce(none)),
    "initializer": (
        "KSTREAM-AGGREGATE-0000000005: initializer is 0;",
        lambda b: b.grouped.aggregate(0, lambda k, v, a: a),  # type: ignore[arg-type]
    ),
    "aggregator": ("aggregator", lambda b: b.grouped.aggregate(int, lambda v, a: a)),  # type: ignore[arg-type]
    "windowed reduce": ("reducer", lambda b: b.grouped.windowed_by(WINDOWS).reduce(none)),
    "windowed aggregate": (
        "aggregator",
        lambda b: b.grouped.windowed_by(WINDOWS).aggregate(int, operator.add),  # type: ignore[arg-type]
    ),
    "session merger": (
        "merger",
        lambda b: b.grouped.windowed_by(SESSIONS).aggregate(int, lambda k, v, a: a, operator.add),  # type: ignore[arg-type]
    ),
    "cogroup": ("aggregator", lambda b: b.grouped.cogroup(operator.add).aggregate(int)),  # type: ignore[arg-type]
    "stream join": ("joiner", lambda b: b.stream.join(b.other(), none, NEAR)),
    "table join": ("joiner", lambda b: b.table.join(b.builder.table("more", Consumed(STRING, STRING)), four)),
    "foreign key": (
        "foreign_key",
        lambda b: b.table.join(b.builder.table("more", Consumed(STRING, STRING)), operator.add, foreign_key=four),
    ),
    "global join": (
        "key_selector",
        lambda b: b.stream.join(
            b.builder.global_table("more", Consumed(STRING, STRING)), operator.add, key_selector=none
        ),
    ),
    "table filter": ("KTABLE-FILTER-0000000004: predicate", lambda b: b.table.filter(none)),
    "table map_values": ("KTABLE-MAPVALUES-0000000004: mapper", lambda b: b.table.map_values(none)),
    "table group_by": ("KTABLE-SELECT-0000000004: selector", lambda b: b.table.group_by(none)),
    "table adder": ("adder", lambda b: b.table.group_by(lambda k, v: (v, k)).reduce(none, operator.sub)),
    "transformer": ("transformer", lambda b: b.table.transform_values(object())),  # type: ignore[arg-type]
    "extractor": ("timestamp_extractor", lambda b: b.builder.stream("x", Consumed(timestamp_extractor=none))),
    "source topic": ("KSTREAM-SOURCE-0000000004: 'a b'", lambda b: b.builder.stream("a b", Consumed(STRING, STRING))),
    "sink topic": ("KSTREAM-SINK-0000000004: 'a/b'", lambda b: b.stream.to("a/b")),
    "store serde": ("store s: value", lambda b: b.builder.add_state_store(key_value_store("s", STRING, str))),  # type: ignore[arg-type]
    "store name": ("store a b", lambda b: b.builder.add_state_store(key_value_store("a b", STRING, STRING))),
}


class Listed(Processor):
    """A processor that needs an argument, given as an instance."""

    def __init__(self, results: list[Any]) -> None:
        self.results = results

    def process(self, record: Record) -> None:
        self.results.append(record)


@pytest.mark.parametrize("name", WRONG)
def test_build_rejects_a_wrong_argument_with_the_name_of_its_operator(name: str) -> None:
    expected, write = WRONG[name]
    build = Build()
    write(build)
    with pytest.raises(TopologyError) as caught:
        build.builder.build()
    assert expected in str(caught.value)


def test_build_reports_the_place_of_every_wrong_function() -> None:
    build = Build()
    build.stream.filter(none).map_values(four)
    with pytest.raises(TopologyError) as caught:
        build.builder.build()
    first, second = str(caught.value).splitlines()
    line = none.__code__.co_firstlineno
    assert first == (
        f"Invalid topology: KSTREAM-FILTER-0000000004: predicate is none ({__file__}:{line}), a function of (); "
        "expected a function of (value) or of (key, value)"
    )
    assert "KSTREAM-MAPVALUES-0000000005: mapper is four" in second


@pytest.mark.parametrize(
    "function",
    [
        str.upper,
        len,
        int,
        partial(operator.add, 1),
        operator.add,
        lambda *record: record,
        lambda value=None: value,
        lambda key, value, at=0: at,
        print,
        dict,
    ],
)
def test_functions_that_can_be_called_are_accepted(function: Any) -> None:
    assert problem_of(function, OF_RECORD) is None


NO_SERDE: dict[str, Callable[[], Any]] = {
    "Consumed(key=…)": lambda: Consumed(str),  # type: ignore[arg-type]
    "Consumed(value=…)": lambda: Consumed(STRING, "STRING"),  # type: ignore[arg-type]
    "Consumed(offset_reset=…)": lambda: Consumed(offset_reset="begin"),  # type: ignore[arg-type]
    "Produced(value=…)": lambda: Produced(value=int),  # type: ignore[arg-type]
    "Grouped(key=…)": lambda: Grouped("by-word"),  # type: ignore[arg-type]
    "Grouped(name=…)": lambda: Grouped(name=STRING),  # type: ignore[arg-type]
    "Repartitioned(key=…)": lambda: Repartitioned("by-word"),  # type: ignore[arg-type]
    "Joined(other_value=…)": lambda: Joined(other_value=b""),  # type: ignore[arg-type]
    "StreamJoined(value=…)": lambda: StreamJoined(STRING, 1),  # type: ignore[arg-type]
    "Materialized(key=…)": lambda: Materialized("store", str),  # type: ignore[arg-type]
    "Materialized(name=…)": lambda: Materialized(STRING, STRING),  # type: ignore[arg-type]
    "Materialized(store_type=…)": lambda: Materialized("store", store_type="redis"),  # type: ignore[arg-type]
    "StreamJoined(store_type=…)": lambda: StreamJoined(store_type=dict),  # type: ignore[arg-type]
    "Repartitioned(partitions=…)": lambda: Repartitioned(partitions=0),
    "Materialized(store=…)": lambda: Materialized(store="store"),  # type: ignore[arg-type]
}


def test_coroutine_functions_are_accepted_where_they_are_awaited() -> None:
    build = Build()
    build.stream.map_values_async(coroutine)
    build.stream.map_async(coroutine)
    build.builder.build()


OTHERS: dict[str, Callable[[Build], Any]] = {
    "merge()": lambda b: b.stream.merge(b.table),  # type: ignore[arg-type]
    "join()": lambda b: b.stream.join("topic", operator.add, NEAR),  # type: ignore[call-overload]
    "left_join()": lambda b: b.table.left_join(b.stream, operator.add),  # type: ignore[call-overload]
    "outer_join()": lambda b: b.stream.outer_join(Build().stream, operator.add, NEAR),
    "cogroup()": lambda b: b.grouped.cogroup(lambda k, v, a: a).cogroup(Build().grouped, lambda k, v, a: a),
}


@pytest.mark.parametrize("operation", OTHERS)
def test_the_other_side_is_a_stream_or_a_table_of_the_same_builder(operation: str) -> None:
    """Streams of two builders may have the same names, so one would be read in place of the other."""
    with pytest.raises(TopologyError) as caught:
        OTHERS[operation](Build())
    assert str(caught.value).startswith(f"{operation} at {__file__}:")


@pytest.mark.parametrize("where", NO_SERDE)
def test_options_reject_what_is_no_serde_with_the_place(where: str) -> None:
    write = NO_SERDE[where]
    with pytest.raises(TypeError) as caught:
        write()
    assert isinstance(caught.value, TopologyError)
    assert str(caught.value).startswith(f"{where} at {__file__}:{write.__code__.co_firstlineno} is ")


def _application(topology: Topology, **more: Any) -> KafkaStreams:
    return KafkaStreams(topology, {"application.id": "a" * 200, "bootstrap.servers": "127.0.0.1:1", **more})


def test_a_client_rejects_a_topology_without_sources_serdes_or_names_for_its_topics(tmp_path: Any) -> None:
    with pytest.raises(TopologyError, match="must subscribe to at least one source topic"):
        _application(StreamsBuilder().build())
    builder = StreamsBuilder()
    stream: KStream[Any, Any] = builder.stream("in", Consumed(STRING))
    stream.map(lambda key, value: (value, key)).to("out", Produced(value=LONG))
    stream.group_by_key().count(Materialized("s" * 100))
    with pytest.raises(TopologyError) as caught:
        _application(builder.build())
    first, second, third = str(caught.value).splitlines()
    assert "source KSTREAM-SOURCE-0000000000 of topic in (values): Please specify a serde" in first
    assert "sink KSTREAM-SINK-0000000002 of topic out (keys): Please specify a serde" in second
    assert "ss-changelog' is no name of a topic" in third
    defaults = {"default.key.serde": STRING, "default.value.serde": STRING, "application.id": "short"}
    _application(builder.build(), **{**defaults, "state.dir": str(tmp_path)}).close()
