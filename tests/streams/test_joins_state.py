"""The state of joins: on disk as in memory, and restored from changelogs; and the topics that they need."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from odradek.streams.driver import TopologyTestDriver
from odradek.streams.dsl.builder import StreamsBuilder
from odradek.streams.dsl.options import Joined, Materialized
from odradek.streams.errors import TopologyError
from odradek.streams.operators.join_buffer import JoinBuffer
from odradek.streams.operators.waiting import WaitingStore
from odradek.streams.running.topic_groups import plan
from odradek.streams.serdes import STRING
from odradek.streams.stores.builders import changelog_config, versioned_key_value_store
from odradek.streams.topology import Topology
from odradek.streams.windows import JoinWindows

WINDOWS = JoinWindows.of_time_difference_and_grace(10, 5)
TOPICS = ("left", "right", "table")


def text(left: Any, right: Any) -> str:
    return f"{left}+{right}"


def everything(builder: StreamsBuilder) -> None:
    """Every kind of join that has a store of its own."""
    left, right = builder.stream("left"), builder.stream("right")
    left.outer_join(right, text, WINDOWS).to("outer")
    past: Materialized[Any, Any] = Materialized(store=versioned_key_value_store("past", 1000, None, None))
    table = builder.table("table", materialized=past)
    left.left_join(table, text, joined=Joined(grace=20)).to("waited")
    people = left.to_table()
    people.left_join(table, text, foreign_key=lambda value: value[:1]).to_stream().to("foreign")


def topology_of(build: Callable[[StreamsBuilder], None]) -> Topology:
    builder = StreamsBuilder()
    build(builder)
    return builder.build()


def drive(config: dict[str, Any] | None = None) -> TopologyTestDriver:
    settings = {"application.id": "app", "default.key.serde": STRING, "default.value.serde": STRING, **(config or {})}
    return TopologyTestDriver(topology_of(everything), settings, initial_wall_clock=0)


def walk(count: int, start: int = 0) -> list[tuple[str, bytes, bytes | None, int]]:
    """Records whose times wander on."""
    drawn = random.Random(count + start)
    return [
        (drawn.choice(TOPICS), drawn.choice([b"a", b"b", b"c"]), b"%s%d" % (drawn.choice([b"a", b"b"]), at), time)
        for at in range(start, start + count)
        for time in (max(0, at * 3 + drawn.randint(-30, 5)),)
    ]


def outputs(driver: TopologyTestDriver) -> dict[str, list[Any]]:
    found = {}
    for topic in sorted(driver.produced_topic_names()):
        found[topic] = [driver.read(topic) for _ in range(driver.queue_size(topic))]
    return found


def test_joins_on_disk_equal_joins_in_memory(tmp_path: Path) -> None:
    with drive() as memory, drive({"state.dir": str(tmp_path)}) as disk:
        for record in walk(120):
            memory.pipe(*record)
            disk.pipe(*record)
        written = outputs(memory)
        assert {"outer", "waited", "foreign"} <= set(written)
        assert outputs(disk) == written


def test_joins_are_restored_from_changelogs() -> None:
    """A driver that continues with restored stores writes the same as the one before would have written."""
    with drive() as first, drive() as second:
        for record in walk(200):
            first.pipe(*record)
        logs = outputs(first)
        for name, store in second.get_all_state_stores().items():
            records = [(each.key, each.value, each.timestamp, each.headers) for each in logs[f"app-{name}-changelog"]]
            assert records, name
            store.restore(records)
        kinds = {type(store) for store in second.get_all_state_stores().values()}
        assert {WaitingStore, JoinBuffer} <= kinds
        for record in walk(100, 200):
            first.pipe(*record)
        for record in walk(100, 200):
            second.pipe(*record)
        expected, found = outputs(first), outputs(second)
        for topic in ("waited", "foreign"):
            assert found[topic] == expected[topic], topic
        # which waiting rows are due shows only once stream time is known again; the output is the same
        assert sorted(found["outer"], key=repr) == sorted(expected["outer"], key=repr)


def test_changelogs_of_joins() -> None:
    stores = topology_of(everything).stores
    policies = {name: changelog_config(builder)["cleanup.policy"] for name, builder in stores.items()}  # type: ignore[arg-type]
    assert {policy for name, policy in policies.items() if "OUTERTHIS" in name or "OUTEROTHER" in name} == {"delete"}
    others = {policy for name, policy in policies.items() if "OUTERSHARED" in name or name.endswith("-Buffer")}
    assert others == {"compact"}


def test_topics_with_different_partition_counts() -> None:
    def joined(builder: StreamsBuilder) -> None:
        builder.stream("left").join(builder.stream("right"), text, WINDOWS).to("out")

    with pytest.raises(TopologyError, match=r"left has 2, right has 3"):
        plan(topology_of(joined), "app", {"left": 2, "right": 3})
    assert len(plan(topology_of(joined), "app", {"left": 3, "right": 3}).tasks) == 3


def test_a_repartition_follows_the_other_side() -> None:
    def joined(builder: StreamsBuilder) -> None:
        left = builder.stream("left").select_key(lambda key, value: value)
        left.join(builder.table("right"), text).to("out")
        builder.global_table("wide")

    found = plan(topology_of(joined), "app", {"left": 7, "right": 3, "wide": 5})
    (repartition,) = found.repartition_topics
    assert found.partitions[repartition] == 3


def test_topics_of_a_foreign_key_join() -> None:
    def joined(builder: StreamsBuilder) -> None:
        left, right = builder.table("left"), builder.table("right")
        left.join(right, text, foreign_key=lambda value: value[:1]).to_stream().to("out")

    found = plan(topology_of(joined), "app", {"left": 4, "right": 2})
    widths = {name.split("-")[-3]: found.partitions[name] for name in found.repartition_topics}
    assert widths == {"REGISTRATION": 2, "RESPONSE": 4}
