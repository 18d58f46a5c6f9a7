"""`odradek topic` on Odradek and on Apache Kafka: its answers equal those of kafka-topics and kafka-configs."""

from __future__ import annotations

from typing import Any

import pytest

from tests.commands.running import Running, described_topics

pytestmark = [pytest.mark.jvm, pytest.mark.slow]


def as_stock(topic: dict[str, Any]) -> dict[str, Any]:
    """What kafka-topics prints of a topic, from our JSON."""
    kept = ("topic_id", "partition_count", "replication_factor", "configs")
    partitions = [
        {key: each[key] for key in ("partition", "leader", "replicas", "isr")} for each in topic["partitions"]
    ]
    return {key: topic[key] for key in kept} | {"partitions": partitions}


def described(side: Running, *names: str) -> dict[str, dict[str, Any]]:
    return {each["topic"]: as_stock(each) for each in side.data("topic", "describe", *names)}


def stock_described(side: Running, pattern: str) -> dict[str, dict[str, Any]]:
    return described_topics(side.stock("kafka-topics", "--describe", "--topic", pattern))


def test_topics_are_created_described_altered_and_deleted(side: Running, name: str) -> None:
    settings = ("--config", "retention.ms=3600000", "--config", "cleanup.policy=compact,delete")
    (made,) = side.data("topic", "create", name, "--partitions", "3", "--replication-factor", "1", *settings)
    assert (made["topic"], made["partitions"], made["replication_factor"]) == (name, 3, 1)
    placed = f"{name}-placed"
    side.done("topic", "create", placed, "--replica-assignment", "0,0", "-c", "min.insync.replicas=2")
    assert described(side, name, placed) == stock_described(side, f"{name}.*")
    assert [each["topic"] for each in side.data("topic", "list", f"{name}.*")] == sorted([name, placed])
    listed = set(side.stock("kafka-topics", "--list").split())
    assert {each["topic"] for each in side.data("topic", "list")} == listed
    exclude = set(side.stock("kafka-topics", "--list", "--exclude-internal").split())
    assert {each["topic"] for each in side.data("topic", "list", "--exclude-internal")} == exclude

    side.done("topic", "alter", name, "--partitions", "5", "--set", "retention.ms=7200000", "--unset", "cleanup.policy")
    after = described(side, name)
    assert after == stock_described(side, name)
    assert after[name]["partition_count"] == 5
    assert after[name]["configs"]["retention.ms"] == "7200000"
    assert "cleanup.policy" not in after[name]["configs"]
    side.done("topic", "alter", placed, "--partitions", "3", "--replica-assignment", "0,0,0")

    plan = side.done("topic", "delete", placed, "--dry-run")
    assert plan == f"delete topic {placed}: 3 partitions, offsets of 0 records\n"
    assert placed in described(side, placed)
    side.done("topic", "delete", placed, stdin="y\n")
    side.done("topic", "delete", "--regex", f"{name}.*", "--yes")
    assert side.data("topic", "list", f"{name}.*") == []


def numbers(topic: dict[str, Any]) -> list[int]:
    return [part["partition"] for part in topic["partitions"]]


@pytest.mark.parametrize("kind", ["under-min-isr", "at-min-isr", "under-replicated", "unavailable"])
def test_partitions_are_found_by_their_isr(side: Running, name: str, kind: str) -> None:
    side.done("topic", "create", name, "--config", "min.insync.replicas=2")
    side.done("topic", "create", f"{name}-2", "-p", "2")
    found = side.data("topic", "describe", "--regex", f"{name}.*", f"--{kind}")
    stock = side.stock("kafka-topics", "--describe", "--topic", f"{name}.*", f"--{kind}-partitions")
    expected = {
        topic: [part["partition"] for part in each["partitions"]] for topic, each in described_topics(stock).items()
    }
    assert {each["topic"]: [part["partition"] for part in each["partitions"]] for each in found} == expected
    side.done("topic", "delete", "--regex", f"{name}.*", "--yes")


def test_what_a_broker_rejects_ends_the_command(side: Running, name: str) -> None:
    side.done("topic", "create", name)
    assert side.failure("topic", "create", name) == (
        1,
        f"odradek: topic {name}: Topic '{name}' already exists. (TOPIC_ALREADY_EXISTS)\n",
    )
    side.done("topic", "create", name, "--if-not-exists")
    for arguments, code in (
        (("topic", "create", f"{name}-wrong", "--config", "retention.ms=soon"), "INVALID_CONFIG"),
        (("topic", "create", f"{name}-wrong", "--replication-factor", "2"), "INVALID_REPLICATION_FACTOR"),
        (("topic", "create", "no/such name"), "INVALID_TOPIC_EXCEPTION"),
        (("topic", "alter", name, "--partitions", "1"), "INVALID_PARTITIONS"),
    ):
        status, text = side.failure(*arguments)
        assert status == 1
        assert text.endswith(f"({code})\n")
    for command, options in (("describe", ()), ("alter", ("--partitions", "2")), ("delete", ("--yes",))):
        assert side.failure("topic", command, f"{name}-none", *options) == (
            3,
            f"odradek: topic {name}-none: it does not exist (UNKNOWN_TOPIC_OR_PARTITION)\n",
        )
    side.done("topic", "delete", f"{name}-none", "--if-exists", "--yes")
    side.done("topic", "create", f"{name}-checked", "--dry-run")
    assert side.data("topic", "list", f"{name}.*")[0]["topic"] == name
    status, text = side.failure("topic", "delete", name, stdin="n\n")
    assert status == 1
    assert text.startswith(f"delete topic {name}: 1 partitions")
    side.done("topic", "delete", name, "--yes")
