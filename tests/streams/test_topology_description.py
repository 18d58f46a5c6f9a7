"""TopologyDescription beside Java's objects; read-only stores beside Java's (KIP-813)."""

from __future__ import annotations

import re
from typing import Any

import pytest

from odradek.streams.errors import TopologyError
from odradek.streams.processor import Processor
from odradek.streams.records import Record
from odradek.streams.serdes import STRING
from odradek.streams.stores.builders import key_value_store
from odradek.streams.topology import Topology
from odradek.streams.topology_description import (
    NodeDescription,
    ProcessorDescription,
    SinkDescription,
    SourceDescription,
)
from tests.streams.oracle.implementations import Pair, java_topology, our_topology


class Keep(Processor):
    """Writes each record into its store, and forwards what was there."""

    def process(self, record: Record) -> None:
        store = self.context.state_store("kept")
        before = store.get(record.key)
        store.put(record.key, record.value)
        self.context.forward(record.with_value(str(before)))


def with_read_only_store(builder: Any) -> None:
    store = key_value_store("kept", STRING, STRING).without_logging()
    builder.add_read_only_state_store(store, "source", "in", "keep", Keep, key=STRING, value=STRING)
    builder.add_sink("sink", "out", "keep", key=STRING, value=STRING)


def several(b: Any) -> None:
    b.global_table("everywhere")
    left = b.stream(re.compile("many-.*")).filter(lambda value: True)
    left.merge(b.stream("one")).group_by_key().count().to_stream().map_values(str).to("out")
    b.stream("chosen").to(lambda key, value, origin: value)


def ours(node: NodeDescription) -> tuple[Any, ...]:
    own: tuple[Any, ...] = ()
    if isinstance(node, SourceDescription):
        own = (set(node.topic_set), node.topic_pattern.pattern if node.topic_pattern else None)
    elif isinstance(node, ProcessorDescription):
        own = (set(node.stores),)
    elif isinstance(node, SinkDescription):
        own = (node.topic, node.topic_name_extractor is not None)
    return (node.name, list(node.predecessors), list(node.successors), *own)


def theirs(node: Any) -> tuple[Any, ...]:
    own: tuple[Any, ...] = ()
    if hasattr(node, "topicPattern"):
        pattern = node.topicPattern()
        topics = node.topicSet()
        own = (set() if topics is None else {str(each) for each in topics}, pattern and str(pattern.pattern()))
    elif hasattr(node, "stores"):
        own = ({str(each) for each in node.stores()},)
    elif hasattr(node, "topicNameExtractor"):
        topic = node.topic()
        own = (topic and str(topic), node.topicNameExtractor() is not None)
    before = [str(each.name()) for each in node.predecessors()]
    return (str(node.name()), before, [str(each.name()) for each in node.successors()], *own)


@pytest.mark.jvm
@pytest.mark.parametrize(("build", "by_hand"), [(several, False), (with_read_only_store, True)])
def test_the_objects_are_those_of_java(java: Any, build: Any, by_hand: bool) -> None:
    described = java_topology(build, {}, by_hand=by_hand)
    expected = described.describe()
    found = our_topology(build, {}, by_hand=by_hand).description()

    assert [(each.id, [ours(node) for node in each.nodes]) for each in found.subtopologies] == sorted(
        (int(each.id()), [theirs(node) for node in each.nodes()]) for each in expected.subtopologies()
    )
    assert [(each.id, ours(each.source), ours(each.processor)) for each in found.global_stores] == [
        (int(each.id()), theirs(each.source()), theirs(each.processor())) for each in expected.globalStores()
    ]
    until = "extractor class"  # behind it are the names of functions
    assert str(found).partition(until)[0] == str(expected.toString()).partition(until)[0]


@pytest.mark.jvm
def test_a_read_only_store_has_its_topic_as_changelog(java: Any) -> None:
    with Pair(with_read_only_store, by_hand=True) as pair:
        for number in range(4):
            pair.step(("in", f"k{number % 2}", f"v{number}", number))
        written = pair.written()
    assert set(written) == {"out"}  # no changelog
    assert [record.value for record in written["out"]] == [b"None", b"None", b"v0", b"v1"]


def test_a_read_only_store_with_a_log_is_refused() -> None:
    with pytest.raises(TopologyError, match="without_logging"):
        Topology().add_read_only_state_store(key_value_store("kept", STRING, STRING), "source", "in", "keep", Keep)


def test_its_topic_is_its_changelog() -> None:
    topology = our_topology(with_read_only_store, {}, by_hand=True)
    assert topology.subtopologies("app")[0].changelogs == {"kept": "in"}
