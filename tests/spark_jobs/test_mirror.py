"""mirror: from Odradek to Apache Kafka and back, with transactions, codecs and restarts."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from odradek.broker_process import BrokerProcess
from odradek.spark_jobs import mirror, reconcile
from odradek.spark_jobs.errors import JobError
from odradek.spark_jobs.kafka_admin import KafkaAdmin
from tests.jvm.kafka import Kafka
from tests.spark_jobs.checkpoints import forget_last_commit
from tests.spark_jobs.copies import SCHEMA, START, Record
from tests.spark_jobs.topics import Seen, make_topics, producer, read, send, unique

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.jvm, pytest.mark.slow]

RECORDS: Final = 1_000
PARTITIONS: Final = 2
TRANSACTIONS: Final = 6
"""Every third is aborted."""
KEYS: Final = 97
NAME, CITY = "odradek.table.name", "odradek.table.city"
ROWS: Final = {b"1": {NAME: b"Anna", CITY: b"Prag"}, b"2": {NAME: b"Max"}}


@pytest.fixture
def way(spark_broker: BrokerProcess, kafka: Kafka) -> tuple[str, str]:
    """The source and the target; the guide's mirror goes the other way."""
    return kafka.bootstrap, spark_broker.bootstrap


def own_of(seen: Seen) -> tuple[object, ...]:
    """The fields that have to be the same in a copy."""
    headers = tuple(header for header in seen.headers if not header[0].startswith("odradek."))
    return seen.topic, seen.partition, seen.key, seen.value, headers, seen.timestamp_ms


def origin_of(seen: Seen) -> tuple[str, int, int]:
    (place,) = [value for key, value in seen.headers if key == "odradek.origin"]
    topic, partition, offset = (place or b"").decode().rsplit(":", 2)
    return topic, int(partition), int(offset)


def rows_of(seen: Seen) -> dict[str, bytes | None]:
    return {key: value for key, value in seen.headers if key.startswith("odradek.table.")}


def run(source: str, target: str, topic: str, checkpoint: Path, *more: str) -> int:
    common = (
        "--topic",
        topic,
        "--bootstrap",
        source,
        "--to-bootstrap",
        target,
        "--checkpoint",
        str(checkpoint),
        "--once",
    )
    return mirror.main([*common, *more])


def compare(source: str, target: str, topic: str, report: Path, *more: str) -> tuple[int, dict[str, int]]:
    common = ("--topic", topic, "--bootstrap", source, "--with-bootstrap", target, "--report", str(report))
    status = reconcile.main([*common, *more])
    counts: dict[str, int] = json.loads(report.read_text())["differences"]
    return status, {kind: count for kind, count in counts.items() if count}


def fill(bootstrap: str, topic: str, count: int) -> None:
    """`count` records in transactions, and half as many more in transactions that were aborted."""
    to = producer(bootstrap, transactional_id=topic)
    to.init_transactions(60)
    length = count * 3 // 2 // TRANSACTIONS
    for begun in range(TRANSACTIONS):
        to.begin_transaction()
        for number in range(begun * length, (begun + 1) * length):
            key = b"%d" % (number % KEYS) if number % KEYS else None
            headers = (("n", b"%d" % number), ("e", b""))
            time = START + timedelta(milliseconds=number)
            send(to, Record(topic, number % PARTITIONS, 0, b"%d" % number, key, headers, time))
        assert to.flush(60) == 0  # aborted records have to be in the log
        if begun % 3 == 1:
            to.abort_transaction(60)
        else:
            to.commit_transaction(60)


def test_every_record_arrives_with_rows_of_a_table_and_repeated_records_are_counted(
    spark: SparkSession, way: tuple[str, str], tmp_path: Path
) -> None:
    """Spark commits a batch after it is written: without the last commit it is as after a kill between the two, and the
    batch is written again.
    """
    source, target = way
    name, records = unique("input"), RECORDS
    for bootstrap in way:
        make_topics(bootstrap, {name: PARTITIONS})
    fill(source, name, records)
    table, group, checkpoint = tmp_path / "customers.csv", f"{name}-group", tmp_path / "checkpoint"
    table.write_text("id,name,city\n1,Anna,Prag\n2,Max,\n")
    more: tuple[str, ...] = ("--batch-records", str(records), "--group", group, "--to-kafka", "compression.type=lz4")
    more = (*more, "--table", str(table), "--table-key", "id")
    assert run(source, target, name, checkpoint, *more) == 0
    forget_last_commit(checkpoint)
    assert run(source, target, name, checkpoint, *more) == 0

    places = {name: PARTITIONS}
    there, written = read(source, places), read(target, places)
    first = list({origin_of(seen): seen for seen in reversed(written)}.values())[::-1]
    assert len(there) == records
    assert [own_of(seen) for seen in first] == [own_of(seen) for seen in there]
    assert [origin_of(seen) for seen in first] == [seen[:3] for seen in there]
    assert [rows_of(seen) for seen in written] == [ROWS.get(seen.key or b"", {}) for seen in written]
    again = len(written) - records
    assert 0 < again < records
    report = tmp_path / "report.json"
    assert compare(source, target, name, report, "--allow", "duplicate") == (0, {"duplicate": again})
    with KafkaAdmin(spark, {"bootstrap.servers": source}) as admin:
        assert admin.committed(group) == admin.ends(places)


def test_a_copy_of_a_copy_names_the_copy(spark: SparkSession) -> None:
    first = Record("a", 1, 5, None, None, (("h", None), ("odradek.origin", b"z:0:9"), ("odradek.timestamp", b"1")))
    (row,) = mirror.transform(spark.createDataFrame([first.row], SCHEMA), to_topic="copy.{topic}.x").collect()
    assert (row.topic, row.partition, row.key, row.value) == ("copy.a.x", 1, None, None)
    time_ms = str(round(first.timestamp.timestamp() * 1000)).encode()
    assert [(key, None if value is None else bytes(value)) for key, value in row.headers] == [
        ("h", None),
        ("odradek.origin", b"a:1:5"),
        ("odradek.timestamp", time_ms),
    ]


def test_records_that_cannot_be_copied_are_reported_before_any_is_copied(
    spark: SparkSession, way: tuple[str, str], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    source, target = way
    topic, small = unique("large"), unique("small")
    make_topics(source, {topic: 2})
    make_topics(target, {small: 1})
    table = tmp_path / "table.csv"
    table.write_text("id,name\n1,Anna\n1,Max\n")
    cases = [
        (("--to-topic", "nowhere"), 3, "no such topic: nowhere"),
        (("--to-topic", small), 3, f"{small} at {target} has 1 partitions, and {topic} has 2"),
        (("--to-bootstrap", source), 1, f"{topic} would be copied into itself"),
        (("--to-bootstrap", source, "--to-topic", "nowhere"), 3, "no such topic: nowhere"),
    ]
    for number, (more, status, message) in enumerate(cases):
        assert run(source, target, topic, tmp_path / str(number), *more) == status
        assert message in capfd.readouterr().err
    with pytest.raises(JobError, match="has 2 rows for id 1"):
        mirror.read_table(spark, str(table), "id")
    with pytest.raises(JobError, match="has no column key; it has id, name"):
        mirror.read_table(spark, str(table), "key")
