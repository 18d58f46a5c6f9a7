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
from odradek.streams.topology import Topology
from tests.streams.oracle.implementations import same_text
from tests.streams.random_topologies import NODES, Node, write


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
