"""describe() beside Java's on any topology, and the picture."""

from __future__ import annotations

import itertools
import re
import xml.etree.ElementTree as ElementTree
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from odradek.streams.dsl.builder import StreamsBuilder
from odradek.streams.processor import Processor
from odradek.streams.records import Record
from odradek.streams.serdes import STRING
from odradek.streams.stores.builders import key_value_store
from odradek.streams.topology import Topology
from tests.streams.oracle.implementations import same_text

Node = tuple[str, list[int], list[int]]

NODES = st.lists(
    st.tuples(
        st.sampled_from(["source", "sources", "processor", "processor", "processor", "sink"]),
        st.lists(st.integers(0, 40), min_size=1, max_size=3),
        st.lists(st.integers(0, 4), max_size=3),
    ),
    min_size=1,
    max_size=40,
)


class Nothing(Processor):
    """Never runs."""

    def process(self, record: Record) -> None:
        pass


def write(builder: Any, nodes: list[Node], names: list[str]) -> None:
    """A topology of these nodes; parents are the numbers of those before them."""
    builder.add_source(names[0], "first")
    parents, stores = [names[0]], set()
    for number, ((kind, before, used), name) in enumerate(zip(nodes, names[1:], strict=False)):
        above = sorted({parents[each % len(parents)] for each in before}, reverse=True)
        if kind == "source":
            builder.add_source(name, f"topic-{number}")
        elif kind == "sources":
            builder.add_source(name, [f"topic-{number}-{each}" for each in range(sum(before) % 25 + 1)])
        elif kind == "sink":
            builder.add_sink(name, f"out-{number}", *above)
        else:
            builder.add_processor(name, Nothing, *above)
            for store in sorted({f"store-{each}" for each in used}):
                if store not in stores:
                    stores.add(store)
                    builder.add_state_store(key_value_store(store, STRING, STRING))
                builder.connect_processor_and_state_stores(name, store)
        if kind != "sink":
            parents.append(name)


@pytest.mark.jvm
@given(NODES, st.randoms(use_true_random=False))
@settings(max_examples=40)
def test_any_topology_has_javas_text(java: Any, nodes: list[Node], random: Any) -> None:
    names = [f"NODE-{number:010d}" for number in range(len(nodes) + 1)]
    random.shuffle(names)
    same_text(lambda builder: write(builder, nodes, names), by_hand=True)


@pytest.mark.jvm
def test_wide_fans_have_javas_order(java: Any) -> None:
    def build(builder: Any) -> None:
        stream = builder.stream("in")
        for number in range(20):
            branch = stream.filter(lambda value: True)
            for _ in range(number % 4):
                branch = branch.map_values(str)
            branch.merge(stream, name=f"merge-{number}").to(f"out-{number % 7}")
        builder.global_table("everywhere", materialized="all")
        builder.table("rows", materialized="rows").to_stream().to("changes")

    assert same_text(build).count("Sub-topology") == 3


@given(NODES)
@settings(max_examples=25)
def test_a_picture_shows_every_node(nodes: list[Node]) -> None:
    topology = Topology()
    write(topology, nodes, [f"node-{number}" for number in range(len(nodes) + 1)])
    drawn = ElementTree.fromstring(topology.picture())
    texts = [each.text for each in drawn.iter("{http://www.w3.org/2000/svg}text")]
    for name in (*topology.nodes, *(store for store, users in topology.store_users.items() if users)):
        assert texts.count(name) == 1


def test_boxes_of_a_picture_do_not_overlap() -> None:
    builder = StreamsBuilder()
    stream = builder.stream(re.compile("in <&>"))
    for number in range(12):
        stream.filter(lambda value: True, name=f"filter-with-a-long-name-{number}").group_by_key().count()
    stream.merge(builder.stream("other")).to(lambda key, value, where: "chosen")
    drawn = ElementTree.fromstring(builder.build().picture())
    boxes: dict[str, list[tuple[float, float]]] = {}
    for each in drawn.iter("{http://www.w3.org/2000/svg}rect"):
        if each.get("rx") in ("4", "13"):
            left = float(each.get("x", "0"))
            boxes.setdefault(each.get("y", ""), []).append((left, left + float(each.get("width", "0"))))
    assert sum(map(len, boxes.values())) > 30
    for row in boxes.values():
        row.sort()
        assert all(right < left for (_, right), (left, _) in itertools.pairwise(row))
