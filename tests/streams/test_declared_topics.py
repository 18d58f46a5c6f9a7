"""Declared topics: they stand wherever a name does, and change no name."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest

from odradek.streams import (
    JSON,
    STRING,
    ArgumentError,
    Consumed,
    DeclaredTopic,
    Grouped,
    Joined,
    Processor,
    Produced,
    StreamsBuilder,
    Topology,
    TopologyError,
    TopologyTestDriver,
    key_value_store,
    topic,
)
from tests.streams.oracle.implementations import same_text


def plain(name: str) -> str:
    return name


def declared(name: str) -> DeclaredTopic:
    return topic(name, partitions=4, replication_factor=1, config={"retention.ms": 1000})


def shop(b: Any, named: Any) -> None:
    """Every operator that takes the name of a topic."""
    orders = b.stream(named("orders"), Consumed(STRING, STRING))
    customers = b.table(named("customers"), Consumed(STRING, STRING))
    b.global_table(named("countries"), Consumed(STRING, STRING))
    joined = orders.left_join(customers, lambda order, customer: order, joined=Joined(STRING, STRING, STRING))
    joined.to(named("enriched"), Produced(STRING, STRING))
    joined.group_by(lambda key, value: value, Grouped(STRING, STRING)).count("by-country")


@pytest.mark.jvm
def test_names_are_those_of_java(java: Any) -> None:
    def build(builder: Any) -> None:
        shop(builder, declared if isinstance(builder, StreamsBuilder) else plain)

    assert same_text(build).count("Sub-topology") == 3


def test_a_declaration_changes_no_name_and_no_record() -> None:
    built = []
    for named in (plain, declared):
        builder = StreamsBuilder()
        shop(builder, named)
        built.append(builder.build())
    without, with_declarations = built
    assert without.describe() == with_declarations.describe()
    assert without.subtopologies("app") == with_declarations.subtopologies("app")
    assert without.declared_topics == {}
    assert list(with_declarations.declared_topics) == ["orders", "customers", "countries", "enriched"]
    assert {type(each) for part in with_declarations.subtopologies("app").values() for each in part.source_topics} == {
        str
    }
    with TopologyTestDriver(with_declarations) as driver:
        driver.create_input_topic(declared("orders"), STRING, STRING).pipe_input("k", "v")
        assert driver.create_output_topic("enriched", STRING, STRING).read_value() == "v"


def test_a_declaration_is_a_text_with_settings() -> None:
    orders = topic("orders", partitions=6, config={"retention.ms": 1000, "unclean.leader.election.enable": True})
    assert orders == "orders"
    assert orders.declaration == (6, None, {"retention.ms": "1000", "unclean.leader.election.enable": "true"})
    for copied in (copy.deepcopy(orders), pickle.loads(pickle.dumps(orders))):
        assert copied == "orders"
        assert copied.declaration == orders.declaration
    assert topic("defaults").declaration == (None, None, {})


@pytest.mark.parametrize("wrong", [{"partitions": 0}, {"partitions": "6"}, {"replication_factor": 40_000}])
def test_numbers_that_no_topic_has_are_rejected(wrong: dict[str, Any]) -> None:
    with pytest.raises(ArgumentError, match=r"topic\('orders', .*expected 1 to"):
        topic("orders", **wrong)


def test_two_declarations_of_a_topic_have_to_agree() -> None:
    builder = StreamsBuilder()
    stream = builder.stream(topic("loop", partitions=2), Consumed(STRING, JSON))
    stream.to(topic("loop", partitions=2), Produced(STRING, JSON))
    assert builder.build().declared_topics == {"loop": "loop"}
    stream.to(topic("loop", partitions=3), Produced(STRING, JSON))
    with pytest.raises(TopologyError, match="topic loop has been declared with other settings"):
        builder.build()


def test_a_stream_that_is_read_twice_is_declared_by_either() -> None:
    builder = StreamsBuilder()
    builder.stream("orders")
    builder.stream(topic("orders", partitions=3))
    assert builder.build().declared_topics["orders"].partitions == 3


def test_topics_without_a_node_are_declared_by_themselves() -> None:
    builder = StreamsBuilder().declare_topics(topic("dead-letters", 1), topic("rejected", 2))
    builder.stream("orders").to(lambda key, value, source: "rejected")
    assert list(builder.build().declared_topics) == ["dead-letters", "rejected"]
    with pytest.raises(TopologyError, match="is no name of a topic"):
        StreamsBuilder().declare_topics(topic("no name")).build()


def test_the_processor_api_takes_declarations() -> None:
    class Keep(Processor[str, str, str, str]):
        def process(self, record: Any) -> None:
            self.context.forward(record)

    store = key_value_store("kept", STRING, STRING).without_logging()
    topology = Topology().add_read_only_state_store(store, "source", topic("in", 2), "keep", Keep)
    topology.add_sink("sink", topic("out", 3), "keep")
    assert {name: each.partitions for name, each in topology.declared_topics.items()} == {"in": 2, "out": 3}
    assert type(topology.source_changelogs["kept"]) is str
