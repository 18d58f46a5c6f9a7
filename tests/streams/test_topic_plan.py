"""The plan of an application's topics, without a broker."""

from __future__ import annotations

from typing import Any

import pytest

from odradek.streams import LONG, STRING, Consumed, Grouped, Joined, Produced, StreamsBuilder, Topology, topic
from odradek.streams.config import StreamsConfig
from odradek.streams.provisioning.plan_table import render_plan
from odradek.streams.provisioning.topic_plan import (
    AllowedChanges,
    ClusterTopics,
    ExistingTopic,
    TopicAction,
    TopicPlan,
    changes_of,
    plan_topics,
)

CONFIG = StreamsConfig({"application.id": "shop", "bootstrap.servers": "none"})


def shop(orders: str, customers: str = "customers", counts: str = "counts") -> Topology:
    builder = StreamsBuilder()
    rows = builder.table(customers, Consumed(STRING, STRING), "rows")
    joined = builder.stream(orders, Consumed(STRING, STRING)).join(
        rows, lambda order, row: order, joined=Joined(STRING, STRING, STRING)
    )
    grouped = joined.group_by(lambda order, value: value, Grouped(STRING, STRING, "by-country"))
    grouped.count("counts").to_stream().to(counts, Produced(STRING, LONG))
    return builder.build()


def planned(topology: Topology, topics: dict[str, ExistingTopic], **allowed: bool) -> TopicPlan:
    return plan_topics(topology, CONFIG, ClusterTopics(topics, 1, 3), AllowedChanges(**allowed))


def actions(found: TopicPlan) -> dict[str, TopicAction]:
    return {row.name: row.action for row in (*found.topics, *found.internal)}


def test_missing_topics_are_created_as_declared() -> None:
    topology = shop(topic("orders", 4, config={"retention.ms": 1000}), topic("customers", 4, 2), topic("counts"))
    found = planned(topology, {})
    assert [(row.name, row.use, row.action, row.partitions, row.replication_factor) for row in found.topics] == [
        ("customers", "input", TopicAction.CREATE, 4, 2),
        ("orders", "input", TopicAction.CREATE, 4, 3),
        ("counts", "output", TopicAction.CREATE, 1, 3),
    ]
    assert found.topics[1].config == {"retention.ms": "1000"}
    assert [(row.name, row.use, row.partitions) for row in found.internal] == [
        ("shop-by-country-repartition", "repartition", 4),
        ("shop-rows-changelog", "changelog", 4),
        ("shop-counts-changelog", "changelog", 4),
    ]
    assert found.internal[1].config["cleanup.policy"] == "compact"
    assert (found.problems, found.differences) == ((), [])
    assert changes_of(found.topics) == "create 3 topics"


def test_topics_that_fit_stay() -> None:
    topology = shop(topic("orders", 2, config={"cleanup.policy": "compact,delete"}), "customers", topic("counts", 1))
    topics = {
        "orders": ExistingTopic(2, 1, {"cleanup.policy": "compact, delete", "retention.ms": "5"}),
        "customers": ExistingTopic(2, 1),
        "counts": ExistingTopic(1, 1),
        "shop-rows-changelog": ExistingTopic(2, 1),
    }
    found = planned(topology, topics, partitions=True, config=True)
    assert {row.action for row in found.topics} == {TopicAction.EXISTS}
    assert actions(found)["shop-rows-changelog"] is TopicAction.EXISTS
    assert actions(found)["shop-counts-changelog"] is TopicAction.APPLICATION
    assert changes_of(found.topics) == ""


def test_differences_are_explained_and_changed_only_where_allowed() -> None:
    topology = shop(topic("orders", 4, 2, {"retention.ms": 1000}), topic("customers", 4), topic("counts", 1))
    topics = {
        "orders": ExistingTopic(2, 1, {"retention.ms": "5"}),
        "customers": ExistingTopic(4, 1),
        "counts": ExistingTopic(3, 1),
    }
    found = planned(topology, topics)
    assert actions(found)["orders"] is actions(found)["counts"] is TopicAction.DIFFERS
    assert [each.split(":")[0] for each in found.differences] == [
        "orders has 2 partitions, declared 4",
        "orders has retention.ms=5, declared 1000",
        "orders has 1 replicas, declared 2",
        "counts has 3 partitions, declared 1",
    ]
    assert found.problems == (
        "Topics not co-partitioned: [customers,orders]: customers has 4, orders has 2. Topics that are joined need the "
        "same number of partitions: repartition() one of them",
    ), "with the partitions that the topics will have"

    grown = planned(topology, topics, partitions=True, config=True)
    assert actions(grown)["orders"] is TopicAction.CHANGE
    assert (grown.topics[1].partitions, grown.topics[1].config) == (4, {"retention.ms": "1000"})
    assert actions(grown)["counts"] is TopicAction.DIFFERS, "no topic loses partitions"
    assert grown.problems == ()
    assert changes_of(grown.topics) == "change 1 topic"


def test_co_partitioning_is_checked_before_anything_is_created() -> None:
    builder = StreamsBuilder()
    streams = [builder.stream(topic(name, count), Consumed(STRING, STRING)) for name, count in (("a", 2), ("b", 3))]
    for name, stream in zip(("c", "d"), streams, strict=True):
        rows = builder.table(topic(name, 4), Consumed(STRING, STRING))
        stream.join(rows, lambda one, other: one, joined=Joined(STRING, STRING, STRING)).to(topic(f"{name}-out", 1))
    found = planned(builder.build(), {})
    assert [each.split(": ")[1] for each in found.problems] == ["[a,c]", "[b,d]"]
    assert render_plan(found).count("Topics not co-partitioned") == 2


def test_an_internal_topic_of_another_width_is_a_problem() -> None:
    topics = {"orders": ExistingTopic(2, 1), "customers": ExistingTopic(2, 1), "counts": ExistingTopic(2, 1)}
    found = planned(shop("orders"), {**topics, "shop-by-country-repartition": ExistingTopic(3, 1)})
    assert [each.partition(":")[0] for each in found.problems] == [
        "internal topic shop-by-country-repartition has 3 partitions, and the application needs 2"
    ]


def test_topics_without_a_declaration_are_reported_where_they_are_missing() -> None:
    found = planned(shop("orders"), {"customers": ExistingTopic(2, 1)})
    assert actions(found) == {
        "orders": TopicAction.MISSING,
        "customers": TopicAction.EXISTS,
        "counts": TopicAction.MISSING,
    }
    assert [each.split(" and ")[0] for each in found.differences] == [
        "orders does not exist",
        "counts does not exist",
    ]


def test_a_number_of_partitions_that_no_broker_returns_has_to_be_declared() -> None:
    found = plan_topics(shop(topic("orders"), topic("customers", 2)), CONFIG, ClusterTopics({}))
    assert [each.split(":")[0] for each in found.problems] == ["the partitions of orders are unknown"]


def test_a_topic_that_is_read_and_written_and_one_of_no_node() -> None:
    builder = StreamsBuilder().declare_topics(topic("letters", 1), topic("loop", 2))
    builder.stream("loop", Consumed(STRING, STRING)).to("loop", Produced(STRING, STRING))
    builder.global_table(topic("everywhere", 1), Consumed(STRING, STRING))
    found = planned(builder.build(), {})
    assert [(row.name, row.use) for row in found.topics] == [
        ("loop", "both"),
        ("everywhere", "input"),
        ("letters", "declared"),
    ]


def test_the_topic_of_dead_letters_has_to_exist() -> None:
    builder = StreamsBuilder().declare_topics(topic("letters", 1))
    builder.stream("in", Consumed(STRING, STRING)).to("out", Produced(STRING, STRING))
    config = StreamsConfig({**CONFIG.given, "errors.dead.letter.queue.topic.name": "letters"})
    topics = {"in": ExistingTopic(2, 1), "out": ExistingTopic(2, 1)}
    found = plan_topics(builder.build(), config, ClusterTopics(topics, 1, 1))
    assert [(row.name, row.use, row.action) for row in found.topics][2:] == [
        ("letters", "dead letters", TopicAction.CREATE)
    ]


@pytest.mark.parametrize("value", ["compact,delete", "delete"])
def test_the_table_has_a_line_for_each_topic(value: str) -> None:
    text = render_plan(planned(shop(topic("orders", 4, config={"cleanup.policy": value}), topic("customers", 4)), {}))
    lines: list[Any] = [line.split() for line in text.splitlines()]
    assert lines[0] == ["TOPIC", "USE", "ACTION", "PARTITIONS", "REPLICAS", "CONFIG"]
    assert ["orders", "input", "create", "4", "3", f"cleanup.policy={value}"] in lines
    assert ["counts", "output", "missing", "-", "default"] in lines
    assert "Internal topics of the application:" in text
