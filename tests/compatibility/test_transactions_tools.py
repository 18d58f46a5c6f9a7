"""kafka-transactions finds, describes and aborts; kafka-dump-log reads both coordinators' topics."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from odradek.protocol import messages as m
from odradek.wire import Wire, parse_address
from tests.compatibility.brokers import Broker, create_topic
from tests.compatibility.exactly_once import read_committed, write_lines
from tests.jvm.tools import run_tool
from tests.storage.batches import batch
from tests.support.eventually import eventually

pytestmark = [pytest.mark.jvm, pytest.mark.slow]

RELEASES: Final = ("3.9.2", "4.3.0")
RELEASE: Final = "3.9.2"
TIMEOUT_MS: Final = 50_000
HANGING_PRODUCER: Final = 424_242
VERIFICATION: Final = "transaction.partition.verification.enable"

Row = dict[str, str]


def transactions(broker: Broker, *arguments: str, release: str = RELEASE) -> list[Row]:
    """The table that kafka-transactions prints: a dict for each row."""
    printed = run_tool(release, "kafka-transactions", ["--bootstrap-server", broker.bootstrap, *arguments]).stdout
    rows = [[cell.strip() for cell in line.split("\t")] for line in printed.splitlines() if line.strip()]
    return [{name: cell for name, cell in zip(rows[0], row, strict=True) if name} for row in rows[1:]]


def row_of(rows: list[Row], **cells: str) -> Row:
    (row,) = (row for row in rows if all(row[name] == cell for name, cell in cells.items()))
    return row


def transactional(broker: Broker, transactional_id: str) -> Producer:
    producer = Producer(
        {
            "bootstrap.servers": broker.bootstrap,
            "transactional.id": transactional_id,
            "transaction.timeout.ms": TIMEOUT_MS,
        }
    )
    producer.init_transactions(30)
    return producer


@pytest.mark.parametrize("release", RELEASES)
def test_a_transaction_is_listed_and_described(broker: Broker, topic: str, release: str) -> None:
    create_topic(broker, topic, 3)
    producer = transactional(broker, topic)
    began_ms = time.time() * 1000
    producer.begin_transaction()
    for partition in (0, 2):
        producer.produce(topic, b"a line", partition=partition)
    assert producer.flush(30) == 0

    listed = row_of(transactions(broker, "list", release=release), TransactionalId=topic)
    assert (listed["Coordinator"], listed["TransactionState"]) == ("0", "Ongoing")
    (described,) = transactions(broker, "describe", "--transactional-id", topic, release=release)
    assert described["ProducerId"] == listed["ProducerId"]
    assert (described["CoordinatorId"], described["TransactionalId"]) == ("0", topic)
    assert described["ProducerEpoch"] == "0"
    assert (described["TransactionState"], described["TransactionTimeoutMs"]) == ("Ongoing", str(TIMEOUT_MS))
    assert began_ms - 1000 <= int(described["CurrentTransactionStartTimeMs"]) <= time.time() * 1000
    assert 0 <= int(described["TransactionDurationMs"]) < 60_000
    assert set(described["TopicPartitions"].split(",")) == {f"{topic}-0", f"{topic}-2"}

    at = ["describe-producers", "--topic", topic, "--partition"]
    (writing,) = transactions(broker, *at, "2", release=release)
    assert writing["ProducerId"] == listed["ProducerId"]
    assert (writing["ProducerEpoch"], writing["LastSequence"]) == ("0", "0")
    assert writing["CurrentTransactionStartOffset"] == "0"
    assert writing["LatestCoordinatorEpoch"] == "-1"
    assert abs(int(writing["LastTimestamp"]) - began_ms) < 60_000
    assert transactions(broker, *at, "1", release=release) == []

    producer.commit_transaction(30)
    await_state(broker, topic, "CompleteCommit")
    began = described["CurrentTransactionStartTimeMs"]
    (described,) = transactions(broker, "describe", "--transactional-id", topic, release=release)
    assert (described["TransactionState"], described["TopicPartitions"]) == ("CompleteCommit", "")
    assert described["CurrentTransactionStartTimeMs"] == began  # until the next one
    (writing,) = transactions(broker, *at, "2", release=release)
    assert (writing["LatestCoordinatorEpoch"], writing["CurrentTransactionStartOffset"]) == ("0", "None")

    producer.begin_transaction()
    producer.produce(topic, b"another line", partition=0)
    assert producer.flush(30) == 0
    producer.abort_transaction(30)
    await_state(broker, topic, "CompleteAbort")
    listed = row_of(transactions(broker, "list", release=release), TransactionalId=topic)
    assert listed["TransactionState"] == "CompleteAbort"


def await_state(broker: Broker, transactional_id: str, state: str) -> None:
    """The client has its response before the last marker is written."""
    request = m.DescribeTransactionsRequest(transactional_ids=[transactional_id])
    with Wire(*parse_address(broker.bootstrap), timeout_s=30) as wire:
        eventually(
            lambda: wire.ask(request, 0).transaction_states[0].transaction_state,
            lambda found: found == state,
            f"{transactional_id} is in {state}",
        )


def test_unknown_transactions_are_not_described(broker: Broker, topic: str) -> None:
    result = run_tool(
        RELEASE,
        "kafka-transactions",
        ["--bootstrap-server", broker.bootstrap, "describe", "--transactional-id", topic],
        check=False,
    )
    assert result.status == 1
    assert "failed because the ID could not be found" in result.stderr


@contextmanager
def without_verification(broker: Broker) -> Iterator[None]:
    """The broker appends for a transaction that its coordinator does not have, as before KIP-890."""
    at = ["--bootstrap-server", broker.bootstrap, "--alter", "--entity-type", "brokers", "--entity-default"]
    run_tool(RELEASE, "kafka-configs", [*at, "--add-config", f"{VERIFICATION}=false"])
    try:
        yield
    finally:
        run_tool(RELEASE, "kafka-configs", [*at, "--delete-config", VERIFICATION])


def leave_hanging(broker: Broker, topic: str) -> None:
    """A batch of a transaction that no coordinator will ever end."""
    records = batch(3, producer=(HANGING_PRODUCER, 7, 0), transactional=True)
    part = m.ProduceRequest.PartitionProduceData(index=0, records=records)
    topics = [m.ProduceRequest.TopicProduceData(name=topic, partition_data=[part])]
    request = m.ProduceRequest(transactional_id="nobody", acks=-1, timeout_ms=10_000, topic_data=topics)
    with Wire(*parse_address(broker.bootstrap), timeout_s=30) as wire:
        # The dynamic configuration takes a moment to arrive.
        eventually(
            lambda: wire.ask(request, 9).responses[0].partition_responses[0].error_code,
            lambda error: error == 0,
            "the batch is accepted",
        )


def test_a_hanging_transaction_is_found_and_aborted(broker: Broker, topic: str) -> None:
    create_topic(broker, topic)
    with without_verification(broker):
        leave_hanging(broker, topic)
    write_lines(broker, topic, 1, 1)

    (found,) = transactions(broker, "find-hanging", "--broker-id", "0", "--topic", topic)
    assert (found["Topic"], found["Partition"]) == (topic, "0")
    assert (found["ProducerId"], found["ProducerEpoch"]) == (str(HANGING_PRODUCER), "7")
    assert (found["CoordinatorEpoch"], found["StartOffset"]) == ("-1", "0")
    assert readable_end(broker, topic) == 0

    transactions(broker, "abort", "--topic", topic, "--partition", "0", "--start-offset", "0")
    assert readable_end(broker, topic) == 5  # three records, one behind them, the marker
    assert read_committed(broker, topic, 1, 1) == [[b"line 0"]]
    assert transactions(broker, "find-hanging", "--broker-id", "0", "--topic", topic) == []
    writing = transactions(broker, "describe-producers", "--topic", topic, "--partition", "0")
    assert row_of(writing, ProducerId=str(HANGING_PRODUCER))["CurrentTransactionStartOffset"] == "None"


def readable_end(broker: Broker, topic: str) -> int:
    """The last stable offset."""
    part = m.ListOffsetsRequest.ListOffsetsPartition(partition_index=0, timestamp=-1)
    topics = [m.ListOffsetsRequest.ListOffsetsTopic(name=topic, partitions=[part])]
    with Wire(*parse_address(broker.bootstrap), timeout_s=30) as wire:
        answer = wire.ask(m.ListOffsetsRequest(replica_id=-1, isolation_level=1, topics=topics)).topics[0].partitions[0]
    assert answer.error_code == 0
    return int(answer.offset)


def dumped(broker: Broker, name: str, decoder: str, release: str) -> list[str]:
    """The output of kafka-dump-log for the records of an internal topic."""
    files = [str(path) for path in sorted(Path(broker.data_dir).glob(f"{name}-*/*.log")) if path.stat().st_size]
    printed = run_tool(release, "kafka-dump-log", [decoder, "--files", ",".join(files)], timeout_s=60).stdout
    return [line for line in printed.splitlines() if line.startswith("| offset")]


@pytest.mark.parametrize("release", RELEASES)
def test_both_topics_are_dumped(broker: Broker, topic: str, group: str, release: str) -> None:
    create_topic(broker, topic)
    producer = transactional(broker, topic)
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": group})
    for offset, end in ((17, producer.commit_transaction), (18, producer.abort_transaction)):
        producer.begin_transaction()
        producer.produce(topic, b"a line")
        offsets = [TopicPartition(topic, 0, offset)]
        producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), 30)
        end(30)
    consumer.close()
    await_state(broker, topic, "CompleteAbort")

    lines = dumped(broker, "__transaction_state", "--transaction-log-decoder", release)
    own = [line for line in lines if topic in line]
    # 3.9.2 prints the state's name, 4.3.0 the record as JSON with the state's number.
    states = [found[1] for line in own if (found := re.search(r'(?:state=|"transactionStatus":)(\w+)', line))]
    assert list(dict.fromkeys(states)) == (STATES if release == "3.9.2" else NUMBERS), own
    lines = dumped(broker, "__consumer_offsets", "--offsets-decoder", release)
    committed = [line for line in lines if group in line]
    assert len(committed) == 2
    assert any("endTxnMarker: COMMIT" in line for line in lines)
    assert any("endTxnMarker: ABORT" in line for line in lines)


STATES: Final = ["Empty", "Ongoing", "PrepareCommit", "CompleteCommit", "PrepareAbort", "CompleteAbort"]
NUMBERS: Final = ["0", "1", "2", "4", "3", "5"]
