"""`odradek transaction` on Odradek and on Apache Kafka: its answers equal those of kafka-transactions."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import Producer

from tests.commands.hanging import HANGING_PRODUCER, leave_hanging
from tests.commands.running import TIMEOUT_S, Running
from tests.support.eventually import eventually

pytestmark = [pytest.mark.jvm, pytest.mark.slow]

TIMEOUT_MS = 60_000


def stock_rows(side: Running, *arguments: str) -> list[dict[str, str]]:
    """The table that kafka-transactions prints: cells with tabs between them."""
    lines = [line for line in side.stock("kafka-transactions", *arguments).splitlines() if line.strip()]
    rows = [[cell.strip() for cell in line.split("\t")] for line in lines]
    return [{name: cell for name, cell in zip(rows[0], row, strict=True) if name} for row in rows[1:]]


def places(row: dict[str, Any]) -> set[str]:
    return {f"{each['topic']}-{each['partition']}" for each in row["partitions"]}


def test_a_transaction_is_listed_and_described(side: Running, name: str) -> None:
    side.done("topic", "create", name, "-p", "3")
    config = {"bootstrap.servers": side.bootstrap, "transactional.id": name, "transaction.timeout.ms": TIMEOUT_MS}
    producer = Producer(config)
    producer.init_transactions(TIMEOUT_S)
    producer.begin_transaction()
    for partition in (0, 2):
        producer.produce(name, b"x", partition=partition)
    assert producer.flush(TIMEOUT_S) == 0

    listed = side.data("transaction", "list")
    assert {
        (row["transactional_id"], str(row["coordinator"]), str(row["producer_id"]), row["state"]) for row in listed
    } == {
        (row["TransactionalId"], row["Coordinator"], row["ProducerId"], row["TransactionState"])
        for row in stock_rows(side, "list")
    }
    (row,) = side.data("transaction", "describe", name)
    (stock,) = stock_rows(side, "describe", "--transactional-id", name)
    keys = {
        "coordinator": "CoordinatorId",
        "transactional_id": "TransactionalId",
        "producer_id": "ProducerId",
        "producer_epoch": "ProducerEpoch",
        "state": "TransactionState",
        "timeout_ms": "TransactionTimeoutMs",
        "start_ms": "CurrentTransactionStartTimeMs",
    }
    assert {key: str(row[key]) for key in keys} == {key: stock[theirs] for key, theirs in keys.items()}
    assert places(row) == set(stock["TopicPartitions"].split(",")) == {f"{name}-0", f"{name}-2"}
    assert name in {each["transactional_id"] for each in side.data("transaction", "list", "--state", "Ongoing")}
    chosen = side.data("transaction", "list", "--producer-id", str(row["producer_id"]))
    assert [each["transactional_id"] for each in chosen] == [name]
    assert side.data("transaction", "list", "--longer-than", "1h") == []
    assert side.failure("transaction", "list", "--state", "NoState")[0] == 1
    assert side.failure("transaction", "describe", f"{name}-none")[0] == 3

    (writing,) = side.data("transaction", "producers", f"{name}:2")
    (stock,) = stock_rows(side, "describe-producers", "--topic", name, "--partition", "2")
    keys = {
        "producer_id": "ProducerId",
        "producer_epoch": "ProducerEpoch",
        "coordinator_epoch": "LatestCoordinatorEpoch",
        "last_sequence": "LastSequence",
        "last_timestamp_ms": "LastTimestamp",
        "start_offset": "CurrentTransactionStartOffset",
    }
    assert {key: str(writing[key]) for key in keys} == {key: stock[theirs] for key, theirs in keys.items()}
    assert side.data("transaction", "producers", name, "--broker", "0") == side.data("transaction", "producers", name)
    assert side.data("transaction", "hanging", name) == []
    producer.abort_transaction(TIMEOUT_S)
    # The client has its response before the last marker is written.
    eventually(lambda: side.data("transaction", "producers", f"{name}:2"), lambda rows: rows[0]["start_offset"] is None)
    assert side.failure("transaction", "abort", f"{name}:2", "--start-offset", "0", "--yes")[0] == 3


def test_a_hanging_transaction_is_found_and_aborted(side: Running, name: str) -> None:
    side.done("topic", "create", name)
    leave_hanging(side, name)

    (found,) = side.data("transaction", "hanging", name)
    (stock,) = stock_rows(side, "find-hanging", "--broker-id", "0", "--topic", name)
    keys = {
        "topic": "Topic",
        "partition": "Partition",
        "producer_id": "ProducerId",
        "producer_epoch": "ProducerEpoch",
        "coordinator_epoch": "CoordinatorEpoch",
        "start_offset": "StartOffset",
    }
    assert {key: str(found[key]) for key in keys} == {key: stock[theirs] for key, theirs in keys.items()}
    assert side.data("transaction", "hanging", "--broker", "0") == side.data("transaction", "hanging", name)
    assert side.data("transaction", "hanging", name, "--max-transaction-timeout", "500w") == []
    (row,) = side.data("get-offsets", name, "--read-committed")
    assert row["latest"] == 0

    result = side.run("transaction", "abort", f"{name}:0", "--start-offset", "0", stdin="y\n")
    assert result.exit_code == 0, result.output
    plan = f"abort the transaction of producer {HANGING_PRODUCER} (epoch 7) in {name}-0 from offset 0\n"
    assert plan in result.stderr
    (row,) = side.data("get-offsets", name, "--read-committed")
    assert row["latest"] == 4  # three records and the marker
    assert side.data("transaction", "hanging", name) == []
    assert side.failure("transaction", "abort", f"{name}:0", "--producer-id", str(HANGING_PRODUCER), "--yes")[0] == 3
    assert side.failure("transaction", "abort", f"{name}:0")[0] == 2
