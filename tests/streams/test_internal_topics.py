"""Internal topics have Java's partitions, retention and cleanup policies, and tasks follow from sub-topologies."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest
from confluent_kafka.admin import AdminClient, ConfigResource

from odradek.broker_process import BrokerProcess
from odradek.streams.config import StreamsConfig
from odradek.streams.dsl.builder import StreamsBuilder
from odradek.streams.dsl.options import Consumed, Grouped, Materialized, Repartitioned
from odradek.streams.errors import MissingSourceTopicError, StreamsError, TopologyError
from odradek.streams.records import TaskId
from odradek.streams.running.internal_topics import InternalTopics, wanted_topics
from odradek.streams.running.topic_groups import WantedTopic, plan
from odradek.streams.serdes import STRING
from odradek.streams.stores.builders import (
    StoreBuilder,
    key_value_store,
    session_store,
    versioned_key_value_store,
    window_store,
)
from odradek.streams.topology import Topology
from odradek.streams.windows import SessionWindows, TimeWindows
from tests.streams.oracle.java import Java
from tests.streams.restoring import make_topic, topology
from tests.support.eventually import eventually

DAY_MS: Final = 86_400_000


@pytest.fixture
def broker(streams_broker: BrokerProcess) -> BrokerProcess:
    return streams_broker


def config(**more: Any) -> StreamsConfig:
    return StreamsConfig({"application.id": "app", "bootstrap.servers": "nowhere:1", **more})


# ---- their configurations, beside Java


def java_config(java: Java, builder: StoreBuilder | None, given: Mapping[str, str]) -> dict[str, str]:
    """The configuration that Kafka's classes make for a store (None: a repartition topic)."""
    own, defaults = java.HashMap(), java.HashMap()
    for name, value in (builder.log_config if builder is not None else {}).items():
        own.put(name, value)
    for name, value in given.items():
        defaults.put(name, value)
    kinds: dict[str | None, tuple[Any, list[Any]]] = {
        None: (java.RepartitionTopicConfig, []),
        "key-value": (java.UnwindowedUnversionedChangelogTopicConfig, []),
        "window": (java.WindowedChangelogTopicConfig, [builder and builder.retention_ms]),
        "session": (java.WindowedChangelogTopicConfig, [builder and builder.retention_ms]),
        "versioned": (java.VersionedChangelogTopicConfig, [builder and builder.history_retention_ms]),
    }
    kind, lasting = kinds[builder.kind if builder is not None else None]
    arguments = ["app-t", own, *map(java.Long, lasting)]
    (constructor,) = (
        each for each in kind.class_.getDeclaredConstructors() if each.getParameterCount() == len(arguments)
    )
    (properties,) = (
        each for each in kind.class_.getMethods() if "ropert" in str(each.getName()) and each.getParameterCount() == 2
    )
    constructor.setAccessible(True)  # none of it is public
    properties.setAccessible(True)
    found = properties.invoke(constructor.newInstance(arguments), [defaults, java.Long(DAY_MS)])
    return {str(each.getKey()): str(each.getValue()) for each in found.entrySet()}


STORES = [
    key_value_store("t", STRING, STRING),
    key_value_store("t", STRING, STRING).with_logging({"cleanup.policy": "compact,delete", "retention.ms": "5"}),
    window_store("t", 7_200_000, 3_600_000, STRING, STRING),
    window_store("t", 7_200_000, 3_600_000, STRING, STRING).with_logging({"retention.ms": "9", "segment.ms": "10"}),
    session_store("t", 2**63 - 10, STRING, STRING),
    versioned_key_value_store("t", 60_000, STRING, STRING),
    versioned_key_value_store("t", 60_000, STRING, STRING).with_logging({"min.compaction.lag.ms": "3"}),
]
GIVEN: list[dict[str, str]] = [
    {},
    {
        "cleanup.policy": "delete",
        "retention.ms": "77",
        "min.compaction.lag.ms": "88",
        "message.timestamp.type": "LogAppendTime",
        "segment.bytes": "1000",
    },
]


@pytest.mark.jvm
@pytest.mark.parametrize("given", GIVEN)
@pytest.mark.parametrize("builder", STORES)
def test_changelogs_are_configured_as_by_java(java: Java, builder: StoreBuilder, given: dict[str, str]) -> None:
    made = topology(builder)
    wanted = wanted_topics(made, plan(made, "app", {"in": 3}), config(**{f"topic.{key}": given[key] for key in given}))
    assert wanted == {"app-t-changelog": WantedTopic(3, java_config(java, builder, given))}


@pytest.mark.jvm
@pytest.mark.parametrize("given", GIVEN)
def test_repartition_topics_are_configured_as_by_java(java: Java, given: dict[str, str]) -> None:
    builder = StreamsBuilder()
    builder.stream("in", Consumed(STRING, STRING)).repartition(Repartitioned(name="t")).to("out")
    made = builder.build()
    wanted = wanted_topics(made, plan(made, "app", {"in": 3}), config(**{f"topic.{key}": given[key] for key in given}))
    assert wanted == {"app-t-repartition": WantedTopic(3, java_config(java, None, given))}


# ---- their partitions


def counting() -> Topology:
    builder = StreamsBuilder()
    (
        builder.stream("in", Consumed(STRING, STRING))
        .group_by(lambda key, value: value, Grouped(STRING, STRING))
        .windowed_by(TimeWindows.of_size_with_no_grace(60_000))
        .count(Materialized("counts"))
    )
    return builder.build()


def test_tasks_and_topics_follow_from_the_largest_source() -> None:
    found = plan(counting(), "app", {"in": 3})
    assert list(found.tasks) == [TaskId(0, 0), TaskId(0, 1), TaskId(0, 2), TaskId(1, 0), TaskId(1, 1), TaskId(1, 2)]
    assert found.tasks[TaskId(0, 2)] == ((("in", 2),), {})
    repartition, changelog = "app-counts-repartition", "app-counts-changelog"
    assert found.tasks[TaskId(1, 2)] == (((repartition, 2),), {"counts": (changelog, 2)})
    assert found.partitions == {"in": 3, repartition: 3}
    assert found.changelogs == {changelog: ("counts", 3)}


def test_partition_counts_go_through_chains_of_repartition_topics() -> None:
    builder = StreamsBuilder()
    merged = builder.stream("narrow", Consumed(STRING, STRING)).merge(builder.stream("wide", Consumed(STRING, STRING)))
    fixed = merged.repartition(Repartitioned(name="one")).repartition(Repartitioned(name="two", partitions=7))
    fixed.repartition(Repartitioned(name="three")).to("out")
    found = plan(builder.build(), "app", {"narrow": 2, "wide": 5})
    assert found.partitions == {
        "narrow": 2,
        "wide": 5,
        "app-one-repartition": 5,
        "app-two-repartition": 7,
        "app-three-repartition": 7,
    }


def test_joined_topics_need_equal_partition_counts() -> None:
    builder = StreamsBuilder()
    builder.stream("left", Consumed(STRING, STRING)).join(builder.table("right", Consumed(STRING, STRING)), max).to("o")
    made = builder.build()
    assert len(plan(made, "app", {"left": 4, "right": 4}).tasks) == 4
    with pytest.raises(TopologyError, match=r"not co-partitioned: \[left,right\]: left has 4, right has 3"):
        plan(made, "app", {"left": 4, "right": 3})


def test_a_repartition_topic_follows_the_topic_that_it_is_joined_with() -> None:
    builder = StreamsBuilder()
    left = builder.stream("left", Consumed(STRING, STRING)).repartition(Repartitioned(name="r"))
    left.join(builder.table("right", Consumed(STRING, STRING)), max).to("out")
    assert plan(builder.build(), "app", {"left": 9, "right": 3}).partitions["app-r-repartition"] == 3


def test_source_topics_that_are_missing_are_named() -> None:
    with pytest.raises(MissingSourceTopicError, match="do not exist: in"):
        plan(counting(), "app", {"other": 1})


# ---- their creation


def described(broker: BrokerProcess, topic: str) -> dict[str, str]:
    """The properties of a topic itself."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    (future,) = admin.describe_configs([ConfigResource(ConfigResource.Type.TOPIC, topic)]).values()
    return {name: entry.value for name, entry in future.result(30).items() if not entry.is_default}


@pytest.mark.slow
def test_they_are_created_once_by_the_first_member(broker: BrokerProcess) -> None:
    made = counting()
    wanted = wanted_topics(made, plan(made, "app", {"in": 3}), config())
    made_by: list[set[str]] = []

    def make() -> None:
        topics = InternalTopics(AdminClient({"bootstrap.servers": broker.bootstrap}), -1, 30)
        made_by.append(topics.make_ready(wanted))

    threads = [threading.Thread(target=make) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(name for names in made_by for name in names) == ["app-counts-changelog", "app-counts-repartition"]
    topics = InternalTopics(AdminClient({"bootstrap.servers": broker.bootstrap}), -1, 30)
    assert topics.partitions().items() >= {"app-counts-changelog": 3, "app-counts-repartition": 3}.items()
    assert topics.make_ready(wanted) == set()
    for name, topic in wanted.items():
        assert described(broker, name).items() >= topic.config.items()


@pytest.mark.slow
def test_another_partition_count_is_an_error(broker: BrokerProcess) -> None:
    topics = InternalTopics(AdminClient({"bootstrap.servers": broker.bootstrap}), -1, 30)
    topics.make_ready({"wide": WantedTopic(4, {})})
    with pytest.raises(StreamsError, match="topic wide has invalid partitions: expected: 3; actual: 4"):
        topics.make_ready({"wide": WantedTopic(3, {})})


@pytest.mark.slow
def test_an_error_of_the_broker_is_raised_at_once(broker: BrokerProcess) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    with pytest.raises(StreamsError, match=r"Could not create topic odd: .*no\.such\.property"):
        InternalTopics(admin, -1, 30).make_ready({"odd": WantedTopic(1, {"no.such.property": "1"})})
    with pytest.raises(StreamsError, match="Could not create topic thrice"):
        InternalTopics(admin, 3, 30).make_ready({"thrice": WantedTopic(1, {})})


@pytest.mark.jvm
@pytest.mark.slow
def test_a_java_application_and_odradeks_create_the_same_topics(
    java: Java, broker: BrokerProcess, tmp_path: Path
) -> None:
    """The same topology under two names: partitions and properties of each one's topics, as the broker
    describes them.
    """
    make_topic(broker.bootstrap, "events", 3)
    theirs = java.Properties()
    for name, value in {
        "application.id": "java",
        "bootstrap.servers": broker.bootstrap,
        "state.dir": str(tmp_path / "java"),
        "default.key.serde": "org.apache.kafka.common.serialization.Serdes$StringSerde",
        "default.value.serde": "org.apache.kafka.common.serialization.Serdes$StringSerde",
    }.items():
        theirs.put(java.String(name), java.String(value))
    builder = java.StreamsBuilder()
    stream = builder.stream("events")
    stream.repartition(java.Repartitioned.numberOfPartitions(5).withName("five")).groupByKey().count(
        java.Materialized.as_("counts")
    )
    windows = java.TimeWindows.ofSizeAndGrace(java.Duration.ofMinutes(5), java.Duration.ofMinutes(1))
    stream.groupByKey().windowedBy(windows).count(java.Materialized.as_("windows"))
    sessions = java.SessionWindows.ofInactivityGapAndGrace(java.Duration.ofMinutes(2), java.Duration.ofSeconds(3))
    stream.groupByKey().windowedBy(sessions).count(java.Materialized.as_("sessions"))
    application = java.KafkaStreams(builder.build(), theirs)
    application.start()
    try:
        ours = StreamsBuilder()
        events = ours.stream("events", Consumed(STRING, STRING))
        events.repartition(Repartitioned(name="five", partitions=5)).group_by_key().count(Materialized("counts"))
        events.group_by_key().windowed_by(TimeWindows.of_size_and_grace(300_000, 60_000)).count(Materialized("windows"))
        events.group_by_key().windowed_by(SessionWindows.of_inactivity_gap_and_grace(120_000, 3_000)).count(
            Materialized("sessions")
        )
        made = ours.build()
        wanted = wanted_topics(made, plan(made, "ours", {"events": 3}), config(**{"application.id": "ours"}))
        topics = InternalTopics(AdminClient({"bootstrap.servers": broker.bootstrap}), -1, 30)
        topics.make_ready(wanted)
        eventually(topics.partitions, lambda found: sum(name.startswith("java-") for name in found) >= len(wanted))
    finally:
        application.close(java.Duration.ofSeconds(30))
    partitions = topics.partitions()
    of = {
        name: {
            each.removeprefix(name): (count, described(broker, each))
            for each, count in partitions.items()
            if each.startswith(name)
        }
        for name in ("java-", "ours-")
    }
    assert of["ours-"] == of["java-"]
    assert len(of["ours-"]) == 4
