"""docs/spark.md: its commands run unchanged, one after the other, and its tables match the code."""

from __future__ import annotations

import importlib
import re
import sqlite3
from collections import Counter
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from odradek.broker_process import BrokerProcess
from odradek.spark_jobs import connector, differences, errors
from odradek.spark_jobs.snapshot_table import SnapshotTable
from tests.jvm.jars import PINNED, PYSPARK
from tests.jvm.kafka import Kafka
from tests.spark_jobs.copies import START, Record
from tests.spark_jobs.guide import COMMANDS, DOCS, PIPELINE, TEXT
from tests.spark_jobs.topics import make_topics, read, write

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JOBS: Final = ("archive", "replay", "snapshot", "windows", "sessions", "dedup_sink", "reconcile", "mirror")
PARTITIONS: Final = 2
NUMBERS: Final = (*range(50), 25)  # one comes twice
PAUSE_S: Final = 600


def second_of(number: int) -> int:
    """When a record happens: one every five seconds, with a pause in the middle."""
    return 5 * number + (PAUSE_S if number >= 25 else 0)


def record(topic: str, number: int) -> Record:
    time = START + timedelta(seconds=second_of(number))
    return Record(topic, number % PARTITIONS, 0, b"%d" % number, b"%d" % (number % 3), (("id", b"%d" % number),), time)


@pytest.mark.slow
@pytest.mark.jvm
def test_the_commands_run_unchanged(
    spark: SparkSession, spark_broker: BrokerProcess, kafka: Kafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All but that of the pipeline, which test_pipeline runs. The second cluster is Apache Kafka."""
    here, there = spark_broker.bootstrap, kafka.bootstrap
    make_topics(here, dict.fromkeys(("orders", "clicks", "orders-again"), PARTITIONS))
    make_topics(there, dict.fromkeys(("orders", "clicks", "orders-enriched"), PARTITIONS))
    write(here, [record(topic, number) for topic in ("orders", "clicks") for number in NUMBERS])
    monkeypatch.chdir(tmp_path)
    Path("customers.csv").write_text("id,name\n0,Anna\n1,Max\n")
    places = {"localhost:9092": here, "localhost:9192": there, "/tmp/odradek": str(tmp_path)}
    for command in COMMANDS:
        words = list(command)
        for written, meant in places.items():
            words = [word.replace(written, meant) for word in words]
        assert words[:2] == ["python", "-m"]
        if words[2] != PIPELINE:
            assert importlib.import_module(words[2]).main(words[3:]) == 0, command
    names = [dict(seen.headers).get("odradek.table.name") for seen in read(there, {"orders-enriched": PARTITIONS})]
    assert {b"Anna", b"Max", None} == set(names)
    assert len(read(here, {"orders-again": PARTITIONS})) == len(NUMBERS)
    check_events(spark, tmp_path)


def check_events(spark: SparkSession, folder: Path) -> None:
    """The commands below "Events" have written the documented output."""
    watermark = max(map(second_of, NUMBERS)) - 10
    minutes = Counter((b"%d" % (number % 3), second_of(number) // 60) for number in NUMBERS)
    windows = {
        (bytes(row.key), int(row.window_start.timestamp() - START.timestamp()) // 60): row["count"]
        for row in spark.read.parquet(str(folder / "windows")).collect()
    }
    assert windows == {place: count for place, count in minutes.items() if (place[1] + 1) * 60 <= watermark}
    sessions = spark.read.parquet(str(folder / "sessions")).collect()
    assert sorted((bytes(row.key), row["count"]) for row in sessions) == [(b"0", 9), (b"1", 8), (b"2", 8)]
    with closing(sqlite3.connect(folder / "events.sqlite")) as database:
        found = [bytes(row[0]) for row in database.execute("select event_id from events")]
    assert sorted(found) == sorted(b"%d" % number for number in range(50))
    latest = SnapshotTable(str(folder / "latest")).read(spark).collect()
    assert {(row.partition, bytes(row.key)): bytes(row.value) for row in latest} == {
        (each.partition, each.key): each.value for each in (record("orders", number) for number in NUMBERS)
    }


def test_every_job_is_named_and_has_an_example(capsys: pytest.CaptureFixture[str]) -> None:
    assert set(re.findall(r"^\| `(\w+)` \|", TEXT, re.MULTILINE)) == set(JOBS)
    for job in JOBS:
        assert importlib.import_module(f"odradek.spark_jobs.{job}").main(["--help"]) == 0
        assert f"python -m odradek.spark_jobs.{job} --bootstrap" in capsys.readouterr().out


def test_the_tables_are_those_of_the_code() -> None:
    assert set(re.findall(r"^\| (\w+) \| a ", TEXT, re.MULTILINE)) == set(differences.KINDS)
    known = (errors.DONE, errors.FAILED, errors.WRONG_USAGE, errors.NOT_THERE, errors.DIFFERENCES)
    assert [int(status) for status in re.findall(r"^\| (\d) \|", TEXT, re.MULTILINE)] == list(known)


def test_the_jars_are_those_of_the_code_and_of_the_tests() -> None:
    """test_connector checks which of them Ivy finds for the connector."""
    named = set(re.findall(r"^\| `([\w.]+:[\w.-]+:[\d.]+)` \|", TEXT, re.MULTILINE))
    assert named == set(map(str, PINNED["spark-4.2.0"]))
    assert connector.CONNECTOR in named
    (provider,) = [jar for jar in named if "token-provider" in jar]
    assert provider.rpartition(":")[2] == connector.CONNECTOR.rpartition(":")[2] == PYSPARK.partition("==")[2]
    # No other release is named anywhere on the page.
    assert set(re.findall(r"\b\d+\.\d+\.\d+\b", TEXT)) == {jar.rpartition(":")[2] for jar in named}


def test_its_links_have_targets() -> None:
    for target in re.findall(r"\]\(([^)]+)\)", TEXT):
        assert (DOCS / target).exists(), target
