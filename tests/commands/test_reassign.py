"""`odradek reassign` and `leader` on two brokers of Odradek and of Apache Kafka, and the properties of plans."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.admin.reassignment_plan import plan_reassignment
from odradek.cluster_process import ClusterProcess
from odradek.protocol.topic_partition import TopicPartition
from tests.commands.running import Running, described_topics
from tests.jvm.kafka import Kafka
from tests.jvm.process import ToolError
from tests.support.eventually import eventually

MANUAL = {"auto.leader.rebalance.enable": "false"}


@pytest.fixture(scope="module")
def clusters(tmp_path_factory: pytest.TempPathFactory, kafka: Kafka) -> Iterator[dict[str, tuple[str, int, int]]]:
    """The address of each cluster, and its two brokers."""
    folder = tmp_path_factory.mktemp("pairs")
    second = Kafka(folder / "kafka", {"broker.id": "1", **MANUAL}, zookeeper=kafka.zookeeper_connect)
    with ClusterProcess(folder / "odradek", 2, MANUAL) as ours:
        second.start()
        try:
            yield {"odradek": (ours.bootstrap_servers, 1, 2), "kafka": (kafka.bootstrap, 0, 1)}
        finally:
            second.stop()
            second.close()


@pytest.fixture(params=["odradek", "kafka"])
def pair(request: pytest.FixtureRequest, clusters: dict[str, tuple[str, int, int]]) -> tuple[Running, int, int]:
    bootstrap, one, two = clusters[request.param]
    return Running(bootstrap), one, two


def replicas(side: Running, topic: str) -> dict[int, list[int]]:
    stock = described_topics(side.stock("kafka-topics", "--describe", "--topic", topic))
    return {each["partition"]: each["replicas"] for each in stock[topic]["partitions"]}


@pytest.mark.jvm
@pytest.mark.slow
def test_partitions_move_by_plans_of_either_tool(pair: tuple[Running, int, int], name: str, tmp_path: Path) -> None:
    side, one, two = pair
    side.done("topic", "create", name, "--replica-assignment", f"{one},{one},{one},{one}")
    side.produce(name, map(str, range(20)))
    text = side.done("reassign", "plan", name, "--brokers", f"{one},{two}")
    plan = tmp_path / "plan.json"
    plan.write_text(text)
    wanted = {each["partition"]: each["replicas"] for each in json.loads(text)["partitions"]}
    assert list(wanted.values()) == [[two], [two]]
    assert side.data("reassign", "run", str(plan), "--dry-run")[0]["current"] == [one]
    assert set(map(tuple, replicas(side, name).values())) == {(one,)}
    result = side.run("reassign", "run", str(plan), "--throttle", "50000000", stdin="y\n")
    assert result.exit_code == 0, result.output
    assert f"move {name}-{min(wanted)} from" in result.stderr

    def statuses() -> set[str]:
        return {each["status"] for each in side.data("reassign", "status", str(plan))}

    eventually(statuses, lambda found: found == {"complete"})
    moved = replicas(side, name)
    assert {number: moved[number] for number in wanted} == wanted
    throttled = side.data("config", "get", "topic", name)
    assert {each["name"] for each in throttled} >= {"leader.replication.throttled.replicas"}
    side.done("reassign", "status", str(plan), "--clear-throttles")
    assert "throttled" not in side.stock(
        "kafka-configs", "--describe", "--entity-type", "topics", "--entity-name", name
    )
    brokers = side.stock("kafka-configs", "--describe", "--entity-type", "brokers", "--entity-name", str(one))
    assert "throttled" not in brokers

    back = {"version": 1, "partitions": [{"topic": name, "partition": 0, "replicas": [one, two]}]}
    plan.write_text(json.dumps(back))
    side.stock("kafka-reassign-partitions", "--execute", "--reassignment-json-file", str(plan))
    eventually(statuses, lambda found: found == {"complete"})
    verified = side.stock("kafka-reassign-partitions", "--verify", "--reassignment-json-file", str(plan))
    assert f"Reassignment of partition {name}-0 is completed." in verified
    assert side.data("reassign", "status") == []
    assert side.data("reassign", "cancel", str(plan), "--yes") == []
    plan.write_text(plan.read_text().replace(f"[{one}, {two}]", f"[{two}, {one}]"))
    assert statuses() == {"different"}
    side.done("topic", "delete", name, "--yes")


@contextmanager
def slow_replication(side: Running, *brokers: int) -> Iterator[None]:
    """A throttle of one byte a second at each broker, which has received it; only for throttled replicas.

    A broker receives changes of the configuration in their order, so it has also received those before it.
    """
    rates = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")

    def throttles(broker: int) -> list[str]:
        return [each["name"] for each in side.data("config", "get", "broker", str(broker)) if each["name"] in rates]

    try:
        for broker in brokers:
            side.done("config", "set", "broker", str(broker), *(f"{rate}=1" for rate in rates))
            eventually(lambda broker=broker: throttles(broker), lambda found: len(found) == len(rates))
        yield
    finally:
        for broker in brokers:
            side.done("config", "unset", "broker", str(broker), *rates)


@pytest.mark.jvm
@pytest.mark.slow
def test_a_reassignment_is_listed_and_cancelled(pair: tuple[Running, int, int], name: str, tmp_path: Path) -> None:
    """A throttle of one byte a second holds it after its first megabyte.

    It is there before: a replica may have all records before its broker has received the throttle of the command. The
    configuration with which a topic is created throttles nothing in Apache Kafka with ZooKeeper: only a change does.
    """
    side, one, two = pair
    side.done("topic", "create", name, "--replica-assignment", str(one))
    kinds = [f"{kind}.replication.throttled.replicas=*" for kind in ("leader", "follower")]
    # A broker that has not received the metadata of the new topic answers that there is none.
    eventually(lambda: side.run("config", "set", "topic", name, *kinds).exit_code, lambda code: code == 0)
    with slow_replication(side, one, two):
        side.produce(name, ["x" * 50_000] * 100)
        plan = tmp_path / "plan.json"
        plan.write_text(json.dumps({"partitions": [{"topic": name, "partition": 0, "replicas": [two]}]}))
        side.done("reassign", "run", str(plan), "--throttle", "1", "--yes")
        (moving,) = side.data("reassign", "status")
        assert moving == {
            "topic": name,
            "partition": 0,
            "status": "in progress",
            "replicas": [two],
            "adding": [two],
            "removing": [one],
        }
        listed = side.stock("kafka-reassign-partitions", "--list")
        assert f"{name}-0: replicas: {two},{one}. adding: {two}. removing: {one}." in listed
        assert side.data("reassign", "status", str(plan)) == [moving]
        assert side.data("reassign", "cancel", "--all", "--dry-run") == [moving]
        assert side.data("reassign", "cancel", "--all", "--yes") == [moving]
        assert side.data("reassign", "status") == []
        eventually(lambda: replicas(side, name), lambda found: found == {0: [one]})
    side.done("topic", "delete", name, "--yes")


@pytest.mark.jvm
@pytest.mark.slow
def test_preferred_leaders_are_elected(pair: tuple[Running, int, int], name: str, tmp_path: Path) -> None:
    side, one, two = pair
    side.done("topic", "create", name, "--replica-assignment", f"{one}:{two},{two}:{one}")
    plan = tmp_path / "order.json"
    plan.write_text(json.dumps({"partitions": [{"topic": name, "partition": 0, "replicas": [two, one]}]}))

    def leaders() -> dict[int, int]:
        stock = described_topics(side.stock("kafka-topics", "--describe", "--topic", name))
        return {each["partition"]: each["leader"] for each in stock[name]["partitions"]}

    # A broker that has not received the metadata of the new topic answers that there is none.
    eventually(leaders, lambda found: found == {0: one, 1: two}, retry_on=(ToolError,))
    side.done("reassign", "run", str(plan), "--yes")
    eventually(lambda: replicas(side, name), lambda found: found[0] == [two, one])
    rows = side.data("leader", "elect", name)
    assert {each["partition"]: each["result"] for each in rows} == {0: "new leader", 1: "unchanged"}
    eventually(leaders, lambda found: found == {0: two, 1: two})
    assert {each["result"] for each in side.data("leader", "elect", f"{name}:0")} == {"unchanged"}
    result = side.run("leader", "elect", f"{name}:0", "--unclean", stdin="n\n")
    assert result.exit_code == 1
    assert f"elect leaders of {name}-0, which may lack acknowledged records" in result.stderr
    assert side.failure("leader", "elect", f"{name}-none")[0] == 3
    assert side.failure("leader", "elect")[0] == 2
    side.done("topic", "delete", name, "--yes")


# Plans


@st.composite
def placements(draw: st.DrawFn) -> tuple[dict[TopicPartition, list[int]], dict[int, str | None]]:
    """Partitions on old brokers, and the brokers for them, with racks or without."""
    old = draw(st.lists(st.integers(0, 8), min_size=3, max_size=8, unique=True))
    new = draw(st.lists(st.integers(0, 8), min_size=3, max_size=8, unique=True))
    racked = draw(st.booleans())
    racks = {each: f"rack-{each % 3}" if racked else None for each in new}
    sizes = draw(st.lists(st.integers(1, 3), min_size=1, max_size=12))
    current = {("topic", number): draw(st.permutations(old))[:size] for number, size in enumerate(sizes)}
    return current, racks


@given(placements())
def test_a_plan_is_valid_balanced_and_stable(
    drawn: tuple[dict[TopicPartition, list[int]], dict[int, str | None]],
) -> None:
    current, racks = drawn
    planned = plan_reassignment(current, racks)
    assert planned.keys() == current.keys()
    for place, chosen in planned.items():
        assert len(set(chosen)) == len(chosen) == len(current[place])
        assert set(chosen) <= set(racks)
    load = Counter(dict.fromkeys(racks, 0))
    load.update(each for chosen in planned.values() for each in chosen)
    if set(racks.values()) == {None}:
        assert max(load.values()) - min(load.values()) <= 1
    assert plan_reassignment(planned, racks) == planned


def test_a_plan_moves_no_more_than_it_has_to() -> None:
    """Two brokers join two; half of the replicas move."""
    current: dict[TopicPartition, Any] = {("t", number): [1 + number % 2] for number in range(8)}
    planned = plan_reassignment(current, dict.fromkeys((1, 2, 3, 4)))
    assert sum(planned[place] != tuple(current[place]) for place in current) == 4
    assert Counter(each for chosen in planned.values() for each in chosen) == {1: 2, 2: 2, 3: 2, 4: 2}
    grown = plan_reassignment(current, dict.fromkeys((1, 2, 3, 4)), 2)
    assert all(current[place][0] in chosen for place, chosen in grown.items())
    with pytest.raises(ValueError, match="3 replicas need as many brokers, and there are 2"):
        plan_reassignment(current, dict.fromkeys((1, 2)), 3)


def test_a_plan_uses_a_rack_for_each_replica() -> None:
    racks = {1: "a", 2: "a", 3: "b", 4: "b"}
    planned = plan_reassignment({("t", number): [1, 2] for number in range(4)}, {3: "b", 4: "b", 1: "a"})
    assert all(len({racks[each] for each in chosen}) == 2 for chosen in planned.values())
