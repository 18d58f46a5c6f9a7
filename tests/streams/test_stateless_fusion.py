"""Chains of operators as one function: the same results, the same errors, by the name of the node."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from odradek.streams.driver import TopologyTestDriver
from odradek.streams.dsl.builder import StreamsBuilder
from odradek.streams.dsl.kstream import KStream
from odradek.streams.dsl.options import Consumed, Joined, Produced
from odradek.streams.errors import ErrorContext, ProcessingError, Response
from odradek.streams.operators.fusion import FusedFunctionBuilder
from odradek.streams.serdes import LONG, STRING


def _pairs(key: Any, value: int) -> Iterator[tuple[Any, int]]:
    for number in range(abs(value) % 3):
        yield f"{key}{number}", value - number


STEPS: dict[str, tuple[Callable[[Any], Any], Callable[[Any, int], list[tuple[Any, int]]]]] = {
    "filter": (lambda s: s.filter(lambda value: value % 3), lambda k, v: [(k, v)] if v % 3 else []),
    "filter_not": (
        lambda s: s.filter_not(lambda key, value: value % 5 == 1),
        lambda k, v: [] if v % 5 == 1 else [(k, v)],
    ),
    "map_values": (lambda s: s.map_values(lambda value: value + 1), lambda k, v: [(k, v + 1)]),
    "map_keyed": (lambda s: s.map_values(lambda key, value: value + len(key)), lambda k, v: [(k, v + len(k))]),
    "map": (lambda s: s.map(lambda key, value: (f"{key}!", value * 2)), lambda k, v: [(f"{k}!", v * 2)]),
    "select_key": (lambda s: s.select_key(lambda value: str(value)), lambda k, v: [(str(v), v)]),
    "select_longer": (lambda s: s.select_key(lambda key, value: key + "k"), lambda k, v: [(k + "k", v)]),
    "flat_map": (lambda s: s.flat_map(_pairs), lambda k, v: list(_pairs(k, v))),
    "flat_map_values": (lambda s: s.flat_map_values(lambda value: [value, -value]), lambda k, v: [(k, v), (k, -v)]),
    "peek": (lambda s: s.peek(lambda value: None), lambda k, v: [(k, v)]),
}


@given(st.lists(st.sampled_from(sorted(STEPS)), max_size=6), st.lists(st.integers(-9, 9), max_size=5), st.booleans())
def test_a_chain_has_the_results_of_its_operators(chain: list[str], values: list[int], branches: bool) -> None:
    builder = StreamsBuilder()
    stream: KStream[Any, Any] = builder.stream("in", Consumed(STRING, LONG))
    expected = [("k", value) for value in values]
    for step in chain:
        apply, model = STEPS[step]
        stream = apply(stream)
        expected = [result for key, value in expected for result in model(key, value)]
    stream.to("out", Produced(STRING, LONG))
    if branches:  # the end of the chain is not the sink then
        stream.foreach(lambda value: None)
    with TopologyTestDriver(builder.build()) as driver:
        into = driver.create_input_topic("in", STRING, LONG)
        for value in values:
            into.pipe_input("k", value)
        out = driver.create_output_topic("out", STRING, LONG)
        assert [(each.key, each.value) for each in out.read_records_to_list()] == expected


def _reciprocal(value: int) -> int:
    return 100 // value


@pytest.mark.parametrize(
    ("build", "node", "left"),
    [
        (lambda s: s.filter(_reciprocal, name="bad"), "bad", [1, -1]),
        (lambda s: s.map_values(abs, name="good").filter_not(lambda v: not _reciprocal(v), name="bad"), "bad", [1, 1]),
        (lambda s: s.peek(_reciprocal, name="bad").map_values(abs, name="good"), "bad", [1, 1]),
        (lambda s: s.flat_map_values(lambda v: (100 // each for each in (1, v, 1)), name="bad"), "bad", None),
        (
            lambda s: s.flat_map_values(lambda v: [v, 1]).map_values(_reciprocal, name="bad"),
            "bad",
            [100, 100, 100, -100, 100],
        ),
        (
            lambda s: s.flat_map(lambda k, v: [(k, v)] * 2).flat_map_values(lambda v: [_reciprocal(v)], name="bad"),
            "bad",
            None,
        ),
        (lambda s: s.map(lambda k, v: k if v == 0 else (k, v), name="bad"), "bad", None),
    ],
)
def test_an_error_has_the_name_of_its_node(build: Any, node: str, left: list[int] | None) -> None:
    seen: list[tuple[str, Any, Any]] = []

    def go_on(context: ErrorContext, key: Any, value: Any, error: Exception) -> Response:
        seen.append((context.node, key, value))
        return Response.CONTINUE

    def topology() -> Any:
        builder = StreamsBuilder()
        build(builder.stream("in", Consumed(STRING, LONG))).to("out", Produced(STRING, LONG))
        return builder.build()

    with TopologyTestDriver(topology(), {"processing.exception.handler": go_on}) as driver:
        into = driver.create_input_topic("in", STRING, LONG)
        for value in (1, 0, -1):
            into.pipe_input("k", value)
        results = driver.create_output_topic("out", STRING, LONG).read_values_to_list()
        assert {name for name, _, _ in seen} == {node}
        assert {value for _, _, value in seen} == {0}
        assert left is None or results == left
        assert driver.dropped_records == len(seen)
    with TopologyTestDriver(topology()) as driver:
        into = driver.create_input_topic("in", STRING, LONG)
        into.pipe_input("k", 1)
        with pytest.raises(ProcessingError, match=f"node={node}, topic=in, partition=0, offset=1"):
            into.pipe_input("k", 0)


def test_errors_of_later_nodes_are_theirs() -> None:
    """A chain forwards outside of its own `try`."""

    def fail(*record: Any) -> None:
        raise KeyError("downstream")

    blamed: list[str] = []
    chain = FusedFunctionBuilder(lambda node, *rest: blamed.append(node))
    chain.add("first", _Emits("value = value"))
    chain.loop("(value, value)", keys=False)
    process = chain.finish(fail, ["first"])
    with pytest.raises(KeyError):
        process("k", "v", 0, None)
    assert blamed == []


class _Emits:
    def __init__(self, line: str) -> None:
        self.line = line

    def inline(self, chain: FusedFunctionBuilder) -> None:
        chain.emit(self.line)


def test_many_loops_are_several_chains() -> None:
    """Python nests no more than twenty blocks."""
    builder = StreamsBuilder()
    stream = builder.stream("in", Consumed(STRING, STRING))
    for _ in range(20):
        stream = stream.flat_map_values(lambda value: [value]).flat_map(lambda key, value: [(key, value + ".")])
    stream.to("out", Produced(STRING, STRING))
    with TopologyTestDriver(builder.build(), {"application.id": "loops"}) as driver:
        driver.create_input_topic("in", STRING, STRING).pipe_input("a", "b")
        assert driver.create_output_topic("out", STRING, STRING).read_values_to_list() == ["b" + "." * 20]


def test_a_traceback_shows_the_line() -> None:
    chain = FusedFunctionBuilder(_raise)
    chain.add("node", _Emits("value = 1 / value"))
    process = chain.finish(lambda *record: None, ["node"])
    with pytest.raises(ZeroDivisionError) as caught:
        process("k", 0, 0, None)
    assert "value = 1 / value" in "".join(traceback.format_exception(caught.value))


def _raise(node: str, key: Any, value: Any, error: Exception) -> None:
    raise error


@given(
    st.lists(
        st.tuples(st.sampled_from(["row", "in"]), st.sampled_from(["a", "b", None]), st.integers(-1, 1)), max_size=8
    ),
    st.booleans(),
    st.booleans(),
)
def test_a_chain_joins_with_current_rows(given: list[tuple[str, str | None, int]], left: bool, keyed: bool) -> None:
    """Values between -1 and 1: 0 is a null value in the topic, and the joiner fails on a row of 1 and a value of -2."""

    def join(value: int, row: int | None) -> int:
        return value * 10 // (value + 2 * (row or 0)) if row == 1 else value * 10 + (row or 0)

    builder = StreamsBuilder()
    table = builder.table("row", Consumed(STRING, LONG))
    stream: KStream[Any, Any] = builder.stream("in", Consumed(STRING, LONG)).map_values(
        lambda value: None if value is None else value * 2
    )
    joined = getattr(stream, "left_join" if left else "join")(
        table, (lambda key, value, row: join(value, row)) if keyed else join, joined=Joined(name="met")
    )
    joined.filter_not(lambda value: value == 20).to("out", Produced(STRING, LONG))
    blamed: list[tuple[str, Any, Any]] = []

    def go_on(context: ErrorContext, key: Any, value: Any, error: Exception) -> Response:
        blamed.append((context.node, key, value))
        return Response.CONTINUE

    rows: dict[str, int] = {}
    results, dropped, failures = [], 0, []
    for topic, key, number in given:
        if topic == "row":
            if key is None:
                dropped += 1
            elif number:
                rows[key] = number
            else:
                rows.pop(key, None)
        elif number == 0 or (key is None and not left):
            dropped += 1
        elif (row := rows.get(key or "")) == 1 and number == -1:
            failures.append(("met", key, -2))
        elif (row is not None or left) and (result := join(number * 2, row)) != 20:
            results.append((key, result))
    with TopologyTestDriver(builder.build(), {"processing.exception.handler": go_on}) as driver:
        topics = {name: driver.create_input_topic(name, STRING, LONG) for name in ("row", "in")}
        for topic, key, number in given:
            topics[topic].pipe_input(key, number or None)
        out = driver.create_output_topic("out", STRING, LONG)
        assert [(each.key, each.value) for each in out.read_records_to_list()] == results
        assert blamed == failures
        assert driver.dropped_records == dropped + len(failures)
