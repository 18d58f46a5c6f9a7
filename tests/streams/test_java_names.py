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

CODE: Final = parity.rows(parity.PAGE.read_text(), "Classes and methods")
DEPRECATED: Final = [row for row in CODE if row.why.startswith("deprecated; ")]


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


def test_every_deprecated_method_of_a_class_names_its_successor() -> None:
    """The error of an object of the class, or of the class itself, whose rows the page has."""
    classes = {row.java: row.python for row in CODE if row.state != "not"}
    named = {}
    for row in DEPRECATED:
        owner, _, method = row.java.rpartition(".")
        successor = row.why.removeprefix("deprecated; ")
        if owner in classes and parity.exists(f"{classes[owner]}.{successor}"):
            found: Any = parity.find(classes[owner])
            assert issubclass(found, JavaNames), row
            with pytest.raises(AttributeError, match=f"'{method}', which is deprecated .*; use {successor}$"):
                found.__getattr__(object.__new__(found), method)
            named.setdefault(owner.rpartition(".")[2], set()).add(successor)
    assert named == {owner: {*successors.values()} for owner, successors in SUCCESSORS.items()}


def test_the_streams_of_the_dsl_have_it() -> None:
    for name in ("dsl.ktable.KTable", "dsl.grouped.KGroupedStream", "dsl.windowed.TimeWindowedKStream"):
        module, _, kind = name.rpartition(".")
        found = getattr(importlib.import_module(f"odradek.streams.{module}"), kind)
        assert issubclass(found, JavaNames)
