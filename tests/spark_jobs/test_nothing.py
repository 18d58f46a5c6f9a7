"""Every job where there is nothing: empty topics, ranges of aborted records only, empty archives, tables and texts.

Spark's optimizer, and its adaptive execution, replace relations that are empty, and no longer execute the plan below
them. No job may wait for it, fail for it, or report anything but nothing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from odradek.broker_process import BrokerProcess
from odradek.spark_jobs import archive, dedup_sink, mirror, pipeline, reconcile, replay, sessions, snapshot, windows
from odradek.spark_jobs.archive import read_archive
from odradek.spark_jobs.differences import KINDS, MATCHES, differences
from odradek.spark_jobs.snapshot_table import SnapshotTable
from tests.spark_jobs import event_oracles as oracle
from tests.spark_jobs.copies import SCHEMA, START, Record
from tests.spark_jobs.topics import TIMEOUT_S, make_topics, producer, read, send, unique, write

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.jvm, pytest.mark.slow]

PARTITIONS: Final = 2


@pytest.fixture(scope="module")
def empty(spark: SparkSession, spark_broker: BrokerProcess) -> str:
    """A topic without records: there is nothing to read."""
    name = unique("empty")
    make_topics(spark_broker.bootstrap, {name: PARTITIONS})
    return name


@pytest.fixture
def aborted(spark: SparkSession, spark_broker: BrokerProcess) -> str:
    """A topic of aborted records only: there are offsets to read, but no records."""
    name = unique("aborted")
    make_topics(spark_broker.bootstrap, {name: PARTITIONS})
    to = producer(spark_broker.bootstrap, transactional_id=name)
    to.init_transactions(TIMEOUT_S)
    to.begin_transaction()
    for number in range(5):
        send(to, record(name, number))
    assert to.flush(TIMEOUT_S) == 0
    to.abort_transaction(TIMEOUT_S)
    return name


def record(topic: str, number: int, key: bytes | None = b"key") -> Record:
    return Record(topic, number % PARTITIONS, number, b"%d" % number, key, (), START)


def report_of(file: Path, *arguments: str) -> tuple[int, Mapping[str, int], Mapping[str, int]]:
    """The status of reconcile, and its report: the records of each side, and how many differences there are."""
    status = reconcile.main([*arguments, "--report", str(file)])
    report = json.loads(file.read_text())
    assert set(report["differences"]) == set(KINDS)
    return status, report["records"], {kind: n for kind, n in report["differences"].items() if n}


def test_reconcile(spark_broker: BrokerProcess, empty: str, aborted: str, tmp_path: Path) -> None:
    """Nothing beside nothing, beside something, and the other way round."""
    at, full, file = spark_broker.bootstrap, unique("full"), tmp_path / "report.json"
    make_topics(at, {full: PARTITIONS})
    write(at, [record(full, 0)])

    def found(topic: str, copy: str, match: str) -> tuple[int, Mapping[str, int], Mapping[str, int]]:
        copied = ("--with-bootstrap", at, "--with-topic", copy)
        return report_of(file, "--bootstrap", at, "--topic", topic, *copied, "--match", match)

    assert found(empty, aborted, "auto") == (0, {"left": 0, "right": 0}, {})
    assert found(aborted, aborted, "offset") == (0, {"left": 0, "right": 0}, {})
    assert found(aborted, full, "content") == (4, {"left": 0, "right": 1}, {"unexpected": 1})
    assert found(full, empty, "origin") == (4, {"left": 1, "right": 0}, {"loss": 1})


@pytest.mark.parametrize("match", MATCHES)
def test_differences_of_frames_that_spark_plans_as_empty(spark: SparkSession, match: Any) -> None:
    none = spark.createDataFrame([], SCHEMA)
    assert differences(none, none, match).collect() == []


def test_archive_and_its_readers(
    spark: SparkSession, spark_broker: BrokerProcess, empty: str, aborted: str, tmp_path: Path
) -> None:
    at, folder = spark_broker.bootstrap, str(tmp_path / "archive")
    topics = ("--bootstrap", at, "--topic", empty, "--topic", aborted)
    assert archive.main([*topics, "--once", "--checkpoint", str(tmp_path / "checkpoint"), "--output", folder]) == 0
    assert read_archive(spark, folder).count() == 0
    assert report_of(tmp_path / "report.json", *topics, "--archive", folder) == (0, {"left": 0, "right": 0}, {})
    arguments = [*topics, "--archive", folder, "--to", empty, "--checkpoint", str(tmp_path / "replay")]
    assert replay.main(arguments) == 3  # the archive has no records of these topics


def test_replay_and_mirror(
    spark_broker: BrokerProcess, empty: str, aborted: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The mirror with a table that has no row: adaptive execution removes such a join, but not its counts."""
    at, table = spark_broker.bootstrap, tmp_path / "table.csv"
    table.write_text("id,name\n")
    targets = [unique(name) for name in ("replayed", "mirrored")]
    make_topics(at, dict.fromkeys(targets, PARTITIONS))
    topics = ("--bootstrap", at, "--topic", empty, "--topic", aborted)
    enriched = ("--once", "--to-bootstrap", at, "--table", str(table), "--table-key", "id")
    for run, count in (("first", 0), ("next", 1)):
        kept = [str(tmp_path / name) for name in (f"replay-{run}", "mirror")]
        assert replay.main([*topics, "--to", targets[0], "--checkpoint", kept[0]]) == 0
        assert mirror.main([*topics, *enriched, "--to-topic", targets[1], "--checkpoint", kept[1]]) == 0
        assert [len(read(at, {target: PARTITIONS})) for target in targets] == [count, count]
        assert re.findall(r"^mirror: batch \d, ([\d,]+) rows, ", capfd.readouterr().err, re.MULTILINE) == [str(count)]
        write(at, [record(aborted, 0)])


def test_snapshot(spark: SparkSession, spark_broker: BrokerProcess, empty: str, aborted: str, tmp_path: Path) -> None:
    """A version without a row is a version, and the next one is built on it."""
    at, table = spark_broker.bootstrap, SnapshotTable(str(tmp_path))
    arguments = ["--bootstrap", at, "--topic", empty, "--topic", aborted, "--output", str(tmp_path)]
    for rows in (0, 1):
        assert snapshot.main(arguments) == 0
        assert table.manifest().rows == table.read(spark).count() == rows
        write(at, [record(aborted, 0)])


def test_events(
    spark: SparkSession,
    spark_broker: BrokerProcess,
    empty: str,
    aborted: str,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """Nothing, and then an event: the query continues at its position."""
    at = spark_broker.bootstrap
    jobs: Mapping[str, tuple[Any, list[str]]] = {
        "windows": (windows, ["--size", "1s"]),
        "sessions": (sessions, ["--gap", "1s"]),
        "state": (sessions, ["--gap", "1s", "--engine", "state"]),
        "events": (dedup_sink, ["--lateness", "1h"]),
    }
    for rows in ({"0"}, {"0", "1"}):
        for name, (job, own) in jobs.items():
            topics = ["--bootstrap", at, "--topic", empty, "--topic", aborted, "--once", *own]
            places = ["--checkpoint", str(tmp_path / f"checkpoint-{name}"), "--output", str(tmp_path / name)]
            assert job.main([*topics, *places]) == 0, name
        assert set(re.findall(r", ([\d,]+) rows, ", capfd.readouterr().err)) == rows
        write(at, [record(aborted, 0)])
    assert len(oracle.parquet_rows(tmp_path / "events", "event_id")) == 1
    for name in ("windows", "sessions", "state"):  # no window and no session is closed: batches without a row
        assert spark.read.parquet(str(tmp_path / name)).count() == 0


def test_a_text_without_lines_is_rejected_before_any_process_starts(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "text").write_text("")
    assert pipeline.main(["--output", str(tmp_path / "words"), "--text", str(tmp_path / "text")]) == 3
    assert "has no lines" in capfd.readouterr().err
