"""dedup_sink: each event once, in SQLite and in Parquet, even if it is produced twice or read twice."""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from odradek.broker_process import BrokerProcess
from odradek.spark_jobs import dedup_sink
from odradek.spark_jobs.committed import ParquetFolder, SqliteTable
from tests.spark_jobs import event_oracles as oracle
from tests.spark_jobs.checkpoints import forget_last_commit
from tests.spark_jobs.copies import SCHEMA, Record
from tests.spark_jobs.dedup_sink_job import LATENESS_MS, arguments, drawn, written
from tests.spark_jobs.event_oracles import EPOCH_MS
from tests.spark_jobs.topics import make_topics, unique, write

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.jvm, pytest.mark.slow]


def test_each_event_is_stored_once(spark: SparkSession, spark_broker: BrokerProcess, tmp_path: Path) -> None:
    """At the end the job repeats a batch whose end was not recorded."""
    events, sink = drawn(200, 1), "events.sqlite"
    topic, bootstrap = unique("dedup"), spark_broker.bootstrap
    make_topics(bootstrap, {topic: 2})
    write(bootstrap, oracle.records(topic, events))
    assert dedup_sink.main(arguments(bootstrap, topic, tmp_path, sink)) == 0
    checkpoint = tmp_path / f"checkpoint-{sink}"
    batches = oracle.batches_of(checkpoint, events, LATENESS_MS)
    assert sum(len(batch.events) for batch in batches) == len(events)
    expected = Counter((n, *event) for n, event in oracle.once_each(batches, LATENESS_MS))
    assert written(tmp_path, sink, _query(tmp_path, sink)) == expected
    forget_last_commit(checkpoint)
    assert dedup_sink.main(arguments(bootstrap, topic, tmp_path, sink)) == 0
    assert written(tmp_path, sink, _query(tmp_path, sink)) == expected
    ids = Counter(event_id for _, _, _, event_id, _ in expected.elements() if event_id is not None)
    assert max(ids.values()) > 1, "no event was repeated after the lateness"
    assert sum(ids.values()) < sum(each.key is not None for each in events) - 20, "hardly one was repeated within it"


def _query(folder: Path, sink: str) -> str:
    return str(json.loads((folder / f"checkpoint-{sink}" / "metadata").read_text())["id"])


def rows_of(spark: SparkSession, *values: bytes) -> Any:
    records = [Record("t", 0, offset, value).row for offset, value in enumerate(values)]
    return spark.createDataFrame(records, SCHEMA)


def test_a_complete_batch_is_not_written_again_and_half_of_one_is(spark: SparkSession, tmp_path: Path) -> None:
    sink = ParquetFolder(str(tmp_path / "with a space=and %"))
    assert sink(rows_of(spark, b"1", b"2"), "q", 0)
    assert not sink(rows_of(spark, b"other"), "q", 0)
    half = tmp_path / "with a space=and %" / "query_id=q" / ".batch_id=1"
    half.mkdir()
    (half / "part-0.parquet").write_bytes(b"torn")
    assert sink(rows_of(spark, b"3"), "q", 1)
    assert sink(rows_of(spark, b"4"), "another", 0)
    found = oracle.parquet_rows(tmp_path / "with a space=and %", "query_id", "batch_id", "value")
    assert sorted(found) == [("another", 0, b"4"), ("q", 0, b"1"), ("q", 0, b"2"), ("q", 1, b"3")]


def test_sqlite_has_a_batch_wholly_or_not_at_all(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "events.sqlite"
    sink = SqliteTable(str(path), "events")
    assert sink(rows_of(spark, b"1", b"2"), "q", 0)
    assert not sink(rows_of(spark, b"other"), "q", 0)
    with closing(sqlite3.connect(path)) as database:
        database.execute(
            "CREATE TRIGGER full BEFORE INSERT ON events WHEN NEW.value = x'34' "
            "BEGIN SELECT RAISE(ABORT, 'no room'); END"
        )
    with pytest.raises(sqlite3.IntegrityError, match="no room"):
        sink(rows_of(spark, b"3", b"4"), "q", 1)
    with closing(sqlite3.connect(path)) as database:
        assert database.execute("SELECT query_id, batch_id FROM batches").fetchall() == [("q", 0)]
        database.execute("DROP TRIGGER full")
    assert sink(rows_of(spark, b"3", b"4"), "q", 1)
    with closing(sqlite3.connect(path)) as database:
        rows = database.execute("SELECT batch_id, value, headers, timestamp FROM events").fetchall()
    assert [row[:2] for row in rows] == [(0, b"1"), (0, b"2"), (1, b"3"), (1, b"4")]
    assert {row[2:] for row in rows} == {('[{"key":"h","value":"MQ=="}]', EPOCH_MS)}
