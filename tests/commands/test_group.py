"""`odradek group` on Odradek and on Apache Kafka: its answers equal those of kafka-consumer-groups."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from tests.commands.running import Running, planned_offsets, rows_of
from tests.support.eventually import eventually

pytestmark = [pytest.mark.jvm, pytest.mark.slow]

HOUR_MS = 3_600_000
LATEST_MS = 1_700_000_000_000


@contextmanager
def member(side: Running, group: str, topic: str, **config: Any) -> Iterator[Consumer]:
    """A member of a group that has got the partitions of a topic."""
    consumer = Consumer({"bootstrap.servers": side.bootstrap, "group.id": group, "enable.auto.commit": False, **config})
    consumer.subscribe([topic])
    eventually(lambda: (consumer.poll(0.05), consumer.assignment())[1], bool, "partitions are assigned")
    try:
        yield consumer
    finally:
        consumer.close()


def commit(side: Running, group: str, offsets: dict[tuple[str, int], int]) -> None:
    consumer = Consumer({"bootstrap.servers": side.bootstrap, "group.id": group})
    places = [TopicPartition(*place, offset) for place, offset in offsets.items()]
    consumer.commit(offsets=places, asynchronous=False)
    consumer.close()


def number(text: str) -> int | None:
    return None if text == "-" else int(text)


def stock_offsets(side: Running, group: str) -> dict[tuple[str, int], tuple[Any, ...]]:
    rows = rows_of(side.stock("kafka-consumer-groups", "--describe", "--group", group))
    return {
        (row["TOPIC"], int(row["PARTITION"])): (
            number(row["CURRENT-OFFSET"]),
            number(row["LOG-END-OFFSET"]),
            number(row["LAG"]),
            row["CONSUMER-ID"].replace("-", "", row["CONSUMER-ID"] == "-") or None,
            row["HOST"].replace("-", "", row["HOST"] == "-") or None,
            row["CLIENT-ID"].replace("-", "", row["CLIENT-ID"] == "-") or None,
        )
        for row in rows
    }


def our_offsets(rows: list[dict[str, Any]]) -> dict[tuple[str, int], tuple[Any, ...]]:
    keys = ("committed_offset", "log_end_offset", "lag", "member_id", "host", "client_id")
    return {(row["topic"], row["partition"]): tuple(row[key] for key in keys) for row in rows}


def test_a_group_with_members(side: Running, name: str) -> None:
    side.done("topic", "create", name, "-p", "3")
    side.produce(name, map(str, range(10)))
    side.produce(name, map(str, range(4)), partition=1)
    with member(side, name, name, **{"client.id": "reader", "group.instance.id": "one"}) as consumer:
        consumer.commit(offsets=[TopicPartition(name, 0, 7)], asynchronous=False)
        (found,) = side.data("group", "describe", name)
        assert our_offsets(found["offsets"]) == stock_offsets(side, name)
        assert our_offsets(side.data("group", "lag", name)) == our_offsets(found["offsets"])
        (state,) = rows_of(side.stock("kafka-consumer-groups", "--describe", "--group", name, "--state"))
        assert (found["state"], found["assignor"]) == (state["STATE"], state["ASSIGNMENT-STRATEGY"])
        assert len(found["members"]) == int(state["#MEMBERS"])
        members = side.stock("kafka-consumer-groups", "--describe", "--group", name, "--members", "--verbose")
        (row,) = rows_of(members)
        (one,) = found["members"]
        assert (one["member_id"], one["client_id"], one["host"]) == (row["CONSUMER-ID"], row["CLIENT-ID"], row["HOST"])
        assert one["instance_id"] == row["GROUP-INSTANCE-ID"] == "one"
        assert one["assignment"] == {name: [0, 1, 2]}
        (summary,) = [row for row in side.data("group", "lag") if row["group"] == name]
        assert summary == {"group": name, "state": "Stable", "members": 1, "partitions": 3, "lag": 3}
        listed = {each["group"]: each["state"] for each in side.data("group", "list", "--state", "Stable")}
        stock = rows_of(side.stock("kafka-consumer-groups", "--list", "--state", "Stable"))
        assert listed == {row["GROUP"]: row["STATE"] for row in stock}

        reset = side.failure("group", "reset", name, "--topic", name, "--to-latest", "--yes")
        text = f"odradek: group {name}: offsets can be reset only while it has no members; its state is Stable\n"
        assert reset == (1, text)
        status, text = side.failure("group", "delete", name, "--yes")
        assert (status, text) == (1, f"odradek: group {name}: the group has members (NON_EMPTY_GROUP)\n")
        assert side.failure("group", "delete-offsets", name, "--topic", name, "--yes")[0] == 1
        assert side.failure("group", "remove-member", name, "--member-id", "none", "--yes")[0] == 3
        (removed,) = side.data("group", "remove-member", name, "--instance-id", "one", "--yes")
        assert removed["member_id"] == one["member_id"]
        (found,) = side.data("group", "describe", name)
        assert one["member_id"] not in {each["member_id"] for each in found["members"]}


def test_a_group_of_the_consumer_protocol(side: Running, name: str, request: pytest.FixtureRequest) -> None:
    side.done("topic", "create", name, "-p", "2")
    if "kafka" in request.node.name:
        pytest.skip("Apache Kafka 3.9 in ZooKeeper mode does not have the protocol")
    side.produce(name, map(str, range(3)))
    with member(side, name, name, **{"group.protocol": "consumer"}) as consumer:
        consumer.commit(offsets=[TopicPartition(name, 0, 1)], asynchronous=False)
        (found,) = side.data("group", "describe", name)
        assert (found["type"], found["state"], found["assignor"]) == ("consumer", "Stable", "uniform")
        (one,) = found["members"]
        assert one["assignment"] == one["target_assignment"] == {name: [0, 1]}
        assert our_offsets(found["offsets"]) == stock_offsets(side, name)
        types = {each["group"]: each["type"] for each in side.data("group", "list", "--type", "consumer")}
        assert types[name] == "consumer"


@pytest.fixture
def filled(side: Running, name: str) -> str:
    """A topic with three partitions of hourly records, and a group of the same name without members."""
    side.done("topic", "create", name, "-p", "3", "-c", "retention.ms=-1")
    for partition in range(2):
        for hours in range(10):
            side.produce(name, ["x"], partition, timestamp=LATEST_MS - (9 - hours) * HOUR_MS)
    commit(side, name, {(name, 0): 5, (name, 1): 9})
    return name


PLANS: tuple[tuple[str, ...], ...] = (
    ("--to-earliest",),
    ("--to-latest",),
    ("--to-current",),
    ("--to-offset", "4"),
    ("--to-offset", "400"),
    ("--to-datetime", "2023-11-14T20:13:20.000"),
    ("--to-datetime", "2099-01-01T00:00:00.000"),
    ("--by-duration", "PT4H"),
)


def test_plans_of_resets_equal_those_of_the_stock_tool(side: Running, filled: str) -> None:
    for how in (*PLANS, ("--shift-by", "3"), ("--shift-by", "-20")):
        # Only partitions with an offset can be shifted.
        where = f"{filled}:0,1" if "--shift-by" in how else filled
        plan = side.data("group", "reset", filled, "--topic", where, *how, "--dry-run")
        arguments = ("--reset-offsets", "--group", filled, "--topic", where, *how, "--dry-run")
        stock = side.stock("kafka-consumer-groups", *arguments)
        assert {each["partition"]: each["new"] for each in plan} == planned_offsets(stock), how
    assert {each["partition"]: each["current"] for each in plan} == {0: 5, 1: 9}


def test_offsets_are_reset_exported_and_deleted(side: Running, filled: str, tmp_path: Path) -> None:
    result = side.run("group", "reset", filled, "--all-topics", "--shift-by", "-2", stdin="y\n")
    assert result.exit_code == 0
    assert f"set {filled}-0 from 5 to 3\n" in result.stderr
    assert {place[1]: each[0] for place, each in stock_offsets(side, filled).items()} == {0: 3, 1: 7}
    plan = tmp_path / "plan.csv"
    plan.write_text(side.done("group", "reset", filled, "--topic", filled, "--to-offset", "2", "--export"))
    exported = side.stock(
        *("kafka-consumer-groups", "--reset-offsets", "--group", filled, "--topic", filled),
        *("--to-offset", "2", "--export", "--dry-run"),
    )
    assert sorted(plan.read_text().split()) == sorted(line for line in exported.split() if line.count(",") == 2)
    side.done("group", "reset", filled, "--from-file", str(plan), "--yes")
    assert {place[1]: each[0] for place, each in stock_offsets(side, filled).items()} == {0: 2, 1: 2, 2: 0}
    side.done("group", "reset", f"{filled}-new", "--topic", f"{filled}:1", "--to-latest", "--yes")
    assert stock_offsets(side, f"{filled}-new") == {(filled, 1): (10, 10, 0, None, None, None)}
    assert our_offsets(side.data("group", "lag", filled)) == stock_offsets(side, filled)

    side.done("group", "delete-offsets", filled, "--topic", f"{filled}:2", "--yes")
    assert {place[1] for place in stock_offsets(side, filled)} == {0, 1}
    assert side.failure("group", "delete-offsets", filled, "--topic", f"{filled}:2", "--yes")[0] == 3
    side.done("group", "delete", filled, f"{filled}-new", "--yes")
    groups = side.stock("kafka-consumer-groups", "--list").split()
    assert filled not in groups
    assert filled not in {each["group"] for each in side.data("group", "list")}
    for command in (("describe",), ("lag",), ("delete", "--yes")):
        assert side.failure("group", *command, filled)[0] == 3


def test_offsets_and_records_of_partitions(side: Running, filled: str, tmp_path: Path) -> None:
    def stock(*arguments: str) -> dict[int, int | None]:
        lines = side.stock("kafka-get-offsets", "--topic", filled, *arguments).split()
        found = [line.split(":") for line in lines]
        return {int(partition): int(offset) if offset else None for _, partition, offset in found}

    def ours(*arguments: str) -> dict[int, int | None]:
        rows = side.data("get-offsets", filled, *arguments)
        return {row["partition"]: row["offset"] for row in rows if row["offset"] is not None}

    for at in ("latest", "earliest", "max-timestamp", str(LATEST_MS - 3 * HOUR_MS)):
        expected = {key: value for key, value in stock("--time", at).items() if value is not None}
        assert ours("--time", at) == expected, at
    (row,) = side.data("get-offsets", f"{filled}:1")
    assert (row["earliest"], row["latest"], row["records"]) == (0, 10, 10)
    assert side.failure("get-offsets", f"{filled}-none")[0] == 3
    assert side.failure("get-offsets", f"{filled}:7", "--time", "latest")[0] == 3

    plan = side.data("records", "delete", filled, "--before-offset", "4", "--dry-run")
    assert [(row["partition"], row["before_offset"], row["records"]) for row in plan] == [
        (0, 4, 4),
        (1, 4, 4),
        (2, 4, 0),
    ]
    side.done("records", "delete", f"{filled}:0,1", "--before-offset", "4", "--yes")
    assert stock("--time", "earliest") == {0: 4, 1: 4, 2: 0}
    side.done("records", "delete", f"{filled}:1", "--before-time", "2023-11-14T20:13:20Z", "--yes")
    assert ours("--time", "earliest") == {0: 4, 1: 7, 2: 0}
    file = tmp_path / "offsets.json"
    file.write_text(f'{{"partitions": [{{"topic": "{filled}", "partition": 0, "offset": -1}}], "version": 1}}')
    side.done("records", "delete", "--offset-json-file", str(file), "--yes")
    assert stock("--time", "earliest") == {0: 10, 1: 7, 2: 0}
    status, text = side.failure("records", "delete", f"{filled}:1", "--before-offset", "400", "--yes")
    assert status == 1
    assert "(OFFSET_OUT_OF_RANGE)" in text
