"""A Java name of a method raises an error that gives its name in Python."""

from __future__ import annotations

import importlib
from typing import Any, Final

import pytest

from odradek import streams
from odradek.streams.java_names import SUCCESSORS, JavaNames
from odradek.streams.topology import Topology
from odradek.streams.windows import TimeWindows
from tests.streams import parity

DEPRECATED: Final = [
    row for row in parity.rows(parity.PAGE.read_text(), "Classes and methods") if row.why.startswith("deprecated; ")
]


@pytest.mark.parametrize(
    ("owner", "name", "here"),
    [
        (TimeWindows.of_size_with_no_grace(5), "advanceBy", "advance_by"),
        (TimeWindows, "ofSizeWithNoGrace", "of_size_with_no_grace"),
        (Topology(), "addSource", "add_source"),
        (streams.StreamsBuilder().stream("in"), "mapValues", "map_values"),
    ],
)
def test_a_java_name_gives_the_python_name(owner: Any, name: str, here: str) -> None:
    with pytest.raises(AttributeError, match=f"{name}'; its name in Python is {here}$"):
        getattr(owner, name)


@pytest.mark.parametrize("name", ["transform", "flatTransformValues"])
def test_a_deprecated_method_names_its_successor(name: str) -> None:
    stream = streams.StreamsBuilder().stream("in")
    with pytest.raises(AttributeError, match="deprecated in Kafka Streams; use process"):
        getattr(stream, name)


def test_a_name_of_neither_says_no_more() -> None:
    with pytest.raises(AttributeError, match=r"^'Topology' has no attribute 'fly'$"):
        _ = Topology().fly  # type: ignore[attr-defined]
    assert not hasattr(TimeWindows, "fly")


def test_every_successor_exists_and_is_on_the_page() -> None:
    named = set()
    for row in DEPRECATED:
        kind = row.java.rpartition(".")[0].rpartition(".")[2]
        named.add(f"{kind}.{row.why.removeprefix('deprecated; ')}")
    for owner, successors in SUCCESSORS.items():
        found = getattr(streams, owner)
        for successor in successors.values():
            assert hasattr(found, successor), (owner, successor)
            assert f"{owner}.{successor}" in named


def test_the_streams_of_the_dsl_have_it() -> None:
    for name in ("dsl.ktable.KTable", "dsl.grouped.KGroupedStream", "dsl.windowed.TimeWindowedKStream"):
        module, _, kind = name.rpartition(".")
        found = getattr(importlib.import_module(f"odradek.streams.{module}"), kind)
        assert issubclass(found, JavaNames)
